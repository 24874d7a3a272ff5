/* Convolution 3 x 3 of stride 1, forward, with fewer multiplications: Winograd's minimal filtering
 * F(4 x 4, 3 x 3) after Lavin and Gray, "Fast algorithms for convolutional neural networks", CVPR
 * 2016 (arXiv 1509.09308). With d a tile of 6 x 6 inputs and g a filter, its 4 x 4 outputs are A'
 * [sum over channels of (G g G') * (B' d B)] A, where * is element by element: 36 multiplications
 * per channel and filter instead of 144. Element (i, j) of a transformed tile is called a
 * frequency; over tiles, channels and filters each frequency is one matrix product.
 *
 * A, B and G are Cook's and Toom's for the points 0, 1, -1, 1/2, -2, infinity. Measured at 32
 * channels, they triple the rounding error of a direct sum in float; the usual 0, 1, -1, 2, -2,
 * infinity make it 4.5 times as large, F(6 x 6, 3 x 3) 9 times. Why points matter: Barabasz,
 * Anderson, Soodhalter and Gregg, "Error analysis and improving the accuracy of Winograd
 * convolution for deep neural networks", 2018 (arXiv 1803.10986).
 *
 * winograd_weights.c has G g G', winograd.c the inputs, the products and the whole,
 * winograd_output.c the outputs, winograd_cover.c where tiles lie. */
#ifndef DT_CPU_KERNELS_WINOGRAD_KERNEL_H
#define DT_CPU_KERNELS_WINOGRAD_KERNEL_H

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

/* What all outputs of a tile of equal pixels are, given its products. */
ALWAYS_INLINE vf blank_output(const float *m, vf bias)
{
    return load(m + ONE_ONE * VL) + bias;
}

/* Looks in image x for 3 x 3 pixels that are all alike, and returns the first. NULL: there are
 * none. */
const float *DT_KERNEL(winograd_common)(const struct dt_winograd *w, const float *x);

/* Finds the outputs of image x that see nothing but pixels like `ground`, and fills them with what
 * blank tiles whose products are m would have. Lists tiles for all others, which `tile` has room
 * for, and returns their number. Clears `finite` if what it fills is not. words: room for
 * dt_winograd_pixel_words. */
int DT_KERNEL(winograd_cover)(const struct dt_winograd *w, const struct dt_conv_outputs *out,
                              int image, const float *x, const float *ground, const float *m,
                              uint64_t *words, struct dt_winograd_area *tile, bool *finite);

/* Writes an area, transformed and finished, and returns whether its outputs, before ReLU, are
 * finite. m: its products. It is a tile, or blank: made of equal pixels. Then only frequency (1, 1)
 * is there, and it may have any size, with a pool in whole windows.
 *
 * Rounding errors of a tile are as large as its largest pixels make them, in all of its outputs.
 * Where an output sees much smaller ones alone, they would decide whether it is positive, and
 * whether it is larger than its neighbours, and so let gradients through ReLU and pools that do not
 * belong there: biases are 0 when a training begins, and the ground as small as they are for a
 * while. So outputs that see nothing but the ground are exactly ground[k], those that see nothing
 * but zeros their bias, and quiet ones are made of other products, which follow m: of the tile with
 * zeros for what they do not see. */
bool DT_KERNEL(winograd_output)(const struct dt_winograd *w, const struct dt_conv_outputs *out,
                                const struct dt_winograd_area *area, bool blank, const float *m,
                                const float *ground);

#endif
