/* Winograd's transform of the products to outputs, and the block's operations on them;
 * kernel.h explains the method. */
#include "cpu/kernels/pool_window.h"
#include "cpu/kernels/winograd/kernel.h"

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
    int n_rows, n_columns; /* that exist */
    int n_filters;         /* in the vector */
    uint32_t ground;       /* outputs equal to the ground's, */
    uint32_t zeros;        /* or exactly to their bias */
    uint32_t quiet;        /* outputs to compute from these products: */
    const float *quiet_m;
    vf bias, ground_out;
    bool relu;
    size_t row, pixel; /* strides of y, in floats; with a pool also of keep */
    struct pool_target to;
};

/* The columns of A' m A; its rows remain to be computed. The bias is added to frequency (1, 1),
 * which reaches all outputs alike. */
ALWAYS_INLINE void output_columns(const float *m, vf bias, vf rows[M][SIDE])
{
    UNROLLED(j, SIDE) {
        vf f[SIDE], out[M];
        UNROLLED(i, SIDE) {
            f[i] = load(m + (i * SIDE + j) * VL);
        }
        if (j == 1) {
            f[1] += bias;
        }
        output_row(f, out);
        UNROLLED(i, M) {
            rows[i][j] = out[i];
        }
    }
}

/* Compile-time knowledge for the output transform: all rows, columns and filters of the tile exist
 * and no output is quiet; and none sees only the ground. */
enum kind { ANY, WHOLE, INKED };

/* Replaces, in a row of outputs, those with exact values. Call it after the check, which must see
 * values that are not finite. */
ALWAYS_INLINE void put_exact(const enum kind kind, const struct output_tile *t, int row,
                             vf quiet_rows[M][SIDE], vf out[M])
{
    vf quiet[M];
    if (kind == ANY && t->quiet != 0) {
        output_row(quiet_rows[row], quiet);
        UNROLLED(j, M) {
            out[j] = choose(t->quiet >> (M * row + j) & 1, quiet[j], out[j]);
        }
    }
    UNROLL
    for (int j = 0; j < M && kind != INKED; j++) {
        if (t->ground >> (M * row + j) &
            1) { /* the same for all filters: branches are predictable */
            out[j] = t->ground_out;
        }
        out[j] = kind == ANY ? choose(t->zeros >> (M * row + j) & 1, t->bias, out[j]) : out[j];
    }
}

/* The columns of both: of a tile's products, and of those of its quiet outputs, if any. */
ALWAYS_INLINE void both_columns(const enum kind kind, const struct output_tile *t, const float *m,
                                vf rows[M][SIDE], vf quiet_rows[M][SIDE])
{
    output_columns(m, t->bias, rows);
    if (kind == ANY && t->quiet != 0) {
        output_columns(t->quiet_m, t->bias, quiet_rows);
    }
}

/* Adds zero if the outputs are finite, else NaN. */
ALWAYS_INLINE vf add_check(vf check, const vf out[M])
{
    return check + ((out[0] + out[1]) + (out[2] + out[3])) * 0.0f;
}

/* The next two return zeros in the lanes of filters whose outputs are finite. */

ALWAYS_INLINE vf plain_outputs(const enum kind kind, const struct output_tile *t, const float *m)
{
    const int n_rows = kind == ANY ? t->n_rows : M, n_columns = kind == ANY ? t->n_columns : M;
    vf rows[M][SIDE], quiet_rows[M][SIDE], check = {0};
    both_columns(kind, t, m, rows, quiet_rows);
    for (int i = 0; i < n_rows; i++) {
        vf out[M];
        float *y = t->to.y + (size_t)i * t->row;
        output_row(rows[i], out);
        check = add_check(check, out);
        put_exact(kind, t, i, quiet_rows, out);
        UNROLLED(j, M) {
            if (j < n_columns) {
                store_lanes(y + (size_t)j * t->pixel, t->relu ? larger(out[j], (vf){0}) : out[j],
                            kind == ANY ? t->n_filters : VL);
            }
        }
    }
    return check;
}

