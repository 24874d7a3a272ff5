/* Records an allreduce round by round, for `dtrain lab allreduce` and `lab reduce`. The executor
 * runs the schedule's moves over the local wire, all ranks in one process, on real numbers. The
 * record comes from the moves and from the numbers after each round, so it does not depend on the
 * algorithm. A rank's round ends when its executor ends it: where ranks wait for each other, some
 * end it later, and the record shows when. */
#ifndef DT_LAB_LESSON_ALLREDUCE_H
#define DT_LAB_LESSON_ALLREDUCE_H

#include "dist/allreduce/algorithm.h"
#include "dist/ranks/wire.h"

/* A message that arrived; or a rank added its own input: then from == to. */
struct dt_transfer {
    int from, to;
    bool adds;      /* else it replaces the old value */
    int begin, end; /* pieces; an empty message has none */
    float value;    /* of every piece; NAN: the pieces have different values, or there are none */
};

struct dt_replay {
    const struct dt_algorithm *algorithm; /* borrowed */
    int size, n_rounds, n_pieces;
    size_t n_elems;
    size_t *cuts; /* piece i is elements [cuts[i], cuts[i + 1]): every move covers whole pieces */
    struct dt_transfer *transfers;
    int *ends; /* the transfers of round r end before transfers[ends[r]] */
    /* Before the first round and after each: the first element of each piece of each rank. */
    float *states;
    float **data;           /* each rank's vector at the end */
    struct dt_traffic sent; /* by all ranks */
};

/* Runs the algorithm on the inputs of `value`. DT_INTERNAL: the schedule is wrong; the error text
 * says how. DT_NO_MEMORY. */
enum dt_status dt_replay_open(const struct dt_algorithm *algorithm, int size, size_t n_elems,
                              float (*value)(int rank, size_t i), struct dt_replay *out);
void dt_replay_close(struct dt_replay *replay);

/* The transfers that arrive in a round from 0 to n_rounds - 1, in the order of their senders. */
const struct dt_transfer *dt_replay_transfers(const struct dt_replay *replay, int round, int *n);
/* A rank's n_pieces values after `n_rounds` rounds. */
float *dt_replay_state(const struct dt_replay *replay, int n_rounds, int rank);

#endif
