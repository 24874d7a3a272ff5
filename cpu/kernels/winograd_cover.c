/* Which parts of an image tiles have to cover. Outputs whose 3 x 3 inputs are one and the same pixel are all alike. So one such
 * pixel is looked for, its output is made once, and written wherever outputs see nothing else. Tiles cover the rest in bands of
 * rows: a band begins where an output sees something else again, and in it so does each tile. None overlaps another, and where they
 * lie depends on the image alone: an output's rounding depends on its place in the tile. */
#include "cpu/kernels/winograd_kernel.h"

enum { KERNEL = 3 };

/* Whether two pixels have other bits. */
ALWAYS_INLINE bool differ(const size_t n_c, const float *a, const float *b)
{
    vi difference = {0};
    size_t c = 0;
    for (; c + VL <= n_c; c += VL) {
        difference |= (vi)load(a + c) ^ (vi)load(b + c);
    }
    if (c < n_c) {
        difference |= ((vi)load(a + c) ^ (vi)load(b + c)) & first_lanes((int)(n_c - c));
    }
    return lanes_with_bits(difference) != 0;
}

/* Whether 3 x 3 pixels are alike. */
static bool all_alike(size_t n_c, const float *x, size_t row)
{
    for (size_t i = 0; i < KERNEL; i++) {
        for (size_t j = 0; j < KERNEL; j++) {
            if (differ(n_c, x + i * row + j * n_c, x)) {
                return false;
            }
        }
    }
    return true;
}

/* It is the first of 3 x 3 alike. Places are M apart, so that 6 x 6 alike, wherever they are, have one of them. */
const float *DT_KERNEL(winograd_common)(const struct dt_winograd *w, const float *x)
{
    const size_t n_c = (size_t)w->c, row = (size_t)w->w * n_c;
    for (int i = 0; i + KERNEL <= w->h; i += M) {
        for (int j = 0; j + KERNEL <= w->w; j += M) {
            const float *from = x + (size_t)i * row + (size_t)j * n_c;
            if (all_alike(n_c, from, row)) {
                return from;
            }
        }
    }
    return NULL;
}

/* Whether a pixel has a channel that is not zero; -0 is. */
ALWAYS_INLINE bool is_inked(const size_t n_c, const float *pixel)
{
    vi any = {0};
    size_t c = 0;
    for (; c + VL <= n_c; c += VL) {
        any |= (vi)load(pixel + c);
    }
    if (c < n_c) {
        any |= (vi)load(pixel + c) & first_lanes((int)(n_c - c));
    }
    return lanes_with_bits(any & INT32_MAX) != 0;
}

/* Bit j of a row's words is set where pixel j is another than `common`, unless that is NULL, and where it is inked. */
ALWAYS_INLINE void find_pixels(const size_t n_c, const struct dt_winograd *w, const float *x, const float *common, uint64_t *other,
                               uint64_t *inked)
{
    for (int i = 0; i < w->h; i++) {
        for (int first = 0; first < w->w; first += 64, other++, inked++) {
            const int n = dt_min(64, w->w - first);
            *other = *inked = 0;
            for (int j = 0; j < n; j++, x += n_c) {
                *inked |= (uint64_t)is_inked(n_c, x) << j;
                *other |= common != NULL ? (uint64_t)differ(n_c, x, common) << j : 0;
            }
        }
    }
}

/* The first bit from `from` to the one before `end` that is set; or `end`. */
static int first_bit(const uint64_t *word, int from, int end)
{
    for (int at = from; at < end; at = at / 64 * 64 + 64) {
        const uint64_t bits = word[at / 64] >> at % 64;
        if (bits != 0) {
            return dt_min(at + __builtin_ctzll(bits), end);
        }
    }
    return end;
}

/* What outputs see of an image: all places are counted from the padding's corner. */
struct view {
    const struct dt_winograd *w;
    const uint64_t *others;      /* by rows; NULL: nothing is known to be alike */
    const uint64_t *inked;       /* by rows */
    bool pads_alike;             /* the zeros of the padding are like what is common */
    int n_rows, n_columns, step; /* of outputs; tiles begin at multiples of `step` */
};

/* In row i, the first place from `from` to the one before `end` where there is another pixel than the common one; or `end`. */
static int first_other(const struct view *s, int i, int from, int end)
{
    const struct dt_winograd *w = s->w;
    const int y = i - w->top, begin = from < w->left ? w->left : from, edge = dt_min(end, w->left + w->w);
    const bool inside = y >= 0 && y < w->h && begin < edge;
    if (!s->pads_alike && (!inside || from < w->left)) {
        return from;
    }
    if (!inside) {
        return end;
    }
    const int first = first_bit(s->others + (size_t)y * dt_winograd_row_words(w), begin - w->left, edge - w->left) + w->left;
    return first == edge && s->pads_alike ? end : first;
}

