#include "lab/network.h"

#include <stdlib.h>
#include <string.h>

enum dt_status dt_lab_need_ranks(const struct dt_world *world, const char *lesson, int n)
{
    if (world->size == n) {
        return DT_OK;
    }
    return dt_error_agreed(
        dt_error(DT_CONFIG, "lab %s: it takes %d ranks, not %d (mpirun -np %d dtrain lab %s)",
                 lesson, n, world->size, n, lesson));
}

static enum dt_status open_parts(const struct dt_lab_network_spec *spec, struct dt_lab_network *out)
{
    struct dt_strategy_spec strategy = {.dist = {.average = spec->average,
                                                 .broadcast = true,
                                                 .overlap = true,
                                                 .bucket_bytes = 1 << 20},
                                        .optimizer = spec->optimizer,
                                        .model = &out->model,
                                        .comm = spec->comm};
    strategy.dist = spec->dist != NULL ? *spec->dist : strategy.dist;
    strategy.dist.rows = &dt_all_rows;
    DT_TRY(dt_model_lower(spec->model, &out->model));
    DT_TRY(dt_cpu_backend.open(&(struct dt_backend_options){.n_threads = 1}, &out->backend));
    strategy.backend = out->backend;
    DT_TRY(dt_strategy_open(&strategy, &out->strategy));
    if (out->strategy == NULL) {
        return DT_OK;
    }
    DT_TRY(dt_network_open(&out->model, out->backend, spec->capacity, &out->strategy->memory,
                           &out->network));
    return out->backend->ops->samples_open(out->backend, spec->samples, &out->bound);
}

enum dt_status dt_lab_network_open(const struct dt_lab_network_spec *spec,
                                   struct dt_lab_network *out)
{
    *out = (struct dt_lab_network){.backend = NULL};
    const enum dt_status s = open_parts(spec, out);
    if (s != DT_OK) {
        dt_lab_network_close(out);
    }
    return s;
}

void dt_lab_network_close(struct dt_lab_network *n)
{
    if (n->backend == NULL) {
        return;
    }
    if (n->bound != NULL) {
        n->backend->ops->samples_close(n->backend, n->bound);
    }
    dt_network_close(n->network);
    dt_strategy_close(n->strategy);
    n->backend->ops->close(n->backend);
    *n = (struct dt_lab_network){.backend = NULL};
}

static size_t offset_of(const struct dt_lab_network *n, const char *name)
{
    int i = 0;
    while (strcmp(n->model.params[i].name, name) != 0) {
        i++;
    }
    return n->model.params[i].offset;
}

float *dt_lab_param(struct dt_lab_network *n, const char *name)
{
    return n->network->params + offset_of(n, name);
}

const float *dt_lab_grad(const struct dt_lab_network *n, const char *name)
{
    const struct dt_allreduce *allreduce = n->strategy->allreduce;
    return (allreduce != NULL ? allreduce->total : n->network->grads) + offset_of(n, name);
}

enum dt_status dt_lab_pass(struct dt_lab_network *n, const struct dt_batch *batch, bool accumulate,
                           struct dt_strategy_step *step)
{
    struct dt_pass pass = {.batch = batch, .training = true, .accumulate = accumulate, .seed = 1};
    DT_TRY(dt_network_gather(n->network, n->bound, batch));
    DT_TRY(dt_network_forward(n->network, &pass));
    DT_TRY(dt_network_loss(n->network, n->bound, &pass));
    return step != NULL ? dt_strategy_backward(step, n->network, &pass)
                        : dt_network_backward(n->network, &pass, NULL, NULL);
}

static enum dt_status evaluate(struct dt_lab_network *n, struct dt_bound_samples *bound,
                               uint32_t n_samples, uint32_t *rows)
{
    for (uint32_t begin = 0; begin < n_samples; begin += (uint32_t)n->network->capacity) {
        struct dt_batch batch = {.n = 0, .rows = rows, .ids = rows};
        while (batch.n < n->network->capacity && begin + (uint32_t)batch.n < n_samples) {
            rows[batch.n] = begin + (uint32_t)batch.n;
            batch.n++;
        }
        const struct dt_pass pass = {.batch = &batch};
        DT_TRY(dt_network_gather(n->network, bound, &batch));
        DT_TRY(dt_network_forward(n->network, &pass));
        DT_TRY(dt_network_loss(n->network, bound, &pass));
    }
    return DT_OK;
}

enum dt_status dt_lab_evaluate(struct dt_lab_network *n, const struct dt_samples *samples,
                               struct dt_metrics *out)
{
    const struct dt_backend_ops *ops = n->backend->ops;
    struct dt_bound_samples *bound = NULL;
    uint32_t *rows = calloc((size_t)n->network->capacity, sizeof *rows);
    if (rows == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for a batch");
    }
    enum dt_status s;
    DT_TRY_GOTO(s, ops->metrics_take(n->backend, out), done);
    DT_TRY_GOTO(s, ops->samples_open(n->backend, samples, &bound), done);
    s = evaluate(n, bound, (uint32_t)samples->n, rows);
    ops->samples_close(n->backend, bound);
    DT_TRY_GOTO(s, s, done);
    s = ops->metrics_take(n->backend, out);
done:
    free(rows);
    return s;
}
