#include "cuda/cuda_block.h"

#include <stdlib.h>

#include "cuda/conv_plan.h"
#include "cuda/cuda_check.h"
#include "model/device_bytes.h"

#define N_PLANS (DT_CONV_FILTER_GRADIENT + 1)

_Static_assert(DT_DEVICE_HEAD_INPUTS <= DT_GPU_HEAD_INPUTS && DT_DEVICE_HEAD_OUTPUTS <= DT_GPU_HEAD_OUTPUTS,
               "heads fit the kernel");

struct dt_block_state {
    struct dt_cuda *cuda;
    struct dt_block block;
    int capacity;
    bool is_first;                         /* nobody asks for the gradient of its input */
    bool is_head, is_first_conv, is_plain; /* dt_device_is_head, dt_device_is_first_conv, dt_device_is_plain_first_conv */
    size_t n_in, n_linear;                 /* elements of a sample */
    size_t weight_offset, bias_offset, n_weights;
    struct dt_device_block_bytes bytes;
    struct dt_gpu_tail tail;             /* without what a pass brings along */
    enum dt_gpu_type y_type;             /* of y and dy: the last block's are float */
    struct dt_conv_plan *plans[N_PLANS]; /* conv; each for `capacity` samples; NULL: not wanted */
    void *z;                             /* (capacity, linear_out), the linear operation's output; NULL without one */
    void *dz;                            /* its gradient; may be z */
    struct dt_cuda_packed packed;        /* weight and gradient as the libraries have them */
};

/* ---- open and close */

static bool has_linear(const struct dt_block_state *state)
{
    return state->block.linear != DT_LINEAR_NONE;
}

static bool has_conv(const struct dt_block_state *state)
{
    return state->block.linear == DT_LINEAR_CONV;
}

static void describe(struct dt_block_state *state, struct dt_cuda *cuda, const struct dt_model *model, int index, int capacity)
{
    const struct dt_block *b = &state->block;
    state->cuda = cuda;
    state->block = model->blocks[index];
    state->capacity = capacity;
    state->is_first = index == 0;
    state->is_head = dt_device_is_head(model, index);
    state->is_first_conv = dt_device_is_first_conv(model, index);
    state->is_plain = dt_device_is_plain_first_conv(model, index);
    state->n_in = dt_shape_elems(b->in);
    state->n_linear = dt_shape_elems(b->linear_out);
    state->bytes = dt_device_block_bytes(model, index, cuda->precision, capacity);
    state->y_type = index == model->n_blocks - 1 ? DT_GPU_F32 : cuda->type;
    if (has_linear(state)) {
        state->weight_offset = model->params[b->weight].offset;
        state->bias_offset = model->params[b->bias].offset;
        state->n_weights = model->params[b->weight].n_elems;
        state->packed.filter =
            (struct dt_gpu_filter){.k = b->linear_out.c, .c = b->in.c, .kernel = b->linear == DT_LINEAR_CONV ? b->kernel : 1};
    }
    state->tail = (struct dt_gpu_tail){.linear = b->linear_out,
                                       .pooled = b->pool_out,
                                       .activation = b->activation,
                                       .pool = b->pool,
                                       .pool_size = b->pool_size,
                                       .pool_stride = b->pool_stride,
                                       .dropout_rate = b->dropout_rate,
                                       .dropout_stream = b->dropout_stream,
                                       .flatten = b->canonical};
}

/* Where the gradient of the weight is made. */
static const struct dt_cuda_lane *weight_lane(const struct dt_block_state *state)
{
    return state->is_first ? &state->cuda->main : &state->cuda->branches.lanes[DT_CUDA_GRADIENTS];
}

static bool is_beside(const struct dt_block_state *state, enum dt_conv_kind kind)
{
    return kind == DT_CONV_FILTER_GRADIENT && !state->is_first;
}

static enum dt_cuda_scratch_use workspace_of(const struct dt_block_state *state, enum dt_conv_kind kind)
{
    return is_beside(state, kind) ? DT_CUDA_SCRATCH_GRADIENT_WORKSPACE : DT_CUDA_SCRATCH_WORKSPACE;
}

/* From what the GPU has, not from what is free just now: another engine would leave other bits. */
static size_t workspace_limit(const struct dt_cuda *cuda)
{
    const size_t most = (size_t)2 << 30, part = cuda->gpu.total_bytes / 16;
    return part < most ? part : most;
}

