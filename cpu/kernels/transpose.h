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

/* Transposes each block of four rows. */
ALWAYS_INLINE void transpose_blocks(vf rows[4])
{
    const vf ab0 = PERMUTE(rows[0], rows[1], BLOCKS(0, VL, 1, VL + 1)),
             ab1 = PERMUTE(rows[0], rows[1], BLOCKS(2, VL + 2, 3, VL + 3));
    const vf cd0 = PERMUTE(rows[2], rows[3], BLOCKS(0, VL, 1, VL + 1)),
             cd1 = PERMUTE(rows[2], rows[3], BLOCKS(2, VL + 2, 3, VL + 3));
    rows[0] = PERMUTE(ab0, cd0, BLOCKS(0, 1, VL, VL + 1));
    rows[1] = PERMUTE(ab0, cd0, BLOCKS(2, 3, VL + 2, VL + 3));
    rows[2] = PERMUTE(ab1, cd1, BLOCKS(0, 1, VL, VL + 1));
    rows[3] = PERMUTE(ab1, cd1, BLOCKS(2, 3, VL + 2, VL + 3));
}

/* to[j][0 .. 3] = rows[0 .. 3][j] for VL columns j. */
ALWAYS_INLINE void transpose_four_rows(vf rows[4], float *to, size_t to_stride)
{
    transpose_blocks(rows);
    UNROLLED(j, 4) {
        quarter block[VL / 4];
        memcpy(block, &rows[j], sizeof block);
        UNROLLED(i, VL / 4) {
            memcpy(to + (size_t)(4 * i + j) * to_stride, &block[i], sizeof block[i]);
        }
    }
}

/* The even blocks of two vectors, and the odd ones. */
#if VL == 16
#define EVEN(a, b)                                                                   \
    PERMUTE(a, b, BLOCK(0, 0, 1, 2, 3), BLOCK(8, 0, 1, 2, 3), BLOCK(16, 0, 1, 2, 3), \
            BLOCK(24, 0, 1, 2, 3))
#define ODD(a, b)                                                                     \
    PERMUTE(a, b, BLOCK(4, 0, 1, 2, 3), BLOCK(12, 0, 1, 2, 3), BLOCK(20, 0, 1, 2, 3), \
            BLOCK(28, 0, 1, 2, 3))
#elif VL == 8
#define EVEN(a, b) PERMUTE(a, b, BLOCK(0, 0, 1, 2, 3), BLOCK(8, 0, 1, 2, 3))
#define ODD(a, b) PERMUTE(a, b, BLOCK(4, 0, 1, 2, 3), BLOCK(12, 0, 1, 2, 3))
#endif

/* Vectors j, 4 + j, ... of a square whose blocks are transposed: block i of each to vector i. */
ALWAYS_INLINE void gather_blocks(int j, vf square[VL])
{
#if VL == 16
    const vf even[2] = {EVEN(square[j], square[4 + j]), EVEN(square[8 + j], square[12 + j])},
             odd[2] = {ODD(square[j], square[4 + j]), ODD(square[8 + j], square[12 + j])};
    square[j] = EVEN(even[0], even[1]);
    square[4 + j] = EVEN(odd[0], odd[1]);
    square[8 + j] = ODD(even[0], even[1]);
    square[12 + j] = ODD(odd[0], odd[1]);
#elif VL == 8
    const vf even = EVEN(square[j], square[4 + j]), odd = ODD(square[j], square[4 + j]);
    square[j] = even;
    square[4 + j] = odd;
#else
    (void)j;
    (void)square;
#endif
}

/* to (n_columns, n_rows) from (n_rows, n_columns). Writes whole vectors of columns and of rows:
 * extra rows repeat the last one, extra columns hold whatever memory follows. */
ALWAYS_INLINE void transpose_matrix(int n_rows, int n_columns, const float *from,
                                    size_t from_stride, float *to, size_t to_stride)
{
    for (int r = 0; r < n_rows; r += VL) {
        for (int c = 0; c < n_columns; c += VL) {
            vf square[VL];
            UNROLLED(i, VL) {
                square[i] =
                    load(from + (size_t)(r + i < n_rows ? r + i : n_rows - 1) * from_stride + c);
            }
            UNROLLED(i, VL / 4) {
                transpose_blocks(square + 4 * i);
            }
            UNROLLED(j, 4) {
                gather_blocks(j, square);
            }
            UNROLLED(i, VL) {
                store(to + (size_t)(c + i) * to_stride + r, square[i]);
            }
        }
    }
}

#endif
