/* Short runs of real training on more and more of the ranks: the first n of them form a world,
 * while the others sleep. Each round measures all rows, so that other programs disturb all of them
 * alike. */
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/terminal.h"
#include "dist/launch/job.h"
#include "dist/strategy/grad_sync.h"
#include "dist/strategy/summary/summary.h"
#include "ops/bench/bench.h"
#include "ops/bench/scaling.h"
#include "ops/measure.h"
#include "train/trainer.h"

#define N_FIRST 4       /* steps that say how many come next */
#define ROUND_S 0.3     /* about so long is a row measured in a round */
#define LEAST_STEPS 6   /* but so many steps at least */
#define MOST_STEPS 2000 /* and at most */
#define N_TRACED 8      /* steps in which the backward pass is watched */
#define N_ADDED ((size_t)1 << 18)
#define N_ROUND_TRIPS 40

/* ---- rows */

#define SCALE_NAME(constant, name, meaning) name,
#define SCALE_MEANING(constant, name, meaning) meaning,
const char *const dt_scale_names[] = {DT_SCALE_KIND_LIST(SCALE_NAME)};
const char *const dt_scale_meanings[] = {DT_SCALE_KIND_LIST(SCALE_MEANING)};

const struct dt_scale_row *dt_scale_find(const struct dt_scale_table *table,
                                         enum dt_scale_kind kind, int n_ranks)
{
    for (int i = 0; i < table->n; i++) {
        if (table->rows[i].kind == kind && table->rows[i].n_ranks == n_ranks) {
            return &table->rows[i];
        }
    }
    return NULL;
}

void dt_scale_sort(struct dt_scale_row *row)
{
    double sorted[DT_SCALE_ROUNDS];
    memcpy(sorted, row->step_s, sizeof sorted);
    row->step_s[DT_SCALE_MEDIAN] = dt_measure_median(sorted, DT_SCALE_ROUNDS);
    row->shortest_s = sorted[0];
    row->longest_s = sorted[DT_SCALE_ROUNDS - 1];
}

/* ---- which rows */

static void add_row(struct dt_scale *s, enum dt_scale_kind kind, int n_ranks, size_t batch)
{
    if (s->measured.n < DT_SCALE_MAX_ROWS && batch > 0) {
        s->measured.rows[s->measured.n++] =
            (struct dt_scale_row){.kind = kind, .n_ranks = n_ranks, .batch = batch};
    }
}

static void add_shown(struct dt_scale *s, int n_ranks, size_t batch)
{
    add_row(s, DT_SCALE_WEAK, n_ranks, batch * (size_t)n_ranks);
    add_row(s, DT_SCALE_STRONG, n_ranks, batch >= (size_t)n_ranks ? batch : 0);
}

static bool is_wanted(const struct dt_scale *s, int n)
{
    const bool power = (n & (n - 1)) == 0 || n == s->world->size;
    return s->ranks_given ? (s->wanted[n / 64] >> (n % 64) & 1) != 0 : power;
}

static void plan_rows(struct dt_scale *s)
{
    const size_t batch = dt_scale_rank_batch(&s->config);
    add_shown(s, 1, batch);
    for (size_t part = 2; part <= 8 && batch / part > 0; part *= 2) {
        add_row(s, DT_SCALE_BATCH, 1, batch / part);
    }
    if (s->world->size > 1) {
        add_shown(s, 2, batch);
        add_row(s, DT_SCALE_AT_ONCE, 2, batch);
        add_row(s, DT_SCALE_APART, 2, batch > 1 ? batch : 2);
    }
    if (s->world->local_size * s->n_threads > s->n_cores && s->world->local_size > 1) {
        add_row(s, DT_SCALE_ONE_CORE, 2, batch);
        add_row(s, DT_SCALE_TOGETHER, 2, batch > 1 ? batch : 2);
    }
    for (int n = 3; n <= s->world->size; n++) {
        if (is_wanted(s, n)) {
            add_shown(s, n, batch);
        }
    }
}

