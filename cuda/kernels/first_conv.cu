/* Kernels for the first convolution, of few input channels: they read the images directly from the
 * data set, without a gather, each only once, because an image fits into shared memory. Products
 * are of floats in every precision: there are too few channels for tensor cores. */
#include "cuda/kernels/kernels.cuh"

/* ---- an image in shared memory, channel by channel, padded with zeros as far as the convolution
 * reaches */

struct sizes {
    int h, w; /* the image's, with the zeros */
    unsigned n_channels, n_places, n_taps;
};

static inline __host__ __device__ struct sizes sizes_of(const struct dt_block &b)
{
    return {(b.linear_out.h - 1) * b.stride + b.kernel, (b.linear_out.w - 1) * b.stride + b.kernel,
            (unsigned)b.linear_out.c, (unsigned)(b.linear_out.h * b.linear_out.w),
            (unsigned)(b.in.c * b.kernel * b.kernel)};
}

/* From the data set, C H W, or from x, H W C. All threads of the block call it; it has barriers
 * before and after. */
template <typename T>
static __device__ void load_image(const struct dt_gpu_first_conv &conv, size_t sample, float *image)
{
    const struct dt_shape in = conv.b.in;
    const struct sizes s = sizes_of(conv.b);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < in.c * s.h * s.w; i += THREADS) {
        const int c = i / (s.h * s.w), h = i / s.w % s.h - conv.b.pad_before_h,
                  w = i % s.w - conv.b.pad_before_w;
        const bool inside = h >= 0 && h < in.h && w >= 0 && w < in.w;
        const int place = h * in.w + w;
        image[i] =
            !inside ? 0.0f
            : conv.x != NULL
                ? (float)((const T *)conv.x)[sample * n_elems(in) + (size_t)(place * in.c + c)]
                : stored(conv.samples, conv.rows[sample], (unsigned)c, (unsigned)place);
    }
    __syncthreads();
}

/* Offset of the filter's tap (C R S) in the image, relative to the filter's position. */
static __device__ int tap_offset(const struct dt_gpu_first_conv &conv, struct sizes s, int tap)
{
    const int n = conv.b.kernel;
    return (tap / (n * n) * s.h + tap / n % n) * s.w + tap % n;
}

static __device__ int place_offset(const struct dt_gpu_first_conv &conv, struct sizes s,
                                   unsigned place)
{
    const int p = (int)(place / (unsigned)conv.b.linear_out.w),
              q = (int)(place % (unsigned)conv.b.linear_out.w);
    return (p * s.w + q) * conv.b.stride;
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
    const struct sizes s = sizes_of(conv.b);
    const unsigned n_channels = s.n_channels, n_places = s.n_places, n_taps = s.n_taps;
    const struct lanes lanes = lanes_of(n_channels / V);
    const unsigned c = threadIdx.x % lanes.across * V, step = lanes.n * PLACES;
    for (unsigned i = threadIdx.x; i < n_channels * n_taps; i += THREADS) {
        filters[i % n_taps * n_channels + i / n_taps] = conv.weight[i];
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
                load_if<V>(conv.bias, c, sums[j]);
            }
            for (unsigned tap = 0; tap < n_taps; tap++) {
                const float *x = image + tap_offset(conv, s, (int)tap);
                float w[V];
                load<V>(filters + tap * n_channels + c, w);
                for (int j = 0; j < PLACES; j++) {
                    for (int v = 0; v < V; v++) {
                        sums[j][v] += x[base[j]] * w[v];
                    }
                }
            }
            DT_UNROLL
            for (unsigned j = 0; j < PLACES; j++) {
                const unsigned place = first + j * lanes.n;
                const size_t at = (sample * n_places + place) * n_channels + c;
                activate<V>(conv.b.activation, sums[j]);
                if (place < n_places) {
                    store<V>(sums[j], (T *)conv.y + at);
                }
                if (V == WIDE && place < n_places && conv.signs != NULL) {
                    unsigned signs = 0;
                    for (unsigned v = 0; v < V; v++) {
                        signs |= (sums[j][v] > 0 ? 1u : 0u) << v;
                    }
                    conv.signs[at / WIDE] = (uint8_t)signs;
                }
            }
        }
    }
}

/* ---- backward: a thread has V channels at TAPS of the taps; it keeps their sums over all places
 * in registers, and the bias's */

#define TAPS 9
/* Taps and bias whose sums over the lanes are made together: as many as fit into shared memory. */
#define AT_ONCE 4
#define MAX_BLOCKS 264 /* rows of partial sums: two blocks for each of 132 multiprocessors */

/* Columns of a row of sums: tap by tap of one thread, then all threads of a lane, then the
 * biases. */
