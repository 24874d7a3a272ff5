#include "model/network.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/arithmetic.h"

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

/* Floats of a sample in outputs[index]. */
static size_t sample_elems(const struct dt_model *model, int index)
{
    return dt_shape_elems(index == 0 ? model->spec.input : model->blocks[index - 1].out);
}

static bool within_chunk(const struct dt_network *net, int block)
{
    return block < net->model->n_spatial - 1;
}

/* True if the gradient of block b's output overwrites the output itself. */
static bool delta_over_output(const struct dt_network *net, int block)
{
    return !within_chunk(net, block) && block + 1 < net->model->n_blocks &&
           net->plan.dx_over_x[block + 1];
}

/* A block reads the gradient of its output and writes that of its input: two arrays take turns, for
 * the whole batch and for a chunk. */
static enum dt_status open_deltas(struct dt_network *net)
{
    const size_t n_samples[] = {(size_t)net->capacity, (size_t)net->plan.chunk};
    size_t largest[2][2] = {{0}}; /* floats of a sample */
    for (int b = 0; b < net->model->n_blocks; b++) {
        size_t *most = &largest[b % 2][within_chunk(net, b)];
        const size_t n = delta_over_output(net, b) ? 0 : sample_elems(net->model, b + 1);
        *most = dt_max_size(*most, n);
    }
    for (int i = 0; i < 4; i++) {
        DT_TRY(dt_floats_alloc(net->backend, "gradients of outputs", "",
                               n_samples[i % 2] * largest[i / 2][i % 2],
                               &net->turns[i / 2][i % 2]));
    }
    for (int b = 0; b < net->model->n_blocks; b++) {
        const bool of_chunk = within_chunk(net, b);
        const struct dt_network_floats own = {net->turns[b % 2][of_chunk],
                                              of_chunk ? 0 : sample_elems(net->model, b + 1)};
        net->deltas[b] = delta_over_output(net, b) ? net->outputs[b + 1] : own;
    }
    return DT_OK;
}

static enum dt_status open_outputs(struct dt_network *net)
{
    const struct dt_model *model = net->model;
    struct dt_backend *backend = net->backend;
    for (int i = 0; i <= model->n_blocks; i++) {
        const char *name = i == 0 ? "" : model->blocks[i - 1].name;
        const bool of_chunk = i >= 1 && i <= net->plan.n_recomputed;
        const size_t n = sample_elems(model, i),
                     n_kept = (size_t)(of_chunk ? net->plan.chunk : net->capacity);
        net->outputs[i].step = of_chunk ? 0 : n;
        DT_TRY(dt_floats_alloc(backend, i == 0 ? "the input" : "the output of ", name, n_kept * n,
                               &net->outputs[i].floats));
        if (i > 0) {
            DT_TRY(backend->ops->block_open(backend, model, i - 1, net->capacity,
                                            &net->states[i - 1]));
        }
    }
    return open_deltas(net);
}

enum dt_status dt_network_open(const struct dt_model *model, struct dt_backend *backend,
                               int capacity, const struct dt_network_memory *memory, bool by_stages,
                               struct dt_network **out)
{
    *out = NULL;
    struct dt_network *net = calloc(1, sizeof *net);
    if (net == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening the network");
    }
    net->model = model;
    net->backend = backend;
    net->capacity = capacity;
    net->plan = by_stages ? (struct dt_network_plan){.chunk = capacity}
                          : backend->ops->plan(backend, model, capacity);
    net->params = memory->params;
    net->grads = memory->grads;
    const enum dt_status s = model->graph != NULL ? model->graph->open(net) : open_outputs(net);
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
    if (net->graph != NULL) {
        net->model->graph->close(net);
    }
    for (int b = 0; b < net->model->n_blocks; b++) {
        if (net->states[b] != NULL) {
            ops->block_close(net->states[b]);
        }
    }
    for (int i = 0; i <= net->model->n_blocks; i++) {
        ops->free(net->backend, net->outputs[i].floats);
    }
    for (int i = 0; i < 4; i++) {
        ops->free(net->backend, net->turns[i / 2][i % 2]);
    }
    ops->free(net->backend, net->own.params);
    ops->free(net->backend, net->own.grads);
    free(net);
}

enum dt_status dt_network_gather(struct dt_network *net, struct dt_bound_samples *samples,
                                 const struct dt_batch *batch)
{
    return net->backend->ops->gather(net->backend, samples, batch, net->outputs[0].floats);
}

float *dt_network_activation(struct dt_network *net, int block, int first)
{
    return net->outputs[block].floats + (size_t)first * net->outputs[block].step;
}