static struct dt_config config_of(const struct dt_scale *s, const struct dt_scale_row *row)
{
    struct dt_config config = s->config;
    config.batch_per_rank = 0;
    config.batch_global = (int64_t)row->batch;
    config.dist.check_every = 0;
    config.dist.overlap = config.dist.overlap && row->kind != DT_SCALE_APART;
    config.threads = s->n_threads;
    return config;
}

/* ---- when the gradients of a block are final */

struct watch {
    struct dt_trace trace; /* first: end_span gets a pointer to it */
    double begin_s, final_s[DT_MAX_LAYERS], sums_s[DT_MAX_LAYERS];
};

static enum dt_status begin_span(struct dt_trace *trace, const struct dt_span *span)
{
    (void)trace;
    (void)span;
    return DT_OK;
}

static enum dt_status end_span(struct dt_trace *trace, const struct dt_span *span)
{
    struct watch *w = (struct watch *)trace;
    if (span->kind == DT_SPAN_BACKWARD) {
        w->final_s[span->block] = dt_clock_s() - w->begin_s;
    }
    return DT_OK;
}

/* Where a device takes whole steps, the backward pass cannot be observed: then its two thirds of a
 * step give the buckets one after the other. */
static void fill_buckets(struct dt_scale *s, const struct dt_trainer *t, const struct watch *w,
                         double steps_s)
{
    static struct dt_grad_sync sync; /* large */
    struct dt_scale_job *job = &s->jobs[DT_SCALE_MEDIAN];
    dt_grad_sync_open(NULL, &t->model, &t->config.dist, &sync);
    job->n_buckets = sync.n_buckets;
    for (int i = 0; i < sync.n_buckets; i++) {
        struct dt_scale_bucket *bucket = &job->buckets[i];
        *bucket = (struct dt_scale_bucket){.n_elems = sync.buckets[i].end - sync.buckets[i].begin,
                                           .ready = (1 + 2.0 * (i + 1) / sync.n_buckets) / 3};
        for (int b = 0; b < t->model.n_blocks && steps_s > 0; b++) {
            if (t->model.blocks[b].grad_end == sync.buckets[i].end) {
                bucket->ready = fmin(w->sums_s[b] / steps_s, 1);
            }
        }
    }
}

static enum dt_status watch_buckets(struct dt_scale *s, struct dt_trainer *t)
{
    struct watch w = {.trace = {begin_span, end_span}};
    double steps_s = 0;
    if (!t->driver.ops->on_device) {
        dt_trainer_trace(t, &w.trace);
        for (int i = 0; i < N_TRACED; i++) {
            w.begin_s = dt_clock_s();
            DT_TRY(dt_bench_take_step(t, "bench scaling"));
            steps_s += dt_clock_s() - w.begin_s;
            for (int b = 0; b < t->model.n_blocks; b++) {
                w.sums_s[b] += w.final_s[b];
            }
        }
        dt_trainer_trace(t, NULL);
    }
    fill_buckets(s, t, &w, steps_s);
    return DT_OK;
}

/* ---- links */

/* Between rank 0 and `peer`. Every rank calls it. */
static enum dt_status measure_link(struct dt_measure_link *link, int rank, int peer,
                                   struct dt_link_cost *out)
{
    double small_s, large_s;
    DT_TRY(dt_measure_link(link,
                           rank == 0      ? peer
                           : rank == peer ? 0
                                          : -1,
                           N_ROUND_TRIPS, &small_s, &large_s));
    *out =
        (struct dt_link_cost){.alpha_s = small_s / 2,
                              .beta_s = fmax(large_s - small_s, 0) / 2 / (double)DT_MEASURE_LARGE};
    return DT_OK;
}

