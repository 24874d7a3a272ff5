/* Backward pass of blocks with a convolution. It takes an image's gradient back to the
 * convolution's output as nonzeros, and from there to the weights and the input: by lists of
 * nonzeros or as dense operations, whichever is less work; dense 3 x 3 convolutions go by
 * Winograd's method. */
#include <math.h>
#include <string.h>

#include "cpu/block_state.h"

/* Crops the gradient of the padded input, in whole vectors of channels, to the input's extents. */
static void crop(const struct dt_block_state *state, const float *padded, float *dx)
{
    const struct dt_block *b = &state->block;
    const size_t n_c = (size_t)b->in.c,
                 channels = dt_conv_channels(&state->conv.shape, state->cpu->kernels->vector);
    for (int h = 0; h < b->in.h; h++) {
        const float *from = padded + ((size_t)(h + b->pad_before_h) * (size_t)state->conv.shape.w +
                                      (size_t)b->pad_before_w) *
                                         channels;
        for (int w = 0; w < b->in.w; w++, from += channels, dx += n_c) {
            memcpy(dx, from, n_c * sizeof(float));
        }
    }
}

/* dx as a forward convolution of the whole gradient, framed with zeros, by the weights rotated by
 * 180 degrees. */
static void data_dense(const struct dt_block_state *state, struct dt_cpu_scratch *scratch,
                       const float *dy, float *dx)
{
    const struct dt_block *b = &state->block;
    const int top = b->kernel - 1 - b->pad_before_h, left = b->kernel - 1 - b->pad_before_w;
    dt_cpu_frame(b->linear_out, dy, state->conv.rotated.w, top, left, scratch->framed);
    state->cpu->kernels->conv_forward(&state->conv.rotated, scratch->framed,
                                      state->conv.rotated_packed, state->conv.rotated_bias, false,
                                      dx);
}

/* The same for neighbouring samples, by Winograd's method; those that are not finite are repeated
 * without it. */
static void data_winograd(const struct dt_cpu_job *job, int first, int n,
                          struct dt_cpu_scratch *scratch)
{
    const struct dt_block_state *state = job->state;
    const struct dt_winograd *w = &state->conv.winograd_rotated;
    for (int i = 0, n_images; i < n; i += n_images) {
        n_images = dt_min(n - i, w->images);
        const float *dy = job->dy + (size_t)(first + i) * state->n_linear;
        float *dx = job->dx + (size_t)(first + i) * state->n_in;
        const struct dt_conv_outputs out = {.bias = state->conv.rotated_bias, .y = dx};
        const uint32_t not_finite = state->cpu->kernels->winograd_forward(
            w, n_images, dy, state->conv.packed_rotated, &out, scratch->winograd);
        for (int j = 0; j < n_images; j++) {
            if (not_finite >> j & 1) {
                data_dense(state, scratch, dy + (size_t)j * state->n_linear,
                           dx + (size_t)j * state->n_in);
            }
        }
    }
}

static void data_sparse(const struct dt_block_state *state, struct dt_cpu_scratch *scratch,
                        const struct dt_nonzeros *from, struct dt_conv_lists *lists, float *dx)
{
    float *reached = state->conv.dx_direct ? dx : scratch->dx;
    state->cpu->kernels->conv_backward_data(&state->conv.shape, from, state->conv.packed_backward,
                                            lists, reached);
    if (reached != dx) {
        crop(state, reached, dx);
    }
}

/* A window of so few elements never pays for a list: multiplying all of the gradient costs about as
 * much as finding the zeros. */
#define FEW_ELEMENTS 27

static double in_vectors(int n, int vector)
{
    const size_t n_vectors = dt_round_up((size_t)n, (size_t)vector) / (size_t)vector;
    return (double)n_vectors;
}

/* Vector multiply-adds: all output gradients times `inner` floats of their windows, with `outer` in
 * vectors. */
static double dense_work(const struct dt_conv *conv, int inner, int outer, int vector)
{
    return (double)conv->out_h * conv->out_w * conv->kernel * conv->kernel * inner *
           in_vectors(outer, vector);
}

/* The same for lists, plus two per nonzero for bookkeeping. Measured: whole products with AVX-512
 * use 32 registers and are faster by that factor; others are no faster than lists. Either form is
 * within a fifth of the better one at any density. */
static double sparse_work(const struct dt_conv *conv, int vector, size_t n_nonzeros)
{
    const double pace = vector == DT_MAX_VECTOR ? 1.2 : 1.0;
    return (double)n_nonzeros * (pace * dt_conv_window(conv, vector) + 2);
}

