/* dt_layer_graph: a network as a graph of blocks. */
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "model/layers/layers.h"

/* An array that gradients of outputs share, one after another. */
struct slot {
    size_t n_elems; /* of a sample */
    int busy_until; /* the block whose backward pass reads it last */
    float *floats;
};

/* Memory of gradients, as a function of the model alone. */
struct layout {
    struct slot slots[DT_MAX_LAYERS];
    int n_slots, slot_of[DT_MAX_LAYERS]; /* of a block's output's gradient */
    size_t spare, between;               /* floats of a sample: see struct dt_graph */
};

struct dt_graph {
    struct layout layout;
    const struct dt_layer_ops *ops[DT_MAX_LAYERS]; /* of blocks with a row */
    const struct dt_layer_ops *add;                /* of the backend */
    void *memory[DT_MAX_LAYERS];                   /* of struct dt_layer_call */
    float *between[DT_MAX_LAYERS]; /* outputs of rows that the rest of their block reads, or NULL */
    float *dbetween;               /* gradient of one of them */
    float *spare;                  /* a second gradient of an output, before it is added */
    float *buffers;
    struct dt_rank_sum *ranks;  /* borrowed, or NULL */
    bool wanted[DT_MAX_LAYERS]; /* some block at or before it has parameters */
    bool begun[DT_MAX_LAYERS];  /* the output's gradient has its first part */
};

/* True if the rest of the block is more than the operation itself can do. */
static bool has_rest(const struct dt_block *b)
{
    return b->flatten || b->pool != DT_POOL_NONE || b->dropout_rate > 0 ||
           (b->activation != DT_ACTIVATION_NONE && b->activation != DT_ACTIVATION_RELU);
}

static size_t out_elems(const struct dt_model *model, int output)
{
    return dt_shape_elems(output == 0 ? model->spec.input : model->blocks[output - 1].out);
}

/* The block that reads an output last, or the loss. */
static int last_reader(const struct dt_model *model, int block)
{
    int last = block == model->n_blocks - 1 ? model->n_blocks : block;
    for (int b = block + 1; b < model->n_blocks; b++) {
        for (int i = 0; i < DT_MAX_INPUTS; i++) {
            last = dt_block_input(model, b, i) == block + 1 ? b : last;
        }
    }
    return last;
}

/* The gradient of an output exists from the backward pass of its last reader to that of its block.
 */
static void place_gradient(const struct dt_model *model, int block, struct layout *layout)
{
    const int from = last_reader(model, block);
    int slot = 0;
    while (slot < layout->n_slots && layout->slots[slot].busy_until <= from) {
        slot++;
    }
    struct slot *s = &layout->slots[slot];
    layout->n_slots = dt_max(layout->n_slots, slot + 1);
    s->n_elems = dt_max_size(s->n_elems, out_elems(model, block + 1));
    s->busy_until = block;
    layout->slot_of[block] = slot;
}

static void lay_out(const struct dt_model *model, struct layout *layout)
{
    *layout = (struct layout){0};
    for (int b = model->n_blocks - 1; b >= 0; b--) {
        const struct dt_block *block = &model->blocks[b];
        place_gradient(model, b, layout);
        if (block->row > 0 && has_rest(block)) {
            layout->between = dt_max_size(layout->between, dt_shape_elems(block->linear_out));
        }
        for (int i = 0; i < DT_MAX_INPUTS; i++) {
            const int input = dt_block_input(model, b, i);
            const bool again = input > 0 && last_reader(model, input - 1) > b;
            layout->spare =
                again ? dt_max_size(layout->spare, out_elems(model, input)) : layout->spare;
        }
    }
}

size_t dt_graph_elems(const struct dt_model *model, int capacity)
{
    struct layout layout;
    lay_out(model, &layout);
    size_t n = layout.spare + layout.between;
    for (int i = 0; i < layout.n_slots; i++) {
        n += layout.slots[i].n_elems;
    }
    for (int i = 0; i <= model->n_blocks; i++) {
        n += out_elems(model, i);
    }
    for (int b = 0; b < model->n_blocks; b++) {
        const struct dt_block *block = &model->blocks[b];
        n += block->row > 0 && has_rest(block) ? dt_shape_elems(block->linear_out) : 0;
    }
    return n * (size_t)capacity + model->buffer_elems;
}

