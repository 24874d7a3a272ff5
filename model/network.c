#include "model/network_parts.h"

#include <stdio.h>
#include <stdlib.h>

enum dt_status dt_floats_alloc(struct dt_backend *backend, const char *what, const char *of,
                               size_t n_elems, float **out)
{
    void *memory = NULL;
    const enum dt_status s = backend->ops->alloc(backend, n_elems * sizeof(float), &memory);
    if (s != DT_OK) {
        char before[64];
        snprintf(before, sizeof before, "%s%s: ", what, of);
        return dt_error_around(s, before, "");
    }
    *out = memory;
    return DT_OK;
}

void dt_floats_free(struct dt_backend *backend, float *floats)
{
    backend->ops->free(backend, floats);
}

enum dt_status dt_network_memory_open(struct dt_backend *backend, const struct dt_model *model,
                                      struct dt_network_memory *out)
{
    *out = (struct dt_network_memory){0};
    DT_TRY(dt_floats_alloc(backend, "the weights", "", model->arena_elems, &out->params));
    return dt_floats_alloc(backend, "their gradients", "", model->arena_elems, &out->grads);
}

void dt_network_memory_close(struct dt_backend *backend, struct dt_network_memory *memory)
{
    dt_floats_free(backend, memory->params);
    dt_floats_free(backend, memory->grads);
    *memory = (struct dt_network_memory){0};
}

/* Allocates on this network's device. */
static enum dt_status alloc_floats(struct dt_network *net, const char *what, const char *of,
                                   size_t n_elems, float **out)
{
    return dt_floats_alloc(net->backend, what, of, n_elems, out);
}

/* Floats per sample in activations[index]. */
size_t dt_network_sample_elems(const struct dt_model *model, int index)
{
    return dt_shape_elems(index == 0 ? model->spec.input : model->blocks[index - 1].out);
}

/* True if block b's output is used chunk by chunk only. */
static bool within_chunk(const struct dt_model *model, int block)
{
    return block < model->n_spatial - 1;
}

/* True if the gradient of block b's output overwrites the output itself. */
static bool delta_over_output(const struct dt_model *model, const struct dt_network_plan *plan,
                              int block)
{
    return !within_chunk(model, block) && block + 1 < model->n_blocks && plan->dx_over_x[block + 1];
}

/* Floats per sample in deltas[i], or in chunk_deltas[i]. */
size_t dt_network_delta_elems(const struct dt_model *model, const struct dt_network_plan *plan,
                              bool of_chunk, int i)
{
    size_t largest = 0;
    for (int b = i; b < model->n_blocks; b += 2) {
        const size_t n = dt_shape_elems(model->blocks[b].out);
        const bool here = within_chunk(model, b) == of_chunk && !delta_over_output(model, plan, b);
        largest = here && n > largest ? n : largest;
    }
    return largest;
}

static enum dt_status open_memory(struct dt_network *net, const struct dt_network_memory *memory)
{
    if (memory == NULL) {
        DT_TRY(dt_network_memory_open(net->backend, net->model, &net->own));
        memory = &net->own;
    }
    net->params = memory->params;
    net->grads = memory->grads;
    return DT_OK;
}

static enum dt_status open_parts(struct dt_network *net, const struct dt_network_memory *memory)
{
    const struct dt_model *model = net->model;
    const struct dt_network_plan *plan = &net->plan;
    const size_t n = (size_t)net->capacity;
    DT_TRY(open_memory(net, memory));
    DT_TRY(alloc_floats(net, "the input", "", n * dt_network_sample_elems(model, 0),
                        &net->activations[0]));
    for (int b = 0; b < model->n_blocks; b++) {
        const size_t n_kept = b < plan->n_recomputed ? (size_t)plan->chunk : n;
        DT_TRY(alloc_floats(net, "the output of ", model->blocks[b].name,
                            n_kept * dt_network_sample_elems(model, b + 1),
                            &net->activations[b + 1]));
        DT_TRY(
            net->backend->ops->block_open(net->backend, model, b, net->capacity, &net->states[b]));
    }
    for (int i = 0; i < 2; i++) {
        const size_t n_chunk = (size_t)plan->chunk * dt_network_delta_elems(model, plan, true, i);
        DT_TRY(alloc_floats(net, "gradients of outputs", "",
                            n * dt_network_delta_elems(model, plan, false, i), &net->deltas[i]));
        DT_TRY(alloc_floats(net, "gradients of outputs", "", n_chunk, &net->chunk_deltas[i]));
    }
    return DT_OK;
}

