/* Finds ranks that are missing before MPI connects them, when they cannot be asked, by /proc of
 * this host.
 *
 * A rank is known by the number that the launcher gave it (dist/launch/launch.h), and belongs
 * to this job if the same process, the launcher, started it, by way of a wrapper too. It has begun
 * once it blocks or catches the signals of dist/launch/stop.h. No file is left behind, and a
 * rank that is stopped, or was never begun, needs to do nothing. */
#ifndef DT_DIST_LIVENESS_ROLL_CALL_H
#define DT_DIST_LIVENESS_ROLL_CALL_H

#include <stdbool.h>

struct dt_roll_call {
    bool certain; /* a rank of this host is stopped or gone: waiting longer is of no use */
    bool gone;    /* none is stopped, one is not there: ended, or not yet started by the launcher */
    bool elsewhere; /* all that can be seen wait, and there are ranks that cannot: on other hosts,
                       or in other containers */
    int n_before;   /* waiting ranks of this host with a lower number: they are to speak first */
    char missing[256]; /* "rank 2 (host b) is stopped" */
};

/* `host`: this one's name, for the text. Reads all of /proc: milliseconds. */
void dt_roll_call(const char *host, struct dt_roll_call *out);

#endif
