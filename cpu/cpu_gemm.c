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
#define NT_DEPTH 768 /* NT_ROWS rows of a, so deep, stay in the first-level cache */

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

typedef float quarter __attribute__((vector_size(16), may_alias));

#if defined(__clang__)
#define PERMUTE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PERMUTE(a, b, ...) __builtin_shuffle(a, b, (vi){__VA_ARGS__})
#endif
/* The same choice in each 16-byte block of two vectors; VL + i is lane i of the second. */
#define BLOCK(at, i, j, k, l) at + i, at + j, at + k, at + l
#if VL == 16
#define BLOCKS(i, j, k, l) BLOCK(0, i, j, k, l), BLOCK(4, i, j, k, l), BLOCK(8, i, j, k, l), BLOCK(12, i, j, k, l)
#elif VL == 8
#define BLOCKS(i, j, k, l) BLOCK(0, i, j, k, l), BLOCK(4, i, j, k, l)
#else
#define BLOCKS(i, j, k, l) BLOCK(0, i, j, k, l)
#endif

/* The sums of four vectors' lanes. */
ALWAYS_INLINE quarter lane_sums(const vf v[4])
{
    const vf ab = PERMUTE(v[0], v[1], BLOCKS(0, VL, 1, VL + 1)) + PERMUTE(v[0], v[1], BLOCKS(2, VL + 2, 3, VL + 3));
    const vf cd = PERMUTE(v[2], v[3], BLOCKS(0, VL, 1, VL + 1)) + PERMUTE(v[2], v[3], BLOCKS(2, VL + 2, 3, VL + 3));
    const vf abcd = PERMUTE(ab, cd, BLOCKS(0, 1, VL, VL + 1)) + PERMUTE(ab, cd, BLOCKS(2, 3, VL + 2, VL + 3));
    quarter block[VL / 4], sum;
    memcpy(block, &abcd, sizeof block);
    sum = block[0];
    UNROLL
    for (int i = 1; i < VL / 4; i++) {
        sum += block[i];
    }
    return sum;
}

/* VL more terms of each sum, or those in `inside`. */
ALWAYS_INLINE void nt_step(const int N, const float *const a[NT_ROWS], const float *const b[NT_COLUMNS], int at, const bool whole,
                           vi inside, vf c[NT_ROWS][NT_COLUMNS])
{
    vf bv[NT_COLUMNS];
    UNROLL
    for (int j = 0; j < NT_COLUMNS; j++) {
        bv[j] = whole ? load(b[j] + at) : (vf)(inside & (vi)load(b[j] + at));
    }
    UNROLL
    for (int i = 0; i < N; i++) {
        const vf av = whole ? load(a[i] + at) : (vf)(inside & (vi)load(a[i] + at));
        UNROLL
        for (int j = 0; j < NT_COLUMNS; j++) {
            c[i][j] += av * bv[j];
        }
    }
}

/* Sums over k floats of the first N rows. */
ALWAYS_INLINE void nt_tile(const int N, int k, const float *const a[NT_ROWS], const float *const b[NT_COLUMNS],
                           quarter sums[NT_ROWS])
{
    const int n_whole = k / VL * VL;
    vf c[NT_ROWS][NT_COLUMNS] = {0};
    for (int at = 0; at < n_whole; at += VL) {
        nt_step(N, a, b, at, true, (vi){0}, c);
    }
    if (n_whole < k) { /* the same way, so that a sum's bits do not depend on its place in the tile */
        nt_step(N, a, b, n_whole, false, first_lanes(k - n_whole), c);
    }
    UNROLL
    for (int i = 0; i < N; i++) {
        sums[i] = lane_sums(c[i]);
    }
}

/* Where n rows from `first` on begin; rows beyond the matrix repeat its last one. */
static void nt_rows(const float *matrix, int n_rows, size_t stride, int first, int n, const float *rows[])
{
    for (int i = 0; i < n; i++) {
        rows[i] = matrix + (size_t)smaller(first + i, n_rows - 1) * stride;
    }
}

/* Asks for floats begin .. end of rows that are needed next: the processor's own guesses end at the page. */
static void nt_prefetch(int n_rows, const float *const rows[], int begin, int end)
{
    for (int at = begin; at < end; at += 16) {
        for (int i = 0; i < n_rows; i++) {
            __builtin_prefetch(rows[i] + at, 0, 2);
        }
    }
}

