/* Kernels for the part of a block after its linear operation, forward and backward: an explanation
 * before each, its launch after it. */
#include "cuda/kernels/kernels.cuh"

/* ---- tail: bias, activation, pool, dropout, flatten. Without a pool the windows have one element.
 */

/* A thread's position: V channels from c on at row p, column q of a sample's plane. */
struct place {
    size_t sample;
    int p, q, c;
};

/* The position of thread `i` of a sample in forward. With a flatten neighbouring threads take
 * neighbouring columns instead of channels: they then write the canonical order in one piece and
 * read the other in pieces of V. */
template <int V> static __device__ struct place place_of(const struct dt_block &block, unsigned i)
{
    const unsigned n_groups = (unsigned)block.linear_out.c / V,
                   n_columns = (unsigned)block.pool_out.w,
                   n_places = (unsigned)block.pool_out.h * n_columns;
    const unsigned group = block.canonical ? i / n_places : i % n_groups,
                   at = block.canonical ? i % n_places : i / n_groups;
    return {blockIdx.y, (int)(at / n_columns), (int)(at % n_columns), (int)group * V};
}

static __device__ int element_of_sample(struct dt_shape s, struct place at)
{
    return (at.p * s.w + at.q) * s.c + at.c;
}

static __device__ size_t element(struct dt_shape s, struct place at)
{
    return at.sample * n_elems(s) + (size_t)element_of_sample(s, at);
}

/* Where a window begins. */
static __device__ struct place begin_of(const struct dt_block &block, struct place window)
{
    return {window.sample, window.p * block.pool_stride, window.q * block.pool_stride, window.c};
}

/* z with its bias, and a, its activation. */
template <int V, typename T>
static __device__ void load_activated(const struct dt_block &block, const T *from,
                                      const float *bias, float *z, float *a)
{
    load<V>(from, z);
    for (int v = 0; v < V; v++) {
        z[v] += bias[v];
        a[v] = z[v];
    }
    activate<V>(block.activation, a);
}

/* Pools a window; winner: the element that a max pool took. */
template <int V, typename T>
static __device__ void pool_window(const struct dt_gpu_tail &t, struct place window,
                                   const float *bias, float *pooled, int *winner)
{
    const struct dt_block &block = t.b;
    const T *begin = (const T *)t.z + element(block.linear_out, begin_of(block, window));
    float z[V], a[V];
    load_activated<V>(block, begin, bias, z, pooled);
    for (int v = 0; v < V; v++) {
        winner[v] = 0;
    }
    for (int i = 1; i < block.pool_h * block.pool_w; i++) {
        const int at = i / block.pool_w * block.linear_out.w + i % block.pool_w;
        load_activated<V>(block, begin + at * block.linear_out.c, bias, z, a);
        for (int v = 0; v < V; v++) {
            const bool better = a[v] > pooled[v] || (isnan(a[v]) && !isnan(pooled[v]));
            pooled[v] = block.pool == DT_POOL_AVG ? pooled[v] + a[v] : better ? a[v] : pooled[v];
            winner[v] = better ? i : winner[v];
        }
    }
    const float share =
        block.pool == DT_POOL_AVG ? 1.0f / (float)(block.pool_h * block.pool_w) : 1.0f;
    for (int v = 0; v < V; v++) {
        pooled[v] *= share;
    }
}

/* Multiplies V units of a sample by their dropout mask, in forward and backward alike. */
template <int V>
static __device__ void dropout(const struct dt_gpu_tail &t, struct place at, float *x)
{
    if (!(t.b.dropout_rate > 0)) {
        return;
    }
    const uint32_t unit = (uint32_t)element_of_sample(t.b.pool_out, at),
                   threshold = dt_dropout_threshold(t.b.dropout_rate);
    struct dt_rng4 words =
        dt_dropout_words(t.seed, t.b.dropout_stream, *t.epoch, t.ids[at.sample], unit, threshold);
    if (V == WIDE && unit % dt_dropout_group_units(threshold) != 0) { /* the upper half of 16 */
        words.v[0] = words.v[2];
        words.v[1] = words.v[3];
    }
    const float scale = 1.0f / (1.0f - t.b.dropout_rate);
    for (uint32_t v = 0; v < V; v++) {
        const uint32_t number = V == WIDE ? v : unit + v; /* a constant where it can be one */
        x[v] *= dt_dropout_keeps(words, number, threshold) ? scale : 0.0f;
    }
}

