/* The cuda backend, which implements model/backend.h: its state, and what its files share. One GPU,
 * one main stream; a pass only enqueues. Kernels read the batch of the last `gather`. Buffers of
 * activations and their gradients have room for `capacity` samples: the backend may overwrite the
 * rows after a smaller batch. */
#ifndef DT_CUDA_CUDA_BACKEND_H
#define DT_CUDA_CUDA_BACKEND_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "cuda/kernels/kernels.h"
#include "model/device_module.h"

struct dt_cuda;

/* ---- device memory (cuda_memory.c): every allocation is counted, so that a run can report its
 * use */

#define DT_CUDA_MOST_PIECES 4096
struct dt_cuda_memory {
    int n_pieces;
    struct dt_cuda_piece {
        void *memory;
        size_t n_bytes;
    } pieces[DT_CUDA_MOST_PIECES]; /* allocated ones */
    size_t n_bytes, peak_bytes;    /* of all pieces: now, and the highest so far */
};

enum dt_cuda_scratch_use {
    DT_CUDA_SCRATCH_SUMS,               /* struct dt_gpu_gradients */
    DT_CUDA_SCRATCH_WORKSPACE,          /* cuDNN's own */
    DT_CUDA_SCRATCH_GRADIENT_WORKSPACE, /* on the branch of gradients */
    DT_CUDA_SCRATCH_LOSS,
    DT_CUDA_N_SCRATCH
};

/* Memory that lives within one call, shared by all blocks: one piece per stream. */
struct dt_cuda_scratch {
    void *memory;
    size_t n_bytes;
};

/* Rows and ids of batches on their way to the device: pinned host memory, one slot per batch, used
 * in turn, so that the program can continue while copies of earlier batches still wait on the
 * stream. */
#define DT_CUDA_BATCH_SLOTS 8
struct dt_cuda_batches {
    int capacity;   /* samples of a slot */
    uint32_t *host; /* pinned; slots of 1 + 2 * capacity: epoch, rows, ids */
    cudaEvent_t copied[DT_CUDA_BATCH_SLOTS];
    int next;
    uint32_t *device; /* one slot: the last batch sent */
};

/* Allocates zeroed device memory, with 256 readable bytes after it. `what` names it in messages:
 * "conv1", "the data set". DT_NO_MEMORY reports bytes wanted and bytes free. */
enum dt_status dt_cuda_alloc(struct dt_cuda *cuda, const char *what, size_t n_bytes, void **out);
/* NULL is fine. Waits for the GPU, unless that is lost. */
void dt_cuda_free(struct dt_cuda *cuda, void *memory);

/* The first two grow shared memory that is too small; they wait for the GPU: call them only while
 * opening blocks. The third frees it: call it when no block is open, as the next may need less. */
enum dt_status dt_cuda_reserve_scratch(struct dt_cuda *cuda, enum dt_cuda_scratch_use use,
                                       const char *what, size_t n_bytes);
enum dt_status dt_cuda_reserve_batch(struct dt_cuda *cuda, int capacity);
void dt_cuda_release_scratch(struct dt_cuda *cuda);

/* struct dt_device_module's `memory`. */
void dt_cuda_memory(struct dt_backend *backend, struct dt_device_memory *out);

/* ---- streams beside the main one (branch.c), for work whose results nobody needs before the step
 * ends: gradients of weights run beside the backward pass, updates beside both. Each stream has its
 * own library handles, because workspaces must not be shared by concurrent calls. The contract of
 * model/backend.h stays: work takes effect in the order of the calls. A call that starts work on a
 * branch forks it, and every other backend call joins the open branches. In a recorded graph forks
 * and joins cost nothing: they are edges. */

/* A stream and the library handles that enqueue on it. */
struct dt_cuda_lane {
    cudaStream_t stream;
    cublasHandle_t cublas;
    cudnnHandle_t cudnn;
    void *cublas_workspace;
    enum dt_cuda_scratch_use workspace; /* cuDNN's */
};

enum dt_cuda_branch {
    DT_CUDA_GRADIENTS, /* of weights and biases; of the first block they are on the main stream:
                          nothing is left to run beside */
    DT_CUDA_UPDATES,   /* optimizer steps; they call no library */
    DT_CUDA_N_BRANCHES
};

struct dt_cuda_branches {
    struct dt_cuda_lane lanes[DT_CUDA_N_BRANCHES];
    cudaEvent_t events[DT_CUDA_N_BRANCHES];
    bool open[DT_CUDA_N_BRANCHES]; /* has work that the main stream does not wait for yet */
};

/* The highest priority: for work that the rest of a step waits for. */
enum dt_status dt_cuda_urgent_stream(cudaStream_t *out);

/* The main lane, too; close takes a backend that is half open. */
enum dt_status dt_cuda_lanes_open(struct dt_cuda *cuda);
void dt_cuda_lanes_close(struct dt_cuda *cuda);

/* Work enqueued on the branch from now on runs after everything on the main stream so far; updates
 * after gradients, too. */
enum dt_status dt_cuda_fork(struct dt_cuda *cuda, enum dt_cuda_branch branch);
/* Work enqueued on the main stream from now on runs after everything enqueued so far, also on the
 * branches. */
enum dt_status dt_cuda_join(struct dt_cuda *cuda);

