/* The algorithms of convolutions, and their tables (at the end): direct, by Winograd's method, in
 * bf16 by AMX; and for the gradients by lists of nonzeros, or dense. */
#include <string.h>

#include "cpu/block_state.h"

static const float *image_at(const struct dt_cpu_job *job, int sample)
{
    return job->x + (size_t)sample * job->state->n_in;
}

static const float *gradient_at(const struct dt_cpu_job *job, int sample)
{
    return job->dy + (size_t)sample * job->state->n_linear;
}

static float *data_at(const struct dt_cpu_job *job, int sample)
{
    return job->dx + (size_t)sample * job->state->n_in;
}

/* The zeros of the padded image's frame stay. */
static const float *input_of(const struct dt_cpu_job *job, int sample, int thread)
{
    const struct dt_block_state *state = job->state;
    const struct dt_block *b = &state->block;
    const size_t n_c = (size_t)b->in.c, row = (size_t)b->in.w * n_c,
                 to_row = (size_t)state->conv.shape.w * n_c;
    const float *x = job->x + (size_t)sample * state->n_in;
    float *padded = state->scratch[thread].padded,
          *to = padded + (size_t)b->pad_before_h * to_row + (size_t)b->pad_before_w * n_c;
    DT_ASSERT(b->pad_before_w + b->in.w <= state->conv.shape.w || !state->conv.pads);
    for (size_t h = 0; state->conv.pads && h < (size_t)b->in.h; h++) {
        memcpy(to + h * to_row, x + h * row, row * sizeof(float));
    }
    return state->conv.pads ? padded : x;
}

float *dt_conv_begin_sum(float *sum, size_t n_elems, bool *used)
{
    if (!*used) {
        memset(sum, 0, n_elems * sizeof(float));
        *used = true;
    }
    return sum;
}

size_t dt_cpu_conv_find_nonzeros(const struct dt_cpu_job *job, struct dt_conv_image *image,
                                 int thread)
{
    const struct dt_block_state *state = job->state;
    const struct dt_cpu_conv *conv = &state->conv;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    struct dt_nonzeros *nonzeros = &image->nonzeros;
    *nonzeros = state->scratch[thread].nonzeros;
    nonzeros->value = image->dy;
    nonzeros->scale =
        conv->fuses_pool && state->block.dropout_rate > 0 ? state->tail.dropout_scale : 1;
    if (conv->fuses_pool) { /* the forward pass has found them */
        nonzeros->bitmask = conv->bitmask + dt_cpu_kept(job->pass, image->sample, conv->n_words);
        return kernels->count_bits(conv->n_words, nonzeros->bitmask);
    }
    if (conv->nonzeros_pooled) {
        return kernels->nonzeros_pooled(&state->tail.pooling, image->dy,
                                        state->tail.winner +
                                            dt_cpu_kept(job->pass, image->sample, state->n_pooled),
                                        nonzeros->bitmask);
    }
    return kernels->nonzeros(state->n_linear / (size_t)conv->shape.k, conv->shape.k, image->dy,
                             nonzeros->bitmask);
}

/* ---- forward: direct */

static void direct_pack(struct dt_block_state *state, const float *weight)
{
    state->cpu->kernels->conv_pack_forward(&state->conv.shape, weight,
                                           state->conv.packed[DT_CONV_DIRECT]);
}

static uint32_t direct_run(const struct dt_cpu_job *job, int first, int n, int thread,
                           const struct dt_conv_outputs *out)
{
    const struct dt_cpu_conv *conv = &job->state->conv;
    (void)n; /* one image */
    job->state->cpu->kernels->conv_forward(&conv->shape, input_of(job, first, thread),
                                           conv->packed[DT_CONV_DIRECT], out->bias, out->relu,
                                           out->y);
    return 0;
}

static const struct dt_conv_forward direct = {.pack = direct_pack, .run = direct_run};

/* ---- a first layer with ReLU and a 2 x 2 max pool */

bool dt_conv_pools(const struct dt_block *b)
{
    return b->activation == DT_ACTIVATION_RELU && b->pool == DT_POOL_MAX && b->pool_h == 2 &&
           b->pool_w == 2 && b->pool_stride == 2;
}