/* Seconds in which a rank adds an element. */
static enum dt_status time_adding(struct dt_world *world, double *out)
{
    float *to;
    *out = INFINITY;
    DT_TRY(dt_world_alloc(world, 2 * N_ADDED, sizeof *to, "numbers to add", (void **)&to));
    for (int i = 0; i < 5; i++) {
        const double begin_s = dt_clock_s();
        for (size_t k = 0; k < N_ADDED; k++) {
            to[k] += to[N_ADDED + k];
        }
        *out = fmin(*out, (dt_clock_s() - begin_s) / (double)N_ADDED);
    }
    free(to);
    return DT_OK;
}

/* Between rank 0 and the next rank, and the first one of another host if there is one. */
static enum dt_status measure_links(struct dt_scale *s)
{
    const struct dt_comm *comm = s->world->comm;
    struct dt_measure_link link;
    int elsewhere = 1;
    s->links.ranks_per_host = s->world->local_size;
    if (s->world->size == 1) {
        return DT_OK;
    }
    while (comm->host_roots != NULL && elsewhere < comm->size &&
           comm->host_roots[elsewhere] == comm->host_roots[0]) {
        elsewhere++;
    }
    DT_TRY(time_adding(s->world, &s->links.gamma_s));
    DT_TRY(dt_measure_link_open(s->world, &link));
    enum dt_status status = measure_link(&link, comm->rank, 1, &s->links.within);
    s->links.between = s->links.within;
    if (status == DT_OK && elsewhere > 1 && elsewhere < comm->size) {
        status = measure_link(&link, comm->rank, elsewhere, &s->links.between);
    }
    dt_measure_link_close(&link, status);
    return status;
}

/* ---- a row */

static enum dt_status take_steps(struct dt_scale *s, struct dt_trainer *t, int n, double *step_s)
{
    const double begin_s = dt_clock_s();
    for (int i = 0; i < n; i++) {
        DT_TRY(dt_bench_take_step(t, "bench scaling"));
        DT_TRY(dt_heartbeat_look(&s->heartbeat));
    }
    *step_s = (dt_clock_s() - begin_s) / n;
    return DT_OK;
}

/* How many steps take about ROUND_S; the same on all ranks of `part`. */
static enum dt_status count_steps(struct dt_comm *part, double step_s, int *n)
{
    DT_TRY(dt_comm_allreduce(part, &step_s, 1, DT_TYPE_F64, DT_REDUCE_MAX, "time of first steps"));
    *n = (int)fmin(fmax(ROUND_S / step_s, LEAST_STEPS), MOST_STEPS);
    return DT_OK;
}

/* The ranks of `part` call it, each with the trainer that it trains with. The step is that of the
 * slowest. The first steps are slow, half as many as are timed: memory is touched, ranks connect
 * and find their cores. */
static enum dt_status time_steps(struct dt_scale *s, struct dt_comm *part, struct dt_trainer *t,
                                 double *step_s)
{
    int n;
    DT_TRY(dt_strategy_broadcast(t->strategy));
    DT_TRY(take_steps(s, t, N_FIRST, step_s));
    DT_TRY(count_steps(part, *step_s, &n));
    DT_TRY(take_steps(s, t, n / 2, step_s));
    DT_TRY(count_steps(part, *step_s, &n));
    DT_TRY(dt_comm_barrier(part, "barrier before steps are timed"));
    DT_TRY(take_steps(s, t, n, step_s));
    return dt_comm_allreduce(part, step_s, 1, DT_TYPE_F64, DT_REDUCE_MAX, "time of steps");
}

static void note_facts(struct dt_scale *s, const struct dt_trainer *t)
{
    struct dt_strategy_summary facts;
    dt_strategy_summary(t->strategy, &facts);
    snprintf(s->device, sizeof s->device, "%s %s", t->backend->ops->name, t->backend->description);
    s->adds_by = facts.allreduce;
    s->n_parameters = t->model.n_parameters;
    s->n_samples = t->set.loader.shard.n_total;
}