/* Work of an image's gradients as dense operations; infinite for an algorithm that does not exist.
 */
struct dense_works {
    double weights, data;
    double winograd; /* for either, if neighbouring images share them */
};

static struct dense_works dense_works(const struct dt_cpu_conv *conv, int vector)
{
    const struct dt_conv *shape = &conv->shape,
                         *data = conv->winograd_rotated.used ? shape : &conv->rotated;
    struct dense_works work = {INFINITY, INFINITY, INFINITY};
    work.weights = dense_work(shape, shape->c, shape->k, vector);
    if (shape->stride == 1) { /* Winograd's algorithm is cheaper, and pays for no border */
        work.data = dense_work(data, shape->k, shape->c, vector);
    }
    if (conv->winograd_rotated.used) {
        work.winograd = conv->winograd_gradient.w.used ? conv->winograd_gradient.work
                                                       : fmax(work.weights, work.data);
    }
    return work;
}

/* Zeroes a sum at its first use. */
static float *begin_sum(float *sum, size_t n_elems, bool *used)
{
    if (!*used) {
        memset(sum, 0, n_elems * sizeof(float));
        *used = true;
    }
    return sum;
}

static void weights_dense(const struct dt_block_state *state, const float *x, const float *dy,
                          const float *y, struct dt_conv_sums *sums)
{
    const struct dt_conv *conv = &state->conv.shape;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    float *dw =
        begin_sum(sums->dense, dt_conv_dense_elems(conv, kernels->vector), &sums->dense_used);
    kernels->conv_weights_dense(conv, x, dy, y, dw, sums->bias);
}

/* Adds from lists, which hold the bias's gradient too. */
static void weights_sparse(const struct dt_block_state *state, const struct dt_conv_lists *lists,
                           const float *x, struct dt_conv_sums *sums)
{
    const struct dt_conv *conv = &state->conv.shape;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    float *dw = begin_sum(sums->sparse, dt_conv_packed_backward_elems(conv, kernels->vector),
                          &sums->sparse_used);
    kernels->conv_backward_weights(conv, lists, x, dw, sums->bias);
}

/* Finds a sample's nonzeros in dy, unless the forward pass has done so; returns their number. */
static size_t find_nonzeros(const struct dt_cpu_job *job, int sample, const float *dy,
                            struct dt_nonzeros *nonzeros)
{
    struct dt_block_state *state = job->state;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    const int n_k = state->conv.shape.k;
    nonzeros->value = dy;
    nonzeros->scale =
        state->conv.fuses_pool && state->block.dropout_rate > 0 ? state->tail.dropout_scale : 1;
    if (state->conv.fuses_pool) {
        nonzeros->bitmask =
            state->conv.bitmask + dt_cpu_kept(job->pass, sample, state->conv.n_words);
        return kernels->count_bits(state->conv.n_words, nonzeros->bitmask);
    }
    if (state->conv.nonzeros_pooled) {
        return kernels->nonzeros_pooled(&state->tail.pooling, dy,
                                        state->tail.winner +
                                            dt_cpu_kept(job->pass, sample, state->n_pooled),
                                        nonzeros->bitmask);
    }
    return kernels->nonzeros(state->n_linear / (size_t)n_k, n_k, dy, nonzeros->bitmask);
}

static const float *input_of(const struct dt_cpu_job *job, int sample,
                             struct dt_cpu_scratch *scratch)
{
    return dt_cpu_conv_input(job->state, job->x + (size_t)sample * job->state->n_in, scratch);
}

static void weights_winograd(const struct dt_cpu_job *job, int first, int n,
                             struct dt_conv_sums *sums, struct dt_cpu_scratch *scratch)
{
    const struct dt_block_state *state = job->state;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    float *dw = begin_sum(sums->dense, dt_conv_dense_elems(&state->conv.shape, kernels->vector),
                          &sums->dense_used);
    kernels->winograd_gradient(
        &state->conv.winograd_gradient, n, job->x + (size_t)first * state->n_in,
        job->dy + (size_t)first * state->n_linear, dw, sums->bias, scratch->winograd);
}

/* Both gradients of neighbouring samples, as dense operations. */
static void gradients_winograd(const struct dt_cpu_job *job, int first, int n,
                               struct dt_conv_sums *sums, struct dt_cpu_scratch *scratch)
{
    const struct dt_block_state *state = job->state;
    if (state->conv.winograd_gradient.w.used) {
        weights_winograd(job, first, n, sums, scratch);
    }
    for (int i = first; i < first + n && !state->conv.winograd_gradient.w.used; i++) {
        weights_dense(state, input_of(job, i, scratch), job->dy + (size_t)i * state->n_linear, NULL,
                      sums);
    }
    if (job->dx != NULL) {
        data_winograd(job, first, n, scratch);
    }
}

