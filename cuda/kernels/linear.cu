/* Kernels around the libraries' convolutions and products: weights in another order and type. A
 * thread per element, in the order of the arena. */
#include "cuda/kernels/kernels.cuh"

template <typename T>
static __global__ void pack_weight_kernel(size_t n, struct dt_gpu_filter filter,
                                          const float *weight, void *packed)
{
    const size_t i = thread_index();
    if (i < n) {
        ((T *)packed)[packed_index(filter, (uint32_t)i)] = (T)weight[i];
    }
}

template <typename T>
static __global__ void unpack_gradient_kernel(size_t n, struct dt_gpu_filter filter,
                                              const void *packed, bool accumulate, float *dw)
{
    const size_t i = thread_index();
    if (i < n) {
        const float value = (float)((const T *)packed)[packed_index(filter, (uint32_t)i)];
        dw[i] = accumulate ? dw[i] + value : value;
    }
}

cudaError_t dt_gpu_pack_weight(cudaStream_t stream, const struct dt_gpu_filter *filter,
                               const float *weight, enum dt_gpu_type type, void *packed)
{
    const size_t n = dt_gpu_filter_elems(filter);
    const auto kernel = type == DT_GPU_F32 ? pack_weight_kernel<float> : pack_weight_kernel<bf16>;
    return DT_LAUNCH(kernel, blocks_for(n, THREADS), THREADS, stream, n, *filter, weight, packed);
}

cudaError_t dt_gpu_unpack_gradient(cudaStream_t stream, const struct dt_gpu_filter *filter,
                                   enum dt_gpu_type type, const void *packed, bool accumulate,
                                   float *dw)
{
    const size_t n = dt_gpu_filter_elems(filter);
    const auto kernel =
        type == DT_GPU_F32 ? unpack_gradient_kernel<float> : unpack_gradient_kernel<bf16>;
    return DT_LAUNCH(kernel, blocks_for(n, THREADS), THREADS, stream, n, *filter, packed,
                     accumulate, dw);
}