/* Of y or dy, in canonical order after a flatten; neighbouring channels are then `step` apart. */
static __device__ size_t pooled_element(const struct dt_block &block, struct place at, int *step)
{
    const struct dt_shape s = block.pool_out;
    *step = s.h * s.w;
    return block.canonical ? at.sample * n_elems(s) + (size_t)((at.c * s.h + at.p) * s.w + at.q)
                           : element(s, at);
}

template <int V, typename T>
static __device__ void store_pooled(const struct dt_block &block, struct place at,
                                    const float *from, T *y)
{
    int step;
    y += pooled_element(block, at, &step);
    if (!block.canonical) {
        store<V>(from, y);
        return;
    }
    for (int v = 0; v < V; v++) {
        y[v * step] = (T)from[v];
    }
}

/* Stores for V windows the data that backward needs. */
template <int V>
static __device__ void store_winners(const struct dt_block &block, const float *pooled,
                                     const int *winner, uint8_t *to)
{
    pack<uint8_t, V> packed;
    for (int v = 0; v < V; v++) {
        packed.v[v] =
            (uint8_t)(winner[v] + (slope(block.activation, 0, pooled[v]) > 0 ? 0 : DT_GPU_CLOSED));
    }
    *(pack<uint8_t, V> *)to = packed;
}

/* Reads them, and takes the gradient of V windows through their activation, too. */
template <int V> static __device__ void load_winners(const uint8_t *from, float *delta, int *winner)
{
    const pack<uint8_t, V> packed = *(const pack<uint8_t, V> *)from;
    for (int v = 0; v < V; v++) {
        winner[v] = packed.v[v] % DT_GPU_CLOSED;
        delta[v] *= packed.v[v] < DT_GPU_CLOSED ? 1.0f : 0.0f; /* NaN stays NaN */
    }
}

template <int V, typename T>
static __device__ void load_pooled(const struct dt_block &block, struct place at, const T *dy,
                                   float *to)
{
    int step;
    dy += pooled_element(block, at, &step);
    if (!block.canonical) {
        load<V>(dy, to);
        return;
    }
    for (int v = 0; v < V; v++) {
        to[v] = (float)dy[v * step];
    }
}

/* One thread per window. */
template <int V, typename T, typename Y>
static __global__ void tail_forward_kernel(struct dt_gpu_tail t, unsigned n_parts)
{
    const unsigned part = blockIdx.x * blockDim.x + threadIdx.x;
    if (part >= n_parts) {
        return;
    }
    struct place at = place_of<V>(t.b, part);
    float b[V] = {};
    load_if<V>(t.bias, (size_t)at.c, b);
    for (; at.sample < (size_t)t.n; at.sample += gridDim.y) {
        float pooled[V];
        int winner[V];
        pool_window<V, T>(t, at, b, pooled, winner);
        if (t.winners != NULL) {
            store_winners<V>(t.b, pooled, winner, t.winners + element(t.b.pool_out, at));
        }
        dropout<V>(t, at, pooled);
        store_pooled<V>(t.b, at, pooled, (Y *)t.y);
    }
}

/* Element `i`'s share of its window's gradient. */
static __device__ float pool_gradient(const struct dt_block &block, float delta, int winner, int i)
{
    return block.pool == DT_POOL_MAX ? (winner == i ? delta : 0.0f)
                                     : delta * (1.0f / (float)(block.pool_h * block.pool_w));
}

/* The gradient of V windows, and the winner of each if its pool has one. b: the bias. */
template <int V, typename T, typename Y>
static __device__ void load_window(const struct dt_gpu_tail &t, struct place at, const float *b,
                                   float *delta, int *winner)
{
    load_pooled<V>(t.b, at, (const Y *)t.dy, delta);
    dropout<V>(t, at, delta);
    if (t.winners != NULL) {
        load_winners<V>(t.winners + element(t.b.pool_out, at), delta, winner);
    } else if (t.b.pool == DT_POOL_MAX) {
        float pooled[V];
        pool_window<V, T>(t, at, b, pooled, winner);
    }
}

/* Takes the gradient of V elements through the activation, unless the winners have done so, adds it
 * to `sum` and stores it. */
template <int V, typename T>
static __device__ void store_gradient(const struct dt_gpu_tail &t, struct place to, const float *b,
                                      float *gradient, float *sum)
{
    const size_t at = element(t.b.linear_out, to);
    if (t.winners == NULL) {
        float z[V], a[V];
        load_activated<V>(t.b, (const T *)t.z + at, b, z, a);
        for (int v = 0; v < V; v++) {
            gradient[v] *= slope(t.b.activation, z[v], a[v]);
        }
    }
    add<V>(gradient, sum);
    store<V>(gradient, (T *)t.dz + at);
}

