/* Signs of life between ranks that work apart for longer than the limit of a wait: an allreduce is
 * always under way, which every rank enters anew as soon as it is done. Ranks that work look at it
 * between steps; ranks that have finished sleep until all have. One that shows no sign of life is
 * named after the usual limit, by whoever looks or sleeps. */
#ifndef DT_DIST_LIVENESS_HEARTBEAT_H
#define DT_DIST_LIVENESS_HEARTBEAT_H

#include "base/clock.h"
#include "dist/ranks/comm.h"

struct dt_heartbeat {
    struct dt_comm *comm;
    const char *name;   /* what time-out messages call it; must stay in place */
    size_t n;           /* numbers of each rank, which all then have the sum of */
    double *mine, *sum; /* n each, given; [0]: 1 once this rank has finished. `sum` is in use while
                           one is under way */
    void (*take)(void *context); /* each time a sum is there; may change `mine`. NULL: nothing */
    void *context;
    struct dt_request request;   /* private */
    struct dt_patience patience; /* private: with the one under way */
    enum dt_status failed;       /* private: of an earlier look */
};

/* Every rank calls it, with n > 0 alike. DT_STALLED. */
enum dt_status dt_heartbeat_start(struct dt_heartbeat *beat);

/* Between two steps; never blocks. DT_STALLED, also of an earlier look. */
enum dt_status dt_heartbeat_look(struct dt_heartbeat *beat);

/* The same for long work without steps: the hook of a communicator (dt_comm_alive), or of anything
 * else that shows signs of life.
 */
void dt_heartbeat_show(void *heartbeat);

/* Sleeps until every rank has finished. They all see the same sums, so they all leave after the
 * same one. DT_STALLED. */
enum dt_status dt_heartbeat_finish(struct dt_heartbeat *beat);

#endif