static enum dt_status open_plans(struct dt_block_state *state)
{
    struct dt_cuda *cuda = state->cuda;
    for (int i = 0; i < N_PLANS; i++) {
        const enum dt_conv_kind kind = (enum dt_conv_kind)i;
        const struct dt_conv_target target = {.handle = is_beside(state, kind) ? weight_lane(state)->cudnn : cuda->main.cudnn,
                                              .workspace_limit = workspace_limit(cuda)};
        if (kind == DT_CONV_INPUT_GRADIENT && state->is_first) {
            continue;
        }
        DT_TRY(dt_conv_plan_open(&target, kind, &state->block, state->capacity, cuda->precision, &state->plans[kind]));
        const size_t n_bytes = dt_conv_plan_workspace(state->plans[kind]);
        DT_TRY(dt_cuda_reserve_scratch(cuda, workspace_of(state, kind), state->block.name, n_bytes));
    }
    return dt_cuda_alloc(cuda, state->block.name, state->bytes.dw, &state->packed.dw);
}

static enum dt_status reserve_sums(const struct dt_block_state *state, size_t n_floats)
{
    return dt_cuda_reserve_scratch(state->cuda, DT_CUDA_SCRATCH_SUMS, state->block.name, n_floats * sizeof(float));
}

/* Without where the samples are, which only a pass knows. */
static struct dt_gpu_first_conv first_conv(const struct dt_block *b, bool activated)
{
    return (struct dt_gpu_first_conv){.in = b->in,
                                      .out = b->linear_out,
                                      .kernel = b->kernel,
                                      .stride = b->stride,
                                      .pad_h = b->pad_before_h,
                                      .pad_w = b->pad_before_w,
                                      .activation = activated ? b->activation : DT_ACTIVATION_NONE};
}

static enum dt_status open_linear(struct dt_block_state *state)
{
    struct dt_cuda *cuda = state->cuda;
    const char *name = state->block.name;
    if (state->bytes.z > 0) {
        DT_TRY(dt_cuda_alloc(cuda, name, state->bytes.z, &state->z));
    }
    state->dz = state->z;
    if (state->bytes.dz > 0) {
        DT_TRY(dt_cuda_alloc(cuda, name, state->bytes.dz, &state->dz));
    }
    DT_TRY(reserve_sums(state, dt_gpu_tail_scratch(&state->tail)));
    if (state->bytes.weight > 0) {
        DT_TRY(dt_cuda_alloc(cuda, name, state->bytes.weight, &state->packed.weight));
        dt_cuda_packed_open(cuda, &state->packed);
    }
    if (state->is_first_conv) {
        const struct dt_gpu_first_conv conv = first_conv(&state->block, false);
        return reserve_sums(state, dt_gpu_first_conv_scratch(&conv));
    }
    return has_conv(state) ? open_plans(state) : DT_OK;
}

enum dt_status dt_cuda_block_open(struct dt_backend *backend, const struct dt_model *model, int index, int capacity,
                                  struct dt_block_state **out)
{
    struct dt_cuda *cuda = (struct dt_cuda *)backend;
    struct dt_block_state *state = calloc(1, sizeof *state);
    if (state == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening block %s", model->blocks[index].name);
    }
    describe(state, cuda, model, index, capacity);
    cuda->n_blocks++;
    enum dt_status s = dt_cuda_reserve_batch(cuda, capacity);
    if (s == DT_OK && has_linear(state)) {
        s = state->is_head ? reserve_sums(state, dt_gpu_head_scratch((int)state->n_in, (int)state->n_linear, capacity))
                           : open_linear(state);
    }
    if (s != DT_OK) {
        dt_cuda_block_close(state);
        return s;
    }
    *out = state;
    return DT_OK;
}

void dt_cuda_block_close(struct dt_block_state *state)
{
    dt_cuda_packed_close(state->cuda, &state->packed);
    for (int kind = 0; kind < N_PLANS; kind++) {
        dt_conv_plan_close(state->plans[kind]);
    }
    if (state->dz != state->z) {
        dt_cuda_free(state->cuda, state->dz);
    }
    dt_cuda_free(state->cuda, state->z);
    dt_cuda_free(state->cuda, state->packed.dw);
    dt_cuda_free(state->cuda, state->packed.weight);
    dt_cuda_drop(state->cuda); /* nobody looks at what a network that is closed has left */
    if (--state->cuda->n_blocks == 0) {
        dt_cuda_release_scratch(state->cuda);
    }
    free(state);
}

/* ---- what both passes use */

static void poll(const struct dt_pass *pass)
{
    if (pass->poll != NULL) {
        pass->poll(pass->context);
    }
}

