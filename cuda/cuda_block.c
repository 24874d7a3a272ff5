#include "cuda/cuda_backend.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/arithmetic.h"
#include "cuda/cuda_check.h"
#include "cuda/cudnn/engine_trial.h"
#include "cuda/range.h"

/* What a call of a block's pass is given, from the backend's. */
struct args {
    const float *weight, *bias; /* the arena's */
    const void *x;
    void *y;                    /* backward reads it */
    const struct dt_pass *pass; /* not of 0 samples */
    int n;                      /* samples */
    /* backward */
    const void *dy;
    void *dx; /* NULL: not wanted */
    struct dt_gpu_gradients to;
};

/* A kind of linear operation. Forward reads x, and writes z, or y where no tail follows; backward
 * reads the gradient of z or y, and writes the gradients of the parameters and of x. */
struct linear_ops {
    enum dt_status (*forward)(struct dt_block_state *state, const struct args *args);
    enum dt_status (*backward)(struct dt_block_state *state, const struct args *args);
};

struct dt_block_state {
    struct dt_cuda *cuda;
    struct dt_block block;
    /* Names of ranges (cuda/range.h). */
    char forward_range[DT_BLOCK_NAME_SIZE + 16], backward_range[DT_BLOCK_NAME_SIZE + 16];
    int capacity;
    bool is_first; /* its input needs no gradient */
    struct dt_cuda_block_plan plan;
    const struct linear_ops *linear; /* NULL: none */
    size_t n_in, n_linear;           /* elements of a sample */
    size_t bias_offset;              /* in the arena; the weight is first in the block's range */
    enum dt_gpu_type y_type;         /* of y and dy: the last block's are float */
    struct dt_conv_plan *plans[DT_CONV_N_KINDS]; /* conv; for `capacity` samples; NULL: unwanted */
    void *memory[DT_CUDA_N_BUFFERS]; /* of the plan; NULL where it says 0; some are also: */
    void *z;  /* (capacity, linear_out), the linear operation's output; NULL without one */
    void *dz; /* its gradient; may be z */
    struct dt_cuda_packed packed;      /* weight and gradient in the libraries' layout */
    struct dt_cuda_packed packed_bias; /* conv */
    bool has_relu; /* conv: one plan computes bias and relu too, so z is their result */
};

/* The stream that computes the gradient of the weight. */
static const struct dt_cuda_lane *weight_lane(const struct dt_block_state *state)
{
    return state->is_first ? &state->cuda->main : &state->cuda->branches.lanes[DT_CUDA_GRADIENTS];
}

/* Call it before that gradient, after enqueueing everything the gradient reads. */
static enum dt_status fork_gradient(const struct dt_block_state *state)
{
    return state->is_first ? DT_OK : dt_cuda_fork(state->cuda, DT_CUDA_GRADIENTS);
}

static const void *weight_of(const struct dt_block_state *state, const struct args *a)
{
    return state->packed.weight != NULL ? state->packed.weight : a->weight;
}

/* ---- convolutions, by cuDNN */

#define TRIAL_LIMIT_S 60 /* for each wait on work that takes milliseconds */
#define FUSED_GAIN_US 2  /* that a plan with bias and relu must gain: less may be chance */

_Static_assert(DT_CONV_N_KINDS <= DT_DEVICE_MAX_ENGINES, "a block's engines fit into the report");

static const struct dt_cuda_lane *lane_of(const struct dt_block_state *state,
                                          enum dt_conv_kind kind)
{
    return kind == DT_CONV_FILTER_GRADIENT ? weight_lane(state) : &state->cuda->main;
}

/* Depends on the GPU's total memory, not on free memory: another engine would give other bits. */
static size_t workspace_limit(const struct dt_cuda *cuda)
{
    return dt_min_size((size_t)2 << 30, cuda->gpu.total_bytes / 16);
}

static void close_plan(struct dt_block_state *state, enum dt_conv_kind kind)
{
    dt_conv_plan_close(state->plans[kind]);
    state->plans[kind] = NULL;
}

