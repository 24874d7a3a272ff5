/* Kernels for the first convolution, of few input channels: they read the images directly from the
 * data set, without a gather, each only once, because an image fits into shared memory. Products
 * are of floats in every precision: there are too few channels for tensor cores. */
#include "cuda/kernels/kernels.cuh"

/* ---- an image in shared memory, channel by channel, padded with zeros as far as the convolution
 * reaches */

struct image_shape {
    int h, w;
};

static inline __host__ __device__ struct image_shape padded(const struct dt_gpu_first_conv &conv)
{
    const struct image_shape s = {(conv.b.linear_out.h - 1) * conv.b.stride + conv.b.kernel,
                                  (conv.b.linear_out.w - 1) * conv.b.stride + conv.b.kernel};
    return s;
}

/* An element of the input: of the data set, C H W, or of x, H W C. */
template <typename T>
static __device__ float pixel(const struct dt_gpu_first_conv &conv, size_t sample, int c, int h,
                              int w)
{
    const struct dt_shape s = conv.b.in;
    const size_t n_elems = (size_t)s.c * s.h * s.w;
    if (conv.x != NULL) {
        return (float)((const T *)conv.x)[sample * n_elems + (size_t)((h * s.w + w) * s.c + c)];
    }
    const size_t at = conv.rows[sample] * n_elems + (size_t)((c * s.h + h) * s.w + w);
    return conv.samples.pixels != NULL ? (float)conv.samples.pixels[at] * conv.samples.scale
                                       : conv.samples.values[at];
}

/* All threads of the block call it; it has barriers before and after. */
template <typename T>
static __device__ void load_image(const struct dt_gpu_first_conv &conv, size_t sample, float *image)
{
    const struct image_shape s = padded(conv);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < conv.b.in.c * s.h * s.w; i += THREADS) {
        const int c = i / (s.h * s.w), h = i / s.w % s.h - conv.b.pad_before_h,
                  w = i % s.w - conv.b.pad_before_w;
        const bool inside = h >= 0 && h < conv.b.in.h && w >= 0 && w < conv.b.in.w;
        image[i] = inside ? pixel<T>(conv, sample, c, h, w) : 0.0f;
    }
    __syncthreads();
}

/* Offset of the filter's tap (C R S) in the image, relative to the filter's position. */
static __device__ int tap_offset(const struct dt_gpu_first_conv &conv, struct image_shape s,
                                 int tap)
{
    const int n = conv.b.kernel;
    return (tap / (n * n) * s.h + tap / n % n) * s.w + tap % n;
}

static __device__ int place_offset(const struct dt_gpu_first_conv &conv, struct image_shape s,
                                   unsigned place)
{
    const int p = (int)(place / (unsigned)conv.b.linear_out.w),
              q = (int)(place % (unsigned)conv.b.linear_out.w);
    return (p * s.w + q) * conv.b.stride;
}

/* ---- one bit per channel of a place: relu lets it pass */

template <int V> static __device__ uint8_t signs_of(const float *y)
{
    unsigned signs = 0;
    for (unsigned v = 0; v < V; v++) {
        signs |= (y[v] > 0 ? 1u : 0u) << v;
    }
    return (uint8_t)signs;
}

/* ---- forward: a thread has V channels at PLACES places, so that it uses each filter value several
 * times */

#define PLACES 4

template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    first_conv_forward_kernel(struct dt_gpu_first_conv conv)
{
    __shared__ float image[DT_CUDA_FIRST_CONV_IMAGE];
    alignas(16) __shared__ float filters[DT_CUDA_FIRST_CONV_WEIGHTS]; /* taps by channels */
    const struct image_shape s = padded(conv);
    const unsigned n_channels = (unsigned)conv.b.linear_out.c,
                   n_places = (unsigned)(conv.b.linear_out.h * conv.b.linear_out.w);
    const struct lanes lanes = lanes_of(n_channels / V);
    const unsigned c = threadIdx.x % lanes.across * V, step = lanes.n * PLACES;
    const int n_taps = conv.b.in.c * conv.b.kernel * conv.b.kernel;
    for (unsigned i = threadIdx.x; i < n_channels * (unsigned)n_taps; i += THREADS) {
        filters[i % (unsigned)n_taps * n_channels + i / (unsigned)n_taps] = conv.weight[i];
    }
    for (size_t sample = blockIdx.y; sample < (size_t)conv.n; sample += gridDim.y) {
        load_image<T>(conv, sample, image);
        for (unsigned first = blockIdx.x * step + lanes.mine;
             lanes.mine < lanes.n && first < n_places; first += gridDim.x * step) {
            float sums[PLACES][V] = {};
            int base[PLACES];
            for (unsigned j = 0; j < PLACES; j++) {
                const unsigned place = first + j * lanes.n;
                base[j] = place_offset(conv, s, place < n_places ? place : 0);
                load_bias<V>(conv.bias, (int)c, sums[j]);
            }
            for (int tap = 0; tap < n_taps; tap++) {
                const float *x = image + tap_offset(conv, s, tap);
                float w[V];
                load<V>(filters + (unsigned)tap * n_channels + c, w);
                for (int j = 0; j < PLACES; j++) {
                    for (int v = 0; v < V; v++) {
                        sums[j][v] += x[base[j]] * w[v];
                    }
                }
            }
            DT_UNROLL
            for (unsigned j = 0; j < PLACES; j++) {
                const unsigned place = first + j * lanes.n;
                activate<V>(conv.b.activation, sums[j]);
                const size_t at = (sample * n_places + place) * n_channels + c;
                if (place < n_places) {
                    store<V>(sums[j], (T *)conv.y + at);
                }
                if (V == WIDE && place < n_places && conv.signs != NULL) {
                    conv.signs[at / WIDE] = signs_of<V>(sums[j]);
                }
            }
        }
    }
}

