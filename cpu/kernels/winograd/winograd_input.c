/* Winograd's transform of the inputs; winograd_kernel.h explains the method. */
#include "cpu/kernels/winograd/winograd_kernel.h"

/* With Q(x) = (x - 1/2) (x + 2) = x^2 + 3/2 x - 1, the rows of B' are the coefficients of
 *     point 0         (x^2 - 1) Q(x)
 *     1 and -1        x (x + 1) Q(x) and x (x - 1) Q(x)
 *     1/2             x (x^2 - 1) (x + 2)
 *     -2              x (x^2 - 1) (x - 1/2)
 *     infinity        x (x^2 - 1) Q(x)
 * A factor x - 1 makes a row a sum of differences, or a difference of two equal sums: for equal
 * numbers only the row of point 1 is nonzero, exactly. So in a tile of equal pixels only frequency
 * (1, 1) is nonzero. */
enum pair { OUTER, ONES, HALF_AND_TWO, N_PAIRS };
static const int first_of[N_PAIRS] = {0, 1, 3}, second_of[N_PAIRS] = {5, 2, 4};

/* B': two rows of the transform of d. */
ALWAYS_INLINE void input_pair(const enum pair pair, const vf *d, vf *first, vf *second)
{
    const vf near = d[3] - d[1], far = d[4] - d[2];
    if (pair == OUTER) {
        *first = (far - (d[2] - d[0])) + 1.5f * near;
        *second = ((d[5] - d[3]) - near) + 1.5f * far;
    } else if (pair == ONES) {
        const vf even = far + 1.5f * d[3], odd = near + 1.5f * d[2];
        *first = even + odd;
        *second = even - odd;
    } else {
        *first = far + 2 * near;
        *second = far - 0.5f * near;
    }
}

/* The pixels of a tile that lie in the image: rows [top, bottom) and columns [left, right). */
struct inside {
    int top, left, bottom, right;
};

/* Channels of one column's pixels. Two addresses serve six rows: with one for each, most of the
 * time would go into addresses. */
ALWAYS_INLINE void load_column(const bool whole, const struct inside *in, int j, const float *x,
                               size_t row, vf d[SIDE])
{
    const float *far = x + 3 * row;
    KEEP_ADDRESS(far);
    UNROLLED(i, SIDE) {
        const float *from = (i < 3 ? x : far) + (size_t)(i % 3) * row;
        d[i] =
            whole ? load(from)
                  : load_if(i >= in->top && i < in->bottom && j >= in->left && j < in->right, from);
    }
}

/* A row of the result from a row of the columns' results. */
ALWAYS_INLINE void store_row(const vf columns[SIDE], size_t v_freq, float *v)
{
    float *far = v + 3 * v_freq;
    vf f[SIDE];
    KEEP_ADDRESS(v);
    KEEP_ADDRESS(far);
    UNROLLED(q, N_PAIRS) {
        input_pair(q, columns, &f[first_of[q]], &f[second_of[q]]);
    }
    UNROLLED(i, SIDE) {
        store((i < 3 ? v : far) + (size_t)(i % 3) * v_freq, f[i]);
    }
}

/* Two rows of the result at a time; it reloads pixels for each pair of rows, which costs less than
 * storing intermediate results. */
ALWAYS_INLINE void transform(const bool whole, const struct inside *in, const struct dt_winograd *w,
                             const float *x, size_t row, float *v)
{
    const size_t n_c = (size_t)w->c, v_freq = w->v_freq, v_row = SIDE * v_freq;
    for (size_t c = 0; c < n_c; c += VL, x += VL, v += VL) {
        UNROLLED(p, N_PAIRS) {
            vf first[SIDE], second[SIDE];
            const float *column = x;
            UNROLLED(j, SIDE) {
                vf d[SIDE];
                load_column(whole, in, j, column, row, d);
                input_pair(p, d, &first[j], &second[j]);
                column += n_c;
                KEEP_ADDRESS(column);
            }
            store_row(first, v_freq, v + (size_t)first_of[p] * v_row);
            store_row(second, v_freq, v + (size_t)second_of[p] * v_row);
            __asm__ volatile(
                "" ::
                    : "memory"); /* else the pixels are kept in more registers than there are */
        }
    }
}

/* Of a wider kernel, the tiles that its parts see. The last vector of one is overwritten by the
 * next. */
