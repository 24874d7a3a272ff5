/* A convolution's weight gradient as a dense product: where few output gradients are zero, or
 * channels are few. One tile sums, over all positions, a block of the window (R rows, E
 * neighbouring floats of each) times one or two vectors of filters. A first layer's whole window is
 * often one tile, so its gradient is read once, and ReLU's mask applied at the same time. */
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vector.h"

#define TILE                                                                            \
    12 /* elements of the window: 24 sums of AVX-512's 32 registers, 12 of 16 elsewhere \
        */
#if defined(__AVX512F__)
#define VECTORS 2
#else
#define VECTORS 1
#endif

struct weights_tile {
    const struct dt_conv *conv;
    const float *x;      /* the block's first element */
    const float *dy, *y; /* the first filter; only the sign of y is used */
    size_t y_step;       /* 0: y is constant */
    float *dw, *db;      /* (elements, filters); db NULL: another tile sums it */
};

/* A tile's sums over an image, in registers. */
struct weights_sums {
    vf dw[TILE][VECTORS];
    vf db[VECTORS];
};

/* A row of positions; x, dy and y point to the first. */
ALWAYS_INLINE void tile_row(const int R, const int E, const int V, const struct weights_tile *t,
                            const float *x, const float *dy, const float *y,
                            struct weights_sums *sums)
{
    const size_t row = (size_t)t->conv->w * (size_t)t->conv->c,
                 x_step = (size_t)t->conv->stride * (size_t)t->conv->c;
    const size_t n_k = (size_t)t->conv->k, y_step = t->y_step;
    for (const float *const end = dy + (size_t)t->conv->out_w * n_k; dy != end;
         x += x_step, dy += n_k, y += y_step) {
        vf g[VECTORS];
        UNROLLED(v, V) {
            g[v] = (vf)((load(y + v * VL) > 0) & (vi)load(dy + v * VL));
            sums->db[v] += g[v];
            __builtin_prefetch(dy + v * VL + 8 * n_k);
            __builtin_prefetch(y + v * VL + 8 * y_step);
        }
        const float *from = x;
        UNROLLED(e, R * E) {
            if (e % E == 0) {
                from = x + (size_t)(e / E) * row;
                KEEP_ADDRESS(from);
            }
            UNROLLED(v, V) {
                sums->dw[e][v] += from[e % E] * g[v];
            }
        }
    }
}

ALWAYS_INLINE void tile_image(const int R, const int E, const int V, const struct weights_tile *t)
{
    const struct dt_conv *conv = t->conv;
    const size_t row = (size_t)conv->w * (size_t)conv->c,
                 window_row = (size_t)conv->kernel * (size_t)conv->c;
    const size_t filters = dt_conv_filters(conv, VL);
    struct weights_sums sums = {0};
#define EACH_SUM(statement) \
    UNROLLED(e, R * E) {    \
        UNROLLED(v, V) {    \
            statement;      \
        }                   \
    }
#define DW(e) (t->dw + ((size_t)((e) / E) * window_row + (size_t)((e) % E)) * filters)
    EACH_SUM(sums.dw[e][v] = load(DW(e) + v * VL))
    for (int p = 0; p < conv->out_h; p++) {
        const size_t at = (size_t)p * (size_t)conv->out_w;
        tile_row(R, E, V, t, t->x + (size_t)(p * conv->stride) * row, t->dy + at * (size_t)conv->k,
                 t->y + at * t->y_step, &sums);
    }
    EACH_SUM(store(DW(e) + v * VL, sums.dw[e][v]))
    UNROLLED(v, V) {
        if (t->db != NULL) {
            store(t->db + v * VL, load(t->db + v * VL) + sums.db[v]);
        }
    }
}

#define CASE_OF_TILE(R, E)                \
    case (R)*100 + (E):                   \
        if (n_vectors == 1) {             \
            tile_image(R, E, 1, t);       \
        } else {                          \
            tile_image(R, E, VECTORS, t); \
        }                                 \
        break;

static void run_tile(int n_rows, int n_elements, int n_vectors, const struct weights_tile *t)
{
    switch (n_rows * 100 + n_elements) {
        CASE_OF_TILE(1, 1)
        CASE_OF_TILE(1, 2)
        CASE_OF_TILE(1, 3)
        CASE_OF_TILE(1, 4)
        CASE_OF_TILE(1, 5)
        CASE_OF_TILE(1, 6)
        CASE_OF_TILE(1, 7)
        CASE_OF_TILE(1, 8)
        CASE_OF_TILE(1, 9)
        CASE_OF_TILE(1, 10)
        CASE_OF_TILE(1, 11)
        CASE_OF_TILE(1, 12)
        CASE_OF_TILE(2, 1)
        CASE_OF_TILE(2, 2)
        CASE_OF_TILE(2, 3)
        CASE_OF_TILE(2, 4)
        CASE_OF_TILE(2, 5)
        CASE_OF_TILE(2, 6)
        CASE_OF_TILE(3, 1)
        CASE_OF_TILE(3, 2)
        CASE_OF_TILE(3, 3)
        CASE_OF_TILE(3, 4)
    }
}

/* The whole window for some filters. */
static void window_tiles(const struct weights_tile *whole, int n_vectors)
{
    const struct dt_conv *conv = whole->conv;
    const int width = conv->kernel * conv->c, most_rows = width <= 4 ? 3 : width <= 6 ? 2 : 1;
    const size_t row = (size_t)conv->w * (size_t)conv->c, filters = dt_conv_filters(conv, VL);
    struct weights_tile t = *whole;
    for (int i = 0; i < dt_cut_count(conv->kernel, most_rows); i++) {
        const int r = dt_cut_begin(conv->kernel, most_rows, i),
                  n_rows = dt_cut_begin(conv->kernel, most_rows, i + 1) - r;
        for (int j = 0; j < dt_cut_count(width, TILE); j++) {
            const int e = dt_cut_begin(width, TILE, j), n = dt_cut_begin(width, TILE, j + 1) - e;
            t.x = whole->x + (size_t)r * row + (size_t)e;
            t.dw = whole->dw + (size_t)(r * width + e) * filters;
            run_tile(n_rows, n, n_vectors, &t);
            t.db = NULL;
        }
    }
}

void DT_KERNEL(conv_weights_dense)(const struct dt_conv *conv, const float *x, const float *dy,
                                   const float *y, float *dw, float *db)
{
    static const float ones[VECTORS * VL] = {[0 ... VECTORS * VL - 1] = 1};
    for (int k0 = 0; k0 < conv->k;) {
        const int n_vectors = conv->k - k0 > VL ? VECTORS : 1;
        const struct weights_tile whole = {.conv = conv,
                                           .x = x,
                                           .dy = dy + k0,
                                           .y = y != NULL ? y + k0 : ones,
                                           .y_step = y != NULL ? (size_t)conv->k : 0,
                                           .dw = dw + k0,
                                           .db = db + k0};
        window_tiles(&whole, n_vectors);
        k0 += n_vectors * VL;
    }
}

void DT_KERNEL(conv_unpack_dense)(const struct dt_conv *conv, const float *dw, float *grads)
{
    const size_t n = (size_t)conv->kernel, n_c = (size_t)conv->c,
                 filters = dt_conv_filters(conv, VL);
    for (size_t k = 0; k < (size_t)conv->k; k++) {
        for (size_t c = 0; c < n_c; c++) {
            for (size_t r = 0; r < n; r++) {
                for (size_t s = 0; s < n; s++) {
                    *grads++ += dw[((r * n + s) * n_c + c) * filters + k];
                }
            }
        }
    }
}
