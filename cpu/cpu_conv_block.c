/* Backward pass of blocks with a convolution. An image's gradient is taken back to the convolution's output, where it is left as
 * survivors, and from there to the weights and the input: by lists of survivors or as dense operations, whichever is less work. */
#include <string.h>

#include "cpu/cpu_block_state.h"

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* The gradient of a sample before dropout and activation, in H W C order, but still behind a max pool if survivors stay there. */
static const float *unwind(const struct dt_cpu_job *job, int sample, int thread)
{
    struct dt_block_state *state = job->state;
    const struct dt_block *b = &state->block;
    const size_t at = (size_t)sample * state->n_pooled;
    float *pooled = state->scratch[thread].pooled;
    if (b->activation == DT_ACTIVATION_RELU && state->turns && (b->pool == DT_POOL_NONE || state->survivors_pooled)) {
        /* what dropout has removed is not positive */
        state->cpu->kernels->relu_backward(b->pool_out.c, (size_t)b->pool_out.h * (size_t)b->pool_out.w, job->y + at,
                                           b->dropout_rate > 0 ? state->dropout_scale : 1.0f, job->dy + at, pooled);
        return pooled;
    }
    return dt_cpu_unwind(job, sample, thread);
}

/* From the gradient of the padded input, whole vectors of channels, to the input's own extents. */
static void crop(const struct dt_block_state *state, const float *padded, float *dx)
{
    const struct dt_block *b = &state->block;
    const size_t n_c = (size_t)b->in.c, channels = dt_conv_channels(&state->conv, state->cpu->kernels->vector);
    for (int h = 0; h < b->in.h; h++) {
        const float *from = padded + ((size_t)(h + b->pad_before_h) * (size_t)state->conv.w + (size_t)b->pad_before_w) * channels;
        for (int w = 0; w < b->in.w; w++, from += channels, dx += n_c) {
            memcpy(dx, from, n_c * sizeof(float));
        }
    }
}

/* dx as a forward convolution of the whole gradient, with zeros around it, by the turned weights. */
static void data_dense(const struct dt_block_state *state, struct dt_cpu_scratch *scratch, const float *dy, float *dx)
{
    const struct dt_block *b = &state->block;
    const int top = b->kernel - 1 - b->pad_before_h, left = b->kernel - 1 - b->pad_before_w;
    dt_cpu_frame(b->linear_out, dy, state->turned.w, top, left, scratch->framed);
    state->cpu->kernels->conv_forward(&state->turned, scratch->framed, state->turned_packed, state->turned_bias, false, dx);
}

static void data_sparse(const struct dt_block_state *state, struct dt_cpu_scratch *scratch, struct dt_conv_lists *lists, float *dx)
{
    float *reached = state->dx_direct ? dx : scratch->dx;
    state->cpu->kernels->conv_backward_data(&state->conv, &scratch->survivors, state->packed_backward, lists, reached);
    if (reached != dx) {
        crop(state, reached, dx);
    }
}

/* A window of so few elements is never worth a list: multiplying all of the gradient costs about as much as looking for zeros. */
#define FEW_ELEMENTS 27

static double in_vectors(int n, int vector)
{
    return (double)(dt_round_up((size_t)n, (size_t)vector) / (size_t)vector);
}

/* Multiply-adds of vectors: of all output gradients times `inner` floats of their windows, with `outer` in vectors. */
static double dense_work(const struct dt_conv *conv, int inner, int outer, int vector)
{
    return (double)conv->out_h * conv->out_w * conv->kernel * conv->kernel * inner * in_vectors(outer, vector);
}

/* The same of lists, where a survivor's bookkeeping takes as long as two. By measurement: whole products of AVX-512 keep 32
 * registers busy and are that much faster; others are no faster than lists. Either form is within a fifth of the better one at any
 * density. */
static double sparse_work(const struct dt_conv *conv, int vector, size_t n_survivors)
{
    const double pace = vector == DT_MAX_VECTOR ? 1.2 : 1.0;
    return (double)n_survivors * (pace * conv->kernel * conv->kernel * in_vectors(conv->c, vector) + 2);
}

/* A slice's sum that is used for the first time is zeroed. */
static float *begin_sum(float *sum, size_t n_elems, bool *used)
{
    if (!*used) {
        memset(sum, 0, n_elems * sizeof(float));
        *used = true;
    }
    return sum;
}

static void weights_dense(const struct dt_block_state *state, struct dt_cpu_scratch *scratch, const float *x, const float *dy,
                          const float *y, float *db)
{
    const struct dt_conv *conv = &state->conv;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    float *dw = begin_sum(scratch->dw_dense, dt_conv_dense_elems(conv, kernels->vector), &scratch->dense_used);
    kernels->conv_weights_dense(conv, x, dy, y, dw, db);
}

/* From lists and, for the bias, from dy: n_positions of it, in front of the pool or behind it. */
static void weights_sparse(const struct dt_block_state *state, struct dt_cpu_scratch *scratch, const float *x, size_t n_positions,
                           const float *dy, float *db)
{
    const struct dt_conv *conv = &state->conv;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    float *dw = begin_sum(scratch->dw, dt_conv_packed_backward_elems(conv, kernels->vector), &scratch->sparse_used);
    kernels->conv_backward_weights(conv, &scratch->lists, x, dw);
    kernels->conv_backward_bias(n_positions, conv->k, dy, db);
}

