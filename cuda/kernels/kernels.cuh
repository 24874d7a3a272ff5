/* Shared code of the kernels: moving neighbours in memory, number of threads, sums over a block.
 * Neighbouring threads take neighbouring channels, so that they access neighbouring memory. A
 * template's V is the number of neighbours per thread: 16 bytes are one instruction, and one call
 * of the random number generator serves eight units. Sizes that V does not divide go one by one. */
#ifndef DT_CUDA_KERNELS_KERNELS_CUH
#define DT_CUDA_KERNELS_KERNELS_CUH

#include "cuda/kernels/kernels.h"

#include <cuda_bf16.h>
#include <math.h>

#include "base/rng.h"

typedef __nv_bfloat16 bf16;

/* Put it before a loop over an array that must stay in registers. */
#ifdef __CUDACC__
#define DT_UNROLL _Pragma("unroll")
#else
#define DT_UNROLL
#endif

/* A launch, as an expression of type cudaError_t; nothing is launched where there is no block. A
 * test build compiles the same files as C++ for the CPU and defines its own. */
#ifndef DT_LAUNCH
#define DT_LAUNCH(kernel, blocks, threads, stream, ...) \
    (is_empty(blocks)                                   \
         ? cudaSuccess                                  \
         : (kernel<<<(blocks), (threads), 0, (stream)>>>(__VA_ARGS__), cudaGetLastError()))
#endif

static inline bool is_empty(dim3 blocks)
{
    return blocks.x == 0 || blocks.y == 0;
}

/* A kernel's version for a type, and for the first of two numbers if `is_first`. */
#define DT_VERSION(kernel, type, is_first, first, second)                               \
    ((type) == DT_GPU_F32 ? ((is_first) ? kernel<float, first> : kernel<float, second>) \
                          : ((is_first) ? kernel<bf16, first> : kernel<bf16, second>))

#define THREADS 256 /* per block by default; a power of two */
#define WIDE 8      /* channels per thread, if they divide the number of channels */
static_assert(WIDE == 8, "a thread's channels are one group of dropout units, or half of one");

/* V neighbours in memory, aligned so that one instruction moves them. */
template <typename T, int V> struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) pack {
    T v[V];
};

template <int V, typename T> static inline __device__ void load(const T *from, float *to)
{
    const pack<T, V> packed = *(const pack<T, V> *)from;
    for (int v = 0; v < V; v++) {
        to[v] = (float)packed.v[v];
    }
}

template <int V, typename T> static inline __device__ void store(const float *from, T *to)
{
    pack<T, V> packed;
    for (int v = 0; v < V; v++) {
        packed.v[v] = (T)from[v];
    }
    *(pack<T, V> *)to = packed;
}

/* Leaves `to` as it is where there is nothing to load. */
template <int V> static inline __device__ void load_if(const float *from, size_t i, float *to)
{
    if (from != NULL) {
        load<V>(from + i, to);
    }
}

template <int V> static inline __device__ void add(const float *from, float *to)
{
    for (int v = 0; v < V; v++) {
        to[v] += from[v];
    }
}

/* True if packs may be read at this pointer, NULL included. */
static inline bool aligned(const void *pointer)
{
    return (uintptr_t)pointer % 16 == 0;
}

static inline unsigned blocks_for(size_t n_threads, unsigned threads)
{
    return (unsigned)((n_threads + threads - 1) / threads);
}

static inline __device__ size_t thread_index()
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* For kernels with a thread per part of a sample, and the samples in blockIdx.y: at most 65,535, so
 * that a thread may have several samples. */
static inline unsigned threads_for_samples(unsigned n_parts)
{
    return n_parts < THREADS ? (n_parts + 31) / 32 * 32 : THREADS;
}

static inline dim3 blocks_for_samples(unsigned n_parts, int n)
{
    return dim3(blocks_for(n_parts, threads_for_samples(n_parts)), n < 65535 ? (unsigned)n : 65535);
}

