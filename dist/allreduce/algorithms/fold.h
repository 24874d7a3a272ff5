/* Algorithms for powers of two, on any number of ranks (Thakur et al., algorithm.h). */
#ifndef DT_DIST_ALLREDUCE_ALGORITHMS_FOLD_H
#define DT_DIST_ALLREDUCE_ALGORITHMS_FOLD_H

#include "dist/allreduce/algorithm.h"

/* The number of times that 1 has to be doubled to reach `size`. */
static inline int dt_log2_ceil(int size)
{
    int n = 0;
    while (n < 31 && (int64_t)1 << n < size) {
        n++;
    }
    return n;
}

/* The even ranks among the first 2 n_extra give their vectors to the next rank and sit out until
 * they get the sum. */
struct dt_fold {
    int n_active, n_levels; /* a power of two, and which */
    int n_extra;
};

static inline struct dt_fold dt_fold_of(int size)
{
    DT_ASSERT(size >= 1);
    int n_levels = 0;
    while (n_levels < 30 && 2 << n_levels <= size) {
        n_levels++;
    }
    return (struct dt_fold){
        .n_active = 1 << n_levels, .n_levels = n_levels, .n_extra = size - (1 << n_levels)};
}

/* A rank's number among the active ones; -1: it sits out. */
static inline int dt_fold_number(const struct dt_fold *fold, int rank)
{
    if (rank >= 2 * fold->n_extra) {
        return rank - fold->n_extra;
    }
    return rank % 2 == 1 ? rank / 2 : -1;
}

static inline int dt_fold_rank(const struct dt_fold *fold, int number)
{
    DT_ASSERT(number >= 0 && number < fold->n_active);
    return number < fold->n_extra ? 2 * number + 1 : number + fold->n_extra;
}

/* The moves of the first of all rounds, or of the last one: from a rank that sits out to its
 * neighbour, or back. */
static inline int dt_fold_moves(const struct dt_fold *fold, int rank, size_t n_elems, bool back,
                                struct dt_move *moves)
{
    if (rank >= 2 * fold->n_extra) {
        return 0;
    }
    const bool sits_out = rank % 2 == 0;
    moves[0] = (struct dt_move){.peer = sits_out ? rank + 1 : rank - 1, .end = n_elems};
    moves[0].kind = sits_out != back ? DT_SEND : back ? DT_REPLACE : DT_ADD;
    return 1;
}

#endif
