#include "cuda/block_state.h"
#include "cuda/cuda_check.h"

_Static_assert(DT_DEVICE_HEAD_INPUTS <= DT_GPU_HEAD_INPUTS &&
                   DT_DEVICE_HEAD_OUTPUTS <= DT_GPU_HEAD_OUTPUTS,
               "heads fit the kernel");

enum dt_status dt_cuda_head_open(const struct dt_block_state *state)
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
enum dt_status dt_cuda_head_forward(const struct dt_block_state *state, const float *params,
                                    const void *x, float *logits, const struct dt_pass *pass)
{
    state->cuda->waiting = (struct dt_cuda_waiting){
        .head = head_of(state, params), .n = pass->batch->n, .x = x, .logits = logits};
    return pass->training ? DT_OK : dt_cuda_enqueue_waiting(state->cuda);
}

enum dt_status dt_cuda_head_backward(const struct dt_block_state *state, const float *params,
                                     float *grads, const void *x, const float *dlogits, void *dx,
                                     const struct dt_pass *pass)
{
    const struct dt_cuda *cuda = state->cuda;
    const struct dt_gpu_head head = head_of(state, params);
    const struct dt_gpu_gradients to = {.weight = grads + state->weight_offset,
                                        .bias = grads + state->bias_offset,
                                        .accumulate = pass->accumulate,
                                        .scratch = cuda->scratch[DT_CUDA_SCRATCH_SUMS].memory};
    DT_CUDA(
        dt_gpu_head_backward(cuda->stream, &head, pass->batch->n, cuda->type, x, dlogits, dx, &to));
    return DT_OK;
}
