/* Convolutions of stride 1 whose ReLU and 2 x 2 max pool follow at once, as a first layer's often
 * do: the outputs, and the gradient of the weights. A cell is the four outputs of one pool window,
 * of which at most one per filter has a gradient. */
#include "cpu/kernels/blank.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/pool_window.h"
#include "cpu/kernels/transpose.h"

#if VL == 8
#define VECTORS 3 /* of filters at a time: 12 sums, 3 of weights and 1 pixel in 16 registers */
#else
#define VECTORS 2
#endif
#define MOST_FLOATS 32 /* of a row of a cell's window */

/* ---- outputs: neighbouring cells by up to three vectors of filters, in registers */

struct cells {
    const struct dt_conv *conv;
    const float *weight, *bias; /* of the block of filters */
    const float *third;         /* weights of the third vector, which is a block by itself */
    size_t width;               /* distance between the weights of neighbouring taps */
    int k, n_last;              /* its first filter; filters of its last vector */
    struct pool_target target;
    vf blank[VECTORS]; /* the sums of a window of zeros */
    vf bad[VECTORS];   /* not 0 in the lane of a filter with an output that is not finite */
};

/* The sums of n_cells neighbouring cells; x: their first pixel. */
ALWAYS_INLINE void cell_sums(const int n_cells, const int V, const struct cells *c, const float *x,
                             size_t row, vf out[2][4][VECTORS])
{
    const size_t n_c = (size_t)c->conv->c, width = c->width;
    const int n_rows = c->conv->kernel, n_taps = n_rows * c->conv->c;
    const float *weight = c->weight, *third = c->third;
    vf sum[2][4][VECTORS];
#define EACH_SUM(statement)        \
    UNROLLED(i, 2) {               \
        UNROLLED(j, 2 * n_cells) { \
            UNROLLED(v, V) {       \
                statement;         \
            }                      \
        }                          \
    }
    EACH_SUM(sum[i][j][v] = load(c->bias + v * VL))
    for (int r = 0; r < n_rows; r++, x += row) {
        const float *upper = x, *lower = x + row;
        for (const float *end = x + n_taps; upper < end; upper++, lower++, weight += width) {
            vf w[VECTORS];
            UNROLLED(v, V) {
                w[v] = load(v == 2 ? third : weight + v * VL);
            }
            EACH_SUM(sum[i][j][v] += (i == 0 ? upper : lower)[(size_t)j * n_c] * w[v])
            third += V == 3 ? VL : 0;
        }
    }
    EACH_SUM(out[i][j][v] = sum[i][j][v])
#undef EACH_SUM
}

/* Functions of their own, so that all sums stay in registers. */
#define SUMS_OF(n_cells, V)                                                       \
    static __attribute__((noinline)) void sums_##n_cells##_##V(                   \
        const struct cells *c, const float *x, size_t row, vf out[2][4][VECTORS]) \
    {                                                                             \
        cell_sums(n_cells, V, c, x, row, out);                                    \
    }
SUMS_OF(1, 1)
SUMS_OF(2, 1)
SUMS_OF(1, 2)
SUMS_OF(2, 2)
#if VECTORS > 2
SUMS_OF(1, 3)
#else
#define sums_1_3 sums_1_2 /* not reached */
#endif

/* Where the outputs of a cell begin, in floats of y and bytes of the bitmask. */
struct cell_at {
    size_t y, bits;
};

static inline struct cell_at cell_at(const struct cells *c, int p, int q)
{
    const struct dt_conv *conv = c->conv;
    return (struct cell_at){(size_t)(p * (conv->out_w / 2) + q) * (size_t)conv->k,
                            (size_t)(2 * p * conv->out_w + 2 * q) * c->target.bitmask_pixel};
}

