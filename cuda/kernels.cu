/* The kernels behind cuda/kernels.h: before each its idea, after it the function that launches it.
 *
 * Neighbouring threads take neighbouring channels, so that they touch neighbouring memory. A template's V is the number of
 * neighbours that one thread takes together: 16 bytes are one instruction, and eight units are one call of the random number
 * generator. Sizes that V does not divide go one by one. */
#include "cuda/kernels.h"

#include <cuda_bf16.h>
#include <math.h>

#include "base/rng.h"
#include "cuda/launch.h"

typedef __nv_bfloat16 bf16;

#define THREADS 256 /* of a block, unless something else is said; a power of two */
#define WIDE 8      /* channels of a thread, where they divide the number of channels */
static_assert(WIDE == DT_DROPOUT_UNITS_PER_GROUP, "a thread's channels are one group of dropout units");

/* V neighbours in memory, aligned so that they move as one. */
template <typename T, int V> struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) pack {
    T v[V];
};

template <int V, typename T> static __device__ void load(const T *from, float *to)
{
    const pack<T, V> packed = *(const pack<T, V> *)from;
    for (int v = 0; v < V; v++) {
        to[v] = (float)packed.v[v];
    }
}

template <int V, typename T> static __device__ void store(const float *from, T *to)
{
    pack<T, V> packed;
    for (int v = 0; v < V; v++) {
        packed.v[v] = (T)from[v];
    }
    *(pack<T, V> *)to = packed;
}

/* Whether a pointer (NULL too) may be that of packs. */
static bool aligned(const void *pointer)
{
    return (uintptr_t)pointer % 16 == 0;
}

static unsigned blocks_for(size_t n_threads, unsigned threads)
{
    return (unsigned)((n_threads + threads - 1) / threads);
}

static __device__ size_t thread_index()
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* For kernels with a thread per part of a sample, and the samples in blockIdx.y: at most 65,535, so that a thread may have several.
 */
static unsigned threads_for_samples(unsigned n_parts)
{
    return n_parts < THREADS ? (n_parts + 31) / 32 * 32 : THREADS;
}

static dim3 blocks_for_samples(unsigned n_parts, int n)
{
    return dim3(blocks_for(n_parts, threads_for_samples(n_parts)), n < 65535 ? (unsigned)n : 65535);
}

/* ---- gather: a thread per element of x; its channels are apart in the data set, but one sample of that fits into a cache */

template <typename T>
static __global__ void gather_kernel(struct dt_gpu_samples samples, const uint32_t *rows, int n, unsigned n_elems, T *x)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n_elems) {
        return;
    }
    const unsigned n_c = (unsigned)samples.shape.c, from = i % n_c * (n_elems / n_c) + i / n_c;
    for (size_t sample = blockIdx.y; sample < (size_t)n; sample += gridDim.y) {
        const size_t j = rows[sample] * (size_t)n_elems + from;
        x[sample * n_elems + i] = (T)(samples.pixels != NULL ? (float)samples.pixels[j] * samples.scale : samples.values[j]);
    }
}

cudaError_t dt_gpu_gather(cudaStream_t stream, const struct dt_gpu_samples *samples, const uint32_t *rows, int n,
                          enum dt_gpu_type type, void *x)
{
    const unsigned n_elems = (unsigned)dt_shape_elems(samples->shape);
    if (n == 0) {
        return cudaSuccess;
    }
    const dim3 blocks = blocks_for_samples(n_elems, n);
    const unsigned threads = threads_for_samples(n_elems);
    return type == DT_GPU_F32 ? DT_LAUNCH(gather_kernel, blocks, threads, 0, stream, *samples, rows, n, n_elems, (float *)x)
                              : DT_LAUNCH(gather_kernel, blocks, threads, 0, stream, *samples, rows, n, n_elems, (bf16 *)x);
}

/* ---- tail: bias, activation, pool, dropout, flatten. Without a pool the windows have one element. */

