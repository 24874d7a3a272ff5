#include "dist/liveness/watchdog.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "dist/launch/launch.h"
#include "dist/liveness/table.h"

#define TICK_MS 250
#define OTHERS_FIRST_S                                                         \
    1.0 /* those who wait for this rank know more; ranks elsewhere leave 1.5 s \
         */
#define KEEP_BEFORE_S 0.5
#define KEEP_LIMIT_MS 500

struct dt_watchdog {
    struct dt_liveness base; /* first */
    struct dt_comm *comm;    /* borrowed */
    struct dt_comm below;    /* as the table knows it: with the table as its liveness */
    struct dt_comm looks;    /* the same, for the thread */
    struct dt_watchdog_options options;
    struct dt_flight flight;
    _Atomic double limit_s; /* of the phase */
    _Atomic uint64_t n_signs, n_done;
    _Atomic(const char *) phase; /* names of the program's own */
    pthread_t thread, keeper;
    sem_t done, keep, kept;
    atomic_bool ends, closes;    /* for the keeper */
    char line[DT_WATCHDOG_LINE]; /* of the end */
};

static struct dt_watchdog *dog_of(struct dt_comm *comm)
{
    return (struct dt_watchdog *)comm->liveness;
}

/* ---- what passes */

static void pass_alive(struct dt_comm *comm, const char *begins, size_t n_bytes)
{
    struct dt_watchdog *dog = dog_of(comm);
    const uint64_t n = atomic_load_explicit(&dog->n_signs, memory_order_relaxed);
    atomic_store_explicit(&dog->n_signs, n + 1, memory_order_relaxed);
    atomic_store_explicit(&dog->n_done, comm->n_done, memory_order_relaxed);
    dt_flight_count(&dog->flight, comm->n_done);
    if (begins != NULL) {
        dt_flight_note(&dog->flight, DT_FLIGHT_COLLECTIVE, begins, comm->n_started, n_bytes);
    }
    if (dog->below.liveness != NULL) {
        dog->below.n_started = comm->n_started;
        dog->below.n_done = comm->n_done;
        dog->below.liveness->alive(&dog->below, begins, n_bytes);
    }
}

/* The phase of the steps comes with each of them, and is no event again. */
static void pass_phase(struct dt_comm *comm, const char *name)
{
    struct dt_watchdog *dog = dog_of(comm);
    if (name != atomic_load_explicit(&dog->phase, memory_order_relaxed)) {
        const bool saves = comm->rank == 0 && strcmp(name, DT_PHASE_SAVING) == 0;
        dt_flight_note(&dog->flight, DT_FLIGHT_PHASE, name, 0, 0);
        atomic_store(&dog->phase, name);
        atomic_store(&dog->limit_s, saves ? DT_SAVING_LIMITS * comm->timeout_s : comm->timeout_s);
    }
    if (dog->below.liveness != NULL) {
        dog->below.liveness->phase(&dog->below, name);
    }
    pass_alive(comm, NULL, 0);
}

static double pass_explain(struct dt_comm *comm, const struct dt_request *request, char *text,
                           size_t n_text)
{
    struct dt_watchdog *dog = dog_of(comm);
    if (dog->below.liveness == NULL) {
        return 0; /* as without any: `text` stays what it is */
    }
    const double more_s = dog->below.liveness->explain(&dog->below, request, text, n_text);
    comm->silent = dog->below.silent;
    return more_s;
}

static bool pass_claim(struct dt_comm *comm, bool agreed)
{
    struct dt_watchdog *dog = dog_of(comm);
    return dog->below.liveness == NULL || dog->below.liveness->claim(&dog->below, agreed);
}

static void pass_close(struct dt_liveness *liveness)
{
    struct dt_liveness *below = ((struct dt_watchdog *)liveness)->below.liveness;
    dt_watchdog_close((struct dt_watchdog *)liveness);
    if (below != NULL) {
        below->close(below);
    }
}

/* ---- the thread that looks */

/* Another rank of this host that shows no sign of life either: "; rank 2 ..."; or "". */
static void name_others(struct dt_watchdog *dog, char *text, size_t n_text)
{
    struct dt_comm *comm = &dog->looks;
    const struct dt_request request = {.sequence = atomic_load(&dog->n_done) + 1};
    char who[256] = "";
    comm->silent = -1;
    if (comm->liveness != NULL) {
        (void)comm->liveness->explain(comm, &request, who, sizeof who);
    }
    snprintf(text, n_text, "%s%s", comm->silent >= 0 ? "; " : "", comm->silent >= 0 ? who : "");
}

