#include "cuda/cuda_block.h"

#include <stdio.h>
#include <stdlib.h>

#include "cuda/block_state.h"
#include "cuda/cuda_check.h"
#include "cuda/range.h"

/* ---- open and close */

static const struct dt_cuda_linear *linear_of(const struct dt_cuda_block_plan *plan,
                                              enum dt_linear linear)
{
    return linear == DT_LINEAR_NONE   ? NULL
           : plan->is_head            ? &dt_cuda_head
           : plan->is_first_conv      ? &dt_cuda_first_conv
           : linear == DT_LINEAR_CONV ? &dt_cuda_conv
                                      : &dt_cuda_dense;
}

static void describe(struct dt_block_state *state, struct dt_cuda *cuda,
                     const struct dt_model *model, int index, int capacity)
{
    const struct dt_block *b = &state->block;
    state->cuda = cuda;
    state->block = model->blocks[index];
    snprintf(state->forward_range, sizeof state->forward_range, "%s forward", b->name);
    snprintf(state->backward_range, sizeof state->backward_range, "%s backward", b->name);
    state->capacity = capacity;
    state->is_first = index == 0;
    state->plan = dt_cuda_plan_block(model, index, cuda->precision, capacity);
    state->linear = linear_of(&state->plan, b->linear);
    state->n_in = dt_shape_elems(b->in);
    state->n_linear = dt_shape_elems(b->linear_out);
    state->y_type = index == model->n_blocks - 1 ? DT_GPU_F32 : cuda->type;
    if (state->linear != NULL) {
        state->weight_offset = model->params[b->weight].offset;
        state->bias_offset = model->params[b->bias].offset;
        state->n_weights = model->params[b->weight].n_elems;
        state->packed.filter =
            (struct dt_gpu_filter){.k = b->linear_out.c,
                                   .c = b->in.c,
                                   .kernel = b->linear == DT_LINEAR_CONV ? b->kernel : 1};
        state->packed_bias.filter =
            (struct dt_gpu_filter){.k = 1, .c = b->linear_out.c, .kernel = 1};
    }
    state->tail = (struct dt_gpu_tail){.linear = b->linear_out,
                                       .pooled = b->pool_out,
                                       .activation = b->activation,
                                       .pool = b->pool,
                                       .pool_h = b->pool_h,
                                       .pool_w = b->pool_w,
                                       .pool_stride = b->pool_stride,
                                       .dropout_rate = b->dropout_rate,
                                       .dropout_stream = b->dropout_stream,
                                       .flatten = b->canonical};
}

static enum dt_status open_memory(struct dt_block_state *state)
{
    const struct dt_cuda_block_plan *plan = &state->plan;
    const struct {
        size_t n_bytes;
        void **to;
    } all[] = {{plan->z, &state->z},
               {plan->dz, &state->dz},
               {plan->weight, &state->packed.weight},
               {plan->bias, &state->packed_bias.weight},
               {plan->dw, &state->packed.dw},
               {plan->winners, &state->winners},
               {plan->signs, &state->signs}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].n_bytes > 0) {
            DT_TRY(dt_cuda_alloc(state->cuda, state->block.name, all[i].n_bytes, all[i].to));
        }
    }
    state->dz = state->dz != NULL ? state->dz : state->z;
    return DT_OK;
}

static enum dt_status open_linear(struct dt_block_state *state)
{
    if (!state->plan.is_head) {
        DT_TRY(dt_block_reserve_sums(state, dt_gpu_tail_scratch(&state->tail)));
    }
    if (state->packed.weight != NULL) {
        dt_cuda_packed_open(state->cuda, &state->packed);
    }
    return state->linear->open != NULL ? state->linear->open(state) : DT_OK;
}

enum dt_status dt_cuda_block_open(struct dt_backend *backend, const struct dt_model *model,
                                  int index, int capacity, struct dt_block_state **out)
{
    struct dt_cuda *cuda = (struct dt_cuda *)backend;
    struct dt_block_state *state = calloc(1, sizeof *state);
    if (state == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening block %s",
                        model->blocks[index].name);
    }
    describe(state, cuda, model, index, capacity);
    cuda->n_blocks++;
    enum dt_status s = dt_cuda_reserve_batch(cuda, capacity);
    if (s == DT_OK) {
        s = open_memory(state);
    }
    if (s == DT_OK && state->linear != NULL) {
        s = open_linear(state);
    }
    if (s != DT_OK) {
        dt_cuda_block_close(state);
        return s;
    }
    dt_alive_show(&cuda->alive);
    *out = state;
    return DT_OK;
}

void dt_cuda_block_close(struct dt_block_state *state)
{
    dt_cuda_packed_close(state->cuda, &state->packed);
    dt_cuda_packed_close(state->cuda, &state->packed_bias);
    dt_cuda_conv_close(state);
    if (state->dz != state->z) {
        dt_cuda_free(state->cuda, state->dz);
    }
    dt_cuda_free(state->cuda, state->z);
    dt_cuda_free(state->cuda, state->winners);
    dt_cuda_free(state->cuda, state->signs);
    dt_cuda_free(state->cuda, state->packed.dw);
    dt_cuda_free(state->cuda, state->packed.weight);
    dt_cuda_free(state->cuda, state->packed_bias.weight);
    dt_cuda_drop(state->cuda); /* a closed network's leftovers have no reader */
    if (--state->cuda->n_blocks == 0) {
        dt_cuda_release_scratch(state->cuda);
    }
    free(state);
}