static bool pooled_fits(struct dt_block_state *state)
{
    const struct dt_block *b = &state->block;
    return dt_conv_pools(b) && b->stride == 1 && b->in.c <= 3 && b->kernel >= 3 && b->kernel <= 7;
}

static uint32_t pooled_run(const struct dt_cpu_job *job, int first, int n, int thread,
                           const struct dt_conv_outputs *out)
{
    const struct dt_cpu_conv *conv = &job->state->conv;
    (void)n; /* one image */
    return !job->state->cpu->kernels->conv_forward_pooled(
        &conv->shape, input_of(job, first, thread), conv->packed[DT_CONV_DIRECT], out);
}

static const struct dt_conv_forward pooled = {
    .pools = true, .fits = pooled_fits, .pack = direct_pack, .run = pooled_run, .repeat = &direct};

/* ---- forward: Winograd's method, with the direct kernel's weights for images that it repeats */

static bool may_winograd(const struct dt_block *b)
{
    return b->kernel >= 3 && b->kernel <= DT_WINOGRAD_MAX_KERNEL && b->stride == 1;
}

static struct dt_winograd winograd_shape(const struct dt_block *b)
{
    return (struct dt_winograd){.c = b->in.c,
                                .h = b->in.h,
                                .w = b->in.w,
                                .top = b->pad_before_h,
                                .left = b->pad_before_w,
                                .k = b->linear_out.c,
                                .out_h = b->linear_out.h,
                                .out_w = b->linear_out.w,
                                .wider = b->kernel - 3};
}

static bool winograd_fits(struct dt_block_state *state)
{
    const struct dt_block *b = &state->block;
    struct dt_winograd *w = &state->conv.winograd;
    if (!may_winograd(b)) {
        return false;
    }
    *w = winograd_shape(b);
    dt_winograd_plan(w, state->cpu->kernels->vector);
    w->plain = b->activation == DT_ACTIVATION_NONE && b->pool == DT_POOL_NONE;
    if (w->used) {
        state->conv.n_packed[DT_CONV_WINOGRAD] = dt_winograd_packed_elems(w);
        state->conv.n_together = w->images;
        state->conv.n_work = dt_winograd_scratch_elems(w);
    }
    return w->used;
}

static void winograd_pack(struct dt_block_state *state, const float *weight)
{
    direct_pack(state, weight);
    state->cpu->kernels->winograd_pack(&state->conv.winograd, weight,
                                       state->conv.packed[DT_CONV_WINOGRAD]);
}

static uint32_t winograd_run(const struct dt_cpu_job *job, int first, int n, int thread,
                             const struct dt_conv_outputs *out)
{
    const struct dt_block_state *state = job->state;
    return state->cpu->kernels->winograd_forward(&state->conv.winograd, n, image_at(job, first),
                                                 state->conv.packed[DT_CONV_WINOGRAD], out,
                                                 state->scratch[thread].work);
}

static const struct dt_conv_forward winograd = {.pools = true,
                                                .fits = winograd_fits,
                                                .pack = winograd_pack,
                                                .run = winograd_run,
                                                .repeat = &direct};

/* ---- forward: bf16 */

static bool bf16_fits(struct dt_block_state *state)
{
    const struct dt_block *b = &state->block;
    state->conv.bf16 =
        (struct dt_bf16){.conv = state->conv.shape,
                         .in_h = b->in.h,
                         .in_w = b->in.w,
                         .top = b->pad_before_h,
                         .left = b->pad_before_w,
                         .used = state->cpu->bf16 != NULL && b->in.c >= DT_BF16_FEWEST};
    state->conv.n_packed[DT_CONV_BF16] = dt_bf16_packed_elems(&state->conv.bf16) / 2;
    return state->conv.bf16.used;
}

static void bf16_pack(struct dt_block_state *state, const float *weight)
{
    state->cpu->bf16->pack(&state->conv.bf16, weight,
                           (uint16_t *)(void *)state->conv.packed[DT_CONV_BF16]);
}

