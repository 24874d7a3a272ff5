#include "base/clock.h"
#include "train/trainer.h"

/* Steps until the replicas are compared next. */
static uint64_t until_check(const struct dt_trainer *t)
{
    const uint64_t every = t->config.dist.check_every;
    return every > 0 ? every - t->state.step % every : UINT64_MAX;
}

/* Whether the gradient's norm belongs into this step's record. */
static bool wants_norm(const struct dt_trainer *t, uint64_t step)
{
    const uint64_t every = (uint64_t)t->config.log_every_steps;
    return every > 0 && step % every == 0 && dt_strategy_has_gradient(t->strategy);
}

/* Of the steps that are taken together the last one's gradient is there: they end where it is wanted, unless that made them short.
 */
static uint64_t until_norm(const struct dt_trainer *t, uint64_t limit)
{
    const uint64_t every = (uint64_t)t->config.log_every_steps;
    const bool ends = t->graph != NULL && every >= DT_MAX_RECORDED_STEPS && dt_strategy_has_gradient(t->strategy);
    const uint64_t left = ends ? every - t->state.step % every : limit;
    return left < limit ? left : limit;
}

/* Counts as update. */
static enum dt_status measure_norm(struct dt_trainer *t, struct dt_step_result *step)
{
    const double begin = dt_clock_s();
    DT_TRY(dt_strategy_grad_norm(t->strategy, &step->grad_norm));
    t->times.s[DT_PHASE_UPDATE] += dt_clock_s() - begin;
    return DT_OK;
}

enum dt_status dt_trainer_steps(struct dt_trainer *t, uint64_t limit, struct dt_step_results *out)
{
    const uint64_t next_check = until_check(t), first = t->state.step + 1;
    const uint64_t most = until_norm(t, limit < next_check ? limit : next_check);
    DT_TRY(t->graph != NULL || t->strategy->free_running ? dt_trainer_many_steps(t, most, out) : dt_trainer_step(t, out));
    if (wants_norm(t, t->state.step)) {
        DT_TRY(measure_norm(t, &out->steps[out->n - 1]));
    }
    if (t->faults != NULL) {
        DT_TRY(dt_inject_end(t, first, t->state.step));
    }
    if ((uint64_t)out->n == next_check) {
        const double begin = dt_clock_s();
        DT_TRY(dt_strategy_share_weights(t->strategy));
        DT_TRY(dt_replica_check_run(&t->check, t->network));
        t->times.s[DT_PHASE_COMMUNICATION] += dt_clock_s() - begin;
    }
    return DT_OK;
}
