#include "dist/strategy/strategy.h"

#include <math.h>
#include <stdlib.h>

#include "base/arithmetic.h"
#include "base/clock.h"

void dt_strategy_close(struct dt_strategy *strategy)
{
    if (strategy != NULL) {
        strategy->ops->close(strategy);
    }
}

/* One device buffer becomes rank 0's, by way of host memory. */
static enum dt_status broadcast_floats(const struct dt_strategy *strategy, float *device,
                                       float *host, const char *name)
{
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
    enum dt_status status;
    DT_TRY_GOTO(status,
                broadcast_floats(strategy, strategy->memory.params, host, "broadcast of weights"),
                done);
    for (int i = 0; i < optimizer->n_states; i++) {
        DT_TRY_GOTO(
            status,
            broadcast_floats(strategy, optimizer->states[i], host, "broadcast of optimizer state"),
            done);
    }
    status = dt_comm_broadcast(strategy->spec.comm, &optimizer->n_steps, sizeof optimizer->n_steps,
                               0, "broadcast of the step count");
done:
    free(host);
    return status;
}

enum dt_status dt_strategy_share_weights(struct dt_strategy *strategy)
{
    return strategy->ops->share != NULL ? strategy->ops->share(strategy, DT_SHARED_WEIGHTS) : DT_OK;
}

enum dt_status dt_strategy_collect_state(struct dt_strategy *strategy)
{
    return strategy->ops->share != NULL ? strategy->ops->share(strategy, DT_SHARED_STATE) : DT_OK;
}

bool dt_strategy_has_gradient(const struct dt_strategy *strategy)
{
    return strategy->ops->each_sum != NULL && !strategy->free_running;
}

enum dt_status dt_strategy_each_sum(struct dt_strategy *strategy, dt_sums_fn fn, void *context)
{
    return strategy->ops->each_sum(strategy, fn, context);
}

struct squares {
    const struct dt_strategy_spec *spec;
    double sum;
};

/* A dt_sums_fn: of the parameters' elements, between which an arena has gaps. */
static enum dt_status add_squares(void *context, size_t begin, size_t end, const float *sums)
{
    struct squares *squares = context;
    const struct dt_model *model = squares->spec->model;
    struct dt_backend *backend = squares->spec->backend;
    for (int i = 0; i < model->n_params; i++) {
        const size_t first = model->params[i].offset, last = first + model->params[i].n_elems;
        const size_t from = first > begin ? first : begin, to = last < end ? last : end;
        double sum = 0;
        if (from < to) {
            DT_TRY(backend->ops->sum_squares(backend, to - from, sums + (from - begin), &sum));
            squares->sum += sum;
        }
    }
    return DT_OK;
}

enum dt_status dt_strategy_grad_norm(struct dt_strategy *strategy, double *out)
{
    struct squares squares = {.spec = &strategy->spec};
    DT_TRY(dt_strategy_each_sum(strategy, add_squares, &squares));
    DT_TRY(dt_comm_allreduce(strategy->spec.comm, &squares.sum, 1, DT_TYPE_F64, DT_REDUCE_SUM,
                             "sum of the gradient's squares"));
    *out = sqrt(squares.sum) * (double)strategy->grad_scale;
    return DT_OK;
}

const char *dt_strategy_adds_by(const struct dt_strategy *strategy)
{
    const bool alone = !strategy->spec.dist.average;
    return strategy->allreduce != NULL ? dt_allreduce_names[strategy->allreduce->type]
           : alone                     ? "none"
                                       : dt_strategy_names[strategy->spec.dist.strategy];
}

void dt_strategy_facts(const struct dt_strategy *strategy, struct dt_strategy_facts *out)
{
    *out = (struct dt_strategy_facts){.allreduce = dt_strategy_adds_by(strategy),
                                      .why = "",
                                      .n_hosts = strategy->spec.comm->n_hosts,
                                      .codec = &strategy->spec.codec};
    if (strategy->ops->facts != NULL) {
        strategy->ops->facts(strategy, out);
    }
}

enum dt_status dt_strategy_staleness(const struct dt_strategy *strategy, struct dt_staleness *out)
{
    struct dt_strategy_facts facts;
    dt_strategy_facts(strategy, &facts);
    *out = facts.staleness != NULL ? *facts.staleness : (struct dt_staleness){{0}};
    return dt_comm_allreduce(strategy->spec.comm, out->counts, DT_STALENESS_BINS, DT_TYPE_U64,
                             DT_REDUCE_SUM, "sum of stalenesses");
}

