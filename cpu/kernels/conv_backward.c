/* Convolution, backward: to the data and to the weights, visiting only the nonzero output
 * gradients. A gradient g of filter k adds g * weight[k] to a window of dx, and g * that window of
 * x to dw[k]. Both work patch by patch: up to 3 x 3 taps (3 with 16 registers) of a few vectors of
 * channels, which fit the registers. For dx the patch slides along a row of positions, and adds at
 * each one the weights of the filters that survive there; on the way it appends them to lists by
 * filter. For dw the patch stays with a filter while it walks that filter's list. Lists are cut
 * into bands of rows, so that the rows of x that a band reads stay in the first cache. Where a
 * window's row fills fewer vectors than its columns by themselves, it counts as one column
 * (kernels.h). Where few gradients are zero, dense ones are cheaper: conv_algorithms.c. */
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vector.h"

#define PATCH 3 /* columns */
#if defined(__AVX512F__)
#define PATCH_ROWS 3
#define PATCH_SUMS 18 /* of 32 registers */
#else
#define PATCH_ROWS 1
#define PATCH_SUMS 12 /* of 16 registers */
#endif
#if VL == 8
#define ODD_VECTORS 3
#else
#define ODD_VECTORS 2
#endif
#define PATCH_VECTORS 4
/* Rows of a patch of joined columns (kernels.h), which is one column wide. */
#if defined(__AVX512F__)
#define JOINED_ROWS 5
#else
#define JOINED_ROWS 3
#endif

/* For dx, a patch's weights of all filters are read in any order: they should stay in the first
 * cache. */
#define DATA_BYTES ((size_t)32 << 10)

/* Taps [r, r + n_r) x [s, s + n_s) and channel vectors [v, v + n_v); its weights for one filter are
 * n_r * n_s * n_v vectors. */
struct patch {
    size_t most_bytes;           /* of the weights, if one vector of channels allows it */
    int row_piece, column_piece; /* of the kernel */
    int r, s, v, n_r, n_s, n_v;
    size_t at; /* in packed weights */
};

static int n_vectors(const struct dt_conv *conv)
{
    return dt_cut_count(dt_conv_lanes(conv, VL), VL);
}

static int most_rows(const struct dt_conv *conv)
{
    return dt_conv_joins(conv, VL) ? JOINED_ROWS : PATCH_ROWS;
}

static size_t patch_elems(const struct patch *p)
{
    return (size_t)(p->n_r * p->n_s * p->n_v) * VL;
}

/* Vectors of a patch: 4, 2 or 1; or of joined columns, up to 4. */
static int patch_vectors(const struct dt_conv *conv, size_t most_bytes, int n_taps, int n_left)
{
    const bool joins = dt_conv_joins(conv, VL);
    const size_t fit = most_bytes / ((size_t)conv->k * (size_t)n_taps * sizeof(vf));
    const int few = joins ? PATCH_VECTORS : dt_min(PATCH_VECTORS, PATCH_SUMS / n_taps),
              most = dt_max(1, (int)dt_min_size(fit, (size_t)dt_min(few, n_left)));
    return joins || most <= ODD_VECTORS ? most : most / 2 * 2;
}

static struct patch patch_at(const struct dt_conv *conv, size_t most_bytes, int row_piece,
                             int column_piece, int v, size_t at)
{
    const int n = conv->kernel, n_columns = dt_conv_columns(conv, VL);
    struct patch p = {.most_bytes = most_bytes,
                      .row_piece = row_piece,
                      .column_piece = column_piece,
                      .v = v,
                      .at = at};
    p.r = dt_cut_begin(n, most_rows(conv), row_piece);
    p.s = dt_cut_begin(n_columns, PATCH, column_piece);
    p.n_r = dt_cut_begin(n, most_rows(conv), row_piece + 1) - p.r;
    p.n_s = dt_cut_begin(n_columns, PATCH, column_piece + 1) - p.s;
    p.n_v = patch_vectors(conv, most_bytes, p.n_r * p.n_s, n_vectors(conv) - v);
    return p;
}

static struct patch first_patch(const struct dt_conv *conv, size_t most_bytes)
{
    return patch_at(conv, most_bytes, 0, 0, 0, 0);
}

