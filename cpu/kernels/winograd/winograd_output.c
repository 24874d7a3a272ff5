/* Winograd's transform of the products to outputs, and the block's operations on them;
 * winograd_kernel.h explains the method. */
#include "cpu/kernels/pool_window.h"
#include "cpu/kernels/winograd/winograd_kernel.h"

enum { N_PAIRS = M / 2 };

/* A': outputs from frequencies, each the sum over the points of point^i times its frequency. */
ALWAYS_INLINE void output_pair(const int pair, const vf *f, vf *first, vf *second)
{
    const vf sum = f[1] + f[2], difference = f[1] - f[2];
    if (pair == 0) {
        *first = (f[0] + sum) + (f[3] + f[4]);
        *second = (difference + 0.5f * f[3]) - 2 * f[4];
    } else {
        *first = (sum + 0.25f * f[3]) + 4 * f[4];
        *second = ((difference + f[5]) + 0.125f * f[3]) - 8 * f[4];
    }
}

/* Two rows of A' m A: all that registers hold. The bias is added to frequency (1, 1), which reaches
 * all outputs alike. */
ALWAYS_INLINE void output_rows(const int pair, const float *m, vf bias, vf out[2][M])
{
    vf columns[2][SIDE];
    UNROLLED(j, SIDE) {
        vf f[SIDE];
        UNROLLED(i, SIDE) {
            f[i] = load(m + (i * SIDE + j) * VL);
        }
        if (j == 1) {
            f[1] += bias;
        }
        output_pair(pair, f, &columns[0][j], &columns[1][j]);
    }
    UNROLLED(i, 2) {
        UNROLLED(q, N_PAIRS) {
            output_pair(q, columns[i], &out[i][2 * q], &out[i][2 * q + 1]);
        }
    }
}

/* An area of an image's outputs. */
struct output_area {
    int n_rows, n_columns;
    uint32_t background; /* outputs equal to the background's, */
    uint32_t zeros;      /* or exactly to their bias */
    uint32_t faint;      /* outputs to compute from the products that follow a tile's own */
    bool relu;
    size_t n_filters, m_block, m_tile;
    const float *bias, *background_out;
    size_t row, pixel; /* strides of y, in floats; with a pool also of mask */
    struct pool_target to;
};

/* Compile-time knowledge for the output transform: all rows, columns and filters exist and no
 * output is faint; and none sees only the background. */
enum kind { ANY, WHOLE, FOREGROUND };

/* Replaces, in two rows of outputs, those with exact values. Call it after the check, which must
 * see values that are not finite. */
ALWAYS_INLINE void put_exact(const enum kind kind, const int pair, const struct output_area *a,
                             const float *faint_m, vf bias, vf background, vf out[2][M])
{
    const int first = 2 * M * pair;
    if (kind == ANY && a->faint != 0) {
        vf faint[2][M];
        output_rows(pair, faint_m, bias, faint);
        UNROLLED(i, 2 * M) {
            vf *o = &out[i / M][i % M];
            *o = choose(a->faint >> (first + i) & 1, faint[i / M][i % M], *o);
        }
    }
    UNROLLED(i, 2 * M) {
        vf *o = &out[i / M][i % M];
        if (kind != FOREGROUND && (a->background >> (first + i) & 1) != 0) {
            *o = background; /* the same for all filters: branches are predictable */
        }
        *o = kind == ANY ? choose(a->zeros >> (first + i) & 1, bias, *o) : *o;
    }
}

/* Writes two rows of a tile's outputs of the filters from k on. */
ALWAYS_INLINE void put_rows(const enum kind kind, const bool pool, const int pair,
                            const struct output_area *a, size_t k, int n_filters, vf out[2][M])
{
    const int n_rows = kind == ANY ? a->n_rows - 2 * pair : 2,
              n_columns = kind == ANY ? a->n_columns : M;
    UNROLL
    for (int j = 0; j < M && pool; j += 2) {
        if (n_rows > 1 && j + 1 < n_columns) {
            pool_window(n_filters, &a->to, k, out[0] + j, out[1] + j,
                        (size_t)pair * a->row + (size_t)(j / 2) * a->pixel,
                        (size_t)(2 * pair) * a->to.bitmask_row + (size_t)j * a->to.bitmask_pixel);
        }
    }
    UNROLL
    for (int i = 0; i < 2 && !pool; i++) {
        float *y = a->to.y + (size_t)(2 * pair + i) * a->row + k;
        KEEP_ADDRESS(y);
        UNROLLED(j, M) {
            if (i < n_rows && j < n_columns) {
                store_lanes(y + (size_t)j * a->pixel,
                            a->relu ? larger(out[i][j], (vf){0}) : out[i][j], n_filters);
            }
        }
    }
}

/* A tile's outputs of the filters from k on. Returns zeros in the lanes of those whose outputs are
 * finite, else NaN. */
