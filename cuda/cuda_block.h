/* Blocks on the cuda backend, and the state they share with the rest of it. A block keeps the
 * output of its linear operation (before the bias) for the backward pass, which then overwrites it
 * with its gradient, and a copy of its weights in the libraries' layout and type. The chain of
 * blocks runs on the main stream; gradients of weights, which no block waits for, run on a branch
 * beside it, except for the first block, which has nothing left to run beside. Memory that lives
 * within one call is scratch memory shared by all blocks, one piece per stream. */
#ifndef DT_CUDA_CUDA_BLOCK_H
#define DT_CUDA_CUDA_BLOCK_H

#include "cuda/branch.h"
#include "cuda/cuda_backend.h"
#include "cuda/cuda_memory.h"
#include "cuda/kernels/kernels.h"
#include "cuda/packed.h"

/* The last gathered batch. If a block that reads the samples themselves is its first reader, x is
 * never written. */
struct dt_cuda_gathered {
    struct dt_samples samples;
    int n;
    void *x;
    bool pending;  /* x is not written yet, and the samples not read in place yet */
    bool in_place; /* x was never written */
};

/* A head's forward pass, deferred until its loss is called, so that one kernel does both. n = 0:
 * none. */
struct dt_cuda_waiting {
    struct dt_gpu_head head;
    int n;
    const void *x;
    float *logits;
};

/* Results to copy to the host, and the scratch memory that computes them. */
struct dt_cuda_sums {
    struct dt_metrics metrics;
    double squares;
    double scratch[DT_GPU_SUM_SCRATCH];
};

struct dt_cuda {
    struct dt_backend base;
    struct dt_device_info gpu;
    enum dt_precision precision;
    bool deterministic; /* cuDNN's engines are not timed */
    bool unpacked;      /* packed weights and gradients are converted anew in each step */
    double limit_s;     /* for each wait on the GPU; 0: none */
    struct dt_alive alive;
    enum dt_gpu_type type;    /* of activations and packed weights */
    cudaStream_t stream;      /* the main one: main.stream, before the branches in priority */
    struct dt_cuda_lane main; /* the default for all work */
    struct dt_cuda_branches branches;
    struct dt_cuda_packed *packed; /* of the open blocks */
    struct dt_cuda_memory memory;
    struct dt_cuda_scratch scratch[DT_CUDA_N_SCRATCH];
    int n_blocks; /* open blocks, which share the above */
    struct dt_cuda_batches batches;
    struct dt_gpu_batch batch;
    struct dt_cuda_gathered gathered;
    struct dt_cuda_waiting waiting;
    struct dt_gpu_step *step; /* device */
    char unrecorded[160];     /* why no graph can have a step; "": it can */
    bool lost;             /* unfinished work may hang: no call that waits for the GPU is allowed */
    bool inputs_on_device; /* enqueued work belongs to a step whose inputs are on the device already
                        (cuda/step_graph.h) */
    struct dt_cuda_sums *sums;       /* device */
    struct dt_metrics *host_metrics; /* pinned */
    char description[96];
};

static inline size_t dt_gpu_type_bytes(enum dt_gpu_type type)
{
    return type == DT_GPU_F32 ? sizeof(float) : 2;
}

/* The first enqueues deferred work and joins the branches. Every backend call begins with it,
 * except calls that absorb the deferred work or run beside the branches: they begin with the
 * second. The third discards deferred work. In branch.c. */
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
