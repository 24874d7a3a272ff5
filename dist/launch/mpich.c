/* What dtrain does for MPICH 4.0 (Debian 12 has 4.0.2, with UCX 1.13) alone, and for UCX, which
 * connects its ranks. docs/operating.md lists what users see of it.
 *
 * Mended in later versions of MPICH:
 * - MPI_Finalize hangs over TCP: https://github.com/pmodels/mpich/pull/6596. Delete
 *   ucp_disconnect_nb.
 * - The launcher loses the exit code of a rank that it has passed a signal to:
 *   https://github.com/pmodels/mpich/pull/5930. Delete dt_mpich_keep_exit_code and
 *   dt_launcher_wrapper.
 * Delete these when dtrain no longer supports a version without them and tests/mpi, above all
 * test_exit_signals, pass without them.
 *
 * The rest is how MPICH and UCX are meant to work: delete it with the support of MPICH. */
#include "dist/launch/launch.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "dist/launch/stop.h"
#include "dist/launch/stream.h"

#define DRAIN_LIMIT_MS 1000
#define LEAST_FILES 32
#define UCX_PER_RANK 4.5e6   /* bytes of /dev/shm */
#define SHARED_PER_RANK 4096 /* bytes of the file that MPICH shares between the ranks of a host */
#define OUTLIVED_LIMIT_MS 5000
#define OUTLIVING_MS 100
#define MAX_INHERITED 64 /* numbers of the files that the launcher leaves open in its ranks */

/* ---- the launcher */

/* Slurm sets PMI_FD, too, but only MPICH's launcher counts the ranks of a host. */
int dt_mpich_launcher_fd(void)
{
    const char *fd = getenv("PMI_FD");
    return fd == NULL || getenv("MPI_LOCALNRANKS") == NULL ? -1 : atoi(fd);
}

bool dt_ucx_has_conf(void)
{
    return access("ucx.conf", F_OK) == 0;
}

static void drain_pipes(void)
{
    int ms = 0;
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        for (int n_bytes = 0;
             ms < DRAIN_LIMIT_MS && ioctl(fd, FIONREAD, &n_bytes) == 0 && n_bytes > 0; ms++) {
            dt_sleep_ms(1);
        }
    }
}

bool dt_mpich_abort(int code)
{
    const int fd = dt_mpich_launcher_fd();
    drain_pipes();
    if (fd < 0) {
        return false;
    }
    /* The launcher's wire protocol, PMI version 1; spelled out by hand because printf is not for
     * signal handlers. */
    char line[] = "cmd=abort exitcode=000\n";
    char *digits = strchr(line, '0');
    digits[0] = (char)('0' + code / 100 % 10);
    digits[1] = (char)('0' + code / 10 % 10);
    digits[2] = (char)('0' + code % 10);
    return dt_stream_write(fd, line, sizeof line - 1, DT_STREAM_ENDS_MS) == sizeof line - 1;
}

void dt_launch_end_job(const char *line, int code)
{
    (void)dt_stream_write(STDERR_FILENO, line, strlen(line), DT_STREAM_ENDS_MS);
    if (dt_mpich_abort(code)) {
        dt_sleep_ms(DT_LAUNCH_KILL_MS);
    }
    _exit(code); /* other launchers end a job at its first exit code that is not 0 */
}

void dt_launch_leave(int signal_number)
{
    dt_file_abandon();
    if (dt_mpich_launcher_fd() >= 0) {
        dt_launch_end_job("", 128 + signal_number);
    }
}

pid_t dt_mpich_socket_maker(void)
{
    struct ucred maker = {.pid = 0};
    socklen_t n = sizeof maker;
    const char *fd = getenv("PMI_FD");
    if (fd == NULL || getsockopt(atoi(fd), SOL_SOCKET, SO_PEERCRED, &maker, &n) != 0) {
        return 0;
    }
    return maker.pid;
}

/* Replaces this process's output by the wrapper's: a wrapper may wait for the end of its own pipe
 * (`dtrain | tee`), which this process would hold open. */
static void take_output_of(pid_t wrapper)
{
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        char path[48];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)wrapper, fd);
        const int theirs = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY);
        close(fd);
        if (theirs >= 0) {
            dup2(theirs, fd);
            close(theirs);
        }
    }
}

/* Once the launcher of MPICH 4.0 has passed on a signal, it records 0 as the exit code of a process
 * that it finds dead after the process's output has ended. If it finds the process dead before
 * that, it records the right code; it looks whenever something happens to the output. So a child
 * holds the output a moment longer and closes one pipe after the other: stdout, stderr, and the
 * launcher's own descriptors for them, which its ranks inherit. */
void dt_mpich_keep_exit_code(pid_t wrapper)
{
    const pid_t last = wrapper > 0 ? wrapper : getpid();
    struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, last, 0), .events = POLLIN};
    struct stat info;
    if (dt_mpich_launcher_fd() < 0 || fork() != 0) {
        return;
    }
    if (wrapper > 0) {
        take_output_of(wrapper);
    }
    poll(&end, 1, OUTLIVED_LIMIT_MS);
    for (int fd = STDOUT_FILENO; fd < MAX_INHERITED; fd++) {
        if (fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode)) {
            dt_sleep_ms(OUTLIVING_MS); /* for the launcher to look */
            close(fd);
        }
    }
    close_range(MAX_INHERITED, ~0U, 0);
    dt_sleep_ms(OUTLIVING_MS);
    _exit(0);
}

/* ---- the start */

static int n_local_ranks(void)
{
    const char *text = getenv("MPI_LOCALNRANKS");
    return text == NULL ? 0 : atoi(text);
}