enum dt_status dt_network_open_planned(const struct dt_model *model, struct dt_backend *backend,
                                       int capacity, const struct dt_network_memory *memory,
                                       const struct dt_network_plan *plan, struct dt_network **out)
{
    *out = NULL;
    struct dt_network *net = calloc(1, sizeof *net);
    if (net == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening the network");
    }
    net->model = model;
    net->backend = backend;
    net->capacity = capacity;
    net->plan = *plan;
    const enum dt_status s = open_parts(net, memory);
    if (s != DT_OK) {
        dt_network_close(net);
        return s;
    }
    *out = net;
    return DT_OK;
}

enum dt_status dt_network_open(const struct dt_model *model, struct dt_backend *backend,
                               int capacity, const struct dt_network_memory *memory,
                               struct dt_network **out)
{
    const struct dt_network_plan plan = backend->ops->plan(backend, model, capacity);
    return dt_network_open_planned(model, backend, capacity, memory, &plan, out);
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
    for (int i = 0; i < 2; i++) {
        ops->free(net->backend, net->deltas[i]);
        ops->free(net->backend, net->chunk_deltas[i]);
    }
    dt_network_memory_close(net->backend, &net->own);
    free(net);
}

enum dt_status dt_network_gather(struct dt_network *net, struct dt_bound_samples *samples,
                                 const struct dt_batch *batch)
{
    return net->backend->ops->gather(net->backend, samples, batch, net->activations[0]);
}

/* The input of block `index`, from sample `first` on. */
float *dt_network_activation_at(struct dt_network *net, int index, int first)
{
    if (index >= 1 && index <= net->plan.n_recomputed) {
        return net->activations[index];
    }
    return net->activations[index] + (size_t)first * dt_network_sample_elems(net->model, index);
}

/* The gradient of block b's output, from sample `first` on. */
float *dt_network_delta_at(struct dt_network *net, int block, int first)
{
    if (within_chunk(net->model, block)) {
        return net->chunk_deltas[block % 2];
    }
    if (delta_over_output(net->model, &net->plan, block)) {
        return dt_network_activation_at(net, block + 1, first);
    }
    return net->deltas[block % 2] + (size_t)first * dt_network_sample_elems(net->model, block + 1);
}

/* The chunk of the batch that begins at sample `first`. */
static struct dt_batch chunk_at(const struct dt_network *net, const struct dt_batch *batch,
                                int first)
{
    const int left = batch->n - first;
    return (struct dt_batch){.n = left < net->plan.chunk ? left : net->plan.chunk,
                             .rows = batch->rows + first,
                             .ids = batch->ids + first,
                             .epoch = batch->epoch};
}

static enum dt_status forward_block(struct dt_network *net, int b, enum dt_span_kind kind,
                                    const struct dt_pass *pass)
{
    const struct dt_span span = {.kind = kind, .block = b, .n_samples = pass->batch->n};
    DT_TRY(dt_span_begin(pass->trace, &span));
    DT_TRY(net->backend->ops->block_forward(
        net->states[b], net->params, dt_network_activation_at(net, b, pass->first),
        dt_network_activation_at(net, b + 1, pass->first), pass));
    return dt_span_end(pass->trace, &span);
}

/* Blocks [begin, end) over the pass's samples. */
enum dt_status dt_network_forward_blocks(struct dt_network *net, int begin, int end,
                                         enum dt_span_kind kind, const struct dt_pass *pass)
{
    for (int b = begin; b < end; b++) {
        DT_TRY(forward_block(net, b, kind, pass));
    }
    return DT_OK;
}

