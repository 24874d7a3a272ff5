#include "cpu/block_state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- open and close */

static void describe_tail(const struct dt_block *b, struct dt_cpu_tail *tail)
{
    tail->pooling = (struct dt_pooling){.c = b->linear_out.c,
                                        .h = b->linear_out.h,
                                        .w = b->linear_out.w,
                                        .out_h = b->pool_out.h,
                                        .out_w = b->pool_out.w,
                                        .size_h = b->pool_h,
                                        .size_w = b->pool_w,
                                        .stride = b->pool_stride};
    tail->reorders = b->canonical && b->pool_out.c > 1 && b->pool_out.h * b->pool_out.w > 1;
    tail->has_slope = b->activation == DT_ACTIVATION_GELU ||
                      (b->pool == DT_POOL_AVG && b->activation != DT_ACTIVATION_NONE);
    tail->dropout_scale = 1.0f / (1.0f - b->dropout_rate);
}

static void describe(struct dt_block_state *state, const struct dt_cpu *cpu,
                     const struct dt_model *model, int index, int capacity)
{
    const struct dt_block *b = &state->block;
    state->block = model->blocks[index];
    state->cpu = cpu;
    state->capacity = capacity;
    state->n_in = dt_shape_elems(b->in);
    state->n_linear = dt_shape_elems(b->linear_out);
    state->n_pooled = dt_shape_elems(b->pool_out);
    describe_tail(b, &state->tail);
    if (b->linear != DT_LINEAR_NONE) {
        state->weight_offset = model->params[b->weight].offset;
        state->bias_offset = model->params[b->bias].offset;
        state->n_weights = model->params[b->weight].n_elems;
    }
    state->dense.past =
        state->n_in * sizeof(float) % 64 == 0 &&
        state->n_weights * sizeof(float) > dt_cpu_cache_bytes(_SC_LEVEL2_CACHE_SIZE, 1 << 20);
    if (b->linear == DT_LINEAR_CONV) {
        dt_cpu_conv_describe(state, dt_cpu_slice(cpu, capacity));
    }
}

/* A dense layer has finished with a few columns of x before it writes those of dx, and a fused
 * convolution needs only the bitmask of its output. */
bool dt_cpu_block_dx_over_x(const struct dt_cpu *cpu, const struct dt_model *model, int index,
                            int capacity)
{
    DT_ASSERT(index >= 1 && index < model->n_blocks);
    struct dt_block_state below = {0};
    if (model->blocks[index].linear == DT_LINEAR_DENSE) {
        describe(&below, cpu, model, index - 1, capacity);
    }
    return below.conv.fuses_pool;
}

static struct dt_cpu_scratch place_scratch(struct dt_pieces *pieces,
                                           const struct dt_block_state *state)
{
    const struct dt_block *b = &state->block;
    const size_t n_images = b->linear == DT_LINEAR_CONV ? (size_t)state->conv.n_together : 1;
    struct dt_cpu_scratch scratch = {0};
    scratch.linear =
        dt_piece(pieces, b->pool != DT_POOL_NONE, n_images * state->n_linear, sizeof(float));
    scratch.pooled =
        dt_piece(pieces, state->tail.reorders, n_images * state->n_pooled, sizeof(float));
    scratch.dense = dt_piece(pieces, b->linear == DT_LINEAR_DENSE, DT_DENSE_SCRATCH, sizeof(float));
    if (b->linear == DT_LINEAR_CONV) {
        dt_cpu_conv_place_scratch(state, pieces, &scratch);
    }
    return scratch;
}

/* For a matrix (k, m). */
static void place_sparse(struct dt_pieces *pieces, size_t k, size_t m, struct dt_sparse *sparse)
{
    const size_t n_blocks = (k + DT_DENSE_DEPTH - 1) / DT_DENSE_DEPTH;
    sparse->begin = dt_piece(pieces, true, n_blocks * m + 1, sizeof *sparse->begin);
    sparse->entry = dt_piece(pieces, true, k * m + DT_MAX_VECTOR, sizeof *sparse->entry);
}

static void place_tail(struct dt_pieces *pieces, struct dt_block_state *state)
{
    const struct dt_block *b = &state->block;
    const size_t n = (size_t)state->capacity;
    const bool fused = state->conv.fuses_pool;
    struct dt_cpu_tail *tail = &state->tail;
    tail->winner =
        dt_piece(pieces, b->pool == DT_POOL_MAX && !fused, n * state->n_pooled, sizeof(uint16_t));
    tail->slope = dt_piece(pieces, tail->has_slope, n * state->n_linear, sizeof(float));
    tail->mask =
        dt_piece(pieces, b->dropout_rate > 0 && !fused, n * state->n_pooled, sizeof(uint8_t));
}