/* Computes n_cells neighbouring cells, from q on of the pooled row p. */
ALWAYS_INLINE void put_cells(const int n_cells, const int V, struct cells *c, int p, int q,
                             const float *x, size_t row)
{
    vf sum[2][4][VECTORS];
    if (V == 3) {
        sums_1_3(c, x, row, sum);
    } else if (V == 2 && n_cells == 2) {
        sums_2_2(c, x, row, sum);
    } else if (V == 2) {
        sums_1_2(c, x, row, sum);
    } else if (n_cells == 2) {
        sums_2_1(c, x, row, sum);
    } else {
        sums_1_1(c, x, row, sum);
    }
    UNROLLED(i, n_cells) {
        const struct cell_at at = cell_at(c, p, q + i);
        UNROLLED(v, V) {
            const vf top[2] = {sum[0][2 * i][v], sum[0][2 * i + 1][v]},
                     bottom[2] = {sum[1][2 * i][v], sum[1][2 * i + 1][v]};
            const int n = v == V - 1 ? c->n_last : VL;
            c->bad[v] += ((top[0] + top[1]) + (bottom[0] + bottom[1])) * 0.0f;
            pool_window(n, &c->target, (size_t)(c->k + v * VL), top, bottom, at.y, at.bits);
        }
    }
}

/* Puts a cell whose window is blank: the first of its equal outputs wins. */
ALWAYS_INLINE void put_blank(const int V, const struct cells *c, int p, int q)
{
    const struct cell_at at = cell_at(c, p, q);
    UNROLLED(v, V) {
        put_window(v == V - 1 ? c->n_last : VL, &c->target, (size_t)(c->k + v * VL), c->blank[v], 0,
                   0, 0, at.y, at.bits);
    }
}

/* Cells q .. end - 1 of a row; `nonzero` marks the nonzero floats from the first on. */
ALWAYS_INLINE void cell_row(const int V, struct cells *c, int p, int q, int end, uint64_t nonzero,
                            const float *x)
{
    const struct dt_conv *conv = c->conv;
    const size_t row = (size_t)conv->w * (size_t)conv->c;
    const int step = 2 * conv->c, width = (conv->kernel + 1) * conv->c;
    const uint64_t window = ~(uint64_t)0 >> (TESTED_FLOATS - width);
    for (int n; q < end; q += n, x += n * step, nonzero >>= n * step) {
        n = (V == 1 || VL == 16) && q + 1 < end ? 2 : 1;
        if ((nonzero & window) == 0) {
            n = 1;
            put_blank(V, c, p, q);
        } else if (n == 2) {
            put_cells(2, V, c, p, q, x, row);
        } else {
            put_cells(1, V, c, p, q, x, row);
        }
    }
}

ALWAYS_INLINE void cell_rows(const int V, struct cells *c, const float *x)
{
    static const float zeros[MOST_FLOATS];
    const struct dt_conv *conv = c->conv;
    const int n_seen = windows_per_test((conv->kernel + 1) * conv->c, 2 * conv->c);
    const size_t row = (size_t)conv->w * (size_t)conv->c;
    vf sum[2][4][VECTORS];
    cell_sums(1, V, c, zeros, 0, sum);
    UNROLLED(v, V) {
        c->blank[v] = sum[0][0][v];
        c->bad[v] = sum[0][0][v] * 0.0f;
    }
    for (int p = 0; p < conv->out_h / 2; p++) {
        for (int q = 0; q < conv->out_w / 2; q += n_seen) {
            const int end = dt_min(q + n_seen, conv->out_w / 2);
            const float *first = x + (size_t)(2 * p) * row + (size_t)(2 * q * conv->c);
            const uint64_t nonzero = nonzero_floats(
                conv->kernel + 1, first, row, ((end - q - 1) * 2 + conv->kernel + 1) * conv->c);
            cell_row(V, c, p, q, end, nonzero, first);
        }
    }
}

bool DT_KERNEL(conv_forward_pooled)(const struct dt_conv *conv, const float *x, const float *packed,
                                    const struct dt_conv_outputs *out)
{
    const size_t n_taps = (size_t)(conv->kernel * conv->kernel * conv->c);
    bool finite = true;
    for (int k0 = 0, n; k0 < conv->k; k0 += n, packed += (size_t)dt_min(n, 2 * VL) * n_taps) {
        n = conv->k - k0 <= VECTORS * VL ? conv->k - k0 : 2 * VL;
        const int V = dt_cut_count(n, VL), width = dt_min(V, 2) * VL;
        struct cells cells = {.conv = conv,
                              .weight = packed,
                              .third = packed + (size_t)width * n_taps,
                              .bias = out->bias + k0,
                              .width = (size_t)width,
                              .k = k0,
                              .n_last = n - (V - 1) * VL,
                              .target = pool_target(out, conv->k, conv->out_w, 0, 0)};
        if (V == 1) {
            cell_rows(1, &cells, x);
        } else if (V == 2 || VECTORS == 2) {
            cell_rows(2, &cells, x);
        } else {
            cell_rows(VECTORS, &cells, x);
        }
        uint64_t bad = 0;
        UNROLLED(v, VECTORS) {
            bad |= nonzero_lanes(cells.bad[v]) << v * VL;
        }
        finite = finite && bad << (64 - n) == 0; /* of other lanes' filters there are none */
    }
    return finite;
}

