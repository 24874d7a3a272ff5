/* Dense layers backward: both gradients, for a few inputs at a time, so that the data that is read
 * again and again, their samples or their weights, stays in the first-level cache. */
#include "cpu/kernels/transpose.h"
#include "cpu/kernels/walk.h"

#define COLUMNS DT_DENSE_COLUMNS

/* Appends the nonzero elements of a row to a list, with their indices; NaN counts as nonzero.
 * Writes up to VL entries after the list's new end, which it returns. */
ALWAYS_INLINE struct dt_entry *append_nonzero(int n, const float *row, struct dt_entry *end)
{
    for (int first = 0; first < n; first += VL) {
        const vf v = load(row + first);
        uint64_t lanes = nonzero_lanes((vf)((vi)v & first_lanes(n - first)));
#if defined(__AVX512F__)
        const vf index = (vf)_mm512_maskz_compress_epi32((__mmask16)lanes,
                                                         (__m512i)(lane_numbers() + first)),
                 value = (vf)_mm512_maskz_compress_ps((__mmask16)lanes, (__m512)v);
        store((float *)end, interleave_low(index, value));
        store((float *)end + VL, interleave_high(index, value));
        end += __builtin_popcountll(lanes);
#else
        for (; lanes != 0; lanes &= lanes - 1) {
            const int i = first + __builtin_ctzll(lanes);
            *end++ = (struct dt_entry){i, row[i]};
        }
#endif
    }
    return end;
}

void DT_KERNEL(list_samples)(int n, int n_out, const float *dy, const struct dt_sparse *lists)
{
    struct dt_entry *end = lists->entry;
    uint32_t *begin = lists->begin;
    *begin = 0;
    for (int first = 0; first < n_out; first += DT_DENSE_DEPTH) {
        for (int i = 0; i < n; i++) {
            end = append_nonzero(dt_min(DT_DENSE_DEPTH, n_out - first),
                                 dy + (size_t)i * (size_t)n_out + first, end);
            *++begin = (uint32_t)(end - lists->entry);
        }
    }
}

void DT_KERNEL(list_units)(int n, int n_out, const float *dy, const struct dt_sparse *lists)
{
    float units[VL][DT_DENSE_DEPTH];
    struct dt_entry *end = lists->entry;
    uint32_t *begin = lists->begin;
    *begin = 0;
    for (int first = 0; first < n; first += DT_DENSE_DEPTH) {
        const int depth = dt_min(DT_DENSE_DEPTH, n - first);
        for (int unit = 0; unit < n_out; unit += VL) {
            transpose_matrix(depth, VL, dy + (size_t)first * (size_t)n_out + unit, (size_t)n_out,
                             units[0], DT_DENSE_DEPTH);
            for (int i = 0; i < dt_min(VL, n_out - unit); i++) {
                end = append_nonzero(depth, units[i], end);
                *++begin = (uint32_t)(end - lists->entry);
            }
        }
    }
}

#define WRITE_AHEAD 8 /* rows: a store whose line is in an outer cache delays later stores */

/* Prefetches COLUMNS floats for writing. */
ALWAYS_INLINE void ask_to_write(const float *to)
{
    UNROLL
    for (int j = 0; j < COLUMNS; j += 16) {
        __builtin_prefetch(to + j, 1);
    }
}

/* Packs columns of b, whose rows lie far apart in memory, often on the same cache sets. Loads a row
 * before it stores any of it, because a load may have to wait for a store to the same offset of
 * another page. */
static void pack_columns(int depth, const float *b, size_t b_step, float *packed)
{
    for (int k = 0; k < depth; k++, b += b_step, packed += COLUMNS) {
        vf row[COLUMNS / VL];
        ask_to_write(packed + (size_t)WRITE_AHEAD * COLUMNS);
        UNROLLED(v, COLUMNS / VL) {
            row[v] = load(b + v * VL); /* values after the last column are not used */
        }
        UNROLLED(v, COLUMNS / VL) {
            store(packed + v * VL, row[v]);
        }
    }
}

/* COLUMNS columns are this many vectors at a time; if they are few, every second entry has its own
 * sums. */
#define LIST_VECTORS (COLUMNS / VL < WALK_VECTORS ? COLUMNS / VL : WALK_VECTORS)
#define LIST_SETS (WALK_VECTORS / LIST_VECTORS)

/* A row of c, from the entries that multiply b's rows. */
ALWAYS_INLINE void list_row(const struct dt_entry *entry, const struct dt_entry *end,
                            const float *b, bool accumulate, bool past, float *c)
{
    vf sum[LIST_SETS][LIST_VECTORS] = {0};
    if (accumulate) {
        UNROLLED(v, LIST_VECTORS) {
            sum[0][v] = load(c + v * VL);
        }
    }
    for (; entry + LIST_SETS <= end; entry += LIST_SETS) {
        UNROLLED(s, LIST_SETS) {
            const float *from = b + (size_t)entry[s].index * COLUMNS, value = entry[s].value;
            UNROLLED(v, LIST_VECTORS) {
                sum[s][v] += value * load(from + v * VL);
            }
        }
    }
    if (LIST_SETS > 1 && entry < end) {
        const float *from = b + (size_t)entry->index * COLUMNS, value = entry->value;
        UNROLLED(v, LIST_VECTORS) {
            sum[0][v] += value * load(from + v * VL);
        }
    }
    UNROLLED(v, LIST_VECTORS) {
        store_by(past, c + v * VL, LIST_SETS > 1 ? sum[0][v] + sum[LIST_SETS - 1][v] : sum[0][v]);
    }
}

