/* Kernels around the libraries' convolutions and products: gradients of biases, weights in another order and type. */
#include "cuda/kernels.cuh"

/* ---- gradient of the bias: the sums of slices of rows, then by the same kernel the sum of the slices' sums. A block has LANES
 * neighbouring channels and takes LANES rows at a time. */

#define LANES 32
#define ROWS_PER_SLICE (4 * LANES) /* at least */
#define MAX_SLICES 128

template <typename T>
static __global__ void __launch_bounds__(LANES *LANES)
    sum_rows_kernel(size_t n_rows, size_t rows_per_slice, size_t n_channels, const T *x, bool accumulate, float *sums)
{
    __shared__ float lanes[LANES][LANES];
    const size_t c = (size_t)blockIdx.x * LANES + threadIdx.x, begin = blockIdx.y * rows_per_slice;
    const size_t end = begin + rows_per_slice < n_rows ? begin + rows_per_slice : n_rows;
    float sum = 0;
    for (size_t row = begin + threadIdx.y; c < n_channels && row < end; row += LANES) {
        sum += (float)x[row * n_channels + c];
    }
    lanes[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && c < n_channels) {
        sum = 0;
        for (int lane = 0; lane < LANES; lane++) {
            sum += lanes[lane][threadIdx.x];
        }
        float *to = sums + blockIdx.y * n_channels + c;
        *to = accumulate ? *to + sum : sum;
    }
}

static unsigned n_slices(size_t n_rows)
{
    const size_t n = (n_rows + ROWS_PER_SLICE - 1) / ROWS_PER_SLICE;
    return n < 1 ? 1 : n < MAX_SLICES ? (unsigned)n : MAX_SLICES;
}

template <typename T>
static cudaError_t sum_rows(cudaStream_t stream, size_t n_rows, unsigned slices, int n_channels, const T *x, bool accumulate,
                            float *sums)
{
    const dim3 blocks(blocks_for((size_t)n_channels, LANES), slices), threads(LANES, LANES);
    return DT_LAUNCH(sum_rows_kernel, blocks, threads, 0, stream, n_rows, (n_rows + slices - 1) / slices, (size_t)n_channels, x,
                     accumulate, sums);
}

size_t dt_gpu_bias_scratch(size_t n_rows, int n_channels)
{
    return (size_t)n_slices(n_rows) * (size_t)n_channels;
}

cudaError_t dt_gpu_bias_gradient(cudaStream_t stream, size_t n_rows, int n_channels, enum dt_gpu_type type, const void *dz,
                                 bool accumulate, float *scratch, float *db)
{
    const unsigned slices = n_slices(n_rows);
    const bool whole = slices == 1; /* in one go */
    float *sums = whole ? db : scratch;
    const cudaError_t launched = type == DT_GPU_F32
                                     ? sum_rows(stream, n_rows, slices, n_channels, (const float *)dz, whole && accumulate, sums)
                                     : sum_rows(stream, n_rows, slices, n_channels, (const bf16 *)dz, whole && accumulate, sums);
    return launched != cudaSuccess || whole ? launched : sum_rows(stream, slices, 1, n_channels, scratch, accumulate, db);
}

/* ---- weights: a thread per element of the result, which is written in order and read in steps */

template <typename T>
static __global__ void pack_weight_kernel(uint32_t n, uint32_t n_c, uint32_t n_taps, const float *weight, T *packed)
{
    const size_t i = thread_index();
    if (i < n) {
        const uint32_t c = (uint32_t)i % n_c, tap = (uint32_t)i / n_c % n_taps, k = (uint32_t)i / n_c / n_taps;
        packed[i] = (T)weight[((size_t)k * n_c + c) * n_taps + tap];
    }
}

template <typename T>
static __global__ void unpack_gradient_kernel(uint32_t n, uint32_t n_c, uint32_t n_taps, const T *packed, bool accumulate,
                                              float *dw)
{
    const size_t i = thread_index();
    if (i < n) {
        const uint32_t tap = (uint32_t)i % n_taps, c = (uint32_t)i / n_taps % n_c, k = (uint32_t)i / n_taps / n_c;
        const float value = (float)packed[((size_t)k * n_taps + tap) * n_c + c];
        dw[i] = accumulate ? dw[i] + value : value;
    }
}

cudaError_t dt_gpu_pack_weight(cudaStream_t stream, int k, int c, int kernel, const float *weight, enum dt_gpu_type type,
                               void *packed)
{
    const uint32_t n_c = (uint32_t)c, n_taps = (uint32_t)(kernel * kernel),
                   n = (uint32_t)k * n_c * n_taps; /* dt_model_lower: <= 2^31 */
    const unsigned blocks = blocks_for(n, THREADS);
    return type == DT_GPU_F32 ? DT_LAUNCH(pack_weight_kernel, blocks, THREADS, 0, stream, n, n_c, n_taps, weight, (float *)packed)
                              : DT_LAUNCH(pack_weight_kernel, blocks, THREADS, 0, stream, n, n_c, n_taps, weight, (bf16 *)packed);
}

cudaError_t dt_gpu_unpack_gradient(cudaStream_t stream, int k, int c, int kernel, enum dt_gpu_type type, const void *packed,
                                   bool accumulate, float *dw)
{
    const uint32_t n_c = (uint32_t)c, n_taps = (uint32_t)(kernel * kernel), n = (uint32_t)k * n_c * n_taps;
    const unsigned blocks = blocks_for(n, THREADS);
    return type == DT_GPU_F32 ? DT_LAUNCH(unpack_gradient_kernel, blocks, THREADS, 0, stream, n, n_c, n_taps, (const float *)packed,
                                          accumulate, dw)
                              : DT_LAUNCH(unpack_gradient_kernel, blocks, THREADS, 0, stream, n, n_c, n_taps, (const bf16 *)packed,
                                          accumulate, dw);
}