/* Advances p to the next patch in packed weights; false after the last one. */
static bool next_patch(const struct dt_conv *conv, struct patch *p)
{
    int row_piece = p->row_piece, column_piece = p->column_piece, v = p->v + p->n_v;
    if (v == n_vectors(conv)) {
        v = 0;
        column_piece++;
    }
    if (column_piece == dt_cut_count(dt_conv_columns(conv, VL), PATCH)) {
        column_piece = 0;
        row_piece++;
    }
    if (row_piece == dt_cut_count(conv->kernel, most_rows(conv))) {
        return false;
    }
    *p = patch_at(conv, p->most_bytes, row_piece, column_piece, v,
                  p->at + (size_t)conv->k * patch_elems(p));
    return true;
}

/* Invokes `call`, a macro of a patch's rows, columns and vectors, with these as constants. */
#define CASE_OF_PATCH(R, S, V, call) \
    case (R)*100 + (S)*10 + (V):     \
        call(R, S, V);               \
        break;
#define CASES_OF_TAPS(R, S, call) \
    CASE_OF_PATCH(R, S, 1, call)  \
    CASE_OF_PATCH(R, S, 2, call)
#if ODD_VECTORS == 3
#define CASES_OF_ODD(call)       \
    CASE_OF_PATCH(1, 2, 3, call) \
    CASE_OF_PATCH(1, 3, 3, call)
#else
#define CASES_OF_ODD(call)
#endif
#define CASES_OF_COLUMN(R, call) \
    CASES_OF_TAPS(R, 1, call)    \
    CASE_OF_PATCH(R, 1, 3, call) \
    CASE_OF_PATCH(R, 1, 4, call)
#if PATCH_ROWS > 1
#define CASES_OF_ROWS(call)   \
    CASES_OF_COLUMN(4, call)  \
    CASES_OF_COLUMN(5, call)  \
    CASES_OF_TAPS(2, 2, call) \
    CASES_OF_TAPS(2, 3, call) \
    CASES_OF_TAPS(3, 2, call) \
    CASES_OF_TAPS(3, 3, call) \
    CASE_OF_PATCH(2, 2, 4, call)
#else
#define CASES_OF_ROWS(call)
#endif
#define WITH_CONSTANT_PATCH(p, call)                     \
    switch ((p)->n_r * 100 + (p)->n_s * 10 + (p)->n_v) { \
        CASES_OF_COLUMN(1, call)                         \
        CASES_OF_COLUMN(2, call)                         \
        CASES_OF_COLUMN(3, call)                         \
        CASES_OF_TAPS(1, 2, call)                        \
        CASES_OF_TAPS(1, 3, call)                        \
        CASE_OF_PATCH(1, 2, 4, call)                     \
        CASE_OF_PATCH(1, 3, 4, call)                     \
        CASES_OF_ODD(call)                               \
        CASES_OF_ROWS(call)                              \
    }

static size_t filter_elems(const struct dt_conv *conv)
{
    return (size_t)conv->kernel * (size_t)conv->kernel * (size_t)conv->c;
}

/* Where the weight of a column's lane is among a filter's. */
static size_t weight_at(const struct dt_conv *conv, bool joined, int r, int s, int lane)
{
    const size_t n = (size_t)conv->kernel;
    const int column = joined ? lane / conv->c : s, c = joined ? lane % conv->c : lane;
    return ((size_t)c * n + (size_t)r) * n + (size_t)column;
}

static void pack_patch(const struct dt_conv *conv, const struct patch *p, const float *weight,
                       float *to)
{
    const bool joined = dt_conv_joins(conv, VL);
    const int n_lanes = dt_conv_lanes(conv, VL);
    for (int k = 0; k < conv->k; k++, weight += filter_elems(conv)) {
        for (int r = p->r; r < p->r + p->n_r; r++) {
            for (int s = p->s; s < p->s + p->n_s; s++) {
                for (int lane = p->v * VL; lane < (p->v + p->n_v) * VL; lane++) {
                    *to++ = lane < n_lanes ? weight[weight_at(conv, joined, r, s, lane)] : 0.0f;
                }
            }
        }
    }
}

void DT_KERNEL(conv_pack_backward)(const struct dt_conv *conv, const float *weight, float *packed)
{
    struct patch p = first_patch(conv, DATA_BYTES);
    do {
        pack_patch(conv, &p, weight, packed + p.at);
    } while (next_patch(conv, &p));
}

static void unpack_patch(const struct dt_conv *conv, const struct patch *p, const float *dw,
                         float *grads)
{
    const bool joined = dt_conv_joins(conv, VL);
    const int n_lanes = dt_conv_lanes(conv, VL);
    for (int k = 0; k < conv->k; k++, grads += filter_elems(conv)) {
        for (int r = p->r; r < p->r + p->n_r; r++) {
            for (int s = p->s; s < p->s + p->n_s; s++, dw += p->n_v * VL) {
                for (int i = 0; i < dt_min(p->n_v * VL, n_lanes - p->v * VL); i++) {
                    grads[weight_at(conv, joined, r, s, p->v * VL + i)] += dw[i];
                }
            }
        }
    }
}

