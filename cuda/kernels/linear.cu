/* Kernels around the libraries' convolutions and products: weights in another order and type. */
#include "cuda/kernels/kernels.cuh"

/* ---- weights: a thread per element of the result; it writes in order and reads with a stride */

template <typename T>
static __global__ void pack_weight_kernel(uint32_t n, uint32_t n_c, uint32_t n_taps,
                                          const float *weight, T *packed)
{
    const size_t i = thread_index();
    if (i < n) {
        const uint32_t c = (uint32_t)i % n_c, tap = (uint32_t)i / n_c % n_taps,
                       k = (uint32_t)i / n_c / n_taps;
        packed[i] = (T)weight[((size_t)k * n_c + c) * n_taps + tap];
    }
}

template <typename T>
static __global__ void unpack_gradient_kernel(uint32_t n, uint32_t n_c, uint32_t n_taps,
                                              const T *packed, bool accumulate, float *dw)
{
    const size_t i = thread_index();
    if (i < n) {
        const uint32_t tap = (uint32_t)i % n_taps, c = (uint32_t)i / n_taps % n_c,
                       k = (uint32_t)i / n_taps / n_c;
        const float value = (float)packed[((size_t)k * n_taps + tap) * n_c + c];
        dw[i] = accumulate ? dw[i] + value : value;
    }
}

cudaError_t dt_gpu_pack_weight(cudaStream_t stream, int k, int c, int kernel, const float *weight,
                               enum dt_gpu_type type, void *packed)
{
    const uint32_t n_c = (uint32_t)c, n_taps = (uint32_t)(kernel * kernel),
                   n = (uint32_t)k * n_c * n_taps; /* dt_model_lower: <= 2^31 */
    const unsigned blocks = blocks_for(n, THREADS);
    return type == DT_GPU_F32 ? DT_LAUNCH(pack_weight_kernel, blocks, THREADS, 0, stream, n, n_c,
                                          n_taps, weight, (float *)packed)
                              : DT_LAUNCH(pack_weight_kernel, blocks, THREADS, 0, stream, n, n_c,
                                          n_taps, weight, (bf16 *)packed);
}

cudaError_t dt_gpu_unpack_gradient(cudaStream_t stream, int k, int c, int kernel,
                                   enum dt_gpu_type type, const void *packed, bool accumulate,
                                   float *dw)
{
    const uint32_t n_c = (uint32_t)c, n_taps = (uint32_t)(kernel * kernel),
                   n = (uint32_t)k * n_c * n_taps;
    const unsigned blocks = blocks_for(n, THREADS);
    return type == DT_GPU_F32 ? DT_LAUNCH(unpack_gradient_kernel, blocks, THREADS, 0, stream, n,
                                          n_c, n_taps, (const float *)packed, accumulate, dw)
                              : DT_LAUNCH(unpack_gradient_kernel, blocks, THREADS, 0, stream, n,
                                          n_c, n_taps, (const bf16 *)packed, accumulate, dw);
}
