/* The weights' gradient of a convolution 3 x 3 by Winograd's method: what winograd_kernel.h
 * computes, differentiated. With d a tile of 6 x 6 inputs and e the gradient of its 4 x 4 outputs,
 * that of a filter is G' [sum over tiles of (A e A') * (B' d B)] G: per frequency one matrix
 * product over the tiles, and 36 multiplications per channel, filter and tile instead of 144. */
#include "cpu/kernels/winograd/winograd_kernel.h"

/* A block of sums kept in registers: channels by vectors of filters. */
#define ROWS 12
#if defined(__AVX512F__)
#define COLUMNS 2 /* 24 sums, 2 of gradients: 26 of 32 registers */
#else
#define COLUMNS 1 /* 12 sums, 1 of gradients, 1 of inputs: 14 of 16 registers */
#endif

struct gradient {
    const struct dt_winograd_gradient *plan;
    const float *x, *dy;
    float *v, *g, *u; /* transformed inputs, transformed gradients, sums of their products */
    float *edge;      /* gradients of a tile that crosses the edge */
};

/* A: each frequency is the sum over the outputs of point^j times output j. */
ALWAYS_INLINE void gradient_row(const vf d[M], vf f[SIDE])
{
    const vf even = d[0] + d[2], odd = d[1] + d[3];
    f[0] = d[0];
    f[1] = even + odd;
    f[2] = even - odd;
    f[3] = (d[0] + 0.5f * d[1]) + (0.25f * d[2] + 0.125f * d[3]);
    f[4] = (d[0] - 2 * d[1]) + (4 * d[2] - 8 * d[3]);
    f[5] = d[3];
}

/* A e A' of one tile. */
static void transform_gradient(size_t n_k, const float *dy, size_t row, size_t g_freq, float *g)
{
    for (size_t k = 0; k < n_k; k += VL, dy += VL, g += VL) {
        vf rows[SIDE][M];
        UNROLLED(j, M) {
            vf d[M], f[SIDE];
            UNROLLED(i, M) {
                d[i] = load(dy + (size_t)i * row + (size_t)j * n_k);
            }
            gradient_row(d, f);
            UNROLLED(i, SIDE) {
                rows[i][j] = f[i];
            }
        }
        UNROLLED(i, SIDE) {
            vf f[SIDE];
            gradient_row(rows[i], f);
            UNROLLED(j, SIDE) {
                store(g + (size_t)(i * SIDE + j) * g_freq, f[j]);
            }
        }
    }
}

void DT_KERNEL(winograd_tile_gradient)(int n_k, int out_h, int out_w, const float *dy, int top,
                                       int left, float *edge, size_t g_freq, float *g)
{
    size_t row = (size_t)out_w * (size_t)n_k;
    const float *from = dy + (size_t)top * row + (size_t)left * (size_t)n_k;
    if (top + M > out_h || left + M > out_w) { /* a copy, with zeros */
        const size_t edge_row = (size_t)(M * n_k),
                     n_bytes = (size_t)(dt_min(M, out_w - left) * n_k) * sizeof(float);
        memset(edge, 0, M * edge_row * sizeof(float));
        for (int i = 0; i < dt_min(M, out_h - top); i++) {
            memcpy(edge + (size_t)i * edge_row, from + (size_t)i * row, n_bytes);
        }
        from = edge;
        row = edge_row;
    }
    transform_gradient((size_t)n_k, from, row, g_freq, g);
}

/* Transforms tile number `at` of all images into slot `slot` of the group. */
static void fill_slot(const struct gradient *s, int at, int slot)
{
    const struct dt_winograd *w = &s->plan->w;
    const int n_tiles = w->rows * w->columns, image = at / n_tiles, place = at % n_tiles;
    const struct dt_winograd_area tile = {.top = place / w->columns * M,
                                          .left = place % w->columns * M};
    DT_KERNEL(winograd_tile_input)
    (w, s->x + (size_t)image * dt_winograd_image_elems(w), &tile, s->v + (size_t)slot * w->v_tile);
    DT_KERNEL(winograd_tile_gradient)
    (w->k, w->out_h, w->out_w,
     s->dy + (size_t)image * (size_t)w->out_h * (size_t)w->out_w * (size_t)w->k, tile.top,
     tile.left, s->edge, s->plan->g_freq, s->g + (size_t)slot * s->plan->g_tile);
}

/* ---- the matrix products */

/* C channels by V vectors of filters of one frequency, over n_tiles. */
ALWAYS_INLINE void product_block(const int C, const int V, const struct dt_winograd_gradient *plan,
                                 int n_tiles, bool adds, const float *v, const float *g, float *u)
{
    const size_t v_tile = plan->w.v_tile, g_tile = plan->g_tile;
    vf sum[ROWS][COLUMNS];
#define EACH_SUM(statement) \
    UNROLLED(i, C) {        \
        UNROLLED(j, V) {    \
            statement;      \
        }                   \
    }
#define U(i, j) (u + (size_t)(i)*g_tile + (j)*VL)
    EACH_SUM(sum[i][j] = adds ? load(U(i, j)) : (vf){0})
    for (int t = 0; t < n_tiles; t++, v += v_tile, g += g_tile) {
        vf gradient[COLUMNS];
        UNROLLED(j, V) {
            gradient[j] = load(g + j * VL);
        }
        EACH_SUM(sum[i][j] += v[i] * gradient[j])
    }
    EACH_SUM(store(U(i, j), sum[i][j]))
}

