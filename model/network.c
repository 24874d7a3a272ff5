#include "model/network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    DT_ASSERT(index >= 0 && index <= model->n_blocks);
    return dt_shape_elems(index == 0 ? model->spec.input : model->blocks[index - 1].out);
}

/* Leading blocks that process the batch in chunks; the last of them writes into whole batches. */
static int n_chunked(const struct dt_model *model)
{
    return model->is_graph ? 0 : model->n_spatial;
}

/* The last block that reads a block's output; behind the last block, the loss reads it. */
static int last_reader(const struct dt_model *model, int block)
{
    for (int b = model->n_blocks - 1; b > block; b--) {
        for (int i = 0; i < DT_MAX_INPUTS; i++) {
            if (dt_block_input(model, b, i) == block + 1) {
                return b;
            }
        }
    }
    return model->n_blocks;
}

/* An array holds the gradient of a block's output from the backward pass of the last reader, which
 * writes the gradient first, to that of the block, which reads it. */
static int find_array(struct dt_network_layout *layout, int from, bool of_chunk)
{
    DT_ASSERT(from >= 0 && layout->n_arrays <= DT_MAX_LAYERS);
    int i = 0;
    while (i < layout->n_arrays &&
           (layout->arrays[i].busy_until <= from || layout->arrays[i].of_chunk != of_chunk)) {
        i++;
    }
    layout->n_arrays = dt_max(layout->n_arrays, i + 1);
    return i;
}

void dt_network_lay_out(const struct dt_model *model, const struct dt_network_plan *plan,
                        struct dt_network_layout *out)
{
    memset(out, 0, sizeof *out);
    for (int b = model->n_blocks - 1; b >= 0; b--) {
        const bool of_chunk = b < n_chunked(model) - 1;
        const size_t n = sample_elems(model, b + 1);
        const int reader = last_reader(model, b);
        DT_ASSERT(reader > b);
        out->last_reader[b] = reader;
        out->array_of[b] = DT_OVER_OUTPUT;
        if (of_chunk || reader == model->n_blocks || !plan->dx_over_x[reader]) {
            const int i = out->array_of[b] = find_array(out, reader, of_chunk);
            DT_ASSERT(i == out->n_arrays - 1 || out->arrays[i].busy_until > reader);
            out->arrays[i].of_chunk = of_chunk;
            out->arrays[i].n_elems = dt_max_size(out->arrays[i].n_elems, n);
            out->arrays[i].busy_until = b;
        }
        for (int i = 0; i < DT_MAX_INPUTS; i++) {
            const int input = dt_block_input(model, b, i);
            if (input > 0 && last_reader(model, input - 1) > b) {
                out->part = dt_max_size(out->part, sample_elems(model, input));
            }
        }
    }
}

static enum dt_status open_deltas(struct dt_network *net)
{
    struct dt_network_layout *layout = &net->layout;
    dt_network_lay_out(net->model, &net->plan, layout);
    for (int i = 0; i < layout->n_arrays; i++) {
        const int n_samples = layout->arrays[i].of_chunk ? net->plan.chunk : net->capacity;
        DT_TRY(dt_floats_alloc(net->backend, "gradients of outputs", "",
                               (size_t)n_samples * layout->arrays[i].n_elems, &net->arrays[i]));
    }
    for (int b = 0; b < net->model->n_blocks; b++) {
        DT_ASSERT(layout->array_of[b] < layout->n_arrays);
        const int i = layout->array_of[b];
        net->deltas[b] = net->outputs[b + 1];
        if (i != DT_OVER_OUTPUT) {
            net->deltas[b].floats = net->arrays[i];
            net->deltas[b].step = layout->arrays[i].of_chunk ? 0 : sample_elems(net->model, b + 1);
        }
    }
    return dt_floats_alloc(net->backend, "gradients of outputs", "",
                           (size_t)net->capacity * layout->part, &net->part);
}

static enum dt_status open_block(struct dt_network *net, int b)
{
    const struct dt_block *block = &net->model->blocks[b];
    DT_ASSERT(block->grad_begin <= block->grad_end && block->grad_end <= net->model->arena_elems);
    net->wanted[b] = block->grad_end > block->grad_begin && block->lr > 0;
    for (int i = 0; i < DT_MAX_INPUTS; i++) {
        const int input = dt_block_input(net->model, b, i);
        DT_ASSERT(input <= b);
        net->wanted[b] = net->wanted[b] || (input > 0 && net->wanted[input - 1]);
    }
    return block->row > 0 ? DT_OK
                          : net->backend->ops->block_open(net->backend, net->model, b,
                                                          net->capacity, &net->states[b]);
}