static enum dt_status open_plan(struct dt_block_state *state, enum dt_conv_kind kind)
{
    struct dt_cuda *cuda = state->cuda;
    const struct dt_cuda_lane *lane = lane_of(state, kind);
    const struct dt_gpu_tail tail = {
        .b = state->block, .n = state->capacity, .type = cuda->type, .y_type = cuda->type};
    const bool one = cuda->deterministic &&
                     kind != DT_CONV_FORWARD_RELU; /* not every engine of that kind is usable */
    const struct dt_conv_spec spec = {.kind = kind,
                                      .block = &state->block,
                                      .batch = state->capacity,
                                      .precision = cuda->precision,
                                      .handle = lane->cudnn,
                                      .workspace_limit = workspace_limit(cuda),
                                      .n_engines = one ? 1 : DT_MAX_ENGINES};
    const struct dt_engine_trial_spec trial = {
        .stream = lane->stream,
        .limit_s = TRIAL_LIMIT_S,
        .timed = !cuda->deterministic,
        .alive = cuda->alive,
        .tail = kind == DT_CONV_FORWARD && state->plan.is_plain_conv ? &tail : NULL};
    DT_TRY(dt_conv_plan_open(&spec, &state->plans[kind]));
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
    return dt_cuda_reserve_scratch(cuda, lane_of(state, kind)->workspace, state->block.name,
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

static enum dt_status conv_open(struct dt_block_state *state)
{
    DT_TRY(open_forward(state));
    DT_TRY(open_plan(state, DT_CONV_FILTER_GRADIENT));
    DT_TRY(keep_plan(state, DT_CONV_FILTER_GRADIENT));
    if (state->is_first) {
        return DT_OK;
    }
    DT_TRY(open_plan(state, DT_CONV_INPUT_GRADIENT));
    return keep_plan(state, DT_CONV_INPUT_GRADIENT);
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
                            state->cuda->scratch[lane_of(state, kind)->workspace].memory);
}

/* The rows after the batch are ignored. */
static enum dt_status conv_forward(struct dt_block_state *state, const struct args *a)
{
    const void *weight = weight_of(state, a);
    void *out = state->plan.is_plain_conv ? a->y : state->z;
    if (!state->has_relu) {
        return run_plan(state, DT_CONV_FORWARD, a->x, weight, NULL, out);
    }
    DT_TRY(dt_cuda_pack(state->cuda, &state->packed_bias, a->bias));
    return run_plan(state, DT_CONV_FORWARD_RELU, a->x, weight,
                    state->packed_bias.weight != NULL ? state->packed_bias.weight : a->bias, out);
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
static enum dt_status filter_gradient(struct dt_block_state *state, const struct args *a)
{
    struct dt_cuda *cuda = state->cuda;
    if (a->to.accumulate) {
        DT_TRY(dt_cuda_unpack(cuda));
        DT_TRY(dt_cuda_join(cuda));
        DT_TRY(dt_cuda_fork(cuda, DT_CUDA_GRADIENTS));
    }
    DT_TRY(run_plan(state, DT_CONV_FILTER_GRADIENT, state->dz, a->x, NULL, state->packed.dw));
    if (a->to.accumulate) {
        DT_CUDA(dt_gpu_repack(weight_lane(state)->stream, &state->packed.filter, DT_GPU_UNPACK_ADD,
                              a->to.weight, cuda->type, state->packed.dw));
    }
    state->packed.dw_of = a->to.accumulate ? NULL : a->to.weight;
    state->packed.dw_recorded = cuda->inputs_on_device ? state->packed.dw_of : NULL;
    return DT_OK;
}

static enum dt_status conv_backward(struct dt_block_state *state, const struct args *a)
{
    DT_TRY(zero_behind(state, (void *)a->x, state->n_in, a->n)); /* the samples stay as they are */
    DT_TRY(zero_behind(state, state->dz, state->n_linear, a->n));
    DT_TRY(fork_gradient(state));
    DT_TRY(filter_gradient(state, a));
    return a->dx != NULL ? run_plan(state, DT_CONV_INPUT_GRADIENT, state->dz, state->packed.weight,
                                    NULL, a->dx)
                         : DT_OK;
}

/* ---- the first convolution, by our own kernels */

static struct dt_gpu_first_conv first_conv_of(const struct dt_block_state *state,
                                              const struct args *a)
{
    const struct dt_cuda *cuda = state->cuda;
    const bool plain = state->plan.is_plain; /* else the tail does what is after the convolution */
    struct dt_gpu_first_conv conv = {.b = state->block,
                                     .n = a->n,
                                     .type = cuda->type,
                                     .weight = a->weight,
                                     .bias = plain ? a->bias : NULL,
                                     .y = plain ? a->y : NULL,
                                     .signs =
                                         a->pass->training ? state->memory[DT_CUDA_SIGNS] : NULL};
    conv.b.activation = plain ? conv.b.activation : DT_ACTIVATION_NONE;
    if (cuda->gathered.in_place && cuda->gathered.x == a->x) {
        conv.samples = cuda->gathered.samples;
        conv.rows = cuda->batch.rows;
    } else {
        conv.x = a->x;
    }
    return conv;
}

static enum dt_status first_conv_forward(struct dt_block_state *state, const struct args *a)
{
    state->cuda->gathered.pending = false;
    struct dt_gpu_first_conv conv = first_conv_of(state, a);
    conv.y = conv.y != NULL ? conv.y : state->z;
    DT_CUDA(dt_gpu_first_conv_forward(state->cuda->stream, &conv));
    return DT_OK;
}

static enum dt_status first_conv_backward(struct dt_block_state *state, const struct args *a)
{
    const bool plain = state->plan.is_plain;
    struct dt_gpu_first_conv conv = first_conv_of(state, a);
    conv.dy = plain ? a->dy : state->dz;
    conv.to = a->to;
    conv.to.bias = plain ? conv.to.bias : NULL;
    DT_CUDA(dt_gpu_first_conv_gradient(state->cuda->stream, &conv));
    return DT_OK;
}

/* ---- dense layers, by cuBLAS */

/* c (m, n) = a b + beta c, row-major as everywhere here; cuBLAS is column-major and computes c^T =
 * b^T a^T. */
struct product {
    int m, n, k;
    const void *a, *b;
    bool turn_a, turn_b; /* stored transposed: a (k, m), b (n, k) */
    void *c;
    enum dt_gpu_type c_type;
    float beta;
};

static cudaDataType_t data_type(enum dt_gpu_type type)
{
    return type == DT_GPU_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static enum dt_status multiply(const struct dt_cuda *cuda, const struct dt_cuda_lane *lane,
                               const struct product *p)
{
    const float alpha = 1.0f;
    const cudaDataType_t type = data_type(cuda->type);
    const cublasComputeType_t compute =
        cuda->precision == DT_PRECISION_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    DT_CUBLAS(cublasGemmEx(lane->cublas, p->turn_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                           p->turn_a ? CUBLAS_OP_T : CUBLAS_OP_N, p->n, p->m, p->k, &alpha, p->b,
                           type, p->turn_b ? p->k : p->n, p->a, type, p->turn_a ? p->m : p->k,
                           &p->beta, p->c, data_type(p->c_type), p->n, compute,
                           CUBLAS_GEMM_DEFAULT));
    return DT_OK;
}

static enum dt_status dense_forward(struct dt_block_state *state, const struct args *a)
{
    const struct product z = {.m = a->n,
                              .n = (int)state->n_linear,
                              .k = (int)state->n_in,
                              .a = a->x,
                              .b = weight_of(state, a),
                              .turn_b = true,
                              .c = state->z,
                              .c_type = state->cuda->type};
    return multiply(state->cuda, &state->cuda->main, &z);
}

static enum dt_status dense_backward(struct dt_block_state *state, const struct args *a)
{
    const void *dz = state->dz;
    const int n = a->n, n_in = (int)state->n_in, n_out = (int)state->n_linear;
    const struct product to_weight = {.m = n_out,
                                      .n = n_in,
                                      .k = n,
                                      .a = dz,
                                      .turn_a = true,
                                      .b = a->x,
                                      .c = a->to.weight,
                                      .c_type = DT_GPU_F32,
                                      .beta = a->to.accumulate ? 1.0f : 0.0f};
    const struct product to_input = {.m = n,
                                     .n = n_in,
                                     .k = n_out,
                                     .a = dz,
                                     .b = weight_of(state, a),
                                     .c = a->dx,
                                     .c_type = state->cuda->type};
    DT_TRY(fork_gradient(state));
    DT_TRY(multiply(state->cuda, weight_lane(state), &to_weight));
    return a->dx != NULL ? multiply(state->cuda, &state->cuda->main, &to_input) : DT_OK;
}

/* ---- a head, by our own kernels */

static struct dt_gpu_head head_of(const struct dt_block_state *state, const struct args *a)
{
    return (struct dt_gpu_head){.n_in = (int)state->n_in,
                                .n_out = (int)state->n_linear,
                                .n = a->n,
                                .type = state->cuda->type,
                                .weight = a->weight,
                                .bias = a->bias,
                                .x = a->x,
                                .dlogits = (void *)a->dy,
                                .dx = a->dx,
                                .to = a->to};
}

/* A loss always follows in training only. */
static enum dt_status head_forward(struct dt_block_state *state, const struct args *a)
{
    state->cuda->waiting = head_of(state, a);
    state->cuda->waiting.logits = a->y;
    return a->pass->training ? DT_OK : dt_cuda_enqueue_waiting(state->cuda);
}

static enum dt_status head_backward(struct dt_block_state *state, const struct args *a)
{
    const struct dt_gpu_head head = head_of(state, a);
    DT_CUDA(dt_gpu_head_backward(state->cuda->stream, &head));
    return DT_OK;
}

/* ---- open and close */

static const struct linear_ops conv_ops = {conv_forward, conv_backward};
static const struct linear_ops first_conv_ops = {first_conv_forward, first_conv_backward};
static const struct linear_ops dense_ops = {dense_forward, dense_backward};
static const struct linear_ops head_ops = {head_forward, head_backward};

static const struct linear_ops *linear_of(const struct dt_cuda_block_plan *plan,
                                          enum dt_linear linear)
{
    return linear == DT_LINEAR_NONE   ? NULL
           : plan->is_head            ? &head_ops
           : plan->is_first_conv      ? &first_conv_ops
           : linear == DT_LINEAR_CONV ? &conv_ops
                                      : &dense_ops;
}

static void describe(struct dt_block_state *state, struct dt_cuda *cuda,
                     const struct dt_model *model, int index, int capacity)
{
    const struct dt_block *b = &state->block;
    state->cuda = cuda;
    state->block = model->blocks[index];
    snprintf(state->forward_range, sizeof state->forward_range, "%s forward", b->name);
    snprintf(state->backward_range, sizeof state->backward_range, "%s backward", b->name);
    state->capacity = capacity;
    state->is_first = index == 0;
    state->plan = dt_cuda_plan_block(model, index, cuda->precision, capacity);
    state->linear = linear_of(&state->plan, b->linear);
    state->n_in = dt_shape_elems(b->in);
    state->n_linear = dt_shape_elems(b->linear_out);
    state->y_type = index == model->n_blocks - 1 ? DT_GPU_F32 : cuda->type;
    if (state->linear != NULL) {
        state->bias_offset = model->params[b->bias].offset;
        state->packed.filter =
            (struct dt_gpu_filter){.k = b->linear_out.c,
                                   .c = b->in.c,
                                   .kernel = b->linear == DT_LINEAR_CONV ? b->kernel : 1};
        state->packed_bias.filter =
            (struct dt_gpu_filter){.k = 1, .c = b->linear_out.c, .kernel = 1};
    }
}

static enum dt_status open_memory(struct dt_block_state *state)
{
    void **memory = state->memory;
    for (int i = 0; i < DT_CUDA_N_BUFFERS; i++) {
        if (state->plan.n_bytes[i] > 0) {
            DT_TRY(
                dt_cuda_alloc(state->cuda, state->block.name, state->plan.n_bytes[i], &memory[i]));
        }
    }
    state->z = memory[DT_CUDA_Z];
    state->dz = memory[DT_CUDA_DZ] != NULL ? memory[DT_CUDA_DZ] : state->z;
    state->packed.weight = memory[DT_CUDA_WEIGHT];
    state->packed_bias.weight = memory[DT_CUDA_BIAS];
    state->packed.dw = memory[DT_CUDA_DW];
    return DT_OK;
}

static enum dt_status open_linear(struct dt_block_state *state)
{
    const struct dt_block *b = &state->block;
    size_t n_sums = state->plan.is_head ? dt_gpu_head_scratch((int)state->n_in,
                                                              (int)state->n_linear, state->capacity)
                                        : dt_gpu_tail_scratch(b);
    if (state->plan.is_first_conv) {
        n_sums = dt_max_size(n_sums, dt_gpu_first_conv_scratch(b));
    }
    DT_TRY(dt_cuda_reserve_scratch(state->cuda, DT_CUDA_SCRATCH_SUMS, b->name,
                                   n_sums * sizeof(float)));
    dt_cuda_packed_open(state->cuda, &state->packed);
    dt_cuda_packed_open(state->cuda, &state->packed_bias);
    return state->linear == &conv_ops ? conv_open(state) : DT_OK;
}

enum dt_status dt_cuda_block_open(struct dt_backend *backend, const struct dt_model *model,
                                  int index, int capacity, struct dt_block_state **out)
{
    struct dt_cuda *cuda = (struct dt_cuda *)backend;
    struct dt_block_state *state = calloc(1, sizeof *state);
    if (state == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening block %s",
                        model->blocks[index].name);
    }
    describe(state, cuda, model, index, capacity);
    cuda->n_blocks++;
    enum dt_status s = dt_cuda_reserve_batch(cuda, capacity);
    if (s == DT_OK) {
        s = open_memory(state);
    }
    if (s == DT_OK && state->linear != NULL) {
        s = open_linear(state);
    }
    if (s != DT_OK) {
        dt_cuda_block_close(state);
        return s;
    }
    dt_alive_show(&cuda->alive);
    *out = state;
    return DT_OK;
}

void dt_cuda_block_close(struct dt_block_state *state)
{
    dt_cuda_packed_close(state->cuda, &state->packed);
    dt_cuda_packed_close(state->cuda, &state->packed_bias);
    for (int kind = 0; kind < DT_CONV_N_KINDS && !state->cuda->lost; kind++) {
        close_plan(state, kind);
    }
    for (int i = 0; i < DT_CUDA_N_BUFFERS; i++) {
        dt_cuda_free(state->cuda, state->memory[i]);
    }
    dt_cuda_drop(state->cuda); /* a closed network's leftovers have no reader */
    if (--state->cuda->n_blocks == 0) {
        dt_cuda_release_scratch(state->cuda);
    }
    free(state);
}

/* ---- shared by both passes */

static void poll(const struct dt_pass *pass)
{
    if (pass->poll != NULL) {
        pass->poll(pass->context);
    }
}

/* What the linear operation leaves to the tail. */
static struct dt_gpu_tail tail_of(const struct dt_block_state *state, const struct args *a)
{
    const bool training = a->pass->training;
    struct dt_gpu_tail tail = {.b = state->block,
                               .n = a->n,
                               .type = state->cuda->type,
                               .y_type = state->y_type,
                               .seed = a->pass->seed,
                               .epoch = state->cuda->batch.epoch,
                               .ids = state->cuda->batch.ids,
                               .z = state->linear == NULL       ? a->x
                                    : state->plan.is_plain_conv ? a->y
                                                                : state->z,
                               .bias = state->linear != NULL && !state->has_relu ? a->bias : NULL,
                               .winners = training ? state->memory[DT_CUDA_WINNERS] : NULL};
    tail.b.dropout_rate = training ? tail.b.dropout_rate : 0;
    return tail;
}

/* ---- forward */

static enum dt_status forward(struct dt_block_state *state, const struct args *a)
{
    struct dt_cuda *cuda = state->cuda;
    const struct dt_cuda_block_plan *plan = &state->plan;
    poll(a->pass);
    DT_TRY(plan->is_first_conv && a->x == cuda->gathered.x ? dt_cuda_join(cuda)
                                                           : dt_cuda_settle(cuda));
    if (a->n == 0) {
        return DT_OK;
    }
    if (state->linear != NULL) {
        DT_TRY(dt_cuda_pack(cuda, &state->packed, a->weight));
        DT_TRY(state->linear->forward(state, a));
    }
    if (plan->is_head || plan->is_plain || (plan->is_plain_conv && state->has_relu)) {
        return DT_OK;
    }
    struct dt_gpu_tail tail = tail_of(state, a);
    tail.y = a->y;
    DT_CUDA(dt_gpu_tail_forward(cuda->stream, &tail));
    return DT_OK;
}

enum dt_status dt_cuda_block_forward(struct dt_block_state *state, const float *params,
                                     const float *x, float *y, const struct dt_pass *pass)
{
    const struct args args = {.weight = params + state->block.grad_begin,
                              .bias = params + state->bias_offset,
                              .x = x,
                              .y = y,
                              .pass = pass,
                              .n = pass->batch->n,
                              .to.scratch = state->cuda->scratch[DT_CUDA_SCRATCH_SUMS].memory};
    dt_range_begin(state->forward_range);
    const enum dt_status s = forward(state, &args);
    dt_range_end();
    return s;
}

/* ---- backward */

/* From dy: dz, and the gradient of the bias, which is there with a linear operation only. */
static enum dt_status tail_backward(const struct dt_block_state *state, const struct args *a,
                                    void *dz)
{
    struct dt_gpu_tail tail = tail_of(state, a);
    tail.bias = state->plan.is_plain_conv ? NULL : tail.bias; /* in y already */
    tail.dy = a->dy;
    tail.dz = dz;
    tail.to = a->to;
    tail.to.weight = NULL;
    tail.to.bias = state->linear != NULL ? tail.to.bias : NULL;
    DT_CUDA(dt_gpu_tail_backward(state->cuda->stream, &tail));
    return DT_OK;
}

static enum dt_status zero_gradients(struct dt_block_state *state, const struct args *a)
{
    const size_t n_weights = dt_gpu_filter_elems(&state->packed.filter),
                 n_biases = (size_t)state->block.linear_out.c;
    const cudaStream_t stream = state->cuda->stream;
    state->packed.dw_of = state->packed.dw_recorded = NULL;
    DT_CUDA(cudaMemsetAsync(a->to.weight, 0, n_weights * sizeof *a->to.weight, stream));
    DT_CUDA(cudaMemsetAsync(a->to.bias, 0, n_biases * sizeof *a->to.bias, stream));
    return DT_OK;
}

static enum dt_status backward(struct dt_block_state *state, const struct args *a)
{
    poll(a->pass);
    DT_TRY(dt_cuda_enqueue_waiting(state->cuda));
    if (state->linear == NULL) {
        return a->n > 0 && a->dx != NULL ? tail_backward(state, a, a->dx) : DT_OK;
    }
    if (a->n == 0) {
        return a->to.accumulate ? DT_OK : zero_gradients(state, a);
    }
    if (!state->plan.is_head && !state->plan.is_plain) {
        DT_TRY(tail_backward(state, a, state->dz));
    }
    return state->linear->backward(state, a);
}

enum dt_status dt_cuda_block_backward(struct dt_block_state *state, const float *params,
                                      float *grads, const float *x, const float *y, float *dy,
                                      float *dx, const struct dt_pass *pass)
{
    const struct args args = {.weight = params + state->block.grad_begin,
                              .bias = params + state->bias_offset,
                              .x = x,
                              .y = (float *)y,
                              .pass = pass,
                              .n = pass->batch->n,
                              .dy = dy,
                              .dx = dx,
                              .to = {.weight = grads + state->block.grad_begin,
                                     .bias = grads + state->bias_offset,
                                     .accumulate = pass->accumulate,
                                     .scratch = state->cuda->scratch[DT_CUDA_SCRATCH_SUMS].memory}};
    dt_range_begin(state->backward_range);
    const enum dt_status s = backward(state, &args);
    dt_range_end();
    return s;
}
