/* An allreduce recorded round by round, for `dtrain lab allreduce` and `reduce`. The executor runs
 * the schedule's moves over the local wire, all ranks in one process, on real numbers. All records
 * come from the moves and from the numbers after each round; nothing depends on an algorithm. A
 * round ends for a rank when its executor ends it: when ranks wait for each other, some end it
 * later, and the record shows when. */
#ifndef DT_LAB_ALLREDUCE_H
#define DT_LAB_ALLREDUCE_H

#include "dist/allreduce/algorithm.h"
#include "dist/ranks/wire.h"

/* A message that arrived, or the adding of a rank's own input: then from == to. */
struct dt_transfer {
    int from, to;
    bool adds;      /* else it replaces the old value */
    int begin, end; /* pieces; an empty message has none */
    float value; /* of its first piece; NAN: its pieces have different values, or there are none */
};

struct dt_replay {
    const struct dt_algorithm *algorithm; /* borrowed */
    int size, n_rounds, n_pieces;
    size_t n_elems;
    size_t *cuts; /* piece i is elements [cuts[i], cuts[i + 1]): every move covers whole pieces */
    struct dt_transfer *transfers;
    int *ends; /* the transfers of round r end before transfers[ends[r]] */
    float *
        states; /* before the first round and after each: each rank's first element of each piece */
    float **data;               /* each rank's vector at the end */
    struct dt_wire_count *sent; /* by each rank */
};

/* Runs it on the inputs of `value`. DT_INTERNAL: the schedule is wrong; the text says how.
 * DT_NO_MEMORY. */
enum dt_status dt_replay_open(const struct dt_algorithm *algorithm, int size, size_t n_elems,
                              float (*value)(int rank, size_t i), struct dt_replay *out);
void dt_replay_close(struct dt_replay *replay);

/* The transfers that a round delivers, in the order of senders; round 0 .. n_rounds - 1. */
const struct dt_transfer *dt_replay_transfers(const struct dt_replay *replay, int round, int *n);
/* A rank's n_pieces values after `n_rounds` rounds. */
const float *dt_replay_state(const struct dt_replay *replay, int n_rounds, int rank);

#endif
