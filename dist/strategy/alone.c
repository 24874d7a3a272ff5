/* Each rank trains for itself: no message, and replicas that drift apart. What averaging is for shows without it. */
#include <stdlib.h>

#include "dist/strategy/strategies.h"

static void alone_begin(struct dt_strategy_step *step)
{
    (void)step;
}

static enum dt_status alone_ready(struct dt_strategy_step *step, size_t begin, size_t end)
{
    (void)step, (void)begin, (void)end;
    return DT_OK;
}

static void alone_poll(struct dt_strategy_step *step)
{
    (void)step;
}

static enum dt_status alone_wait(struct dt_strategy_step *step)
{
    const struct dt_strategy *strategy = step->strategy;
    return dt_strategy_step_range(step, 0, strategy->optimizer.n_elems, strategy->memory.grads);
}

static void alone_expect(struct dt_strategy *strategy, int n_steps)
{
    (void)strategy, (void)n_steps; /* each is agreed on */
}

static void alone_staleness(const struct dt_strategy *strategy, struct dt_staleness *out)
{
    (void)strategy, (void)out; /* there is none */
}

/* Every rank has all weights, and rank 0 the state, after each step. */
static enum dt_status alone_has_all(struct dt_strategy *strategy)
{
    (void)strategy;
    return DT_OK;
}

static void alone_describe(const struct dt_strategy *strategy, struct dt_averaging *out)
{
    (void)strategy, (void)out;
}

static bool alone_sent(const struct dt_strategy *strategy, struct dt_wire_sent *out)
{
    (void)strategy, (void)out;
    return false;
}

static void alone_close(struct dt_strategy *strategy)
{
    dt_optimizer_close(&strategy->optimizer);
    dt_network_memory_close(strategy->spec.backend, &strategy->memory);
    free(strategy);
}

static const struct dt_strategy_ops alone_ops = {.own_mean = true,
                                                 .expect = alone_expect,
                                                 .begin = alone_begin,
                                                 .staleness = alone_staleness,
                                                 .ready = alone_ready,
                                                 .poll = alone_poll,
                                                 .wait = alone_wait,
                                                 .share_weights = alone_has_all,
                                                 .collect_state = alone_has_all,
                                                 .describe = alone_describe,
                                                 .sent = alone_sent,
                                                 .close = alone_close};

static enum dt_status open_parts(struct dt_strategy *strategy, const struct dt_strategy_spec *spec)
{
    DT_TRY(dt_network_memory_open(spec->backend, spec->model, &strategy->memory));
    return dt_optimizer_open(&spec->optimizer, spec->backend, spec->model->arena_elems, NULL, &strategy->optimizer);
}

enum dt_status dt_alone_open(const struct dt_strategy_spec *spec, struct dt_strategy **out)
{
    struct dt_strategy *strategy = calloc(1, sizeof *strategy);
    if (strategy == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for a rank's own steps");
    }
    strategy->ops = &alone_ops;
    strategy->spec = *spec;
    const enum dt_status s = open_parts(strategy, spec);
    if (s != DT_OK) {
        alone_close(strategy);
        return s;
    }
    *out = strategy;
    return DT_OK;
}
