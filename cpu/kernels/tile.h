/* The one micro-kernel under convolutions and matrix products: a tile of c kept in registers,
 *     c[i][j] (+)= sum over rows r and depth k of
 *                  a[r * a_row + k * a_step + i * a_stride] * b[(r * n_k + k) * b_step + j]
 * with i over T <= TILE_ROWS and j over one or two vectors. A convolution's window row and channels
 * are one run of memory in H W C order, so they are one depth loop here. */
#ifndef DT_CPU_KERNELS_TILE_H
#define DT_CPU_KERNELS_TILE_H

#include <stdbool.h>
#include <stddef.h>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vector.h"

#if defined(__AVX512F__)
#define TILE_ROWS 14 /* 28 sums, 2 of b, 1 of a: 31 of 32 registers */
#else
#define TILE_ROWS 6 /* 12 sums, 2 of b, 1 of a: 15 of 16 registers */
#endif
#define TILE_VECTORS 2

enum tile_start { TILE_ZERO, TILE_BIAS, TILE_ACCUMULATE };

struct tile {
    const float *a;
    size_t a_row, a_step, a_stride;
    const float *b;
    size_t b_step;
    int n_rows, n_k;
    float *c;
    size_t c_stride;
    int n_columns; /* of c: the last vector may be partly used */
    enum tile_start start;
    const float *bias;
    bool relu;
};

ALWAYS_INLINE vf tile_relu(vf v)
{
    return (vf)(~(v < 0) & (vi)v); /* written so that NaN stays NaN */
}

ALWAYS_INLINE void tile_load(const int T, const int V, const struct tile *t,
                             vf c[TILE_ROWS][TILE_VECTORS])
{
    UNROLLED(i, T) {
        UNROLLED(v, V) {
            c[i][v] = (vf){0};
            __builtin_prefetch(t->c + (size_t)i * t->c_stride + v * VL,
                               1); /* prefetched, so that the stores need not wait */
            if (t->start == TILE_BIAS) {
                c[i][v] = load(t->bias + v * VL);
            } else if (t->start == TILE_ACCUMULATE) {
                c[i][v] = load(t->c + (size_t)i * t->c_stride + v * VL);
            }
        }
    }
}

ALWAYS_INLINE void tile_store(const int T, const int V, const struct tile *t,
                              vf c[TILE_ROWS][TILE_VECTORS])
{
    const int n_last = t->n_columns - (V - 1) * VL;
    UNROLLED(i, T) {
        UNROLLED(v, V) {
            const vf out = t->relu ? tile_relu(c[i][v]) : c[i][v];
            float *to = t->c + (size_t)i * t->c_stride + v * VL;
            if (v == V - 1 && n_last < VL) {
                store_first(to, out, n_last);
            } else {
                store(to, out);
            }
        }
    }
}

/* Three rows share a pointer: addresses p, p + stride, p + 2 stride need no arithmetic. */
ALWAYS_INLINE void tile_body(const int T, const int V, const struct tile *t)
{
    vf c[TILE_ROWS][TILE_VECTORS];
    const size_t stride = t->a_stride, step = t->a_step, b_step = t->b_step;
    const float *b = t->b;
    tile_load(T, V, t, c);
    for (int r = 0; r < t->n_rows; r++) {
        const float *a[(TILE_ROWS + 2) / 3];
        UNROLLED(g, (T + 2) / 3) {
            a[g] = t->a + (size_t)r * t->a_row + (size_t)(3 * g) * stride;
        }
        for (int k = 0; k < t->n_k; k++) {
            vf bv[TILE_VECTORS];
            UNROLLED(v, V) {
                bv[v] = load(b + v * VL);
            }
            UNROLLED(i, T) {
                const float s = a[i / 3][(size_t)(i % 3) * stride];
                UNROLLED(v, V) {
                    c[i][v] += s * bv[v];
                }
            }
            UNROLLED(g, (T + 2) / 3) {
                a[g] += step;
            }
            b += b_step;
        }
    }
    tile_store(T, V, t, c);
}

#define TILE_CASE(T)            \
    case T:                     \
        if (n_vectors == 1) {   \
            tile_body(T, 1, t); \
        } else {                \
            tile_body(T, 2, t); \
        }                       \
        break;

/* n_rows of the tile: 1 .. TILE_ROWS. */
static void tile_run(int n_tile_rows, const struct tile *t)
{
    const int n_vectors = t->n_columns > VL ? 2 : 1;
    switch (n_tile_rows) {
        TILE_CASE(1)
        TILE_CASE(2)
        TILE_CASE(3)
        TILE_CASE(4)
        TILE_CASE(5)
        TILE_CASE(6)
#if TILE_ROWS > 6
        TILE_CASE(7)
        TILE_CASE(8)
        TILE_CASE(9)
        TILE_CASE(10)
        TILE_CASE(11)
        TILE_CASE(12)
        TILE_CASE(13)
        TILE_CASE(14)
#endif
    }
}

/* The tiles that n rows are cut into, and where each begins. */
ALWAYS_INLINE int tile_count(int n)
{
    return dt_cut_count(n, TILE_ROWS);
}

ALWAYS_INLINE int tile_begin(int n, int index)
{
    return dt_cut_begin(n, TILE_ROWS, index);
}

#endif
