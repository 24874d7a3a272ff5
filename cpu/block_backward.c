#include "cpu/block_state.h"

#include <string.h>

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
    dt_threads_run(state->cpu->threads,
                   (int)((state->n_in + DT_DENSE_COLUMNS - 1) / DT_DENSE_COLUMNS), dense_columns,
                   job);
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
    const float *dz = dt_cpu_tail_backward(job, sample, thread);
    memcpy(job->dx + (size_t)sample * n_in, dz, n_in * sizeof(float));
    dt_cpu_poll(job->pass, thread);
}

/* Writes the gradients of an empty batch. */
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
    if (job.n == 0) {
        clear_gradients(&job);
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
            dt_threads_run(state->cpu->threads, job.n, plain_sample, &job);
        }
        break;
    }
    return DT_OK;
}
