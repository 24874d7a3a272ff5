/* State of a block on the cuda backend, and its passes by kind of linear operation, one file per
 * kind. cuda_block.c opens, closes and calls them, and does everything after the linear
 * operation. */
#ifndef DT_CUDA_BLOCK_STATE_H
#define DT_CUDA_BLOCK_STATE_H

#include "cuda/block_plan.h"
#include "cuda/cuda_block.h"
#include "cuda/cudnn/conv_plan.h"

struct dt_block_state {
    struct dt_cuda *cuda;
    struct dt_block block;
    char forward_range[DT_BLOCK_NAME_SIZE + 16],
        backward_range[DT_BLOCK_NAME_SIZE + 16]; /* cuda/range.h */
    int capacity;
    bool is_first; /* its input needs no gradient */
    struct dt_cuda_block_plan plan;
    size_t n_in, n_linear; /* elements of a sample */
    size_t weight_offset, bias_offset, n_weights;
    struct dt_gpu_tail tail; /* without the fields that come with a pass */
    enum dt_gpu_type y_type; /* of y and dy: the last block's are float */
    struct dt_conv_plan
        *plans[DT_CONV_N_KINDS]; /* conv; each for `capacity` samples; NULL: not wanted */
    void *z;  /* (capacity, linear_out), the linear operation's output; NULL without one */
    void *dz; /* its gradient; may be z */
    void *winners, *signs;             /* of the plan; NULL where it says 0 */
    struct dt_cuda_packed packed;      /* weight and gradient in the libraries' layout */
    struct dt_cuda_packed packed_bias; /* conv */
    bool has_relu; /* conv: one plan computes bias and relu too, so z is their result */
};

static inline bool dt_block_has_linear(const struct dt_block_state *state)
{
    return state->block.linear != DT_LINEAR_NONE;
}

static inline bool dt_block_has_conv(const struct dt_block_state *state)
{
    return state->block.linear == DT_LINEAR_CONV;
}

/* The stream that computes the gradient of the weight. */
static inline const struct dt_cuda_lane *dt_block_weight_lane(const struct dt_block_state *state)
{
    return state->is_first ? &state->cuda->main : &state->cuda->branches.lanes[DT_CUDA_GRADIENTS];
}

/* Call it before that gradient, after enqueueing everything the gradient reads. */
static inline enum dt_status dt_block_fork(const struct dt_block_state *state)
{
    return state->is_first ? DT_OK : dt_cuda_fork(state->cuda, DT_CUDA_GRADIENTS);
}

static inline const void *dt_block_weight_of(const struct dt_block_state *state,
                                             const float *params)
{
    return state->packed.weight != NULL ? state->packed.weight : params + state->weight_offset;
}

static inline enum dt_status dt_block_reserve_sums(const struct dt_block_state *state,
                                                   size_t n_floats)
{
    return dt_cuda_reserve_scratch(state->cuda, DT_CUDA_SCRATCH_SUMS, state->block.name,
                                   n_floats * sizeof(float));
}

/* A convolution by cuDNN (block_conv.c). Forward writes y where it is plain, else state->z;
 * backward reads state->dz. */
enum dt_status dt_cuda_conv_open(struct dt_block_state *state);
void dt_cuda_conv_close(struct dt_block_state *state); /* NULL or half-open is fine */
enum dt_status dt_cuda_conv_forward(struct dt_block_state *state, const float *params,
                                    const void *x, void *y);
enum dt_status dt_cuda_conv_backward(struct dt_block_state *state, float *grads, const void *x,
                                     void *dx, const struct dt_pass *pass);

/* A dense layer by cuBLAS (block_dense.c), likewise, for n samples. */
enum dt_status dt_cuda_dense_forward(const struct dt_block_state *state, const float *params,
                                     const void *x, int n);
enum dt_status dt_cuda_dense_backward(const struct dt_block_state *state, const float *params,
                                      float *grads, const void *x, void *dx,
                                      const struct dt_pass *pass);

/* The first convolution by our own kernels (block_conv.c). */
enum dt_status dt_cuda_first_conv_open(const struct dt_block_state *state);
/* Writes y if the block has nothing else to do; else state->z, for the tail. */
enum dt_status dt_cuda_first_conv_forward(const struct dt_block_state *state, const float *params,
                                          const void *x, void *y, const struct dt_pass *pass);
/* dy: gradient of the block's output where it is plain, else of z. */
enum dt_status dt_cuda_first_conv_backward(const struct dt_block_state *state, float *grads,
                                           const void *x, const void *y, const void *dy,
                                           const struct dt_pass *pass);

/* A head by our own kernels (block_dense.c). */
enum dt_status dt_cuda_head_open(const struct dt_block_state *state);
enum dt_status dt_cuda_head_forward(const struct dt_block_state *state, const float *params,
                                    const void *x, float *logits, const struct dt_pass *pass);
enum dt_status dt_cuda_head_backward(const struct dt_block_state *state, const float *params,
                                     float *grads, const void *x, const float *dlogits, void *dx,
                                     const struct dt_pass *pass);

#endif