static struct dt_gpu_tail tail_of(const struct dt_block_state *state, const struct dt_pass *pass)
{
    struct dt_gpu_tail tail = state->tail;
    tail.dropout_rate = pass->training ? tail.dropout_rate : 0;
    tail.seed = pass->seed;
    tail.epoch = state->cuda->batch.epoch;
    return tail;
}

static const float *bias_of(const struct dt_block_state *state, const float *params)
{
    return has_linear(state) ? params + state->bias_offset : NULL;
}

static const void *weight_of(const struct dt_block_state *state, const float *params)
{
    return state->packed.weight != NULL ? state->packed.weight : params + state->weight_offset;
}

static enum dt_status run_plan(const struct dt_block_state *state, enum dt_conv_kind kind, const void *in, const void *other,
                               void *out)
{
    return dt_conv_plan_run(state->plans[kind], in, other, out, state->cuda->scratch[workspace_of(state, kind)].memory);
}

/* c (m, n) = a b + beta c, rows first as everywhere here, which makes cuBLAS, columns first, see c^T = b^T a^T. */
struct product {
    int m, n, k;
    const void *a, *b;
    bool turn_a, turn_b; /* lies there as its transpose: a (k, m), b (n, k) */
    void *c;
    enum dt_gpu_type c_type;
    float beta;
};