/* The rows that the next product reads first: of its b, and of its c. */
struct ahead {
    const float *b, *c;
    int n_b, n_c;
    size_t stride;
};

/* Prefetches the i-th of m shares of them. */
static void ask_ahead(const struct ahead *ahead, int i, int m)
{
    const int share_b = (ahead->n_b + m - 1) / m, share_c = (ahead->n_c + m - 1) / m;
    ask_for(ahead->b, ahead->stride, i * share_b, dt_min((i + 1) * share_b, ahead->n_b), COLUMNS);
    ask_for(ahead->c, ahead->stride, i * share_c, dt_min((i + 1) * share_c, ahead->n_c), COLUMNS);
}

static void list_rows(const struct ahead *ahead, int m, int n, const uint32_t *begin,
                      const struct dt_entry *entry, const float *packed, bool accumulate, bool past,
                      float *c, size_t c_stride)
{
    for (int i = 0; i < m; i++) {
        ask_ahead(ahead, i, m);
        if (!past && i + WRITE_AHEAD < m) {
            ask_to_write(c + (size_t)(i + WRITE_AHEAD) * c_stride);
        }
        const struct dt_entry *from = entry + begin[i], *to = entry + begin[i + 1];
        float row[COLUMNS], *at = c + (size_t)i * c_stride, *out = n == COLUMNS ? at : row;
        if (out == row && accumulate) {
            memcpy(row, at, (size_t)n * sizeof(float));
        }
        for (int j = 0; j < COLUMNS; j += LIST_VECTORS * VL) {
            list_row(from, to, packed + j, accumulate, past, out + j);
        }
        if (out == row) {
            memcpy(at, row, (size_t)n * sizeof(float));
        }
    }
}

/* c (m, n) = or += a (m, k) b (k, n), a tile at a time. */
static void tile_rows(const struct ahead *ahead, int m, int n, int depth, const float *a,
                      size_t a_step, size_t a_stride, const float *packed, bool accumulate,
                      float *c, size_t c_stride)
{
    struct tile tile = {.a_step = a_step,
                        .a_stride = a_stride,
                        .n_rows = 1,
                        .n_k = depth,
                        .b_step = COLUMNS,
                        .c_stride = c_stride,
                        .start = accumulate ? TILE_ACCUMULATE : TILE_ZERO};
    for (int j = 0; j < n; j += TILE_VECTORS * VL) {
        tile.n_columns = dt_min(TILE_VECTORS * VL, n - j);
        tile.b = packed + j;
        for (int i = 0; i < tile_count(m); i++) {
            const int begin = tile_begin(m, i);
            if (j == 0) {
                ask_ahead(ahead, i, tile_count(m));
            }
            tile.a = a + (size_t)begin * a_stride;
            tile.c = c + (size_t)begin * c_stride + j;
            tile_run(tile_begin(m, i + 1) - begin, &tile);
        }
    }
}

/* Columns of c = or += sum over k of a[k * a_step + m * a_stride] * b[k * b_step + n] */
static void product_columns(const struct ahead *ahead, int m, int n, int k, const float *a,
                            size_t a_step, size_t a_stride, const struct dt_sparse *lists,
                            const float *b, bool accumulate, bool past, float *c, size_t stride,
                            float *packed)
{
    for (int k0 = 0; k0 < k; k0 += DT_DENSE_DEPTH) {
        const int depth = dt_min(DT_DENSE_DEPTH, k - k0);
        pack_columns(depth, b + (size_t)k0 * stride, stride, packed);
        if (lists != NULL) {
            const size_t lists_before = (size_t)(k0 / DT_DENSE_DEPTH) * (size_t)m;
            list_rows(ahead, m, n, lists->begin + lists_before, lists->entry, packed,
                      accumulate || k0 > 0, past, c, stride);
        } else {
            tile_rows(ahead, m, n, depth, a + (size_t)k0 * a_step, a_step, a_stride, packed,
                      accumulate || k0 > 0, c, stride);
        }
    }
}

/* Counts the nonzero elements of the columns. */
static int count_columns(const struct dt_dense *d, int at, int n)
{
    int count = 0;
    for (int i = 0; i < d->n; i++) {
        const float *x = d->x + (size_t)i * (size_t)d->n_in + at;
        for (int j = 0; j < n; j += VL) {
            const vi inside = first_lanes(n - j < VL ? n - j : VL);
            count += __builtin_popcountll(nonzero_lanes((vf)(inside & (vi)load(x + j))));
        }
    }
    return count;
}

