/* Several steps before the ranks agree on anything: those that a GPU takes on its own, and those of
 * workers that do not wait for each other. How many follows from how long they take, so that
 * progress is shown, a signal heeded and divergence noticed soon enough. */
#include "base/clock.h"
#include "dist/ranks/launch/stop.h"
#include "train/trainer.h"

/* That the steps taken together may take. */
static double at_once_s(const struct dt_trainer *t)
{
    return t->graph != NULL ? 0.1 : 1.0;
}

/* Sums that travel after them, all ranks' added: three for each step, then how many ranks were
 * asked to stop, and the time. */
enum { SUM_STOP = 3 * DT_MAX_RECORDED_STEPS, SUM_SECONDS, N_SUMS };

/* By the strategy's own messages alone. */
static enum dt_status run_freely(struct dt_trainer *t, int n, struct dt_metrics *local)
{
    dt_strategy_expect(t->strategy, n);
    for (int i = 0; i < n; i++) {
        DT_TRY(dt_trainer_local_step(t, t->state.step_in_epoch + (uint64_t)i, &local[i]));
    }
    return DT_OK;
}

static enum dt_status exchange(struct dt_trainer *t, int n, const struct dt_metrics *local,
                               double seconds, double sums[N_SUMS])
{
    for (int i = 0; i < n; i++) {
        sums[3 * i] = local[i].loss_sum;
        sums[3 * i + 1] = local[i].n_correct;
        sums[3 * i + 2] = local[i].n_samples;
    }
    sums[SUM_STOP] = dt_stop_requested() ? 1 : 0;
    sums[SUM_SECONDS] = seconds;
    return dt_comm_allreduce(t->world->comm, sums, N_SUMS, DT_TYPE_F64, DT_REDUCE_SUM,
                             "sum of the steps' results");
}

/* From sums over all ranks, and so the same on each. */
static void adapt(struct dt_trainer *t, int n, double seconds)
{
    const double per_step = seconds / t->world->size / n;
    const uint64_t most = 2 * (uint64_t)n, fit = per_step * (double)most <= at_once_s(t)
                                                     ? most
                                                     : (uint64_t)(at_once_s(t) / per_step);
    t->n_at_once = fit > DT_MAX_RECORDED_STEPS ? DT_MAX_RECORDED_STEPS : fit > 1 ? fit : 1;
}

enum dt_status dt_trainer_many_steps(struct dt_trainer *t, uint64_t limit,
                                     struct dt_step_results *out)
{
    const int n = (int)(limit < t->n_at_once ? limit : t->n_at_once);
    const double begin = dt_clock_s();
    struct dt_metrics local[DT_MAX_RECORDED_STEPS];
    double sums[N_SUMS] = {0};
    DT_TRY(t->graph != NULL ? dt_trainer_gpu_run(t, n, local) : run_freely(t, n, local));
    const double seconds = dt_clock_s() - begin;
    DT_TRY(exchange(t, n, local, seconds, sums));
    t->times.s[DT_PHASE_ON_GPU] += t->graph != NULL ? seconds : 0;
    t->times.s[DT_PHASE_COMMUNICATION] += dt_clock_s() - begin - seconds;
    for (int i = 0; i < n; i++) {
        const struct dt_metrics train = {
            .loss_sum = sums[3 * i], .n_correct = sums[3 * i + 1], .n_samples = sums[3 * i + 2]};
        DT_TRY(dt_trainer_advance(t, &train, &out->steps[i]));
    }
    out->n = n;
    out->stop = sums[SUM_STOP] > 0;
    if ((uint64_t)n == t->n_at_once) { /* shorter ones, at the end of an epoch, say less */
        adapt(t, n, sums[SUM_SECONDS]);
    }
    return DT_OK;
}
