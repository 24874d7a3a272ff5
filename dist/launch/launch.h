/* How this process was started, read from the environment: to refuse launches that can only be
 * mistakes, and to end with the launcher.
 *
 * Rank and size always come from MPI; under mpirun inside a Slurm allocation, for one, every rank
 * inherits SLURM_PROCID=0. */
#ifndef DT_DIST_LAUNCH_LAUNCH_H
#define DT_DIST_LAUNCH_LAUNCH_H

#include <stdbool.h>

#include "base/status.h"

/* n programs that each think they are rank 0 of 1 would train n times and overwrite each other's
 * files. `size` is what MPI says. DT_UNAVAILABLE names the launcher and the cure. */
enum dt_status dt_launch_check(int size);
/* For a command that needs no other ranks: from now on dt_launch_check refuses nothing. */
void dt_launch_take_any(void);

/* What the launcher tells each process in its environment, before MPI knows it: MPICH's launcher,
 * Slurm's PMI, or Open MPI's. -1: nothing. */
enum dt_launch_number { DT_LAUNCH_RANK, DT_LAUNCH_SIZE, DT_LAUNCH_LOCAL_SIZE };
int dt_launch_number(enum dt_launch_number what);

/* The same of another process's environment: the rank that an entry "NAME=4" gives, or -1. */
int dt_launch_rank_in(const char *entry);

/* The launcher's own number for this process, or 0: so that n singletons, or n ranks that MPI has
 * not connected, print one error line, not n. */
int dt_launch_rank(void);

/* UCX has read ucx.conf in the working folder, before main, and done as it says, which can
 * overwrite files (UCX_LOG_FILE). */
bool dt_launch_has_ucx_conf(void);

bool dt_launch_is_mpirun(void); /* MPICH's launcher started this process */

/* Asks MPICH's launcher to end the whole job with this exit code; false when there is none to ask.
 * First waits, a second at most, until it has read what this process printed: it forwards nothing
 * from a process that it kills. The kill follows, as a rule within DT_LAUNCH_KILL_MS. Safe in a
 * signal handler. MPI_Abort does the same but adds a line of its own to ours, and waits for an
 * answer.
 */
bool dt_launch_abort(int code);
#define DT_LAUNCH_KILL_MS 500

/* How long other ranks wait for the reporting rank to print first. */
#define DT_LAUNCH_FIRST_SPEAKS_MS 1000

/* As dt_launch_abort after saying `line` on stderr; and if the launcher does not answer, or there
 * is none, this process ends all the same. */
void dt_launch_end_job(const char *line, int code) __attribute__((noreturn));

/* The last act of a process that a signal ends (dt_stop_at_once): a file that is half written goes
 * with it, and under mpirun so does the job. */
void dt_launch_leave(int signal_number);

/* Before MPI_Init. DT_CONFIG: the connection to the launcher is closed. Makes MPI start under a
 * limit on the size of files (ulimit -f), which UCX's shared memory counts as, and with a small
 * /dev/shm; DT_IO: the limit is too small for the shared memory of MPICH itself. DT_NO_MEMORY: too
 * few files may be open. DT_UNAVAILABLE: no /proc, a program that may not be read, a full
 * /dev/shm. */
enum dt_status dt_launch_prepare(void);

#endif
