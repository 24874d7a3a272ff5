/* The processes that started this rank: the launcher on this host (MPICH's proxy, or another
 * MPI's), and any number of wrappers between the two (a shell, time, timeout, setsid, strace).
 *
 * The launcher sends its signals to the wrapper's process group, and knows only the wrapper's exit
 * code. The end of a wrapper may be all that a rank sees of a signal to mpirun, so a rank stops
 * when a wrapper ends. */
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
    uint64_t pending; /* the same; a dead process has them until its parent waits for it */
};

bool dt_process_read(pid_t pid, struct dt_process *out); /* false: it is dead, or hidden */

/* The rank that the launcher gave to this process, or to a process that started it; or -1. */
int dt_process_rank(pid_t pid);

/* The launcher of a process of this host that has this rank's number, past all wrappers; 0 if it
 * cannot be seen. */
pid_t dt_launcher_of(pid_t pid, int rank);

/* Ties this process to its launcher, which would otherwise leave its ranks running: SIGKILL when
 * the launcher ends, and SIGTERM when a wrapper does. Behind a wrapper it takes a process group of
 * its own, a child in the old one and a thread. Does nothing under Slurm, which ends its ranks,
 * and without a launcher. Call it before anything else. */
void dt_launcher_tie(void);

/* True if a wrapper has ended before this rank. MPICH's launcher then has the wrapper's exit code,
 * unless the rank asks for another (dt_mpich_abort). */
bool dt_launcher_lost_wrapper(void);

/* The outermost wrapper, or 0. */
pid_t dt_launcher_wrapper(void);

#endif