/* ---- weights in the libraries' layout and type (packed.c), and gradients of filters that the
 * libraries write in it. A block copies its weight once, at its first use; from then on every
 * optimizer step writes the copy along with the weight. A filter's gradient stays where cuDNN wrote
 * it until something other than an optimizer step needs it: an optimizer step reads it there. So
 * neither costs an extra kernel in a step of one rank. */

/* One block's packed weight and gradient. */
struct dt_cuda_packed {
    struct dt_gpu_filter filter; /* its shape */
    void *weight;                /* the copy; NULL: the library reads the arena */
    const float *weight_of;      /* the weight it is a copy of; NULL: not copied yet */
    void *dw;                    /* conv: the filter's gradient */
    float *dw_of; /* its pending destination, unless an optimizer step reads dw first; NULL: none */
    float *dw_recorded; /* likewise, after each recorded step that does not unpack it; NULL: none */
    struct dt_cuda_packed *next; /* of the open ones */
};

void dt_cuda_packed_open(struct dt_cuda *cuda, struct dt_cuda_packed *packed);
void dt_cuda_packed_close(struct dt_cuda *cuda, struct dt_cuda_packed *packed);

/* Afterwards packed->weight is the copy of `weight`. */
enum dt_status dt_cuda_pack(struct dt_cuda *cuda, struct dt_cuda_packed *packed,
                            const float *weight);

/* Writes pending filter gradients to their destination, on the branch of gradients: call it before
 * anything but an optimizer step reads them. */
enum dt_status dt_cuda_unpack(struct dt_cuda *cuda);

/* The same for gradients that the last recorded step has left: for code that reads them between
 * steps. */
enum dt_status dt_cuda_unpack_recorded(struct dt_cuda *cuda);

/* This memory was written: copies of it are refreshed at the next use, and pending gradients to it
 * are dropped. */
enum dt_status dt_cuda_packed_written(struct dt_cuda *cuda, const void *memory, size_t n_bytes);
/* Memory is about to be freed, perhaps a network's. */
enum dt_status dt_cuda_packed_forget(struct dt_cuda *cuda);

/* For an optimizer step over n_elems weights and gradients starting at these. */
struct dt_gpu_packs dt_cuda_packs(const struct dt_cuda *cuda, size_t n_elems, const float *params,
                                  const float *grads);

/* `event` fires when the gradients of all backward calls made so far are complete, in the arena's
 * order. */
enum dt_status dt_cuda_record_gradients(struct dt_cuda *cuda, cudaEvent_t event);

/* ---- the backend (cuda_backend.c) */

/* The last gathered batch. If a block that reads the samples themselves is its first reader, x is
 * never written. */
struct dt_cuda_gathered {
    struct dt_samples samples;
    int n;
    void *x;
    bool pending;  /* x is not written yet, and the samples not read in place yet */
    bool in_place; /* x was never written */
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
    struct dt_gpu_head waiting; /* its forward pass is deferred until its loss is called, so that
                                   one kernel does both; n = 0: none */
    struct dt_gpu_step *step;   /* device */
    char unrecorded[160];       /* why no graph can have a step; "": it can */
    bool lost;             /* unfinished work may hang: no call may wait for the GPU any more */
    bool inputs_on_device; /* enqueued work is a recorded step's: its inputs are there already */
    struct dt_cuda_sums *sums;       /* device */
    struct dt_metrics *host_metrics; /* pinned */
    char description[96];
};

static inline size_t dt_gpu_type_bytes(enum dt_gpu_type type)
{
    return type == DT_GPU_F32 ? sizeof(float) : 2;
}

extern const struct dt_backend_ops dt_cuda_backend;

/* The first enqueues deferred work and joins the branches. Every backend call begins with it,
 * except calls that absorb the deferred work or run beside the branches: they begin with the
 * second. The third discards deferred work. In branch.c. */
enum dt_status dt_cuda_settle(struct dt_cuda *cuda);
enum dt_status dt_cuda_enqueue_waiting(struct dt_cuda *cuda);
void dt_cuda_drop(struct dt_cuda *cuda);

/* ---- blocks (cuda_block.c). A block keeps the output of its linear operation (before the bias)
 * for the backward pass, which then overwrites it with its gradient, and a copy of its weights in
 * the libraries' layout and type. The chain of blocks runs on the main stream. */

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

/* ---- the module's other parts, by the names in struct dt_device_module */

/* probe.c: the GPU becomes the thread's current one. */
enum dt_status dt_cuda_probe(int local_rank, struct dt_device_info *out, int *n_devices);
const char *dt_cuda_versions(void);

extern const struct dt_step_graph_ops dt_step_graph; /* step_graph.c */

/* nccl_allreduce.c. After any failure all ranks have the same status and text. DT_UNAVAILABLE: NCCL
 * cannot start here. DT_STALLED after the communicator's time limit: the missing ranks. Close it
 * before the backend; the close returns within a few seconds, whatever other ranks do. */
enum dt_status dt_nccl_open(const struct dt_allreduce_spec *spec, struct dt_allreduce **out);
/* Fails if NCCL has noticed a failure since; `name`: the sum it would affect. Costs nothing. */
enum dt_status dt_nccl_check(struct dt_allreduce *allreduce, const char *name);

#endif