static uint32_t bf16_run(const struct dt_cpu_job *job, int first, int n, int thread,
                         const struct dt_conv_outputs *out)
{
    const struct dt_block_state *state = job->state;
    (void)n; /* one image */
    return !state->cpu->bf16->forward(&state->conv.bf16, image_at(job, first),
                                      (uint16_t *)(void *)state->conv.packed[DT_CONV_BF16], out,
                                      state->scratch[thread].bf16);
}

static const struct dt_conv_forward bf16 = {
    .pools = true, .fits = bf16_fits, .pack = bf16_pack, .run = bf16_run, .repeat = &bf16};

/* ---- both gradients: by lists of nonzeros. The weights' hold the bias's gradient too. */

/* Two per nonzero are for bookkeeping. Measured: whole products with AVX-512 use 32 registers and
 * are faster by that factor; others are no faster than lists. Either form is within a fifth of the
 * better one at any density. */
static double lists_cost(const struct dt_block_state *state, size_t n_nonzeros)
{
    const int vector = state->cpu->kernels->vector;
    const double pace = vector == DT_MAX_VECTOR ? 1.2 : 1.0;
    return (double)n_nonzeros * (pace * dt_conv_window(&state->conv.shape, vector) + 2);
}

static void lists_pack(struct dt_block_state *state, const float *weight)
{
    state->cpu->kernels->conv_pack_backward(&state->conv.shape, weight,
                                            state->conv.packed[DT_CONV_LISTS]);
}

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

static void lists_data(const struct dt_cpu_job *job, struct dt_conv_image *image, int n, int thread,
                       struct dt_conv_sums *sums)
{
    const struct dt_block_state *state = job->state;
    struct dt_cpu_scratch *scratch = &state->scratch[thread];
    float *dx = data_at(job, image->sample), *reached = scratch->dx != NULL ? scratch->dx : dx;
    (void)n;
    (void)sums;
    state->cpu->kernels->conv_backward_data(&state->conv.shape, &image->nonzeros,
                                            state->conv.packed[DT_CONV_LISTS],
                                            image->wants_lists ? &scratch->lists : NULL, reached);
    image->listed = image->wants_lists;
    if (reached != dx) {
        crop(state, reached, dx);
    }
}

static void lists_weights(const struct dt_cpu_job *job, struct dt_conv_image *image, int n,
                          int thread, struct dt_conv_sums *sums)
{
    const struct dt_block_state *state = job->state;
    const struct dt_conv *conv = &state->conv.shape;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    const struct dt_conv_lists *lists = &state->scratch[thread].lists;
    (void)n;
    if (!image->listed) {
        kernels->conv_list(conv, &image->nonzeros, lists);
    }
    float *dw = dt_conv_begin_sum(
        sums->sparse, dt_conv_packed_backward_elems(conv, kernels->vector), &sums->sparse_used);
    kernels->conv_backward_weights(conv, lists, input_of(job, image->sample, thread), dw,
                                   sums->bias);
}

static const struct dt_conv_gradient data_by_lists = {.cost = lists_cost,
                                                      .pack = lists_pack,
                                                      .run = lists_data},
                                     weights_by_lists = {.reads_lists = true,
                                                         .cost = lists_cost,
                                                         .run = lists_weights};

/* ---- the weights' gradient: dense */

/* All output gradients times `inner` floats of their windows, with `outer` in vectors. */
static double dense_work(const struct dt_conv *conv, int inner, int outer, int vector)
{
    return (double)conv->out_h * conv->out_w * conv->kernel * conv->kernel * inner *
           dt_cut_count(outer, vector);
}

static double dense_cost(const struct dt_block_state *state, size_t n_nonzeros)
{
    const struct dt_conv *conv = &state->conv.shape;
    (void)n_nonzeros;
    return dense_work(conv, conv->c, conv->k, state->cpu->kernels->vector);
}

static float *dense_sum(const struct dt_block_state *state, struct dt_conv_sums *sums)
{
    const size_t n = dt_conv_dense_elems(&state->conv.shape, state->cpu->kernels->vector);
    return dt_conv_begin_sum(sums->dense, n, &sums->dense_used);
}

