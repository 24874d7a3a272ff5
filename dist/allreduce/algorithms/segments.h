/* A large vector goes in segments, each one round behind the one before it, for algorithms that
 * send whole vectors through several ranks: while one rank sends a segment on, it receives the
 * next. */
#ifndef DT_DIST_ALLREDUCE_ALGORITHMS_SEGMENTS_H
#define DT_DIST_ALLREDUCE_ALGORITHMS_SEGMENTS_H

#include "dist/allreduce/algorithm.h"

#define DT_SEGMENT_ELEMS ((size_t)1 << 18) /* of a segment, at most: 1 MiB */

static inline int dt_n_segments(size_t n_elems)
{
    return n_elems > DT_SEGMENT_ELEMS ? (int)((n_elems + DT_SEGMENT_ELEMS - 1) / DT_SEGMENT_ELEMS)
                                      : 1;
}

/* depth: the rounds of one segment. */
static inline int dt_segments_n_rounds(int depth, size_t n_elems)
{
    return depth > 0 ? depth + dt_n_segments(n_elems) - 1 : 0;
}

/* The moves of all segments in a round, each at its place. one: the `round` of a single segment,
 * with at most one move. */
static inline int
dt_segments_round(int (*one)(int rank, int size, size_t n_elems, int round, struct dt_move *moves),
                  int depth, int rank, int size, size_t n_elems, int round, struct dt_move *moves)
{
    DT_ASSERT(round >= 0 && round < dt_segments_n_rounds(depth, n_elems));
    const int n_segments = dt_n_segments(n_elems);
    int n = 0;
    for (int s = round < depth ? 0 : round - depth + 1; s <= round && s < n_segments; s++) {
        const size_t begin = dt_piece_begin(n_elems, s, n_segments),
                     end = dt_piece_begin(n_elems, s + 1, n_segments);
        if (one(rank, size, end - begin, round - s, &moves[n]) == 1) {
            moves[n].begin += begin;
            moves[n++].end += begin;
        }
    }
    DT_ASSERT(n <= DT_MAX_MOVES(size));
    return n;
}

#endif