/* WIDE, or 1 where that does not divide the block's channels. */
static inline unsigned width_of(const struct dt_block &block)
{
    return block.linear_out.c % WIDE == 0 ? WIDE : 1;
}

/* Where element j of a weight lies when it is packed; j < 2^31 (dt_model_lower). */
static inline __device__ size_t packed_index(const struct dt_gpu_filter &filter, uint32_t j)
{
    const uint32_t n_c = (uint32_t)filter.c, n_taps = (uint32_t)(filter.kernel * filter.kernel);
    const uint32_t tap = j % n_taps, c = j / n_taps % n_c, k = j / n_taps / n_c;
    return n_taps == 1 ? j : ((size_t)k * n_taps + tap) * n_c + c;
}

template <typename T> static inline __device__ void add_or_put(bool adds, float v, T *to)
{
    *to = (T)(adds ? (float)*to + v : v);
}

static inline __device__ size_t n_elems(struct dt_shape s)
{
    return (size_t)s.c * s.h * s.w;
}

/* Channel c of a place of a sample, without its transform. */
static inline __device__ float stored(const struct dt_samples &samples, size_t row, unsigned c,
                                      unsigned place)
{
    const unsigned n_places = (unsigned)(samples.shape.h * samples.shape.w);
    const size_t at = row * n_elems(samples.shape) + c * n_places + place;
    return samples.pixels != NULL ? (float)samples.pixels[at] * samples.scale : samples.values[at];
}

/* ---- activation */

/* Of the normal distribution, up to x. */
static inline __device__ float normal_integral(float x)
{
    return 0.5f * erfcf(x * -0.70710678f);
}

template <int V, typename Change> static inline __device__ void each(float *x, Change change)
{
    for (int v = 0; v < V; v++) {
        x[v] = change(x[v]);
    }
}

/* One branch for all V. */
template <int V> static inline __device__ void activate(enum dt_activation activation, float *x)
{
    switch (activation) {
    case DT_ACTIVATION_RELU: /* written so that NaN stays NaN */
        return each<V>(x, [](float z) { return z < 0 ? 0.0f : z; });
    case DT_ACTIVATION_TANH:
        return each<V>(x, [](float z) { return tanhf(z); });
    case DT_ACTIVATION_SIGMOID:
        return each<V>(x, [](float z) { return 1.0f / (1.0f + expf(-z)); });
    case DT_ACTIVATION_LEAKY_RELU:
        return each<V>(x, [](float z) { return z * (z > 0 ? 1.0f : DT_LEAKY_SLOPE); });
    case DT_ACTIVATION_GELU:
        return each<V>(x, [](float z) { return z * normal_integral(z); });
    case DT_ACTIVATION_NONE:
        break;
    }
}

/* Derivative, from the activation's output a; z, its input, matters to gelu alone. */
static inline __device__ float slope(enum dt_activation activation, float z, float a)
{
    switch (activation) {
    case DT_ACTIVATION_RELU:
        return a > 0 ? 1.0f : 0.0f;
    case DT_ACTIVATION_TANH:
        return 1.0f - a * a;
    case DT_ACTIVATION_SIGMOID:
        return a * (1.0f - a);
    case DT_ACTIVATION_LEAKY_RELU:
        return a > 0 ? 1.0f : DT_LEAKY_SLOPE;
    case DT_ACTIVATION_GELU:
        return normal_integral(z) + z * expf(-0.5f * z * z) * 0.39894228f; /* 1 / sqrt(2 pi) */
    case DT_ACTIVATION_NONE:
        break;
    }
    return 1.0f;
}

/* What softmax(z) of a class should be. */
static inline __device__ double target(double smoothing, int n_classes, bool is_label)
{
    return (1 - smoothing) * (is_label ? 1.0 : 0.0) + smoothing / n_classes;
}

