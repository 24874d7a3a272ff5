/* dt_block_operations: blocks with an operation in the place of the linear one. */
#include <stdlib.h>

#include "base/arithmetic.h"
#include "model/layers/layers.h"

struct dt_operation_memory {
    const struct dt_layer_ops *ops[DT_MAX_LAYERS]; /* of blocks with a row */
    void *memory[DT_MAX_LAYERS];                   /* of struct dt_layer_call */
    float *between[DT_MAX_LAYERS]; /* outputs of rows that the rest of their block reads, or NULL */
    float *dbetween;               /* gradient of one of them */
    float *buffers;
    struct dt_rank_sum *ranks; /* borrowed, or NULL */
};

/* True if the rest of the block is more than the operation itself can do. */
static bool has_rest(const struct dt_block *b)
{
    return b->row > 0 &&
           (b->flatten || b->pool != DT_POOL_NONE || b->dropout_rate > 0 ||
            (b->activation != DT_ACTIVATION_NONE && b->activation != DT_ACTIVATION_RELU));
}

/* Floats of a sample between the operation and the rest of the block. */
static size_t between_elems(const struct dt_block *block)
{
    return has_rest(block) ? dt_shape_elems(block->linear_out) : 0;
}

static size_t most_between(const struct dt_model *model)
{
    size_t most = 0;
    for (int b = 0; b < model->n_blocks; b++) {
        most = dt_max_size(most, between_elems(&model->blocks[b]));
    }
    return most;
}

size_t dt_operation_elems(const struct dt_model *model)
{
    size_t n = most_between(model);
    for (int b = 0; b < model->n_blocks; b++) {
        n += between_elems(&model->blocks[b]);
    }
    return n;
}

/* ---- open and close */

static const struct dt_layer_ops *find_ops(const struct dt_network *net, enum dt_layer_type type)
{
    DT_ASSERT(dt_operation_of(type) != NULL);
    return (net->backend->layers != NULL ? net->backend->layers : net->model->spec.rows->ref)[type];
}

static enum dt_status alloc(struct dt_network *net, const char *what, const char *of,
                            size_t n_elems, float **out)
{
    return dt_floats_alloc(net->backend, what, of, n_elems * (size_t)net->capacity, out);
}

static enum dt_status open_operation(struct dt_network *net, int b)
{
    struct dt_operation_memory *own = net->operations;
    const struct dt_block *block = &net->model->blocks[b];
    own->ops[b] = find_ops(net, net->model->spec.layers[block->row - 1].type);
    if (own->ops[b]->n_bytes != NULL) {
        DT_TRY(net->backend->ops->alloc(net->backend, own->ops[b]->n_bytes(block, net->capacity),
                                        &own->memory[b]));
    }
    if (!has_rest(block)) {
        return DT_OK;
    }
    DT_TRY(alloc(net, "the result of ", block->name, between_elems(block), &own->between[b]));
    return net->backend->ops->block_open(net->backend, net->model, b, net->capacity,
                                         &net->states[b]);
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
        DT_ASSERT(buffer->offset + buffer->n_elems <= model->buffer_elems);
        for (size_t k = 0; k < buffer->n_elems; k++) {
            host[buffer->offset + k] = buffer->initial;
        }
    }
    enum dt_status s = dt_floats_alloc(net->backend, "running statistics", "", model->buffer_elems,
                                       &net->operations->buffers);
    s = s == DT_OK ? dt_buffers_set(net, host) : s;
    free(host);
    return s;
}

static enum dt_status open_all(struct dt_network *net)
{
    DT_ASSERT(net->operations == NULL && net->model->is_graph);
    const struct dt_model *model = net->model;
    net->operations = calloc(1, sizeof *net->operations);
    if (net->operations == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening the network");
    }
    for (int b = 0; b < model->n_blocks; b++) {
        DT_TRY(model->blocks[b].row > 0 ? open_operation(net, b) : DT_OK);
    }
    DT_TRY(alloc(net, "gradients of outputs", "", most_between(model), &net->operations->dbetween));
    return open_buffers(net);
}

static void close_all(struct dt_network *net)
{
    struct dt_operation_memory *own = net->operations;
    for (int b = 0; b < net->model->n_blocks; b++) {
        net->backend->ops->free(net->backend, own->memory[b]);
        dt_floats_free(net->backend, own->between[b]);
    }
    dt_floats_free(net->backend, own->dbetween);
    dt_floats_free(net->backend, own->buffers);
    free(own);
}

