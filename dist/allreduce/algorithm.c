#include "dist/allreduce/algorithm.h"

int dt_algorithm_n_segments(const struct dt_algorithm *algorithm, size_t n_elems)
{
    return algorithm->pipelined && n_elems > DT_SEGMENT_ELEMS
               ? (int)((n_elems + DT_SEGMENT_ELEMS - 1) / DT_SEGMENT_ELEMS)
               : 1;
}

int dt_algorithm_n_rounds(const struct dt_algorithm *algorithm, int size, size_t n_elems)
{
    const int depth = algorithm->n_rounds(size);
    return depth > 0 ? depth + dt_algorithm_n_segments(algorithm, n_elems) - 1 : 0;
}

int dt_algorithm_max_moves(const struct dt_algorithm *algorithm, int size, size_t n_elems)
{
    const int depth = algorithm->n_rounds(size),
              n_segments = dt_algorithm_n_segments(algorithm, n_elems);
    return n_segments == 1 ? 2 * size : 2 * (n_segments < depth ? n_segments : depth);
}

/* The moves of segment s in its own round, moved to where the segment is. */
static int segment_round(const struct dt_algorithm *algorithm, int rank, int size, size_t begin,
                         size_t end, int round, struct dt_move *moves)
{
    const int n = algorithm->round(rank, size, end - begin, round, moves);
    for (int i = 0; i < n; i++) {
        moves[i].begin += begin;
        moves[i].end += begin;
    }
    return n;
}

int dt_algorithm_round(const struct dt_algorithm *algorithm, int rank, int size, size_t n_elems,
                       int round, struct dt_move *moves)
{
    const int depth = algorithm->n_rounds(size),
              n_segments = dt_algorithm_n_segments(algorithm, n_elems);
    int n = 0;
    for (int s = round < depth ? 0 : round - depth + 1; s <= round && s < n_segments; s++) {
        const size_t begin = dt_piece_begin(n_elems, s, n_segments),
                     end = dt_piece_begin(n_elems, s + 1, n_segments);
        n += segment_round(algorithm, rank, size, begin, end, round - s, moves + n);
    }
    return n;
}
