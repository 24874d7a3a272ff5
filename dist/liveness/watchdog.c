#include "dist/liveness/watchdog.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "dist/launch/launch.h"
#include "dist/ranks/comm_private.h"

#define TICK_MS 250
#define OTHERS_FIRST_S 1.0 /* ranks that wait for this rank know more, so they report first */
#define KEEP_BEFORE_S 0.5
#define KEEP_LIMIT_MS 500

struct dt_watchdog {
    struct dt_comm *comm;            /* borrowed */
    struct dt_liveness_table *table; /* of `comm` */
    struct dt_watchdog_options options;
    pthread_t thread, keeper;
    sem_t done, keep, kept;
    atomic_bool ends, closes;    /* for the keeper */
    char line[DT_WATCHDOG_LINE]; /* of the end */
};

/* ---- the thread that watches the main thread */

static void compose(struct dt_watchdog *dog, double limit_s)
{
    char other[256];
    struct dt_flight_event last;
    dt_liveness_last(dog->table, &last);
    dt_liveness_name_silent(dog->table, other, sizeof other);
    snprintf(dog->line, sizeof dog->line,
             "dtrain: rank %d (%s) has shown no sign of life for %.0f s: it hangs in '%s', step "
             "%llu, last event '%s'%s%s (raise DTRAIN_TIMEOUT if the work takes that long)\n",
             dog->comm->rank, dog->options.host, limit_s, dt_liveness_phase(dog->table),
             (unsigned long long)last.step, last.name, other[0] != '\0' ? "; " : "", other);
}

/* Waits for the keeper, but not for long. */
static void keep(struct dt_watchdog *dog)
{
    atomic_store(&dog->ends, true);
    sem_post(&dog->keep);
    (void)dt_wait_ms(&dog->kept, KEEP_LIMIT_MS);
}

static void end_job(struct dt_watchdog *dog, double limit_s)
{
    const bool speaks = dog->comm->private->liveness->claim(dog->comm, false);
    compose(dog, limit_s);
    keep(dog);
    if (!speaks) {
        dt_sleep_ms(DT_LAUNCH_FIRST_SPEAKS_MS);
    }
    dt_launch_end_job(speaks ? dog->line : "", DT_STALLED);
}

bool dt_wait_ms(sem_t *posted, unsigned ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const long ns = until.tv_nsec + ms * 1000000L;
    until = (struct timespec){until.tv_sec + ns / 1000000000L, ns % 1000000000L};
    return sem_clockwait(posted, CLOCK_MONOTONIC, &until) == 0;
}

/* How long a value has stayed the same. */
struct stay {
    uint64_t value;
    struct dt_patience patience;
};

static double look(struct stay *stay, uint64_t value)
{
    if (value != stay->value) {
        *stay = (struct stay){value, dt_patience_begin()};
    }
    return dt_patience_look(&stay->patience);
}

static void *keep_watch(void *context)
{
    struct dt_watchdog *dog = context;
    struct stay signs = {.patience = dt_patience_begin()}, moves = signs;
    bool warned = false;
    while (!dt_wait_ms(&dog->done, TICK_MS)) {
        const bool lasts = dt_phase_is_long(dt_liveness_phase(dog->table), dog->comm->rank);
        const double limit = (lasts ? DT_LONG_LIMITS : 1) * dt_comm_timeout_s(dog->comm);
        const double silent_s = look(&signs, dt_liveness_seen_ns(dog->table));
        const bool near = look(&moves, dt_liveness_n_moves(dog->table)) >= limit - KEEP_BEFORE_S;
        if (near && !warned) {
            sem_post(&dog->keep);
        }
        warned = near || (warned && !dt_flight_rewrite(dog->table));
        if (silent_s >= limit + OTHERS_FIRST_S) {
            end_job(dog, limit);
        }
    }
    return NULL;
}

/* ---- the thread that keeps: a disk may never answer */

static void *keep_what_was(void *context)
{
    struct dt_watchdog *dog = context;
    for (;;) {
        while (sem_wait(&dog->keep) != 0) {
        }
        if (atomic_load(&dog->closes)) {
            return NULL;
        }
        const bool ends = atomic_load(&dog->ends);
        dog->options.keep(dog->options.context, ends ? dog->line : "");
        if (ends) {
            sem_post(&dog->kept);
        }
    }
}

/* ---- open and close */

static enum dt_status start(struct dt_watchdog *dog)
{
    sigset_t all, before;
    sigfillset(&all);
    sem_init(&dog->done, 0, 0);
    sem_init(&dog->keep, 0, 0);
    sem_init(&dog->kept, 0, 0);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool keeps = pthread_create(&dog->keeper, NULL, keep_what_was, dog) == 0;
    const bool looks = keeps && pthread_create(&dog->thread, NULL, keep_watch, dog) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (keeps && !looks) {
        atomic_store(&dog->closes, true);
        sem_post(&dog->keep);
        pthread_join(dog->keeper, NULL);
    }
    return looks ? DT_OK : dt_error(DT_NO_MEMORY, "no threads for the watchdog (raise ulimit -u)");
}

enum dt_status dt_watchdog_open(struct dt_comm *comm, const struct dt_watchdog_options *options,
                                struct dt_watchdog **out)
{
    struct dt_watchdog *dog = malloc(sizeof *dog);
    *out = NULL;
    if (dog == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the watchdog");
    }
    *dog = (struct dt_watchdog){
        .comm = comm, .table = dt_liveness_table_of(comm), .options = *options};
    if (start(dog) != DT_OK) {
        free(dog);
        return DT_NO_MEMORY;
    }
    *out = dog;
    return DT_OK;
}

/* The keeper first: it may hang itself. */
void dt_watchdog_close(struct dt_watchdog *dog)
{
    if (dog == NULL) {
        return;
    }
    atomic_store(&dog->closes, true);
    sem_post(&dog->keep);
    pthread_join(dog->keeper, NULL);
    sem_post(&dog->done);
    pthread_join(dog->thread, NULL);
    free(dog);
}
