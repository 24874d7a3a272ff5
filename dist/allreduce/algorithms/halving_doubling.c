/* Halving and doubling (Rabenseifner's algorithm): ranks that are n / 2, n / 4, ... apart exchange
 * halves of what each still has to add, until every rank has the sum of one piece; then the same
 * way back, doubling what it has. As few rounds as a butterfly's twice, as few elements as a
 * ring's. Rabenseifner, "Optimization of collective reduction operations", ICCS 2004. */
#include "dist/allreduce/algorithms/fold.h"

int dt_halving_doubling_n_rounds(int size, size_t n_elems)
{
    (void)n_elems;
    const struct dt_fold fold = dt_fold_of(size);
    return 2 * fold.n_levels + (fold.n_extra > 0 ? 2 : 0);
}

int dt_halving_doubling_round(int rank, int size, size_t n_elems, int round, struct dt_move *moves)
{
    const struct dt_fold fold = dt_fold_of(size);
    const int step = round - (fold.n_extra > 0), number = dt_fold_number(&fold, rank);
    if (step < 0 || step == 2 * fold.n_levels) {
        return dt_fold_moves(&fold, rank, n_elems, step >= 0, moves);
    }
    if (number < 0) {
        return 0;
    }
    const bool adds = step < fold.n_levels;
    const int level = adds ? step : 2 * fold.n_levels - 1 - step;
    const int half = fold.n_active >> (level + 1), mine = number & ~(half - 1),
              others = mine ^ half, n = fold.n_active;
    const struct dt_move my_half = {.begin = dt_piece_begin(n_elems, mine, n),
                                    .end = dt_piece_begin(n_elems, mine + half, n)};
    const struct dt_move other_half = {.begin = dt_piece_begin(n_elems, others, n),
                                       .end = dt_piece_begin(n_elems, others + half, n)};
    moves[0] = adds ? other_half : my_half;
    moves[1] = adds ? my_half : other_half;
    moves[0].kind = DT_SEND;
    moves[1].kind = adds ? DT_ADD : DT_REPLACE;
    moves[0].peer = moves[1].peer = dt_fold_rank(&fold, number ^ half);
    return 2;
}

/* Each active rank sends all pieces but its own, twice; and those who sit out and their neighbours
 * the whole vector. */
struct dt_traffic dt_halving_doubling_formula(int size, size_t n_elems)
{
    const struct dt_fold fold = dt_fold_of(size);
    const uint64_t n = (uint64_t)fold.n_active, n_extra = (uint64_t)fold.n_extra;
    return (struct dt_traffic){.messages = 2 * n * (uint64_t)fold.n_levels + 2 * n_extra,
                               .bytes = 2 * (n - 1 + n_extra) * n_elems * sizeof(float)};
}
