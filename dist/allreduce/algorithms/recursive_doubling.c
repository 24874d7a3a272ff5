/* Recursive doubling, or butterfly: in round l ranks that are 2^l apart exchange all they have, and
 * both add. log2 n rounds: the fewest there are, so the quickest for small vectors. */
#include "dist/allreduce/algorithms/fold.h"

int dt_recursive_doubling_n_rounds(int size, size_t n_elems)
{
    (void)n_elems;
    const struct dt_fold fold = dt_fold_of(size);
    return fold.n_levels + (fold.n_extra > 0 ? 2 : 0);
}

int dt_recursive_doubling_round(int rank, int size, size_t n_elems, int round,
                                struct dt_move *moves)
{
    const struct dt_fold fold = dt_fold_of(size);
    const int level = round - (fold.n_extra > 0), number = dt_fold_number(&fold, rank);
    if (level < 0 || level == fold.n_levels) {
        return dt_fold_moves(&fold, rank, n_elems, level >= 0, moves);
    }
    if (number < 0) {
        return 0;
    }
    const int peer = dt_fold_rank(&fold, number ^ 1 << level);
    moves[0] = (struct dt_move){.kind = DT_SEND, .peer = peer, .end = n_elems};
    moves[1] = (struct dt_move){.kind = DT_ADD, .peer = peer, .end = n_elems};
    return 2;
}

struct dt_traffic dt_recursive_doubling_formula(int size, size_t n_elems)
{
    const struct dt_fold fold = dt_fold_of(size);
    const uint64_t n =
        (uint64_t)fold.n_active * (uint64_t)fold.n_levels + 2 * (uint64_t)fold.n_extra;
    return (struct dt_traffic){.messages = n, .bytes = n * n_elems * sizeof(float)};
}
