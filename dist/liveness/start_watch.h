/* A limit on the time that the ranks take to find each other, which happens inside MPI and may last
 * forever.
 *
 * DTRAIN_TIMEOUT seconds, else 120, end the job with DT_STALLED and a line that says who is missing
 * (dist/liveness/roll_call.h): at once if a rank of this host is stopped or gone (one that is
 * gone ends the job after 3 s whatever the limit: it never comes back); 1.5 s later
 * if all that is known is that ranks elsewhere do not answer, so that their host may name them
 * first. Ranks that are merely slow, all on this host, get 120 s at least. Time in which this
 * process was stopped itself does not count. */
#ifndef DT_DIST_LIVENESS_START_WATCH_H
#define DT_DIST_LIVENESS_START_WATCH_H

#include "base/status.h"

#define DT_TIMEOUT_MIN_S 2.0
#define DT_TIMEOUT_MAX_S 3600.0
/* The limit that the environment variable DTRAIN_TIMEOUT sets, else *seconds stays as it is.
 * DT_CONFIG: not a number in range. */
enum dt_status dt_comm_timeout_from_env(double *seconds);

/* `host`: this one's name; stays in place. DT_NO_MEMORY: no thread to be had. */
enum dt_status dt_start_watch_open(const char *host);
void dt_start_watch_close(void); /* the ranks have found each other */

#endif