/* True if skipping the zeros of x makes dw cheaper than skipping those of dy, or than a dense
 * product: in cycles, as measured with two multiply-adds of 16 floats a cycle, except that an entry
 * of dy takes half a cycle less there. With one, the algorithms by x and by dy take 1.5 and 2 times
 * as long. That by x transposes matrices, and every row of every panel has a start and an end. */
static bool prefers_inputs(const struct dt_dense *d, int at, int n)
{
    const int64_t n_samples = d->n, n_units = d->n_out, n_vectors = COLUMNS / VL;
    const int64_t n_pieces = (n_units + WALK_COLUMNS - 1) / WALK_COLUMNS,
                  n_panels = (n_samples + WALK_DEPTH - 1) / WALK_DEPTH;
    const int64_t n_blocks = (n_samples + DT_DENSE_DEPTH - 1) / DT_DENSE_DEPTH,
                  dense = n_samples * n_units * n_vectors / 2;
    const int64_t by_dy =
        d->by_unit != NULL ? d->by_unit->begin[n_blocks * n_units] * (n_vectors + 2) / 2 : dense;
    const int64_t around =
        COLUMNS * ((n_samples * n_pieces + n_units) * 2 / 5 + n_pieces * n_panels * 40);
    return around < by_dy && 6 * n_pieces * count_columns(d, at, n) + around < by_dy;
}

/* rows (n_units, n columns) of dw = or += transposed */
static void store_rows(const struct ahead *ahead, int n_units, int n, const float *transposed,
                       bool accumulate, float *dw, size_t stride)
{
    for (int unit = 0; unit < n_units; unit++, transposed += COLUMNS, dw += stride) {
        ask_ahead(ahead, unit, n_units);
        for (int j = 0; j < n; j++) {
            dw[j] = accumulate ? dw[j] + transposed[j] : transposed[j];
        }
    }
}

/* Columns of dw skipping x's zeros: computes all units of an input side by side, then
 * transposes. */
static void weights_by_input(const struct ahead *ahead, const struct dt_dense *d, int at, int n,
                             float *scratch)
{
    const size_t n_in = (size_t)d->n_in, n_out = (size_t)d->n_out;
    float *x = scratch, *sums = x + COLUMNS * WALK_DEPTH,
          *transposed = sums + COLUMNS * WALK_COLUMNS;
    struct product p = {.a_stride = WALK_DEPTH, .b_step = n_out, .c_stride = WALK_COLUMNS};
    for (int j = 0; j < d->n_out; j += WALK_COLUMNS) {
        p.n_columns = dt_min(WALK_COLUMNS, d->n_out - j);
        memset(sums, 0, COLUMNS * WALK_COLUMNS * sizeof(float));
        for (int k = 0; k < d->n; k += WALK_DEPTH) {
            p.depth = dt_min(WALK_DEPTH, d->n - k);
            p.b = d->dy + (size_t)k * n_out + j;
            transpose_matrix(p.depth, n, d->x + (size_t)k * n_in + at, n_in, x, WALK_DEPTH);
            for (int tile = 0; tile < tile_count(n); tile++) {
                const int begin = tile_begin(n, tile);
                p.a = x + begin * WALK_DEPTH;
                p.c = sums + begin * WALK_COLUMNS;
                product_rows(tile_begin(n, tile + 1) - begin, &p);
            }
        }
        transpose_matrix(n, p.n_columns, sums, WALK_COLUMNS, transposed, COLUMNS);
        store_rows(ahead, p.n_columns, n, transposed, d->accumulate, d->dw + (size_t)j * n_in + at,
                   n_in);
    }
}

void DT_KERNEL(dense_backward)(const struct dt_dense *d, int at, float *scratch)
{
    const int n = dt_min(COLUMNS, d->n_in - at);
    const size_t n_in = (size_t)d->n_in, n_out = (size_t)d->n_out;
    const bool past =
        d->past && !d->accumulate && n == COLUMNS && d->n <= DT_DENSE_DEPTH; /* stored once */
    struct ahead next = {.stride = n_in}, data = next;
    if (at + COLUMNS < d->n_in) {
        next = (struct ahead){d->x + at + COLUMNS, d->dw + at + COLUMNS, d->n,
                              past && d->by_unit != NULL ? 0 : d->n_out, n_in};
    }
    if (d->dx != NULL) {
        data = (struct ahead){d->weight + at, d->dx + at, d->n_out, d->n, n_in};
    }
    const struct ahead *after_weights = d->dx != NULL ? &data : &next;
    if (prefers_inputs(d, at, n)) {
        weights_by_input(after_weights, d, at, n, scratch);
    } else {
        product_columns(after_weights, d->n_out, n, d->n, d->dy, n_out, 1, d->by_unit, d->x + at,
                        d->accumulate, past, d->dw + at, n_in, scratch);
    }
    store_past_end();
    if (d->dx != NULL) {
        product_columns(&next, d->n, n, d->n_out, d->dy, 1, n_out, d->by_sample, d->weight + at,
                        false, false, d->dx + at, n_in, scratch);
    }
}
