#include <stdlib.h>

#include "train/driver.h"
#include "train/drivers/together.h"
#include "train/step.h"

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

static enum dt_status open_free(struct dt_trainer *t, void **own)
{
    (void)t;
    struct dt_together *together = malloc(sizeof *together);
    if (together == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the driver of the steps");
    }
    *together = (struct dt_together){.run = run, .most_s = 1, .n = 1};
    *own = together;
    return DT_OK;
}

static void close_free(struct dt_trainer *t, void *own)
{
    (void)t;
    free(own);
}

static enum dt_status take(struct dt_trainer *t, uint64_t limit, struct dt_step_results *out)
{
    return dt_device_steps_take(t, t->driver.own, limit, out);
}

const struct dt_driver_ops dt_free_driver = {
    .fits = fits, .open = open_free, .close = close_free, .take = take};