template <int V> static __device__ void activate(enum dt_activation activation, float *x)
{
    switch (activation) {
    case DT_ACTIVATION_RELU:
        for (int v = 0; v < V; v++) {
            x[v] = x[v] < 0 ? 0.0f : x[v]; /* this way round a NaN stays one */
        }
        break;
    case DT_ACTIVATION_TANH:
        for (int v = 0; v < V; v++) {
            x[v] = tanhf(x[v]);
        }
        break;
    case DT_ACTIVATION_SIGMOID:
        for (int v = 0; v < V; v++) {
            x[v] = 1.0f / (1.0f + expf(-x[v]));
        }
        break;
    case DT_ACTIVATION_NONE:
        break;
    }
}

/* Derivative, from the activation's output. */
static __device__ float slope(enum dt_activation activation, float a)
{
    switch (activation) {
    case DT_ACTIVATION_RELU:
        return a > 0 ? 1.0f : 0.0f;
    case DT_ACTIVATION_TANH:
        return 1.0f - a * a;
    case DT_ACTIVATION_SIGMOID:
        return a * (1.0f - a);
    case DT_ACTIVATION_NONE:
        break;
    }
    return 1.0f;
}

/* Where a thread works: V channels from c on at row p, column q of a plane. */
struct place {
    int p, q, c;
};

/* The place of thread `i` of a sample. Behind a flatten neighbours are neighbouring columns instead of channels: the canonical
 * order is then touched in one piece, the other one in pieces of V. */
template <int V>
static __device__ struct place place_of(const struct dt_gpu_tail &t, unsigned i, unsigned n_rows, unsigned n_columns)
{
    const unsigned n_groups = (unsigned)t.linear.c / V, n_places = n_rows * n_columns;
    const unsigned group = t.flatten ? i / n_places : i % n_groups, at = t.flatten ? i % n_places : i / n_groups;
    const struct place place = {(int)(at / n_columns), (int)(at % n_columns), (int)group * V};
    return place;
}

static __device__ size_t element(struct dt_shape s, struct place at)
{
    return (size_t)((at.p * s.w + at.q) * s.c + at.c);
}

template <int V> static __device__ void load_bias(const float *bias, int c, float *b)
{
    for (int v = 0; v < V; v++) {
        b[v] = 0;
    }
    if (bias != NULL) {
        load<V>(bias + c, b);
    }
}

template <int V, typename T>
static __device__ void load_activated(const struct dt_gpu_tail &t, const T *z, const float *bias, float *a)
{
    load<V>(z, a);
    for (int v = 0; v < V; v++) {
        a[v] += bias[v];
    }
    activate<V>(t.activation, a);
}

/* The pool over the window that begins at z; winner: which of its elements a max pool took. */
template <int V, typename T>
static __device__ void pool_window(const struct dt_gpu_tail &t, const T *z, const float *bias, float *pooled, int *winner)
{
    load_activated<V>(t, z, bias, pooled);
    for (int v = 0; v < V; v++) {
        winner[v] = 0;
    }
    for (int i = 1; i < t.pool_size * t.pool_size; i++) {
        float a[V];
        load_activated<V>(t, z + (i / t.pool_size * t.linear.w + i % t.pool_size) * t.linear.c, bias, a);
        for (int v = 0; v < V; v++) {
            const bool better = a[v] > pooled[v] || (isnan(a[v]) && !isnan(pooled[v]));
            pooled[v] = t.pool == DT_POOL_AVG ? pooled[v] + a[v] : better ? a[v] : pooled[v];
            winner[v] = better ? i : winner[v];
        }
    }
    const float share = t.pool == DT_POOL_AVG ? 1.0f / (float)(t.pool_size * t.pool_size) : 1.0f;
    for (int v = 0; v < V; v++) {
        pooled[v] *= share;
    }
}

/* Multiplies V units of a sample by their dropout mask, on the way forward and back alike. */
template <int V>
static __device__ void dropout(const struct dt_gpu_tail &t, const uint32_t *ids, size_t sample, struct place at, float *x)
{
    if (!(t.dropout_rate > 0)) {
        return;
    }
    const uint32_t unit = (uint32_t)element(t.pooled, at), threshold = dt_dropout_threshold(t.dropout_rate);
    const struct dt_rng4 words =
        dt_rng_words(t.seed, DT_RNG_DROPOUT, t.dropout_stream, t.epoch, ids[sample], unit / DT_DROPOUT_UNITS_PER_GROUP);
    const float scale = 1.0f / (1.0f - t.dropout_rate);
    for (uint32_t v = 0; v < V; v++) {
        const uint32_t place_in_group = V == WIDE ? v : unit + v; /* a constant where it can be one */
        x[v] *= dt_dropout_keeps(words, place_in_group, threshold) ? scale : 0.0f;
    }
}

