/* What the program sees of libdtrain_cuda.so, which it loads only where there is a GPU driver, so that elsewhere it starts as fast
 * and as small as without CUDA. The module has one exported symbol, `dt_cuda_module`; errors go to the program's own dt_error. */
#ifndef DT_CUDA_CUDA_MODULE_H
#define DT_CUDA_CUDA_MODULE_H

#include "dist/comm.h"
#include "model/backend.h"

#define DT_CUDA_MODULE_VERSION 1 /* a module of another version is refused by name */
#define DT_CUDA_MODULE_SYMBOL "dt_cuda_module"

struct dt_gpu {
    int index;     /* CUDA's number in this process */
    char name[64]; /* "NVIDIA H200" */
    char uuid[48]; /* "GPU-xxxxxxxx-..." */
    int capability_major, capability_minor;
    size_t total_bytes, free_bytes; /* of its memory */
};

struct dt_cuda_module {
    int version;
    const struct dt_backend_ops *backend;
    /* The GPU that the rank with this local rank should use: its only one, else the local_rank-th. n_gpus: how many this process
     * sees. DT_UNAVAILABLE with the reason and the cure: no driver, no GPU, fewer GPUs than local ranks, too old a GPU or driver.
     */
    enum dt_status (*probe)(int local_rank, struct dt_gpu *out, int *n_gpus);
    /* A communicator over NCCL: allreduce and broadcast of *device* buffers of `backend`, enqueued behind the work that is enqueued
     * there; its names, deadlines and explanations are `host`'s (borrowed), which also carries the unique id. Every rank of `host`
     * calls it; each on a GPU of its own. DT_STALLED after host->timeout_s, naming who is missing. */
    enum dt_status (*comm_open)(struct dt_comm *host, struct dt_backend *backend, struct dt_comm **out);
    const char *(*versions)(void); /* "CUDA 13.0, driver 13.0, cuDNN 9.19.0, cuBLAS 13.1.0, NCCL 2.28.9"; static */
};

extern __attribute__((visibility("default"))) const struct dt_cuda_module dt_cuda_module; /* for the program: by dlsym */

#endif