/* ---- over a block: each thread passes a number, all get the result. blockDim.x is a power of two,
 * at least 32. */

/* The sum: first of every 16 neighbours, then of those sums. */
static inline __device__ double block_sum(double value)
{
    __shared__ double sums[THREADS];
    __syncthreads(); /* all threads have read the last sum */
    sums[threadIdx.x] = value;
    __syncthreads();
    for (unsigned i = 1; threadIdx.x % 16 == 0 && i < 16; i++) {
        sums[threadIdx.x] += sums[threadIdx.x + i];
    }
    __syncthreads();
    double sum = 0;
    for (unsigned i = 0; i < blockDim.x; i += 16) {
        sum += sums[i];
    }
    return sum;
}

/* The sum over every stride-th of THREADS threads, in their order. */
static inline __device__ float team_sum(float value, unsigned stride)
{
    __shared__ float values[THREADS];
    __syncthreads(); /* all threads have read the last sum */
    values[threadIdx.x] = value;
    __syncthreads();
    float sum = 0;
    for (unsigned i = threadIdx.x % stride; i < THREADS; i += stride) {
        sum += values[i];
    }
    return sum;
}

/* Adds n_sums losses, and as many hits after them, of n samples; the block has THREADS threads. */
static inline __device__ void add_metrics(size_t n_sums, const double *sums, int n,
                                          struct dt_metrics *metrics)
{
    double loss = 0, correct = 0;
    for (size_t i = threadIdx.x; i < n_sums; i += THREADS) {
        loss += sums[i];
        correct += sums[n_sums + i];
    }
    loss = block_sum(loss);
    correct = block_sum(correct);
    if (threadIdx.x == 0) {
        metrics->loss_sum += loss;
        metrics->n_correct += correct;
        metrics->n_samples += n;
    }
}

/* The index of the largest of z; each thread passes a candidate; of equal ones the lowest wins. */
static inline __device__ int block_best(const float *z, int candidate)
{
    __shared__ int best[THREADS];
    best[threadIdx.x] = candidate;
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            const int mine = best[threadIdx.x], other = best[threadIdx.x + half];
            best[threadIdx.x] =
                z[other] > z[mine] || (z[other] == z[mine] && other < mine) ? other : mine;
        }
    }
    __syncthreads();
    return best[0];
}

/* ---- over all blocks: each block writes its sums as a row in scratch memory, and the block that
 * ends last adds the rows. Any block may be last: the order of the rows does not change. */

/* Counters at the beginning of the scratch memory: finished blocks; 0 before a kernel and after. */
#define N_COUNTS 64

/* Floats of a row: rounded up for moves of four. */
static inline __host__ __device__ unsigned row_width(unsigned n)
{
    return (n + 3) / 4 * 4;
}

/* True in the last of n blocks to end. It then sees everything that the others wrote. */
static inline __device__ bool is_last(float *count, unsigned n)
{
    __shared__ unsigned n_before;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        n_before = atomicInc((unsigned *)count, n - 1); /* counts from n - 1 to 0 */
    }
    __syncthreads();
    __threadfence();
    return n_before == n - 1;
}

/* Threads of a block side by side over `across` columns, in `n` such lanes; leftover threads have
 * no lane. */
struct lanes {
    unsigned across, n, mine;
};

static inline __device__ struct lanes lanes_of(unsigned n_columns)
{
    const unsigned across = n_columns < blockDim.x ? n_columns : blockDim.x;
    return {across, blockDim.x / across, threadIdx.x / across};
}

/* Floats of the block's shared memory that add_lanes uses. */
#define LANES_MEMORY(n, v) ((n)*THREADS * ((v) + 1))

/* Calls keep(group, column, sum) for n groups of V * across columns; each thread of a lane passes V
 * per group. Adds in steps of the lanes, then over the steps. It does all groups together, so that
 * their sums do not wait for each other; n <= N. */