/* The weights' gradient of a first convolution with a pool: lists by filter suffice. Returns false,
 * with nothing done, for others, and where dense products are less work. */
static bool weights_pooled(const struct dt_cpu_job *job, int sample, struct dt_cpu_scratch *scratch,
                           const float *dy, struct dt_conv_sums *sums)
{
    const struct dt_block_state *state = job->state;
    const struct dt_conv *conv = &state->conv.shape;
    const struct dt_pooling *pool = &state->tail.pooling;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    if (job->dx != NULL || !state->conv.nonzeros_pooled || state->conv.fuses_pool ||
        pool->size_h * pool->size_w > DT_LISTED_PLACES || scratch->lists.band < conv->out_h) {
        return false;
    }
    const struct dense_works dense = dense_works(&state->conv, kernels->vector);
    if (sparse_work(conv, kernels->vector, kernels->count_nonzero(state->n_pooled, dy)) >
        dense.weights) {
        return false;
    }
    kernels->conv_list_pooled(conv, pool, dy,
                              state->tail.winner + dt_cpu_kept(job->pass, sample, state->n_pooled),
                              &scratch->lists);
    weights_sparse(state, &scratch->lists, input_of(job, sample, scratch), sums);
    return true;
}

/* Computes both gradients of a sample, each by the cheaper form. dy: the gradient in which
 * nonzeros are found. Returns true if it leaves them to be computed with its neighbours'. */
static bool both_gradients(const struct dt_cpu_job *job, int sample, struct dt_cpu_scratch *scratch,
                           const float *dy, struct dt_conv_sums *sums)
{
    struct dt_block_state *state = job->state;
    const struct dt_conv *conv = &state->conv.shape;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    struct dt_nonzeros nonzeros = scratch->nonzeros;
    if (weights_pooled(job, sample, scratch, dy, sums)) {
        return false;
    }
    const double sparse =
        sparse_work(conv, kernels->vector, find_nonzeros(job, sample, dy, &nonzeros));
    const struct dense_works dense = dense_works(&state->conv, kernels->vector);
    if (sparse > dense.winograd) {
        return true;
    }
    const bool dense_weights = sparse > dense.weights, dense_data = sparse > dense.data;
    const float *x = input_of(job, sample, scratch), *whole = dy; /* before the pool */
    float *dx = job->dx != NULL ? job->dx + (size_t)sample * state->n_in : NULL;
    if ((dense_weights || dense_data) && state->conv.nonzeros_pooled) {
        kernels->spread_nonzeros(conv, &nonzeros, scratch->linear);
        whole = scratch->linear;
    }
    if (dx != NULL && dense_data) {
        data_dense(state, scratch, whole, dx);
    } else if (dx != NULL) {
        data_sparse(state, scratch, &nonzeros, dense_weights ? NULL : &scratch->lists, dx);
    }
    if (dense_weights) {
        weights_dense(state, x, whole, NULL, sums);
        return false;
    }
    if (dx == NULL || dense_data) {
        kernels->conv_list(conv, &nonzeros, &scratch->lists);
    }
    weights_sparse(state, &scratch->lists, x, sums);
    return false;
}

/* Returns true if it leaves both gradients to be computed with its neighbours'. */
static bool conv_sample(const struct dt_cpu_job *job, int sample, struct dt_conv_sums *sums,
                        int thread)
{
    struct dt_block_state *state = job->state;
    const struct dt_conv *conv = &state->conv.shape;
    struct dt_cpu_scratch *scratch = &state->scratch[thread];
    const size_t at = (size_t)sample * state->n_pooled;
    if (job->dx == NULL && state->conv.masks_only &&
        conv->kernel * conv->kernel * conv->c <= FEW_ELEMENTS) {
        const float *y = state->block.activation == DT_ACTIVATION_RELU ? job->y + at : NULL;
        weights_dense(state, input_of(job, sample, scratch), job->dy + at, y, sums);
        return false;
    }
    return both_gradients(job, sample, scratch, dt_cpu_tail_backward(job, sample, thread), sums);
}

static void clear_sums(const struct dt_block_state *state, struct dt_conv_sums *sums)
{
    memset(sums->bias, 0,
           dt_conv_filters(&state->conv.shape, state->cpu->kernels->vector) * sizeof(float));
    sums->sparse_used = sums->dense_used = false;
}