/* Where a band or a tile begins, the first of whose outputs from `from` on sees place `first`. Before the end it begins earlier, as
 * far as it may: tiles that reach over the end take longer. */
static int begin_at(const struct view *s, int first, int from, int end)
{
    const int at = dt_min(first - (KERNEL - 1), end - M);
    return at > from ? at / s->step * s->step : from;
}

/* The first row of the next band, or n_rows. */
static int next_band(const struct view *s, int from)
{
    const int end = s->n_rows + KERNEL - 1, width = s->n_columns + KERNEL - 1;
    for (int i = from; i < end && s->others != NULL; i++) {
        if (first_other(s, i, 0, width) < width) {
            return begin_at(s, i, from, s->n_rows);
        }
    }
    return s->others != NULL ? s->n_rows : from;
}

/* The first column of the next tile of the band from row `top` to the one before `bottom`, or n_columns. */
static int next_column(const struct view *s, int top, int bottom, int from)
{
    const int width = s->n_columns + KERNEL - 1;
    int first = s->others != NULL ? width : from;
    for (int i = top; i < bottom + KERNEL - 1 && first > from; i++) {
        first = first_other(s, i, from, first);
    }
    return first < width ? begin_at(s, first, from, s->n_columns) : s->n_columns;
}

/* The inked pixels of row i that a tile sees; bit 0 is place `left`. */
static uint64_t inked_in_row(const struct view *s, int i, int left)
{
    const int y = i - s->w->top, x = left - s->w->left, n_words = (int)dt_winograd_row_words(s->w);
    if (y < 0 || y >= s->w->h || x >= s->w->w) {
        return 0;
    }
    const uint64_t *word = s->inked + (size_t)y * (size_t)n_words;
    if (x < 0) {
        return word[0] << -x;
    }
    const bool two = x % 64 > 64 - SIDE && x / 64 + 1 < n_words;
    return word[x / 64] >> x % 64 | (two ? word[x / 64 + 1] << (64 - x % 64) : 0);
}

/* The outputs of a tile that see nothing but zeros, as struct dt_winograd_area has them. */
static uint32_t zero_outputs(const struct view *s, int top, int left)
{
    uint64_t seen[SIDE];
    uint32_t zeros = 0;
    for (int i = 0; i < SIDE; i++) {
        const uint64_t row = inked_in_row(s, top + i, left);
        seen[i] = row | row >> 1 | row >> 2;
    }
    for (int i = 0; i < M; i++) {
        zeros |= (uint32_t)(~(seen[i] | seen[i + 1] | seen[i + 2]) & ((1u << M) - 1)) << M * i;
    }
    return zeros;
}

static bool fill(const struct view *s, const struct dt_conv_outputs *out, struct dt_winograd_area area, const float *m)
{
    return area.top == area.bottom || area.left == area.right || DT_KERNEL(winograd_output)(s->w, out, &area, true, m);
}

int DT_KERNEL(winograd_cover)(const struct dt_winograd *w, const struct dt_conv_outputs *out, int image, const float *x,
                              const float *common, const float *m, uint64_t *pixels, struct dt_winograd_area *tile, bool *finite)
{
    const int step = out->pool ? 2 : 1;
    const bool zeros = common != NULL && !is_inked((size_t)w->c, common);
    const float *colour = zeros ? NULL : common; /* others than zeros are those that are inked */
    uint64_t *inked = pixels + (size_t)w->h * dt_winograd_row_words(w);
    if (w->c == 2 * VL) {
        find_pixels(2 * VL, w, x, colour, pixels, inked);
    } else {
        find_pixels((size_t)w->c, w, x, colour, pixels, inked);
    }
    const struct view s = {.w = w,
                           .others = common == NULL ? NULL
                                     : zeros        ? inked
                                                    : pixels,
                           .inked = inked,
                           .pads_alike = zeros,
                           .n_rows = w->out_h / step * step,
                           .n_columns = w->out_w / step * step,
                           .step = step};
    int n_tiles = 0;
    for (int from = 0, bottom; from < s.n_rows; from = bottom) {
        const int top = next_band(&s, from);
        bottom = dt_min(top + M, s.n_rows);
        *finite = fill(&s, out, (struct dt_winograd_area){image, from, 0, top, s.n_columns, 0}, m) && *finite;
        for (int end = 0, right; top < bottom && end < s.n_columns; end = right) {
            const int left = next_column(&s, top, bottom, end);
            right = dt_min(left + M, s.n_columns);
            *finite = fill(&s, out, (struct dt_winograd_area){image, top, end, bottom, left, 0}, m) && *finite;
            if (left < right) {
                tile[n_tiles++] = (struct dt_winograd_area){image, top, left, bottom, right, zero_outputs(&s, top, left)};
            }
        }
    }
    return n_tiles;
}