/* ---- backward: a thread has V channels at TAPS of the taps; it keeps their sums over all places
 * in registers, and the bias's */

#define TAPS 9
#define AT_ONCE                                                                                \
    4 /* taps and bias whose sums over the lanes are made together: as many as fit into shared \
         memory */
#define MAX_BLOCKS 264 /* rows of partial sums: two blocks for each of 132 multiprocessors */

/* Columns of a row of sums: tap by tap of one thread, then all threads of a lane, then the
 * biases. */
struct sums_shape {
    unsigned across, n_tiles, n_columns;
};

static inline __host__ __device__ struct sums_shape sums_of(const struct dt_block &b, unsigned v)
{
    const unsigned n_taps = (unsigned)(b.in.c * b.kernel * b.kernel),
                   n_tiles = (n_taps + TAPS - 1) / TAPS;
    const unsigned across = (unsigned)b.linear_out.c / v * n_tiles;
    const struct sums_shape s = {across, n_tiles, across * v * TAPS + (unsigned)b.linear_out.c};
    return s;
}

/* Writes the sums of all blocks to the arena's layout. */
template <int V>
static __device__ void add_gradients(const struct dt_gpu_first_conv &conv, const float *rows)
{
    const struct dt_gpu_gradients &to = conv.to;
    const struct sums_shape s = sums_of(conv.b, V);
    const unsigned n_channels = (unsigned)conv.b.linear_out.c,
                   n_taps = (unsigned)(conv.b.in.c * conv.b.kernel * conv.b.kernel);
    add_rows(rows, gridDim.x, row_width(s.n_columns), [&](unsigned column, float total) {
        const unsigned each = s.across * V, i = column % each,
                       tap = i / n_channels * TAPS + column / each;
        const bool is_weight = column < each * TAPS,
                   is_bias = !is_weight && column < s.n_columns && to.bias != NULL;
        float *at = is_weight && tap < n_taps ? to.weight + i % n_channels * n_taps + tap
                    : is_bias                 ? to.bias + (column - each * TAPS)
                                              : NULL;
        if (at != NULL) {
            *at = to.accumulate ? *at + total : total;
        }
    });
}

/* dz of V channels from dy and, after an activation, the signs or y. */
template <typename T, int V>
static __device__ void load_dz(const struct dt_gpu_first_conv &conv, size_t at, float *dz)
{
    float a[V];
    load<V>((const T *)conv.dy + at, dz);
    if (V == WIDE && conv.signs != NULL) {
        const unsigned signs = conv.signs[at / WIDE];
        for (unsigned v = 0; v < V; v++) {
            dz[v] *= (float)(signs >> v & 1);
        }
    } else if (conv.y != NULL) {
        load<V>((const T *)conv.y + at, a);
        for (int v = 0; v < V; v++) {
            dz[v] *= slope(conv.b.activation, 0, a[v]); /* not gelu */
        }
    }
}

