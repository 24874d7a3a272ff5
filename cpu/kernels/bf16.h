/* Forward convolutions as products of bf16 numbers: the parameters of the kernels in bf16_amx.c. A
 * bf16 number is the upper half of a float; inputs and weights are rounded to the nearest one, ties
 * to even. Products and sums are floats. */
#ifndef DT_CPU_KERNELS_BF16_H
#define DT_CPU_KERNELS_BF16_H

#include "cpu/kernels/kernels.h"

#define DT_BF16_DEPTH \
    32 /* channels per product: zeros pad inputs and weights to a multiple of it */
#define DT_BF16_FILTERS 16
#define DT_BF16_FEWEST \
    8 /* channels: with fewer, most products would be of zeros, and float is about as fast */

struct dt_bf16 {
    struct dt_conv conv;
    int in_h, in_w, top, left; /* the input image, and its place in the padded one */
    bool used;
};

/* pack: rounds arena weights (K C R S) into the kernel's own order.
 * forward: one image. padded: dt_bf16_padded_elems floats, zero before the first call. Returns true
 * if all outputs, before ReLU, are finite, which a pool requires (NaNs do not win there). Without a
 * pool, true. */
struct dt_bf16_kernels {
    void (*pack)(const struct dt_bf16 *b, const float *weight, uint16_t *packed);
    bool (*forward)(const struct dt_bf16 *b, const float *x, const uint16_t *packed,
                    const struct dt_conv_outputs *out, uint16_t *padded);
};

static inline size_t dt_bf16_channels(const struct dt_bf16 *b)
{
    return dt_round_up((size_t)b->conv.c, DT_BF16_DEPTH);
}

static inline size_t dt_bf16_packed_elems(const struct dt_bf16 *b)
{
    return dt_round_up((size_t)b->conv.k, DT_BF16_FILTERS) * (size_t)b->conv.kernel *
           (size_t)b->conv.kernel * dt_bf16_channels(b);
}

/* Elements of the padded image. */
static inline size_t dt_bf16_padded_elems(const struct dt_bf16 *b)
{
    return (size_t)b->conv.h * (size_t)b->conv.w * dt_bf16_channels(b);
}

#endif