void DT_KERNEL(conv_unpack_gradient)(const struct dt_conv *conv, const float *dw, float *grads)
{
    struct patch p = first_patch(conv, SIZE_MAX);
    do {
        unpack_patch(conv, &p, dw + p.at, grads);
    } while (next_patch(conv, &p));
}

/* ---- to the data */

/* One row of output positions. */
struct data_row {
    const uint64_t *bitmask;
    const float *value;       /* of the row's first column */
    const uint32_t *value_at; /* (out_w) */
    float scale;
    int n_words, out_w;
    const float *weight;            /* the patch's, of filter 0 */
    float *dx;                      /* the patch's first element at column 0 */
    size_t dx_row, dx_tap, dx_step; /* floats to the next row, column, window */
    int n_last;  /* lanes of the patch's last vector that are its own: the rest belong to others */
    bool slides; /* windows one column apart: shared columns stay in registers */
    bool begins; /* the first row to reach the last one of its windows, which holds no sums yet */
    struct dt_entry **list;  /* (k) end of each filter's list; NULL: the lists exist already */
    int32_t x_begin, x_step; /* the first window's place in x, and the distance to the next */
};

/* Repeats a statement for the first R rows, S columns and V vectors of a patch. */
#define EACH_SUM(R, S, V, statement) \
    UNROLLED(r, R) {                 \
        UNROLLED(s, S) {             \
            UNROLLED(v, V) {         \
                statement;           \
            }                        \
        }                            \
    }

/* Columns [begin, S) of the patch's windows. */
ALWAYS_INLINE void load_columns(const int R, const int S, const int V, int begin,
                                const struct data_row *d, const float *dx,
                                vf sum[JOINED_ROWS][PATCH][PATCH_VECTORS])
{
    UNROLLED(r, R) {
        UNROLL
        for (int s = begin; s < S; s++) {
            UNROLLED(v, V) {
                sum[r][s][v] =
                    r == R - 1 && d->begins
                        ? (vf){0}
                        : load(dx + (size_t)r * d->dx_row + (size_t)s * d->dx_tap + v * VL);
            }
        }
    }
}

ALWAYS_INLINE void store_columns(const int R, const int S, const int V, const struct data_row *d,
                                 float *dx, vf sum[JOINED_ROWS][PATCH][PATCH_VECTORS]){
    EACH_SUM(R, S, V,
             store(dx + (size_t)r * d->dx_row + (size_t)s * d->dx_tap + v * VL, sum[r][s][v]))}

/* One column, of whose last vector not all lanes are the patch's. */
ALWAYS_INLINE void store_own(const int R, const int V, const struct data_row *d, float *dx,
                             vf sum[JOINED_ROWS][PATCH][PATCH_VECTORS])
{
    store_columns(R, 1, V - 1, d, dx, sum);
    UNROLLED(r, R) {
        store_first(dx + (size_t)r * d->dx_row + (V - 1) * VL, sum[r][0][V - 1], d->n_last);
    }
}

/* Adds a position's nonzeros to the patch's window there. */
ALWAYS_INLINE
void add_nonzeros(const int R, const int S, const int V, const bool listing,
                  const struct data_row *d, int q, vf sum[JOINED_ROWS][PATCH][PATCH_VECTORS])
{
    const uint64_t *bitmask = d->bitmask + (size_t)q * (size_t)d->n_words,
                   *end = bitmask + d->n_words;
    const float *value = d->value + d->value_at[q], *weights = d->weight;
    const int32_t x_at = d->x_begin + q * d->x_step;
    struct dt_entry **list = d->list;
    for (; bitmask < end;
         bitmask++, value += 64, weights += 64 * R * S * V * VL, list += listing ? 64 : 0) {
        for (uint64_t bits = *bitmask; bits != 0; bits &= bits - 1) {
            const size_t k = (size_t)__builtin_ctzll(bits);
            const float g = value[k] * d->scale, *weight = weights + k * (size_t)(R * S * V * VL);
            KEEP_ADDRESS(weight);
            EACH_SUM(R, S, V, sum[r][s][v] += g * load(weight + ((r * S + s) * V + v) * VL))
            if (listing) {
                *list[k]++ = (struct dt_entry){x_at, g};
            }
        }
    }
}

