/* Compares the backward pass of a small network, on the training's device, with finite differences
 * of its loss. Each rank does it alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/own_memory.h"
#include "ops/accept/accept.h"

/* ---- a small network */

/* The weights, and behind them samples, their order and their labels. */
static enum dt_status fill(struct dt_accept_network *n, const struct dt_model_spec *spec)
{
    const size_t n_rows = (size_t)n->batch.n, n_values = n_rows * dt_shape_elems(spec->input),
                 n_classes = (size_t)spec->layers[spec->n_layers - 1].size;
    n->params = calloc(n->model.arena_elems + n_values + 2 * n_rows, sizeof *n->params);
    if (n->params == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for a small network");
    }
    float *values = n->params + n->model.arena_elems;
    uint32_t *order = (uint32_t *)(void *)(values + n_values);
    uint16_t *labels = (uint16_t *)(order + n_rows);
    for (size_t i = 0; i < n_values; i++) {
        values[i] =
            2 * dt_rng_uniform(dt_rng_words(11, DT_RNG_SYNTHETIC, 1, 0, 0, (uint32_t)i).v[0]) - 1;
    }
    for (size_t i = 0; i < n_rows; i++) {
        order[i] = (uint32_t)i;
        labels[i] = (uint16_t)(i % n_classes);
    }
    n->batch.rows = n->batch.ids = order;
    n->samples = (struct dt_samples){.n = n_rows,
                                     .shape = spec->input,
                                     .values = values,
                                     .scale = 1,
                                     .labels = labels,
                                     .n_classes = (int)n_classes,
                                     .n_total = n_rows,
                                     .id_stride = 1};
    dt_model_init(&n->model, 3, n->params);
    return DT_OK;
}

enum dt_status dt_accept_network_open(const struct dt_acceptance *a,
                                      const struct dt_model_spec *spec, int n_rows,
                                      struct dt_accept_network *n)
{
    n->batch.n = n_rows;
    DT_TRY(dt_accept_backend_open(a, &n->backend));
    const struct dt_backend_ops *ops = n->backend->ops;
    DT_TRY(dt_model_lower(spec, &n->model));
    DT_TRY(fill(n, spec));
    DT_TRY(dt_network_open_alone(&n->model, n->backend, n_rows, &n->network));
    DT_TRY(ops->copy_in(n->backend, n->network->params, n->params,
                        n->model.arena_elems * sizeof(float)));
    DT_TRY(ops->samples_open(n->backend, &n->samples, &n->bound));
    return dt_network_gather(n->network, n->bound, &n->batch);
}

void dt_accept_network_close(struct dt_accept_network *n)
{
    if (n->bound != NULL) {
        n->backend->ops->samples_close(n->backend, n->bound);
    }
    dt_network_close(n->network);
    if (n->backend != NULL) {
        n->backend->ops->close(n->backend);
    }
    free(n->params);
}

/* ---- its derivatives */

#define BATCH 3
#define N_CLASSES 4
#define STEP 5e-3f /* of a weight: far above the rounding of float activations */
#define MOST_PROBES 24

#define CONV                                                                                       \
    {                                                                                              \
        .type = DT_LAYER_CONV2D, .size = 8, .kernel = 3, .stride = 1, .padding = DT_PADDING_VALID, \
        .activation = DT_ACTIVATION_TANH                                                           \
    } /* tanh has no kinks within a step */
static const struct dt_model_spec model = {
    .input = {2, 9, 8},
    .n_layers = 5,
    .layers = {CONV,
               CONV,
               {.type = DT_LAYER_AVG_POOL2D, .size = 2, .stride = 2},
               {.type = DT_LAYER_FLATTEN},
               {.type = DT_LAYER_DENSE, .size = N_CLASSES}},
    .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY};

/* A rank's result, sent to the others. */
struct result {
    int n_probed, n_wrong;
    char tensor[32]; /* the last wrong one */
};

