#include "cuda/block_state.h"
#include "cuda/cuda_check.h"

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

static enum dt_status dense_forward(struct dt_block_state *state, const struct dt_block_args *a)
{
    const struct product z = {.m = a->pass->batch->n,
                              .n = (int)state->n_linear,
                              .k = (int)state->n_in,
                              .a = a->x,
                              .b = dt_block_weight_of(state, a->params),
                              .turn_b = true,
                              .c = state->z,
                              .c_type = state->cuda->type};
    return multiply(state->cuda, &state->cuda->main, &z);
}

static enum dt_status dense_backward(struct dt_block_state *state, const struct dt_block_args *a)
{
    const void *dz = state->dz;
    const int n = a->pass->batch->n, n_in = (int)state->n_in, n_out = (int)state->n_linear;
    const struct product to_weight = {.m = n_out,
                                      .n = n_in,
                                      .k = n,
                                      .a = dz,
                                      .turn_a = true,
                                      .b = a->x,
                                      .c = a->grads + state->weight_offset,
                                      .c_type = DT_GPU_F32,
                                      .beta = a->pass->accumulate ? 1.0f : 0.0f};
    const struct product to_input = {.m = n,
                                     .n = n_in,
                                     .k = n_out,
                                     .a = dz,
                                     .b = dt_block_weight_of(state, a->params),
                                     .c = a->dx,
                                     .c_type = state->cuda->type};
    DT_TRY(dt_block_fork(state));
    DT_TRY(multiply(state->cuda, dt_block_weight_lane(state), &to_weight));
    return a->dx != NULL ? multiply(state->cuda, &state->cuda->main, &to_input) : DT_OK;
}

const struct dt_cuda_linear dt_cuda_dense = {NULL, dense_forward, dense_backward};

/* ---- a head, by our own kernels */

static enum dt_status head_open(struct dt_block_state *state)
{
    return dt_block_reserve_sums(
        state, dt_gpu_head_scratch((int)state->n_in, (int)state->n_linear, state->capacity));
}

static struct dt_gpu_head head_of(const struct dt_block_state *state, const float *params)
{
    return (struct dt_gpu_head){.n_in = (int)state->n_in,
                                .n_out = (int)state->n_linear,
                                .weight = params + state->weight_offset,
                                .bias = params + state->bias_offset};
}

/* A loss always follows in training only. */
static enum dt_status head_forward(struct dt_block_state *state, const struct dt_block_args *a)
{
    state->cuda->waiting = (struct dt_cuda_waiting){
        .head = head_of(state, a->params), .n = a->pass->batch->n, .x = a->x, .logits = a->y};
    return a->pass->training ? DT_OK : dt_cuda_enqueue_waiting(state->cuda);
}

static enum dt_status head_backward(struct dt_block_state *state, const struct dt_block_args *a)
{
    const struct dt_gpu_head head = head_of(state, a->params);
    const struct dt_gpu_gradients to = dt_block_gradients(state, a);
    DT_CUDA(dt_gpu_head_backward(state->cuda->stream, &head, a->pass->batch->n, state->cuda->type,
                                 a->x, a->dy, a->dx, &to));
    return DT_OK;
}

const struct dt_cuda_linear dt_cuda_head = {head_open, head_forward, head_backward};
