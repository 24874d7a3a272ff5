/* All ranks of a schedule on a virtual clock: how long it takes, and which link and which rank
 * carry most.
 *
 * A message takes alpha + beta * bytes, a rank adds in gamma an element (Hockney's model, as Thakur
 * et al. use it). It begins when both sides have asked for it and both links are free: that of its
 * sender going out and that of its receiver coming in, which the ranks of a host share. A rank's
 * round ends when its messages are through and what came is added. Between ranks of one host a
 * message takes turns with none but those two ranks' own. Of what could begin now, what its sender
 * was asked for first does.
 *
 * The same arguments give the same result to the bit. The work is a few steps of a heap of messages
 * for each. */
#ifndef DT_DIST_ALLREDUCE_SIMULATE_H
#define DT_DIST_ALLREDUCE_SIMULATE_H

#include "dist/allreduce/formula.h"
#include "dist/ranks/wire.h"

struct dt_link_cost {
    double alpha_s, beta_s; /* seconds a message, and a byte */
};

struct dt_costs {
    int ranks_per_host;                  /* at least 1; ranks 0, 1, ... fill the hosts in turn */
    struct dt_link_cost between, within; /* hosts; a host */
    double gamma_s;                      /* an element added */
};

struct dt_load {
    struct dt_traffic sent, received;
};

struct dt_simulation {
    double seconds;
    struct dt_traffic all;       /* sent by all ranks */
    uint64_t busiest_rank_bytes; /* sent and received by one rank */
    uint64_t busiest_link_bytes; /* of a host, one way; without messages inside it */
};

/* loads: what each of `size` ranks sends and receives, or NULL. DT_INTERNAL: the schedule is wrong,
 * in words: a rank waits for ever, or the two ends of a message differ in length. DT_NO_MEMORY. */
enum dt_status dt_simulate(const struct dt_algorithm *algorithm, int size, size_t n_elems,
                           const struct dt_costs *costs, struct dt_simulation *out,
                           struct dt_load *loads);

#endif
