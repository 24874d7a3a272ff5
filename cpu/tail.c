/* One sample through the part of a block after its linear operation, forward and backward. */
#include <string.h>

#include "base/rng.h"
#include "cpu/block_state.h"

float *dt_cpu_linear_output(const struct dt_cpu_job *job, int sample, int thread)
{
    struct dt_block_state *state = job->state;
    if (state->block.pool != DT_POOL_NONE) {
        return state->scratch[thread].linear;
    }
    return state->tail.reorders ? state->scratch[thread].pooled
                                : job->y_out + (size_t)sample * state->n_pooled;
}

void dt_cpu_draw_mask(const struct dt_cpu_job *job, int sample, uint8_t *mask)
{
    DT_ASSERT(job->pass->training && sample >= 0 && sample < job->pass->batch->n);
    const struct dt_block_state *state = job->state;
    const struct dt_block *b = &state->block;
    const struct dt_dropout_key key = {.seed = job->pass->seed,
                                       .stream = b->dropout_stream,
                                       .epoch = job->pass->batch->epoch,
                                       .sample = job->pass->batch->ids[sample],
                                       .threshold = dt_dropout_threshold(b->dropout_rate)};
    state->cpu->kernels->dropout_mask(&key, state->n_pooled, mask);
}

void dt_cpu_reorder(const struct dt_cpu_job *job, const float *pooled, float *y)
{
    const struct dt_shape shape = job->state->block.pool_out;
    job->state->cpu->kernels->transpose((size_t)shape.h * (size_t)shape.w, (size_t)shape.c, 1,
                                        pooled, y);
}

/* The bitmask of a sample that was computed without the fused path: winners with positive output
 * after pool and dropout. NaN is not positive. */
static void note_nonzeros(const struct dt_cpu_job *job, int sample, int thread, const float *pooled)
{
    struct dt_block_state *state = job->state;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    float *positive = state->scratch[thread].linear; /* no longer needed */
    memcpy(positive, pooled, state->n_pooled * sizeof(float));
    kernels->activate_backward(DT_ACTIVATION_RELU, state->n_pooled, pooled, 1, positive);
    kernels->nonzeros_pooled(&state->tail.pooling, positive, state->scratch[thread].winner,
                             state->conv.bitmask +
                                 dt_cpu_kept(job->pass, sample, state->conv.n_words));
}

void dt_cpu_tail_forward(const struct dt_cpu_job *job, int sample, int thread, float *linear,
                         bool activated)
{
    DT_ASSERT(sample >= 0 && sample < job->n);
    struct dt_block_state *state = job->state;
    const struct dt_block *b = &state->block;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    struct dt_cpu_scratch *scratch = &state->scratch[thread];
    const size_t kept = dt_cpu_kept(job->pass, sample, state->n_pooled);
    float *slope = state->tail.has_slope && job->pass->training
                       ? state->tail.slope + dt_cpu_kept(job->pass, sample, state->n_linear)
                       : NULL;
    float *y = job->y_out + (size_t)sample * state->n_pooled;
    float *pooled = b->pool == DT_POOL_NONE ? linear : state->tail.reorders ? scratch->pooled : y;
    if (!activated || slope != NULL) { /* relu twice is relu */
        kernels->activate(b->activation, state->n_linear, linear, slope);
    }
    if (b->pool == DT_POOL_MAX) {
        uint16_t *winner = state->conv.fuses_pool ? scratch->winner : state->tail.winner + kept;
        kernels->max_pool(&state->tail.pooling, linear, pooled,
                          job->pass->training ? winner : NULL);
    } else if (b->pool == DT_POOL_AVG) {
        kernels->avg_pool(&state->tail.pooling, linear, pooled);
    }
    if (b->dropout_rate > 0 && job->pass->training) {
        uint8_t *mask = state->conv.fuses_pool ? scratch->mask : state->tail.mask + kept;
        dt_cpu_draw_mask(job, sample, mask);
        kernels->dropout(state->n_pooled, mask, state->tail.dropout_scale, pooled);
    }
    if (state->conv.fuses_pool && job->pass->training) {
        note_nonzeros(job, sample, thread, pooled);
    }
    if (state->tail.reorders) {
        dt_cpu_reorder(job, pooled, y);
    }
}

float *dt_cpu_tail_backward(const struct dt_cpu_job *job, int sample, int thread)
{
    DT_ASSERT(job->pass->training && sample >= 0 && sample < job->n);
    struct dt_block_state *state = job->state;
    const struct dt_block *b = &state->block;
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    struct dt_cpu_scratch *scratch = &state->scratch[thread];
    const size_t at = (size_t)sample * state->n_pooled,
                 kept = dt_cpu_kept(job->pass, sample, state->n_pooled);
    float *dy = job->dy + at;
    if (!state->conv.fuses_pool &&
        !state->tail.has_slope) { /* elementwise, so y's order does not matter */
        kernels->activate_backward(b->activation, state->n_pooled, job->y + at,
                                   1.0f - b->dropout_rate, dy);
    }
    if (state->tail.reorders) {
        kernels->transpose((size_t)b->pool_out.c, (size_t)b->pool_out.h * (size_t)b->pool_out.w, 1,
                           dy, scratch->pooled);
        dy = scratch->pooled;
    }
    if (state->conv.fuses_pool) {
        return dy;
    }
    if (b->dropout_rate > 0) {
        kernels->dropout(state->n_pooled, state->tail.mask + kept, state->tail.dropout_scale, dy);
    }
    if (b->pool == DT_POOL_MAX && !state->conv.nonzeros_pooled) {
        kernels->max_pool_backward(&state->tail.pooling, dy, state->tail.winner + kept,
                                   scratch->linear);
        dy = scratch->linear;
    } else if (b->pool == DT_POOL_AVG) {
        kernels->avg_pool_backward(&state->tail.pooling, dy, scratch->linear);
        dy = scratch->linear;
    }
    if (state->tail.has_slope) {
        kernels->multiply(state->n_linear,
                          state->tail.slope + dt_cpu_kept(job->pass, sample, state->n_linear), dy);
    }
    return dy;
}
