/* Each rank trains for itself: no message, and replicas that drift apart. What averaging is for
 * shows without it. */
#include <stdlib.h>

#include "dist/strategy/strategy.h"
#include "model/own_memory.h"

static enum dt_status alone_finish(struct dt_strategy_step *step)
{
    const struct dt_strategy *strategy = step->strategy;
    return dt_strategy_step_range(step, 0, strategy->optimizer.n_elems, strategy->memory.grads);
}

static void alone_close(struct dt_strategy *strategy)
{
    dt_optimizer_close(&strategy->optimizer);
    dt_network_memory_close(strategy->spec.backend, &strategy->memory);
    free(strategy);
}

static const struct dt_strategy_ops alone_ops = {.finish = alone_finish, .close = alone_close};

static enum dt_status open_parts(struct dt_strategy *strategy, const struct dt_strategy_spec *spec)
{
    DT_TRY(dt_network_memory_open(spec->backend, spec->model, &strategy->memory));
    return dt_optimizer_open(&spec->optimizer, spec->backend, spec->model->arena_elems, NULL,
                             &strategy->optimizer);
}

static enum dt_status alone_open(const struct dt_strategy_spec *spec, struct dt_strategy **out)
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

static bool serves(const struct dt_dist_spec *dist)
{
    return !dist->average;
}

const struct dt_strategy_entry dt_alone_strategy = {.serves = serves, .open = alone_open};