ALWAYS_INLINE void slide_row(const int R, const int S, const int V, const bool listing,
                             const struct data_row *d)
{
    vf sum[JOINED_ROWS][PATCH][PATCH_VECTORS];
    float *dx = d->dx;
    load_columns(R, S - 1, V, 0, d, dx, sum);
    for (int q = 0; q < d->out_w; q++, dx += d->dx_tap) {
        load_columns(R, S, V, S - 1, d, dx, sum);
        add_nonzeros(R, S, V, listing, d, q, sum);
        store_columns(R, 1, V, d, dx, sum);
        EACH_SUM(R, S - 1, V, sum[r][s][v] = sum[r][s + 1][v])
    }
    store_columns(R, S - 1, V, d, dx, sum);
}

ALWAYS_INLINE void step_row(const int R, const int S, const int V, const bool listing,
                            const struct data_row *d)
{
    vf sum[JOINED_ROWS][PATCH][PATCH_VECTORS];
    float *dx = d->dx;
    for (int q = 0; q < d->out_w; q++, dx += d->dx_step) {
        load_columns(R, S, V, 0, d, dx, sum);
        add_nonzeros(R, S, V, listing, d, q, sum);
        if (d->n_last < VL) {
            store_own(R, V, d, dx, sum);
        } else {
            store_columns(R, S, V, d, dx, sum);
        }
    }
}

ALWAYS_INLINE void patch_row(const int R, const int S, const int V, const struct data_row *d)
{
    if (d->slides && d->list != NULL) {
        slide_row(R, S, V, true, d);
    } else if (d->slides) {
        slide_row(R, S, V, false, d);
    } else if (d->list != NULL) {
        step_row(R, S, V, true, d);
    } else {
        step_row(R, S, V, false, d);
    }
}

static void clear_lists(const struct dt_conv *conv, const struct dt_conv_lists *lists)
{
    for (size_t k = 0; k < (size_t)conv->k; k++) {
        lists->end[k] = lists->entry + k * lists->stride;
    }
}

/* Records the lists' ends when a row begins a band. */
static void begin_band(const struct dt_conv *conv, int row, const struct dt_conv_lists *lists)
{
    const size_t n_k = (size_t)conv->k;
    if (row % lists->band == 0) {
        memcpy(lists->begin + (size_t)(row / lists->band) * n_k, lists->end,
               n_k * sizeof lists->end[0]);
    }
}

/* True if a patch's windows tile whole rows of dx and slide down them, so that its last row has no
 * earlier sums. */
static bool begins_rows(const struct dt_conv *conv, const struct patch *p)
{
    return conv->stride == 1 && !dt_conv_joins(conv, VL) &&
           dt_cut_count(conv->kernel, PATCH) == 1 && p->row_piece == 0;
}

/* Zeroes the part of dx that is added to before anything is stored there. */
static void clear_data(const struct dt_conv *conv, const struct patch *first, float *dx)
{
    const size_t row = (size_t)conv->w * dt_conv_channels(conv, VL), n_rows = (size_t)conv->h;
    const size_t begin = begins_rows(conv, first) ? (size_t)(first->n_r - 1) : n_rows,
                 end = begins_rows(conv, first) ? begin + (size_t)conv->out_h : n_rows;
    memset(dx, 0, begin * row * sizeof(float));
    memset(dx + end * row, 0, (n_rows - end) * row * sizeof(float));
}

static void patch_data(const struct dt_conv *conv, const struct patch *p,
                       const struct dt_nonzeros *from, const float *weight,
                       const struct dt_conv_lists *lists, float *dx)
{
    const size_t n_c = dt_conv_channels(conv, VL), n_words = dt_nonzero_words(conv->k),
                 row = (size_t)conv->w * n_c;
    struct data_row d = {
        .value_at = from->column_at,
        .scale = from->scale,
        .n_words = (int)n_words,
        .out_w = conv->out_w,
        .weight = weight,
        .dx_row = row,
        .dx_tap = n_c,
        .dx_step = (size_t)conv->stride * n_c,
        .n_last = dt_conv_joins(conv, VL) ? dt_conv_lanes(conv, VL) - (p->v + p->n_v - 1) * VL : VL,
        .slides = conv->stride == 1 && !dt_conv_joins(conv, VL),
        .begins = begins_rows(conv, p),
        .list = lists != NULL ? lists->end : NULL,
        .x_step = conv->stride * conv->c};
    for (int i = 0; i < conv->out_h; i++) {
        d.bitmask = from->bitmask + (size_t)i * (size_t)conv->out_w * n_words;
        d.value = from->value + from->row_at[i];
        d.dx =
            dx + (size_t)(i * conv->stride + p->r) * row + (size_t)p->s * n_c + (size_t)(p->v * VL);
        d.x_begin = i * conv->stride * conv->w * conv->c;
        if (lists != NULL) {
            begin_band(conv, i, lists);
        }
#define PATCH_ROW(R, S, V) patch_row(R, S, V, &d)
        WITH_CONSTANT_PATCH(p, PATCH_ROW)
    }
}