template <int V, int N, typename Keep>
static inline __device__ void add_lanes(struct lanes lanes, const float (*mine)[V], unsigned n,
                                        float *memory, Keep keep)
{
    const unsigned n_columns = lanes.across * V;
    float *steps = memory + N * THREADS * V;
    __syncthreads(); /* the memory's last use is over */
    DT_UNROLL
    for (unsigned j = 0; j < N; j++) {
        if (j < n) {
            store<V>(mine[j], memory + (j * THREADS + threadIdx.x) * V);
        }
    }
    __syncthreads();
    for (unsigned first = 0; first < n_columns; first += THREADS) {
        const unsigned width = n_columns - first < THREADS ? n_columns - first : THREADS,
                       n_steps = THREADS / width;
        const unsigned column = first + threadIdx.x % width;
        float sum[N] = {};
        for (unsigned lane = threadIdx.x / width; lane < lanes.n; lane += n_steps) {
            DT_UNROLL
            for (unsigned j = 0; j < N; j++) {
                sum[j] += j < n ? memory[j * THREADS * V + lane * n_columns + column] : 0.0f;
            }
        }
        DT_UNROLL
        for (unsigned j = 0; j < N; j++) {
            steps[j * THREADS + threadIdx.x] = sum[j];
        }
        __syncthreads();
        for (unsigned i = threadIdx.x; i < n * width; i += THREADS) {
            const unsigned j = i / width, at = i % width;
            float total = 0;
            for (unsigned step = 0; step < n_steps; step++) {
                total += steps[j * THREADS + step * width + at];
            }
            keep(j, first + at, total);
        }
        __syncthreads();
    }
}

/* Rows that a thread reads before it adds the first: one by one, each would cost a full memory
 * latency. */
#define ROWS_AT_ONCE 8

/* In the last of n blocks: puts the sum of a column of n_rows rows, or adds it, at place(column),
 * unless that is NULL. Sums go in steps of the lanes, then over the lanes. */
template <typename Place>
static inline __device__ void add_rows(float *count, unsigned n, const float *rows, unsigned n_rows,
                                       unsigned width, bool accumulate, Place place)
{
    alignas(16) __shared__ float sums[THREADS * 4];
    if (!is_last(count, n)) {
        return;
    }
    const struct lanes lanes = lanes_of(width / 4);
    for (unsigned first = 0; first < width / 4; first += lanes.across) {
        const unsigned column = first + threadIdx.x % lanes.across;
        const bool has_column = column < width / 4;
        float sum[4] = {};
        const unsigned end = has_column && lanes.mine < lanes.n ? n_rows : 0;
        const float *from = rows + column * 4;
        unsigned row = lanes.mine;
        for (; row + (ROWS_AT_ONCE - 1) * lanes.n < end; row += ROWS_AT_ONCE * lanes.n) {
            float x[ROWS_AT_ONCE][4];
            DT_UNROLL
            for (unsigned i = 0; i < ROWS_AT_ONCE; i++) {
                load<4>(from + (size_t)(row + i * lanes.n) * width, x[i]);
            }
            DT_UNROLL
            for (unsigned i = 0; i < ROWS_AT_ONCE; i++) {
                add<4>(x[i], sum);
            }
        }
        for (; row < end; row += lanes.n) {
            float x[4];
            load<4>(from + (size_t)row * width, x);
            add<4>(x, sum);
        }
        __syncthreads(); /* all threads have read the last sums */
        store<4>(sum, sums + threadIdx.x * 4);
        __syncthreads();
        for (unsigned v = 0; has_column && lanes.mine == 0 && v < 4; v++) {
            float total = 0;
            for (unsigned lane = 0; lane < lanes.n; lane++) {
                total += sums[(lane * lanes.across + threadIdx.x) * 4 + v];
            }
            float *to = place(column * 4 + v);
            if (to != NULL) {
                add_or_put(accumulate, total, to);
            }
        }
    }
}

#endif
