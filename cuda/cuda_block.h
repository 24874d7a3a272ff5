/* Blocks on the cuda backend, and what they share with the rest of it.
 *
 * A block keeps the output of its linear operation, before bias and all else, for the backward
 * pass, whose gradient then takes its place, and a copy of its weights in the order and type that
 * the libraries want. The chain of blocks is on the main stream; the gradients of weights, which no
 * block waits for, are on a branch beside it, but for the first block, beside which nothing is
 * left. What lives only within a call lies in scratch memory that all blocks share, a piece per
 * stream. */
#ifndef DT_CUDA_CUDA_BLOCK_H
#define DT_CUDA_CUDA_BLOCK_H

#include "cuda/branch.h"
#include "cuda/cuda_backend.h"
#include "cuda/cuda_memory.h"
#include "cuda/kernels/kernels.h"
#include "cuda/packed.h"

/* What kernels read of the last gathered batch; device memory. */
struct dt_cuda_batch {
    const uint32_t *rows, *ids, *epoch;
};

/* The last gathered batch, whose first reader may be a block that reads the samples themselves:
 * then nobody writes x. */
struct dt_cuda_gathered {
    struct dt_gpu_samples samples;
    int n;
    void *x;
    bool waits;    /* x is still to be written, or to be read in place */
    bool in_place; /* x was never written */
};

/* A head's forward pass that waits for its loss, so that both go in one kernel. n = 0: none. */
struct dt_cuda_waiting {
    struct dt_gpu_head head;
    int n;
    const void *x;
    float *logits;
};

/* Results on their way back to the host, and what they are made from. */
struct dt_cuda_sums {
    struct dt_gpu_metrics metrics;
    double squares;
    double scratch[DT_GPU_SUM_SCRATCH];
};

struct dt_cuda {
    struct dt_backend base;
    struct dt_device_info gpu;
    enum dt_precision precision;
    bool deterministic;       /* cuDNN's engines are not timed */
    double limit_s;           /* for what it is given; 0: none */
    enum dt_gpu_type type;    /* of activations and packed weights */
    cudaStream_t stream;      /* the main one: main.stream */
    struct dt_cuda_lane main; /* where everything is that says nothing else */
    struct dt_cuda_branches branches;
    struct dt_cuda_packed *packed; /* of the blocks that are open */
    struct dt_cuda_memory memory;
    struct dt_cuda_scratch scratch[DT_CUDA_N_SCRATCH];
    int n_blocks; /* open: they share it */
    struct dt_cuda_batches batches;
    struct dt_cuda_batch batch;
    struct dt_cuda_gathered gathered;
    struct dt_cuda_waiting waiting;
    struct dt_gpu_step *step; /* device */
    bool lost; /* something is under way that may never end: what waits for the GPU must not be
                  called */
    bool on_its_own; /* what is enqueued belongs to a step whose numbers are on the device already
                        (cuda/step_graph.h) */
    struct dt_cuda_sums *sums;           /* device */
    struct dt_gpu_metrics *host_metrics; /* pinned */
    char description[96];
};

static inline size_t dt_gpu_type_bytes(enum dt_gpu_type type)
{
    return type == DT_GPU_F32 ? sizeof(float) : 2;
}

/* Enqueues what waits, and joins the branches. Every call on the backend begins with it, unless it
 * takes in what waits, or goes on beside the branches; then with the second. The third forgets what
 * waits. In cuda/waiting.c. */
enum dt_status dt_cuda_settle(struct dt_cuda *cuda);
enum dt_status dt_cuda_enqueue_waiting(struct dt_cuda *cuda);
void dt_cuda_drop(struct dt_cuda *cuda);

enum dt_status dt_cuda_block_open(struct dt_backend *backend, const struct dt_model *model,
                                  int index, int capacity, struct dt_block_state **out);
void dt_cuda_block_close(struct dt_block_state *state);
int dt_cuda_block_engines(const struct dt_block_state *state,
                          struct dt_device_engine out[DT_DEVICE_MAX_ENGINES]);
enum dt_status dt_cuda_block_forward(struct dt_block_state *state, const float *params,
                                     const float *x, float *y, const struct dt_pass *pass);
enum dt_status dt_cuda_block_backward(struct dt_block_state *state, const float *params,
                                      float *grads, const float *x, const float *y, float *dy,
                                      float *dx, const struct dt_pass *pass);

#endif
