/* A request to stop: one of the signals below to any rank. All ranks stop after the same step.
 *
 * The handler only sets a flag; the flag travels as one more element of the step's small allreduce.
 * A second SIGINT or SIGTERM more than a second later ends the process at once. SIGHUP stays
 * ignored where it was ignored at the start (nohup).
 *
 * Commands that have nothing to save ask for no agreement: with dt_stop_at_once each of the signals
 * ends them, and the job whose rank they are, with 128 and its number. */
#ifndef DT_DIST_LAUNCH_STOP_H
#define DT_DIST_LAUNCH_STOP_H

#include <signal.h>
#include <stdbool.h>

/* From people, terminals and schedulers; ulimit -t sends SIGXCPU every second. */
#define DT_STOP_SIGNAL_LIST(X) X(SIGTERM) X(SIGINT) X(SIGHUP) X(SIGUSR1) X(SIGUSR2) X(SIGXCPU)
sigset_t dt_stop_signals(void);

/* Notes whether SIGHUP is ignored; call it before MPI can change that. dt_stop_block calls it too.
 */
void dt_stop_note_hangup(void);

void dt_stop_block(void);   /* first line of main: keeps signals pending until there is a handler */
void dt_stop_install(void); /* after MPI_Init, which replaces handlers; lets pending signals in */
bool dt_stop_requested(void);
int dt_stop_signal(void); /* the signal's number, or 0 */

/* From now on a signal ends the process at once, as does a signal that came before. The handler
 * first calls `last` (dt_launch_leave). The functions above then do nothing. */
void dt_stop_at_once(void (*last)(int signal_number));

#endif
