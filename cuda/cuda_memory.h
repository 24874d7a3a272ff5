/* Device memory of the cuda backend: every allocation is counted, so that a run can report its
 * use. */
#ifndef DT_CUDA_CUDA_MEMORY_H
#define DT_CUDA_CUDA_MEMORY_H

#include <cuda_runtime_api.h>

#include "model/device_module.h"

struct dt_cuda;

struct dt_cuda_memory {
    struct dt_cuda_piece *pieces; /* allocated ones; owned */
    int n_pieces, capacity;
    size_t n_bytes, peak_bytes; /* of all pieces: now, and the highest so far */
};

/* Allocates zeroed device memory, with 256 readable bytes after it. `what` names it in messages:
 * "conv1", "the data set". DT_NO_MEMORY reports bytes wanted and bytes free. */
enum dt_status dt_cuda_alloc(struct dt_cuda *cuda, const char *what, size_t n_bytes, void **out);
/* NULL is fine. Waits for the GPU, unless that is lost. */
void dt_cuda_free(struct dt_cuda *cuda, void *memory);

enum dt_cuda_scratch_use {
    DT_CUDA_SCRATCH_SUMS,               /* struct dt_gpu_gradients */
    DT_CUDA_SCRATCH_WORKSPACE,          /* cuDNN's own */
    DT_CUDA_SCRATCH_GRADIENT_WORKSPACE, /* on the branch of gradients */
    DT_CUDA_SCRATCH_LOSS,
    DT_CUDA_N_SCRATCH
};

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

/* The first two grow shared memory that is too small; they wait for the GPU: call them only while
 * opening blocks. The third frees it: call it when no block is open, as the next may need less. */
enum dt_status dt_cuda_reserve_scratch(struct dt_cuda *cuda, enum dt_cuda_scratch_use use,
                                       const char *what, size_t n_bytes);
enum dt_status dt_cuda_reserve_batch(struct dt_cuda *cuda, int capacity);
void dt_cuda_release_scratch(struct dt_cuda *cuda);

/* struct dt_device_module's `memory`. */
void dt_cuda_memory(struct dt_backend *backend, struct dt_device_memory *out);

#endif