/* The ranks of `part` call it. world: `part`, or this rank alone. */
static enum dt_status measure(struct dt_scale *s, struct dt_world *part, struct dt_world *world,
                              struct dt_scale_row *row, int round)
{
    const struct dt_config config = config_of(s, row);
    struct dt_trainer t;
    dt_comm_meanwhile(world->comm, dt_heartbeat_show, &s->heartbeat);
    DT_TRY(dt_trainer_open(world, &config, &dt_config_json, &dt_all_parts, &t));
    dt_comm_meanwhile(world->comm, NULL, NULL); /* without it in timed steps */
    enum dt_status status = time_steps(s, part->comm, &t, &row->step_s[round]);
    if (status == DT_OK && row->kind == DT_SCALE_WEAK) {
        note_facts(s, &t); /* the last row, with all ranks, overwrites the others */
    }
    if (status == DT_OK && row->kind == DT_SCALE_WEAK && row->n_ranks == 1 && round == 0) {
        status = watch_buckets(s, &t);
    }
    dt_trainer_close(&t);
    return status;
}

/* Keeps this process on the cores of rank 0, as many as one rank's threads; *own: the cores that
 * it may use otherwise. */
static bool share_cores(const struct dt_scale *s, cpu_set_t *own)
{
    cpu_set_t few;
    CPU_ZERO(&few);
    for (int i = 0, found = 0; i < CPU_SETSIZE && found < s->n_threads; i++) {
        if (CPU_ISSET(i, &s->first_cores)) {
            CPU_SET(i, &few);
            found++;
        }
    }
    return sched_getaffinity(0, sizeof *own, own) == 0 &&
           sched_setaffinity(0, sizeof few, &few) == 0;
}

static enum dt_status measure_alone(struct dt_scale *s, struct dt_world *part,
                                    struct dt_scale_row *row, int round)
{
    struct dt_world alone;
    DT_TRY(dt_world_agree(part, dt_world_open_alone(part, &alone)));
    const enum dt_status status = measure(s, part, &alone, row, round);
    dt_world_close(&alone);
    return status;
}

static enum dt_status measure_part(struct dt_scale *s, struct dt_world *part,
                                   struct dt_scale_row *row, int round)
{
    cpu_set_t own;
    const bool shares = row->kind == DT_SCALE_ONE_CORE || row->kind == DT_SCALE_TOGETHER,
               alone = row->kind == DT_SCALE_ONE_CORE || row->kind == DT_SCALE_AT_ONCE,
               bound = shares && share_cores(s, &own);
    const enum dt_status status =
        alone ? measure_alone(s, part, row, round) : measure(s, part, part, row, round);
    if (bound) {
        sched_setaffinity(0, sizeof own, &own);
    }
    return status;
}

enum dt_status dt_scale_start_heartbeat(struct dt_scale *s)
{
    s->beat = 0;
    s->heartbeat = (struct dt_heartbeat){.comm = s->world->comm,
                                         .name = "a sign of life of the measurement",
                                         .n = 1,
                                         .mine = &s->beat,
                                         .sum = &s->beats};
    return dt_heartbeat_start(&s->heartbeat);
}

static enum dt_status measure_row(struct dt_scale *s, struct dt_scale_row *row, int round)
{
    struct dt_world part;
    enum dt_status status = DT_OK;
    DT_TRY(dt_world_open_first(s->world, row->n_ranks, &part));
    DT_TRY(dt_scale_start_heartbeat(s));
    dt_comm_phase(s->world->comm, part.comm != NULL ? "bench scaling" : "idle");
    if (part.comm != NULL) {
        status = measure_part(s, &part, row, round);
        if (status == DT_STALLED) {
            return status; /* not all ranks are here to agree */
        }
        dt_world_close(&part);
    }
    DT_TRY(dt_heartbeat_finish(&s->heartbeat));
    return dt_world_agree(s->world, status);
}

