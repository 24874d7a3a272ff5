#include "dist/launch/job.h"

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/launch/launch.h"
#include "dist/launch/launcher.h"
#include "dist/launch/stop.h"
#include "dist/launch/stream.h"
#include "dist/liveness/start_watch.h"
#include "dist/liveness/table.h"
#include "dist/ranks/comm_private.h"

#define EXIT_LIMIT_S 10
#define TAKE_ALONG_LIMIT_S 3
#define KILL_LIMIT_S 2 /* how much later the kernel ends what not even the limit ended */

static bool mpi_started; /* and not ended */
static bool leaving;     /* dt_world_exit is at work */
static volatile sig_atomic_t limit_code;
static const char *volatile limit_text;
static struct limit_timer {
    timer_t id;
    bool there;
} timers[3]; /* of the limit */

static void on_limit(int signal_number)
{
    (void)signal_number;
    dt_launch_end_job(limit_text, limit_code);
}

static void send_later(struct limit_timer *timer, int signal_number, unsigned seconds)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal_number};
    const struct itimerspec when = {.it_value.tv_sec = seconds};
    timer->there = timer_create(CLOCK_MONOTONIC, &event, &timer->id) == 0;
    if (timer->there) {
        timer_settime(timer->id, 0, &when, NULL);
    }
}

/* The way out blocks and can hang when another rank is gone: an alarm ends the process then. Its
 * timers run on in the kernel when the process is stopped, where nobody may be left to kill it:
 * SIGCONT lets it meet its alarm. */
static void set_limit(unsigned seconds, int code, const char *text)
{
    limit_code = code;
    limit_text = text;
    struct sigaction action = {.sa_handler = on_limit};
    sigset_t alarm_set;
    sigemptyset(&alarm_set);
    sigaddset(&alarm_set, SIGALRM);
    sigaction(SIGALRM, &action, NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarm_set, NULL);
    send_later(&timers[0], SIGALRM, seconds);
    send_later(&timers[1], SIGCONT, seconds);
    send_later(&timers[2], SIGKILL, seconds + KILL_LIMIT_S);
}

static void clear_limit(void)
{
    for (size_t i = 0; i < sizeof timers / sizeof timers[0]; i++) {
        if (timers[i].there) {
            timer_delete(timers[i].id);
        }
    }
}

/* The launcher kills this process together with the others; what it does not kill in time ends by
 * itself. */
static void take_others_along(int code, const char *last_words)
{
    set_limit(TAKE_ALONG_LIMIT_S, code, last_words);
    (void)dt_stream_flush();
    if (!dt_mpich_abort(code)) {
        MPI_Abort(MPI_COMM_WORLD, code);
    }
    dt_sleep_ms(DT_LAUNCH_KILL_MS);
    _exit(code);
}

/* Without this, mpirun may report a job as done whose rank called exit(0) in the middle of it. */
static void on_stray_exit(int code, void *unused)
{
    (void)unused;
    if (mpi_started && !leaving) {
        fputs("dtrain: a rank left without dt_world_exit (this is a bug)\n", stderr);
        take_others_along(code == 0 ? DT_INTERNAL : code, "");
    }
}

static enum dt_status start_mpi(void)
{
    int provided;
    DT_TRY(dt_mpich_prepare());
    const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (code != MPI_SUCCESS) {
        return dt_error(DT_UNAVAILABLE, "MPI does not start (MPI_Init_thread returned %d)", code);
    }
    mpi_started = true;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    on_exit(on_stray_exit, NULL);
    return DT_OK;
}

static void note_locals(struct dt_world *world)
{
    world->local_rank = world->comm->local_rank;
    world->local_size = world->comm->local_size;
    DT_ASSERT(world->comm->rank == world->rank && world->comm->size == world->size);
    DT_ASSERT(world->local_rank < world->local_size && world->local_size <= world->size);
}

static enum dt_status find_ranks(struct dt_world *world)
{
    DT_TRY(start_mpi());
    dt_stop_install();
    MPI_Comm_size(MPI_COMM_WORLD, &world->size);
    const enum dt_status s = dt_launch_check(world->size);
    world->rank = s == DT_OK ? world->rank : 0; /* a left-over number must not keep it silent */
    DT_TRY(s);
    MPI_Comm_rank(MPI_COMM_WORLD, &world->rank);
    DT_TRY(world->size == 1 ? dt_comm_open_self(&world->comm) : dt_comm_open_hosts(&world->comm));
    note_locals(world);
    return dt_liveness_open(world->comm);
}

enum dt_status dt_world_open(struct dt_world *world)
{
    *world = (struct dt_world){.rank = dt_launch_rank(), .size = 1, .local_size = 1};
    dt_stop_block();
    dt_launcher_tie();
    if (gethostname(world->host, DT_HOST_SIZE) != 0) {
        snprintf(world->host, sizeof world->host, "unknown");
    }
    DT_TRY(dt_start_watch_open(world->host));
    const enum dt_status status = find_ranks(world);
    dt_start_watch_close();
    DT_TRY(status);
    return dt_world_set_timeout(world, dt_comm_timeout_s(world->comm));
}