struct sums_shape {
    unsigned across, n_columns;
};

static inline __host__ __device__ struct sums_shape sums_of(struct sizes s, unsigned v)
{
    const unsigned across = s.n_channels / v * ((s.n_taps + TAPS - 1) / TAPS);
    return {across, across * v * TAPS + s.n_channels};
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

/* The image's memory is later that of the sums. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS, 2)
    first_conv_gradient_kernel(struct dt_gpu_first_conv conv, unsigned n_parts)
{
    alignas(16) __shared__ float image[LANES_MEMORY(AT_ONCE, V) > DT_CUDA_FIRST_CONV_IMAGE
                                           ? LANES_MEMORY(AT_ONCE, V)
                                           : DT_CUDA_FIRST_CONV_IMAGE];
    const struct sizes s = sizes_of(conv.b);
    const struct sums_shape shape = sums_of(s, V);
    const struct lanes lanes = lanes_of(shape.across);
    const unsigned n_channels = s.n_channels, n_places = s.n_places, n_taps = s.n_taps;
    const unsigned mine = threadIdx.x % lanes.across * V, c = mine % n_channels,
                   tile = mine / n_channels;
    float sums[TAPS + 1][V] = {}; /* the last is the bias's */
    int offsets[TAPS];
    for (int j = 0; j < TAPS; j++) {
        const int tap = (int)tile * TAPS + j;
        offsets[j] = tap < (int)n_taps ? tap_offset(conv, s, tap) : 0;
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
            add<V>(dz, sums[TAPS]);
            DT_UNROLL
            for (int j = 0; j < TAPS; j++) {
                for (int v = 0; v < V; v++) {
                    sums[j][v] += x[offsets[j]] * dz[v];
                }
            }
        }
    }
    const struct dt_gpu_gradients &to = conv.to;
    const unsigned width = row_width(shape.n_columns), each = shape.across * V;
    float *rows = to.scratch + N_COUNTS, *row = rows + (size_t)blockIdx.x * width;
    DT_UNROLL
    for (unsigned first = 0; first <= TAPS; first += AT_ONCE) {
        const unsigned n_groups = TAPS + 1 - first < AT_ONCE ? TAPS + 1 - first : AT_ONCE;
        const auto keep = [&](unsigned j, unsigned i, float total) {
            if (first + j < TAPS || i < n_channels) { /* the bias once, not for each tile of taps */
                row[(first + j) * each + i] = total;
            }
        };
        add_lanes<V, AT_ONCE>(lanes, sums + first, n_groups, image, keep);
    }
    const auto place = [&](unsigned column) {
        const unsigned i = column % each, t = i / n_channels * TAPS + column / each;
        const bool is_weight = column < each * TAPS,
                   is_bias = !is_weight && column < shape.n_columns && to.bias != NULL;
        return is_weight && t < n_taps ? to.weight + i % n_channels * n_taps + t
               : is_bias               ? to.bias + (column - each * TAPS)
                                       : NULL;
    };
    add_rows(to.scratch, gridDim.x, rows, gridDim.x, width, to.accumulate, place);
}

/* ---- launches */

size_t dt_gpu_first_conv_scratch(const struct dt_block *b)
{
    return N_COUNTS + (size_t)MAX_BLOCKS * row_width(sums_of(sizes_of(*b), width_of(*b)).n_columns);
}

cudaError_t dt_gpu_first_conv_forward(cudaStream_t stream, const struct dt_gpu_first_conv *conv)
{
    const unsigned n = (unsigned)conv->n;
    if (n == 0) {
        return cudaSuccess;
    }
    const unsigned width = width_of(conv->b);
    const struct sizes s = sizes_of(conv->b);
    const auto kernel = DT_VERSION(first_conv_forward_kernel, conv->type, width == WIDE, WIDE, 1);
    const unsigned chunks = blocks_for(s.n_places, THREADS / (s.n_channels / width) * PLACES),
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
    const unsigned width = width_of(conv->b);
    const struct sizes s = sizes_of(conv->b);
    const unsigned most = blocks_for(s.n_places, THREADS / sums_of(s, width).across),
                   wanted = blocks_for(MAX_BLOCKS, n);
    const unsigned n_parts = most < wanted ? most : wanted;
    const size_t n_items = (size_t)n * n_parts;
    const unsigned blocks = n_items < MAX_BLOCKS ? n_items : MAX_BLOCKS;
    const auto kernel = DT_VERSION(first_conv_gradient_kernel, conv->type, width == WIDE, WIDE, 1);
    return DT_LAUNCH(kernel, blocks, THREADS, stream, *conv, n_parts);
}
