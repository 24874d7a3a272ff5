#include "train/step.h"
#include "train/trainer.h"

static enum dt_status take_step(struct dt_trainer *t, uint64_t step_in_epoch,
                                struct dt_metrics *local)
{
    const double update_s = t->strategy->update_s;
    struct dt_strategy_step step;
    dt_step_clock_start(&t->clock);
    DT_TRY(dt_step_compute(t, step_in_epoch, &step, local));
    DT_TRY(dt_strategy_finish(&step));
    dt_step_clock_move(&t->clock, DT_PHASE_UPDATE, t->strategy->update_s - update_s);
    dt_step_clock_lap(&t->clock, DT_PHASE_COMMUNICATION);
    return DT_OK;
}

/* By the strategy's own messages alone. */
static enum dt_status run(struct dt_trainer *t, int n, struct dt_metrics *local)
{
    DT_ASSERT(n >= 1 && t->strategy->n_expected == 0);
    t->strategy->n_expected = n;
    for (int i = 0; i < n; i++) {
        DT_TRY(take_step(t, t->state.step_in_epoch + (uint64_t)i, &local[i]));
    }
    return DT_OK;
}

static bool fits(const struct dt_trainer *t)
{
    return t->strategy->free_running;
}

static enum dt_status take(struct dt_trainer *t, int n, struct dt_step_results *out)
{
    return dt_steps_together(t, n, run, 1, out);
}

const struct dt_driver_ops dt_free_driver = {.fits = fits, .take = take};
