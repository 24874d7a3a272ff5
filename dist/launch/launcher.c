#include "dist/launch/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/launch/launch.h"
#include "dist/launch/stop.h"

#define MAX_WRAPPERS 16 /* that are watched: the innermost */
#define CLOSING_MS 100

/* ---- the line of descent */

static FILE *open_proc(pid_t pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    return fopen(path, "re");
}

bool dt_process_read(pid_t pid, struct dt_process *out)
{
    *out = (struct dt_process){0};
    char line[256];
    FILE *file = open_proc(pid, "status");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *value = strchr(line, '\t');
        if (value == NULL) {
            continue;
        }
        if (strncmp(line, "State:", 6) == 0) {
            out->state = value[1];
        } else if (strncmp(line, "PPid:", 5) == 0) {
            out->parent = (pid_t)strtol(value, NULL, 10);
        } else if (strncmp(line, "SigBlk:", 7) == 0 || strncmp(line, "SigIgn:", 7) == 0 ||
                   strncmp(line, "SigCgt:", 7) == 0) {
            out->signals |= strtoull(value, NULL, 16);
        } else if (strncmp(line, "ShdPnd:", 7) == 0) {
            out->pending = strtoull(value, NULL, 16);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return out->state != '\0' && out->state != 'Z';
}

int dt_process_rank(pid_t pid)
{
    int rank = -1;
    char *line = NULL;
    size_t n_line = 0;
    FILE *file = open_proc(pid, "environ");
    while (file != NULL && rank < 0 && getdelim(&line, &n_line, '\0', file) > 0) {
        rank = dt_launch_rank_in(line);
    }
    free(line);
    if (file != NULL) {
        fclose(file);
    }
    return rank;
}

/* Without such a socket it is the nearest ancestor that has not this rank's number. */
pid_t dt_launcher_of(pid_t pid, int rank)
{
    struct dt_process process;
    const pid_t maker = dt_mpich_socket_maker();
    while (pid > 0 && pid != maker && (maker > 0 || dt_process_rank(pid) == rank)) {
        pid = dt_process_read(pid, &process) ? process.parent : 0;
    }
    return pid;
}

/* ---- tied to it */

/* What ends or speaks: the launcher, the relay, and the wrappers from the inside out. */
enum { LAUNCHER, RELAY, WRAPPERS, N_ENDS = WRAPPERS + MAX_WRAPPERS };
static struct {
    struct pollfd ends[N_ENDS];
    nfds_t n;
    pid_t relay, outermost; /* wrapper; 0: there is none */
    bool stops;             /* a signal has come, or a wrapper has ended */
    atomic_bool lost_wrapper;
} tie;

static struct pollfd end_of(pid_t pid)
{
    return (struct pollfd){.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
}

static void stop(int signal_number)
{
    tie.stops = true;
    kill(getpid(), signal_number);
}

/* The relay's next signal. When the group is killed, one may still be pending in the relay. */
static void hear_relay(void)
{
#define STOP_IF_PENDING(name)              \
    if (relay.pending >> (name - 1) & 1) { \
        stop(name);                        \
    }
    unsigned char number;
    struct dt_process relay;
    if (read(tie.ends[RELAY].fd, &number, 1) == 1) {
        stop(number);
        return;
    }
    tie.ends[RELAY].fd = -1;
    dt_process_read(tie.relay, &relay);
    DT_STOP_SIGNAL_LIST(STOP_IF_PENDING)
    if (!tie.stops) {
        kill(getpid(), SIGKILL); /* with its group */
    }
}

/* The connection to a launcher outside of this container hangs up; it does so, too, when this
 * process leaves MPI, which closes it next. */
static void leave_launcher(struct pollfd *launcher)
{
    if ((launcher->events & POLLIN) == 0) {
        dt_sleep_ms(CLOSING_MS);
        poll(launcher, 1, 0);
    }
    if ((launcher->revents & POLLNVAL) == 0) {
        kill(getpid(), SIGKILL);
    }
    launcher->fd = -1;
}

/* All that is left of a signal to the group may be this; but where the whole group is killed, the
 * relay says so. */
static void lose_wrapper(struct pollfd *wrapper)
{
    wrapper->fd = -1;
    atomic_store(&tie.lost_wrapper, true);
    dt_sleep_ms(CLOSING_MS);
    while (poll(&tie.ends[RELAY], 1, 0) > 0) {
        hear_relay();
    }
    if (!tie.stops) {
        stop(SIGTERM);
    }
}

static void *watch_ends(void *unused)
{
    (void)unused;
    while (poll(tie.ends, tie.n, -1) > 0) {
        if (tie.ends[LAUNCHER].revents != 0) {
            leave_launcher(&tie.ends[LAUNCHER]);
        }
        for (nfds_t i = WRAPPERS; i < tie.n; i++) {
            if (tie.ends[i].revents != 0) {
                lose_wrapper(&tie.ends[i]);
            }
        }
        if (poll(&tie.ends[RELAY], 1, 0) > 0) {
            hear_relay();
        }
    }
    return NULL;
}

/* All signals are blocked. The roll call does not take it for the rank, without an environment. A
 * rank that is stopped could not see its launcher's end. */
static void relay(int to, pid_t rank)
{
    const sigset_t signals = dt_stop_signals();
    struct signalfd_siginfo signal;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (char **entry = environ; *entry != NULL; entry++) {
        memset(*entry, 0, strlen(*entry));
    }
    dup2(to, STDIN_FILENO);
    dup2(tie.ends[LAUNCHER].fd, STDOUT_FILENO);
    close_range(STDERR_FILENO, ~0U, 0);
    struct pollfd ends[] = {{.fd = signalfd(-1, &signals, 0), .events = POLLIN},
                            {.fd = STDOUT_FILENO, .events = tie.ends[LAUNCHER].events}};
    while (getppid() == rank && poll(ends, 2, -1) > 0 && ends[1].revents == 0 &&
           read(ends[0].fd, &signal, sizeof signal) == sizeof signal) {
        const unsigned char number = (unsigned char)signal.ssi_signo;
        if (write(STDIN_FILENO, &number, 1) != 1) {
            break;
        }
    }
    if (ends[1].revents != 0 && (ends[1].events & POLLIN) != 0 && getppid() == rank) {
        kill(rank, SIGKILL);
    }
    pause();
}

/* The launcher sends signals to the process group of the outermost wrapper, in which the rank may
 * be or not (timeout makes one of its own). And when a wrapper dies of a signal, MPICH's launcher
 * kills the groups of all others. So the rank leaves that group, and a child in it passes on what
 * the group gets; it is in one of its own where the wrapper is in another session. */
static void leave_group(void)
{
    int ends[2];
    const pid_t rank = getpid();
    const bool reached = getsid(tie.outermost) == getsid(0);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return;
    }
    tie.relay = fork();
    if (tie.relay == 0) {
        relay(ends[1], rank);
        _exit(0);
    }
    close(ends[1]);
    if (tie.relay > 0 && setpgid(tie.relay, reached ? getpgid(tie.outermost) : 0) == 0) {
        tie.ends[RELAY] = (struct pollfd){.fd = ends[0], .events = POLLIN};
        setpgid(0, 0);
        fcntl(ends[0], F_SETOWN, rank); /* that a rank that is stopped hears of its relay's end */
        fcntl(ends[0], F_SETSIG, SIGCONT);
        fcntl(ends[0], F_SETFL, O_ASYNC);
    }
}

/* None if the wrapper has put this process into the background, and ended. */
static void find_wrappers(pid_t launcher)
{
    struct dt_process process = {.parent = getppid()};
    tie.ends[LAUNCHER] = launcher > 0
                             ? end_of(launcher)
                             : (struct pollfd){.fd = dt_mpich_launcher_fd(), .events = POLLRDHUP};
    tie.ends[RELAY].fd = -1;
    tie.n = WRAPPERS;
    while (process.parent > 0 && process.parent != launcher) {
        tie.outermost = process.parent;
        if (tie.n < N_ENDS) {
            tie.ends[tie.n++] = end_of(process.parent);
        }
        if (!dt_process_read(process.parent, &process)) {
            break;
        }
    }
    if (process.parent != launcher) {
        tie.n = WRAPPERS;
        tie.outermost = 0;
    }
}

static void watch_wrappers(pid_t launcher)
{
    sigset_t all, before;
    pthread_t thread;
    find_wrappers(launcher);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (tie.n > WRAPPERS) {
        leave_group();
    }
    if (pthread_create(&thread, NULL, watch_ends, NULL) == 0) {
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void dt_launcher_tie(void)
{
    if (dt_mpich_launcher_fd() < 0 && getenv("OMPI_COMM_WORLD_RANK") == NULL) {
        return; /* a shell may rightly end before the program that it started */
    }
    const pid_t launcher = dt_launcher_of(getpid(), dt_launch_number(DT_LAUNCH_RANK));
    if (launcher != getppid()) {
        watch_wrappers(launcher);
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) {
        raise(SIGKILL); /* it died in between */
    }
}

bool dt_launcher_lost_wrapper(void)
{
    return atomic_load(&tie.lost_wrapper);
}

pid_t dt_launcher_wrapper(void)
{
    return tie.outermost;
}
