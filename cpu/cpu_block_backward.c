#include "cpu/cpu_block_state.h"

#include <string.h>

/* One sample's gradient, from the block's output back to its linear operation's. May change dy; the result lies in dy or in the
 * thread's scratch. */
static float *unwind_sample(const struct dt_cpu_job *job, int sample, int thread)
{
    struct dt_block_state *state = job->state;
    const struct dt_block *b = &state->block;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    struct dt_cpu_scratch *scratch = &state->scratch[thread];
    const size_t at = (size_t)sample * state->n_pooled, kept = dt_cpu_kept(job->pass, sample, state->n_pooled);
    float *dy = job->dy + at;
    if (state->activated == NULL) { /* element by element, so in whatever order y is */
        kernels->activate_backward(b->activation, state->n_pooled, job->y + at, 1.0f - b->dropout_rate, dy);
    }
    if (state->turns) {
        kernels->transpose((size_t)b->pool_out.c, (size_t)b->pool_out.h * (size_t)b->pool_out.w, dy, scratch->pooled);
        dy = scratch->pooled;
    }
    if (b->dropout_rate > 0) {
        kernels->dropout(state->n_pooled, state->keep + kept, state->dropout_scale, dy);
    }
    if (b->pool == DT_POOL_MAX) {
        kernels->max_pool_backward(&state->pooling, dy, state->winner + kept, scratch->linear);
        dy = scratch->linear;
    } else if (b->pool == DT_POOL_AVG) {
        kernels->avg_pool_backward(&state->pooling, dy, scratch->linear);
        dy = scratch->linear;
    }
    if (state->activated != NULL) {
        const float *activated = state->activated + dt_cpu_kept(job->pass, sample, state->n_linear);
        kernels->activate_backward(b->activation, state->n_linear, activated, 1.0f, dy);
    }
    return dy;
}

/* From the padded gradient to the input's own extents; what no window reached is zero. */
static void crop(const struct dt_block_state *state, const float *padded, float *dx)
{
    const struct dt_block *b = &state->block;
    const size_t row = (size_t)b->in.w * (size_t)b->in.c, padded_row = (size_t)state->conv.w * (size_t)state->conv.c;
    padded += (size_t)b->pad_before_h * padded_row + (size_t)b->pad_before_w * (size_t)b->in.c;
    for (int h = 0; h < b->in.h; h++) {
        memcpy(dx + (size_t)h * row, padded + (size_t)h * padded_row, row * sizeof(float));
    }
}

/* Where the nonzero gradients' shares of dx are added up; zeroed. */
static float *begin_data(const struct dt_block_state *state, struct dt_cpu_scratch *scratch, float *dx)
{
    const struct dt_conv *conv = &state->conv;
    float *reached = state->dx_direct ? dx : scratch->dx;
    memset(reached, 0, (size_t)conv->h * (size_t)conv->w * (size_t)conv->c * sizeof(float));
    return reached;
}

/* dx as a forward convolution of the whole gradient, with zeros around it, by the turned weights. */
static void data_by_forward(const struct dt_block_state *state, struct dt_cpu_scratch *scratch, const float *dy, float *dx)
{
    const struct dt_block *b = &state->block;
    const int top = b->kernel - 1 - b->pad_before_h, left = b->kernel - 1 - b->pad_before_w;
    dt_cpu_frame(b->linear_out, dy, state->turned.w, top, left, scratch->framed);
    state->cpu->kernels->conv_forward(&state->turned, scratch->framed, state->turned_packed, state->turned_bias, false, dx);
}

