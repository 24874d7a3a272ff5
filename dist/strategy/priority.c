/* Mirrored weights in the order "priority": the weights come while the next step's forward pass
 * asks for them, block by block, and the sums that it wants first overtake the others
 * (dist/allreduce/priority.c). */
#include "base/clock.h"
#include "dist/strategy/mirrored.h"

/* A dt_comm.meanwhile. */
static void help(void *context)
{
    dt_grad_sync_help(&((struct dt_mirrored *)context)->sync);
}

static enum dt_status priority_need(struct dt_strategy *strategy, size_t begin)
{
    struct dt_mirrored *self = dt_mirrored_of(strategy);
    const struct dt_span span = {.kind = DT_SPAN_WAIT};
    const double start_s = dt_clock_s();
    strategy->spec.comm->meanwhile = NULL;
    if (!dt_grad_sync_lacks(&self->sync, begin)) {
        return DT_OK;
    }
    DT_TRY(dt_span_begin(strategy->trace, &span));
    DT_TRY(dt_grad_sync_need(&self->sync, begin,
                             dt_mirrored_shares(self) ? NULL : dt_mirrored_step_bucket,
                             &self->last));
    strategy->update_s = dt_mirrored_shares(self) ? self->host_step.seconds : strategy->update_s;
    strategy->pass_times.waiting_s += dt_clock_s() - start_s;
    return dt_span_end(strategy->trace, &span);
}

static enum dt_status finish(struct dt_strategy *strategy)
{
    return priority_need(strategy, 0);
}

static enum dt_status priority_share(struct dt_strategy *strategy, enum dt_shared_arrays arrays)
{
    (void)arrays;
    return finish(strategy);
}

static enum dt_status priority_each_sum(struct dt_strategy *strategy, dt_sums_fn fn, void *context)
{
    DT_TRY(finish(strategy));
    return dt_mirrored_each_sum(strategy, fn, context);
}

static enum dt_status priority_ready(struct dt_strategy_step *step, size_t begin, size_t end)
{
    if (begin == 0) {
        DT_TRY(finish(step->strategy));
        dt_mirrored_begin(step);
    }
    return dt_mirrored_ready(step, begin, end);
}

/* Waits for nothing: what follows is the exchange of the step's results, meanwhile gradients travel
 * on. */
static enum dt_status priority_wait(struct dt_strategy_step *step)
{
    struct dt_mirrored *self = dt_mirrored_of(step->strategy);
    struct dt_comm *comm = self->base.spec.comm;
    self->last = *step;
    DT_TRY(dt_grad_sync_end(&self->sync));
    comm->meanwhile = help;
    comm->meanwhile_context = self;
    return DT_OK;
}

static void priority_close(struct dt_strategy *strategy)
{
    strategy->spec.comm->meanwhile = NULL;
    dt_mirrored_close(strategy);
}

static const struct dt_strategy_ops priority_ops = {.ready = priority_ready,
                                                    .poll = dt_mirrored_poll,
                                                    .wait = priority_wait,
                                                    .share = priority_share,
                                                    .each_sum = priority_each_sum,
                                                    .close = priority_close};

static bool serves(const struct dt_dist_spec *dist)
{
    return dist->strategy == DT_STRATEGY_ALLREDUCE && dist->order == DT_ORDER_PRIORITY;
}

static enum dt_status check_spec(const struct dt_strategy_spec *spec, const char **key)
{
    DT_TRY(dt_mirrored_check(spec, key));
    if (spec->backend != NULL && !spec->backend->host_memory) {
        return dt_error(DT_CONFIG, "distributed.order \"priority\" steps in host memory (use "
                                   "\"device\": \"cpu\", or \"order\": \"backward\")");
    }
    if (spec->backend != NULL && spec->optimizer.clip_norm != 0) {
        return dt_error(
            DT_CONFIG,
            "train.optimizer.clip_norm needs all gradients before a step, and distributed.order "
            "\"priority\" steps block by block (set it to 0, or use \"order\": \"backward\")");
    }
    return DT_OK;
}

static enum dt_status priority_open(const struct dt_strategy_spec *spec, struct dt_strategy **out)
{
    DT_TRY(dt_mirrored_open(spec, &priority_ops, DT_CREDIT_BYTES, out));
    if (*out != NULL) {
        (*out)->need = priority_need;
    }
    return DT_OK;
}

const struct dt_strategy_row dt_priority_strategy = {
    .serves = serves, .check = check_spec, .open = priority_open};