/* ---- open and close */

static const struct dt_layer_ops *find_ops(const struct dt_network *net, enum dt_layer_type type)
{
    return (net->backend->layers != NULL ? net->backend->layers : net->model->spec.rows->ref)[type];
}

static enum dt_status alloc(struct dt_network *net, const char *what, const char *of,
                            size_t n_elems, float **out)
{
    return dt_floats_alloc(net->backend, what, of, n_elems * (size_t)net->capacity, out);
}

static enum dt_status open_row(struct dt_network *net, int b)
{
    struct dt_graph *graph = net->graph;
    const struct dt_block *block = &net->model->blocks[b];
    graph->ops[b] = find_ops(net, net->model->spec.layers[block->row - 1].type);
    if (graph->ops[b]->n_bytes != NULL) {
        DT_TRY(net->backend->ops->alloc(net->backend, graph->ops[b]->n_bytes(block, net->capacity),
                                        &graph->memory[b]));
    }
    return has_rest(block) ? alloc(net, "the result of ", block->name,
                                   dt_shape_elems(block->linear_out), &graph->between[b])
                           : DT_OK;
}

static enum dt_status open_block(struct dt_network *net, int b)
{
    const struct dt_block *block = &net->model->blocks[b];
    struct dt_graph *graph = net->graph;
    net->outputs[b + 1].step = out_elems(net->model, b + 1);
    DT_TRY(alloc(net, "the output of ", block->name, net->outputs[b + 1].step,
                 &net->outputs[b + 1].floats));
    graph->wanted[b] = block->grad_end > block->grad_begin;
    for (int i = 0; i < DT_MAX_INPUTS; i++) {
        const int input = dt_block_input(net->model, b, i);
        graph->wanted[b] = graph->wanted[b] || (input > 0 && graph->wanted[input - 1]);
    }
    if (block->row > 0) {
        DT_TRY(open_row(net, b));
    }
    return block->row == 0 || has_rest(block)
               ? net->backend->ops->block_open(net->backend, net->model, b, net->capacity,
                                               &net->states[b])
               : DT_OK;
}

static enum dt_status open_gradients(struct dt_network *net)
{
    struct dt_graph *graph = net->graph;
    struct layout *layout = &graph->layout;
    for (int i = 0; i < layout->n_slots; i++) {
        DT_TRY(alloc(net, "gradients of outputs", "", layout->slots[i].n_elems,
                     &layout->slots[i].floats));
    }
    for (int b = 0; b < net->model->n_blocks; b++) {
        net->deltas[b] = (struct dt_network_floats){layout->slots[layout->slot_of[b]].floats,
                                                    out_elems(net->model, b + 1)};
    }
    DT_TRY(alloc(net, "gradients of outputs", "", layout->spare, &graph->spare));
    return alloc(net, "gradients of outputs", "", layout->between, &graph->dbetween);
}

static enum dt_status open_buffers(struct dt_network *net)
{
    const struct dt_model *model = net->model;
    float *host = calloc(model->buffer_elems + 1, sizeof *host);
    if (host == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for running statistics");
    }
    for (int i = 0; i < model->n_buffers; i++) {
        const struct dt_param *buffer = &model->buffers[i];
        for (size_t k = 0; k < buffer->n_elems; k++) {
            host[buffer->offset + k] = buffer->initial;
        }
    }
    enum dt_status s = dt_floats_alloc(net->backend, "running statistics", "", model->buffer_elems,
                                       &net->graph->buffers);
    s = s == DT_OK ? dt_buffers_set(net, host) : s;
    free(host);
    return s;
}