static void place(struct dt_pieces *pieces, struct dt_block_state *state)
{
    const size_t n = (size_t)state->capacity;
    const int n_threads = dt_threads_count(state->cpu->threads);
    switch (state->block.linear) {
    case DT_LINEAR_CONV:
        dt_cpu_conv_place(state, pieces);
        break;
    case DT_LINEAR_DENSE:
        place_sparse(pieces, n, state->n_linear, &state->dense.by_unit);
        place_sparse(pieces, state->n_linear, n, &state->dense.by_sample);
        break;
    case DT_LINEAR_NONE:
        break;
    }
    place_tail(pieces, state);
    state->scratch = dt_piece(pieces, true, (size_t)n_threads, sizeof *state->scratch);
    for (int t = 0; t < n_threads; t++) {
        const struct dt_cpu_scratch scratch = place_scratch(pieces, state);
        if (state->scratch != NULL) {
            state->scratch[t] = scratch;
        }
    }
}

static bool alloc_state(struct dt_block_state *state)
{
    struct dt_pieces pieces = {0};
    place(&pieces, state);
    state->memory = pieces.too_large ? NULL : dt_cpu_memory(pieces.n_bytes);
    if (state->memory == NULL) {
        return false;
    }
    pieces = (struct dt_pieces){.memory = state->memory};
    place(&pieces, state);
    if (state->block.linear == DT_LINEAR_CONV) {
        dt_cpu_conv_open(state);
    }
    return true;
}

enum dt_status dt_cpu_block_open(struct dt_backend *backend, const struct dt_model *model,
                                 int index, int capacity, struct dt_block_state **out)
{
    DT_ASSERT(index >= 0 && index < model->n_blocks && capacity >= 1);
    struct dt_cpu *cpu = (struct dt_cpu *)backend;
    const struct dt_block *b = &model->blocks[index];
    if (b->pool == DT_POOL_MAX && b->pool_h > 255) {
        return dt_error(
            DT_CONFIG,
            "model.layers: block %s has a max pool of size %d (the cpu backend's largest is 255)",
            b->name, b->pool_h);
    }
    struct dt_block_state *state = calloc(1, sizeof *state);
    if (state == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening block %s", b->name);
    }
    describe(state, cpu, model, index, capacity);
    if (!alloc_state(state)) {
        dt_cpu_block_close(state);
        return dt_error(DT_NO_MEMORY,
                        "out of memory while opening block %s (use a smaller model or batch)",
                        b->name);
    }
    *out = state;
    return DT_OK;
}

void dt_cpu_block_close(struct dt_block_state *state)
{
    free(state->memory);
    free(state);
}

/* ---- forward */

static void plain_forward(void *context, int sample, int thread)
{
    const struct dt_cpu_job *job = context;
    const size_t n_in = job->state->n_in;
    float *linear = dt_cpu_linear_output(job, sample, thread);
    memcpy(linear, job->x + (size_t)sample * n_in, n_in * sizeof(float));
    dt_cpu_tail_forward(job, sample, thread, linear, false);
    dt_cpu_poll(job->pass, thread);
}

/* Each thread takes one range of samples, so that the weights pass through its caches once. */
static void dense_part(void *context, int part, int thread)
{
    const struct dt_cpu_job *job = context;
    const struct dt_block_state *state = job->state;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    const int n_parts = dt_threads_count(state->cpu->threads), n_in = (int)state->n_in,
              n_out = (int)state->n_linear;
    const float *weight = job->params + state->weight_offset,
                *bias = job->params + state->bias_offset;
    if (job->n <= DT_DENSE_FEW) {
        const size_t begin = (size_t)(job->n * part / n_parts),
                     end = (size_t)(job->n * (part + 1) / n_parts);
        kernels->dense_few((int)(end - begin), n_in, n_out, job->x + begin * state->n_in, weight,
                           bias, job->y_out + begin * state->n_linear);
    } else {
        kernels->dense_forward(part, n_parts, job->n, n_in, n_out, job->x, weight, bias, job->y_out,
                               state->scratch[thread].dense);
    }
    dt_cpu_poll(job->pass, thread);
}

static void dense_sample(void *context, int sample, int thread)
{
    const struct dt_cpu_job *job = context;
    dt_cpu_tail_forward(job, sample, thread, job->y_out + (size_t)sample * job->state->n_linear,
                        false);
}

enum dt_status dt_cpu_block_forward(struct dt_block_state *state, const float *params,
                                    const float *x, float *y, const struct dt_pass *pass)
{
    struct dt_threads *threads = state->cpu->threads;
    struct dt_cpu_job job = {
        .state = state, .pass = pass, .params = params, .x = x, .y_out = y, .n = pass->batch->n};
    if (job.n == 0) {
        return DT_OK;
    }
    switch (state->block.linear) {
    case DT_LINEAR_CONV:
        dt_cpu_conv_forward(&job);
        break;
    case DT_LINEAR_DENSE:
        dt_threads_run(threads, dt_threads_count(threads), dense_part, &job);
        dt_threads_run(threads, job.n, dense_sample, &job);
        break;
    case DT_LINEAR_NONE:
        dt_threads_run(threads, job.n, plain_forward, &job);
        break;
    }
    return DT_OK;
}

