#include "model/network.h"

#include <stdlib.h>

static enum dt_status alloc_floats(struct dt_network *net, size_t n_elems, float **out)
{
    void *memory = NULL;
    DT_TRY(net->backend->ops->alloc(net->backend, n_elems * sizeof(float), &memory));
    *out = memory;
    return DT_OK;
}

static size_t largest_activation(const struct dt_model *model)
{
    size_t largest = dt_shape_elems(model->spec.input);
    for (int b = 0; b < model->n_blocks; b++) {
        const size_t n = dt_shape_elems(model->blocks[b].out);
        largest = n > largest ? n : largest;
    }
    return largest;
}

static enum dt_status open_parts(struct dt_network *net)
{
    const struct dt_model *model = net->model;
    const size_t n = (size_t)net->capacity;
    DT_TRY(alloc_floats(net, model->arena_elems, &net->params));
    DT_TRY(alloc_floats(net, model->arena_elems, &net->grads));
    DT_TRY(alloc_floats(net, n * dt_shape_elems(model->spec.input), &net->activations[0]));
    for (int i = 0; i < 2; i++) {
        DT_TRY(alloc_floats(net, n * largest_activation(model), &net->deltas[i]));
    }
    for (int b = 0; b < model->n_blocks; b++) {
        DT_TRY(alloc_floats(net, n * dt_shape_elems(model->blocks[b].out), &net->activations[b + 1]));
        DT_TRY(net->backend->ops->block_open(net->backend, model, b, net->capacity, &net->states[b]));
    }
    return DT_OK;
}

enum dt_status dt_network_open(const struct dt_model *model, struct dt_backend *backend, int capacity, struct dt_network **out)
{
    *out = NULL;
    struct dt_network *net = calloc(1, sizeof *net);
    if (net == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening the network");
    }
    net->model = model;
    net->backend = backend;
    net->capacity = capacity;
    const enum dt_status s = open_parts(net);
    if (s != DT_OK) {
        dt_network_close(net);
        return s;
    }
    *out = net;
    return DT_OK;
}

void dt_network_close(struct dt_network *net)
{
    if (net == NULL) {
        return;
    }
    const struct dt_backend_ops *ops = net->backend->ops;
    for (int b = 0; b < net->model->n_blocks; b++) {
        if (net->states[b] != NULL) {
            ops->block_close(net->states[b]);
        }
        ops->free(net->backend, net->activations[b + 1]);
    }
    ops->free(net->backend, net->activations[0]);
    ops->free(net->backend, net->deltas[0]);
    ops->free(net->backend, net->deltas[1]);
    ops->free(net->backend, net->params);
    ops->free(net->backend, net->grads);
    free(net);
}

enum dt_status dt_network_gather(struct dt_network *net, struct dt_bound_samples *samples, const struct dt_batch *batch)
{
    return net->backend->ops->gather(net->backend, samples, batch, net->activations[0]);
}

enum dt_status dt_network_forward(struct dt_network *net, const struct dt_pass *pass)
{
    const struct dt_backend_ops *ops = net->backend->ops;
    for (int b = 0; b < net->model->n_blocks; b++) {
        DT_TRY(ops->block_forward(net->states[b], net->params, net->activations[b], net->activations[b + 1], pass));
    }
    return DT_OK;
}

/* The gradient of block b's output lies in deltas[b % 2]. */
static float *delta_of(struct dt_network *net, int block)
{
    return net->deltas[block % 2];
}

enum dt_status dt_network_loss(struct dt_network *net, struct dt_bound_samples *samples, const struct dt_pass *pass)
{
    float *dlogits = pass->training ? dt_network_dlogits(net) : NULL;
    return net->backend->ops->loss(net->backend, net->model->spec.loss, samples, pass->batch, net->model->n_outputs,
                                   dt_network_logits(net), dlogits);
}

enum dt_status dt_network_backward(struct dt_network *net, const struct dt_pass *pass, dt_grad_ready_fn on_grad_ready,
                                   void *context)
{
    const struct dt_backend_ops *ops = net->backend->ops;
    for (int b = net->model->n_blocks - 1; b >= 0; b--) {
        const struct dt_block *block = &net->model->blocks[b];
        float *dx = b > 0 ? delta_of(net, b - 1) : NULL; /* nobody asks for the gradient of the images */
        DT_TRY(ops->block_backward(net->states[b], net->params, net->grads, net->activations[b], net->activations[b + 1],
                                   delta_of(net, b), dx, pass));
        if (on_grad_ready != NULL && block->grad_end > block->grad_begin) {
            DT_TRY(on_grad_ready(context, block->grad_begin, block->grad_end));
        }
    }
    return DT_OK;
}

float *dt_network_logits(struct dt_network *net)
{
    return net->activations[net->model->n_blocks];
}

float *dt_network_dlogits(struct dt_network *net)
{
    return delta_of(net, net->model->n_blocks - 1);
}

size_t dt_model_n_bytes(const struct dt_model *model, int capacity, int n_optimizer_states)
{
    size_t activations = dt_shape_elems(model->spec.input) + 2 * largest_activation(model);
    for (int b = 0; b < model->n_blocks; b++) {
        activations += dt_shape_elems(model->blocks[b].out);
    }
    return sizeof(float) * (model->arena_elems * (size_t)(2 + n_optimizer_states) + activations * (size_t)capacity);
}
