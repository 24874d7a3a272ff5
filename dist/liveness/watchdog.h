/* A second pair of eyes on a rank. The waits of dist/ranks/comm.h see what other ranks do not do;
 * nobody sees a rank that never comes back from a kernel, a driver, a file system or MPI where all
 * others hang as well, are on other hosts, or do not exist. So a thread looks whether the main
 * thread shows the signs of life that the communicator's liveness asks for anyway: it stands before
 * the table (table.h), counts what passes, and passes it on.
 *
 * The limit is comm->timeout_s, or that of DT_PHASE_SAVING. A second later, when those who wait for
 * this rank have had the word, the thread names it and ends the job with DT_STALLED. Time in which
 * the process was stopped does not count. MPI_Init has a limit of its own (start_watch.h), and so
 * has the way out (dt_world_exit). The threads block all signals and allocate nothing.
 *
 * What passes is noted in the flight record, too (flight.h). */
#ifndef DT_DIST_LIVENESS_WATCHDOG_H
#define DT_DIST_LIVENESS_WATCHDOG_H

#include "dist/liveness/flight.h"

#define DT_WATCHDOG_LINE 768

struct dt_watchdog_options {
    const char *host; /* this one's name; stays in place */
    /* What is to be kept of an end, in a thread of its own, since disks hang as well: the end waits
     * half a second for it. With "": the rank has not got on for nearly its limit, and the end may
     * be near. */
    void (*keep)(void *context, struct dt_flight *flight, const char *line);
    void *context;
};

struct dt_watchdog;

/* Every rank calls it; the caller agrees. While it is open, comm->liveness is the watchdog.
 * DT_NO_MEMORY, DT_STALLED. */
enum dt_status dt_watchdog_open(struct dt_comm *comm, const struct dt_watchdog_options *options,
                                struct dt_watchdog **out);
void dt_watchdog_close(struct dt_watchdog *dog); /* local; NULL is fine */

struct dt_flight *dt_watchdog_flight(struct dt_watchdog *dog);

#endif