static void dense_run(const struct dt_cpu_job *job, struct dt_conv_image *image, int n, int thread,
                      struct dt_conv_sums *sums)
{
    const struct dt_block_state *state = job->state;
    const struct dt_conv *conv = &state->conv.shape;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    const float *dy = image->dy;
    (void)n;
    if (state->conv.nonzeros_pooled) { /* the gradient before the pool */
        kernels->spread_nonzeros(conv, &image->nonzeros, state->scratch[thread].linear);
        dy = state->scratch[thread].linear;
    }
    kernels->conv_weights_dense(conv, input_of(job, image->sample, thread), dy, image->y,
                                dense_sum(state, sums), sums->bias);
}

static bool weights_pooled_fits(struct dt_block_state *state)
{
    const int vector = state->cpu->kernels->vector;
    if (state->conv.forward != &pooled || vector < 8) { /* it permutes by AVX */
        return false;
    }
    state->conv.n_work = dt_conv_pooled_elems(&state->conv.shape, vector);
    return true;
}

/* One position of four counts, by a permutation and a multiply-add; blank windows are skipped.
 * Measured with 8 lanes: on windows of so few pixels lists are faster only below 4 % of nonzeros,
 * because finding those takes longest. */
static double weights_pooled_cost(const struct dt_block_state *state, size_t n_nonzeros)
{
    return dense_cost(state, n_nonzeros) / (state->cpu->kernels->vector == 8 ? 12 : 4);
}

static void weights_pooled_run(const struct dt_cpu_job *job, struct dt_conv_image *image, int n,
                               int thread, struct dt_conv_sums *sums)
{
    const struct dt_block_state *state = job->state;
    (void)n;
    state->cpu->kernels->conv_weights_pooled(
        &state->conv.shape, &image->nonzeros, input_of(job, image->sample, thread),
        dense_sum(state, sums), sums->bias, state->scratch[thread].work);
}

static const struct dt_conv_gradient weights_pooled = {
    .fits = weights_pooled_fits, .cost = weights_pooled_cost, .run = weights_pooled_run};
static const struct dt_conv_gradient weights_dense = {.cost = dense_cost, .run = dense_run};

/* ---- the same, fused with ReLU: few channels of a first layer */

/* A window of so few elements never pays for a list: multiplying all of the gradient costs about as
 * much as finding the zeros. */
#define FEW_ELEMENTS 27

static bool masked_fits(struct dt_block_state *state)
{
    const struct dt_block *b = &state->block;
    return b->pool == DT_POOL_NONE && b->dropout_rate == 0 && !state->tail.reorders &&
           (b->activation == DT_ACTIVATION_NONE || b->activation == DT_ACTIVATION_RELU) &&
           b->kernel * b->kernel * b->in.c <= FEW_ELEMENTS;
}

static const struct dt_conv_gradient weights_masked = {.fits = masked_fits, .run = dense_run};

/* ---- both gradients: Winograd's method, for neighbouring images */

static bool winograd_data_fits(struct dt_block_state *state)
{
    const struct dt_block *b = &state->block;
    struct dt_winograd *w = &state->conv.winograd_dx;
    if (!may_winograd(b) || b->pool != DT_POOL_NONE || state->tail.reorders) {
        return false; /* the gradient of neighbours must lie where the outputs did */
    }
    *w = (struct dt_winograd){.c = b->linear_out.c,
                              .h = b->linear_out.h,
                              .w = b->linear_out.w,
                              .top = b->kernel - 1 - b->pad_before_h,
                              .left = b->kernel - 1 - b->pad_before_w,
                              .k = b->in.c,
                              .out_h = b->in.h,
                              .out_w = b->in.w,
                              .wider = b->kernel - 3};
    dt_winograd_plan(w, state->cpu->kernels->vector);
    w->plain = true;
    w->skips_uniform = false;
    if (w->used) {
        state->conv.n_packed[DT_CONV_WINOGRAD_DX] = dt_winograd_packed_elems(w);
        state->conv.n_packed[DT_CONV_ROTATED] = state->n_weights;
        state->conv.n_work = dt_max_size(state->conv.n_work, dt_winograd_scratch_elems(w));
    }
    return w->used;
}