void dt_strategy_expect(struct dt_strategy *strategy, int n_steps)
{
    strategy->n_expected = n_steps;
}

enum dt_status dt_strategy_traffic(const struct dt_strategy *strategy, uint64_t n_steps,
                                   struct dt_step_traffic *out)
{
    struct dt_strategy_facts facts;
    dt_strategy_facts(strategy, &facts);
    return dt_traffic_measure(strategy->spec.comm, facts.counted ? &facts.sent : NULL, n_steps,
                              out);
}

struct dt_update dt_strategy_next(struct dt_strategy *strategy, double lr, size_t n_global,
                                  size_t n_local)
{
    const size_t n = strategy->spec.dist.average ? n_global : n_local;
    const struct dt_update update =
        dt_optimizer_next(&strategy->optimizer, lr, n == 0 ? 0.0 : 1.0 / (double)n);
    strategy->grad_scale = update.grad_scale;
    return update;
}

struct dt_strategy_step dt_strategy_begin(struct dt_strategy *strategy,
                                          const struct dt_update *update)
{
    struct dt_strategy_step step = {.strategy = strategy, .update = *update};
    if (strategy->ops->begin != NULL) {
        strategy->ops->begin(&step);
    }
    return step;
}

/* Between parameters there are zeros, whatever a codec makes of these: nobody else writes there, so
 * it would come back at the next step.
 */
static enum dt_status clear_gaps(const struct dt_strategy *strategy, float *memory, size_t begin,
                                 size_t end)
{
    static const float zeros[DT_PARAM_ALIGN];
    const struct dt_model *model = strategy->spec.model;
    struct dt_backend *backend = strategy->spec.backend;
    for (int i = 0;
         i < model->n_params && strategy->spec.dist.compression.type != DT_COMPRESSION_NONE; i++) {
        const size_t gap = model->params[i].offset + model->params[i].n_elems,
                     n = dt_round_up(gap, DT_PARAM_ALIGN) - gap;
        if (n > 0 && gap >= begin && gap < end) {
            DT_TRY(backend->ops->copy_in(backend, memory + gap, zeros, n * sizeof *zeros));
        }
    }
    return DT_OK;
}

/* A dt_grad_ready_fn. */
static enum dt_status ready(void *context, size_t begin, size_t end)
{
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

/* A dt_pass.need. */
static enum dt_status need(void *context, size_t begin)
{
    struct dt_strategy_step *step = context;
    return step->strategy->need(step->strategy, begin);
}

enum dt_status dt_strategy_forward(struct dt_strategy_step *step, struct dt_network *network,
                                   struct dt_pass *pass)
{
    if (step->strategy->need == NULL) {
        return dt_network_forward(network, pass);
    }
    pass->need = need;
    pass->poll = poll;
    pass->context = step;
    const enum dt_status status = dt_network_forward(network, pass);
    pass->need = NULL;
    pass->poll = NULL;
    return status;
}

enum dt_status dt_strategy_backward(struct dt_strategy_step *step, struct dt_network *network,
                                    struct dt_pass *pass)
{
    pass->poll = step->strategy->ops->poll != NULL ? poll : NULL;
    pass->context = step;
    const enum dt_status status = dt_network_backward(network, pass, ready, step);
    pass->poll = NULL;
    return status;
}

bool dt_strategy_splits(const struct dt_strategy *strategy)
{
    return strategy->ops->passes != NULL;
}

enum dt_status dt_strategy_passes(struct dt_strategy_step *step, struct dt_network *network,
                                  struct dt_bound_samples *samples, const struct dt_pass *pass)
{
    return step->strategy->ops->passes(step, network, samples, pass);
}

enum dt_status dt_strategy_wait(struct dt_strategy_step *step)
{
    const struct dt_span span = {.kind = DT_SPAN_WAIT};
    DT_TRY(dt_span_begin(step->strategy->trace, &span));
    DT_TRY(step->strategy->ops->wait(step));
    return dt_span_end(step->strategy->trace, &span);
}

enum dt_status dt_strategy_step_range(struct dt_strategy_step *step, size_t begin, size_t end,
                                      const float *grads)
{
    struct dt_strategy *strategy = step->strategy;
    const double start_s = dt_clock_s();
    const enum dt_status s = dt_optimizer_apply_range(&strategy->optimizer, &step->update, begin,
                                                      end, strategy->memory.params, grads);
    strategy->update_s += dt_clock_s() - start_s;
    return s == DT_OK ? clear_gaps(strategy, strategy->memory.params, begin, end) : s;
}
