/* State of a block on the cuda backend, and its passes by kind of linear operation. cuda_block.c
 * opens, closes and calls them, and does everything after the linear operation. */
#ifndef DT_CUDA_BLOCK_STATE_H
#define DT_CUDA_BLOCK_STATE_H

#include "cuda/block_plan.h"
#include "cuda/cuda_block.h"
#include "cuda/cudnn/conv_plan.h"

struct dt_block_state;

/* What a call of a block's pass is given, from the backend's. */
struct dt_block_args {
    const float *params;
    float *grads; /* backward, as the gradients of y and x; dx: NULL: not wanted */
    const void *x;
    void *y; /* backward reads it */
    const void *dy;
    void *dx;
    const struct dt_pass *pass; /* not of 0 samples */
};

/* A kind of linear operation. Forward reads x, and writes z, or y where no tail follows; backward
 * reads the gradient of z or y, and writes the gradients of the parameters and of x. */
struct dt_cuda_linear {
    enum dt_status (*open)(struct dt_block_state *state); /* NULL: nothing to do */
    enum dt_status (*forward)(struct dt_block_state *state, const struct dt_block_args *args);
    enum dt_status (*backward)(struct dt_block_state *state, const struct dt_block_args *args);
};
extern const struct dt_cuda_linear dt_cuda_conv,       /* by cuDNN (block_conv.c) */
    dt_cuda_dense,                                     /* by cuBLAS (block_dense.c) */
    dt_cuda_first_conv, dt_cuda_head;                  /* by our own kernels (the same files) */
void dt_cuda_conv_close(struct dt_block_state *state); /* of any block, also half-open */

struct dt_block_state {
    struct dt_cuda *cuda;
    struct dt_block block;
    char forward_range[DT_BLOCK_NAME_SIZE + 16],
        backward_range[DT_BLOCK_NAME_SIZE + 16]; /* cuda/range.h */
    int capacity;
    bool is_first; /* its input needs no gradient */
    struct dt_cuda_block_plan plan;
    const struct dt_cuda_linear *linear; /* NULL: none */
    size_t n_in, n_linear;               /* elements of a sample */
    size_t weight_offset, bias_offset, n_weights;
    struct dt_gpu_tail tail;                     /* without the fields that come with a pass */
    enum dt_gpu_type y_type;                     /* of y and dy: the last block's are float */
    struct dt_conv_plan *plans[DT_CONV_N_KINDS]; /* conv; for `capacity` samples; NULL: unwanted */
    void *z;  /* (capacity, linear_out), the linear operation's output; NULL without one */
    void *dz; /* its gradient; may be z */
    void *winners, *signs;             /* of the plan; NULL where it says 0 */
    struct dt_cuda_packed packed;      /* weight and gradient in the libraries' layout */
    struct dt_cuda_packed packed_bias; /* conv */
    bool has_relu; /* conv: one plan computes bias and relu too, so z is their result */
};

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

static inline struct dt_gpu_gradients dt_block_gradients(const struct dt_block_state *state,
                                                         const struct dt_block_args *args)
{
    return (struct dt_gpu_gradients){.weight = args->grads + state->weight_offset,
                                     .bias = args->grads + state->bias_offset,
                                     .accumulate = args->pass->accumulate,
                                     .scratch = state->cuda->scratch[DT_CUDA_SCRATCH_SUMS].memory};
}

static inline enum dt_status dt_block_reserve_sums(const struct dt_block_state *state,
                                                   size_t n_floats)
{
    return dt_cuda_reserve_scratch(state->cuda, DT_CUDA_SCRATCH_SUMS, state->block.name,
                                   n_floats * sizeof(float));
}

#endif