ALWAYS_INLINE vf pooled_outputs(const enum kind kind, const struct output_tile *tile,
                                const float *m)
{
    const struct output_tile
        here = *tile,
        *t = &here; /* a local copy: the compiler can see that no store changes it */
    const int n_rows = kind == ANY ? t->n_rows : M, n_columns = kind == ANY ? t->n_columns : M;
    vf rows[M][SIDE], quiet_rows[M][SIDE], check = {0};
    both_columns(kind, t, m, rows, quiet_rows);
    for (int i = 0; i + 1 < n_rows; i += 2) {
        vf top[M], bottom[M];
        output_row(rows[i], top);
        output_row(rows[i + 1], bottom);
        check = add_check(add_check(check, top), bottom);
        put_exact(kind, t, i, quiet_rows, top);
        put_exact(kind, t, i + 1, quiet_rows, bottom);
        UNROLL
        for (int j = 0; j < M; j += 2) {
            if (j + 1 < n_columns) {
                pool_window(kind == ANY ? t->n_filters : VL, &t->to, top + j, bottom + j,
                            (size_t)(i / 2) * t->row + (size_t)(j / 2) * t->pixel,
                            (size_t)i * t->to.word_row + (size_t)j * t->to.word_pixel);
            }
        }
    }
    return check;
}

/* Fills an area of any size with one output value; with a pool, in whole windows. */
ALWAYS_INLINE void fill(const int n_filters, const struct output_tile *t, bool pool, vf out)
{
    const vf pair[2] = {out, out}, activated = t->relu ? larger(out, (vf){0}) : out;
    for (int i = 0; i + 1 < t->n_rows && pool; i += 2) {
        for (int j = 0; j + 1 < t->n_columns; j += 2) {
            pool_window(n_filters, &t->to, pair, pair,
                        (size_t)(i / 2) * t->row + (size_t)(j / 2) * t->pixel,
                        (size_t)i * t->to.word_row + (size_t)j * t->to.word_pixel);
        }
    }
    for (int i = 0; i < t->n_rows && !pool; i++) {
        for (int j = 0; j < t->n_columns; j++) {
            store_lanes(t->to.y + (size_t)i * t->row + (size_t)j * t->pixel, activated, n_filters);
        }
    }
}

/* All outputs come from one frequency. */
static vf blank_outputs(const struct output_tile *t, bool pool, const float *m)
{
    const vf out = blank_output(m, t->bias);
    if (t->n_filters == VL) {
        fill(VL, t, pool, out);
    } else {
        fill(t->n_filters, t, pool, out);
    }
    return out * 0.0f;
}

#define OUTPUTS(kind) pool ? pooled_outputs(kind, t, m) : plain_outputs(kind, t, m)

/* Returns true if all are finite. */
static bool outputs(const struct output_tile *t, bool pool, bool blank, const float *m)
{
    vf check;
    if (blank) {
        check = blank_outputs(t, pool, m);
    } else if (t->n_rows != M || t->n_columns != M || t->n_filters != VL ||
               (t->quiet | t->zeros) != 0) {
        check = OUTPUTS(ANY);
    } else if (t->ground != 0) {
        check = OUTPUTS(WHOLE);
    } else {
        check = OUTPUTS(INKED);
    }
    return nonzero_lanes((vf)((vi)check & first_lanes(t->n_filters))) == 0;
}

/* Prefetches an area's share of an image's next memory, while there is still much to compute. */
static void fetch_next(const struct dt_winograd *w, const struct dt_winograd_area *area,
                       const float *next, size_t n_elems)
{
    const size_t n_h = (size_t)w->out_h, n_w = (size_t)w->out_w,
                 n_rows = n_elems * (size_t)(area->bottom - area->top) / n_h;
    const size_t first = n_elems * (size_t)area->top / n_h,
                 begin = first + n_rows * (size_t)area->left / n_w,
                 end = first + n_rows * (size_t)area->right / n_w;
    for (size_t i = begin; i < end; i += 16) {
        __builtin_prefetch(next + i, 1, 2);
    }
}

