/* Convolution of stride 1, forward, with fewer multiplications: Winograd's minimal filtering
 * F(4 x 4, 3 x 3) after Lavin and Gray, "Fast algorithms for convolutional neural networks", CVPR
 * 2016 (arXiv 1509.09308). With d a tile of 6 x 6 inputs and g a filter, its 4 x 4 outputs are
 *     A' [sum over channels of (G g G') * (B' d B)] A,
 * where * is element by element: 36 multiplications per channel and filter instead of 144. Element
 * (i, j) of a transformed tile is called a frequency; over tiles, channels and filters each
 * frequency is one matrix product.
 *
 * A, B and G are Cook's and Toom's for the points 0, 1, -1, 1/2, -2, infinity. Measured at 32
 * channels, they triple the rounding error of a direct sum in float; the usual 0, 1, -1, 2, -2,
 * infinity make it 4.5 times as large, F(6 x 6, 3 x 3) 9 times. Why points matter: Barabasz,
 * Anderson, Soodhalter and Gregg, "Error analysis and improving the accuracy of Winograd
 * convolution for deep neural networks", 2018 (arXiv 1803.10986).
 *
 * A wider kernel, up to 5 x 5, is a sum of four of 3 x 3, which meet pixels `wider` rows or columns
 * apart; weights that two of them would have are in the first. So it is a convolution 3 x 3 of four
 * times the channels: 9 multiplications for an output, where F(2 x 2, 5 x 5) has as many, but four
 * times as many transforms of outputs.
 *
 * The files, all winograd_*.c: weights computes G g G', input B' d B, forward the products and the
 * whole convolution, output the outputs, and cover the places of tiles; gradient computes the
 * weights' gradient. */
#ifndef DT_CPU_KERNELS_WINOGRAD_WINOGRAD_KERNEL_H
#define DT_CPU_KERNELS_WINOGRAD_WINOGRAD_KERNEL_H

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vector.h"

enum {
    M = DT_WINOGRAD_TILE,
    SIDE = DT_WINOGRAD_SIDE,
    N_FREQS = DT_WINOGRAD_FREQS,
    ONE_ONE = SIDE + 1
};

/* A block of products kept in registers: tiles by vectors of filters. Filters come in panels of one
 * block's width. */
#define GEMM_ROWS 6
#if defined(__AVX512F__)
#define GEMM_VECTORS 4 /* 24 sums, 4 of weights, 1 of inputs: 29 of 32 registers */
#else
#define GEMM_VECTORS 2 /* 12 sums, 2 of weights, 1 of inputs: 15 of 16 registers */
#endif
#define PANEL (GEMM_VECTORS * VL)

/* Vectors of filters in the panel that begins with filter k0. */
static inline int panel_vectors(int n_filters, int k0)
{
    return (dt_min(PANEL, n_filters - k0) + VL - 1) / VL;
}

/* The output value of a tile of equal pixels, from its products. */
ALWAYS_INLINE vf uniform_output(const float *m, vf bias)
{
    return load(m + ONE_ONE * VL) + bias;
}

/* v = B' d B of one tile of image x; pixels outside of the image are zeros. */
void DT_KERNEL(winograd_tile_input)(const struct dt_winograd *w, const float *x,
                                    const struct dt_winograd_area *tile, float *v);

/* Returns the start of a tile of image x, and the floats between its rows; if it crosses the edge,
 * a copy in `edge`. */
const float *DT_KERNEL(winograd_tile)(const struct dt_winograd *w, const float *x,
                                      const struct dt_winograd_area *tile, float *edge,
                                      size_t *row);

/* Copies a tile with zeros for its large pixels: its `faint` outputs do not depend on them. */
void DT_KERNEL(winograd_faint)(const struct dt_winograd *w, const float *x,
                               const struct dt_winograd_area *tile, float *edge);

/* v = B' d B of one tile, whose rows are `row` floats apart. */
void DT_KERNEL(winograd_input)(const struct dt_winograd *w, const float *x, size_t row, float *v);

/* The one nonzero frequency of a uniform tile. */
void DT_KERNEL(winograd_uniform)(const struct dt_winograd *w, const float *x, float *v);

/* m (tiles, k) = v (tiles, c) u (c, k), for frequencies begin .. end - 1. */
void DT_KERNEL(winograd_products)(const struct dt_winograd *w, int begin, int end, int n_tiles,
                                  const float *v, const float *u, float *m);

/* g = A e A' of the tile at (top, left) of an image's gradient (out_h, out_w, n_k); outputs that do
 * not exist have zeros. edge: room for a tile; g_freq: floats between frequencies. */
void DT_KERNEL(winograd_tile_gradient)(int n_k, int out_h, int out_w, const float *dy, int top,
                                       int left, float *edge, size_t g_freq, float *g);

/* Finds as many equal pixels as an output sees, and returns the first. NULL: there are none. */
const float *DT_KERNEL(winograd_common)(const struct dt_winograd *w, const float *x);

/* Finds the outputs of image x that see only pixels equal to `background`, and fills them with the
 * outputs of uniform tiles whose products are m. Lists tiles for all others in `tile`, which has
 * room for them, and returns their number. Clears `finite` if the filled values are not. words:
 * room for dt_winograd_pixel_words. */
int DT_KERNEL(winograd_cover)(const struct dt_winograd *w, const struct dt_conv_outputs *out,
                              int image, const float *x, const float *background, const float *m,
                              uint64_t *words, struct dt_winograd_area *tile, bool *finite);

/* Writes an area, transformed and finished, and returns whether its outputs, before ReLU, are
 * finite. m: its products. The area is a tile, or uniform: made of equal pixels. Then it has only
 * frequency (1, 1), and it may have any size, with a pool in whole windows. A tile's rounding
 * errors scale with its largest pixels, in all of its outputs. In an output that sees only much
 * smaller ones, they would decide its sign, and whether it is larger than its neighbours, and so
 * let wrong gradients through ReLU and pools: biases are 0 when a training begins, and the
 * background stays as small for a while. So outputs that see only the background are exactly
 * background[k], those that see only zeros their bias, and faint ones come from other products,
 * which follow m: of the tile with zeros for the pixels they do not see. */
bool DT_KERNEL(winograd_output)(const struct dt_winograd *w, const struct dt_conv_outputs *out,
                                const struct dt_winograd_area *area, bool uniform, const float *m,
                                const float *background);

#endif