static enum dt_status measure_rows(struct dt_scale *s)
{
    for (int round = 0; round < DT_SCALE_ROUNDS; round++) {
        for (int i = 0; i < s->measured.n; i++) {
            struct dt_scale_row *row = &s->measured.rows[i];
            if (s->world->rank == 0) {
                dt_terminal_live("round %d of %d: %s, %d rank%s", round + 1, DT_SCALE_ROUNDS,
                                 dt_scale_meanings[row->kind], row->n_ranks,
                                 row->n_ranks == 1 ? "" : "s");
            }
            if (row->kind == DT_SCALE_STRONG && row->n_ranks == 1) {
                row->step_s[round] = s->measured.rows[i - 1].step_s[round]; /* the same row */
            } else {
                DT_TRY(measure_row(s, row, round));
            }
        }
    }
    for (int i = 0; i < s->measured.n; i++) {
        dt_scale_sort(&s->measured.rows[i]);
    }
    return DT_OK;
}

/* ---- all of it */

/* Counts the cores that any rank of rank 0's host may use. */
static enum dt_status count_cores(struct dt_scale *s)
{
    const struct dt_comm *comm = s->world->comm;
    cpu_set_t mine, host, *all;
    CPU_ZERO(&mine);
    CPU_ZERO(&host);
    sched_getaffinity(0, sizeof mine, &mine);
    DT_TRY(dt_world_alloc(s->world, (size_t)comm->size, sizeof *all, "cores of all ranks",
                          (void **)&all));
    const enum dt_status status =
        dt_comm_allgather(s->world->comm, &mine, all, sizeof mine, "cores of all ranks");
    for (int i = 0; i < comm->size && status == DT_OK; i++) {
        if (i == 0 || (comm->host_roots != NULL && comm->host_roots[i] == comm->host_roots[0])) {
            CPU_OR(&host, &host, &all[i]);
        }
    }
    s->n_cores = status == DT_OK ? CPU_COUNT(&host) : 1;
    s->first_cores = all[0];
    free(all);
    return status;
}

enum dt_status dt_scale_measure(struct dt_scale *s)
{
    DT_TRY(count_cores(s));
    plan_rows(s);
    DT_TRY(measure_links(s));
    return measure_rows(s);
}

/* ---- from these times to the model */

static double step_of(const struct dt_scale *s, enum dt_scale_kind kind, int n_ranks, int round)
{
    const struct dt_scale_row *row = dt_scale_find(&s->measured, kind, n_ranks);
    return row != NULL ? row->step_s[round] : 0;
}

static void fill_batches(const struct dt_scale *s, int round, struct dt_scale_job *job)
{
    job->n_batches = 0;
    for (int i = s->measured.n - 1; i >= 0; i--) { /* the smallest is the last */
        const struct dt_scale_row *row = &s->measured.rows[i];
        if (row->n_ranks == 1 && row->kind != DT_SCALE_STRONG) {
            job->batches[job->n_batches].samples = (double)row->batch;
            job->batches[job->n_batches++].seconds = row->step_s[round];
        }
    }
}

struct dt_scale_allreduce dt_scale_allreduce(const struct dt_scale *s)
{
    const struct dt_algorithm *algorithm = dt_algorithm_find(s->adds_by);
    const int across = s->config.dist.across;
    const bool in_memory = algorithm == NULL && (strcmp(s->adds_by, "shared_memory") == 0 ||
                                                 strcmp(s->adds_by, "hierarchical") == 0);
    if (algorithm == NULL) {
        algorithm = dt_algorithm_find(across > 0 ? dt_allreduce_names[across] : "ring");
    }
    return (struct dt_scale_allreduce){.algorithm = algorithm, .in_memory = in_memory};
}

