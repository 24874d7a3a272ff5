#include "cpu/block_state.h"

#include <string.h>

/* The buffer that a sample's linear operation writes: the last one that needs no further step. */
static float *linear_output(const struct dt_cpu_job *job, int sample, int thread)
{
    struct dt_block_state *state = job->state;
    if (state->block.pool != DT_POOL_NONE) {
        return state->scratch[thread].linear;
    }
    return state->tail.reorders ? state->scratch[thread].pooled
                                : job->y_out + (size_t)sample * state->n_pooled;
}

static void conv_sample(void *context, int sample, int thread)
{
    const struct dt_cpu_job *job = context;
    struct dt_block_state *state = job->state;
    const bool relu = state->block.activation == DT_ACTIVATION_RELU;
    const float *x =
        dt_cpu_conv_input(state, job->x + (size_t)sample * state->n_in, &state->scratch[thread]);
    float *linear = linear_output(job, sample, thread);
    state->cpu->kernels->conv_forward(&state->conv.shape, x, state->conv.packed_forward,
                                      job->params + state->bias_offset, relu, linear);
    dt_cpu_tail_forward(job, sample, thread, linear, relu);
    dt_cpu_poll(job->pass, thread);
}

/* Convolves neighbouring samples. Returns a bit for each whose outputs are unusable, because they
 * are not all finite. */
static uint32_t images_forward(const struct dt_cpu_job *job, int first, int n, int thread,
                               const struct dt_conv_outputs *out)
{
    struct dt_block_state *state = job->state;
    struct dt_cpu_scratch *scratch = &state->scratch[thread];
    const float *x = job->x + (size_t)first * state->n_in;
    if (state->conv.bf16.used) { /* one image */
        return state->cpu->bf16->forward(&state->conv.bf16, x, state->conv.packed_bf16, out,
                                         scratch->bf16)
                   ? 0
                   : 1;
    }
    const struct dt_winograd *w = &state->conv.winograd;
    return state->cpu->kernels->winograd_forward(w, n, x, state->conv.packed_winograd, out,
                                                 scratch->winograd);
}

/* Neighbouring samples through convolution, ReLU, pool, dropout and flatten at once. Returns a bit
 * for each that is not finite. */
static uint32_t images_to_pool(const struct dt_cpu_job *job, int first, int n, int thread)
{
    struct dt_block_state *state = job->state;
    const struct dt_block *b = &state->block;
    const size_t n_pooled = state->n_pooled;
    const bool drops = b->dropout_rate > 0 && job->pass->training;
    float *y = job->y_out + (size_t)first * n_pooled,
          *pooled = state->tail.reorders ? state->scratch[thread].pooled : y;
    uint8_t *mask = state->scratch[thread].mask;
    uint64_t *bitmask = state->conv.bitmask + dt_cpu_kept(job->pass, first, state->conv.n_words);
    const struct dt_conv_outputs out = {.bias = job->params + state->bias_offset,
                                        .relu = true,
                                        .pool = true,
                                        .y = pooled,
                                        .next = state->tail.reorders ? y : y + (size_t)n * n_pooled,
                                        .bitmask = job->pass->training ? bitmask : NULL,
                                        .mask = drops ? mask : NULL,
                                        .scale = state->tail.dropout_scale};
    for (int i = 0; drops && i < n; i++) {
        dt_cpu_draw_mask(job, first + i, mask + (size_t)i * n_pooled);
    }
    const uint32_t not_finite = images_forward(job, first, n, thread, &out);
    for (size_t i = 0; state->tail.reorders && i < (size_t)n; i++) {
        dt_cpu_reorder(job, pooled + i * n_pooled, y + i * n_pooled);
    }
    return not_finite;
}

static uint32_t images_to_linear(const struct dt_cpu_job *job, int first, int n, int thread)
{
    struct dt_block_state *state = job->state;
    const bool relu = state->block.activation == DT_ACTIVATION_RELU;
    const struct dt_conv_outputs out = {.bias = job->params + state->bias_offset,
                                        .relu = relu,
                                        .y = linear_output(job, first, thread)};
    const uint32_t not_finite = images_forward(job, first, n, thread, &out);
    for (int i = 0; i < n; i++) {
        dt_cpu_tail_forward(job, first + i, thread, out.y + (size_t)i * state->n_linear, relu);
    }
    return not_finite;
}

/* Processes a few neighbouring samples, and repeats those that are not finite without the fast
 * path. */
static void images_item(void *context, int item, int thread)
{
    const struct dt_cpu_job *job = context;
    const struct dt_block_state *state = job->state;
    const int n_images = state->conv.n_together, first = item * n_images;
    const int n = job->n - first < n_images ? job->n - first : n_images;
    const uint32_t not_finite = state->conv.fuses_pool ? images_to_pool(job, first, n, thread)
                                                       : images_to_linear(job, first, n, thread);
    for (int i = 0; i < n; i++) {
        if (not_finite >> i & 1 && state->conv.bf16.used) {
            images_to_linear(job, first + i, 1, thread);
        } else if (not_finite >> i & 1) {
            conv_sample(context, first + i, thread);
        }
    }
    dt_cpu_poll(job->pass, thread);
}

static void pack_weights(const struct dt_block_state *state, const float *weight)
{
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    if (state->conv.bf16.used) {
        state->cpu->bf16->pack(&state->conv.bf16, weight, state->conv.packed_bf16);
        return;
    }
    kernels->conv_pack_forward(&state->conv.shape, weight, state->conv.packed_forward);
    if (state->conv.winograd.used) {
        kernels->winograd_pack(&state->conv.winograd, weight, state->conv.packed_winograd);
    }
}

static void conv_forward(struct dt_cpu_job *job)
{
    struct dt_block_state *state = job->state;
    const int n_images = state->conv.n_together;
    if (job->pass->first == 0) {
        pack_weights(state, job->params + state->weight_offset);
    }
    if (state->conv.winograd.used || state->conv.bf16.used) {
        dt_threads_run(state->cpu->threads, (job->n + n_images - 1) / n_images, images_item, job);
    } else {
        dt_threads_run(state->cpu->threads, job->n, conv_sample, job);
    }
}

static void plain_sample(void *context, int sample, int thread)
{
    const struct dt_cpu_job *job = context;
    const size_t n_in = job->state->n_in;
    float *linear = linear_output(job, sample, thread);
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
        conv_forward(&job);
        break;
    case DT_LINEAR_DENSE:
        dt_threads_run(threads, dt_threads_count(threads), dense_part, &job);
        dt_threads_run(threads, job.n, dense_sample, &job);
        break;
    case DT_LINEAR_NONE:
        dt_threads_run(threads, job.n, plain_sample, &job);
        break;
    }
    return DT_OK;
}
