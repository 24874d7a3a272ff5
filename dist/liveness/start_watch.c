#include "dist/liveness/start_watch.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/arithmetic.h"
#include "base/clock.h"
#include "dist/launch/launch.h"
#include "dist/liveness/roll_call.h"
#include "dist/liveness/watchdog.h"

#define LIMIT_DEFAULT_S 120.0
#define SLOW_LIMIT_S 120.0
#define ELSEWHERE_S 1.5
#define TICK_MS 250
#define LOOK_MS 1500
#define N_LOOKS 3 /* a launcher starts its ranks one by one */
#define NEXT_SPEAKS_MS 250
#define MAX_SPEAKERS 4

static struct {
    pthread_t thread;
    sem_t done;
    const char *host;
    double limit_s;
    int n_gone; /* so many looks in a row have missed a rank of this host */
} watch;

enum dt_status dt_comm_timeout_from_env(double *seconds)
{
    const char *text = getenv("DTRAIN_TIMEOUT");
    if (text == NULL) {
        return DT_OK;
    }
    char *end = NULL;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= DT_TIMEOUT_MIN_S && value <= DT_TIMEOUT_MAX_S)) {
        return dt_error(DT_CONFIG, "DTRAIN_TIMEOUT: expected seconds 2..3600, got '%s'", text);
    }
    *seconds = value;
    return DT_OK;
}

/* A wrong value is reported as soon as the ranks can agree on it. */
static double limit_from_env(void)
{
    double limit_s = LIMIT_DEFAULT_S;
    if (dt_comm_timeout_from_env(&limit_s) != DT_OK) {
        dt_error_clear();
    }
    return limit_s;
}

/* A launcher that ends the job, because another rank has spoken, asks for it by a signal, which is
 * blocked; MPICH's kills. */
static bool is_ended_by_launcher(void)
{
    sigset_t pending;
    return dt_mpich_launcher_fd() < 0 && sigpending(&pending) == 0 &&
           sigismember(&pending, SIGTERM) == 1;
}

/* A rank that should have reported first may have left MPI_Init already. So the next rank that is
 * still there reports in its place. */
static void end_job(const struct dt_roll_call *roll, double limit_s)
{
    char line[sizeof roll->missing + 128];
    if (roll->gone) {
        snprintf(line, sizeof line,
                 "dtrain: MPI cannot start: %s (see what it printed, or what started it)\n",
                 roll->missing);
    } else {
        snprintf(line, sizeof line,
                 "dtrain: MPI did not start within %.0f s: %s (raise DTRAIN_TIMEOUT if starting "
                 "takes that long)\n",
                 limit_s, roll->missing);
    }
    if (roll->n_before > 0) {
        dt_sleep_ms(DT_LAUNCH_FIRST_SPEAKS_MS +
                    NEXT_SPEAKS_MS * (unsigned)dt_min(roll->n_before, MAX_SPEAKERS));
    }
    dt_launch_end_job(is_ended_by_launcher() ? "" : line, DT_STALLED);
}

static void judge(double waited_s)
{
    struct dt_roll_call roll;
    dt_roll_call(watch.host, &roll);
    double limit_s = watch.limit_s;
    watch.n_gone = roll.gone ? watch.n_gone + 1 : 0;
    if (watch.n_gone == N_LOOKS) {
        end_job(&roll, limit_s);
    }
    if (roll.elsewhere) {
        limit_s += ELSEWHERE_S;
    } else if (!roll.certain && limit_s < SLOW_LIMIT_S) {
        limit_s = SLOW_LIMIT_S;
    }
    if (waited_s >= limit_s) {
        end_job(&roll, limit_s);
    }
}

static void *keep_watch(void *unused)
{
    (void)unused;
    for (unsigned ms = 0; !dt_wait_ms(&watch.done, TICK_MS); ms += TICK_MS) {
        if (ms * 1e-3 >= watch.limit_s || ms % LOOK_MS == 0) {
            judge(ms * 1e-3);
        }
    }
    return NULL;
}

enum dt_status dt_start_watch_open(const char *host)
{
    watch.host = host;
    watch.limit_s = limit_from_env();
    sem_init(&watch.done, 0, 0);
    if (pthread_create(&watch.thread, NULL, keep_watch, NULL) != 0) {
        return dt_error(DT_NO_MEMORY, "no thread to watch the start (raise ulimit -u)");
    }
    return DT_OK;
}

void dt_start_watch_close(void)
{
    sem_post(&watch.done);
    pthread_join(watch.thread, NULL);
    sem_destroy(&watch.done);
}