static enum dt_status open_graph(struct dt_network *net)
{
    const struct dt_model *model = net->model;
    net->graph = calloc(1, sizeof *net->graph);
    if (net->graph == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening the network");
    }
    lay_out(model, &net->graph->layout);
    net->graph->add = find_ops(net, DT_LAYER_ADD);
    net->outputs[0].step = out_elems(model, 0);
    DT_TRY(alloc(net, "the input", "", net->outputs[0].step, &net->outputs[0].floats));
    for (int b = 0; b < model->n_blocks; b++) {
        DT_TRY(open_block(net, b));
    }
    DT_TRY(open_gradients(net));
    return open_buffers(net);
}

static void close_graph(struct dt_network *net)
{
    struct dt_graph *graph = net->graph;
    for (int b = 0; b < net->model->n_blocks; b++) {
        net->backend->ops->free(net->backend, graph->memory[b]);
        dt_floats_free(net->backend, graph->between[b]);
    }
    for (int i = 0; i < graph->layout.n_slots; i++) {
        dt_floats_free(net->backend, graph->layout.slots[i].floats);
    }
    dt_floats_free(net->backend, graph->dbetween);
    dt_floats_free(net->backend, graph->spare);
    dt_floats_free(net->backend, graph->buffers);
    free(graph);
}

void dt_graph_join(struct dt_network *net, struct dt_rank_sum *sum)
{
    net->graph->ranks = sum;
}

/* ---- passes */

static struct dt_layer_call call_of(struct dt_network *net, int b, const struct dt_pass *pass)
{
    const struct dt_model *model = net->model;
    const struct dt_block *block = &model->blocks[b];
    const struct dt_graph *graph = net->graph;
    struct dt_layer_call call = {
        .layer = &model->spec.layers[block->row - 1],
        .block = block,
        .pass = pass,
        .n_elems = dt_shape_elems(block->linear_out),
        .memory = graph->memory[b],
        .ranks = model->spec.layers[block->row - 1].sync && pass->training ? graph->ranks : NULL,
        .y = net->outputs[b + 1].floats,
        .dy = net->deltas[b].floats};
    if (graph->between[b] != NULL) {
        call.y = graph->between[b];
        call.dy = graph->dbetween;
    } else {
        call.relu = block->activation == DT_ACTIVATION_RELU;
        call.last = b == model->n_blocks - 1;
    }
    for (int i = 0; i < DT_MAX_INPUTS && dt_block_input(model, b, i) >= 0; i++) {
        const int input = dt_block_input(model, b, i);
        call.x[i] = net->outputs[input].floats;
        call.n_x[i] = out_elems(model, input);
    }
    for (int i = 0; i < 2 && block->buffer > 0; i++) {
        call.running[i] = graph->buffers + model->buffers[block->buffer - 1 + i].offset;
    }
    if (block->weight != DT_NO_PARAM) {
        call.weight = net->params + model->params[block->weight].offset;
        call.bias = net->params + model->params[block->bias].offset;
        call.dweight = net->grads + model->params[block->weight].offset;
        call.dbias = net->grads + model->params[block->bias].offset;
    }
    return call;
}

static enum dt_status compute_forward(struct dt_network *net, int b, const struct dt_pass *pass)
{
    const struct dt_graph *graph = net->graph;
    const float *x = net->outputs[dt_block_input(net->model, b, 0)].floats;
    if (graph->ops[b] != NULL) {
        const struct dt_layer_call call = call_of(net, b, pass);
        DT_TRY(graph->ops[b]->forward(net->backend, &call));
        x = graph->between[b];
    }
    return net->states[b] == NULL
               ? DT_OK
               : net->backend->ops->block_forward(net->states[b], net->params, x,
                                                  net->outputs[b + 1].floats, pass);
}

static enum dt_status forward(struct dt_network *net, const struct dt_pass *pass)
{
    for (int b = 0; b < net->model->n_blocks; b++) {
        const struct dt_span span = {.kind = DT_SPAN_FORWARD,
                                     .block = b,
                                     .n_samples = pass->batch->n,
                                     .y = net->outputs[b + 1].floats};
        DT_TRY(dt_span_begin(pass->trace, &span));
        DT_TRY(compute_forward(net, b, pass));
        DT_TRY(dt_span_end(pass->trace, &span));
    }
    return DT_OK;
}