static cudaDataType_t data_type(enum dt_gpu_type type)
{
    return type == DT_GPU_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static enum dt_status multiply(const struct dt_cuda *cuda, const struct dt_cuda_lane *lane, const struct product *p)
{
    const float alpha = 1.0f;
    const cudaDataType_t type = data_type(cuda->type);
    const cublasComputeType_t compute = cuda->precision == DT_PRECISION_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    DT_CUBLAS(cublasGemmEx(lane->cublas, p->turn_b ? CUBLAS_OP_T : CUBLAS_OP_N, p->turn_a ? CUBLAS_OP_T : CUBLAS_OP_N, p->n, p->m,
                           p->k, &alpha, p->b, type, p->turn_b ? p->k : p->n, p->a, type, p->turn_a ? p->m : p->k, &p->beta, p->c,
                           data_type(p->c_type), p->n, compute, CUBLAS_GEMM_DEFAULT));
    return DT_OK;
}

/* ---- the first convolution */

static struct dt_gpu_first_conv first_conv_of(const struct dt_block_state *state, const void *x)
{
    const struct dt_cuda *cuda = state->cuda;
    struct dt_gpu_first_conv conv = first_conv(&state->block, state->is_plain);
    if (cuda->gathered.in_place && cuda->gathered.x == x) {
        conv.samples = cuda->gathered.samples;
        conv.rows = cuda->batch.rows;
    } else {
        conv.x = x;
    }
    return conv;
}

/* To y where that is all that the block has to do; else to z, for the tail. */
static enum dt_status first_conv_forward(const struct dt_block_state *state, const float *params, const void *x, void *y, int n)
{
    struct dt_cuda *cuda = state->cuda;
    cuda->gathered.waits = false;
    const struct dt_gpu_first_conv conv = first_conv_of(state, x);
    DT_CUDA(dt_gpu_first_conv_forward(cuda->stream, &conv, n, cuda->type, params + state->weight_offset,
                                      state->is_plain ? params + state->bias_offset : NULL, state->is_plain ? y : state->z));
    return DT_OK;
}

/* y and the bias: where no tail has seen to them. */
static enum dt_status first_conv_backward(const struct dt_block_state *state, float *grads, const void *x, const void *y,
                                          const void *dy, const struct dt_pass *pass)
{
    const struct dt_cuda *cuda = state->cuda;
    const struct dt_gpu_first_conv conv = first_conv_of(state, x);
    const struct dt_gpu_gradients to = {.weight = grads + state->weight_offset,
                                        .bias = state->is_plain ? grads + state->bias_offset : NULL,
                                        .accumulate = pass->accumulate,
                                        .scratch = cuda->scratch[DT_CUDA_SCRATCH_SUMS].memory};
    DT_CUDA(dt_gpu_first_conv_gradient(cuda->stream, &conv, pass->batch->n, cuda->type, state->is_plain ? y : NULL, dy, &to));
    return DT_OK;
}

/* ---- a head */

static struct dt_gpu_head head_of(const struct dt_block_state *state, const float *params)
{
    return (struct dt_gpu_head){.n_in = (int)state->n_in,
                                .n_out = (int)state->n_linear,
                                .weight = params + state->weight_offset,
                                .bias = params + state->bias_offset};
}

/* Only in training does a loss always follow. */
static enum dt_status head_forward(const struct dt_block_state *state, const float *params, const void *x, float *logits,
                                   const struct dt_pass *pass)
{
    state->cuda->waiting = (struct dt_cuda_waiting){.head = head_of(state, params), .n = pass->batch->n, .x = x, .logits = logits};
    return pass->training ? DT_OK : dt_cuda_enqueue_waiting(state->cuda);
}

static enum dt_status head_backward(const struct dt_block_state *state, const float *params, float *grads, const void *x,
                                    const float *dlogits, void *dx, const struct dt_pass *pass)
{
    const struct dt_cuda *cuda = state->cuda;
    const struct dt_gpu_head head = head_of(state, params);
    const struct dt_gpu_gradients to = {.weight = grads + state->weight_offset,
                                        .bias = grads + state->bias_offset,
                                        .accumulate = pass->accumulate,
                                        .scratch = cuda->scratch[DT_CUDA_SCRATCH_SUMS].memory};
    DT_CUDA(dt_gpu_head_backward(cuda->stream, &head, pass->batch->n, cuda->type, x, dlogits, dx, &to));
    return DT_OK;
}

/* ---- forward */

static enum dt_status linear_forward(struct dt_block_state *state, const float *params, const void *x, void *y, int n)
{
    if (state->is_first_conv) {
        return first_conv_forward(state, params, x, y, n);
    }
    const void *weight = weight_of(state, params);
    if (has_conv(state)) {
        return run_plan(state, DT_CONV_FORWARD, x, weight, state->z); /* whatever lies behind the batch goes nowhere */
    }
    const struct product z = {.m = n,
                              .n = (int)state->n_linear,
                              .k = (int)state->n_in,
                              .a = x,
                              .b = weight,
                              .turn_b = true,
                              .c = state->z,
                              .c_type = state->cuda->type};
    return multiply(state->cuda, &state->cuda->main, &z);
}

enum dt_status dt_cuda_block_forward(struct dt_block_state *state, const float *params, const float *x, float *y,
                                     const struct dt_pass *pass)
{
    struct dt_cuda *cuda = state->cuda;
    const struct dt_gpu_tail tail = tail_of(state, pass);
    const int n = pass->batch->n;
    poll(pass);
    DT_TRY(state->is_first_conv && x == cuda->gathered.x ? dt_cuda_join(cuda) : dt_cuda_settle(cuda));
    if (n == 0) {
        return DT_OK;
    }
    if (state->is_head) {
        return head_forward(state, params, x, y, pass);
    }
    if (has_linear(state)) {
        DT_TRY(dt_cuda_pack(cuda, &state->packed, params + state->weight_offset));
        DT_TRY(linear_forward(state, params, x, y, n));
    }
    if (state->is_plain) {
        return DT_OK;
    }
    DT_CUDA(dt_gpu_tail_forward(cuda->stream, &tail, cuda->batch.ids, n, cuda->type, has_linear(state) ? state->z : x,
                                bias_of(state, params), state->y_type, y));
    return DT_OK;
}

/* ---- backward */

/* Zeros from sample n to the capacity: convolutions are planned for whole batches. */
static enum dt_status zero_behind(const struct dt_block_state *state, void *samples, size_t n_elems, int n)
{
    const size_t n_bytes = n_elems * dt_gpu_type_bytes(state->cuda->type);
    if (n < state->capacity) {
        DT_CUDA(cudaMemsetAsync((char *)samples + (size_t)n * n_bytes, 0, (size_t)(state->capacity - n) * n_bytes,
                                state->cuda->stream));
    }
    return DT_OK;
}

/* grads: NULL without a linear operation, and so without a bias. */
static enum dt_status tail_backward(const struct dt_block_state *state, const float *params, float *grads, const void *z,
                                    const void *dy, void *dz, const struct dt_pass *pass)
{
    const struct dt_cuda *cuda = state->cuda;
    const struct dt_gpu_tail tail = tail_of(state, pass);
    const struct dt_gpu_gradients to = {.bias = grads != NULL ? grads + state->bias_offset : NULL,
                                        .accumulate = pass->accumulate,
                                        .scratch = cuda->scratch[DT_CUDA_SCRATCH_SUMS].memory};
    DT_CUDA(dt_gpu_tail_backward(cuda->stream, &tail, cuda->batch.ids, pass->batch->n, cuda->type, z, bias_of(state, params),
                                 state->y_type, dy, dz, &to));
    return DT_OK;
}

/* What is there already has to be added to, and so comes first. */
static enum dt_status filter_gradient(struct dt_block_state *state, float *dweight, const void *x, bool accumulate)
{
    struct dt_cuda *cuda = state->cuda;
    const struct dt_gpu_filter *f = &state->packed.filter;
    if (accumulate) {
        DT_TRY(dt_cuda_unpack(cuda));
        DT_TRY(dt_cuda_join(cuda));
        DT_TRY(dt_cuda_fork(cuda, DT_CUDA_GRADIENTS));
    }
    DT_TRY(run_plan(state, DT_CONV_FILTER_GRADIENT, state->dz, x, state->packed.dw));
    if (accumulate) {
        DT_CUDA(
            dt_gpu_unpack_gradient(weight_lane(state)->stream, f->k, f->c, f->kernel, cuda->type, state->packed.dw, true, dweight));
    }
    state->packed.dw_of = accumulate ? NULL : dweight;
    return DT_OK;
}

static enum dt_status conv_backward(struct dt_block_state *state, float *dweight, const void *x, void *dx,
                                    const struct dt_pass *pass)
{
    DT_TRY(filter_gradient(state, dweight, x, pass->accumulate));
    return dx != NULL ? run_plan(state, DT_CONV_INPUT_GRADIENT, state->dz, state->packed.weight, dx) : DT_OK;
}

static enum dt_status dense_backward(const struct dt_block_state *state, const void *weight, float *dweight, const void *x,
                                     void *dx, const struct dt_pass *pass)
{
    const void *dz = state->dz;
    const int n = pass->batch->n, n_in = (int)state->n_in, n_out = (int)state->n_linear;
    const struct product to_weight = {.m = n_out,
                                      .n = n_in,
                                      .k = n,
                                      .a = dz,
                                      .turn_a = true,
                                      .b = x,
                                      .c = dweight,
                                      .c_type = DT_GPU_F32,
                                      .beta = pass->accumulate ? 1.0f : 0.0f};
    const struct product to_input = {.m = n, .n = n_in, .k = n_out, .a = dz, .b = weight, .c = dx, .c_type = state->cuda->type};
    DT_TRY(multiply(state->cuda, weight_lane(state), &to_weight));
    return dx != NULL ? multiply(state->cuda, &state->cuda->main, &to_input) : DT_OK;
}

static enum dt_status linear_backward(struct dt_block_state *state, const float *params, float *grads, const float *x,
                                      const float *y, const float *dy, float *dx, const struct dt_pass *pass)
{
    float *dweight = grads + state->weight_offset;
    if (state->is_plain) {
        return first_conv_backward(state, grads, x, y, dy, pass);
    }
    DT_TRY(tail_backward(state, params, grads, state->z, dy, state->dz, pass));
    if (state->is_first_conv) {
        return first_conv_backward(state, grads, x, NULL, state->dz, pass);
    }
    if (has_conv(state)) {
        DT_TRY(zero_behind(state, (void *)x, state->n_in, pass->batch->n)); /* the samples are not changed */
        DT_TRY(zero_behind(state, state->dz, state->n_linear, pass->batch->n));
    }
    if (!state->is_first) {
        DT_TRY(dt_cuda_fork(state->cuda, DT_CUDA_GRADIENTS));
    }
    if (has_conv(state)) {
        return conv_backward(state, dweight, x, dx, pass);
    }
    return dense_backward(state, weight_of(state, params), dweight, x, dx, pass);
}

static enum dt_status zero_gradients(struct dt_block_state *state, float *grads)
{
    state->packed.dw_of = NULL;
    const cudaStream_t stream = state->cuda->stream;
    DT_CUDA(cudaMemsetAsync(grads + state->weight_offset, 0, state->n_weights * sizeof *grads, stream));
    DT_CUDA(cudaMemsetAsync(grads + state->bias_offset, 0, (size_t)state->block.linear_out.c * sizeof *grads, stream));
    return DT_OK;
}

enum dt_status dt_cuda_block_backward(struct dt_block_state *state, const float *params, float *grads, const float *x,
                                      const float *y, float *dy, float *dx, const struct dt_pass *pass)
{
    poll(pass);
    DT_TRY(dt_cuda_enqueue_waiting(state->cuda));
    if (pass->batch->n == 0) {
        return has_linear(state) && !pass->accumulate ? zero_gradients(state, grads) : DT_OK;
    }
    if (state->is_head) {
        return head_backward(state, params, grads, x, dy, dx, pass);
    }
    if (has_linear(state)) {
        return linear_backward(state, params, grads, x, y, dy, dx, pass);
    }
    return dx != NULL ? tail_backward(state, params, NULL, x, dy, dx, pass) : DT_OK;
}