/* ---- backward */

/* Some columns of dw and dx: each element is one sum over the whole batch, or all units, so the
 * number of threads cannot change it. */
static void dense_columns(void *context, int item, int thread)
{
    const struct dt_cpu_job *job = context;
    const struct dt_block_state *state = job->state;
    state->cpu->kernels->dense_backward(&job->dense, item * DT_DENSE_COLUMNS,
                                        state->scratch[thread].dense);
    dt_cpu_poll(job->pass, thread);
}

/* Lists the gradient's nonzero elements if multiplying by list is less work than the whole product:
 * an element from a list costs 1.6 times as much. */
static bool list_gradient(const struct dt_cpu_job *job)
{
    struct dt_block_state *state = job->state;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    const int n_out = (int)state->n_linear;
    const size_t n_elems = (size_t)job->n * state->n_linear;
    if (8 * kernels->count_nonzero(n_elems, job->dy) > 5 * n_elems) {
        return false;
    }
    kernels->list_units(job->n, n_out, job->dy, &state->dense.by_unit);
    if (job->dx != NULL) {
        kernels->list_samples(job->n, n_out, job->dy, &state->dense.by_sample);
    }
    return true;
}

static void tail_sample(void *context, int sample, int thread)
{
    dt_cpu_tail_backward(context, sample, thread);
}

static void dense_backward(struct dt_cpu_job *job)
{
    DT_ASSERT(job->n >= 1);
    struct dt_block_state *state = job->state;
    const size_t n_out = state->n_linear;
    float *dw = job->grads + state->weight_offset, *db = job->grads + state->bias_offset;
    dt_threads_run(state->cpu->threads, job->n, tail_sample, job);
    const bool sparse = list_gradient(job);
    job->dense = (struct dt_dense){.n = job->n,
                                   .n_in = (int)state->n_in,
                                   .n_out = (int)n_out,
                                   .x = job->x,
                                   .weight = job->params + state->weight_offset,
                                   .dy = job->dy,
                                   .by_unit = sparse ? &state->dense.by_unit : NULL,
                                   .by_sample = sparse ? &state->dense.by_sample : NULL,
                                   .accumulate = job->pass->accumulate,
                                   .past = state->dense.past && (uintptr_t)dw % 64 == 0,
                                   .dw = dw,
                                   .dx = job->dx};
    dt_threads_run(state->cpu->threads, dt_cut_count((int)state->n_in, DT_DENSE_COLUMNS),
                   dense_columns, job);
    if (!job->pass->accumulate) {
        memset(db, 0, n_out * sizeof(float));
    }
    for (size_t sample = 0; sample < (size_t)job->n; sample++) {
        for (size_t i = 0; i < n_out; i++) {
            db[i] += job->dy[sample * n_out + i];
        }
    }
}

static void plain_backward(void *context, int sample, int thread)
{
    const struct dt_cpu_job *job = context;
    const size_t n_in = job->state->n_in;
    const float *dz = dt_cpu_tail_backward(job, sample, thread);
    memcpy(job->dx + (size_t)sample * n_in, dz, n_in * sizeof(float));
    dt_cpu_poll(job->pass, thread);
}

/* Writes the gradients of an empty batch, or those that a convolution adds to. */
static void clear_gradients(struct dt_cpu_job *job)
{
    const struct dt_block_state *state = job->state;
    if (!job->pass->accumulate && state->block.linear != DT_LINEAR_NONE) {
        memset(job->grads + state->weight_offset, 0, state->n_weights * sizeof(float));
        memset(job->grads + state->bias_offset, 0,
               (size_t)state->block.linear_out.c * sizeof(float));
    }
}

enum dt_status dt_cpu_block_backward(struct dt_block_state *state, const float *params,
                                     float *grads, const float *x, const float *y, float *dy,
                                     float *dx, const struct dt_pass *pass)
{
    DT_ASSERT(pass->training && pass->first + pass->batch->n <= state->capacity);
    struct dt_cpu_job job = {.state = state,
                             .pass = pass,
                             .params = params,
                             .x = x,
                             .y = y,
                             .dy = dy,
                             .dx = dx,
                             .grads = grads,
                             .n = pass->batch->n};
    if (job.n == 0 || state->block.linear == DT_LINEAR_CONV) {
        clear_gradients(&job);
    }
    if (job.n == 0) {
        return DT_OK;
    }
    switch (state->block.linear) {
    case DT_LINEAR_CONV:
        dt_cpu_conv_backward(&job);
        break;
    case DT_LINEAR_DENSE:
        dense_backward(&job);
        break;
    case DT_LINEAR_NONE:
        if (dx != NULL) {
            dt_threads_run(state->cpu->threads, job.n, plain_backward, &job);
        }
        break;
    }
    return DT_OK;
}
