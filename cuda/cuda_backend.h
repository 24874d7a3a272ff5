/* The cuda backend's interface to the rest of the module: dt_cuda_backend implements
 * model/backend.h. One GPU, one main stream; a pass only enqueues. Kernels read the batch of the
 * last `gather`. Buffers of activations and their gradients have room for `capacity` samples: the
 * backend may overwrite the rows after a smaller batch. */
#ifndef DT_CUDA_CUDA_BACKEND_H
#define DT_CUDA_CUDA_BACKEND_H

#include <cuda_runtime_api.h>

#include "model/device_module.h"

extern const struct dt_backend_ops dt_cuda_backend;

/* Implements `probe` of model/device_module.h: chooses this rank's GPU, which becomes the thread's
 * current one. */
enum dt_status dt_cuda_probe(int local_rank, struct dt_device_info *out, int *n_devices);

/* Implements `versions` there: of CUDA's libraries. */
const char *dt_cuda_versions(void);

/* The stream it enqueues on; its device must be the thread's current one. */
cudaStream_t dt_cuda_backend_stream(const struct dt_backend *backend);

#endif
