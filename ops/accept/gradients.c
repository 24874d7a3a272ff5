/* Compares the backward pass of a small network, on the training's device, with finite differences
 * of its loss. Each rank does it alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/network.h"
#include "ops/accept/rows.h"

#define BATCH 3
#define N_CLASSES 4
#define STEP 5e-3f /* of a weight: far above the rounding of float activations */
#define MOST_PROBES 24

/* tanh has no kinks within a step */
static const struct dt_model_spec model = {
    .input = {2, 9, 8},
    .n_layers = 5,
    .layers = {{.type = DT_LAYER_CONV2D,
                .size = 8,
                .kernel = 3,
                .stride = 1,
                .padding = DT_PADDING_VALID,
                .activation = DT_ACTIVATION_TANH},
               {.type = DT_LAYER_CONV2D,
                .size = 8,
                .kernel = 3,
                .stride = 1,
                .padding = DT_PADDING_VALID,
                .activation = DT_ACTIVATION_TANH},
               {.type = DT_LAYER_AVG_POOL2D, .size = 2, .stride = 2},
               {.type = DT_LAYER_FLATTEN},
               {.type = DT_LAYER_DENSE, .size = N_CLASSES}},
    .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY};
#define N_VALUES (BATCH * 2 * 9 * 8)

struct probe {
    struct dt_backend *backend;
    struct dt_model model;
    struct dt_network *network;
    struct dt_bound_samples *bound;
    float *params, *grads; /* the host's copies */
    int n_probed, n_wrong;
    const char *worst; /* a tensor */
};

static enum dt_status loss_of(struct probe *p, bool backward, double *loss)
{
    static const uint32_t rows[BATCH] = {0, 1, 2};
    static const struct dt_batch batch = {.n = BATCH, .rows = rows, .ids = rows};
    static const struct dt_pass pass = {.batch = &batch, .training = true};
    const struct dt_backend_ops *ops = p->backend->ops;
    const size_t n_bytes = p->model.arena_elems * sizeof(float);
    struct dt_metrics metrics;
    DT_TRY(ops->copy_in(p->backend, p->network->params, p->params, n_bytes));
    DT_TRY(dt_network_gather(p->network, p->bound, &batch));
    DT_TRY(dt_network_forward(p->network, &pass));
    DT_TRY(dt_network_loss(p->network, p->bound, &pass));
    DT_TRY(ops->metrics_take(p->backend, &metrics));
    *loss = metrics.loss_sum;
    if (backward) {
        DT_TRY(dt_network_backward(p->network, &pass, NULL, NULL));
        DT_TRY(ops->copy_out(p->backend, p->grads, p->network->grads, n_bytes));
    }
    return DT_OK;
}

/* The central difference of the loss along parameter i. */
static enum dt_status slope_of(struct probe *p, size_t i, double *slope)
{
    double above, below;
    const float kept = p->params[i];
    p->params[i] = kept + STEP;
    DT_TRY(loss_of(p, false, &above));
    p->params[i] = kept - STEP;
    DT_TRY(loss_of(p, false, &below));
    p->params[i] = kept;
    *slope = (above - below) / (2 * (double)STEP);
    return DT_OK;
}

static enum dt_status probe_tensor(struct probe *p, const struct dt_param *param)
{
    const size_t n_probes = param->n_elems < MOST_PROBES ? param->n_elems : MOST_PROBES;
    for (size_t k = 0; k < n_probes; k++) {
        const size_t i = param->offset + k * param->n_elems / n_probes;
        double expected;
        DT_TRY(slope_of(p, i, &expected));
        p->n_probed++;
        if (!(fabs((double)p->grads[i] - expected) <= 4e-3 + 2e-2 * fabs(expected))) {
            p->n_wrong++;
            p->worst = param->name;
        }
    }
    return DT_OK;
}