static enum dt_status open_parts(struct dt_network *net)
{
    DT_ASSERT(net->plan.chunk >= 1 && net->plan.chunk <= net->capacity);
    DT_ASSERT(net->plan.n_recomputed == 0 || net->plan.n_recomputed < n_chunked(net->model));
    const struct dt_model *model = net->model;
    for (int i = 0; i <= model->n_blocks; i++) {
        const char *name = i == 0 ? "" : model->blocks[i - 1].name;
        const bool of_chunk = i >= 1 && i <= net->plan.n_recomputed;
        const size_t n = sample_elems(model, i),
                     n_samples = (size_t)(of_chunk ? net->plan.chunk : net->capacity);
        net->outputs[i].step = of_chunk ? 0 : n;
        DT_TRY(dt_floats_alloc(net->backend, i == 0 ? "the input" : "the output of ", name,
                               n_samples * n, &net->outputs[i].floats));
        DT_TRY(i > 0 ? open_block(net, i - 1) : DT_OK);
    }
    DT_TRY(open_deltas(net));
    return model->is_graph ? model->spec.rows->operations->open(net) : DT_OK;
}

enum dt_status dt_network_open(const struct dt_model *model, struct dt_backend *backend,
                               int capacity, const struct dt_network_memory *memory, bool by_stages,
                               struct dt_network **out)
{
    DT_ASSERT(capacity >= 1 && model->n_blocks >= 1);
    *out = NULL;
    struct dt_network *net = calloc(1, sizeof *net);
    if (net == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening the network");
    }
    net->model = model;
    net->backend = backend;
    net->capacity = capacity;
    net->plan = by_stages || model->is_graph ? (struct dt_network_plan){.chunk = capacity}
                                             : backend->ops->plan(backend, model, capacity);
    net->params = memory->params;
    net->grads = memory->grads;
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
    if (net->operations != NULL) {
        net->model->spec.rows->operations->close(net);
    }
    for (int b = 0; b < net->model->n_blocks; b++) {
        if (net->states[b] != NULL) {
            ops->block_close(net->states[b]);
        }
    }
    for (int i = 0; i <= net->model->n_blocks; i++) {
        ops->free(net->backend, net->outputs[i].floats);
    }
    for (int i = 0; i < net->layout.n_arrays; i++) {
        ops->free(net->backend, net->arrays[i]);
    }
    ops->free(net->backend, net->part);
    ops->free(net->backend, net->own.params);
    ops->free(net->backend, net->own.grads);
    free(net);
}

enum dt_status dt_network_gather(struct dt_network *net, struct dt_bound_samples *samples,
                                 const struct dt_batch *batch)
{
    DT_ASSERT(batch->n >= 0 && batch->n <= net->capacity);
    return net->backend->ops->gather(net->backend, samples, batch, net->outputs[0].floats);
}

float *dt_network_activation(struct dt_network *net, int block, int first)
{
    DT_ASSERT(block >= 0 && block <= net->model->n_blocks && first >= 0 && first <= net->capacity);
    return net->outputs[block].floats + (size_t)first * net->outputs[block].step;
}

float *dt_network_delta(struct dt_network *net, int block, int first)
{
    DT_ASSERT(block >= 0 && block < net->model->n_blocks && first >= 0 && first <= net->capacity);
    return net->deltas[block].floats + (size_t)first * net->deltas[block].step;
}

/* The part of a pass that processes the chunk beginning at sample `first`. */
static struct dt_pass chunk_of(const struct dt_network *net, const struct dt_pass *pass, int first,
                               struct dt_batch *chunk)
{
    DT_ASSERT(first <= pass->batch->n && first % net->plan.chunk == 0);
    const struct dt_batch *batch = pass->batch;
    struct dt_pass part = *pass;
    *chunk = (struct dt_batch){.n = dt_min(batch->n - first, net->plan.chunk),
                               .rows = batch->rows + first,
                               .ids = batch->ids + first,
                               .epoch = batch->epoch,
                               .class_weights = batch->class_weights};
    part.batch = chunk;
    part.first = first;
    part.accumulate = pass->accumulate || first > 0;
    part.more = first + chunk->n < batch->n;
    return part;
}

enum dt_status dt_network_forward_blocks(struct dt_network *net, int begin, int end,
                                         enum dt_span_kind kind, const struct dt_pass *pass)
{
    const struct dt_model *model = net->model;
    DT_ASSERT(0 <= begin && begin <= end && end <= model->n_blocks);
    DT_ASSERT(pass->first + pass->batch->n <= net->capacity);
    for (int b = begin; b < end; b++) {
        const float *x = dt_network_activation(net, dt_block_input(model, b, 0), pass->first);
        float *y = dt_network_activation(net, b + 1, pass->first);
        const struct dt_span span = {
            .kind = kind, .block = b, .first = pass->first, .n_samples = pass->batch->n, .y = y};
        DT_TRY(dt_span_begin(pass->trace, &span));
        DT_TRY(model->blocks[b].row > 0
                   ? model->spec.rows->operations->forward(net, b, pass)
                   : net->backend->ops->block_forward(net->states[b], net->params, x, y, pass));
        DT_TRY(dt_span_end(pass->trace, &span));
    }
    return DT_OK;
}

enum dt_status dt_network_forward(struct dt_network *net, const struct dt_pass *pass)
{
    DT_ASSERT(pass->first == 0);
    const int n = n_chunked(net->model);
    for (int first = 0; first == 0 || first < pass->batch->n;
         first += net->plan.chunk) { /* an empty batch is one empty chunk */
        struct dt_batch chunk;
        const struct dt_pass part = chunk_of(net, pass, first, &chunk);
        DT_TRY(dt_network_forward_blocks(net, 0, n, DT_SPAN_FORWARD, &part));
    }
    return dt_network_forward_blocks(net, n, net->model->n_blocks, DT_SPAN_FORWARD, pass);
}

