#include "cpu/cpu_block_state.h"

#include <string.h>

#include "base/rng.h"

/* Activation, pool, dropout and flatten of one sample; `linear` is the linear operation's output and may be changed. */
static void finish_sample(const struct dt_cpu_job *job, int sample, int thread, float *linear, bool activated)
{
    struct dt_block_state *state = job->state;
    const struct dt_block *b = &state->block;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    const size_t kept = dt_cpu_kept(job->pass, sample, state->n_pooled);
    float *y = job->y_out + (size_t)sample * state->n_pooled;
    float *pooled = state->turns ? state->scratch[thread].pooled : y;
    if (!activated) {
        kernels->activate(b->activation, state->n_linear, linear);
    }
    if (b->pool == DT_POOL_MAX) {
        kernels->max_pool(&state->pooling, linear, pooled, job->pass->training ? state->winner + kept : NULL);
    } else if (b->pool == DT_POOL_AVG) {
        kernels->avg_pool(&state->pooling, linear, pooled);
    }
    if (b->dropout_rate > 0 && job->pass->training) {
        const struct dt_dropout_key key = {.seed = job->pass->seed,
                                           .stream = b->dropout_stream,
                                           .epoch = job->pass->batch->epoch,
                                           .sample = job->pass->batch->ids[sample],
                                           .threshold = dt_dropout_threshold(b->dropout_rate)};
        kernels->dropout_mask(&key, state->n_pooled, state->keep + kept);
        kernels->dropout(state->n_pooled, state->keep + kept, state->dropout_scale, pooled);
    }
    if (state->turns) {
        kernels->transpose((size_t)b->pool_out.h * (size_t)b->pool_out.w, (size_t)b->pool_out.c, pooled, y);
    }
}

/* Where a sample's linear operation writes: as far down the block as nothing lies in between. */
static float *linear_output(const struct dt_cpu_job *job, int sample, int thread)
{
    struct dt_block_state *state = job->state;
    if (state->activated != NULL) {
        return state->activated + dt_cpu_kept(job->pass, sample, state->n_linear);
    }
    if (state->block.pool != DT_POOL_NONE) {
        return state->scratch[thread].linear;
    }
    return state->turns ? state->scratch[thread].pooled : job->y_out + (size_t)sample * state->n_pooled;
}

static void conv_sample(void *context, int sample, int thread)
{
    const struct dt_cpu_job *job = context;
    struct dt_block_state *state = job->state;
    const bool relu = state->block.activation == DT_ACTIVATION_RELU;
    const float *x = dt_cpu_conv_input(state, job->x + (size_t)sample * state->n_in, &state->scratch[thread]);
    float *linear = linear_output(job, sample, thread);
    state->cpu->kernels->conv_forward(&state->conv, x, state->packed_forward, job->params + state->bias_offset, relu, linear);
    finish_sample(job, sample, thread, linear, relu);
    dt_cpu_poll(job->pass, thread);
}

static void plain_sample(void *context, int sample, int thread)
{
    const struct dt_cpu_job *job = context;
    const size_t n_in = job->state->n_in;
    float *linear = linear_output(job, sample, thread);
    memcpy(linear, job->x + (size_t)sample * n_in, n_in * sizeof(float));
    finish_sample(job, sample, thread, linear, false);
    dt_cpu_poll(job->pass, thread);
}

/* Each thread takes one run of samples, so that the weights pass through its caches once. */
static void dense_part(void *context, int part, int thread)
{
    const struct dt_cpu_job *job = context;
    struct dt_block_state *state = job->state;
    const int n_parts = dt_threads_count(state->cpu->threads);
    const int begin = (int)((int64_t)job->n * part / n_parts), end = (int)((int64_t)job->n * (part + 1) / n_parts);
    const float *x = job->x + (size_t)begin * state->n_in;
    float *y = job->y_out + (size_t)begin * state->n_linear;
    if (begin < end) {
        state->cpu->kernels->gemm_nt(end - begin, (int)state->n_linear, (int)state->n_in, x, job->params + state->weight_offset,
                                     job->params + state->bias_offset, y);
    }
    for (int sample = begin; sample < end; sample++, y += state->n_linear) {
        finish_sample(job, sample, thread, y, false);
    }
    dt_cpu_poll(job->pass, thread);
}

enum dt_status dt_cpu_block_forward(struct dt_block_state *state, const float *params, const float *x, float *y,
                                    const struct dt_pass *pass)
{
    struct dt_threads *threads = state->cpu->threads;
    struct dt_cpu_job job = {.state = state, .pass = pass, .params = params, .x = x, .y_out = y, .n = pass->batch->n};
    if (job.n == 0) {
        return DT_OK;
    }
    switch (state->block.linear) {
    case DT_LINEAR_CONV:
        if (pass->first == 0) {
            state->cpu->kernels->conv_pack_forward(&state->conv, params + state->weight_offset, state->packed_forward);
        }
        dt_threads_run(threads, job.n, conv_sample, &job);
        break;
    case DT_LINEAR_DENSE:
        dt_threads_run(threads, dt_threads_count(threads), dense_part, &job);
        break;
    case DT_LINEAR_NONE:
        dt_threads_run(threads, job.n, plain_sample, &job);
        break;
    }
    return DT_OK;
}
