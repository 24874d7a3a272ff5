/* From the times of one and two ranks to what predictions begin with. */
#include <math.h>
#include <string.h>

#include "ops/scale/scale.h"

/* Of a round, or DT_SCALE_ROUNDS: the median. */
static double step_s(const struct dt_scale_row *row, int round)
{
    return round < DT_SCALE_ROUNDS ? row->rounds[round] : row->step_s[DT_SCALE_MEDIAN];
}

static double step_of(const struct dt_scale *s, enum dt_scale_kind kind, int n_ranks, int round)
{
    const struct dt_scale_row *row = dt_scale_find(&s->measured, kind, n_ranks);
    return row != NULL ? step_s(row, round) : 0;
}

static void fill_batches(const struct dt_scale *s, int round, struct dt_scale_job *job)
{
    job->n_batches = 0;
    for (int i = s->measured.n - 1; i >= 0; i--) { /* the smallest is the last */
        const struct dt_scale_row *row = &s->measured.rows[i];
        if (row->n_ranks == 1 && row->kind != DT_SCALE_STRONG) {
            job->batches[job->n_batches].samples = (double)row->batch;
            job->batches[job->n_batches++].seconds = step_s(row, round);
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

/* What they reveal on the core of one. */
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

/* The job has its buckets. */
static enum dt_status fill_job(const struct dt_scale *s, int round, struct dt_scale_job *job)
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
    if (s->has_network) {
        job->costs.between = s->network.cost;
    }
    return DT_OK;
}

enum dt_status dt_scale_fit_jobs(struct dt_scale *s)
{
    for (int round = 0; round < DT_SCALE_ROUNDS; round++) {
        s->jobs[round] = s->job; /* its buckets */
        DT_TRY(fill_job(s, round, &s->jobs[round]));
    }
    return fill_job(s, DT_SCALE_ROUNDS, &s->job);
}
