/* Matrix products of dense layers. */
#include "cpu/cpu_list.h"
#include "cpu/cpu_tile.h"

/* c = a b^T: both run along k, so sums are kept lane by lane and added up at the end; nothing is packed. */
#if defined(__AVX512F__)
#define NT_ROWS 6 /* 24 sums, 4 of b, 1 of a */
#define NT_COLUMNS 4
#else
#define NT_ROWS 3 /* 12 sums, 3 of a, 1 of b */
#define NT_COLUMNS 4
#endif
#define NT_DEPTH 1536 /* NT_ROWS rows of a, so deep, stay in the first-level cache */

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

ALWAYS_INLINE float lane_sum(vf v)
{
    float lane[VL];
    store(lane, v);
    for (int half = VL / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lane[i] += lane[i + half];
        }
    }
    return lane[0];
}

/* sums (NT_ROWS, NT_COLUMNS) over k floats. Rows beyond the matrix repeat its last one. */
static void nt_tile(int k, const float *const a[NT_ROWS], const float *const b[NT_COLUMNS], float sums[NT_ROWS][NT_COLUMNS])
{
    vf c[NT_ROWS][NT_COLUMNS] = {0};
    const float *a0 = a[0], *a1 = a[1], *a2 = a[2], *b0 = b[0], *b1 = b[1], *b2 = b[2], *b3 = b[3];
#if NT_ROWS == 6
    const float *a3 = a[3], *a4 = a[4], *a5 = a[5];
#endif
    const int n_whole = k / VL * VL;
#define NT_ROW(row)          \
    av = load(a##row + at);  \
    c[row][0] += av * bv[0]; \
    c[row][1] += av * bv[1]; \
    c[row][2] += av * bv[2]; \
    c[row][3] += av * bv[3];
#if NT_ROWS == 6
#define NT_ALL_ROWS NT_ROW(0) NT_ROW(1) NT_ROW(2) NT_ROW(3) NT_ROW(4) NT_ROW(5)
#else
#define NT_ALL_ROWS NT_ROW(0) NT_ROW(1) NT_ROW(2)
#endif
    vf av;
    for (int at = 0; at < n_whole; at += VL) {
        const vf bv[NT_COLUMNS] = {load(b0 + at), load(b1 + at), load(b2 + at), load(b3 + at)};
        NT_ALL_ROWS
    }
    UNROLL
    for (int i = 0; i < NT_ROWS; i++) {
        UNROLL
        for (int j = 0; j < NT_COLUMNS; j++) {
            sums[i][j] = lane_sum(c[i][j]);
            for (int at = n_whole; at < k; at++) {
                sums[i][j] += a[i][at] * b[j][at];
            }
        }
    }
}

void DT_KERNEL(gemm_nt)(int m, int n, int k, const float *a, const float *b, const float *bias, float *c)
{
    for (int k0 = 0; k0 < k; k0 += NT_DEPTH) {
        const int depth = smaller(NT_DEPTH, k - k0);
        for (int i0 = 0; i0 < m; i0 += NT_ROWS) {
            const float *rows[NT_ROWS];
            for (int i = 0; i < NT_ROWS; i++) {
                rows[i] = a + (size_t)smaller(i0 + i, m - 1) * (size_t)k + k0;
            }
            for (int j0 = 0; j0 < n; j0 += NT_COLUMNS) {
                const float *columns[NT_COLUMNS];
                float sums[NT_ROWS][NT_COLUMNS];
                for (int j = 0; j < NT_COLUMNS; j++) {
                    columns[j] = b + (size_t)smaller(j0 + j, n - 1) * (size_t)k + k0;
                }
                nt_tile(depth, rows, columns, sums);
                for (int i = 0; i < NT_ROWS && i0 + i < m; i++) {
                    for (int j = 0; j < NT_COLUMNS && j0 + j < n; j++) {
                        float *to = &c[(size_t)(i0 + i) * (size_t)n + (size_t)(j0 + j)];
                        *to = (k0 == 0 ? bias[j0 + j] : *to) + sums[i][j];
                    }
                }
            }
        }
    }
}

/* A tile's columns of b, packed: rows lie far apart in memory, often on the same cache sets. */
static void pack_columns(int n, int depth, const float *b, size_t b_step, float *packed, int width)
{
    for (int k = 0; k < depth; k++, b += b_step, packed += width) {
        for (int j = 0; j < width; j++) {
            packed[j] = j < n ? b[j] : 0.0f;
        }
    }
}

void DT_KERNEL(gemm_tn)(int m, int n, int k, const float *a, size_t a_step, size_t a_stride, const float *b, size_t b_step,
                        bool accumulate, float *c, size_t c_stride, float *packed)
{
    struct tile tile = {.a_step = a_step, .a_stride = a_stride, .n_rows = 1, .c_stride = c_stride};
    for (int j0 = 0; j0 < n; j0 += TILE_VECTORS * VL) {
        tile.n_columns = smaller(TILE_VECTORS * VL, n - j0);
        const int width = tile.n_columns > VL ? 2 * VL : VL;
        for (int k0 = 0; k0 < k; k0 += DT_GEMM_DEPTH) {
            tile.n_k = smaller(DT_GEMM_DEPTH, k - k0);
            tile.b = packed;
            tile.b_step = (size_t)width;
            tile.start = accumulate || k0 > 0 ? TILE_ACCUMULATE : TILE_ZERO;
            pack_columns(tile.n_columns, tile.n_k, b + (size_t)k0 * b_step + j0, b_step, packed, width);
            for (int i = 0; i < tile_count(m); i++) {
                const int begin = tile_begin(m, i);
                tile.a = a + (size_t)k0 * a_step + (size_t)begin * a_stride;
                tile.c = c + (size_t)begin * c_stride + j0;
                tile_run(tile_begin(m, i + 1) - begin, &tile);
            }
        }
    }
}

size_t DT_KERNEL(sparse_fill)(int m, int k, const float *a, size_t a_step, size_t a_stride, const struct dt_sparse *sparse)
{
    uint32_t n = 0, *begin = sparse->begin;
    for (int k0 = 0; k0 < k; k0 += DT_GEMM_DEPTH) {
        const int depth = smaller(DT_GEMM_DEPTH, k - k0);
        for (int i = 0; i < m; i++) {
            const float *from = a + (size_t)k0 * a_step + (size_t)i * a_stride;
            *begin++ = n;
            for (int row = 0; row < depth; row++) {
                const float value = from[(size_t)row * a_step];
                sparse->entry[n] = (struct dt_entry){row, value};
                n += value != 0; /* a NaN is not zero */
            }
        }
    }
    *begin = n;
    return n;
}

/* c's rows of one piece of columns, and one block of rows of b. */
ALWAYS_INLINE void sparse_piece(const int V, int m, const uint32_t *begin, const struct dt_entry *entry, const float *packed,
                                size_t width, bool accumulate, int n_last, float *c, size_t c_stride)
{
    for (int i = 0; i < m; i++, c += c_stride) {
        const struct dt_entry *from = entry + begin[i], *to = entry + begin[i + 1];
        if (n_last < VL) {
            float row[LIST_VECTORS * VL] = {0};
            const size_t n_bytes = (size_t)((V - 1) * VL + n_last) * sizeof(float);
            memcpy(row, c, n_bytes);
            list_add(V, from, to, packed, width, accumulate, first_lanes(VL), row);
            memcpy(c, row, n_bytes);
        } else {
            list_add(V, from, to, packed, width, accumulate, first_lanes(VL), c);
        }
    }
}

void DT_KERNEL(gemm_sparse)(int m, int n, int k, const struct dt_sparse *a, const float *b, size_t b_step, bool accumulate,
                            float *c, size_t c_stride, float *packed)
{
    const int n_vectors = (n + VL - 1) / VL;
    const uint32_t *begin = a->begin;
    for (int k0 = 0; k0 < k; k0 += DT_GEMM_DEPTH, begin += m) {
        pack_columns(n, smaller(DT_GEMM_DEPTH, k - k0), b + (size_t)k0 * b_step, b_step, packed, n_vectors * VL);
        for (int v = 0; v < n_vectors;) {
            const int piece = list_piece((size_t)(n_vectors - v));
            const int n_last = smaller(VL, n - (v + piece - 1) * VL);
#define SPARSE_PIECE(V)                                                                                                      \
    sparse_piece(V, m, begin, a->entry, packed + v * VL, (size_t)(n_vectors * VL), accumulate || k0 > 0, n_last, c + v * VL, \
                 c_stride)
            LIST_EACH_PIECE(piece, SPARSE_PIECE)
            v += piece;
        }
    }
}