static void conv_sample(const struct dt_cpu_job *job, int sample, int slice, int thread)
{
    struct dt_block_state *state = job->state;
    const struct dt_conv *conv = &state->conv;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    struct dt_cpu_scratch *scratch = &state->scratch[thread];
    float *dw = state->dw + (size_t)slice * dt_conv_packed_backward_elems(conv, kernels->vector);
    float *db = state->db + (size_t)slice * (size_t)conv->k;
    float *dx = job->dx != NULL ? job->dx + (size_t)sample * state->n_in : NULL, *reached = NULL;
    const float *dy = unwind_sample(job, sample, thread);
    const float *x = dt_cpu_conv_input(state, job->x + (size_t)sample * state->n_in, scratch);
    const size_t n_nonzero = kernels->count_nonzero(state->n_linear, dy);
    if (dx != NULL && conv->stride == 1 && n_nonzero > state->n_linear / 2) {
        data_by_forward(state, scratch, dy, dx);
    } else if (dx != NULL) {
        reached = begin_data(state, scratch, dx);
    }
    kernels->conv_backward(conv, x, dy, n_nonzero, state->packed_backward, &scratch->lists, dw, db, reached);
    if (reached != NULL && reached != dx) {
        crop(state, reached, dx);
    }
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static void conv_slice(void *context, int slice, int thread)
{
    const struct dt_cpu_job *job = context;
    struct dt_block_state *state = job->state;
    const struct dt_conv *conv = &state->conv;
    const size_t n_weights = dt_conv_packed_backward_elems(conv, state->cpu->kernels->vector);
    const int begin = job->begin + slice * state->slice, end = smaller(begin + state->slice, job->n);
    memset(state->dw + (size_t)slice * n_weights, 0, n_weights * sizeof(float));
    memset(state->db + (size_t)slice * (size_t)conv->k, 0, (size_t)conv->k * sizeof(float));
    for (int sample = begin; sample < end; sample++) {
        conv_sample(job, sample, slice, thread);
        dt_cpu_poll(job->pass, thread);
    }
}

/* K C R S to C K R S with R and S run backwards. */
static void turn_weights(const struct dt_conv *conv, const float *weight, float *turned)
{
    const size_t n_k = (size_t)conv->k, n_c = (size_t)conv->c, n_taps = (size_t)conv->kernel * (size_t)conv->kernel;
    for (size_t k = 0; k < n_k; k++) {
        for (size_t c = 0; c < n_c; c++) {
            for (size_t tap = 0; tap < n_taps; tap++) {
                turned[(c * n_k + k) * n_taps + n_taps - 1 - tap] = weight[(k * n_c + c) * n_taps + tap];
            }
        }
    }
}

static void pack_weights(const struct dt_cpu_job *job)
{
    struct dt_block_state *state = job->state;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    kernels->conv_pack_backward(&state->conv, job->params + state->weight_offset, state->packed_backward);
    if (job->dx != NULL && state->conv.stride == 1) {
        turn_weights(&state->conv, job->params + state->weight_offset, state->turned_weight);
        kernels->conv_pack_forward(&state->turned, state->turned_weight, state->turned_packed);
    }
}

/* Slice after slice, so always in the same order. */
static void add_slices(const struct dt_cpu_job *job, int n_slices, bool accumulate)
{
    const struct dt_block_state *state = job->state;
    const size_t n_k = (size_t)state->conv.k;
    float *db = job->grads + state->bias_offset;
    state->cpu->kernels->conv_store_gradient(&state->conv, n_slices, state->dw, accumulate, job->grads + state->weight_offset);
    for (size_t k = 0; k < n_k; k++) {
        float sum = accumulate ? db[k] : 0.0f;
        for (size_t s = 0; s < (size_t)n_slices; s++) {
            sum += state->db[s * n_k + k];
        }
        db[k] = sum;
    }
}

static void conv_backward(struct dt_cpu_job *job)
{
    const struct dt_block_state *state = job->state;
    if (job->pass->first == 0) {
        pack_weights(job);
    }
    for (job->begin = 0; job->begin < job->n; job->begin += state->n_slices * state->slice) {
        const int n_left = (job->n - job->begin + state->slice - 1) / state->slice, n_slices = smaller(n_left, state->n_slices);
        dt_threads_run(state->cpu->threads, n_slices, conv_slice, job);
        add_slices(job, n_slices, job->pass->accumulate || job->begin > 0);
    }
}

/* A number of columns of dw and dx: each element is one sum over the whole batch, or all units, so threads cannot matter. */
static void dense_columns(void *context, int item, int thread)
{
    const struct dt_cpu_job *job = context;
    struct dt_block_state *state = job->state;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    const size_t n_in = state->n_in, n_out = state->n_linear, at = (size_t)item * DT_GEMM_TILE;
    const int n = n_in - at < DT_GEMM_TILE ? (int)(n_in - at) : DT_GEMM_TILE;
    const bool accumulate = job->pass->accumulate;
    float *packed = state->scratch[thread].packed, *dw = job->grads + state->weight_offset + at,
          *dx = job->dx != NULL ? job->dx + at : NULL;
    const float *x = job->x + at, *w = job->params + state->weight_offset + at;
    if (job->sparse) {
        kernels->gemm_sparse((int)n_out, n, job->n, &state->by_unit, x, n_in, accumulate, dw, n_in, packed);
    } else {
        kernels->gemm_tn((int)n_out, n, job->n, job->dy, n_out, 1, x, n_in, accumulate, dw, n_in, packed);
    }
    if (job->dx != NULL && job->sparse) {
        kernels->gemm_sparse(job->n, n, (int)n_out, &state->by_sample, w, n_in, false, dx, n_in, packed);
    } else if (job->dx != NULL) {
        kernels->gemm_tn(job->n, n, (int)n_out, job->dy, 1, n_out, w, n_in, false, dx, n_in, packed);
    }
    dt_cpu_poll(job->pass, thread);
}

/* Lists the gradient's nonzero elements, and decides whether walking them is less work than the whole product. */
static bool list_gradient(const struct dt_cpu_job *job)
{
    struct dt_block_state *state = job->state;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    const size_t n_out = state->n_linear;
    const size_t n_entries = kernels->sparse_fill((int)n_out, job->n, job->dy, n_out, 1, &state->by_unit);
    if (n_entries > (size_t)job->n * n_out / 2) {
        return false;
    }
    kernels->sparse_fill(job->n, (int)n_out, job->dy, 1, n_out, &state->by_sample);
    return true;
}

static void unwind_item(void *context, int sample, int thread)
{
    unwind_sample(context, sample, thread);
}

static void dense_backward(struct dt_cpu_job *job)
{
    struct dt_block_state *state = job->state;
    const size_t n_out = state->n_linear;
    float *db = job->grads + state->bias_offset;
    dt_threads_run(state->cpu->threads, job->n, unwind_item, job);
    job->sparse = list_gradient(job);
    dt_threads_run(state->cpu->threads, (int)((state->n_in + DT_GEMM_TILE - 1) / DT_GEMM_TILE), dense_columns, job);
    if (!job->pass->accumulate) {
        memset(db, 0, n_out * sizeof(float));
    }
    for (size_t sample = 0; sample < (size_t)job->n; sample++) {
        for (size_t i = 0; i < n_out; i++) {
            db[i] += job->dy[sample * n_out + i];
        }
    }
}

static void plain_sample(void *context, int sample, int thread)
{
    const struct dt_cpu_job *job = context;
    const size_t n_in = job->state->n_in;
    const float *dz = unwind_sample(job, sample, thread);
    memcpy(job->dx + (size_t)sample * n_in, dz, n_in * sizeof(float));
    dt_cpu_poll(job->pass, thread);
}

/* Gradients of an empty batch. */
static void clear_gradients(struct dt_cpu_job *job)
{
    const struct dt_block_state *state = job->state;
    if (!job->pass->accumulate && state->block.linear != DT_LINEAR_NONE) {
        memset(job->grads + state->weight_offset, 0, state->n_weights * sizeof(float));
        memset(job->grads + state->bias_offset, 0, (size_t)state->block.linear_out.c * sizeof(float));
    }
}

enum dt_status dt_cpu_block_backward(struct dt_block_state *state, const float *params, float *grads, const float *x,
                                     const float *y, float *dy, float *dx, const struct dt_pass *pass)
{
    struct dt_cpu_job job = {
        .state = state, .pass = pass, .params = params, .x = x, .y = y, .dy = dy, .dx = dx, .grads = grads, .n = pass->batch->n};
    if (job.n == 0) {
        clear_gradients(&job);
        return DT_OK;
    }
    switch (state->block.linear) {
    case DT_LINEAR_CONV:
        conv_backward(&job);
        break;
    case DT_LINEAR_DENSE:
        dense_backward(&job);
        break;
    case DT_LINEAR_NONE:
        if (dx != NULL) {
            dt_threads_run(state->cpu->threads, job.n, plain_sample, &job);
        }
        break;
    }
    return DT_OK;
}