enum dt_status dt_world_set_timeout(struct dt_world *world, double seconds)
{
    DT_TRY(dt_world_agree(world, dt_comm_timeout_from_env(&seconds)));
    dt_comm_set_timeout(world->comm, seconds);
    return DT_OK;
}

enum dt_status dt_world_open_first(struct dt_world *world, int n, struct dt_world *out)
{
    *out = (struct dt_world){.rank = world->rank, .size = n, .local_size = 1};
    memcpy(out->host, world->host, sizeof out->host);
    DT_TRY(dt_world_agree(world, dt_start_watch_open(world->host))); /* MPI_Comm_split blocks */
    enum dt_status s = dt_comm_open_first(world->comm, n, &out->comm);
    dt_start_watch_close();
    /* After a failure of this rank alone, the others may never leave the opening. */
    s = s == DT_OK || dt_error_is_agreed() ? dt_world_agree(world, s) : s;
    if (s != DT_OK) {
        dt_world_close(out);
    } else if (out->comm != NULL) {
        note_locals(out);
    }
    return s;
}

enum dt_status dt_world_open_alone(const struct dt_world *world, struct dt_world *out)
{
    *out = (struct dt_world){
        .size = 1, .local_rank = world->local_rank, .local_size = world->local_size};
    memcpy(out->host, world->host, sizeof out->host);
    DT_TRY(dt_comm_open_self(&out->comm));
    dt_comm_set_timeout(out->comm, dt_comm_timeout_s(world->comm));
    return DT_OK;
}

/* A wait was too long: this rank no longer waits for the others. */
static bool has_stalled(const struct dt_world *world, enum dt_status status)
{
    return status == DT_STALLED || (world->comm != NULL && world->comm->private->stalled);
}

/* An agreed error is rank 0's to report, but a rank that no longer waits may end the job first. */
bool dt_world_speaks(struct dt_world *world, bool agreed)
{
    struct dt_comm *comm = world->comm;
    const bool alone = world->size > 1 && (!agreed || has_stalled(world, DT_OK));
    const struct dt_liveness_ops *liveness = comm == NULL ? NULL : comm->private->liveness;
    world->reports_error =
        (world->rank == 0 || alone) && (liveness == NULL || liveness->claim(comm, agreed));
    return world->reports_error;
}

static void end_mpi(struct dt_world *world)
{
    dt_comm_close(world->comm);
    MPI_Finalize();
    mpi_started = false;
    limit_text = ""; /* the others were here, and printed it */
}

/* The text when the limit strikes: an error that no rank has printed, because the others are
 * missing. */
static const char *unreported(const struct dt_world *world, enum dt_status status)
{
    static char line[DT_ERROR_TEXT_SIZE + 64];
    if (status == DT_OK || status == DT_STOPPED || world->reports_error || world->size == 1) {
        return "";
    }
    snprintf(line, sizeof line, "dtrain: rank %d alone: %s\n", world->rank, dt_error_text());
    return line;
}

/* The time for which this rank leaves the job alive: the reporting rank prints first, and after a
 * stall rank 0, which waited about as long, writes the end of the run. None if rank 0 is the silent
 * one, or is on a host that sees no silent rank and would only report the same later. */
static unsigned grace_ms(const struct dt_world *world, enum dt_status status)
{
    const struct dt_comm *comm = world->comm;
    const bool first_writes = has_stalled(world, status) && world->rank != 0 && comm != NULL &&
                              comm->private->silent != 0 &&
                              (comm->private->silent < 0 || comm->host_root == 0);
    return first_writes || !world->reports_error ? DT_LAUNCH_FIRST_SPEAKS_MS : 0;
}

/* Results wait for their reader, now that no other rank waits for this one. */
static enum dt_status wait_for_reader(enum dt_status status)
{
    clear_limit();
    const bool read = dt_stream_wait(dt_stop_requested);
    set_limit(EXIT_LIMIT_S, (int)status, "");
    return read || status != DT_OK ? status : DT_IO;
}

void dt_world_exit(struct dt_world *world, enum dt_status status, bool agreed)
{
    leaving = true;
    const bool read = dt_stream_flush();
    if (mpi_started) {
        set_limit(EXIT_LIMIT_S, (int)status, unreported(world, status));
        if (world->size > 1 && (!agreed || has_stalled(world, status))) {
            dt_sleep_ms(grace_ms(world, status));
            take_others_along((int)status, unreported(world, status));
        }
        if (dt_launcher_lost_wrapper()) { /* whose exit code would be the job's */
            dt_sleep_ms(world->rank == 0 ? 0 : DT_LAUNCH_FIRST_SPEAKS_MS);
            take_others_along((int)status, "");
        }
        end_mpi(world);
    }
    status = read ? status : wait_for_reader(status);
    if (status != DT_OK && dt_stop_requested() && world->rank == 0) {
        dt_mpich_keep_exit_code(dt_launcher_wrapper());
    }
    exit((int)status);
}
