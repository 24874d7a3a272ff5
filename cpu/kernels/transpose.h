/* Transposes, which put a dense layer's summands side by side. */
#ifndef DT_CPU_KERNELS_TRANSPOSE_H
#define DT_CPU_KERNELS_TRANSPOSE_H

#include <stddef.h>

#include "cpu/kernels/vector.h"

#define PERMUTE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
/* The same choice in each 16-byte block of two vectors; VL + i is lane i of the second. */
#define BLOCK(at, i, j, k, l) at + i, at + j, at + k, at + l
#if VL == 16
#define BLOCKS(i, j, k, l) \
    BLOCK(0, i, j, k, l), BLOCK(4, i, j, k, l), BLOCK(8, i, j, k, l), BLOCK(12, i, j, k, l)
#elif VL == 8
#define BLOCKS(i, j, k, l) BLOCK(0, i, j, k, l), BLOCK(4, i, j, k, l)
#else
#define BLOCKS(i, j, k, l) BLOCK(0, i, j, k, l)
#endif

typedef float quarter __attribute__((vector_size(16)));

/* to[j][0 .. 3] = from[0 .. 3][j] for VL columns j. */
ALWAYS_INLINE void transpose_four_rows(const vf from[4], float *to, size_t to_stride)
{
    const vf a = from[0], b = from[1], c = from[2], d = from[3];
    const vf ab0 = PERMUTE(a, b, BLOCKS(0, VL, 1, VL + 1)),
             ab1 = PERMUTE(a, b, BLOCKS(2, VL + 2, 3, VL + 3));
    const vf cd0 = PERMUTE(c, d, BLOCKS(0, VL, 1, VL + 1)),
             cd1 = PERMUTE(c, d, BLOCKS(2, VL + 2, 3, VL + 3));
    const vf transposed[4] = {PERMUTE(ab0, cd0, BLOCKS(0, 1, VL, VL + 1)),
                              PERMUTE(ab0, cd0, BLOCKS(2, 3, VL + 2, VL + 3)),
                              PERMUTE(ab1, cd1, BLOCKS(0, 1, VL, VL + 1)),
                              PERMUTE(ab1, cd1, BLOCKS(2, 3, VL + 2, VL + 3))};
    UNROLLED(j, 4) {
        quarter block[VL / 4];
        memcpy(block, &transposed[j], sizeof block);
        UNROLLED(i, VL / 4) {
            memcpy(to + (size_t)(4 * i + j) * to_stride, &block[i], sizeof block[i]);
        }
    }
}

/* to (n_columns, n_rows) from (n_rows, n_columns). Writes whole vectors of columns and fours of
 * rows: extra ones repeat the last row, or hold whatever memory follows. */
ALWAYS_INLINE void transpose_matrix(int n_rows, int n_columns, const float *from,
                                    size_t from_stride, float *to, size_t to_stride)
{
    for (int r = 0; r < n_rows; r += 4) {
        const float *rows[4];
        for (int i = 0; i < 4; i++) {
            rows[i] = from + (size_t)(r + i < n_rows ? r + i : n_rows - 1) * from_stride;
        }
        for (int c = 0; c < n_columns; c += VL) {
            transpose_four_rows((const vf[4]){load(rows[0] + c), load(rows[1] + c),
                                              load(rows[2] + c), load(rows[3] + c)},
                                to + (size_t)c * to_stride + r, to_stride);
        }
    }
}

#endif