float *dt_network_delta(struct dt_network *net, int block, int first)
{
    return net->deltas[block].floats + (size_t)first * net->deltas[block].step;
}

/* The part of a pass that processes the chunk beginning at sample `first`. */
static struct dt_pass chunk_of(const struct dt_network *net, const struct dt_pass *pass, int first,
                               struct dt_batch *chunk)
{
    const struct dt_batch *batch = pass->batch;
    struct dt_pass part = *pass;
    *chunk = (struct dt_batch){.n = dt_min(batch->n - first, net->plan.chunk),
                               .rows = batch->rows + first,
                               .ids = batch->ids + first,
                               .epoch = batch->epoch};
    part.batch = chunk;
    part.first = first;
    part.accumulate = pass->accumulate || first > 0;
    part.more = first + chunk->n < batch->n;
    return part;
}

static enum dt_status forward_block(struct dt_network *net, int b, enum dt_span_kind kind,
                                    const struct dt_pass *pass)
{
    float *y = dt_network_activation(net, b + 1, pass->first);
    const struct dt_span span = {
        .kind = kind, .block = b, .first = pass->first, .n_samples = pass->batch->n, .y = y};
    DT_TRY(dt_span_begin(pass->trace, &span));
    DT_TRY(net->backend->ops->block_forward(net->states[b], net->params,
                                            dt_network_activation(net, b, pass->first), y, pass));
    return dt_span_end(pass->trace, &span);
}

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
    const int n_spatial = net->model->n_spatial;
    if (net->graph != NULL) {
        return net->model->graph->forward(net, pass);
    }
    for (int first = 0; first == 0 || first < pass->batch->n;
         first += net->plan.chunk) { /* an empty batch is one empty chunk */
        struct dt_batch chunk;
        const struct dt_pass part = chunk_of(net, pass, first, &chunk);
        DT_TRY(dt_network_forward_blocks(net, 0, n_spatial, DT_SPAN_FORWARD, &part));
    }
    return dt_network_forward_blocks(net, n_spatial, net->model->n_blocks, DT_SPAN_FORWARD, pass);
}

enum dt_status dt_network_loss(struct dt_network *net, struct dt_bound_samples *samples,
                               const struct dt_pass *pass)
{
    const int n_blocks = net->model->n_blocks;
    float *dlogits = pass->training ? dt_network_delta(net, n_blocks - 1, pass->first) : NULL;
    const struct dt_span span = {.kind = DT_SPAN_LOSS, .n_samples = pass->batch->n};
    DT_TRY(dt_span_begin(pass->trace, &span));
    DT_TRY(net->backend->ops->loss(net->backend, &net->model->spec, samples, pass->batch,
                                   net->model->n_outputs,
                                   dt_network_activation(net, n_blocks, pass->first), dlogits));
    return dt_span_end(pass->trace, &span);
}

enum dt_status dt_network_backward_block(struct dt_network *net, int b, float *dy, float *dx,
                                         const struct dt_pass *pass)
{
    const float *x = dt_network_activation(net, b, pass->first),
                *y = dt_network_activation(net, b + 1, pass->first);
    const struct dt_span span = {.kind = DT_SPAN_BACKWARD,
                                 .block = b,
                                 .first = pass->first,
                                 .n_samples = pass->batch->n,
                                 .dy = dy};
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
        float *dx = b > trained ? dt_network_delta(net, b - 1, pass->first) : NULL;
        DT_TRY(dt_network_backward_block(net, b, dt_network_delta(net, b, pass->first), dx, pass));
        if (on_grad_ready != NULL && block->grad_end > block->grad_begin) {
            DT_TRY(on_grad_ready(context, block->grad_begin, block->grad_end));
        }
    }
    return DT_OK;
}

enum dt_status dt_network_backward(struct dt_network *net, const struct dt_pass *pass,
                                   dt_grad_ready_fn on_grad_ready, void *context)
{
    const int n_spatial = net->model->n_spatial;
    if (net->graph != NULL) {
        return net->model->graph->backward(net, pass, on_grad_ready, context);
    }
    DT_TRY(backward_blocks(net, n_spatial, net->model->n_blocks, pass, on_grad_ready, context));
    for (int first = 0; first == 0 || first < pass->batch->n; first += net->plan.chunk) {
        struct dt_batch chunk;
        const struct dt_pass part = chunk_of(net, pass, first, &chunk);
        DT_TRY(dt_network_forward_blocks(net, 0, net->plan.n_recomputed, DT_SPAN_RECOMPUTE, &part));
        DT_TRY(backward_blocks(net, 0, n_spatial, &part, part.more ? NULL : on_grad_ready,
                               context)); /* gradients are final after the last chunk */
    }
    return DT_OK;
}
