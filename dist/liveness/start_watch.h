/* A limit on the start: MPI connects the ranks, and waits forever for a rank that never comes.
 *
 * After DTRAIN_TIMEOUT seconds (default 120) a thread ends the job with DT_STALLED and names the
 * missing ranks (dist/liveness/roll_call.h). If they are on other hosts, it waits 1.5 s longer, so
 * that their host can name them first. If a rank of this host is gone, 3 s are enough. Ranks of
 * this host that are only slow get at least 120 s. Time in which this process was stopped does not
 * count. */
#ifndef DT_DIST_LIVENESS_START_WATCH_H
#define DT_DIST_LIVENESS_START_WATCH_H

#include "base/status.h"

#define DT_TIMEOUT_MIN_S 2.0
#define DT_TIMEOUT_MAX_S 3600.0
/* Sets *seconds to the environment variable DTRAIN_TIMEOUT if that is set. DT_CONFIG: it is not a
 * number between DT_TIMEOUT_MIN_S and DT_TIMEOUT_MAX_S. */
enum dt_status dt_comm_timeout_from_env(double *seconds);

/* `host`: the name of this host, borrowed. DT_NO_MEMORY: the thread does not start. */
enum dt_status dt_start_watch_open(const char *host);
void dt_start_watch_close(void); /* the ranks are connected */

#endif