/* c[0 .. n_rows - 1][0 .. n_columns - 1] += sums */
static void nt_add(int n_rows, int n_columns, const quarter sums[NT_ROWS], float *c, size_t stride)
{
    for (int i = 0; i < n_rows; i++, c += stride) {
        quarter out = {0};
        if (n_columns == NT_COLUMNS) {
            memcpy(&out, c, sizeof out);
            out += sums[i];
            memcpy(c, &out, sizeof out);
            continue;
        }
        for (int j = 0; j < n_columns; j++) {
            c[j] += sums[i][j];
        }
    }
}

/* What is left to do of one block of depth. */
struct nt_block {
    int m, n, depth, next_depth;
    size_t stride; /* of a and b */
    const float *a, *b;
    float *c;
};

/* NT_ROWS rows of c. Along the way the next rows of a and `share` floats from `part` on of b's next block are asked for. */
static void nt_band(const struct nt_block *block, int i0, int part, int share)
{
    const int n_rows = smaller(NT_ROWS, block->m - i0),
              ahead = (int)dt_round_up((size_t)(block->depth * NT_COLUMNS / block->n) + 1, 16);
    const float *rows[NT_ROWS], *next_rows[NT_ROWS], *columns[NT_COLUMNS], *next_columns[NT_COLUMNS];
    nt_rows(block->a, block->m, block->stride, i0, NT_ROWS, rows);
    nt_rows(block->a, block->m, block->stride, i0 + NT_ROWS, NT_ROWS, next_rows);
    for (int j0 = 0, at = 0; j0 < block->n; j0 += NT_COLUMNS, at += ahead) {
        quarter sums[NT_ROWS];
        nt_rows(block->b, block->n, block->stride, j0, NT_COLUMNS, columns);
        nt_rows(block->b + block->depth, block->n, block->stride, j0, NT_COLUMNS, next_columns);
        nt_prefetch(NT_ROWS, next_rows, at, smaller(at + ahead, block->depth));
        nt_prefetch(NT_COLUMNS, next_columns, part, smaller(part + share, block->next_depth));
        if (n_rows > NT_ROWS / 3) {
            nt_tile(NT_ROWS, block->depth, rows, columns, sums);
        } else {
            nt_tile(NT_ROWS / 3, block->depth, rows, columns, sums);
        }
        nt_add(n_rows, smaller(NT_COLUMNS, block->n - j0), sums, block->c + (size_t)i0 * (size_t)block->n + j0, (size_t)block->n);
    }
}

void DT_KERNEL(gemm_nt)(int m, int n, int k, const float *a, const float *b, const float *bias, float *c)
{
    for (int i = 0; i < m; i++) {
        memcpy(c + (size_t)i * (size_t)n, bias, (size_t)n * sizeof(float));
    }
    for (int k0 = 0; k0 < k; k0 += NT_DEPTH) {
        const int depth = smaller(NT_DEPTH, k - k0);
        const struct nt_block block = {.m = m,
                                       .n = n,
                                       .depth = depth,
                                       .next_depth = smaller(NT_DEPTH, k - k0 - depth),
                                       .stride = (size_t)k,
                                       .a = a + k0,
                                       .b = b + k0,
                                       .c = c};
        const int share = (int)dt_round_up((size_t)(block.next_depth * NT_ROWS / m) + 1, 16);
        for (int i0 = 0, part = 0; i0 < m; i0 += NT_ROWS, part += share) {
            nt_band(&block, i0, part, share);
        }
    }
}

/* Columns of b, packed: its rows lie far apart in memory, often on the same cache sets. */
static void pack_columns(int n, int depth, const float *b, size_t b_step, float *packed, int width)
{
    for (int k = 0; k < depth; k++, b += b_step, packed += width) {
        for (int j = 0; j < n; j += VL) {
            store(packed + j, load(b + j)); /* what lies behind the last column is not used */
        }
    }
}

void DT_KERNEL(gemm_tn)(int m, int n, int k, const float *a, size_t a_step, size_t a_stride, const float *b, size_t b_step,
                        bool accumulate, float *c, size_t c_stride, float *packed)
{
    const int width = (n + VL - 1) / VL * VL;
    struct tile tile = {.a_step = a_step, .a_stride = a_stride, .n_rows = 1, .b_step = (size_t)width, .c_stride = c_stride};
    for (int k0 = 0; k0 < k; k0 += DT_GEMM_DEPTH) {
        tile.n_k = smaller(DT_GEMM_DEPTH, k - k0);
        tile.start = accumulate || k0 > 0 ? TILE_ACCUMULATE : TILE_ZERO;
        pack_columns(n, tile.n_k, b + (size_t)k0 * b_step, b_step, packed, width);
        for (int j0 = 0; j0 < n; j0 += TILE_VECTORS * VL) {
            tile.n_columns = smaller(TILE_VECTORS * VL, n - j0);
            tile.b = packed + j0;
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
