#include "dist/launch/stop.h"
#include "train/driver.h"
#include "train/step.h"

/* Doubles that travel once a step, all ranks' added. */
struct sums {
    struct dt_metrics train;
    double n_stopping; /* ranks that were asked to stop */
};

/* Adds up the step's sums over all ranks while the gradients travel, and takes the step. */
static enum dt_status exchange(struct dt_trainer *t, struct dt_strategy_step *step,
                               struct sums *sums)
{
    struct dt_request request;
    sums->n_stopping = dt_stop_requested() ? 1 : 0;
    DT_TRY(dt_comm_allreduce_start(t->world->comm, sums, sizeof *sums / sizeof(double), DT_TYPE_F64,
                                   DT_REDUCE_SUM, "sum of the step's results", &request));
    DT_TRY(dt_strategy_finish(step));
    return dt_comm_wait(t->world->comm, &request);
}

static enum dt_status take(struct dt_trainer *t, uint64_t limit, struct dt_step_results *out)
{
    const double update_s = t->strategy->update_s;
    struct sums sums;
    struct dt_strategy_step step;
    (void)limit;
    dt_step_clock_start(&t->clock);
    DT_TRY(dt_step_compute(t, t->state.step_in_epoch, &step, &sums.train));
    DT_TRY(exchange(t, &step, &sums));
    dt_step_clock_move(&t->clock, DT_PHASE_UPDATE, t->strategy->update_s - update_s);
    dt_step_clock_lap(&t->clock, DT_PHASE_COMMUNICATION);
    const enum dt_status s = dt_step_count(t, &sums.train, &out->steps[0]);
    if (s != DT_OK) { /* on all ranks: none leaves while weights are on their way */
        (void)dt_strategy_share_weights(t->strategy);
        return s;
    }
    out->n = 1;
    out->stop = sums.n_stopping > 0;
    DT_TRY(t->backend->ops->sync(t->backend));
    dt_step_clock_lap(&t->clock, DT_PHASE_UPDATE);
    return DT_OK;
}

const struct dt_driver_ops dt_host_driver = {.take = take};