/* ---- shared by both passes */

static void poll(const struct dt_pass *pass)
{
    if (pass->poll != NULL) {
        pass->poll(pass->context);
    }
}

static struct dt_gpu_tail tail_of(const struct dt_block_state *state, const struct dt_pass *pass)
{
    struct dt_gpu_tail tail = state->tail;
    tail.dropout_rate = pass->training ? tail.dropout_rate : 0;
    tail.seed = pass->seed;
    tail.epoch = state->cuda->batch.epoch;
    tail.winners = pass->training ? state->winners : NULL;
    return tail;
}

/* For the tail; applying relu twice does no harm. */
static const float *bias_of(const struct dt_block_state *state, const float *params)
{
    return state->linear != NULL && !state->has_relu ? params + state->bias_offset : NULL;
}

/* The linear operation's output. */
static const void *z_of(const struct dt_block_state *state, const struct dt_block_args *a)
{
    return state->linear == NULL ? a->x : state->plan.is_plain_conv ? a->y : state->z;
}

/* ---- forward */

static enum dt_status forward(struct dt_block_state *state, const struct dt_block_args *a)
{
    struct dt_cuda *cuda = state->cuda;
    const struct dt_cuda_block_plan *plan = &state->plan;
    const struct dt_gpu_tail tail = tail_of(state, a->pass);
    poll(a->pass);
    DT_TRY(plan->is_first_conv && a->x == cuda->gathered.x ? dt_cuda_join(cuda)
                                                           : dt_cuda_settle(cuda));
    if (a->pass->batch->n == 0) {
        return DT_OK;
    }
    if (state->linear != NULL) {
        DT_TRY(dt_cuda_pack(cuda, &state->packed, a->params + state->weight_offset));
        DT_TRY(state->linear->forward(state, a));
    }
    if (plan->is_head || plan->is_plain || (plan->is_plain_conv && state->has_relu)) {
        return DT_OK;
    }
    DT_CUDA(dt_gpu_tail_forward(cuda->stream, &tail, cuda->batch.ids, a->pass->batch->n, cuda->type,
                                z_of(state, a), bias_of(state, a->params), state->y_type, a->y));
    return DT_OK;
}

enum dt_status dt_cuda_block_forward(struct dt_block_state *state, const float *params,
                                     const float *x, float *y, const struct dt_pass *pass)
{
    dt_range_begin(state->forward_range);
    const enum dt_status s =
        forward(state, &(struct dt_block_args){.params = params, .x = x, .y = y, .pass = pass});
    dt_range_end();
    return s;
}

/* ---- backward */

/* From dy: dz, and the gradient of the bias, which is there with a linear operation only. */
static enum dt_status tail_backward(const struct dt_block_state *state,
                                    const struct dt_block_args *a, void *dz)
{
    const struct dt_cuda *cuda = state->cuda;
    const struct dt_gpu_tail tail = tail_of(state, a->pass);
    struct dt_gpu_gradients to = dt_block_gradients(state, a);
    to.weight = NULL;
    to.bias = state->linear != NULL ? to.bias : NULL;
    DT_CUDA(dt_gpu_tail_backward(cuda->stream, &tail, cuda->batch.ids, a->pass->batch->n,
                                 cuda->type, z_of(state, a),
                                 state->plan.is_plain_conv ? NULL : bias_of(state, a->params),
                                 state->y_type, a->dy, dz, &to));
    return DT_OK;
}

static enum dt_status zero_gradients(struct dt_block_state *state, float *grads)
{
    state->packed.dw_of = NULL;
    state->packed.dw_recorded = NULL;
    const cudaStream_t stream = state->cuda->stream;
    DT_CUDA(
        cudaMemsetAsync(grads + state->weight_offset, 0, state->n_weights * sizeof *grads, stream));
    DT_CUDA(cudaMemsetAsync(grads + state->bias_offset, 0,
                            (size_t)state->block.linear_out.c * sizeof *grads, stream));
    return DT_OK;
}

static enum dt_status backward(struct dt_block_state *state, const struct dt_block_args *a)
{
    poll(a->pass);
    DT_TRY(dt_cuda_enqueue_waiting(state->cuda));
    if (a->pass->batch->n == 0) {
        return state->linear != NULL && !a->pass->accumulate ? zero_gradients(state, a->grads)
                                                             : DT_OK;
    }
    if (state->linear == NULL) {
        return a->dx != NULL ? tail_backward(state, a, a->dx) : DT_OK;
    }
    if (!state->plan.is_head && !state->plan.is_plain) {
        DT_TRY(tail_backward(state, a, state->dz));
    }
    return state->linear->backward(state, a);
}

enum dt_status dt_cuda_block_backward(struct dt_block_state *state, const float *params,
                                      float *grads, const float *x, const float *y, float *dy,
                                      float *dx, const struct dt_pass *pass)
{
    const struct dt_block_args args = {.params = params,
                                       .grads = grads,
                                       .x = x,
                                       .y = (float *)y,
                                       .dy = dy,
                                       .dx = dx,
                                       .pass = pass};
    dt_range_begin(state->backward_range);
    const enum dt_status s = backward(state, &args);
    dt_range_end();
    return s;
}
