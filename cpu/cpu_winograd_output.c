/* Winograd's transform of the products to outputs, and what a block does with them; the method: cpu_winograd_kernel.h. */
#include "cpu/cpu_winograd_kernel.h"

/* A': outputs from frequencies, each the sum over the points of point^i times its frequency. */
ALWAYS_INLINE void output_row(const vf *f, vf *out)
{
    const vf sum = f[1] + f[2], difference = f[1] - f[2];
    out[0] = (f[0] + sum) + (f[3] + f[4]);
    out[1] = (difference + 0.5f * f[3]) - 2 * f[4];
    out[2] = (sum + 0.25f * f[3]) + 4 * f[4];
    out[3] = ((difference + f[5]) + 0.125f * f[3]) - 8 * f[4];
}

/* One tile's outputs of VL filters. */
struct output_tile {
    int n_rows, n_columns; /* that are there */
    int n_filters;         /* of the vector */
    vf bias;
    bool relu;
    size_t row, pixel; /* of y, in floats; with a pool also of winner and keep */
    float *y;
    uint16_t *winner;
    const uint8_t *keep;
    float scale;
};

typedef uint16_t vector_of_u16 __attribute__((vector_size(2 * VL), aligned(2), may_alias));
typedef uint8_t vector_of_u8 __attribute__((vector_size(VL), aligned(1), may_alias));

ALWAYS_INLINE void store_filters(float *p, vf v, int n)
{
    if (n == VL) {
        store(p, v);
    } else {
        store_first(p, v, n);
    }
}

/* The columns of A' m A, so that rows remain to be done. The bias joins frequency (1, 1), which reaches all outputs alike. */
ALWAYS_INLINE void output_columns(const float *m, vf bias, vf rows[M][SIDE])
{
    UNROLL
    for (int j = 0; j < SIDE; j++) {
        vf f[SIDE], out[M];
        UNROLL
        for (int i = 0; i < SIDE; i++) {
            f[i] = load(m + (i * SIDE + j) * VL);
        }
        if (j == 1) {
            f[1] += bias;
        }
        output_row(f, out);
        UNROLL
        for (int i = 0; i < M; i++) {
            rows[i][j] = out[i];
        }
    }
}

/* What the output transform is told when compiled: that all rows, columns and filters of the tile are there; that the tile is
 * blank, so that one frequency makes all outputs. */
enum kind { ANY, WHOLE, BLANK };

ALWAYS_INLINE void tile_row(const enum kind kind, const struct output_tile *t, const float *m, const vf *row, vf *out)
{
    if (kind == BLANK) {
        for (int j = 0; j < M; j++) {
            out[j] = load(m + ONE_ONE * VL) + t->bias;
        }
    } else {
        output_row(row, out);
    }
}

/* Adds zero if the outputs are finite, and a NaN if not. */
ALWAYS_INLINE vf add_check(vf check, const vf out[M])
{
    return check + ((out[0] + out[1]) + (out[2] + out[3])) * 0.0f;
}

/* These two return zeros in the lanes of filters whose outputs are finite. */

ALWAYS_INLINE vf plain_outputs(const enum kind kind, const struct output_tile *t, const float *m)
{
    const int n_rows = kind == WHOLE ? M : t->n_rows, n_columns = kind == WHOLE ? M : t->n_columns;
    vf rows[M][SIDE], check = {0};
    if (kind != BLANK) {
        output_columns(m, t->bias, rows);
    }
    for (int i = 0; i < n_rows; i++) {
        vf out[M];
        float *y = t->y + (size_t)i * t->row;
        tile_row(kind, t, m, rows[i], out);
        check = add_check(check, out);
        UNROLL
        for (int j = 0; j < M; j++) {
            if (j < n_columns) {
                store_filters(y + (size_t)j * t->pixel, t->relu ? larger(out[j], (vf){0}) : out[j],
                              kind == WHOLE ? VL : t->n_filters);
            }
        }
    }
    return check;
}