static enum dt_status probe_all(struct probe *p)
{
    double loss;
    dt_model_init(&p->model, 3, p->params);
    DT_TRY(loss_of(p, true, &loss));
    for (int i = 0; i < p->model.n_params; i++) {
        DT_TRY(probe_tensor(p, &p->model.params[i]));
    }
    return DT_OK;
}

static enum dt_status open_probe(const struct dt_acceptance *a, const struct dt_samples *samples,
                                 struct probe *p)
{
    const struct dt_backend_options options = {.n_threads = 1, .local_rank = a->world->local_rank};
    DT_TRY(dt_model_lower(&model, &p->model));
    p->params = calloc(p->model.arena_elems, sizeof *p->params);
    p->grads = calloc(p->model.arena_elems, sizeof *p->grads);
    if (p->params == NULL || p->grads == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for a small network");
    }
    DT_TRY(a->device.backend->open(&options, &p->backend));
    DT_TRY(dt_network_open(&p->model, p->backend, BATCH, NULL, &p->network));
    return p->backend->ops->samples_open(p->backend, samples, &p->bound);
}

static void close_probe(struct probe *p)
{
    if (p->bound != NULL) {
        p->backend->ops->samples_close(p->backend, p->bound);
    }
    dt_network_close(p->network);
    if (p->backend != NULL) {
        p->backend->ops->close(p->backend);
    }
    free(p->params);
    free(p->grads);
}

static enum dt_status probe_rank(const struct dt_acceptance *a, struct probe *p)
{
    static const uint16_t labels[BATCH] = {0, 3, 1};
    float values[N_VALUES];
    for (uint32_t i = 0; i < N_VALUES; i++) {
        values[i] = 2 * dt_rng_uniform(dt_rng_words(11, DT_RNG_SYNTHETIC, 1, 0, 0, i).v[0]) - 1;
    }
    const struct dt_samples samples = {.n = BATCH,
                                       .shape = model.input,
                                       .values = values,
                                       .scale = 1,
                                       .labels = labels,
                                       .n_classes = N_CLASSES,
                                       .n_total = BATCH,
                                       .id_stride = 1};
    enum dt_status s = open_probe(a, &samples, p);
    s = s == DT_OK ? probe_all(p) : s;
    close_probe(p);
    return s;
}

/* A rank's result, sent to the others. */
struct result {
    int n_probed, n_wrong;
    char tensor[32];
};

static void judge(struct dt_acceptance *a, const struct result *results, struct dt_accept_row *row)
{
    row->verdict = DT_ACCEPT_PASS;
    snprintf(row->text, sizeof row->text, "%d derivatives on each rank (%s)", results[0].n_probed,
             a->device.backend->name);
    for (int r = a->world->size - 1; r >= 0; r--) {
        a->cells[r].failed = results[r].n_wrong > 0;
        if (results[r].n_wrong > 0) {
            row->verdict = DT_ACCEPT_FAIL;
            snprintf(row->text, sizeof row->text,
                     "rank %d (%s): %d of %d derivatives differ from finite differences of the "
                     "loss, the last of %s",
                     r, a->hosts[r], results[r].n_wrong, results[r].n_probed, results[r].tensor);
        }
    }
}

enum dt_status dt_accept_gradients(struct dt_acceptance *a, struct dt_accept_row *row)
{
    struct probe probe = {.worst = ""};
    struct result *results, mine;
    DT_TRY(dt_world_agree(a->world, probe_rank(a, &probe)));
    memset(&mine, 0, sizeof mine);
    mine.n_probed = probe.n_probed;
    mine.n_wrong = probe.n_wrong;
    snprintf(mine.tensor, sizeof mine.tensor, "%s", probe.worst);
    DT_TRY(dt_world_alloc(a->world, (size_t)a->world->size, sizeof *results, "what ranks found",
                          (void **)&results));
    const enum dt_status s = dt_comm_allgather(a->world->comm, &mine, results, sizeof mine,
                                               "exchange of derivatives found");
    if (s == DT_OK) {
        judge(a, results, row);
    }
    free(results);
    return s;
}
