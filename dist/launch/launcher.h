/* What started this rank: the launcher on this host (MPICH's proxy, or another MPI's), and the
 * wrappers between the two (a shell, time, timeout, setsid, strace), of any number.
 *
 * The launcher sends its signals to the wrapper's process group and knows the wrapper's exit code
 * alone. So a rank also takes a wrapper's end for a wish to stop: it may be all that comes of a
 * signal to mpirun. */
#ifndef DT_DIST_LAUNCH_LAUNCHER_H
#define DT_DIST_LAUNCH_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A process, as /proc shows it. */
struct dt_process {
    pid_t parent;
    char state;       /* 'T' and 't' are stopped, 'Z' is dead */
    uint64_t signals; /* blocked, ignored or caught, a bit each */
    uint64_t pending; /* the same, also of a dead one that nobody has waited for */
};

bool dt_process_read(pid_t pid, struct dt_process *out); /* false: it is dead, or hidden */

/* The number that the launcher gave to this process or to what started it, or -1. */
int dt_process_rank(pid_t pid);

/* The launcher of a process of this host that has this rank's number, past all wrappers; 0 if it
 * cannot be seen. */
pid_t dt_launcher_of(pid_t pid, int rank);

/* Ties this process to its launcher, which would otherwise leave its ranks running: SIGKILL when
 * the launcher ends, and SIGTERM when a wrapper does. Behind a wrapper it takes a process group of
 * its own, a child in the old one and a thread. Nothing under Slurm, which ends its ranks,
 * and without a launcher. First thing. */
void dt_launcher_tie(void);

/* A wrapper has ended before this rank: its exit code, not the rank's, is what MPICH's launcher
 * has, unless the rank asks for another (dt_mpich_abort). */
bool dt_launcher_lost_wrapper(void);

/* The outermost wrapper, or 0. */
pid_t dt_launcher_wrapper(void);

#endif