/* One window: the first of equals wins, and zero, after ReLU, is the least there is. Then dropout. */
ALWAYS_INLINE void pool_window(const int n_filters, const struct output_tile *t, const vf top[2], const vf bottom[2], size_t at)
{
    const vf zero = {0}, upper = larger(top[0], top[1]), lower = larger(bottom[0], bottom[1]);
    vf best = larger(larger(upper, lower), zero);
    if (t->winner != NULL) {
        const vi in_upper = if_greater(top[1], larger(top[0], zero), (vi){0} + 1, (vi){0});
        const vi in_lower = if_greater(bottom[1], bottom[0], (vi){0} + 3, (vi){0} + 2);
        const vi place = if_greater(lower, larger(upper, zero), in_lower, in_upper);
        const vector_of_u16 narrow = __builtin_convertvector(place, vector_of_u16);
        memcpy(t->winner + at, &narrow, (size_t)n_filters * sizeof narrow[0]);
    }
    if (t->keep != NULL) {
        const vi keep = __builtin_convertvector(*(const vector_of_u8 *)(t->keep + at), vi);
        best *= __builtin_convertvector(keep, vf) * t->scale;
    }
    store_filters(t->y + at, best, n_filters);
}

ALWAYS_INLINE vf pooled_outputs(const enum kind kind, const struct output_tile *t, const float *m)
{
    const int n_rows = kind == WHOLE ? M : t->n_rows, n_columns = kind == WHOLE ? M : t->n_columns;
    vf rows[M][SIDE], check = {0};
    if (kind != BLANK) {
        output_columns(m, t->bias, rows);
    }
    for (int i = 0; i + 1 < n_rows; i += 2) {
        vf top[M], bottom[M];
        tile_row(kind, t, m, rows[i], top);
        tile_row(kind, t, m, rows[i + 1], bottom);
        check = add_check(add_check(check, top), bottom);
        UNROLL
        for (int j = 0; j < M; j += 2) {
            if (j + 1 < n_columns) {
                pool_window(kind == WHOLE ? VL : t->n_filters, t, top + j, bottom + j,
                            (size_t)(i / 2) * t->row + (size_t)(j / 2) * t->pixel);
            }
        }
    }
    return check;
}

#define OUTPUTS(kind) pool ? pooled_outputs(kind, t, m) : plain_outputs(kind, t, m)

/* Returns whether all are finite. */
static bool outputs(const struct output_tile *t, bool pool, bool blank, const float *m)
{
    vf check;
    if (blank) {
        check = OUTPUTS(BLANK);
    } else if (t->n_rows == M && t->n_columns == M && t->n_filters == VL) {
        check = OUTPUTS(WHOLE);
    } else {
        check = OUTPUTS(ANY);
    }
    return nonzero_lanes((vf)((vi)check & first_lanes(t->n_filters))) == 0;
}

bool DT_KERNEL(winograd_output)(const struct dt_winograd *w, const struct dt_winograd_out *out, int image, int tile, bool blank,
                                const float *m)
{
    const int p = tile / w->columns * M, q = tile % w->columns * M, stride = out->pool ? 2 : 1;
    const int out_h = w->out_h / stride, out_w = w->out_w / stride;
    const size_t n_k = (size_t)w->k,
                 at = (((size_t)image * (size_t)out_h + (size_t)(p / stride)) * (size_t)out_w + (size_t)(q / stride)) * n_k;
    struct output_tile t = {.n_rows = smaller(M, w->out_h - p),
                            .n_columns = smaller(M, w->out_w - q),
                            .relu = out->relu,
                            .row = (size_t)out_w * n_k,
                            .pixel = n_k,
                            .scale = out->scale};
    bool finite = true;
    for (size_t k = 0; k < n_k; k += VL, m += w->m_block) {
        t.n_filters = n_k - k < VL ? (int)(n_k - k) : VL;
        t.bias = load(out->bias + k);
        t.y = out->y + at + k;
        t.winner = out->winner != NULL ? out->winner + at + k : NULL;
        t.keep = out->keep != NULL ? out->keep + at + k : NULL;
        finite = outputs(&t, out->pool, blank, m) && finite;
    }
    return finite;
}
