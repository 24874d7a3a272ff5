#include "cuda/block_state.h"
#include "cuda/cuda_check.h"

/* Leaves out the samples' address, which only a pass knows. */
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

enum dt_status dt_cuda_first_conv_open(const struct dt_block_state *state)
{
    const struct dt_gpu_first_conv conv = first_conv(&state->block, false);
    return dt_block_reserve_sums(state, dt_gpu_first_conv_scratch(&conv));
}

static struct dt_gpu_first_conv first_conv_of(const struct dt_block_state *state, const void *x,
                                              const struct dt_pass *pass)
{
    const struct dt_cuda *cuda = state->cuda;
    struct dt_gpu_first_conv conv = first_conv(&state->block, state->is_plain);
    if (cuda->gathered.in_place && cuda->gathered.x == x) {
        conv.samples = cuda->gathered.samples;
        conv.rows = cuda->batch.rows;
    } else {
        conv.x = x;
    }
    conv.signs = pass->training ? state->signs : NULL;
    return conv;
}

enum dt_status dt_cuda_first_conv_forward(const struct dt_block_state *state, const float *params,
                                          const void *x, void *y, const struct dt_pass *pass)
{
    struct dt_cuda *cuda = state->cuda;
    cuda->gathered.pending = false;
    const struct dt_gpu_first_conv conv = first_conv_of(state, x, pass);
    DT_CUDA(dt_gpu_first_conv_forward(
        cuda->stream, &conv, pass->batch->n, cuda->type, params + state->weight_offset,
        state->is_plain ? params + state->bias_offset : NULL, state->is_plain ? y : state->z));
    return DT_OK;
}

enum dt_status dt_cuda_first_conv_backward(const struct dt_block_state *state, float *grads,
                                           const void *x, const void *y, const void *dy,
                                           const struct dt_pass *pass)
{
    const struct dt_cuda *cuda = state->cuda;
    const struct dt_gpu_first_conv conv = first_conv_of(state, x, pass);
    const struct dt_gpu_gradients to = {.weight = grads + state->weight_offset,
                                        .bias = state->is_plain ? grads + state->bias_offset : NULL,
                                        .accumulate = pass->accumulate,
                                        .scratch = cuda->scratch[DT_CUDA_SCRATCH_SUMS].memory};
    DT_CUDA(dt_gpu_first_conv_gradient(cuda->stream, &conv, pass->batch->n, cuda->type,
                                       state->is_plain ? y : NULL, dy, &to));
    return DT_OK;
}
