/* Finds missing ranks of this host in /proc, before MPI connects the ranks and they can be asked.
 *
 * The launcher numbers the ranks (dist/launch/launch.h). A process is a rank of this job if the
 * same launcher started it, directly or through a wrapper. A rank has begun once it blocks or
 * catches the signals of dist/launch/stop.h. The search leaves no file, and a rank that is stopped,
 * or has not begun, need not answer. */
#ifndef DT_DIST_LIVENESS_ROLL_CALL_H
#define DT_DIST_LIVENESS_ROLL_CALL_H

#include <stdbool.h>

struct dt_roll_call {
    bool certain;   /* a rank of this host is stopped or gone: a longer wait does not help */
    bool gone;      /* no rank is stopped; one has ended, or the launcher has not started it yet */
    bool elsewhere; /* every rank in /proc waits; the others are on other hosts or in containers */
    int n_before;   /* waiting ranks of this host with a lower number, which report first */
    char missing[256]; /* "rank 2 (host b) is stopped" */
};

/* `host`: the name of this host, for the text. Reads all of /proc, in milliseconds. */
void dt_roll_call(const char *host, struct dt_roll_call *out);

#endif
