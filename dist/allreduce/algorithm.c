#include "dist/allreduce/algorithm.h"

static int n_segments_of(const struct dt_algorithm *algorithm, size_t n_elems)
{
    return algorithm->pipelined && n_elems > DT_SEGMENT_ELEMS
               ? (int)((n_elems + DT_SEGMENT_ELEMS - 1) / DT_SEGMENT_ELEMS)
               : 1;
}

int dt_algorithm_n_rounds(const struct dt_algorithm *algorithm, int size, size_t n_elems)
{
    const int depth = algorithm->n_rounds(size);
    return depth > 0 ? depth + n_segments_of(algorithm, n_elems) - 1 : 0;
}

int dt_algorithm_max_moves(const struct dt_algorithm *algorithm, int size, size_t n_elems)
{
    const int depth = algorithm->n_rounds(size), n_segments = n_segments_of(algorithm, n_elems);
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
    const int depth = algorithm->n_rounds(size), n_segments = n_segments_of(algorithm, n_elems);
    int n = 0;
    for (int s = round < depth ? 0 : round - depth + 1; s <= round && s < n_segments; s++) {
        const size_t begin = dt_piece_begin(n_elems, s, n_segments),
                     end = dt_piece_begin(n_elems, s + 1, n_segments);
        n += segment_round(algorithm, rank, size, begin, end, round - s, moves + n);
    }
    return n;
}

struct dt_traffic dt_algorithm_formula(const struct dt_algorithm *algorithm, int size,
                                       size_t n_elems)
{
    const int n_segments = n_segments_of(algorithm, n_elems);
    struct dt_traffic all = {0};
    for (int s = 0; s < n_segments; s++) {
        const size_t begin = dt_piece_begin(n_elems, s, n_segments),
                     end = dt_piece_begin(n_elems, s + 1, n_segments);
        const struct dt_traffic sent = algorithm->formula(size, end - begin);
        all.messages += sent.messages;
        all.elements += sent.elements;
    }
    return all;
}

struct dt_traffic dt_algorithm_traffic(const struct dt_algorithm *algorithm, int rank, int size,
                                       size_t n_elems, const int *host_roots, struct dt_move *moves)
{
    struct dt_traffic sent = {0};
    for (int round = 0; round < dt_algorithm_n_rounds(algorithm, size, n_elems); round++) {
        const int n = dt_algorithm_round(algorithm, rank, size, n_elems, round, moves);
        for (int i = 0; i < n; i++) {
            const bool counts = host_roots == NULL || host_roots[moves[i].peer] != host_roots[rank];
            if (counts && (moves[i].kind == DT_SEND || moves[i].kind == DT_SEND_INPUT)) {
                sent.messages++;
                sent.elements += moves[i].end - moves[i].begin;
            }
        }
    }
    return sent;
}
