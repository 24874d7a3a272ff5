#include "train/drivers/together.h"

#include "dist/launch/stop.h"
#include "train/step.h"

/* Doubles that travel after the steps, all ranks' added. */
struct sums {
    struct dt_metrics train[DT_MAX_STEPS_TOGETHER];
    double n_stopping; /* ranks that were asked to stop */
    double seconds;
};

/* `seconds`: of one step. From sums over all ranks, and so the same on each. */
static void adapt(struct dt_together *together, double seconds)
{
    const double most = 2 * (double)together->n;
    const double n = seconds * most <= together->most_s ? most : together->most_s / seconds;
    together->n = n > DT_MAX_STEPS_TOGETHER ? DT_MAX_STEPS_TOGETHER : n > 1 ? (int)n : 1;
}

enum dt_status dt_device_steps_take(struct dt_trainer *t, struct dt_together *together,
                                    uint64_t limit, struct dt_step_results *out)
{
    const int n = limit < (uint64_t)together->n ? (int)limit : together->n;
    struct sums sums = {.n_stopping = 0};
    const double begin = dt_clock_s();
    dt_step_clock_start(&t->clock);
    DT_TRY(together->run(t, n, sums.train));
    sums.seconds = dt_clock_s() - begin;
    sums.n_stopping = dt_stop_requested() ? 1 : 0;
    DT_TRY(dt_comm_allreduce(t->world->comm, &sums, sizeof sums / sizeof(double), DT_TYPE_F64,
                             DT_REDUCE_SUM, "sum of the steps' results"));
    dt_step_clock_lap(&t->clock, DT_PHASE_COMMUNICATION);
    for (int i = 0; i < n; i++) {
        DT_TRY(dt_step_count(t, &sums.train[i], &out->steps[i]));
    }
    out->n = n;
    out->stop = sums.n_stopping > 0;
    if (n == together->n) { /* shorter ones, at the end of an epoch, say less */
        adapt(together, sums.seconds / t->world->size / n);
    }
    return DT_OK;
}