#define PRODUCT_CASE(C)                                              \
    case C:                                                          \
        if (n_vectors == 1) {                                        \
            product_block(C, 1, plan, n_tiles, adds, v, g, u);       \
        } else {                                                     \
            product_block(C, COLUMNS, plan, n_tiles, adds, v, g, u); \
        }                                                            \
        break;

static void product_rows(int n_rows, int n_vectors, const struct dt_winograd_gradient *plan,
                         int n_tiles, bool adds, const float *v, const float *g, float *u)
{
    switch (n_rows) {
        PRODUCT_CASE(1)
        PRODUCT_CASE(2)
        PRODUCT_CASE(3)
        PRODUCT_CASE(4)
        PRODUCT_CASE(5)
        PRODUCT_CASE(6)
        PRODUCT_CASE(7)
        PRODUCT_CASE(8)
        PRODUCT_CASE(9)
        PRODUCT_CASE(10)
        PRODUCT_CASE(11)
        PRODUCT_CASE(12)
    }
}

/* u (c, k) = v' (c, tiles) g (tiles, k), or adds to it, for each frequency. */
static void add_products(const struct gradient *s, int n_tiles, bool adds)
{
    const struct dt_winograd_gradient *plan = s->plan;
    const int n_c = plan->w.c, n_pieces = dt_cut_count(n_c, ROWS);
    for (size_t f = 0; f < N_FREQS; f++) {
        for (int k = 0; k < plan->w.k; k += COLUMNS * VL) {
            const int n_vectors = plan->w.k - k > VL ? COLUMNS : 1;
            for (int i = 0; i < n_pieces; i++) {
                const int c = dt_cut_begin(n_c, ROWS, i);
                product_rows(dt_cut_begin(n_c, ROWS, i + 1) - c, n_vectors, plan, n_tiles, adds,
                             s->v + f * plan->w.v_freq + c, s->g + f * plan->g_freq + k,
                             s->u + f * plan->u_freq + (size_t)c * plan->g_tile + k);
            }
        }
    }
}

/* Adds the tiles' gradients: frequency (1, 1) is the sum of its outputs. */
static void add_bias(const struct gradient *s, int n_tiles, float *db)
{
    const size_t g_tile = s->plan->g_tile;
    const float *g = s->g + ONE_ONE * s->plan->g_freq;
    for (size_t k = 0; k < g_tile; k += VL) {
        vf sum = load(db + k);
        for (size_t t = 0; t < (size_t)n_tiles; t++) {
            sum += load(g + t * g_tile + k);
        }
        store(db + k, sum);
    }
}

/* G': taps from frequencies. */
ALWAYS_INLINE void tap_row(const vf f[SIDE], vf tap[3])
{
    const vf ones = (f[1] + f[2]) * (1 / 3.0f), difference = (f[1] - f[2]) * (1 / 3.0f);
    tap[0] = (f[0] + difference) + (f[4] * (1 / 15.0f) - f[3] * (16 / 15.0f));
    tap[1] = ones - (f[3] * (8 / 15.0f) + f[4] * (2 / 15.0f));
    tap[2] = (difference + f[5]) + (f[4] * (4 / 15.0f) - f[3] * (4 / 15.0f));
}

/* Adds G' u G to dw, in conv_weights_dense's order. */
static void add_taps(const struct gradient *s, float *dw)
{
    const size_t n_filters = s->plan->g_tile, n_c = (size_t)s->plan->w.c, u_freq = s->plan->u_freq;
    for (size_t at = 0; at < n_c * n_filters; at += VL) {
        vf rows[3][SIDE];
        UNROLLED(j, SIDE) {
            vf f[SIDE], tap[3];
            UNROLLED(i, SIDE) {
                f[i] = load(s->u + (size_t)(i * SIDE + j) * u_freq + at);
            }
            tap_row(f, tap);
            UNROLLED(i, 3) {
                rows[i][j] = tap[i];
            }
        }
        UNROLLED(i, 3) {
            vf tap[3];
            tap_row(rows[i], tap);
            UNROLLED(j, 3) {
                float *to = dw + (size_t)(3 * i + j) * n_c * n_filters + at;
                store(to, load(to) + tap[j]);
            }
        }
    }
}

void DT_KERNEL(winograd_gradient)(const struct dt_winograd_gradient *plan, int n_images,
                                  const float *x, const float *dy, float *dw, float *db,
                                  float *scratch)
{
    struct gradient s = {.plan = plan, .x = x, .dy = dy, .v = scratch};
    s.g = s.v + N_FREQS * plan->w.v_freq;
    s.u = s.g + N_FREQS * plan->g_freq;
    s.edge = s.u + N_FREQS * plan->u_freq;
    const int n_tiles = n_images * plan->w.rows * plan->w.columns;
    for (int first = 0; first < n_tiles; first += plan->group) {
        const int n = dt_min(plan->group, n_tiles - first);
        for (int i = 0; i < n; i++) {
            fill_slot(&s, first + i, i);
        }
        add_products(&s, n, first > 0);
        add_bias(&s, n, db);
    }
    add_taps(&s, dw);
}
