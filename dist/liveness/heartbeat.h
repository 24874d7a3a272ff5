/* Signs of life between ranks that work independently for longer than the limit of a wait, as the
 * trials of a sweep do. An allreduce is always under way; each rank starts the next as soon as it
 * ends. Ranks that work test it between steps; ranks that have finished sleep until all have. After
 * the usual limit every rank that tests or sleeps names the ranks that show no sign of life. */
#ifndef DT_DIST_LIVENESS_HEARTBEAT_H
#define DT_DIST_LIVENESS_HEARTBEAT_H

#include "base/clock.h"
#include "dist/ranks/comm.h"

struct dt_heartbeat {
    struct dt_comm *comm;
    const char *name;   /* what time-out messages call it; must stay in place */
    size_t n;           /* numbers that each rank adds to the sum */
    double *mine, *sum; /* n each, the caller's; mine[0] is 1 once this rank has finished. The
                           allreduce under way writes `sum` */
    void (*take)(void *context); /* called with each new sum; may change `mine`. NULL: nothing */
    void *context;
    struct dt_request request;   /* private, as what follows */
    struct dt_patience patience; /* with the allreduce under way */
    enum dt_status failed;       /* of an earlier look */
};

/* Every rank calls it, with the same n > 0. DT_STALLED. */
enum dt_status dt_heartbeat_start(struct dt_heartbeat *beat);

/* Tests the allreduce, between two steps; never blocks. DT_STALLED, also of an earlier call. */
enum dt_status dt_heartbeat_look(struct dt_heartbeat *beat);

/* The same as a callback, for long work without steps: of a communicator (dt_comm_alive), or of
 * anything else that shows signs of life. */
void dt_heartbeat_show(void *heartbeat);

/* Sleeps until every rank has finished. All ranks see the same sums, so all return after the same
 * allreduce. DT_STALLED. */
enum dt_status dt_heartbeat_finish(struct dt_heartbeat *beat);

#endif
