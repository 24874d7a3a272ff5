/* What the rest of the module sees of the cuda backend: dt_cuda_backend of model/backend.h. One
 * GPU, one stream; a pass only enqueues.
 *
 * The batch that kernels see is that of the last `gather`. Buffers of activations and their
 * gradients have room for `capacity` samples: what lies behind a smaller batch is the backend's to
 * overwrite. */
#ifndef DT_CUDA_CUDA_BACKEND_H
#define DT_CUDA_CUDA_BACKEND_H

#include <cuda_runtime_api.h>

#include "model/device_module.h"

extern const struct dt_backend_ops dt_cuda_backend;

cudaStream_t
dt_cuda_backend_stream(const struct dt_backend *
                           backend); /* where it enqueues; its device is the thread's current one */

#endif
