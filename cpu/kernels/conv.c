/* Direct convolution, forward. */
#include "cpu/kernels/kernels.h"

#include <math.h>

#include "cpu/kernels/blank.h"
#include "cpu/kernels/tile.h"

#define FILTERS (TILE_VECTORS * VL)

/* Packed weights: blocks of FILTERS filters (the last one a single vector if that suffices), in
 * each [r][s][c][filter]. */
static int block_width(int n_filters)
{
    return n_filters > VL ? FILTERS : VL;
}

void DT_KERNEL(conv_pack_forward)(const struct dt_conv *conv, const float *weight, float *packed)
{
    const size_t n_taps = (size_t)conv->kernel * (size_t)conv->kernel, n_c = (size_t)conv->c;
    for (int k0 = 0; k0 < conv->k; k0 += FILTERS) {
        const int n = dt_min(FILTERS, conv->k - k0), width = block_width(n);
        for (size_t tap = 0; tap < n_taps; tap++) {
            for (size_t c = 0; c < n_c; c++) {
                for (int k = 0; k < width; k++) {
                    *packed++ = k < n ? weight[((size_t)(k0 + k) * n_c + c) * n_taps + tap] : 0.0f;
                }
            }
        }
    }
}

/* ---- one channel and a small window: the first layer of a network for drawings */

#define FEW_POSITIONS \
    3              /* outputs at a time: addresses x, x + stride, x + 2 stride need no arithmetic */
#define FEW_SIDE 5 /* of the largest window it handles */

/* One or two vectors of filters over an image. */
struct few {
    struct dt_conv conv;
    const float *x, *weight, *bias;
    size_t width; /* distance between the weights of neighbouring taps */
    int n_last;   /* filters of the last vector */
    vf least;     /* ReLU's 0, or -infinity */
    float *y;
};

/* n neighbouring outputs; S is the window's side. */
ALWAYS_INLINE void few_outputs(const int S, const int V, const int n, const struct few *few,
                               const float *x, size_t row, const vf weight[], float *y)
{
    const size_t stride = (size_t)few->conv.stride, n_k = (size_t)few->conv.k;
    const vf least = few->least;
    vf sum[FEW_POSITIONS][TILE_VECTORS];
#define EACH_SUM(statement) \
    UNROLLED(i, n) {        \
        UNROLLED(v, V) {    \
            statement;      \
        }                   \
    }
    EACH_SUM(sum[i][v] = load(few->bias + v * VL))
    UNROLL
    for (int r = 0; r < S; r++, x += row) {
        KEEP_ADDRESS(x);
        UNROLLED(s, S) {
            EACH_SUM(sum[i][v] += x[(size_t)i * stride + (size_t)s] * weight[(r * S + s) * V + v])
        }
    }
    EACH_SUM(store_lanes(y + (size_t)i * n_k + v * VL, larger(least, sum[i][v]), /* NaN stays NaN */
                         v == V - 1 ? few->n_last : VL))
#undef EACH_SUM
}

/* Outputs q .. end - 1 of a row; `nonzero` marks the nonzero floats from the window of q on. */
ALWAYS_INLINE void few_row(const int S, const int V, const struct few *few, int q, int end,
                           uint64_t nonzero, const float *x, const vf weight[], const vf of_zeros[],
                           float *y)
{
    const size_t stride = (size_t)few->conv.stride, row = (size_t)few->conv.w,
                 n_k = (size_t)few->conv.k;
    const int last = few->conv.out_w - FEW_POSITIONS;
    while (q < end) {
        if ((nonzero & ((1u << S) - 1)) == 0) {
            UNROLLED(v, V) {
                store_lanes(y + v * VL, of_zeros[v], v == V - 1 ? few->n_last : VL);
            }
            nonzero >>= stride;
            x += stride;
            y += n_k;
            q++;
            continue;
        }
        if (q > last) { /* at the row's end it repeats some outputs */
            x -= (size_t)(q - last) * stride;
            y -= (size_t)(q - last) * n_k;
            q = last;
        }
        few_outputs(S, V, FEW_POSITIONS, few, x, row, weight, y);
        nonzero >>= FEW_POSITIONS * stride;
        x += FEW_POSITIONS * stride;
        y += FEW_POSITIONS * n_k;
        q += FEW_POSITIONS;
    }
}

/* Copies the output of one window of zeros to all: so they have the same bits, whatever the weights
 * are. */
