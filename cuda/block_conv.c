#include "cuda/block_state.h"

#include <stdio.h>

#include "cuda/cuda_check.h"
#include "cuda/cudnn/engine_trial.h"

#define TRIAL_LIMIT_S 60 /* for each wait on work that takes milliseconds */
#define FUSED_GAIN_US 2  /* that a plan with bias and relu must gain: less may be chance */

_Static_assert(DT_CONV_N_KINDS <= DT_DEVICE_MAX_ENGINES, "a block's engines fit into the report");

static bool is_beside(const struct dt_block_state *state, enum dt_conv_kind kind)
{
    return kind == DT_CONV_FILTER_GRADIENT && !state->is_first;
}

static enum dt_cuda_scratch_use workspace_of(const struct dt_block_state *state,
                                             enum dt_conv_kind kind)
{
    return is_beside(state, kind) ? DT_CUDA_SCRATCH_GRADIENT_WORKSPACE : DT_CUDA_SCRATCH_WORKSPACE;
}

/* Depends on the GPU's total memory, not on free memory: another engine would give other bits. */
static size_t workspace_limit(const struct dt_cuda *cuda)
{
    const size_t most = (size_t)2 << 30, part = cuda->gpu.total_bytes / 16;
    return part < most ? part : most;
}

static void close_plan(struct dt_block_state *state, enum dt_conv_kind kind)
{
    dt_conv_plan_close(state->plans[kind]);
    state->plans[kind] = NULL;
}

static enum dt_status open_plan(struct dt_block_state *state, enum dt_conv_kind kind)
{
    struct dt_cuda *cuda = state->cuda;
    const struct dt_cuda_lane *lane =
        is_beside(state, kind) ? dt_block_weight_lane(state) : &cuda->main;
    const bool one = cuda->deterministic &&
                     kind != DT_CONV_FORWARD_RELU; /* not every engine of that kind is usable */
    const struct dt_conv_target target = {.handle = lane->cudnn,
                                          .workspace_limit = workspace_limit(cuda),
                                          .n_engines = one ? 1 : DT_MAX_ENGINES};
    const struct dt_engine_trial_spec trial = {
        .stream = lane->stream,
        .limit_s = TRIAL_LIMIT_S,
        .timed = !cuda->deterministic,
        .alive = cuda->alive,
        .tail = kind == DT_CONV_FORWARD && state->plan.is_plain_conv ? &state->tail : NULL,
        .n = state->capacity,
        .type = cuda->type};
    DT_TRY(dt_conv_plan_open(&target, kind, &state->block, state->capacity, cuda->precision,
                             &state->plans[kind]));
    const enum dt_status s = dt_engine_trial(state->plans[kind], &trial);
    cuda->lost = cuda->lost || s == DT_STALLED;
    if (s == DT_UNAVAILABLE) {
        close_plan(state, kind);
    }
    return s;
}

static enum dt_status keep_plan(struct dt_block_state *state, enum dt_conv_kind kind)
{
    struct dt_cuda *cuda = state->cuda;
    const struct dt_engine *engine = dt_conv_plan_engine(state->plans[kind]);
    if (engine->unrecorded) {
        snprintf(cuda->unrecorded, sizeof cuda->unrecorded,
                 "cuDNN's engine %lld, of the %s of %s, cannot be part of a CUDA graph",
                 (long long)engine->number, state->plans[kind]->name, state->block.name);
    }
    return dt_cuda_reserve_scratch(state->cuda, workspace_of(state, kind), state->block.name,
                                   engine->workspace_bytes);
}

/* Whether the plan that does bias and relu too saves time. With fixed engines nothing is timed. */
static bool gains(const struct dt_block_state *state)
{
    const struct dt_conv_plan *plain = state->plans[DT_CONV_FORWARD],
                              *fused = state->plans[DT_CONV_FORWARD_RELU];
    return plain == NULL || dt_conv_plan_engine(plain)->us == 0 ||
           dt_conv_plan_engine(fused)->us + FUSED_GAIN_US < dt_conv_plan_engine(plain)->us;
}

/* One plan does bias and relu too where cuDNN can, and where that is faster than a convolution and
 * the tail that is then needed. */