/* V channels of y or dy, which are in canonical order behind a flatten. */
template <int V, typename T>
static __device__ void store_pooled(const struct dt_gpu_tail &t, struct place at, const float *from, T *y)
{
    if (!t.flatten) {
        store<V>(from, y + element(t.pooled, at));
        return;
    }
    const int n_places = t.pooled.h * t.pooled.w;
    for (int v = 0; v < V; v++) {
        y[(at.c + v) * n_places + at.p * t.pooled.w + at.q] = (T)from[v];
    }
}

template <int V, typename T>
static __device__ void load_pooled(const struct dt_gpu_tail &t, struct place at, const T *dy, float *to)
{
    if (!t.flatten) {
        load<V>(dy + element(t.pooled, at), to);
        return;
    }
    const int n_places = t.pooled.h * t.pooled.w;
    for (int v = 0; v < V; v++) {
        to[v] = (float)dy[(at.c + v) * n_places + at.p * t.pooled.w + at.q];
    }
}

/* A thread per window. */
template <typename T, typename Y, int V>
static __global__ void tail_forward_kernel(struct dt_gpu_tail t, const uint32_t *ids, int n, unsigned n_parts, const void *z,
                                           const float *bias, void *y)
{
    const unsigned part = blockIdx.x * blockDim.x + threadIdx.x;
    if (part >= n_parts) {
        return;
    }
    const struct place at = place_of<V>(t, part, (unsigned)t.pooled.h, (unsigned)t.pooled.w);
    const struct place begin = {at.p * t.pool_stride, at.q * t.pool_stride, at.c};
    const size_t n_linear = (size_t)t.linear.h * t.linear.w * t.linear.c, n_pooled = (size_t)t.pooled.h * t.pooled.w * t.pooled.c;
    float b[V];
    load_bias<V>(bias, at.c, b);
    for (size_t sample = blockIdx.y; sample < (size_t)n; sample += gridDim.y) {
        float pooled[V];
        int winner[V];
        pool_window<V>(t, (const T *)z + sample * n_linear + element(t.linear, begin), b, pooled, winner);
        dropout<V>(t, ids, sample, at, pooled);
        store_pooled<V>(t, at, pooled, (Y *)y + sample * n_pooled);
    }
}

/* What element `i` of a window gets of the window's gradient. */
static __device__ float pool_gradient(const struct dt_gpu_tail &t, float delta, int winner, int i)
{
    return t.pool == DT_POOL_MAX ? (winner == i ? delta : 0.0f) : delta * (1.0f / (float)(t.pool_size * t.pool_size));
}

/* For windows that do not overlap: a thread per cell of stride x stride elements, which is a window and the gap behind it, or at
 * the lower and right edge only a remainder. So each element and each window is looked at once. */