static void compose(struct dt_watchdog *dog, double limit_s)
{
    char others[288];
    struct dt_flight_event last;
    dt_flight_last(&dog->flight, &last);
    name_others(dog, others, sizeof others);
    snprintf(dog->line, sizeof dog->line,
             "dtrain: rank %d (%s) has shown no sign of life for %.0f s: it hangs in '%s', step "
             "%llu, last event '%s'%s (raise DTRAIN_TIMEOUT if the work takes that long)\n",
             dog->comm->rank, dog->options.host, limit_s, atomic_load(&dog->phase),
             (unsigned long long)last.step, last.name, others);
}

/* Waits for the keeper, but not for long. */
static void keep(struct dt_watchdog *dog)
{
    atomic_store(&dog->ends, true);
    sem_post(&dog->keep);
    for (int ms = 0; ms < KEEP_LIMIT_MS && sem_trywait(&dog->kept) != 0; ms++) {
        dt_sleep_ms(1);
    }
}

static void end_job(struct dt_watchdog *dog, double limit_s)
{
    const bool speaks =
        dog->looks.liveness == NULL || dog->looks.liveness->claim(&dog->looks, false);
    compose(dog, limit_s);
    keep(dog);
    if (!speaks) {
        dt_sleep_ms(DT_LAUNCH_FIRST_SPEAKS_MS);
    }
    dt_launch_end_job(speaks ? dog->line : "", DT_STALLED);
}

static bool is_done_soon(struct dt_watchdog *dog)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += TICK_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    return sem_clockwait(&dog->done, CLOCK_MONOTONIC, &until) == 0;
}

/* How long something has stayed the same. */
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
    while (!is_done_soon(dog)) {
        const double limit_s = atomic_load(&dog->limit_s);
        const double silent_s = look(&signs, atomic_load(&dog->n_signs));
        const double stays_s =
            look(&moves, dt_flight_n_events(&dog->flight) + atomic_load(&dog->n_done));
        if (silent_s < TICK_MS * 1e-3) {
            dt_flight_seen(&dog->flight);
        }
        const bool near = stays_s >= limit_s - KEEP_BEFORE_S;
        if (near && !warned) {
            sem_post(&dog->keep);
        } else if (warned && !near) {
            dt_flight_rewrite(&dog->flight);
        }
        warned = near;
        if (silent_s >= limit_s + OTHERS_FIRST_S) {
            end_job(dog, limit_s);
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
        dog->options.keep(dog->options.context, &dog->flight, ends ? dog->line : "");
        if (ends) {
            sem_post(&dog->kept);
        }
    }
}

/* ---- open and close */

static enum dt_status open_none(struct dt_comm *comm)
{
    (void)comm;
    return DT_OK;
}

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
    struct dt_flight flight;
    *out = NULL;
    DT_TRY(dt_flight_open(comm, &flight));
    struct dt_watchdog *dog = malloc(sizeof *dog);
    if (dog == NULL) {
        dt_flight_close(&flight);
        return dt_error(DT_NO_MEMORY, "no memory for the watchdog");
    }
    *dog = (struct dt_watchdog){
        .base = {.open = comm->liveness != NULL ? comm->liveness->open : open_none,
                 .phase = pass_phase,
                 .alive = pass_alive,
                 .explain = pass_explain,
                 .claim = pass_claim,
                 .close = pass_close},
        .comm = comm,
        .below = *comm,
        .looks = *comm,
        .options = *options,
        .flight = flight,
        .limit_s = comm->timeout_s,
        .phase = "start"};
    if (start(dog) != DT_OK) {
        dt_flight_close(&dog->flight);
        free(dog);
        return DT_NO_MEMORY;
    }
    comm->liveness = &dog->base;
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
    dog->comm->liveness = dog->below.liveness;
    dt_flight_close(&dog->flight);
    free(dog);
}

struct dt_flight *dt_watchdog_flight(struct dt_watchdog *dog)
{
    return &dog->flight;
}
