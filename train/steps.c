#include "dist/strategy/facts/facts.h"
#include "train/trainer.h"

/* Steps until the replicas are compared next. */
static uint64_t until_check(const struct dt_trainer *t)
{
    const uint64_t every = t->config.dist.check_every;
    return every > 0 ? every - t->state.step % every : UINT64_MAX;
}

uint64_t dt_record_interval(uint64_t step, uint64_t all)
{
    const uint64_t most = step / 32 < all / 256 ? step / 32 : all / 256;
    return most < 2 ? 1 : UINT64_C(1) << (63 - __builtin_clzll(most));
}

/* 0: none are recorded. */
static uint64_t record_interval(const struct dt_trainer *t, uint64_t step)
{
    const struct dt_config *c = &t->config;
    return c->log_every_steps != DT_AUTO
               ? (uint64_t)c->log_every_steps
               : dt_record_interval(step, (uint64_t)c->epochs * t->schedule.steps_per_epoch);
}

bool dt_trainer_records(const struct dt_trainer *t, uint64_t step)
{
    const uint64_t every = record_interval(t, step);
    return every > 0 && step % every == 0;
}

/* Steps between those whose gradient's norm is recorded. All ranks measure it together, which is
 * about a fiftieth of a small step's time: where the program chooses, it is not in every record. 0:
 * never. */
static uint64_t norm_interval(const struct dt_trainer *t, uint64_t step)
{
    const uint64_t every = record_interval(t, step),
                   least = t->driver.ops->on_device ? DT_MAX_STEPS_TOGETHER : 16;
    return !dt_strategy_has_gradient(t->strategy)                  ? 0
           : t->config.log_every_steps != DT_AUTO || every > least ? every
                                                                   : least;
}

static bool wants_norm(const struct dt_trainer *t, uint64_t step)
{
    const uint64_t every = norm_interval(t, step);
    return every > 0 && step % every == 0;
}

/* Of the steps that are taken together the last one's gradient is there: they end where it is
 * wanted, unless that made them short.
 */
static uint64_t until_norm(const struct dt_trainer *t, uint64_t limit)
{
    const uint64_t every = norm_interval(t, t->state.step + 1);
    const bool ends = t->driver.ops->on_device && every >= DT_MAX_STEPS_TOGETHER;
    const uint64_t left = ends ? every - t->state.step % every : limit;
    return left < limit ? left : limit;
}

/* Counts as update. */
static enum dt_status measure_norm(struct dt_trainer *t, struct dt_step_result *step)
{
    dt_step_clock_start(&t->clock);
    DT_TRY(dt_strategy_grad_norm(t->strategy, &step->grad_norm));
    dt_step_clock_lap(&t->clock, DT_PHASE_UPDATE);
    return DT_OK;
}

/* Counts as communication. */
static enum dt_status compare_replicas(struct dt_trainer *t, struct dt_step_results *out)
{
    const double begin = dt_clock_s();
    dt_step_clock_start(&t->clock);
    DT_TRY(dt_strategy_share_weights(t->strategy));
    DT_TRY(dt_replica_check_run(&t->check, t->network));
    dt_step_clock_lap(&t->clock, DT_PHASE_COMMUNICATION);
    out->seconds += dt_clock_s() - begin;
    return DT_OK;
}

enum dt_status dt_trainer_steps(struct dt_trainer *t, uint64_t limit, struct dt_step_results *out)
{
    const uint64_t next_check = until_check(t), first = t->state.step + 1;
    const uint64_t most = until_norm(t, limit < next_check ? limit : next_check);
    const double begin = dt_clock_s();
    DT_TRY(t->driver.ops->take(t, most, out));
    if (wants_norm(t, t->state.step)) {
        DT_TRY(measure_norm(t, &out->steps[out->n - 1]));
    }
    out->seconds = dt_clock_s() - begin;
    if (t->watchers.first != NULL) {
        DT_TRY(dt_watchers_step_end(t, first, t->state.step));
    }
    return (uint64_t)out->n == next_check ? compare_replicas(t, out) : DT_OK;
}