ALWAYS_INLINE void few_filters(const int S, const int V, const struct few *of)
{
    static const float zeros[FEW_SIDE];
    const struct few few = *of; /* a local copy: no store can change it, so it stays in registers */
    const struct dt_conv *conv = &few.conv;
    const int stride = conv->stride, n_seen = windows_per_test(S, stride);
    const size_t row = (size_t)conv->w;
    vf weight[FEW_SIDE * FEW_SIDE * TILE_VECTORS], of_zeros[TILE_VECTORS];
    UNROLLED(i, S * S * V) {
        weight[i] = load(few.weight + (size_t)(i / V) * few.width + (i % V) * VL);
    }
    few_outputs(S, V, 1, &few, zeros, 0, weight, (float *)of_zeros);
    for (int p = 0; p < conv->out_h; p++) {
        const float *x = few.x + (size_t)(p * stride) * row;
        float *y = few.y + (size_t)p * (size_t)conv->out_w * (size_t)conv->k;
        for (int q = 0; q < conv->out_w; q += n_seen) {
            const int end = dt_min(q + n_seen, conv->out_w);
            const uint64_t nonzero =
                nonzero_floats(S, x + (size_t)(q * stride), row, (end - q - 1) * stride + S);
            few_row(S, V, &few, q, end, nonzero, x + (size_t)(q * stride), weight, of_zeros,
                    y + (size_t)q * (size_t)conv->k);
        }
    }
}

#define FEW_CASE(S, V)                                                         \
    static __attribute__((noinline)) void few_##S##_##V(const struct few *few) \
    {                                                                          \
        few_filters(S, V, few);                                                \
    }
FEW_CASE(3, 1)
FEW_CASE(3, 2)
FEW_CASE(5, 1)
FEW_CASE(5, 2)

/* Measured: two vectors of filters share each load of x, which pays even if their weights do not
 * fit into registers; without AVX a 5x5 window's tiles are faster. */
static bool few_apply(const struct dt_conv *conv)
{
    const bool window = conv->kernel == 3 || (conv->kernel == 5 && VL > 4);
    return conv->c == 1 && window && conv->stride <= conv->kernel &&
           (conv->k % VL == 0 || VL == 16) && conv->out_w >= FEW_POSITIONS;
}

static void few_forward(const struct dt_conv *conv, const float *x, const float *packed,
                        const float *bias, bool relu, float *y)
{
    for (int k0 = 0; k0 < conv->k; k0 += FILTERS) {
        const int width = block_width(conv->k - k0), side = conv->kernel;
        const struct few few = {.conv = *conv,
                                .x = x,
                                .weight = packed + k0 * side * side,
                                .bias = bias + k0,
                                .width = (size_t)width,
                                .n_last = dt_min(width, conv->k - k0) - (width - VL),
                                .least = relu ? (vf){0} : (vf){0} - INFINITY,
                                .y = y + k0};
        if (side == 3 && width == VL) {
            few_3_1(&few);
        } else if (side == 3) {
            few_3_2(&few);
        } else if (width == VL) {
            few_5_1(&few);
        } else {
            few_5_2(&few);
        }
    }
}

/* ---- tiles: all other convolutions */

/* One row of outputs of one block of filters. */
static void forward_row(const struct dt_conv *conv, struct tile *tile, const float *x, float *y)
{
    const int n_tiles = tile_count(conv->out_w);
    for (int i = 0; i < n_tiles; i++) {
        const int begin = tile_begin(conv->out_w, i);
        tile->a = x + (size_t)begin * tile->a_stride;
        tile->c = y + (size_t)begin * tile->c_stride;
        tile_run(tile_begin(conv->out_w, i + 1) - begin, tile);
    }
}

void DT_KERNEL(conv_forward)(const struct dt_conv *conv, const float *x, const float *packed,
                             const float *bias, bool relu, float *y)
{
    if (few_apply(conv)) {
        few_forward(conv, x, packed, bias, relu, y);
        return;
    }
    const size_t row = (size_t)conv->w * (size_t)conv->c,
                 out_row = (size_t)conv->out_w * (size_t)conv->k;
    struct tile tile = {.a_row = row,
                        .a_step = 1,
                        .a_stride = (size_t)conv->stride * (size_t)conv->c,
                        .n_rows = conv->kernel,
                        .n_k = conv->kernel * conv->c,
                        .c_stride = (size_t)conv->k,
                        .start = TILE_BIAS,
                        .relu = relu};
    for (int k0 = 0; k0 < conv->k; k0 += FILTERS) {
        tile.n_columns = dt_min(FILTERS, conv->k - k0);
        tile.b = packed;
        tile.b_step = (size_t)block_width(tile.n_columns);
        tile.bias = bias + k0;
        for (int p = 0; p < conv->out_h; p++) {
            forward_row(conv, &tile, x + (size_t)(p * conv->stride) * row,
                        y + (size_t)p * out_row + k0);
        }
        packed += tile.b_step * (size_t)tile.n_rows * (size_t)tile.n_k;
    }
}