static void conv_slice(void *context, int slice, int thread)
{
    const struct dt_cpu_job *job = context;
    struct dt_block_state *state = job->state;
    struct dt_conv_sums *sums = &state->conv.sums[slice];
    const int begin = job->begin + slice * state->conv.slice,
              end = dt_min(begin + state->conv.slice, job->n);
    clear_sums(state, sums);
    int n_left = 0; /* samples before this one, whose gradients wait for others */
    for (int sample = begin; sample < end; sample++) {
        const bool leaves = conv_sample(job, sample, sums, thread);
        n_left += leaves;
        if (n_left > 0 && (!leaves || sample + 1 == end)) {
            gradients_winograd(job, sample + leaves - n_left, n_left, sums,
                               &state->scratch[thread]);
            n_left = 0;
        }
        dt_cpu_poll(job->pass, thread);
    }
}

/* Reorders K C R S to C K R S, with R and S reversed. */
static void rotate_weights(const struct dt_conv *conv, const float *weight, float *rotated)
{
    const size_t n_k = (size_t)conv->k, n_c = (size_t)conv->c,
                 n_taps = (size_t)conv->kernel * (size_t)conv->kernel;
    for (size_t k = 0; k < n_k; k++) {
        for (size_t c = 0; c < n_c; c++) {
            for (size_t tap = 0; tap < n_taps; tap++) {
                rotated[(c * n_k + k) * n_taps + (n_taps - 1 - tap)] =
                    weight[(k * n_c + c) * n_taps + tap];
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
    kernels->conv_pack_backward(&state->conv.shape, job->params + state->weight_offset,
                                state->conv.packed_backward);
    if (state->conv.shape.stride == 1) {
        rotate_weights(&state->conv.shape, job->params + state->weight_offset,
                       state->conv.rotated_weight);
        kernels->conv_pack_forward(&state->conv.rotated, state->conv.rotated_weight,
                                   state->conv.rotated_packed);
        if (state->conv.winograd_rotated.used) {
            kernels->winograd_pack(&state->conv.winograd_rotated, state->conv.rotated_weight,
                                   state->conv.packed_rotated);
        }
    }
}

static void add_elems(size_t n, const float *from, float *to)
{
    for (size_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

static void add_sums(const struct dt_block_state *state, const struct dt_conv_sums *from,
                     struct dt_conv_sums *to)
{
    const struct dt_conv *conv = &state->conv.shape;
    const int vector = state->cpu->kernels->vector;
    const size_t n_sparse = dt_conv_packed_backward_elems(conv, vector),
                 n_dense = dt_conv_dense_elems(conv, vector);
    if (from->sparse_used) {
        add_elems(n_sparse, from->sparse, begin_sum(to->sparse, n_sparse, &to->sparse_used));
    }
    if (from->dense_used) {
        add_elems(n_dense, from->dense, begin_sum(to->dense, n_dense, &to->dense_used));
    }
    add_elems(dt_conv_filters(conv, vector), from->bias, to->bias);
}

/* Adds the sums to grads, in the arena's order. */
static void unpack_sums(const struct dt_block_state *state, const struct dt_conv_sums *sums,
                        float *grads)
{
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    if (sums->sparse_used) {
        kernels->conv_unpack_gradient(&state->conv.shape, sums->sparse,
                                      grads + state->weight_offset);
    }
    if (sums->dense_used) {
        kernels->conv_unpack_dense(&state->conv.shape, sums->dense, grads + state->weight_offset);
    }
    add_elems((size_t)state->conv.shape.k, sums->bias, grads + state->bias_offset);
}

void dt_cpu_conv_backward(struct dt_cpu_job *job)
{
    struct dt_block_state *state = job->state;
    const struct dt_pass *pass = job->pass;
    if (pass->first == 0) {
        pack_weights(job);
        clear_sums(state, &state->conv.total);
    }
    if (!pass->accumulate) {
        memset(job->grads + state->weight_offset, 0, state->n_weights * sizeof(float));
        memset(job->grads + state->bias_offset, 0, (size_t)state->conv.shape.k * sizeof(float));
    }
    for (job->begin = 0; job->begin < job->n;
         job->begin += state->conv.n_slices * state->conv.slice) {
        const int n_left = (job->n - job->begin + state->conv.slice - 1) / state->conv.slice,
                  n_slices = dt_min(n_left, state->conv.n_slices);
        dt_threads_run(state->cpu->threads, n_slices, conv_slice, job);
        for (int s = 0; s < n_slices; s++) {
            add_sums(state, &state->conv.sums[s], &state->conv.total);
        }
    }
    if (!pass->more) {
        unpack_sums(state, &state->conv.total, job->grads);
        clear_sums(state, &state->conv.total);
    }
}