/* Both gradients of a sample, each in the form that is less work. dy is where survivors are found. */
static void both_gradients(const struct dt_cpu_job *job, int sample, struct dt_cpu_scratch *scratch, const float *x,
                           const float *dy, float *db)
{
    struct dt_block_state *state = job->state;
    const struct dt_conv *conv = &state->conv;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    const uint16_t *winner = state->survivors_pooled ? state->winner + dt_cpu_kept(job->pass, sample, state->n_pooled) : NULL;
    const size_t n_positions = (state->survivors_pooled ? state->n_pooled : state->n_linear) / (size_t)conv->k;
    const size_t n = state->survivors_pooled ? kernels->survivors_pooled(&state->pooling, dy, winner, scratch->survivors.word)
                                             : kernels->survivors(n_positions, conv->k, dy, scratch->survivors.word);
    const double sparse = sparse_work(conv, kernels->vector, n);
    const bool dense_weights = sparse > dense_work(conv, conv->c, conv->k, kernels->vector);
    const bool dense_data = conv->stride == 1 && sparse > dense_work(conv, conv->k, conv->c, kernels->vector);
    float *dx = job->dx != NULL ? job->dx + (size_t)sample * state->n_in : NULL;
    const float *whole = dy; /* in front of the pool */
    scratch->survivors.value = dy;
    if ((dense_weights || dense_data) && state->survivors_pooled) {
        kernels->max_pool_backward(&state->pooling, dy, winner, scratch->linear);
        whole = scratch->linear;
    }
    if (dx != NULL && dense_data) {
        data_dense(state, scratch, whole, dx);
    } else if (dx != NULL) {
        data_sparse(state, scratch, dense_weights ? NULL : &scratch->lists, dx);
    }
    if (dense_weights) {
        weights_dense(state, scratch, x, whole, NULL, db);
        return;
    }
    if (dx == NULL || dense_data) {
        kernels->conv_list(conv, &scratch->survivors, &scratch->lists);
    }
    weights_sparse(state, scratch, x, n_positions, dy, db);
}

static void conv_sample(const struct dt_cpu_job *job, int sample, int slice, int thread)
{
    struct dt_block_state *state = job->state;
    const struct dt_conv *conv = &state->conv;
    struct dt_cpu_scratch *scratch = &state->scratch[thread];
    const size_t at = (size_t)sample * state->n_pooled;
    const float *x = dt_cpu_conv_input(state, job->x + (size_t)sample * state->n_in, scratch);
    float *db = state->db + (size_t)slice * dt_conv_filters(conv, state->cpu->kernels->vector);
    if (job->dx == NULL && state->masks_only && conv->kernel * conv->kernel * conv->c <= FEW_ELEMENTS) {
        const float *y = state->block.activation == DT_ACTIVATION_RELU ? job->y + at : NULL;
        weights_dense(state, scratch, x, job->dy + at, y, db);
    } else {
        both_gradients(job, sample, scratch, x, unwind(job, sample, thread), db);
    }
}

static void conv_slice(void *context, int slice, int thread)
{
    const struct dt_cpu_job *job = context;
    struct dt_block_state *state = job->state;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    struct dt_cpu_scratch *scratch = &state->scratch[thread];
    const size_t n_filters = dt_conv_filters(&state->conv, kernels->vector);
    const int begin = job->begin + slice * state->slice, end = smaller(begin + state->slice, job->n);
    float *dw = state->dw + (size_t)slice * state->n_weights;
    memset(state->db + (size_t)slice * n_filters, 0, n_filters * sizeof(float));
    memset(dw, 0, state->n_weights * sizeof(float));
    scratch->sparse_used = scratch->dense_used = false;
    for (int sample = begin; sample < end; sample++) {
        conv_sample(job, sample, slice, thread);
        dt_cpu_poll(job->pass, thread);
    }
    if (scratch->sparse_used) {
        kernels->conv_unpack_gradient(&state->conv, scratch->dw, dw);
    }
    if (scratch->dense_used) {
        kernels->conv_unpack_dense(&state->conv, scratch->dw_dense, dw);
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
    if (job->dx == NULL) {
        return;
    }
    kernels->conv_pack_backward(&state->conv, job->params + state->weight_offset, state->packed_backward);
    if (state->conv.stride == 1) {
        turn_weights(&state->conv, job->params + state->weight_offset, state->turned_weight);
        kernels->conv_pack_forward(&state->turned, state->turned_weight, state->turned_packed);
    }
}

/* to = or += the slices, one after the other, so always in the same order. */
static void add_slices(int n_slices, const float *slices, size_t stride, size_t n_elems, bool accumulate, float *to)
{
    if (!accumulate) {
        memset(to, 0, n_elems * sizeof(float));
    }
    for (int s = 0; s < n_slices; s++, slices += stride) {
        for (size_t i = 0; i < n_elems; i++) {
            to[i] += slices[i];
        }
    }
}

void dt_cpu_conv_backward(struct dt_cpu_job *job)
{
    const struct dt_block_state *state = job->state;
    const size_t n_filters = dt_conv_filters(&state->conv, state->cpu->kernels->vector);
    if (job->pass->first == 0) {
        pack_weights(job);
    }
    for (job->begin = 0; job->begin < job->n; job->begin += state->n_slices * state->slice) {
        const int n_left = (job->n - job->begin + state->slice - 1) / state->slice, n_slices = smaller(n_left, state->n_slices);
        const bool accumulate = job->pass->accumulate || job->begin > 0;
        dt_threads_run(state->cpu->threads, n_slices, conv_slice, job);
        add_slices(n_slices, state->dw, state->n_weights, state->n_weights, accumulate, job->grads + state->weight_offset);
        add_slices(n_slices, state->db, n_filters, (size_t)state->conv.k, accumulate, job->grads + state->bias_offset);
    }
}
