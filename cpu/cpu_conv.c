/* Direct convolution, forward. */
#include "cpu/cpu_kernels.h"
#include "cpu/cpu_tile.h"

#define FILTERS (TILE_VECTORS * VL)

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Packed weights: blocks of FILTERS filters (the last one vector wide if that is enough), in each [r][s][c][filter]. */
static int block_width(int n_filters)
{
    return n_filters > VL ? FILTERS : VL;
}

void DT_KERNEL(conv_pack_forward)(const struct dt_conv *conv, const float *weight, float *packed)
{
    const size_t n_taps = (size_t)conv->kernel * (size_t)conv->kernel, n_c = (size_t)conv->c;
    for (int k0 = 0; k0 < conv->k; k0 += FILTERS) {
        const int n = smaller(FILTERS, conv->k - k0), width = block_width(n);
        for (size_t tap = 0; tap < n_taps; tap++) {
            for (size_t c = 0; c < n_c; c++) {
                for (int k = 0; k < width; k++) {
                    *packed++ = k < n ? weight[((size_t)(k0 + k) * n_c + c) * n_taps + tap] : 0.0f;
                }
            }
        }
    }
}

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

void DT_KERNEL(conv_forward)(const struct dt_conv *conv, const float *x, const float *packed, const float *bias, bool relu,
                             float *y)
{
    const size_t row = (size_t)conv->w * (size_t)conv->c, out_row = (size_t)conv->out_w * (size_t)conv->k;
    struct tile tile = {.a_row = row,
                        .a_step = 1,
                        .a_stride = (size_t)conv->stride * (size_t)conv->c,
                        .n_rows = conv->kernel,
                        .n_k = conv->kernel * conv->c,
                        .c_stride = (size_t)conv->k,
                        .start = TILE_BIAS,
                        .relu = relu};
    for (int k0 = 0; k0 < conv->k; k0 += FILTERS) {
        tile.n_columns = smaller(FILTERS, conv->k - k0);
        tile.b = packed;
        tile.b_step = (size_t)block_width(tile.n_columns);
        tile.bias = bias + k0;
        for (int p = 0; p < conv->out_h; p++) {
            forward_row(conv, &tile, x + (size_t)(p * conv->stride) * row, y + (size_t)p * out_row + k0);
        }
        packed += tile.b_step * (size_t)tile.n_rows * (size_t)tile.n_k;
    }
}
