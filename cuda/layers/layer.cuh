/* An operation (model/layers/layers.h) on the cuda backend: its kernels, and the functions that
 * launch them. */
#ifndef DT_CUDA_LAYERS_LAYER_CUH
#define DT_CUDA_LAYERS_LAYER_CUH

#include "cuda/kernels/kernels.cuh"

/* Before extern "C": parts of these are C++. */
#include <cublas_v2.h>
#include <cudnn.h>
#include <nccl.h>

extern "C" {
#include "cuda/cuda_block.h"
#include "cuda/cuda_check.h"
#include "model/layers/layers.h"

#define DT_OPERATION(symbol) dt_cuda_##symbol
DT_OPERATION_LIST(DT_OPERATION_DECLARATION)
}

/* Calls launch<T, Y>(cuda, call): T is the type of inputs, Y that of the output, which is float
 * where it is the network's. */
#define DT_BY_TYPE(launch, cuda, call)                               \
    ((cuda)->type == DT_GPU_F32 ? (launch<float, float>)(cuda, call) \
     : (call)->last             ? (launch<bf16, float>)(cuda, call)  \
                                : (launch<bf16, bf16>)(cuda, call))

/* Defines dt_cuda_SYMBOL, whose passes are by launch and launch_backward of this kind, which return
 * cudaError_t. Without a block the forward pass is of gradients, which are on the main stream
 * already. */
#define DT_CUDA_LAYER(symbol, n_bytes)                                        \
    static enum dt_status symbol##_forward(struct dt_backend *backend,        \
                                           const struct dt_layer_call *call)  \
    {                                                                         \
        struct dt_cuda *cuda = (struct dt_cuda *)backend;                     \
        DT_TRY(call->block != NULL ? dt_cuda_settle(cuda) : DT_OK);           \
        DT_CUDA(DT_BY_TYPE(symbol##_launch, cuda, call));                     \
        return DT_OK;                                                         \
    }                                                                         \
    static enum dt_status symbol##_backward(struct dt_backend *backend,       \
                                            const struct dt_layer_call *call) \
    {                                                                         \
        struct dt_cuda *cuda = (struct dt_cuda *)backend;                     \
        DT_TRY(dt_cuda_enqueue_waiting(cuda));                                \
        DT_CUDA(DT_BY_TYPE(symbol##_launch_backward, cuda, call));            \
        return DT_OK;                                                         \
    }                                                                         \
    const struct dt_layer_ops dt_cuda_##symbol = {n_bytes, symbol##_forward, symbol##_backward}

#endif