template <typename T, typename Y, int V>
static __global__ void tail_backward_cells_kernel(struct dt_gpu_tail t, const uint32_t *ids, int n, unsigned n_parts,
                                                  const void *z_, const float *bias, const void *dy, void *dz_)
{
    const unsigned part = blockIdx.x * blockDim.x + threadIdx.x;
    if (part >= n_parts) {
        return;
    }
    const unsigned stride = (unsigned)t.pool_stride;
    const struct place at =
        place_of<V>(t, part, ((unsigned)t.linear.h + stride - 1) / stride, ((unsigned)t.linear.w + stride - 1) / stride);
    const bool has_window = at.p < t.pooled.h && at.q < t.pooled.w;
    const struct place begin = {at.p * t.pool_stride, at.q * t.pool_stride, at.c};
    const size_t n_linear = (size_t)t.linear.h * t.linear.w * t.linear.c, n_pooled = (size_t)t.pooled.h * t.pooled.w * t.pooled.c;
    float b[V];
    load_bias<V>(bias, at.c, b);
    for (size_t sample = blockIdx.y; sample < (size_t)n; sample += gridDim.y) {
        const T *z = (const T *)z_ + sample * n_linear;
        T *dz = (T *)dz_ + sample * n_linear;
        float pooled[V], delta[V] = {};
        int winner[V] = {};
        if (has_window) {
            load_pooled<V>(t, at, (const Y *)dy + sample * n_pooled, delta);
            dropout<V>(t, ids, sample, at, delta);
        }
        if (has_window && t.pool == DT_POOL_MAX) {
            pool_window<V>(t, z + element(t.linear, begin), b, pooled, winner);
        }
        for (struct place to = begin; to.p < begin.p + t.pool_stride && to.p < t.linear.h; to.p++) {
            for (to.q = begin.q; to.q < begin.q + t.pool_stride && to.q < t.linear.w; to.q++) {
                const int r = to.p - begin.p, s = to.q - begin.q;
                const bool inside = r < t.pool_size && s < t.pool_size;
                float a[V];
                load_activated<V>(t, z + element(t.linear, to), b, a);
                for (int v = 0; v < V; v++) {
                    const float gradient = inside ? pool_gradient(t, delta[v], winner[v], r * t.pool_size + s) : 0.0f;
                    a[v] = gradient * slope(t.activation, a[v]);
                }
                store<V>(a, dz + element(t.linear, to));
            }
        }
    }
}

/* For windows that overlap: a thread per element, which looks for the winner of every window that it is in. */
template <typename T, typename Y, int V>
static __global__ void tail_backward_overlap_kernel(struct dt_gpu_tail t, const uint32_t *ids, int n, unsigned n_parts,
                                                    const void *z_, const float *bias, const void *dy, void *dz_)
{
    const unsigned part = blockIdx.x * blockDim.x + threadIdx.x;
    if (part >= n_parts) {
        return;
    }
    const struct place to = place_of<V>(t, part, (unsigned)t.linear.h, (unsigned)t.linear.w);
    const int first_p = to.p < t.pool_size ? 0 : (to.p - t.pool_size) / t.pool_stride + 1;
    const int first_q = to.q < t.pool_size ? 0 : (to.q - t.pool_size) / t.pool_stride + 1;
    const size_t n_linear = (size_t)t.linear.h * t.linear.w * t.linear.c, n_pooled = (size_t)t.pooled.h * t.pooled.w * t.pooled.c;
    float b[V];
    load_bias<V>(bias, to.c, b);
    for (size_t sample = blockIdx.y; sample < (size_t)n; sample += gridDim.y) {
        const T *z = (const T *)z_ + sample * n_linear;
        float sum[V] = {}, a[V];
        for (struct place at = {first_p, 0, to.c}; at.p < t.pooled.h && at.p * t.pool_stride <= to.p; at.p++) {
            for (at.q = first_q; at.q < t.pooled.w && at.q * t.pool_stride <= to.q; at.q++) {
                const struct place begin = {at.p * t.pool_stride, at.q * t.pool_stride, at.c};
                const int i = (to.p - begin.p) * t.pool_size + to.q - begin.q;
                float pooled[V], delta[V];
                int winner[V] = {};
                load_pooled<V>(t, at, (const Y *)dy + sample * n_pooled, delta);
                dropout<V>(t, ids, sample, at, delta);
                if (t.pool == DT_POOL_MAX) {
                    pool_window<V>(t, z + element(t.linear, begin), b, pooled, winner);
                }
                for (int v = 0; v < V; v++) {
                    sum[v] += pool_gradient(t, delta[v], winner[v], i);
                }
            }
        }
        load_activated<V>(t, z + element(t.linear, to), b, a);
        for (int v = 0; v < V; v++) {
            sum[v] *= slope(t.activation, a[v]);
        }
        store<V>(sum, (T *)dz_ + sample * n_linear + element(t.linear, to));
    }
}

/* What the kernels take for granted: a pool, if only one of single elements, and a flatten only where it changes the order. */
static struct dt_gpu_tail normal_tail(const struct dt_gpu_tail *tail)
{
    struct dt_gpu_tail t = *tail;
    if (t.pool == DT_POOL_NONE) {
        t.pool_size = t.pool_stride = 1;
    }
    t.flatten = t.flatten && t.pooled.c > 1 && (t.pooled.h > 1 || t.pooled.w > 1);
    return t;
}