template <typename T, int V>
static __global__ void __launch_bounds__(THREADS, 2)
    first_conv_gradient_kernel(struct dt_gpu_first_conv conv, unsigned n_parts)
{
    alignas(16) __shared__ float memory[LANES_MEMORY(AT_ONCE, V) > DT_CUDA_FIRST_CONV_IMAGE
                                            ? LANES_MEMORY(AT_ONCE, V)
                                            : DT_CUDA_FIRST_CONV_IMAGE];
    float *image = memory; /* later its sums */
    const struct image_shape s = padded(conv);
    const struct sums_shape shape = sums_of(conv.b, V);
    const struct lanes lanes = lanes_of(shape.across);
    const unsigned n_channels = (unsigned)conv.b.linear_out.c,
                   n_places = (unsigned)(conv.b.linear_out.h * conv.b.linear_out.w);
    const unsigned mine = threadIdx.x % lanes.across * V, c = mine % n_channels,
                   tile = mine / n_channels;
    float sums[TAPS + 1][V] = {}; /* the last is the bias's */
    int offsets[TAPS];
    for (int j = 0; j < TAPS; j++) {
        const int tap = (int)tile * TAPS + j;
        offsets[j] =
            tap < conv.b.in.c * conv.b.kernel * conv.b.kernel ? tap_offset(conv, s, tap) : 0;
    }
    for (size_t item = blockIdx.x; item < (size_t)conv.n * n_parts; item += gridDim.x) {
        const size_t sample = item / n_parts;
        const unsigned part = (unsigned)(item % n_parts), end = n_places * (part + 1) / n_parts;
        load_image<T>(conv, sample, image);
        for (unsigned i = n_places * part / n_parts + lanes.mine; lanes.mine < lanes.n && i < end;
             i += lanes.n) {
            const float *x = image + place_offset(conv, s, i);
            float dz[V];
            load_dz<T, V>(conv, (sample * n_places + i) * n_channels + c, dz);
            for (int v = 0; v < V; v++) {
                sums[TAPS][v] += dz[v];
            }
            DT_UNROLL
            for (int j = 0; j < TAPS; j++) {
                for (int v = 0; v < V; v++) {
                    sums[j][v] += x[offsets[j]] * dz[v];
                }
            }
        }
    }
    float *rows = conv.to.scratch + N_COUNTS,
          *row = rows + (size_t)blockIdx.x * row_width(shape.n_columns);
    DT_UNROLL
    for (unsigned first = 0; first <= TAPS; first += AT_ONCE) {
        const unsigned n_groups = TAPS + 1 - first < AT_ONCE ? TAPS + 1 - first : AT_ONCE;
        add_lanes<V, AT_ONCE>(
            lanes, sums + first, n_groups, memory, [&](unsigned j, unsigned i, float total) {
                if (first + j < TAPS ||
                    i < n_channels) { /* adds the bias once, not for each tile of taps */
                    row[(first + j) * shape.across * V + i] = total;
                }
            });
    }
    if (is_last(conv.to.scratch, gridDim.x)) {
        add_gradients<V>(conv, rows);
    }
}

/* ---- launches */

static bool is_wide(const struct dt_block &b)
{
    return b.linear_out.c % WIDE == 0;
}

size_t dt_gpu_first_conv_scratch(const struct dt_block *b)
{
    return N_COUNTS + (size_t)MAX_BLOCKS * row_width(sums_of(*b, is_wide(*b) ? WIDE : 1).n_columns);
}

cudaError_t dt_gpu_first_conv_forward(cudaStream_t stream, const struct dt_gpu_first_conv *conv)
{
    const unsigned n = (unsigned)conv->n;
    if (n == 0) {
        return cudaSuccess;
    }
    const auto kernel =
        DT_VERSION(first_conv_forward_kernel, conv->type, is_wide(conv->b), WIDE, 1);
    const unsigned n_groups = (unsigned)conv->b.linear_out.c / (is_wide(conv->b) ? WIDE : 1),
                   n_places = (unsigned)(conv->b.linear_out.h * conv->b.linear_out.w);
    const unsigned chunks = blocks_for(n_places, THREADS / n_groups * PLACES),
                   wanted = blocks_for(4 * MAX_BLOCKS, n);
    const dim3 blocks(chunks < wanted ? chunks : wanted, n < 4 * MAX_BLOCKS ? n : 4 * MAX_BLOCKS);
    return DT_LAUNCH(kernel, blocks, THREADS, stream, *conv);
}

cudaError_t dt_gpu_first_conv_gradient(cudaStream_t stream, const struct dt_gpu_first_conv *conv)
{
    const unsigned n = (unsigned)conv->n;
    if (n == 0) {
        return cudaSuccess;
    }
    const unsigned wide = is_wide(conv->b),
                   lanes = THREADS / sums_of(conv->b, wide ? WIDE : 1).across;
    const unsigned most = blocks_for((size_t)conv->b.linear_out.h * (size_t)conv->b.linear_out.w,
                                     lanes),
                   wanted = blocks_for(MAX_BLOCKS, n);
    const unsigned n_parts = most < wanted ? most : wanted;
    const size_t n_items = (size_t)n * n_parts;
    const unsigned blocks = n_items < MAX_BLOCKS ? n_items : MAX_BLOCKS;
    const auto kernel = DT_VERSION(first_conv_gradient_kernel, conv->type, wide, WIDE, 1);
    return DT_LAUNCH(kernel, blocks, THREADS, stream, *conv, n_parts);
}