static enum dt_status open_forward(struct dt_block_state *state)
{
    const bool has_bias = state->cuda->type == DT_GPU_F32 ||
                          state->packed_bias.weight != NULL; /* in the plan's type */
    enum dt_status s = DT_UNAVAILABLE;
    if (state->block.activation == DT_ACTIVATION_RELU && has_bias) {
        s = open_plan(state, DT_CONV_FORWARD_RELU);
        if (s != DT_OK && s != DT_UNAVAILABLE) {
            return s;
        }
        dt_error_clear();
    }
    if (s != DT_OK || !state->cuda->deterministic) {
        DT_TRY(open_plan(state, DT_CONV_FORWARD));
    }
    state->has_relu = s == DT_OK && gains(state);
    close_plan(state, state->has_relu ? DT_CONV_FORWARD : DT_CONV_FORWARD_RELU);
    return keep_plan(state, state->has_relu ? DT_CONV_FORWARD_RELU : DT_CONV_FORWARD);
}

static enum dt_status open_gradient(struct dt_block_state *state, enum dt_conv_kind kind)
{
    DT_TRY(open_plan(state, kind));
    return keep_plan(state, kind);
}

static enum dt_status conv_open(struct dt_block_state *state)
{
    if (state->packed_bias.weight != NULL) {
        dt_cuda_packed_open(state->cuda, &state->packed_bias);
    }
    DT_TRY(open_forward(state));
    DT_TRY(open_gradient(state, DT_CONV_FILTER_GRADIENT));
    return state->is_first ? DT_OK : open_gradient(state, DT_CONV_INPUT_GRADIENT);
}

void dt_cuda_conv_close(struct dt_block_state *state)
{
    for (int kind = 0; kind < DT_CONV_N_KINDS && !state->cuda->lost; kind++) {
        dt_conv_plan_close(state->plans[kind]);
    }
}

int dt_cuda_block_engines(const struct dt_block_state *state,
                          struct dt_device_engine out[DT_DEVICE_MAX_ENGINES])
{
    int n = 0;
    for (int kind = 0; kind < DT_CONV_N_KINDS; kind++) {
        struct dt_conv_plan *plan = state->plans[kind];
        if (plan != NULL) {
            const struct dt_engine *engine = dt_conv_plan_engine(plan);
            out[n++] = (struct dt_device_engine){.operation = plan->name,
                                                 .number = engine->number,
                                                 .place = engine->place,
                                                 .n_timed = engine->us > 0 ? plan->n_engines : 0,
                                                 .us = engine->us,
                                                 .workspace_bytes = engine->workspace_bytes};
        }
    }
    return n;
}

static enum dt_status run_plan(const struct dt_block_state *state, enum dt_conv_kind kind,
                               const void *in, const void *other, const void *bias, void *out)
{
    return dt_conv_plan_run(state->plans[kind], in, other, bias, out,
                            state->cuda->scratch[workspace_of(state, kind)].memory);
}

/* The rows after the batch are ignored. */
static enum dt_status conv_forward(struct dt_block_state *state, const struct dt_block_args *a)
{
    const void *weight = dt_block_weight_of(state, a->params);
    void *out = state->plan.is_plain_conv ? a->y : state->z;
    if (!state->has_relu) {
        return run_plan(state, DT_CONV_FORWARD, a->x, weight, NULL, out);
    }
    const float *bias = a->params + state->bias_offset;
    DT_TRY(dt_cuda_pack(state->cuda, &state->packed_bias, bias));
    return run_plan(state, DT_CONV_FORWARD_RELU, a->x, weight,
                    state->packed_bias.weight != NULL ? state->packed_bias.weight : bias, out);
}

/* Zeros from sample n to the capacity: convolutions are planned for whole batches. */
static enum dt_status zero_behind(const struct dt_block_state *state, void *samples, size_t n_elems,
                                  int n)
{
    const size_t n_bytes = n_elems * dt_gpu_type_bytes(state->cuda->type);
    if (n < state->capacity) {
        DT_CUDA(cudaMemsetAsync((char *)samples + (size_t)n * n_bytes, 0,
                                (size_t)(state->capacity - n) * n_bytes, state->cuda->stream));
    }
    return DT_OK;
}

