/* An operation (model/layers/layers.h) on the cuda backend: its kernels, and the functions that
 * launch them. */
#ifndef DT_CUDA_LAYERS_LAYER_CUH
#define DT_CUDA_LAYERS_LAYER_CUH

#include "cuda/kernels/kernels.cuh"

/* Before extern "C": parts of these are C++. */
#include <cublas_v2.h>
#include <cudnn.h>

extern "C" {
#include "cuda/cuda_backend.h"
#include "cuda/cuda_check.h"
#include "model/layers/layers.h"

#define DT_OPERATION(symbol) dt_cuda_##symbol
DT_OPERATION_LIST(DT_OPERATION_DECLARATION)
}

/* Written so that NaN stays NaN. */
static inline __device__ float activated(bool relu, float v)
{
    return relu && v < 0 ? 0.0f : v;
}

/* What a gradient is before a ReLU, whose result is y. */
static inline __device__ float passed(bool relu, float y, float dy)
{
    return relu && !(y > 0) ? 0.0f : dy;
}

/* Launches blocks of THREADS on the main stream; a failure returns from the caller. */
#define DT_LAYER_LAUNCH(kernel, blocks, ...)                                                    \
    do {                                                                                        \
        const cudaError_t code = DT_LAUNCH(kernel, blocks, THREADS, cuda->stream, __VA_ARGS__); \
        if (code != cudaSuccess) {                                                              \
            return dt_cuda_failed(code, #kernel, __FILE__, __LINE__);                           \
        }                                                                                       \
    } while (0)

/* Calls launch<T, Y>(cuda, call): T is the type of inputs, Y that of the output, which is float
 * where it is the network's. */
#define DT_BY_TYPE(launch, cuda, call)                               \
    ((cuda)->type == DT_GPU_F32 ? (launch<float, float>)(cuda, call) \
     : (call)->last             ? (launch<bf16, float>)(cuda, call)  \
                                : (launch<bf16, bf16>)(cuda, call))

/* Defines dt_cuda_SYMBOL, whose passes are by these functions, `launch` of DT_BY_TYPE. Without a
 * block the forward pass is of gradients, which are on the main stream already. */
#define DT_CUDA_LAYER(symbol, n_bytes, launch, launch_backward)               \
    static enum dt_status symbol##_forward(struct dt_backend *backend,        \
                                           const struct dt_layer_call *call)  \
    {                                                                         \
        struct dt_cuda *cuda = (struct dt_cuda *)backend;                     \
        DT_TRY(call->block != NULL ? dt_cuda_settle(cuda) : DT_OK);           \
        return DT_BY_TYPE(launch, cuda, call);                                \
    }                                                                         \
    static enum dt_status symbol##_backward(struct dt_backend *backend,       \
                                            const struct dt_layer_call *call) \
    {                                                                         \
        struct dt_cuda *cuda = (struct dt_cuda *)backend;                     \
        DT_TRY(dt_cuda_enqueue_waiting(cuda));                                \
        return DT_BY_TYPE(launch_backward, cuda, call);                       \
    }                                                                         \
    const struct dt_layer_ops dt_cuda_##symbol = {n_bytes, symbol##_forward, symbol##_backward}

#endif