/* Beside direct products for the weights it must be cheaper than the dearer gradient. */
static double winograd_cost(const struct dt_block_state *state, size_t n_nonzeros)
{
    const struct dt_conv *conv = &state->conv.shape;
    const double data = dense_work(conv, conv->k, conv->c, state->cpu->kernels->vector),
                 weights = dense_cost(state, n_nonzeros);
    return state->conv.winograd_dw.w.used ? state->conv.winograd_dw.work
           : data > weights               ? data
                                          : weights;
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

static void winograd_data_pack(struct dt_block_state *state, const float *weight)
{
    struct dt_cpu_conv *conv = &state->conv;
    rotate_weights(&conv->shape, weight, conv->packed[DT_CONV_ROTATED]);
    state->cpu->kernels->winograd_pack(&conv->winograd_dx, conv->packed[DT_CONV_ROTATED],
                                       conv->packed[DT_CONV_WINOGRAD_DX]);
}

/* dx is a forward convolution of the output's gradient by the weights rotated by 180 degrees.
 * Images that are not finite are repeated by lists. */
static void winograd_data_run(const struct dt_cpu_job *job, struct dt_conv_image *image, int n,
                              int thread, struct dt_conv_sums *sums)
{
    const struct dt_block_state *state = job->state;
    const struct dt_winograd *w = &state->conv.winograd_dx;
    for (int i = 0, n_images; i < n; i += n_images) {
        const int first = image->sample + i;
        n_images = dt_min(n - i, w->images);
        const struct dt_conv_outputs out = {.bias = state->conv.no_bias, .y = data_at(job, first)};
        const uint32_t not_finite = state->cpu->kernels->winograd_forward(
            w, n_images, gradient_at(job, first), state->conv.packed[DT_CONV_WINOGRAD_DX], &out,
            state->scratch[thread].work);
        for (int j = 0; j < n_images; j++) {
            if (not_finite >> j & 1) {
                struct dt_conv_image one = {.sample = first + j, .dy = gradient_at(job, first + j)};
                dt_cpu_conv_find_nonzeros(job, &one, thread);
                lists_data(job, &one, 1, thread, sums);
            }
        }
    }
}

static bool winograd_weights_fits(struct dt_block_state *state)
{
    struct dt_winograd_gradient *g = &state->conv.winograd_dw;
    g->w = winograd_shape(&state->block);
    if (state->conv.winograd_dx.used && state->block.kernel == 3) {
        dt_winograd_plan_gradient(g, state->conv.slice, state->cpu->kernels->vector);
    }
    if (g->w.used) {
        state->conv.n_work = dt_max_size(state->conv.n_work, dt_winograd_gradient_scratch_elems(g));
    }
    return g->w.used;
}

static void winograd_weights_run(const struct dt_cpu_job *job, struct dt_conv_image *image, int n,
                                 int thread, struct dt_conv_sums *sums)
{
    const struct dt_block_state *state = job->state;
    const int first = image->sample;
    state->cpu->kernels->winograd_gradient(&state->conv.winograd_dw, n, image_at(job, first),
                                           gradient_at(job, first), dense_sum(state, sums),
                                           sums->bias, state->scratch[thread].work);
}

static const struct dt_conv_gradient data_by_winograd = {.together = true,
                                                         .fits = winograd_data_fits,
                                                         .cost = winograd_cost,
                                                         .pack = winograd_data_pack,
                                                         .run = winograd_data_run},
                                     weights_by_winograd = {.together = true,
                                                            .fits = winograd_weights_fits,
                                                            .cost = winograd_cost,
                                                            .run = winograd_weights_run};

/* ---- the tables */

const struct dt_conv_forward *const dt_conv_forwards[] = {&bf16, &pooled, &winograd, &direct, NULL};
const struct dt_conv_gradient *const dt_conv_fused[] = {&weights_masked, NULL};
const struct dt_conv_gradient *const dt_conv_data[] = {&data_by_winograd, &data_by_lists, NULL};
const struct dt_conv_gradient *const dt_conv_weights[] = {&weights_by_winograd, &weights_pooled,
                                                          &weights_dense, &weights_by_lists, NULL};

#define FITS(list, field) (sizeof(list) <= sizeof((struct dt_cpu_conv *)NULL)->field)
_Static_assert(FITS(dt_conv_weights, dw) && FITS(dt_conv_data, dx) && FITS(dt_conv_fused, fused),
               "a block's lists hold all algorithms");