ALWAYS_INLINE vf tile_outputs(const enum kind kind, const bool pool, const struct output_area *area,
                              const float *m, size_t k, int n_filters)
{
    const struct output_area
        here = *area,
        *a = &here; /* a local copy: the compiler can see that no store changes it */
    const vf bias = load(a->bias + k),
             background = kind == FOREGROUND ? (vf){0} : load(a->background_out + k);
    vf check = {0};
    UNROLLED(pair, N_PAIRS) {
        vf out[2][M];
        output_rows(pair, m, bias, out);
        UNROLLED(i, 2) {
            if (kind != ANY || 2 * pair + i < a->n_rows) {
                check += ((out[i][0] + out[i][1]) + (out[i][2] + out[i][3])) * 0.0f;
            }
        }
        put_exact(kind, pair, a, m + a->m_tile, bias, background, out);
        put_rows(kind, pool, pair, a, k, n_filters, out);
        __asm__ volatile("" ::: "memory"); /* else sums are kept in more registers than there are */
    }
    return check;
}

/* Returns true if all outputs of a tile are finite. */
ALWAYS_INLINE bool all_outputs(const bool pool, const struct output_area *a, const float *m)
{
    const bool whole = a->n_rows == M && a->n_columns == M && (a->faint | a->zeros) == 0;
    bool finite = true;
    for (size_t k = 0; k < a->n_filters; k += VL, m += a->m_block) {
        const size_t n_left = a->n_filters - k;
        vf check;
        if (!whole || n_left < VL) {
            const int n = n_left < VL ? (int)n_left : VL;
            check = (vf)((vi)tile_outputs(ANY, pool, a, m, k, n) & first_lanes(n));
        } else if (a->background != 0) {
            check = tile_outputs(WHOLE, pool, a, m, k, VL);
        } else {
            check = tile_outputs(FOREGROUND, pool, a, m, k, VL);
        }
        finite = finite && nonzero_lanes(check) == 0;
    }
    return finite;
}

static __attribute__((noinline)) bool pooled_outputs(const struct output_area *a, const float *m)
{
    return all_outputs(true, a, m);
}

static __attribute__((noinline)) bool plain_outputs(const struct output_area *a, const float *m)
{
    return all_outputs(false, a, m);
}

/* Fills an area of any size with outputs that come from one frequency; with a pool, in whole
 * windows. */
static bool uniform_outputs(const struct output_area *area, const bool pool, const float *m)
{
    const struct output_area here = *area, *a = &here;
    const int step = pool ? 2 : 1;
    bool finite = true;
    for (size_t k = 0; k < a->n_filters; k += VL) {
        const vf out = uniform_output(m + k / VL * a->m_block, load(a->bias + k));
        finite = finite &&
                 nonzero_lanes((vf)((vi)(out * 0.0f) & first_lanes((int)(a->n_filters - k)))) == 0;
    }
    for (int i = 0; i + step <= a->n_rows; i += step) {
        for (int j = 0; j + step <= a->n_columns; j += step) {
            const size_t at = (size_t)(i / step) * a->row + (size_t)(j / step) * a->pixel,
                         bitmask_at =
                             (size_t)i * a->to.bitmask_row + (size_t)j * a->to.bitmask_pixel;
            for (size_t k = 0; k < a->n_filters; k += VL) {
                const int n = a->n_filters - k < VL ? (int)(a->n_filters - k) : VL;
                const vf out = uniform_output(m + k / VL * a->m_block, load(a->bias + k));
                if (pool) {
                    put_window(n, &a->to, k, out, 0, 0, 0, at, bitmask_at);
                } else {
                    store_lanes(a->to.y + at + k, a->relu ? larger(out, (vf){0}) : out, n);
                }
            }
        }
    }
    return finite;
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

bool DT_KERNEL(winograd_output)(const struct dt_winograd *w, const struct dt_conv_outputs *out,
                                const struct dt_winograd_area *area, bool uniform, const float *m,
                                const float *background)
{
    const int image = area->image, p = area->top, q = area->left, log = out->pool ? 1 : 0;
    const int out_h = w->out_h >> log, out_w = w->out_w >> log;
    const size_t n_k = (size_t)w->k, row = (size_t)image * (size_t)w->out_h + (size_t)p,
                 at = (((size_t)image * (size_t)out_h + (size_t)(p >> log)) * (size_t)out_w +
                       (size_t)(q >> log)) *
                      n_k,
                 bitmask_at = (row * (size_t)w->out_w + (size_t)q) * dt_nonzero_words(w->k);
    const struct output_area a = {.n_rows = area->bottom - p,
                                  .n_columns = area->right - q,
                                  .background = area->background,
                                  .zeros = area->zeros,
                                  .faint = area->faint,
                                  .relu = out->relu,
                                  .n_filters = n_k,
                                  .m_block = w->m_block,
                                  .m_tile = w->m_tile,
                                  .bias = out->bias,
                                  .background_out = background,
                                  .row = (size_t)out_w * n_k,
                                  .pixel = n_k,
                                  .to = pool_target(out, w->k, w->out_w, at, bitmask_at)};
    if (out->next != NULL) {
        const size_t n_image = (size_t)out_h * (size_t)out_w * n_k;
        fetch_next(w, area, out->next + (size_t)image * n_image, n_image);
    }
    if (uniform) {
        return out->pool ? uniform_outputs(&a, true, m) : uniform_outputs(&a, false, m);
    }
    return (out->pool ? pooled_outputs : plain_outputs)(&a, m);
}
