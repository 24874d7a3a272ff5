#include "base/clock.h"
#include "train/trainer.h"

/* Steps until the replicas are compared next. */
static uint64_t until_check(const struct dt_trainer *t)
{
    const uint64_t every = t->config.dist.check_every;
    return every > 0 ? every - t->state.step % every : UINT64_MAX;
}

enum dt_status dt_trainer_steps(struct dt_trainer *t, uint64_t limit, struct dt_step_results *out)
{
    const uint64_t next_check = until_check(t), first = t->state.step + 1;
    DT_TRY(t->graph != NULL || t->strategy->free_running ? dt_trainer_many_steps(t, limit < next_check ? limit : next_check, out)
                                                         : dt_trainer_step(t, out));
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