/* ---- the gradient of the weights: each tap adds, for each cell, the gradients of the filters
 * times the pixel that each of them chose. The four pixels of a tap are side by side in `quads`, so
 * one permutation chooses for a vector of filters. */

#define TAPS 5
#define PAIR 2 /* vectors of filters */

/* Lane i of four floats for each lane of `place`. */
ALWAYS_INLINE vf pick(const float quad[4], vi place)
{
#if defined(__AVX512F__)
    return (vf)_mm512_permutevar_ps(_mm512_broadcast_f32x4(_mm_loadu_ps(quad)), (__m512i)place);
#elif defined(__AVX__)
    return (vf)_mm256_permutevar_ps(_mm256_broadcast_ps((const __m128 *)quad), (__m256i)place);
#else
    vf chosen = {0};
    UNROLLED(i, 4) {
        chosen = blend(place == i, (vf){0} + quad[i], chosen);
    }
    return chosen;
#endif
}

/* The cells whose windows hold a nonzero pixel. */
struct gradients {
    int n;
    size_t n_filters;   /* whole vectors */
    const float **quad; /* (n) a cell's first */
    float *value;       /* (n, n_filters) */
    int32_t *place;     /* (n, n_filters) 0 to 3 */
    float *quads;       /* (h - 1, w * c, 4) */
};

/* Divides the scratch. */
static struct gradients gradients_in(const struct dt_conv *conv, float *scratch)
{
    const size_t n_cells = (size_t)(conv->out_h / 2) * (size_t)(conv->out_w / 2),
                 n_filters = dt_conv_filters(conv, VL);
    struct gradients g = {.n_filters = n_filters, .quad = (const float **)(void *)scratch};
    g.value = scratch + dt_round_up(n_cells * sizeof *g.quad / sizeof(float), VL);
    g.place = (int32_t *)(void *)(g.value + n_cells * n_filters);
    g.quads = g.value + 2 * n_cells * n_filters;
    return g;
}

static void find_quads(const struct dt_conv *conv, const float *x, float *quads)
{
    const size_t n_c = (size_t)conv->c, row = (size_t)conv->w * n_c;
    for (int h = 0; h + 1 < conv->h; h++, x += row, quads += 4 * row) {
        for (size_t e = 0; e < row; e += VL) {
            vf pixels[4] = {load(x + e), load(x + e + n_c), load(x + row + e),
                            load(x + row + e + n_c)};
            transpose_four_rows(pixels, quads + 4 * e, 4);
        }
    }
}

/* Bits of the filters from k on at the four positions of a cell. */
ALWAYS_INLINE vm lanes_at(const uint64_t *bitmask, size_t k)
{
    uint32_t bits; /* straight to all lanes of a register */
    memcpy(&bits, (const uint8_t *)bitmask + k / 8, sizeof bits);
    return lanes_of_bits(VL == 4 ? bits >> (k % 8) : bits); /* by 0 or, with 4 lanes, by 4 */
}

/* Adds the gradients of a cell to db, and appends them. */
ALWAYS_INLINE void append_cell(const struct dt_nonzeros *from, const uint64_t *bitmask,
                               size_t to_row, size_t n_words, const float *value,
                               struct gradients *g, float *db)
{
    float *values = g->value + (size_t)g->n * g->n_filters;
    int32_t *places = g->place + (size_t)g->n * g->n_filters;
    for (size_t k = 0; k < g->n_filters; k += VL) {
        const vm right = lanes_at(bitmask + n_words, k), low = lanes_at(bitmask + to_row, k),
                 both = lanes_at(bitmask + to_row + n_words, k),
                 any = lanes_at(bitmask, k) | right | low | both;
        const vf v = only(any, load(value + k) * from->scale);
        const vi place =
            ((vi)only(right | both, (vf)((vi){0} + 1))) | ((vi)only(low | both, (vf)((vi){0} + 2)));
        store(db + k, load(db + k) + v);
        store(values + k, v);
        store((float *)(void *)(places + k), (vf)place);
    }
}