typedef void forward_kernel(struct dt_gpu_tail, const uint32_t *, int, unsigned, const void *, const float *, void *);
typedef void backward_kernel(struct dt_gpu_tail, const uint32_t *, int, unsigned, const void *, const float *, const void *,
                             void *);

/* A kernel's versions: [type][y_type][wide]. */
#define WIDTHS(kernel, T, Y)                \
    {                                       \
        kernel<T, Y, 1>, kernel<T, Y, WIDE> \
    }
#define VERSIONS(kernel)                                                                                                        \
    {                                                                                                                           \
        {WIDTHS(kernel, float, float), WIDTHS(kernel, float, bf16)}, {WIDTHS(kernel, bf16, float), WIDTHS(kernel, bf16, bf16)}, \
    }

static forward_kernel *const forward_versions[2][2][2] = VERSIONS(tail_forward_kernel);
static backward_kernel *const backward_versions[2][2][2][2] = {VERSIONS(tail_backward_cells_kernel),
                                                               VERSIONS(tail_backward_overlap_kernel)};

cudaError_t dt_gpu_tail_forward(cudaStream_t stream, const struct dt_gpu_tail *tail, const uint32_t *ids, int n,
                                enum dt_gpu_type type, const void *z, const float *bias, enum dt_gpu_type y_type, void *y)
{
    if (n == 0) {
        return cudaSuccess;
    }
    const struct dt_gpu_tail t = normal_tail(tail);
    const bool wide = t.linear.c % WIDE == 0 && aligned(z) && aligned(bias) && aligned(y);
    const unsigned n_parts = (unsigned)dt_shape_elems(t.pooled) / (wide ? WIDE : 1);
    return DT_LAUNCH(forward_versions[type][y_type][wide], blocks_for_samples(n_parts, n), threads_for_samples(n_parts), 0, stream,
                     t, ids, n, n_parts, z, bias, y);
}

cudaError_t dt_gpu_tail_backward(cudaStream_t stream, const struct dt_gpu_tail *tail, const uint32_t *ids, int n,
                                 enum dt_gpu_type type, const void *z, const float *bias, enum dt_gpu_type dy_type, const void *dy,
                                 void *dz)
{
    if (n == 0) {
        return cudaSuccess;
    }
    const struct dt_gpu_tail t = normal_tail(tail);
    const bool wide = t.linear.c % WIDE == 0 && aligned(z) && aligned(bias) && aligned(dy) && aligned(dz);
    const bool overlap = t.pool_stride < t.pool_size;
    const unsigned cell = overlap ? 1 : (unsigned)t.pool_stride;
    const unsigned n_cells = ((unsigned)t.linear.h + cell - 1) / cell * (((unsigned)t.linear.w + cell - 1) / cell);
    const unsigned n_parts = n_cells * ((unsigned)t.linear.c / (wide ? WIDE : 1));
    return DT_LAUNCH(backward_versions[overlap][type][dy_type][wide], blocks_for_samples(n_parts, n), threads_for_samples(n_parts),
                     0, stream, t, ids, n, n_parts, z, bias, dy, dz);
}

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

/* ---- over a block: each thread brings a number, all get the result. blockDim.x is a power of two, at least 32. */

/* The sum: first of every 16 neighbours, then of those sums. */
static __device__ double block_sum(double value)
{
    __shared__ double sums[THREADS];
    __syncthreads(); /* the last sum has been read */
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

/* The index of the largest of z, of which each thread brings a candidate; of equal ones the lowest wins. */
static __device__ int block_best(const float *z, int candidate)
{
    __shared__ int best[THREADS];
    best[threadIdx.x] = candidate;
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            const int mine = best[threadIdx.x], other = best[threadIdx.x + half];
            best[threadIdx.x] = z[other] > z[mine] || (z[other] == z[mine] && other < mine) ? other : mine;
        }
    }
    __syncthreads();
    return best[0];
}

/* ---- loss: a block per sample, in double; then one block adds the samples' losses, scratch[0, n), and hits, scratch[n, 2n) */

