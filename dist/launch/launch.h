/* How this process was started, read from the environment, to refuse launches that can only be
 * mistakes.
 *
 * Rank and size always come from MPI; under mpirun inside a Slurm allocation, for one, every rank
 * inherits SLURM_PROCID=0. */
#ifndef DT_DIST_LAUNCH_LAUNCH_H
#define DT_DIST_LAUNCH_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

/* Refuses n programs that each think they are rank 0 of 1: they would train n times and overwrite
 * each other's files. `size`: MPI's. DT_UNAVAILABLE names the launcher and the command to use. */
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

/* How long other ranks wait for the reporting rank to print first. */
#define DT_LAUNCH_FIRST_SPEAKS_MS 1000

/* ---- particular to MPICH, its launcher (Hydra) and UCX, which connects its ranks: mpich.c */

const char *dt_mpi_version(void); /* one line, "MPICH 4.0.2"; works before dt_world_open */

/* Call before MPI_Init. DT_CONFIG: the connection to the launcher is closed. Makes MPI start under
 * a limit on the size of files (ulimit -f), which applies to UCX's shared memory, and with a small
 * /dev/shm; DT_IO: the limit is too small for the shared memory of MPICH itself. DT_NO_MEMORY: too
 * few files may be open. DT_UNAVAILABLE: no /proc, a program that may not be read, a full
 * /dev/shm. */
enum dt_status dt_mpich_prepare(void);

/* The working folder has a ucx.conf. UCX has read it before main and obeyed it, which can overwrite
 * files (UCX_LOG_FILE). */
bool dt_ucx_has_conf(void);

/* The descriptor on which MPICH's launcher listens to this process, or -1 if that launcher did not
 * start it; the process that made this socket, or 0. */
int dt_mpich_launcher_fd(void);
pid_t dt_mpich_socket_maker(void);

/* Asks the launcher to end the whole job with this exit code; false without MPICH's launcher. First
 * waits, a second at most, until the launcher has read what this process printed, because it drops
 * the output of a process that it kills. The kill follows, as a rule within DT_LAUNCH_KILL_MS. Safe
 * in a signal handler. MPI_Abort does the same but prints a line of its own and waits for an
 * answer. */
bool dt_mpich_abort(int code);
#define DT_LAUNCH_KILL_MS 500

/* Prints `line` on stderr and ends the whole job with `code`: by dt_mpich_abort, and where MPICH's
 * launcher is missing or does not answer, by the end of this process. */
void dt_launch_end_job(const char *line, int code) __attribute__((noreturn));

/* The last act of a process that a signal ends (dt_stop_at_once): removes a file that is half
 * written and, under MPICH's launcher, ends the job. */
void dt_launch_leave(int signal_number);

/* Lets the launcher see the exit code of this process, or of its outermost wrapper (0: none),
 * although it has passed a signal on to it. Call last, in one process of the job, after
 * MPI_Finalize. */
void dt_mpich_keep_exit_code(pid_t wrapper);

#endif