/* Where the gradient of an output goes, or its next part. */
static float *gradient_of(struct dt_network *net, int output, bool *again)
{
    struct dt_graph *graph = net->graph;
    if (output <= 0 || !graph->wanted[output - 1]) {
        return NULL;
    }
    *again = graph->begun[output - 1];
    graph->begun[output - 1] = true;
    return net->deltas[output - 1].floats;
}

/* Adds the second part of an output's gradient. */
static enum dt_status add_spare(struct dt_network *net, int output, const struct dt_pass *pass)
{
    float *sum = net->deltas[output - 1].floats;
    const struct dt_layer_call call = {.pass = pass,
                                       .n_elems = out_elems(net->model, output),
                                       .x = {sum, net->graph->spare},
                                       .y = sum};
    return net->graph->add->forward(net->backend, &call);
}

static enum dt_status linear_backward(struct dt_network *net, int b, const struct dt_pass *pass)
{
    const struct dt_graph *graph = net->graph;
    const int input = dt_block_input(net->model, b, 0);
    bool again = false;
    float *to = gradient_of(net, input, &again), *dx = again ? graph->spare : to;
    DT_TRY(net->backend->ops->block_backward(net->states[b], net->params, net->grads,
                                             net->outputs[input].floats, net->outputs[b + 1].floats,
                                             net->deltas[b].floats, dx, pass));
    return again ? add_spare(net, input, pass) : DT_OK;
}

static enum dt_status row_backward(struct dt_network *net, int b, const struct dt_pass *pass)
{
    const struct dt_graph *graph = net->graph;
    struct dt_layer_call call = call_of(net, b, pass);
    if (net->states[b] != NULL) {
        DT_TRY(net->backend->ops->block_backward(net->states[b], net->params, net->grads,
                                                 graph->between[b], net->outputs[b + 1].floats,
                                                 net->deltas[b].floats, graph->dbetween, pass));
    }
    for (int i = 0; i < DT_MAX_INPUTS; i++) {
        call.dx[i] = gradient_of(net, dt_block_input(net->model, b, i), &call.adds_dx[i]);
    }
    return graph->ops[b]->backward(net->backend, &call);
}

static enum dt_status backward_block(struct dt_network *net, int b, const struct dt_pass *pass)
{
    const struct dt_span span = {.kind = DT_SPAN_BACKWARD,
                                 .block = b,
                                 .n_samples = pass->batch->n,
                                 .y = net->outputs[b + 1].floats,
                                 .dy = net->deltas[b].floats};
    DT_TRY(dt_span_begin(pass->trace, &span));
    DT_TRY((net->graph->ops[b] != NULL ? row_backward : linear_backward)(net, b, pass));
    return dt_span_end(pass->trace, &span);
}

static enum dt_status backward(struct dt_network *net, const struct dt_pass *pass,
                               dt_grad_ready_fn on_grad_ready, void *context)
{
    memset(net->graph->begun, 0, sizeof net->graph->begun);
    for (int b = net->model->n_blocks - 1; b >= 0; b--) {
        const struct dt_block *block = &net->model->blocks[b];
        if (net->graph->wanted[b]) {
            DT_TRY(backward_block(net, b, pass));
        }
        if (on_grad_ready != NULL && block->grad_end > block->grad_begin) {
            DT_TRY(on_grad_ready(context, block->grad_begin, block->grad_end));
        }
    }
    return DT_OK;
}

const struct dt_graph_ops dt_layer_graph = {
    .open = open_graph, .close = close_graph, .forward = forward, .backward = backward};

/* ---- running statistics */

enum dt_status dt_buffers_get(struct dt_network *net, float *host)
{
    const size_t n = net->model->buffer_elems;
    return n == 0 ? DT_OK
                  : net->backend->ops->copy_out(net->backend, host, net->graph->buffers,
                                                n * sizeof *host);
}

enum dt_status dt_buffers_set(struct dt_network *net, const float *host)
{
    const size_t n = net->model->buffer_elems;
    return n == 0 ? DT_OK
                  : net->backend->ops->copy_in(net->backend, net->graph->buffers, host,
                                               n * sizeof *host);
}