/* For windows that do not overlap: a cell of stride x stride elements is a window and the gap after
 * it, or only a remainder at the lower and right edge. So each element and each window is visited
 * once. Adds dz to `sum`. */
template <int V, typename T, typename Y>
static __device__ void cell_backward(const struct dt_gpu_tail &t, struct place at, const float *b,
                                     float *sum)
{
    const struct place begin = begin_of(t.b, at);
    float delta[V] = {};
    int winner[V] = {};
    if (at.p < t.b.pool_out.h && at.q < t.b.pool_out.w) {
        load_window<V, T, Y>(t, at, b, delta, winner);
    }
    for (struct place to = begin; to.p < begin.p + t.b.pool_stride && to.p < t.b.linear_out.h;
         to.p++) {
        for (to.q = begin.q; to.q < begin.q + t.b.pool_stride && to.q < t.b.linear_out.w; to.q++) {
            const int r = to.p - begin.p, s = to.q - begin.q;
            const bool inside = r < t.b.pool_h && s < t.b.pool_w;
            float gradient[V];
            for (int v = 0; v < V; v++) {
                gradient[v] =
                    inside ? pool_gradient(t.b, delta[v], winner[v], r * t.b.pool_w + s) : 0.0f;
            }
            store_gradient<V, T>(t, to, b, gradient, sum);
        }
    }
}

/* For windows that overlap: one element; it looks for the winner of every window that contains
 * it. */
template <int V, typename T, typename Y>
static __device__ void element_backward(const struct dt_gpu_tail &t, struct place to,
                                        const float *b, float *sum)
{
    const int stride = t.b.pool_stride;
    const int first_p = to.p < t.b.pool_h ? 0 : (to.p - t.b.pool_h) / stride + 1;
    const int first_q = to.q < t.b.pool_w ? 0 : (to.q - t.b.pool_w) / stride + 1;
    float gradient[V] = {};
    for (struct place at = {to.sample, first_p, 0, to.c};
         at.p < t.b.pool_out.h && at.p * stride <= to.p; at.p++) {
        for (at.q = first_q; at.q < t.b.pool_out.w && at.q * stride <= to.q; at.q++) {
            const int i = (to.p - at.p * stride) * t.b.pool_w + to.q - at.q * stride;
            float delta[V];
            int winner[V] = {};
            load_window<V, T, Y>(t, at, b, delta, winner);
            for (int v = 0; v < V; v++) {
                gradient[v] += pool_gradient(t.b, delta[v], winner[v], i);
            }
        }
    }
    store_gradient<V, T>(t, to, b, gradient, sum);
}

template <int V>
static __device__ void add_bias_sums(const struct dt_gpu_gradients &to, struct lanes lanes,
                                     unsigned n_channels, const float (*sum)[V])
{
    const unsigned width = row_width(n_channels), first = blockIdx.x * lanes.across * V;
    float *rows = to.scratch + N_COUNTS, *mine = rows + (size_t)blockIdx.y * width;
    alignas(16) __shared__ float memory[LANES_MEMORY(1, V)];
    add_lanes<V, 1>(lanes, sum, 1, memory, [&](unsigned, unsigned i, float total) {
        if (first + i < n_channels) {
            mine[first + i] = total;
        }
    });
    add_rows(to.scratch, gridDim.x * gridDim.y, rows, gridDim.y, width, to.accumulate,
             [&](unsigned c) { return c < n_channels ? to.bias + c : NULL; });
}

/* A thread keeps its channels, so that it can sum their gradients, and takes every gridDim.y *
 * lanes-th of the cells (or elements) of all samples. Two blocks per multiprocessor, so that all
 * slices run at once. */