/* All of a tile that needs no care: whole, without a pool, and with filters that fill vectors. Most
 * of gradients and of deep networks are, and what winograd_output prepares takes as long as their
 * transform. Returns true if all are finite. */
ALWAYS_INLINE bool easy_outputs(const bool relu, const struct dt_winograd *w,
                                const struct dt_conv_outputs *out,
                                const struct dt_winograd_area *area, const float *m)
{
    const size_t n_k = (size_t)w->k, m_block = w->m_block, row = (size_t)w->out_w * n_k;
    const float *bias = out->bias;
    float *y = out->y + ((size_t)area->image * (size_t)w->out_h + (size_t)area->top) * row +
               (size_t)area->left * n_k;
    vf check = {0};
    for (size_t k = 0; k < n_k; k += VL, m += m_block) {
        float *to = y + k;
        vf rows[M][SIDE];
        output_columns(m, load(bias + k), rows);
        UNROLLED(i, M) {
            vf o[M];
            output_row(rows[i], o);
            check = add_check(check, o);
            KEEP_ADDRESS(to);
            UNROLLED(j, M) {
                store(to + (size_t)j * n_k, relu ? larger(o[j], (vf){0}) : o[j]);
            }
            to += row;
        }
    }
    return nonzero_lanes(check) == 0;
}

static __attribute__((noinline)) bool easy_relu(const struct dt_winograd *w,
                                                const struct dt_conv_outputs *out,
                                                const struct dt_winograd_area *area, const float *m)
{
    return easy_outputs(true, w, out, area, m);
}

static __attribute__((noinline)) bool easy_linear(const struct dt_winograd *w,
                                                  const struct dt_conv_outputs *out,
                                                  const struct dt_winograd_area *area,
                                                  const float *m)
{
    return easy_outputs(false, w, out, area, m);
}

static bool is_easy(const struct dt_winograd *w, const struct dt_conv_outputs *out,
                    const struct dt_winograd_area *area, bool blank)
{
    return !blank && !out->pool && w->k % VL == 0 && area->bottom - area->top == M &&
           area->right - area->left == M && (area->ground | area->zeros | area->quiet) == 0;
}

bool DT_KERNEL(winograd_output)(const struct dt_winograd *w, const struct dt_conv_outputs *out,
                                const struct dt_winograd_area *area, bool blank, const float *m,
                                const float *ground)
{
    if (is_easy(w, out, area, blank)) {
        return (out->relu ? easy_relu : easy_linear)(w, out, area, m);
    }
    const int image = area->image, p = area->top, q = area->left, stride = out->pool ? 2 : 1;
    const int out_h = w->out_h / stride, out_w = w->out_w / stride;
    const size_t n_k = (size_t)w->k, row = (size_t)image * (size_t)w->out_h + (size_t)p,
                 at = (((size_t)image * (size_t)out_h + (size_t)(p / stride)) * (size_t)out_w +
                       (size_t)(q / stride)) *
                      n_k,
                 n_words = dt_survivor_words(w->k),
                 word_at = (row * (size_t)w->out_w + (size_t)q) * n_words;
    struct output_tile t = {.n_rows = area->bottom - p,
                            .n_columns = area->right - q,
                            .ground = area->ground,
                            .zeros = area->zeros,
                            .quiet = area->quiet,
                            .relu = out->relu,
                            .row = (size_t)out_w * n_k,
                            .pixel = n_k,
                            .to = pool_target(out, w->k, w->out_w)};
    bool finite = true;
    if (out->next != NULL) {
        const size_t n_image = (size_t)out_h * (size_t)out_w * n_k;
        fetch_next(w, area, out->next + (size_t)image * n_image, n_image);
    }
    for (size_t k = 0; k < n_k; k += VL, m += w->m_block) {
        t.n_filters = n_k - k < VL ? (int)(n_k - k) : VL;
        t.bias = load(out->bias + k);
        t.quiet_m = m + w->m_tile;
        t.ground_out = blank ? t.bias : load(ground + k);
        aim(&t.to, out, at, word_at, k);
        finite = outputs(&t, out->pool, blank, m) && finite;
    }
    return finite;
}
