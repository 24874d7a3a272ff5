#include "train/hooks/weights/ema.h"

#include <stdlib.h>

#include "train/events.h"

/* A step of SGD at the rate 1 - decay, down the gradient average - weights: every backend has it,
 * and it moves an average that has arrived by exactly 0. */
static enum dt_status add_weights(struct dt_ema *ema, struct dt_trainer *t)
{
    const double share = ema->begun ? 1 - t->config.ema : 1;
    DT_ASSERT(share > 0 && share <= 1);
    const struct dt_update update = {
        .type = DT_OPTIMIZER_SGD, .grad_scale = -1, .weight_decay = 1, .lr = (float)share};
    ema->begun = true;
    return ema->backend->ops->optimizer_step(ema->backend, &update, t->model.arena_elems,
                                             ema->average, t->network->params, NULL, NULL);
}

/* Counts as update. */
static enum dt_status end_step(struct dt_hook *hook, struct dt_trainer *t, uint64_t first,
                               uint64_t last)
{
    DT_ASSERT(first == last);
    (void)first;
    (void)last; /* the same: no driver takes steps together where this watches */
    dt_step_clock_start(&t->clock);
    DT_TRY(dt_strategy_share_weights(t->strategy));
    DT_TRY(add_weights((struct dt_ema *)hook, t));
    DT_TRY(t->backend->ops->sync(t->backend));
    dt_step_clock_lap(&t->clock, DT_PHASE_UPDATE);
    return DT_OK;
}

/* With the average in the network's place of the weights, and nobody else looking on. */
enum dt_status dt_ema_evaluate(struct dt_trainer *t, struct dt_evaluator *evaluator,
                               struct dt_metrics *out)
{
    const struct dt_ema *ema = dt_ema_of(t);
    float *weights = t->network->params;
    struct dt_answers *answers = evaluator->answers;
    *out = (struct dt_metrics){0};
    if (ema == NULL || !ema->begun) {
        return DT_OK;
    }
    t->network->params = ema->average;
    evaluator->answers = NULL;
    const enum dt_status s = dt_evaluator_run(evaluator, out);
    t->network->params = weights;
    evaluator->answers = answers;
    return s;
}

static enum dt_status end_epoch(struct dt_hook *hook, struct dt_trainer *t,
                                struct dt_epoch_event *epoch)
{
    struct dt_ema *ema = (struct dt_ema *)hook;
    DT_TRY(dt_ema_evaluate(t, &t->evaluator, &ema->last));
    epoch->averaged = ema->last;
    return DT_OK;
}

/* A run that was resumed at its end has had no epoch. */
static enum dt_status end_run(struct dt_hook *hook, struct dt_trainer *t, enum dt_status status,
                              struct dt_end_event *end)
{
    struct dt_ema *ema = (struct dt_ema *)hook;
    if (status != DT_OK) {
        return DT_OK;
    }
    DT_TRY(ema->last.n_samples > 0 ? DT_OK : dt_ema_evaluate(t, &t->evaluator, &ema->last));
    end->averaged = ema->last;
    return DT_OK;
}

static void close_ema(struct dt_hook *hook)
{
    struct dt_ema *ema = (struct dt_ema *)hook;
    dt_floats_free(ema->backend, ema->average);
    free(ema);
}

static const struct dt_hook_ops ema_ops = {
    .step_end = end_step, .epoch_end = end_epoch, .run_end = end_run, .close = close_ema};

enum dt_status dt_ema_open(struct dt_trainer *t)
{
    struct dt_ema *ema;
    if (t->config.ema == 0) {
        return DT_OK;
    }
    DT_TRY(dt_hook_open(t, &ema_ops, sizeof *ema, "an average of the weights", (void **)&ema));
    DT_ASSERT(!t->driver.ops->on_device);
    ema->backend = t->backend;
    return dt_world_agree(t->world, dt_floats_alloc(t->backend, "the average of the weights", "",
                                                    t->model.arena_elems, &ema->average));
}

struct dt_ema *dt_ema_of(const struct dt_trainer *t)
{
    struct dt_hook *w = t->hooks.first;
    while (w != NULL && w->ops != &ema_ops) {
        w = w->next;
    }
    return (struct dt_ema *)w;
}

static enum dt_status broadcast_through(const struct dt_trainer *t, struct dt_ema *ema, float *host)
{
    const struct dt_backend_ops *ops = t->backend->ops;
    const size_t n_bytes = t->model.arena_elems * sizeof *host;
    DT_TRY(ops->copy_out(t->backend, host, ema->average, n_bytes));
    DT_TRY(dt_comm_broadcast(t->world->comm, host, n_bytes, 0, "broadcast of the average"));
    return ops->copy_in(t->backend, ema->average, host, n_bytes);
}

enum dt_status dt_ema_broadcast(struct dt_trainer *t)
{
    struct dt_ema *ema = dt_ema_of(t);
    float *host;
    if (ema == NULL) {
        return DT_OK;
    }
    DT_TRY(dt_comm_broadcast(t->world->comm, &ema->begun, sizeof ema->begun, 0,
                             "broadcast of what there is"));
    DT_TRY(dt_world_alloc(t->world, t->model.arena_elems, sizeof *host,
                          "the average of the weights", (void **)&host));
    const enum dt_status s = ema->begun ? broadcast_through(t, ema, host) : DT_OK;
    free(host);
    return s;
}