template <int V, typename T, typename Y, bool OVERLAP>
static __global__ void __launch_bounds__(THREADS, 2) tail_backward_kernel(struct dt_gpu_tail t)
{
    const unsigned n_groups = (unsigned)t.b.linear_out.c / V,
                   side = OVERLAP ? 1 : (unsigned)t.b.pool_stride;
    const unsigned n_columns = ((unsigned)t.b.linear_out.w + side - 1) / side,
                   n_cells = ((unsigned)t.b.linear_out.h + side - 1) / side * n_columns;
    const struct lanes lanes = lanes_of(n_groups);
    const unsigned group = blockIdx.x * lanes.across + threadIdx.x % lanes.across,
                   first = blockIdx.y * lanes.n + lanes.mine, step = gridDim.y * lanes.n;
    float b[V] = {}, sum[1][V] = {};
    const bool has_work = group < n_groups && lanes.mine < lanes.n;
    if (has_work) {
        load_if<V>(t.bias, group * V, b);
    }
    size_t sample = first / n_cells;
    for (unsigned cell = first % n_cells; has_work && sample < (size_t)t.n; cell %= n_cells) {
        const struct place at = {sample, (int)(cell / n_columns), (int)(cell % n_columns),
                                 (int)group * V};
        if (OVERLAP) {
            element_backward<V, T, Y>(t, at, b, sum[0]);
        } else {
            cell_backward<V, T, Y>(t, at, b, sum[0]);
        }
        cell += step % n_cells;
        sample += step / n_cells + cell / n_cells;
    }
    if (t.to.bias != NULL) {
        add_bias_sums<V>(t.to, lanes, (unsigned)t.b.linear_out.c, sum);
    }
}

/* Normalises for the kernels: always a pool, if only of single elements, and a flatten only where
 * it changes the order. */
static struct dt_gpu_tail normal_tail(const struct dt_gpu_tail *tail)
{
    struct dt_gpu_tail t = *tail;
    if (t.b.pool == DT_POOL_NONE) {
        t.b.pool_h = t.b.pool_w = t.b.pool_stride = 1;
    }
    t.b.canonical =
        t.b.canonical && t.b.pool_out.c > 1 && (t.b.pool_out.h > 1 || t.b.pool_out.w > 1);
    return t;
}

/* A kernel's version for the types, y's float where z's is, and the width. */
#define OF_WIDTH(kernel, ...) \
    (width_of(t.b) == WIDE ? kernel<WIDE, ##__VA_ARGS__> : kernel<1, ##__VA_ARGS__>)
#define VERSION(kernel, ...)                                                  \
    (t.type == DT_GPU_F32     ? OF_WIDTH(kernel, float, float, ##__VA_ARGS__) \
     : t.y_type == DT_GPU_F32 ? OF_WIDTH(kernel, bf16, float, ##__VA_ARGS__)  \
                              : OF_WIDTH(kernel, bf16, bf16, ##__VA_ARGS__))

cudaError_t dt_gpu_tail_forward(cudaStream_t stream, const struct dt_gpu_tail *tail)
{
    const struct dt_gpu_tail t = normal_tail(tail);
    const unsigned n_parts = (unsigned)dt_shape_elems(t.b.pool_out) / width_of(t.b);
    return DT_LAUNCH(VERSION(tail_forward_kernel), blocks_for_samples(n_parts, t.n),
                     threads_for_samples(n_parts), stream, t, n_parts);
}

/* Enough to keep a GPU busy, with two or more cells per thread; fewer with many channels, to limit
 * the scratch. */
#define MAX_SLICES 256
#define MAX_SCRATCH (1 << 20) /* floats */

static unsigned most_slices(int n_channels)
{
    const unsigned n = MAX_SCRATCH / row_width((unsigned)n_channels);
    return n < 1 ? 1 : n < MAX_SLICES ? n : MAX_SLICES;
}

size_t dt_gpu_tail_scratch(const struct dt_block *block)
{
    return N_COUNTS +
           (size_t)most_slices(block->linear_out.c) * row_width((unsigned)block->linear_out.c);
}

cudaError_t dt_gpu_tail_backward(cudaStream_t stream, const struct dt_gpu_tail *tail)
{
    const struct dt_gpu_tail t = normal_tail(tail);
    const bool overlap = t.b.pool_stride < t.b.pool_h || t.b.pool_stride < t.b.pool_w;
    const unsigned cell = overlap ? 1 : (unsigned)t.b.pool_stride;
    const size_t n_cells = (size_t)blocks_for((size_t)t.b.linear_out.h, cell) *
                           blocks_for((size_t)t.b.linear_out.w, cell) * (size_t)t.n;
    const unsigned n_groups = (unsigned)t.b.linear_out.c / width_of(t.b),
                   across = n_groups < THREADS ? n_groups : THREADS;
    const unsigned wanted = blocks_for(n_cells, 2 * (THREADS / across)),
                   most = most_slices(t.b.linear_out.c), slices = wanted < most ? wanted : most;
    const auto kernel =
        overlap ? VERSION(tail_backward_kernel, true) : VERSION(tail_backward_kernel, false);
    return DT_LAUNCH(kernel, dim3(blocks_for(n_groups, across), slices), THREADS, stream, t);
}
