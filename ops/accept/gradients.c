/* Compares the backward pass of a small network, on the training's device, with finite differences
 * of its loss. Each rank does it alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

struct probe {
    struct dt_accept_network network;
    float *grads; /* the host's copy */
    int n_probed, n_wrong;
    const char *worst; /* a tensor */
};

static enum dt_status loss_of(struct probe *p, bool backward, double *loss)
{
    struct dt_accept_network *n = &p->network;
    const struct dt_pass pass = {.batch = &n->batch, .training = true};
    const struct dt_backend_ops *ops = n->backend->ops;
    const size_t n_bytes = n->model.arena_elems * sizeof(float);
    struct dt_metrics metrics;
    DT_TRY(ops->copy_in(n->backend, n->network->params, n->params, n_bytes));
    DT_TRY(dt_network_gather(n->network, n->bound, &n->batch));
    DT_TRY(dt_network_forward(n->network, &pass));
    DT_TRY(dt_network_loss(n->network, n->bound, &pass));
    DT_TRY(ops->metrics_take(n->backend, &metrics));
    *loss = metrics.loss_sum;
    if (backward) {
        DT_TRY(dt_network_backward(n->network, &pass, NULL, NULL));
        DT_TRY(ops->copy_out(n->backend, p->grads, n->network->grads, n_bytes));
    }
    return DT_OK;
}

/* The central difference of the loss along parameter i. */
static enum dt_status slope_of(struct probe *p, size_t i, double *slope)
{
    double above, below;
    float *param = &p->network.params[i];
    const float kept = *param;
    *param = kept + STEP;
    DT_TRY(loss_of(p, false, &above));
    *param = kept - STEP;
    DT_TRY(loss_of(p, false, &below));
    *param = kept;
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
    const struct dt_model *m = &p->network.model;
    DT_TRY(loss_of(p, true, &loss));
    for (int i = 0; i < m->n_params; i++) {
        DT_TRY(probe_tensor(p, &m->params[i]));
    }
    return DT_OK;
}

static enum dt_status probe_rank(const struct dt_acceptance *a, struct probe *p)
{
    DT_TRY(dt_accept_backend_open(a, &p->network.backend));
    DT_TRY(dt_accept_network_open(&p->network, &model, BATCH));
    p->grads = calloc(p->network.model.arena_elems, sizeof *p->grads);
    const enum dt_status s =
        p->grads != NULL ? probe_all(p) : dt_error(DT_NO_MEMORY, "no memory for a small network");
    free(p->grads);
    return s;
}

/* A rank's result, sent to the others. */
struct result {
    int n_probed, n_wrong;
    char tensor[32];
};

static void judge(struct dt_acceptance *a, const struct result *results, struct dt_accept_row *row)
{
    dt_accept_say(row, DT_ACCEPT_PASS, "%d derivatives on each rank (%s)", results[0].n_probed,
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
}

enum dt_status dt_accept_gradients(struct dt_acceptance *a, struct dt_accept_row *row)
{
    struct probe probe = {.worst = ""};
    struct result *results, mine;
    const enum dt_status s = probe_rank(a, &probe);
    dt_accept_network_close(&probe.network);
    DT_TRY(dt_world_agree(a->world, s));
    memset(&mine, 0, sizeof mine);
    mine.n_probed = probe.n_probed;
    mine.n_wrong = probe.n_wrong;
    snprintf(mine.tensor, sizeof mine.tensor, "%s", probe.worst);
    DT_TRY(dt_accept_gather(a, &mine, sizeof mine, "derivatives found", (void **)&results));
    judge(a, results, row);
    return DT_OK;
}