/* An existing gradient must be added to, so it is unpacked first. */
static enum dt_status filter_gradient(struct dt_block_state *state, float *dweight, const void *x,
                                      bool accumulate)
{
    struct dt_cuda *cuda = state->cuda;
    if (accumulate) {
        DT_TRY(dt_cuda_unpack(cuda));
        DT_TRY(dt_cuda_join(cuda));
        DT_TRY(dt_cuda_fork(cuda, DT_CUDA_GRADIENTS));
    }
    DT_TRY(run_plan(state, DT_CONV_FILTER_GRADIENT, state->dz, x, NULL, state->packed.dw));
    if (accumulate) {
        DT_CUDA(dt_gpu_unpack_gradient(dt_block_weight_lane(state)->stream, &state->packed.filter,
                                       cuda->type, state->packed.dw, true, dweight));
    }
    state->packed.dw_of = accumulate ? NULL : dweight;
    state->packed.dw_recorded = cuda->inputs_on_device ? state->packed.dw_of : NULL;
    return DT_OK;
}

static enum dt_status conv_backward(struct dt_block_state *state, const struct dt_block_args *a)
{
    const int n = a->pass->batch->n;
    DT_TRY(zero_behind(state, (void *)a->x, state->n_in, n)); /* the samples stay as they are */
    DT_TRY(zero_behind(state, state->dz, state->n_linear, n));
    DT_TRY(dt_block_fork(state));
    DT_TRY(filter_gradient(state, a->grads + state->weight_offset, a->x, a->pass->accumulate));
    return a->dx != NULL ? run_plan(state, DT_CONV_INPUT_GRADIENT, state->dz, state->packed.weight,
                                    NULL, a->dx)
                         : DT_OK;
}

const struct dt_cuda_linear dt_cuda_conv = {conv_open, conv_forward, conv_backward};

/* ---- the first convolution, by our own kernels */

/* Leaves out the samples' address, which only a pass knows. */
static struct dt_gpu_first_conv first_conv(const struct dt_block_state *state)
{
    const struct dt_block *b = &state->block;
    return (struct dt_gpu_first_conv){.in = b->in,
                                      .out = b->linear_out,
                                      .kernel = b->kernel,
                                      .stride = b->stride,
                                      .pad_h = b->pad_before_h,
                                      .pad_w = b->pad_before_w,
                                      .activation = state->plan.is_plain ? b->activation
                                                                         : DT_ACTIVATION_NONE};
}

static enum dt_status first_conv_open(struct dt_block_state *state)
{
    const struct dt_gpu_first_conv conv = first_conv(state);
    return dt_block_reserve_sums(state, dt_gpu_first_conv_scratch(&conv));
}

static struct dt_gpu_first_conv first_conv_of(const struct dt_block_state *state,
                                              const struct dt_block_args *a)
{
    const struct dt_cuda *cuda = state->cuda;
    struct dt_gpu_first_conv conv = first_conv(state);
    if (cuda->gathered.in_place && cuda->gathered.x == a->x) {
        conv.samples = cuda->gathered.samples;
        conv.rows = cuda->batch.rows;
    } else {
        conv.x = a->x;
    }
    conv.signs = a->pass->training ? state->signs : NULL;
    return conv;
}

static enum dt_status first_conv_forward(struct dt_block_state *state,
                                         const struct dt_block_args *a)
{
    struct dt_cuda *cuda = state->cuda;
    const bool plain = state->plan.is_plain;
    cuda->gathered.pending = false;
    const struct dt_gpu_first_conv conv = first_conv_of(state, a);
    DT_CUDA(dt_gpu_first_conv_forward(
        cuda->stream, &conv, a->pass->batch->n, cuda->type, a->params + state->weight_offset,
        plain ? a->params + state->bias_offset : NULL, plain ? a->y : state->z));
    return DT_OK;
}

static enum dt_status first_conv_backward(struct dt_block_state *state,
                                          const struct dt_block_args *a)
{
    const bool plain = state->plan.is_plain;
    const struct dt_gpu_first_conv conv = first_conv_of(state, a);
    struct dt_gpu_gradients to = dt_block_gradients(state, a);
    to.bias = plain ? to.bias : NULL; /* the tail has written it */
    DT_CUDA(dt_gpu_first_conv_gradient(state->cuda->stream, &conv, a->pass->batch->n,
                                       state->cuda->type, plain ? a->y : NULL,
                                       plain ? a->dy : state->dz, &to));
    return DT_OK;
}

const struct dt_cuda_linear dt_cuda_first_conv = {first_conv_open, first_conv_forward,
                                                  first_conv_backward};