/* Otherwise MPI_Init aborts with its own exit code and messages. A file that was given the number
 * of the closed connection is not a socket. */
static enum dt_status check_connection(void)
{
    const char *fd = getenv("PMI_FD");
    struct stat info;
    if (fd == NULL || (fstat(atoi(fd), &info) == 0 && S_ISSOCK(info.st_mode))) {
        return DT_OK;
    }
    return dt_error(DT_CONFIG,
                    "PMI_FD=%.20s: the connection to the launcher is closed (let the wrapper that "
                    "starts dtrain keep inherited files open)",
                    fd);
}

static enum dt_status fit_file_limit(void)
{
    struct rlimit limit;
    const int n_ranks = n_local_ranks();
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
        return DT_OK;
    }
    setenv("UCX_TLS", "^posix", 0); /* shared memory of System V instead, which is no file */
    if (n_ranks > 1 && limit.rlim_cur < (rlim_t)n_ranks * SHARED_PER_RANK) {
        return dt_error(DT_IO,
                        "%d ranks cannot share memory, because files may have %llu bytes at most "
                        "(raise ulimit -f)",
                        n_ranks, (unsigned long long)limit.rlim_cur);
    }
    return DT_OK;
}

/* Checks what MPICH and UCX need: without it they end the process with pages of their own. */
static enum dt_status check_process(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < LEAST_FILES) {
        return dt_error(DT_NO_MEMORY,
                        "MPI needs %d open files, and %llu are allowed (raise ulimit -n)",
                        LEAST_FILES, (unsigned long long)limit.rlim_cur);
    }
    if (access("/proc/self/fd", F_OK) != 0) {
        return dt_error(DT_UNAVAILABLE, "MPI does not start without /proc (mount it)");
    }
    if (prctl(PR_GET_DUMPABLE) != 1 && geteuid() != 0) {
        return dt_error(DT_UNAVAILABLE, "MPI does not start from a program that this user may not "
                                        "read (chmod a+r the file of dtrain)");
    }
    return DT_OK;
}

/* Where /dev/shm is too small, UCX uses other shared memory; what MPICH itself puts there has to
 * fit. */
static enum dt_status fit_shared_memory(void)
{
    struct statvfs shm;
    const int n_local = n_local_ranks();
    const double n_ranks = n_local > 1 ? n_local : 1;
    if (statvfs("/dev/shm", &shm) != 0) {
        return DT_OK;
    }
    const bool read_only = (shm.f_flag & ST_RDONLY) != 0;
    const double room = (double)shm.f_bavail * (double)shm.f_frsize;
    if (read_only || room < n_ranks * UCX_PER_RANK) {
        setenv("UCX_TLS", "^posix", 0);
    }
    if (n_ranks > 1 && !read_only && room < n_ranks * SHARED_PER_RANK) {
        return dt_error(DT_UNAVAILABLE,
                        "%d ranks cannot share memory, because /dev/shm has %.0f bytes left "
                        "(empty it, or give the container more, as with docker --shm-size)",
                        n_local, room);
    }
    return DT_OK;
}

enum dt_status dt_mpich_prepare(void)
{
    setenv("UCX_DEBUG_SIGNO", "0", 0); /* for a UCX that another MPI loads later than main */
    DT_TRY(check_connection());
    DT_TRY(check_process());
    DT_TRY(fit_shared_memory());
    return fit_file_limit();
}

/* ---- functions that replace functions of UCX */

#ifdef MPICH
/* MPICH 4.0 ends each UCX connection and then waits for all ranks without serving the connections,
 * so that over TCP a third of all jobs of four ranks hang in MPI_Finalize. With this function in
 * the place of UCX's, Finalize drops the connections instead; no message is in flight by then. */
void *ucp_disconnect_nb(void *endpoint);
void *ucp_disconnect_nb(void *endpoint)
{
    (void)endpoint;
    return NULL; /* UCS_OK: done */
}

/* Where UCX cannot continue, as when a peer dies in the middle of a message, it prints a page of
 * backtrace and aborts. This function in the place of UCX's prints one line and exits with the code
 * for a rank that does not answer. */
void ucs_fatal_error_format(const char *file, unsigned line, const char *function,
                            const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));
void ucs_fatal_error_format(const char *file, unsigned line, const char *function,
                            const char *format, ...)
{
    char why[256], text[sizeof why + 96];
    va_list arguments;
    (void)file, (void)line, (void)function;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    snprintf(
        text, sizeof text,
        "dtrain: UCX, which connects the ranks, failed: %.*s (see whether another rank has died)\n",
        (int)strcspn(why, "\n"), why);
    dt_launch_end_job(text, DT_STALLED);
}

/* UCX calls this function before main to read its settings; next it would catch SIGHUP, to write a
 * debug log to stdout. */
void ucs_global_opts_init(void);
void ucs_global_opts_init(void)
{
    void (*of_ucx)(void);
    dt_stop_note_hangup();
    setenv("UCX_DEBUG_SIGNO", "0", 0);
    *(void **)&of_ucx = dlsym(RTLD_NEXT, "ucs_global_opts_init");
    of_ucx();
}
#endif

const char *dt_mpi_version(void)
{
    static char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(version, &length);
    version[strcspn(version, "\n,")] = '\0'; /* after a comma, Open MPI names its package */
    char *tab = strchr(version, '\t');
    if (strncmp(version, "MPICH Version:", 14) == 0 && tab != NULL) {
        /* "MPICH Version:<tab>4.0.2" */
        memmove(version + strlen("MPICH "), tab + 1, strlen(tab + 1) + 1);
    }
    return version;
}