static void find_gradients(const struct dt_conv *conv, const struct dt_nonzeros *from,
                           const float *x, struct gradients *g, float *db)
{
    const size_t n_c = (size_t)conv->c, row = (size_t)conv->w * n_c,
                 n_words = dt_nonzero_words(conv->k), to_row = (size_t)conv->out_w * n_words;
    const int width = (conv->kernel + 1) * conv->c, step = 2 * conv->c,
              n_seen = windows_per_test(width, step), n_columns = conv->out_w / 2;
    const uint64_t window = ~(uint64_t)0 >> (TESTED_FLOATS - width);
    for (int p = 0; p < conv->out_h / 2; p++) {
        const size_t x_row = (size_t)(2 * p) * row;
        uint64_t nonzero = 0;
        for (int q = 0; q < n_columns; q++, nonzero >>= step) {
            const size_t at = x_row + (size_t)(q * step);
            if (q % n_seen == 0) {
                const int n = dt_min(n_seen, n_columns - q);
                nonzero = nonzero_floats(conv->kernel + 1, x + at, row, (n - 1) * step + width);
            }
            append_cell(from, from->bitmask + (size_t)(2 * p) * to_row + (size_t)(2 * q) * n_words,
                        to_row, n_words, from->value + from->row_at[2 * p] + from->column_at[2 * q],
                        g, db);
            g->quad[g->n] = g->quads + 4 * at;
            g->n += (nonzero & window) != 0;
        }
    }
}

/* T neighbouring taps by V vectors of filters. quad: the first tap's from a cell's first. */
ALWAYS_INLINE void add_taps(const int T, const int V, const struct gradients *g, size_t k,
                            size_t quad, float *dw)
{
    vf sum[TAPS][PAIR];
    const size_t n_filters = g->n_filters;
    const float *value = g->value + k;
    const int32_t *place = g->place + k;
    UNROLLED(t, T) {
        UNROLLED(v, V) {
            sum[t][v] = load(dw + (size_t)t * n_filters + v * VL);
        }
    }
    for (int i = 0; i < g->n; i++, value += n_filters, place += n_filters) {
        const float *pixels = g->quad[i] + quad;
        UNROLLED(t, T) {
            UNROLLED(v, V) {
                sum[t][v] += load(value + v * VL) *
                             pick(pixels + 4 * t, (vi)load((const float *)(place + v * VL)));
            }
        }
    }
    UNROLLED(t, T) {
        UNROLLED(v, V) {
            store(dw + (size_t)t * n_filters + v * VL, sum[t][v]);
        }
    }
}

#define TAPS_CASE(T)                        \
    case T:                                 \
        if (n_vectors > 1) {                \
            add_taps(T, 2, g, k, quad, dw); \
        } else {                            \
            add_taps(T, 1, g, k, quad, dw); \
        }                                   \
        break;

static void add_row(int n_taps, const struct gradients *g, size_t k, int n_vectors, size_t quad,
                    float *dw)
{
    const int n_pieces = dt_cut_count(n_taps, TAPS);
    for (int i = 0; i < n_pieces; i++) {
        const int n = dt_cut_begin(n_taps, TAPS, i + 1) - dt_cut_begin(n_taps, TAPS, i);
        switch (n) {
            TAPS_CASE(1)
            TAPS_CASE(2)
            TAPS_CASE(3)
            TAPS_CASE(4)
            TAPS_CASE(5)
        }
        quad += 4 * (size_t)n;
        dw += (size_t)n * g->n_filters;
    }
}

void DT_KERNEL(conv_weights_pooled)(const struct dt_conv *conv, const struct dt_nonzeros *from,
                                    const float *x, float *dw, float *db, float *scratch)
{
    const size_t row = (size_t)conv->w * (size_t)conv->c;
    const int n_taps = conv->kernel * conv->c, n_vectors = dt_cut_count(conv->k, VL);
    struct gradients g = gradients_in(conv, scratch);
    find_quads(conv, x, g.quads);
    find_gradients(conv, from, x, &g, db);
    for (int v = 0; v < n_vectors; v += PAIR) {
        for (int r = 0; r < conv->kernel; r++) {
            add_row(n_taps, &g, (size_t)(v * VL), n_vectors - v, 4 * (size_t)r * row,
                    dw + (size_t)(r * n_taps) * g.n_filters + (size_t)(v * VL));
        }
    }
}
