/* Windows of an image that hold only zeros: most of a drawing's. */
#ifndef DT_CPU_KERNELS_BLANK_H
#define DT_CPU_KERNELS_BLANK_H

#include "cpu/kernels/vector.h"

#define TESTED_FLOATS 64 /* of a row, tested at a time */

/* Sets bit i unless float i, of at most TESTED_FLOATS, is +0 in each of n_rows rows. -0
 * counts as nonzero: its products have other signs. */
static inline uint64_t nonzero_floats(int n_rows, const float *x, size_t row, int n)
{
    uint64_t bits = 0;
    for (int i = 0; i < n; i += VL) {
        vi any = (vi)load(x + i);
        for (int r = 1; r < n_rows; r++) {
            any |= (vi)load(x + (size_t)r * row + i);
        }
        bits |= lanes_with_bits(any) << i;
    }
    return bits;
}

/* Number of windows, `width` wide and `stride` floats apart, that fit into TESTED_FLOATS. */
static inline int windows_per_test(int width, int stride)
{
    return (TESTED_FLOATS - width) / stride + 1;
}

#endif