enum dt_status dt_network_forward(struct dt_network *net, const struct dt_pass *pass)
{
    const int n = pass->batch->n, n_spatial = net->model->n_spatial;
    for (int first = 0; first == 0 || first < n;
         first += net->plan.chunk) { /* an empty batch is one empty chunk */
        const struct dt_batch chunk = chunk_at(net, pass->batch, first);
        struct dt_pass part = *pass;
        part.batch = &chunk;
        part.first = first;
        DT_TRY(dt_network_forward_blocks(net, 0, n_spatial, DT_SPAN_FORWARD, &part));
    }
    return dt_network_forward_blocks(net, n_spatial, net->model->n_blocks, DT_SPAN_FORWARD, pass);
}

enum dt_status dt_network_loss(struct dt_network *net, struct dt_bound_samples *samples,
                               const struct dt_pass *pass)
{
    const int n_blocks = net->model->n_blocks;
    float *dlogits = pass->training ? dt_network_delta_at(net, n_blocks - 1, pass->first) : NULL;
    const struct dt_span span = {.kind = DT_SPAN_LOSS, .n_samples = pass->batch->n};
    DT_TRY(dt_span_begin(pass->trace, &span));
    DT_TRY(net->backend->ops->loss(net->backend, net->model->spec.loss, samples, pass->batch,
                                   net->model->n_outputs,
                                   dt_network_activation_at(net, n_blocks, pass->first), dlogits));
    return dt_span_end(pass->trace, &span);
}

enum dt_status dt_network_backward_block(struct dt_network *net, int b, float *dy, float *dx,
                                         const struct dt_pass *pass)
{
    const float *x = dt_network_activation_at(net, b, pass->first),
                *y = dt_network_activation_at(net, b + 1, pass->first);
    const struct dt_span span = {
        .kind = DT_SPAN_BACKWARD, .block = b, .n_samples = pass->batch->n, .y = y, .dy = dy};
    DT_TRY(dt_span_begin(pass->trace, &span));
    DT_TRY(net->backend->ops->block_backward(net->states[b], net->params, net->grads, x, y, dy, dx,
                                             pass));
    return dt_span_end(pass->trace, &span);
}

/* Blocks [begin, end), last first, over the pass's samples. */
static enum dt_status backward_blocks(struct dt_network *net, int begin, int end,
                                      const struct dt_pass *pass, dt_grad_ready_fn on_grad_ready,
                                      void *context)
{
    const int trained = dt_model_first_trained(net->model);
    for (int b = end - 1; b >= begin && b >= trained; b--) {
        const struct dt_block *block = &net->model->blocks[b];
        float *dx = b > trained ? dt_network_delta_at(net, b - 1, pass->first) : NULL;
        DT_TRY(
            dt_network_backward_block(net, b, dt_network_delta_at(net, b, pass->first), dx, pass));
        if (on_grad_ready != NULL && block->grad_end > block->grad_begin) {
            DT_TRY(on_grad_ready(context, block->grad_begin, block->grad_end));
        }
    }
    return DT_OK;
}

enum dt_status dt_network_backward(struct dt_network *net, const struct dt_pass *pass,
                                   dt_grad_ready_fn on_grad_ready, void *context)
{
    const int n = pass->batch->n, n_spatial = net->model->n_spatial;
    DT_TRY(backward_blocks(net, n_spatial, net->model->n_blocks, pass, on_grad_ready, context));
    for (int first = 0; first == 0 || first < n; first += net->plan.chunk) {
        const struct dt_batch chunk = chunk_at(net, pass->batch, first);
        const bool last = first + chunk.n == n; /* the gradients are final */
        struct dt_pass part = *pass;
        part.batch = &chunk;
        part.first = first;
        part.accumulate = pass->accumulate || first > 0;
        part.more = !last;
        DT_TRY(dt_network_forward_blocks(net, 0, net->plan.n_recomputed, DT_SPAN_RECOMPUTE, &part));
        DT_TRY(backward_blocks(net, 0, n_spatial, &part, last ? on_grad_ready : NULL, context));
    }
    return DT_OK;
}
