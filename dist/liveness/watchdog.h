/* Ends the job of a rank whose main thread hangs.
 *
 * A rank that waits for other ranks notices that they are late (dist/ranks/comm.h). No wait notices
 * a rank that never returns from a kernel, a driver, a file system or MPI while all others hang as
 * well, are on other hosts, or do not exist. So a thread reads the rank's own row of the table of
 * signs of life (table.h).
 *
 * The limit is the communicator's, or that of a long phase. A second later, after the ranks that
 * wait for this rank could report it, the thread names the rank and ends the job with DT_STALLED.
 * Time in which the process was stopped does not count. MPI_Init has a limit of its own
 * (start_watch.h), and so has dt_world_exit. The threads block all signals and allocate nothing. */
#ifndef DT_DIST_LIVENESS_WATCHDOG_H
#define DT_DIST_LIVENESS_WATCHDOG_H

#include <semaphore.h>

#include "dist/liveness/flight.h"

#define DT_WATCHDOG_LINE 768

struct dt_watchdog_options {
    const char *host; /* this one's name; stays in place */
    /* Saves the flight record before the process ends. It runs in its own thread, since a disk may
     * hang: the end waits half a second for it. With "" as `line` the rank has not moved for nearly
     * its limit, and the end may be near. */
    void (*keep)(void *context, const char *line);
    void *context;
};

struct dt_watchdog;

/* `comm` has a table (dt_liveness_open). DT_NO_MEMORY. */
enum dt_status dt_watchdog_open(struct dt_comm *comm, const struct dt_watchdog_options *options,
                                struct dt_watchdog **out);
void dt_watchdog_close(struct dt_watchdog *dog); /* NULL is fine */

/* Waits up to `ms` (below 1,000) for another thread to post; returns whether it did. */
bool dt_wait_ms(sem_t *posted, unsigned ms);

#endif
