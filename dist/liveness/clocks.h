/* The difference between the ranks' clocks, by messages to rank 0 and back (Cristian 1989,
 * "Probabilistic clock synchronization"): rank 0 read its clock half way through the exchange, give
 * or take half of the exchange's time; of several tries the quickest counts. */
#ifndef DT_DIST_LIVENESS_CLOCKS_H
#define DT_DIST_LIVENESS_CLOCKS_H

#include "dist/ranks/comm.h"

struct dt_clock_offset {
    double offset_s; /* what dt_clock_s() of this rank lacks to rank 0's */
    double error_s;  /* at most; 0 on rank 0 */
};

/* Every rank calls it. */
enum dt_status dt_clocks_compare(struct dt_comm *comm, struct dt_clock_offset *out);

#endif
