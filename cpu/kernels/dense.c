/* Dense layers forward: many samples, a panel of inputs at a time, whose weights, transposed, stay
 * in the first-level cache; and few samples, where transposing would cost more than it saves. */
#include "cpu/kernels/transpose.h"
#include "cpu/kernels/walk.h"

void DT_KERNEL(dense_forward)(int part, int n_parts, int n, int n_in, int n_out, const float *x,
                              const float *weight, const float *bias, float *y, float *panel)
{
    const int first = (int)((int64_t)tile_count(n) * part / n_parts),
              last = (int)((int64_t)tile_count(n) * (part + 1) / n_parts);
    for (int i = tile_begin(n, first); i < tile_begin(n, last); i++) {
        memcpy(y + (size_t)i * (size_t)n_out, bias, (size_t)n_out * sizeof(float));
    }
    struct product p = {
        .a_stride = (size_t)n_in, .b = panel, .b_step = WALK_COLUMNS, .c_stride = (size_t)n_out};
    for (int at = 0; at < n_in; at += WALK_DEPTH) {
        p.depth = dt_min(WALK_DEPTH, n_in - at);
        for (int j = 0; j < n_out; j += WALK_COLUMNS) {
            p.n_columns = dt_min(WALK_COLUMNS, n_out - j);
            transpose_matrix(p.n_columns, p.depth, weight + (size_t)j * (size_t)n_in + at,
                             (size_t)n_in, panel, p.b_step);
            for (int tile = first; tile < last; tile++) {
                const int begin = tile_begin(n, tile), end = tile_begin(n, tile + 1);
                if (j + WALK_COLUMNS >= n_out && at + WALK_DEPTH < n_in) {
                    ask_for(x + at + WALK_DEPTH, (size_t)n_in, begin, end, WALK_DEPTH);
                    const int rows = dt_min(n_out, WALK_COLUMNS), per = rows / (last - first) + 1;
                    ask_for(weight + at + WALK_DEPTH, (size_t)n_in, (tile - first) * per,
                            dt_min(rows, (tile - first + 1) * per), WALK_DEPTH);
                }
                p.a = x + (size_t)begin * (size_t)n_in + at;
                p.c = y + (size_t)begin * (size_t)n_out + j;
                product_rows(end - begin, &p);
            }
        }
    }
}

/* ---- few samples: inputs and weights both run along k, so sums are kept per lane and added at the
 * end */

#if defined(__AVX512F__)
#define ROWS 6 /* 24 sums, 4 of w, 1 of x */
#else
#define ROWS 3 /* 12 sums, 3 of x, 1 of w */
#endif
#define UNITS 4
#define FEW_DEPTH 768 /* ROWS rows of x of this depth stay in the first-level cache */

/* The sums of four vectors' lanes. */
ALWAYS_INLINE quarter lane_sums(const vf v[4])
{
    const vf ab = PERMUTE(v[0], v[1], BLOCKS(0, VL, 1, VL + 1)) +
                  PERMUTE(v[0], v[1], BLOCKS(2, VL + 2, 3, VL + 3));
    const vf cd = PERMUTE(v[2], v[3], BLOCKS(0, VL, 1, VL + 1)) +
                  PERMUTE(v[2], v[3], BLOCKS(2, VL + 2, 3, VL + 3));
    const vf abcd =
        PERMUTE(ab, cd, BLOCKS(0, 1, VL, VL + 1)) + PERMUTE(ab, cd, BLOCKS(2, 3, VL + 2, VL + 3));
    quarter block[VL / 4], sum;
    memcpy(block, &abcd, sizeof block);
    sum = block[0];
    UNROLL
    for (int i = 1; i < VL / 4; i++) {
        sum += block[i];
    }
    return sum;
}

/* Adds VL more terms to each sum, or those in `inside`. */
ALWAYS_INLINE void few_step(const int N, const float *const x[ROWS], const float *const w[UNITS],
                            int at, const bool whole, vi inside, vf sum[ROWS][UNITS])
{
    vf wv[UNITS];
    UNROLLED(j, UNITS) {
        wv[j] = whole ? load(w[j] + at) : (vf)(inside & (vi)load(w[j] + at));
    }
    UNROLLED(i, N) {
        const vf xv = whole ? load(x[i] + at) : (vf)(inside & (vi)load(x[i] + at));
        UNROLLED(j, UNITS) {
            sum[i][j] += xv * wv[j];
        }
    }
}

/* y[i][0 .. n_units - 1] += x[i] * w for the first N of some samples; only n_rows of them are
 * stored. */
ALWAYS_INLINE void few_tile(const int N, int depth, const float *const x[ROWS],
                            const float *const w[UNITS], int n_rows, int n_units, float *y,
                            size_t stride)
{
    const int n_whole = depth / VL * VL;
    vf sum[ROWS][UNITS] = {0};
    for (int at = 0; at < n_whole; at += VL) {
        few_step(N, x, w, at, true, (vi){0}, sum);
    }
    if (n_whole <
        depth) { /* the same way, so that a sum's bits do not depend on its place in the tile */
        few_step(N, x, w, n_whole, false, first_lanes(depth - n_whole), sum);
    }
    for (int i = 0; i < n_rows; i++) {
        const quarter out = lane_sums(sum[i]);
        for (int j = 0; j < n_units; j++) {
            y[(size_t)i * stride + (size_t)j] += out[j];
        }
    }
}

/* Pointers to n rows from `first` on; rows after the matrix's end repeat its last one. */
static void few_rows(const float *matrix, int n_rows, size_t stride, int first, int n,
                     const float *rows[])
{
    for (int i = 0; i < n; i++) {
        rows[i] = matrix + (size_t)dt_min(first + i, n_rows - 1) * stride;
    }
}

void DT_KERNEL(dense_few)(int n, int n_in, int n_out, const float *x, const float *weight,
                          const float *bias, float *y)
{
    const size_t stride = (size_t)n_in;
    for (int i = 0; i < n; i++) {
        memcpy(y + (size_t)i * (size_t)n_out, bias, (size_t)n_out * sizeof(float));
    }
    for (int at = 0; at < n_in; at += FEW_DEPTH) {
        const int depth = dt_min(FEW_DEPTH, n_in - at);
        for (int unit = 0; unit < n_out; unit += UNITS) {
            const float *xs[ROWS], *ws[UNITS];
            few_rows(weight + at, n_out, stride, unit, UNITS, ws);
            for (int i = 0; i < n; i += ROWS) {
                const int n_rows = dt_min(ROWS, n - i), n_units = dt_min(UNITS, n_out - unit);
                float *to = y + (size_t)i * (size_t)n_out + unit;
                few_rows(x + at, n, stride, i, ROWS, xs);
                if (n_rows > ROWS / 3) {
                    few_tile(ROWS, depth, xs, ws, n_rows, n_units, to, (size_t)n_out);
                } else {
                    few_tile(ROWS / 3, depth, xs, ws, n_rows, n_units, to, (size_t)n_out);
                }
            }
        }
    }
}
