#include "train/drivers/together.h"

#include "dist/ranks/launch/stop.h"
#include "train/step.h"

/* Sums that travel after the steps, all ranks' added: three for each step, then how many ranks were
 * asked to stop, and the time. */
enum { SUM_STOP = 3 * DT_MAX_STEPS_TOGETHER, SUM_SECONDS, N_SUMS };

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

/* `seconds`: of one step. From sums over all ranks, and so the same on each. */
static void adapt(struct dt_together *together, double seconds)
{
    const double most = 2 * (double)together->n;
    const double n = seconds * most <= together->most_s ? most : together->most_s / seconds;
    together->n = n > DT_MAX_STEPS_TOGETHER ? DT_MAX_STEPS_TOGETHER : n > 1 ? (int)n : 1;
}

enum dt_status dt_together_take(struct dt_trainer *t, struct dt_together *together, uint64_t limit,
                                struct dt_step_results *out)
{
    const int n = limit < (uint64_t)together->n ? (int)limit : together->n;
    struct dt_metrics local[DT_MAX_STEPS_TOGETHER];
    double sums[N_SUMS] = {0};
    const double begin = dt_clock_s();
    dt_step_clock_start(&t->clock);
    DT_TRY(together->run(t, n, local));
    DT_TRY(exchange(t, n, local, dt_clock_s() - begin, sums));
    dt_step_clock_lap(&t->clock, DT_PHASE_COMMUNICATION);
    for (int i = 0; i < n; i++) {
        const struct dt_metrics train = {
            .loss_sum = sums[3 * i], .n_correct = sums[3 * i + 1], .n_samples = sums[3 * i + 2]};
        DT_TRY(dt_step_count(t, &train, &out->steps[i]));
    }
    out->n = n;
    out->stop = sums[SUM_STOP] > 0;
    if (n == together->n) { /* shorter ones, at the end of an epoch, say less */
        adapt(together, sums[SUM_SECONDS] / t->world->size / n);
    }
    return DT_OK;
}