/* What two ranks reveal, each with a core of its own. */
static enum dt_status fit_pair(const struct dt_scale *s, int round, struct dt_scale_job *job)
{
    const struct dt_scale_allreduce allreduce = dt_scale_allreduce(s);
    const double samples = (double)dt_scale_find(&s->measured, DT_SCALE_APART, 2)->batch / 2,
                 one_s = step_of(s, DT_SCALE_WEAK, 1, round);
    const enum dt_scale_kind kind =
        dt_scale_rank_batch(&s->config) > 1 ? DT_SCALE_STRONG : DT_SCALE_WEAK; /* of that batch */
    job->slowdown =
        fmax(step_of(s, DT_SCALE_AT_ONCE, 2, round) / one_s / dt_scale_share(job, 2), 1);
    const double compute_s = dt_scale_compute_s(job, samples) * dt_scale_share(job, 2);
    return dt_scale_fit(job, &allreduce, samples, step_of(s, DT_SCALE_APART, 2, round) - compute_s,
                        step_of(s, kind, 2, round) - compute_s);
}

/* What two ranks reveal on the core of one. */
static enum dt_status fit_crowd(const struct dt_scale *s, int round, struct dt_scale_job *job)
{
    struct dt_scale_job crowd = *job;
    const struct dt_scale_allreduce allreduce = dt_scale_allreduce(s);
    const double samples = (double)dt_scale_find(&s->measured, DT_SCALE_APART, 2)->batch / 2;
    double seconds[DT_SCALE_MAX_BUCKETS];
    crowd.n_at_once = crowd.message_shared = 1;
    DT_TRY(dt_scale_sums(&crowd, &allreduce, 2, seconds));
    const double sum_s = dt_scale_step(&crowd, seconds, 2, samples).sum_s;
    job->crowding =
        fmax(step_of(s, DT_SCALE_ONE_CORE, 2, round) / step_of(s, DT_SCALE_WEAK, 1, round) / 2, 1);
    const double wait_s = step_of(s, DT_SCALE_TOGETHER, 2, round) -
                          2 * job->crowding * dt_scale_compute_s(job, samples);
    job->message_shared = fmax(sum_s > 0 ? wait_s / sum_s : 1, job->message);
    return DT_OK;
}

/* What the model leaves over. */
static enum dt_status fit_rests(struct dt_scale *s, int round, const struct dt_scale_job *job)
{
    const struct dt_scale_allreduce allreduce = dt_scale_allreduce(s);
    double seconds[DT_SCALE_MAX_BUCKETS];
    for (int kind = 0; kind < DT_N_SHOWN_KINDS; kind++) {
        const struct dt_scale_row *row = dt_scale_find(&s->measured, (enum dt_scale_kind)kind, 2);
        s->rests[kind][round] = 1;
        if (row != NULL) {
            DT_TRY(dt_scale_sums(job, &allreduce, 2, seconds));
            s->rests[kind][round] =
                row->step_s[round] / dt_scale_step(job, seconds, 2, (double)row->batch / 2).step_s;
        }
    }
    return DT_OK;
}

/* The job has its buckets. */
static enum dt_status fill_job(struct dt_scale *s, int round, struct dt_scale_job *job)
{
    fill_batches(s, round, job);
    job->overlap = job->slowdown = job->crowding = job->message = 1;
    job->n_at_once = fmax(s->n_cores / (double)s->n_threads, 1);
    job->costs = s->links;
    if (s->world->size > 1) {
        DT_TRY(fit_pair(s, round, job));
    }
    job->message_shared = job->message;
    if (dt_scale_find(&s->measured, DT_SCALE_TOGETHER, 2) != NULL) {
        DT_TRY(fit_crowd(s, round, job));
    }
    return fit_rests(s, round, job);
}

enum dt_status dt_scale_fit_jobs(struct dt_scale *s)
{
    for (int round = 0; round < DT_SCALE_RESULTS; round++) {
        s->jobs[round] = s->jobs[DT_SCALE_MEDIAN]; /* its buckets */
        DT_TRY(fill_job(s, round, &s->jobs[round]));
    }
    return DT_OK;
}
