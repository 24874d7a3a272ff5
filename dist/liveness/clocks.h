/* The difference between the ranks' clocks, by messages to rank 0 and back (Cristian 1989,
 * "Probabilistic clock synchronization"). Rank 0 is assumed to read its clock half way through the
 * exchange; the error is at most half the exchange's time. The quickest of several tries counts. */
#ifndef DT_DIST_LIVENESS_CLOCKS_H
#define DT_DIST_LIVENESS_CLOCKS_H

#include "dist/ranks/comm.h"

struct dt_clock_offset {
    double offset_s; /* rank 0's dt_clock_s() minus this rank's */
    double error_s;  /* largest error of offset_s; 0 on rank 0 */
};

/* Every rank calls it. */
enum dt_status dt_clocks_compare(struct dt_comm *comm, struct dt_clock_offset *out);

#endif
