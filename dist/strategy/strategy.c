#include "dist/strategy/strategy.h"

#include <stdlib.h>

#include "base/clock.h"

void dt_strategy_close(struct dt_strategy *strategy)
{
    if (strategy != NULL) {
        const struct dt_codec *codec = strategy->spec.codec;
        strategy->ops->close(strategy);
        free((void *)codec);
    }
}

/* One device buffer becomes rank 0's, by way of host memory. */
static enum dt_status broadcast_floats(const struct dt_strategy *strategy, float *device,
                                       float *host, const char *name)
{
    DT_ASSERT(strategy->spec.comm->size > 1);
    struct dt_backend *backend = strategy->spec.backend;
    const size_t n_bytes = strategy->spec.model->arena_elems * sizeof *device;
    if (strategy->spec.comm->rank == 0) {
        DT_TRY(backend->ops->copy_out(backend, host, device, n_bytes));
    }
    DT_TRY(dt_comm_broadcast(strategy->spec.comm, host, n_bytes, 0, name));
    return backend->ops->copy_in(backend, device, host, n_bytes);
}

enum dt_status dt_strategy_broadcast(struct dt_strategy *strategy)
{
    struct dt_optimizer *optimizer = &strategy->optimizer;
    if (strategy->spec.comm->size == 1) {
        return DT_OK;
    }
    float *host = malloc(strategy->spec.model->arena_elems * sizeof *host + 1);
    if (host == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory to broadcast the weights");
    }
    enum dt_status s =
        broadcast_floats(strategy, strategy->memory.params, host, "broadcast of weights");
    for (int i = 0; s == DT_OK && i < optimizer->n_states; i++) {
        s = broadcast_floats(strategy, optimizer->states[i], host, "broadcast of optimizer state");
    }
    free(host);
    DT_TRY(s);
    return dt_comm_broadcast(strategy->spec.comm, &optimizer->n_steps, sizeof optimizer->n_steps, 0,
                             "broadcast of the step count");
}

struct dt_update dt_strategy_next_update(struct dt_strategy *strategy, double lr, size_t n_global,
                                         size_t n_local)
{
    DT_ASSERT(n_local <= n_global);
    const size_t n = strategy->spec.dist.average ? n_global : n_local;
    const struct dt_update update =
        dt_optimizer_next(&strategy->optimizer, lr, n == 0 ? 0.0 : 1.0 / (double)n);
    strategy->grad_scale = update.grad_scale;
    return update;
}

struct dt_strategy_step dt_strategy_start(struct dt_strategy *strategy,
                                          const struct dt_update *update)
{
    DT_ASSERT(update->type == strategy->spec.optimizer.type && strategy->optimizer.n_steps > 0);
    struct dt_strategy_step step = {.strategy = strategy, .update = *update};
    if (strategy->ops->start != NULL) {
        strategy->ops->start(&step);
    }
    return step;
}

/* Between parameters there are zeros, whatever a codec makes of these. */
static enum dt_status clear_gaps(const struct dt_strategy *strategy, float *memory, size_t begin,
                                 size_t end)
{
    const struct dt_strategy_spec *spec = &strategy->spec;
    return spec->codec != NULL ? spec->dist.rows->compression->clear_gaps(spec, memory, begin, end)
                               : DT_OK;
}

/* A dt_grad_ready_fn. */
static enum dt_status ready(void *context, size_t begin, size_t end)
{
    DT_ASSERT(begin < end &&
              end <= ((struct dt_strategy_step *)context)->strategy->spec.model->arena_elems);
    struct dt_strategy_step *step = context;
    DT_TRY(clear_gaps(step->strategy, step->strategy->memory.grads, begin, end));
    return step->strategy->ops->ready != NULL ? step->strategy->ops->ready(step, begin, end)
                                              : DT_OK;
}

/* A dt_pass.poll. */
static void poll(void *context)
{
    struct dt_strategy_step *step = context;
    step->strategy->ops->poll(step);
}

enum dt_status dt_strategy_forward(struct dt_strategy_step *step, struct dt_network *network,
                                   const struct dt_pass *pass)
{
    DT_ASSERT(!dt_strategy_splits(step->strategy));
    return step->strategy->ops->forward != NULL ? step->strategy->ops->forward(step, network, pass)
                                                : dt_network_forward(network, pass);
}

enum dt_status dt_strategy_backward(struct dt_strategy_step *step, struct dt_network *network,
                                    const struct dt_pass *pass)
{
    DT_ASSERT(!dt_strategy_splits(step->strategy) && pass->training);
    struct dt_pass polled = *pass;
    polled.poll = step->strategy->ops->poll != NULL ? poll : NULL;
    polled.context = step;
    return dt_network_backward(network, &polled, ready, step);
}

enum dt_status dt_strategy_finish(struct dt_strategy_step *step)
{
    const struct dt_span span = {.kind = DT_SPAN_WAIT};
    DT_TRY(dt_span_begin(step->strategy->trace, &span));
    DT_TRY(step->strategy->ops->finish(step));
    return dt_span_end(step->strategy->trace, &span);
}

enum dt_status dt_strategy_step_range(struct dt_strategy_step *step, size_t begin, size_t end,
                                      const float *grads)
{
    DT_ASSERT(begin <= end && end <= step->strategy->optimizer.n_elems);
    struct dt_strategy *strategy = step->strategy;
    const double start_s = dt_clock_s();
    const enum dt_status s = dt_optimizer_apply_range(&strategy->optimizer, &step->update, begin,
                                                      end, strategy->memory.params, grads);
    strategy->update_s += dt_clock_s() - start_s;
    return s == DT_OK ? clear_gaps(strategy, strategy->memory.params, begin, end) : s;
}
