#include "dist/launch/launch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "dist/launch/stream.h"

#define DRAIN_LIMIT_MS 1000
#define LEAST_FILES 32
#define UCX_PER_RANK 4.5e6   /* bytes of /dev/shm */
#define SHARED_PER_RANK 4096 /* bytes of the file that MPICH shares between the ranks of a host */

/* A launcher's traces in the environment. */
struct launcher {
    const char *n_tasks; /* how many programs it started */
    const char *rank;    /* which of them this is */
    const char *unless;  /* with this variable set, `n_tasks` says nothing about how the program was
                            started; or NULL */
    const char *who, *cure;
};

static const struct launcher launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", NULL, "Open MPI's mpirun",
     "start it with the mpirun of the MPI that dtrain --version names"},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", NULL, "srun",
     "start it with: srun --mpi=pmi2 dtrain ..."},
    {"SLURM_NTASKS", NULL, "SLURM_STEP_NUM_TASKS", "a Slurm job",
     "start it with: srun --mpi=pmi2 dtrain ..., or for one rank: srun --mpi=pmi2 -n1 dtrain ..."},
    {"WORLD_SIZE", "RANK", "PMI_SIZE", "torchrun",
     "dtrain takes its ranks from MPI: start it with mpirun -np N dtrain ..."},
    {"PMI_SIZE", "PMI_RANK", NULL, "the launcher",
     "start it with the mpirun of the MPI that dtrain --version names"},
};

#define N_LAUNCHERS (sizeof launchers / sizeof launchers[0])

/* Open MPI's names first: its mpirun inside a step of srun passes on that step's PMI_RANK. */
#define OPEN_MPI "OMPI_COMM_WORLD_"
static const char *const numbers[][2] = {
    [DT_LAUNCH_RANK] = {OPEN_MPI "RANK", "PMI_RANK"},
    [DT_LAUNCH_SIZE] = {OPEN_MPI "SIZE", "PMI_SIZE"},
    [DT_LAUNCH_LOCAL_SIZE] = {OPEN_MPI "LOCAL_SIZE", "MPI_LOCALNRANKS"},
};

int dt_launch_number(enum dt_launch_number what)
{
    const char *text = getenv(numbers[what][0]);
    text = text != NULL ? text : getenv(numbers[what][1]);
    return text == NULL ? -1 : atoi(text);
}

int dt_launch_rank_in(const char *entry)
{
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(numbers[DT_LAUNCH_RANK][i]);
        if (strncmp(entry, numbers[DT_LAUNCH_RANK][i], n) == 0 && entry[n] == '=') {
            return atoi(entry + n + 1);
        }
    }
    return -1;
}

static int env_number(const char *name)
{
    const char *text = name == NULL ? NULL : getenv(name);
    return text == NULL ? 0 : atoi(text);
}

/* The launcher that meant several ranks, when MPI sees one. */
static const struct launcher *find_mistaken(void)
{
    const bool pmi_says_one =
        env_number("PMI_SIZE") == 1; /* mpirun -np 1, or srun --mpi=pmi2 -n1, inside a larger job */
    for (size_t i = 0; i < N_LAUNCHERS && !pmi_says_one; i++) {
        const struct launcher *launcher = &launchers[i];
        if (env_number(launcher->n_tasks) > 1 &&
            (launcher->rank == NULL || getenv(launcher->rank) != NULL) &&
            (launcher->unless == NULL || getenv(launcher->unless) == NULL)) {
            return launcher;
        }
    }
    return NULL;
}

static bool any_launch;

void dt_launch_take_any(void)
{
    any_launch = true;
}

enum dt_status dt_launch_check(int size)
{
    const struct launcher *launcher = size > 1 || any_launch ? NULL : find_mistaken();
    if (launcher == NULL) {
        return DT_OK;
    }
    if (launcher->rank == NULL) {
        return dt_error(DT_UNAVAILABLE,
                        "%s of %d tasks, but dtrain was started without srun and is alone (%s)",
                        launcher->who, env_number(launcher->n_tasks), launcher->cure);
    }
    return dt_error(DT_UNAVAILABLE,
                    "%s started %d programs that each think they are rank 0 of 1 (%s)",
                    launcher->who, env_number(launcher->n_tasks), launcher->cure);
}

int dt_launch_rank(void)
{
    const struct launcher *launcher = find_mistaken();
    return env_number(launcher == NULL ? "PMI_RANK" : launcher->rank);
}

/* The descriptor on which MPICH's launcher listens to this process, or -1 without that launcher:
 * Slurm sets PMI_FD too, but only this one counts the ranks of a host. */
static int hydra_fd(void)
{
    const char *fd = getenv("PMI_FD");
    return fd == NULL || getenv("MPI_LOCALNRANKS") == NULL ? -1 : atoi(fd);
}

bool dt_launch_has_ucx_conf(void)
{
    return access("ucx.conf", F_OK) == 0;
}

bool dt_launch_is_mpirun(void)
{
    return hydra_fd() >= 0;
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

bool dt_launch_abort(int code)
{
    const int fd = hydra_fd();
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
    if (dt_launch_abort(code)) {
        dt_sleep_ms(DT_LAUNCH_KILL_MS);
    }
    _exit(code); /* other launchers end a job at its first exit code that is not 0 */
}

void dt_launch_leave(int signal_number)
{
    dt_file_abandon();
    if (dt_launch_is_mpirun()) {
        dt_launch_end_job("", 128 + signal_number);
    }
}

/* MPI_Init would end the process with a code and lines of its own. A file that has taken the closed
 * one's number is no socket. */
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
    const int n_ranks = env_number("MPI_LOCALNRANKS");
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

/* What MPICH and UCX cannot do without: they would end the process with pages of their own. */
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

/* UCX keeps its part of /dev/shm in other shared memory where that is too small; the part of MPICH
 * itself has to fit. */
static enum dt_status fit_shared_memory(void)
{
    struct statvfs shm;
    const int n_local = env_number("MPI_LOCALNRANKS");
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

enum dt_status dt_launch_prepare(void)
{
    DT_TRY(check_connection());
    DT_TRY(check_process());
    DT_TRY(fit_shared_memory());
    return fit_file_limit();
}