/* loss = log(sum exp(z)) - z[label], with the largest logit taken out first; its gradient is softmax(z) - onehot(label). */
static __global__ void cross_entropy_kernel(const uint16_t *labels, const uint32_t *rows, int n, int n_outputs, const float *logits,
                                            float *dlogits, double *scratch)
{
    const size_t sample = blockIdx.x;
    const int label = labels[rows[sample]], first = (int)threadIdx.x, step = (int)blockDim.x;
    const float *z = logits + sample * (size_t)n_outputs;
    int best = 0; /* in every thread, so that a NaN there stays the best, as in a plain loop */
    for (int k = first; k < n_outputs; k += step) {
        best = z[k] > z[best] ? k : best;
    }
    best = block_best(z, best);
    const double largest = (double)z[best];
    double sum = 0;
    for (int k = first; k < n_outputs; k += step) {
        sum += exp((double)z[k] - largest);
    }
    sum = block_sum(sum);
    for (int k = first; dlogits != NULL && k < n_outputs; k += step) {
        dlogits[sample * (size_t)n_outputs + (size_t)k] = (float)(exp((double)z[k] - largest) / sum - (k == label ? 1.0 : 0.0));
    }
    if (threadIdx.x == 0) {
        scratch[sample] = log(sum) + largest - (double)z[label];
        scratch[(size_t)n + sample] = best == label ? 1.0 : 0.0;
    }
}