ALWAYS_INLINE void transform_parts(const bool whole, const struct inside *in,
                                   const struct dt_winograd *w, const float *x, size_t row,
                                   float *v)
{
    for (int i = 0; i < dt_winograd_parts(w); i++, v += w->c) {
        const int down = i / 2 * w->wider, right = i % 2 * w->wider;
        const struct inside of_part = {in->top - down, in->left - right, in->bottom - down,
                                       in->right - right};
        transform(whole, &of_part, w, x + (size_t)down * row + (size_t)right * (size_t)w->c, row,
                  v);
    }
}

void DT_KERNEL(winograd_input)(const struct dt_winograd *w, const float *x, size_t row, float *v)
{
    transform_parts(true, &(struct inside){0}, w, x, row, v);
}

static __attribute__((noinline)) void edge_input(const struct dt_winograd *w, const float *x,
                                                 size_t row, int y0, int x0, float *v)
{
    const struct inside in = {-y0, -x0, w->h - y0, w->w - x0};
    transform_parts(false, &in, w, x, row, v);
}

void DT_KERNEL(winograd_tile_input)(const struct dt_winograd *w, const float *x,
                                    const struct dt_winograd_area *tile, float *v)
{
    const int y0 = tile->top - w->top, x0 = tile->left - w->left;
    const size_t row = (size_t)w->w * (size_t)w->c;
    const int n = dt_winograd_seen(w);
    const float *from = x + ((ptrdiff_t)y0 * w->w + x0) * w->c;
    if (y0 >= 0 && x0 >= 0 && y0 + n <= w->h && x0 + n <= w->w) {
        DT_KERNEL(winograd_input)(w, from, row, v);
    } else {
        edge_input(w, from, row, y0, x0, v);
    }
}

/* Copies a tile that crosses the image's edge: its pixels, framed with zeros. */
static void copy_edge(const struct dt_winograd *w, const float *x, int y0, int x0, float *edge)
{
    const int n = dt_winograd_seen(w), begin = x0 < 0 ? -x0 : 0, end = dt_min(n, w->w - x0);
    const size_t n_c = (size_t)w->c;
    memset(edge, 0, (size_t)(n * n) * n_c * sizeof(float));
    for (int i = 0; i < n; i++) {
        if (y0 + i >= 0 && y0 + i < w->h && begin < end) {
            memcpy(edge + (size_t)(i * n + begin) * n_c,
                   x + ((size_t)(y0 + i) * (size_t)w->w + (size_t)(x0 + begin)) * n_c,
                   (size_t)(end - begin) * n_c * sizeof(float));
        }
    }
}

const float *DT_KERNEL(winograd_tile)(const struct dt_winograd *w, const float *x,
                                      const struct dt_winograd_area *tile, float *edge, size_t *row)
{
    const int y0 = tile->top - w->top, x0 = tile->left - w->left;
    const int n = dt_winograd_seen(w);
    if (y0 >= 0 && x0 >= 0 && y0 + n <= w->h && x0 + n <= w->w) {
        *row = (size_t)w->w * (size_t)w->c;
        return x + ((size_t)y0 * (size_t)w->w + (size_t)x0) * (size_t)w->c;
    }
    *row = (size_t)n * (size_t)w->c;
    copy_edge(w, x, y0, x0, edge);
    return edge;
}

void DT_KERNEL(winograd_faint)(const struct dt_winograd *w, const float *x,
                               const struct dt_winograd_area *tile, float *edge)
{
    const size_t n_c = (size_t)w->c;
    const int n = dt_winograd_seen(w), kernel = dt_winograd_kernel(w);
    uint64_t window = 0, seen = 0; /* pixels that an output reads, and those that these do */
    for (int i = 0; i < kernel; i++) {
        window |= (((uint64_t)1 << kernel) - 1) << i * n;
    }
    for (int i = 0; i < M * M; i++) {
        seen |= tile->faint >> i & 1 ? window << (i / M * n + i % M) : 0;
    }
    copy_edge(w, x, tile->top - w->top, tile->left - w->left, edge);
    for (int i = 0; i < n * n; i++) {
        if ((seen >> i & 1) == 0) {
            memset(edge + (size_t)i * n_c, 0, n_c * sizeof(float));
        }
    }
}

void DT_KERNEL(winograd_uniform)(const struct dt_winograd *w, const float *x, float *v)
{
    for (int part = 0; part < dt_winograd_parts(w); part++, v += w->c) {
        for (int c = 0; c < w->c; c += VL) {
            const vf pixel = load(x + c), d[SIDE] = {pixel, pixel, pixel, pixel, pixel, pixel};
            vf first, zero;
            input_pair(ONES, d, &first, &zero);
            const vf row[SIDE] = {first, first, first, first, first, first};
            input_pair(ONES, row, &first, &zero);
            store(v + c, first);
        }
    }
}