enum dt_status dt_network_loss(struct dt_network *net, struct dt_bound_samples *samples,
                               const struct dt_pass *pass)
{
    DT_ASSERT(pass->first + pass->batch->n <= net->capacity);
    const int n_blocks = net->model->n_blocks;
    float *dlogits = pass->training ? dt_network_delta(net, n_blocks - 1, pass->first) : NULL;
    const struct dt_span span = {.kind = DT_SPAN_LOSS, .n_samples = pass->batch->n};
    DT_TRY(dt_span_begin(pass->trace, &span));
    DT_TRY(net->backend->ops->loss(net->backend, &net->model->spec, samples, pass->batch,
                                   net->model->n_outputs,
                                   dt_network_activation(net, n_blocks, pass->first), dlogits));
    return dt_span_end(pass->trace, &span);
}

float *dt_network_dx(struct dt_network *net, int block, int i, int first, bool *adds)
{
    DT_ASSERT(i >= 0 && i < DT_MAX_INPUTS);
    const int input = dt_block_input(net->model, block, i);
    DT_ASSERT(input <= block);
    if (input <= 0 || !net->wanted[input - 1]) {
        return NULL;
    }
    *adds = net->layout.last_reader[input - 1] > block;
    for (int k = 0; k < i; k++) {
        *adds = *adds || dt_block_input(net->model, block, k) == input;
    }
    return dt_network_delta(net, input - 1, first);
}

static enum dt_status backward_linear(struct dt_network *net, int b, const struct dt_pass *pass)
{
    bool adds = false;
    const int input = dt_block_input(net->model, b, 0);
    float *dx = dt_network_dx(net, b, 0, pass->first, &adds);
    DT_ASSERT(!adds || dx != NULL);
    DT_TRY(net->backend->ops->block_backward(
        net->states[b], net->params, net->grads, dt_network_activation(net, input, pass->first),
        dt_network_activation(net, b + 1, pass->first), dt_network_delta(net, b, pass->first),
        adds ? net->part : dx, pass));
    return adds ? net->model->spec.rows->operations->add_part(net, input, pass) : DT_OK;
}

static enum dt_status backward_block(struct dt_network *net, int b, const struct dt_pass *pass)
{
    DT_ASSERT(pass->training && pass->first + pass->batch->n <= net->capacity);
    const struct dt_model *model = net->model;
    const struct dt_span span = {.kind = DT_SPAN_BACKWARD,
                                 .block = b,
                                 .first = pass->first,
                                 .n_samples = pass->batch->n,
                                 .dy = dt_network_delta(net, b, pass->first)};
    DT_TRY(dt_span_begin(pass->trace, &span));
    DT_TRY(model->blocks[b].row > 0 ? model->spec.rows->operations->backward(net, b, pass)
                                    : backward_linear(net, b, pass));
    return dt_span_end(pass->trace, &span);
}

enum dt_status dt_network_backward_blocks(struct dt_network *net, int begin, int end,
                                          const struct dt_pass *pass,
                                          dt_grad_ready_fn on_grad_ready, void *context)
{
    DT_ASSERT(0 <= begin && begin <= end && end <= net->model->n_blocks);
    for (int b = end - 1; b >= begin; b--) {
        const struct dt_block *block = &net->model->blocks[b];
        DT_ASSERT(block->grad_begin == (b + 1 < net->model->n_blocks ? block[1].grad_end : 0));
        DT_TRY(net->wanted[b] ? backward_block(net, b, pass) : DT_OK);
        if (block->lr == 0) { /* frozen; on the host alone (train/parts.c) */
            memset(net->grads + block->grad_begin, 0,
                   (block->grad_end - block->grad_begin) * sizeof net->grads[0]);
        }
        if (on_grad_ready != NULL && block->grad_end > block->grad_begin) {
            DT_TRY(on_grad_ready(context, block->grad_begin, block->grad_end));
        }
    }
    return DT_OK;
}

enum dt_status dt_network_backward(struct dt_network *net, const struct dt_pass *pass,
                                   dt_grad_ready_fn on_grad_ready, void *context)
{
    DT_ASSERT(pass->first == 0);
    const int n = n_chunked(net->model);
    DT_TRY(dt_network_backward_blocks(net, n, net->model->n_blocks, pass, on_grad_ready, context));
    for (int first = 0; first == 0 || first < pass->batch->n; first += net->plan.chunk) {
        struct dt_batch chunk;
        const struct dt_pass part = chunk_of(net, pass, first, &chunk);
        DT_TRY(dt_network_forward_blocks(net, 0, net->plan.n_recomputed, DT_SPAN_RECOMPUTE, &part));
        DT_TRY(dt_network_backward_blocks(net, 0, n, &part, part.more ? NULL : on_grad_ready,
                                          context)); /* gradients are final after the last chunk */
    }
    return DT_OK;
}