void DT_KERNEL(conv_backward_data)(const struct dt_conv *conv, const struct dt_nonzeros *from,
                                   const float *packed, const struct dt_conv_lists *lists,
                                   float *dx)
{
    const struct dt_conv_lists *wanted = lists;
    struct patch p = first_patch(conv, DATA_BYTES);
    clear_data(conv, &p, dx);
    if (lists != NULL) {
        clear_lists(conv, lists);
    }
    do {
        patch_data(conv, &p, from, packed + p.at, wanted, dx);
        wanted = NULL;
    } while (next_patch(conv, &p));
}

/* ---- to the weights */

void DT_KERNEL(conv_list)(const struct dt_conv *conv, const struct dt_nonzeros *from,
                          const struct dt_conv_lists *lists)
{
    const uint64_t *bitmask = from->bitmask;
    clear_lists(conv, lists);
    for (int i = 0; i < conv->out_h; i++) {
        int32_t x_at = i * conv->stride * conv->w * conv->c;
        begin_band(conv, i, lists);
        for (int q = 0; q < conv->out_w; q++, x_at += conv->stride * conv->c) {
            const float *value = from->value + from->row_at[i] + from->column_at[q];
            for (int k0 = 0; k0 < conv->k; k0 += 64) {
                for (uint64_t bits = *bitmask++; bits != 0; bits &= bits - 1) {
                    const int k = k0 + __builtin_ctzll(bits);
                    *lists->end[k]++ = (struct dt_entry){x_at, value[k] * from->scale};
                }
            }
        }
    }
}

/* db: the filter's, for one of its patches. */
ALWAYS_INLINE void add_list(const int R, const int S, const int V, const struct dt_entry *entry,
                            const struct dt_entry *end, const float *x, size_t x_row, size_t x_tap,
                            float *dw, float *db)
{
    vf sum[JOINED_ROWS][PATCH][PATCH_VECTORS];
    float bias = 0;
    if (entry == end) {
        return;
    }
    EACH_SUM(R, S, V, sum[r][s][v] = load(dw + ((r * S + s) * V + v) * VL))
    for (; entry < end; entry++) {
        const float *from = x + entry->index, g = entry->value;
        bias += g;
        UNROLL
        for (int r = 0; r < R; r++, from += x_row) {
            KEEP_ADDRESS(from);
            UNROLLED(s, S) {
                UNROLLED(v, V) {
                    sum[r][s][v] += g * load(from + (size_t)s * x_tap + v * VL);
                }
            }
        }
    }
    EACH_SUM(R, S, V, store(dw + ((r * S + s) * V + v) * VL, sum[r][s][v]))
    *db += bias;
}

static void patch_weights(const struct dt_conv *conv, const struct patch *p,
                          const struct dt_conv_lists *lists, int band, const float *x, float *dw,
                          float *db)
{
    const size_t tap = (size_t)conv->c, row = (size_t)conv->w * tap, size = patch_elems(p);
    struct dt_entry **begin = lists->begin + (size_t)band * (size_t)conv->k,
                    **end = (band + 1) * lists->band < conv->out_h ? begin + conv->k : lists->end;
    float other = 0; /* a filter's list adds to the bias once, even with several patches */
    x += (size_t)p->r * row + (size_t)p->s * tap + (size_t)(p->v * VL);
    for (size_t k = 0; k < (size_t)conv->k; k++, dw += size) {
#define ADD_LIST(R, S, V) \
    add_list(R, S, V, begin[k], end[k], x, row, tap, dw, p->at == 0 ? &db[k] : &other)
        WITH_CONSTANT_PATCH(p, ADD_LIST)
    }
}

void DT_KERNEL(conv_backward_weights)(const struct dt_conv *conv, const struct dt_conv_lists *lists,
                                      const float *x, float *dw, float *db)
{
    for (int band = 0; band * lists->band < conv->out_h; band++) {
        struct patch p = first_patch(conv, SIZE_MAX);
        do {
            patch_weights(conv, &p, lists, band, x, dw + p.at, db);
        } while (next_patch(conv, &p));
    }
}