static enum dt_status loss_of(struct dt_accept_network *n, double *loss)
{
    const struct dt_pass pass = {.batch = &n->batch, .training = true};
    const struct dt_backend_ops *ops = n->backend->ops;
    struct dt_metrics metrics;
    DT_TRY(ops->copy_in(n->backend, n->network->params, n->params,
                        n->model.arena_elems * sizeof(float)));
    DT_TRY(dt_network_gather(n->network, n->bound, &n->batch));
    DT_TRY(dt_network_forward(n->network, &pass));
    DT_TRY(dt_network_loss(n->network, n->bound, &pass));
    DT_TRY(ops->metrics_take(n->backend, &metrics));
    *loss = metrics.loss_sum;
    return DT_OK;
}

/* The central difference of the loss along parameter i. */
static enum dt_status slope_of(struct dt_accept_network *n, size_t i, double *slope)
{
    double above, below;
    const float kept = n->params[i];
    n->params[i] = kept + STEP;
    DT_TRY(loss_of(n, &above));
    n->params[i] = kept - STEP;
    DT_TRY(loss_of(n, &below));
    n->params[i] = kept;
    *slope = (above - below) / (2 * (double)STEP);
    return DT_OK;
}

static enum dt_status probe_tensor(struct dt_accept_network *n, const struct dt_param *param,
                                   const float *grads, struct result *out)
{
    const size_t n_probes = param->n_elems < MOST_PROBES ? param->n_elems : MOST_PROBES;
    for (size_t k = 0; k < n_probes; k++) {
        const size_t i = param->offset + k * param->n_elems / n_probes;
        double expected;
        DT_TRY(slope_of(n, i, &expected));
        out->n_probed++;
        if (!(fabs((double)grads[i] - expected) <= 4e-3 + 2e-2 * fabs(expected))) {
            out->n_wrong++;
            snprintf(out->tensor, sizeof out->tensor, "%s", param->name);
        }
    }
    return DT_OK;
}

static enum dt_status probe(struct dt_accept_network *n, float *grads, struct result *out)
{
    double loss;
    const struct dt_pass pass = {.batch = &n->batch, .training = true};
    DT_TRY(loss_of(n, &loss));
    DT_TRY(dt_network_backward(n->network, &pass, NULL, NULL));
    DT_TRY(n->backend->ops->copy_out(n->backend, grads, n->network->grads,
                                     n->model.arena_elems * sizeof *grads));
    for (int i = 0; i < n->model.n_params; i++) {
        DT_TRY(probe_tensor(n, &n->model.params[i], grads, out));
    }
    return DT_OK;
}

enum dt_status dt_accept_gradients(struct dt_acceptance *a, struct dt_finding *row)
{
    static struct dt_model lowered;
    struct dt_accept_network network = {.backend = NULL};
    struct result *results, mine;
    float *grads;
    memset(&mine, 0, sizeof mine); /* padding too: it is sent */
    DT_TRY(dt_world_agree(a->world, dt_model_lower(&model, &lowered)));
    DT_TRY(dt_accept_alloc(a, lowered.arena_elems, sizeof *grads, "gradients", (void **)&grads));
    enum dt_status s = dt_accept_network_open(a, &model, BATCH, &network);
    s = s == DT_OK ? probe(&network, grads, &mine) : s;
    dt_accept_network_close(&network);
    DT_TRY(dt_world_agree(a->world, s));
    DT_TRY(dt_accept_gather(a, &mine, sizeof mine, "derivatives found", (void **)&results));
    *row = dt_find(DT_VERDICT_PASS, NULL, "%d derivatives on each rank (%s)", results[0].n_probed,
                   a->device.backend->name);
    for (int r = 0; r < a->world->size; r++) {
        if (results[r].n_wrong > 0) {
            dt_accept_fail(a, row, r, false,
                           "rank %d (%s): %d of %d derivatives differ from finite differences of "
                           "the loss, the last of %s",
                           r, a->ranks[r].host, results[r].n_wrong, results[r].n_probed,
                           results[r].tensor);
        }
    }
    return DT_OK;
}
