/* The wish to stop: SIGTERM, SIGINT or SIGUSR1 to any rank, noticed by all at the same step.
 *
 * The handler only sets a flag; the flag travels as one more element of the step's small allreduce. A second SIGINT or SIGTERM more
 * than a second later ends the process at once. */
#ifndef DT_DIST_RANKS_STOP_H
#define DT_DIST_RANKS_STOP_H

#include <stdbool.h>

void dt_stop_block(void);   /* first line of main: keeps signals pending until there is a handler */
void dt_stop_install(void); /* after MPI_Init, which replaces handlers; lets pending signals in */
bool dt_stop_requested(void);
int dt_stop_signal(void); /* the signal's number, or 0 */

#endif