static __global__ void squared_error_kernel(const float *targets, const uint32_t *rows, int n, int n_outputs, const float *logits,
                                            float *dlogits, double *scratch)
{
    const size_t sample = blockIdx.x;
    const float *z = logits + sample * (size_t)n_outputs, *target = targets + rows[sample] * (size_t)n_outputs;
    double sum = 0;
    for (int k = (int)threadIdx.x; k < n_outputs; k += (int)blockDim.x) {
        const double error = (double)z[k] - (double)target[k];
        sum += error * error;
        if (dlogits != NULL) {
            dlogits[sample * (size_t)n_outputs + (size_t)k] = (float)(2.0 * error / n_outputs);
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        scratch[sample] = sum / n_outputs;
        scratch[(size_t)n + sample] = 0;
    }
}

static __global__ void add_metrics_kernel(int n, const double *scratch, struct dt_gpu_metrics *metrics)
{
    double loss = 0, correct = 0;
    for (int i = (int)threadIdx.x; i < n; i += THREADS) {
        loss += scratch[i];
        correct += scratch[n + i];
    }
    loss = block_sum(loss);
    correct = block_sum(correct);
    if (threadIdx.x == 0) {
        metrics->loss_sum += loss;
        metrics->n_correct += correct;
        metrics->n_samples += n;
    }
}

cudaError_t dt_gpu_loss(cudaStream_t stream, enum dt_loss loss, const struct dt_gpu_samples *samples, const uint32_t *rows, int n,
                        int n_outputs, const float *logits, float *dlogits, double *scratch, struct dt_gpu_metrics *metrics)
{
    if (n == 0) {
        return cudaSuccess;
    }
    const unsigned blocks = (unsigned)n, threads = n_outputs <= 32 ? 32 : THREADS;
    const cudaError_t launched = loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY
                                     ? DT_LAUNCH(cross_entropy_kernel, blocks, threads, 0, stream, samples->labels, rows, n,
                                                 n_outputs, logits, dlogits, scratch)
                                     : DT_LAUNCH(squared_error_kernel, blocks, threads, 0, stream, samples->targets, rows, n,
                                                 n_outputs, logits, dlogits, scratch);
    return launched != cudaSuccess ? launched : DT_LAUNCH(add_metrics_kernel, 1, THREADS, 0, stream, n, scratch, metrics);
}

/* ---- sum of squares: a sum per block, as many blocks as the scratch has room for, then one block adds those */

static __global__ void squares_kernel(size_t n_elems, const float *x, double *sums)
{
    double sum = 0;
    for (size_t i = thread_index(); i < n_elems; i += (size_t)gridDim.x * blockDim.x) {
        sum += (double)x[i] * (double)x[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
    }
}

static __global__ void add_sums_kernel(unsigned n, const double *sums, double *out)
{
    double sum = 0;
    for (unsigned i = threadIdx.x; i < n; i += THREADS) {
        sum += sums[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        *out = sum;
    }
}

cudaError_t dt_gpu_sum_squares(cudaStream_t stream, size_t n_elems, const float *x, double *scratch, double *out)
{
    const unsigned wanted = blocks_for(n_elems, 16 * THREADS); /* a thread that adds fewer is not worth starting */
    const unsigned blocks = wanted < DT_GPU_SUM_SCRATCH ? wanted : DT_GPU_SUM_SCRATCH;
    const cudaError_t launched =
        blocks == 0 ? cudaSuccess : DT_LAUNCH(squares_kernel, blocks, THREADS, 0, stream, n_elems, x, scratch);
    return launched != cudaSuccess ? launched : DT_LAUNCH(add_sums_kernel, 1, THREADS, 0, stream, blocks, scratch, out);
}

/* ---- optimizers: one pass over the arena, V elements a thread, at the end one by one */

template <int V> static __device__ void sgd(const struct dt_update &u, size_t i, float *params, const float *grads, float *velocity)
{
    float w[V], g[V], moving[V] = {};
    load<V>(params + i, w);
    load<V>(grads + i, g);
    if (velocity != NULL) {
        load<V>(velocity + i, moving);
    }
    for (int v = 0; v < V; v++) {
        g[v] = g[v] * u.grad_scale + u.weight_decay * w[v];
        moving[v] = u.momentum * moving[v] + g[v];
        w[v] -= u.lr * (velocity == NULL ? g[v] : u.nesterov ? g[v] + u.momentum * moving[v] : moving[v]);
    }
    store<V>(w, params + i);
    if (velocity != NULL) {
        store<V>(moving, velocity + i);
    }
}

template <int V>
static __device__ void adam(const struct dt_update &u, size_t i, float *params, const float *grads, float *mean, float *square)
{
    const float step = u.lr / u.bias_correction1, root = 1.0f / sqrtf(u.bias_correction2);
    float w[V], g[V], m[V], s[V];
    load<V>(params + i, w);
    load<V>(grads + i, g);
    load<V>(mean + i, m);
    load<V>(square + i, s);
    for (int v = 0; v < V; v++) {
        const float decay = u.weight_decay * w[v];
        g[v] = g[v] * u.grad_scale + (u.type == DT_OPTIMIZER_ADAM ? decay : 0.0f);
        w[v] -= u.type == DT_OPTIMIZER_ADAMW ? u.lr * decay : 0.0f;
        m[v] = u.beta1 * m[v] + (1.0f - u.beta1) * g[v];
        s[v] = u.beta2 * s[v] + (1.0f - u.beta2) * g[v] * g[v];
        w[v] -= step * m[v] / (sqrtf(s[v]) * root + u.epsilon);
    }
    store<V>(w, params + i);
    store<V>(m, mean + i);
    store<V>(s, square + i);
}

template <int V>
static __device__ void update(const struct dt_update &u, size_t i, float *params, const float *grads, float *state1, float *state2)
{
    if (u.type == DT_OPTIMIZER_SGD) {
        sgd<V>(u, i, params, grads, state1);
    } else {
        adam<V>(u, i, params, grads, state1, state2);
    }
}

template <int V>
static __global__ void optimizer_kernel(struct dt_update u, size_t n, float *params, const float *grads, float *state1,
                                        float *state2)
{
    size_t i = thread_index() * V;
    if (i + V <= n) {
        update<V>(u, i, params, grads, state1, state2);
        return;
    }
    for (; i < n; i++) {
        update<1>(u, i, params, grads, state1, state2);
    }
}

cudaError_t dt_gpu_optimizer_step(cudaStream_t stream, const struct dt_update *update, size_t n_elems, float *params,
                                  const float *grads, float *state1, float *state2)
{
    if (n_elems == 0) {
        return cudaSuccess;
    }
    const bool wide = aligned(params) && aligned(grads) && aligned(state1) && aligned(state2);
    const unsigned blocks = blocks_for(n_elems, (wide ? 4 : 1) * THREADS);
    const auto kernel = wide ? optimizer_kernel<4> : optimizer_kernel<1>;
    return DT_LAUNCH(kernel, blocks, THREADS, 0, stream, *update, n_elems, params, grads, state1, state2);
}