void dt_graph_join(struct dt_network *net, struct dt_rank_sum *sum)
{
    DT_ASSERT(net->operations != NULL);
    net->operations->ranks = sum;
}

/* ---- passes */

static struct dt_layer_call call_of(struct dt_network *net, int b, const struct dt_pass *pass)
{
    DT_ASSERT(net->model->blocks[b].row > 0 && pass->first == 0);
    const struct dt_model *model = net->model;
    const struct dt_block *block = &model->blocks[b];
    const struct dt_operation_memory *own = net->operations;
    struct dt_layer_call call = {
        .layer = &model->spec.layers[block->row - 1],
        .block = block,
        .pass = pass,
        .n_elems = dt_shape_elems(block->linear_out),
        .memory = own->memory[b],
        .ranks = model->spec.layers[block->row - 1].sync && pass->training ? own->ranks : NULL,
        .y = net->outputs[b + 1].floats,
        .dy = net->deltas[b].floats};
    if (own->between[b] != NULL) {
        call.y = own->between[b];
        call.dy = own->dbetween;
    } else {
        call.relu = block->activation == DT_ACTIVATION_RELU;
        call.last = b == model->n_blocks - 1;
    }
    for (int i = 0; i < DT_MAX_INPUTS && dt_block_input(model, b, i) >= 0; i++) {
        const int input = dt_block_input(model, b, i);
        DT_ASSERT(input <= b);
        call.x[i] = net->outputs[input].floats;
        call.n_x[i] = net->outputs[input].step;
    }
    for (int i = 0; i < 2 && block->buffer > 0; i++) {
        call.running[i] = own->buffers + model->buffers[block->buffer - 1 + i].offset;
    }
    if (block->weight != DT_NO_PARAM) {
        call.weight = net->params + model->params[block->weight].offset;
        call.bias = net->params + model->params[block->bias].offset;
        call.dweight = net->grads + model->params[block->weight].offset;
        call.dbias = net->grads + model->params[block->bias].offset;
    }
    return call;
}

static enum dt_status forward(struct dt_network *net, int b, const struct dt_pass *pass)
{
    const struct dt_operation_memory *own = net->operations;
    const struct dt_layer_call call = call_of(net, b, pass);
    DT_TRY(own->ops[b]->forward(net->backend, &call));
    return net->states[b] == NULL
               ? DT_OK
               : net->backend->ops->block_forward(net->states[b], net->params, own->between[b],
                                                  net->outputs[b + 1].floats, pass);
}

static enum dt_status backward(struct dt_network *net, int b, const struct dt_pass *pass)
{
    DT_ASSERT(pass->training);
    const struct dt_operation_memory *own = net->operations;
    struct dt_layer_call call = call_of(net, b, pass);
    if (net->states[b] != NULL) {
        DT_TRY(net->backend->ops->block_backward(net->states[b], net->params, net->grads,
                                                 own->between[b], net->outputs[b + 1].floats,
                                                 net->deltas[b].floats, own->dbetween, pass));
    }
    for (int i = 0; i < DT_MAX_INPUTS; i++) {
        call.dx[i] = dt_network_dx(net, b, i, 0, &call.adds_dx[i]);
    }
    return own->ops[b]->backward(net->backend, &call);
}

static enum dt_status add_part(struct dt_network *net, int output, const struct dt_pass *pass)
{
    DT_ASSERT(output >= 1 && net->part != NULL);
    float *sum = net->deltas[output - 1].floats;
    const struct dt_layer_call call = {
        .pass = pass, .n_elems = net->outputs[output].step, .x = {sum, net->part}, .y = sum};
    return find_ops(net, DT_LAYER_ADD)->forward(net->backend, &call);
}

const struct dt_block_operations dt_block_operations = {.open = open_all,
                                                        .close = close_all,
                                                        .forward = forward,
                                                        .backward = backward,
                                                        .add_part = add_part};

/* ---- running statistics */

enum dt_status dt_buffers_get(struct dt_network *net, float *host)
{
    DT_ASSERT(net->model->buffer_elems == 0 || net->operations != NULL);
    const size_t n = net->model->buffer_elems;
    return n == 0 ? DT_OK
                  : net->backend->ops->copy_out(net->backend, host, net->operations->buffers,
                                                n * sizeof *host);
}

enum dt_status dt_buffers_set(struct dt_network *net, const float *host)
{
    DT_ASSERT(net->model->buffer_elems == 0 || net->operations != NULL);
    const size_t n = net->model->buffer_elems;
    return n == 0 ? DT_OK
                  : net->backend->ops->copy_in(net->backend, net->operations->buffers, host,
                                               n * sizeof *host);
}
