/* An allreduce of many ranks in one process, looked at round by round: what `dtrain lab` tells and
 * draws.
 *
 * The executor runs the schedule's moves over the local wire, with numbers in them. All that is
 * kept here comes from the moves and from the numbers after each round; nothing knows an algorithm.
 * A round is over for a rank when the executor has ended it: of ranks that wait for each other it
 * may end later than for others, and is kept where it ended. */
#ifndef DT_LAB_REPLAY_H
#define DT_LAB_REPLAY_H

#include "dist/allreduce/algorithm.h"
#include "dist/ranks/wire.h"

/* A message that arrived, or a rank's own input added: then from == to. */
struct dt_transfer {
    int from, to;
    bool adds;      /* else it replaces */
    int begin, end; /* pieces; an empty message has none */
    float value; /* what came, of its first piece; NAN: its pieces have different values, or there
                    are none */
};

struct dt_replay {
    const struct dt_algorithm *algorithm; /* borrowed */
    int size, n_rounds, n_pieces;
    size_t n_elems;
    size_t *cuts; /* piece i is elements [cuts[i], cuts[i + 1]): no move ends inside one */
    struct dt_transfer *transfers;
    int *ends;     /* those of round r end before transfers[ends[r]] */
    float *states; /* before the first round and after each: of each rank the first element of each
                      piece */
    float **data;  /* each rank's vector at the end */
    struct dt_wire_count *sent; /* by each rank */
};

/* Runs it from what `value` says. DT_INTERNAL: the schedule is wrong, in words. DT_NO_MEMORY. */
enum dt_status dt_replay_open(const struct dt_algorithm *algorithm, int size, size_t n_elems,
                              float (*value)(int rank, size_t i), struct dt_replay *out);
void dt_replay_close(struct dt_replay *replay);

/* Those that a round delivers, in the order of senders; round 0 .. n_rounds - 1. */
const struct dt_transfer *dt_replay_transfers(const struct dt_replay *replay, int round, int *n);
/* Of a rank after `n_rounds` rounds: n_pieces values. */
const float *dt_replay_state(const struct dt_replay *replay, int n_rounds, int rank);

#endif
