/* c (m, n) += a (m, k) b (k, n) in the first-level cache: where a has many zeros it skips them, so
 * that only nonzero numbers cost a row of b. Each sum is added in the order of k either way. NaN
 * counts as nonzero; zero times infinity is NaN only if it is not skipped. */
#ifndef DT_CPU_KERNELS_WALK_H
#define DT_CPU_KERNELS_WALK_H

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/tile.h"

#define WALK_VECTORS 8 /* sums in registers: enough for two multiply-adds a cycle */
#define WALK_COLUMNS (WALK_VECTORS * VL)
#define WALK_DEPTH (DT_DENSE_PANEL / WALK_COLUMNS) /* rows of a panel with WALK_COLUMNS columns */
#define WALK_WORDS (WALK_DEPTH / 64)

/* Prefetches n floats of each of the rows first .. last - 1, which no hardware prefetcher finds. */
ALWAYS_INLINE void ask_for(const float *matrix, size_t stride, int first, int last, int n)
{
    for (int i = first; i < last; i++) {
        for (int j = 0; j < n; j += 16) {
            __builtin_prefetch(matrix + (size_t)i * stride + j, 0, 2);
        }
    }
}

/* Sets bit i if a[i] is nonzero. */
ALWAYS_INLINE int find_nonzero(int depth, const float *a, uint64_t bits[WALK_WORDS])
{
    int n = 0;
    for (int w = 0; w < WALK_WORDS; w++) {
        bits[w] = 0;
        for (int i = 64 * w; i < dt_min(64 * w + 64, depth); i += VL) {
            bits[w] |= nonzero_lanes(load(a + i)) << (i % 64);
        }
        if (depth < 64 * w + 64) {
            bits[w] &= depth <= 64 * w ? 0 : ~(uint64_t)0 >> (64 * w + 64 - depth);
        }
        n += __builtin_popcountll(bits[w]);
    }
    return n;
}

/* One row of c, V vectors of which the last has n_last columns. */
ALWAYS_INLINE void walk_row(const int V, int n_last, const float *a,
                            const uint64_t bits[WALK_WORDS], const float *b, size_t b_step,
                            float *c)
{
    vf sum[WALK_VECTORS];
    UNROLLED(v, V) {
        sum[v] = load(c + v * VL);
    }
    for (int w = 0; w < WALK_WORDS; w++, a += 64, b += 64 * b_step) {
        for (uint64_t left = bits[w]; left != 0; left &= left - 1) {
            const size_t i = (size_t)__builtin_ctzll(left);
            const float *from = b + i * b_step, value = a[i];
            UNROLLED(v, V) {
                sum[v] += value * load(from + v * VL);
            }
        }
    }
    UNROLLED(v, V - 1) {
        store(c + v * VL, sum[v]);
    }
    if (n_last < VL) {
        store_first(c + (V - 1) * VL, sum[V - 1], n_last);
    } else {
        store(c + (V - 1) * VL, sum[V - 1]);
    }
}

struct product {
    int n_columns; /* at most WALK_COLUMNS */
    int depth;     /* at most WALK_DEPTH */
    const float *a;
    size_t a_stride;
    const float *b;
    size_t b_step;
    float *c;
    size_t c_stride;
};

static void walk_rows(int n_rows, const struct product *p, uint64_t bits[TILE_ROWS][WALK_WORDS])
{
#define WALK_CASE(label, V)                                                                     \
    label:                                                                                      \
    for (int i = 0; i < n_rows; i++) {                                                          \
        walk_row(V, p->n_columns - (V - 1) * VL, p->a + (size_t)i * p->a_stride, bits[i], p->b, \
                 p->b_step, p->c + (size_t)i * p->c_stride);                                    \
    }                                                                                           \
    break;
    switch ((p->n_columns + VL - 1) / VL) {
        WALK_CASE(case 1, 1)
        WALK_CASE(case 2, 2)
        WALK_CASE(case 3, 3)
        WALK_CASE(case 4, 4)
        WALK_CASE(case 5, 5)
        WALK_CASE(case 6, 6)
        WALK_CASE(case 7, 7)
        WALK_CASE(default, 8)
    }
}

/* Up to TILE_ROWS rows. In a dense product a number costs half a cycle per vector of b; alone it
 * costs five cycles, however few the vectors are, because additions to the same sum wait for each
 * other. */
static void product_rows(int n_rows, const struct product *p)
{
    uint64_t bits[TILE_ROWS][WALK_WORDS];
    int n_nonzero = 0;
    for (int i = 0; i < n_rows; i++) {
        n_nonzero += find_nonzero(p->depth, p->a + (size_t)i * p->a_stride, bits[i]);
    }
    if (10 * n_nonzero <= (p->n_columns + VL - 1) / VL * n_rows * p->depth) {
        walk_rows(n_rows, p, bits);
        return;
    }
    struct tile tile = {.a_step = 1,
                        .a_stride = p->a_stride,
                        .n_rows = 1,
                        .n_k = p->depth,
                        .b_step = p->b_step,
                        .c_stride = p->c_stride,
                        .start = TILE_ACCUMULATE,
                        .a = p->a};
    for (int j = 0; j < p->n_columns; j += TILE_VECTORS * VL) {
        tile.b = p->b + j;
        tile.c = p->c + j;
        tile.n_columns = dt_min(TILE_VECTORS * VL, p->n_columns - j);
        tile_run(n_rows, &tile);
    }
}

#endif
