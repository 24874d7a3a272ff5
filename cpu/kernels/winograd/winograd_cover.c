/* Chooses the parts of an image that tiles must cover. Outputs whose inputs are all equal to
 * one pixel are equal. So one such pixel, the background, is searched, its output is computed once,
 * and written wherever outputs see nothing else. Tiles cover the rest in bands of rows: a band
 * begins at the first output that sees something else again, and so does each tile in it. Tiles do
 * not overlap, and their places depend on the image alone, because an output's rounding depends on
 * its place in the tile. */
#include "cpu/kernels/winograd/winograd_kernel.h"

/* Pixels that are smaller than others by this many powers of two are faint beside them. With
 * padding, the padding meets the background, and many outputs see both; without, few pixels are
 * faint, and the faint edges of ink do not pay for another tile. */
enum { FAINT = 12, FAINT_BY_PADS = 8 };

static int faint_gap(const struct dt_winograd *w)
{
    const int beyond = dt_winograd_kernel(w) - 1;
    return w->out_h + beyond > w->h || w->out_w + beyond > w->w ? FAINT_BY_PADS : FAINT;
}

/* A vector of a pixel's channels from c on; zeros after the last one. */
ALWAYS_INLINE vi channels(const size_t n_c, const float *pixel, size_t c)
{
    const vi all = (vi)load(pixel + c);
    return n_c - c >= VL ? all : all & first_lanes((int)(n_c - c));
}

/* True if two pixels differ in their bits. */
ALWAYS_INLINE bool differ(const size_t n_c, const float *a, const float *b)
{
    vi difference = {0};
    for (size_t c = 0; c < n_c; c += VL) {
        difference |= channels(n_c, a, c) ^ channels(n_c, b, c);
    }
    return lanes_with_bits(difference) != 0;
}

/* True if n x n pixels are equal. */
static bool all_alike(size_t n, size_t n_c, const float *x, size_t row)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            if (differ(n_c, x + i * row + j * n_c, x)) {
                return false;
            }
        }
    }
    return true;
}

/* The first of such equal pixels that include pixel `at` of row `row_at`; or NULL. */
static const float *alike_around(const struct dt_winograd *w, const float *x, int row_at, int at)
{
    const size_t n_c = (size_t)w->c, row = (size_t)w->w * n_c;
    const int n = dt_winograd_kernel(w);
    for (int i = row_at - (n - 1); i <= dt_min(row_at, w->h - n); i++) {
        for (int j = at - (n - 1); j <= dt_min(at, w->w - n); j++) {
            const float *from = x + (size_t)i * row + (size_t)j * n_c;
            if (all_alike((size_t)n, n_c, from, row)) {
                return from;
            }
        }
    }
    return NULL;
}

/* Tests pixels as far apart as a kernel is wide: whatever an output sees includes one of them, with
 * an equal neighbour if all are equal. */
const float *DT_KERNEL(winograd_common)(const struct dt_winograd *w, const float *x)
{
    const size_t n_c = (size_t)w->c;
    const int n = dt_winograd_kernel(w);
    for (int i = n - 1; i < w->h; i += n) {
        for (int j = n - 1; j < w->w; j += n) {
            const float *at = x + ((size_t)i * (size_t)w->w + (size_t)j) * n_c;
            const bool may =
                !differ(n_c, at, at - n_c) || (j + 1 < w->w && !differ(n_c, at, at + n_c));
            const float *found = may ? alike_around(w, x, i, j) : NULL;
            if (found != NULL) {
                return found;
            }
        }
    }
    return NULL;
}

/* Lane by lane, the largest absolute value of a pixel's channels, and of `most`. */
ALWAYS_INLINE vf largest(const size_t n_c, const float *pixel, vf most)
{
    for (size_t c = 0; c < n_c; c += VL) {
        most = larger((vf)(channels(n_c, pixel, c) & INT32_MAX), most);
    }
    return most;
}

/* True if a pixel has a nonzero channel; -0 counts as zero. */
ALWAYS_INLINE bool is_nonzero(const size_t n_c, const float *pixel)
{
    vi any = {0};
    for (size_t c = 0; c < n_c; c += VL) {
        any |= channels(n_c, pixel, c);
    }
    return lanes_with_bits(any & INT32_MAX) != 0;
}

ALWAYS_INLINE float largest_lane(vf v)
{
    UNROLL
    for (int n = VL / 2; n > 0; n /= 2) {
        v = larger(v, shuffle(v, v, (lane_numbers() + n) & (VL - 1)));
    }
    return v[0];
}

/* Biased, as stored in a float: 0 for zero. */
static int exponent(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return (int)(bits >> 23);
}

static float two_to(int biased)
{
    const uint32_t bits = biased > 0 ? (uint32_t)biased << 23 : 0;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* True if the absolute value of one of a pixel's channels reaches the limit. */
ALWAYS_INLINE bool reaches(const size_t n_c, const float *pixel, float limit)
{
    const vf most = largest(n_c, pixel, (vf){0});
    return lane_bits(greater((vf){0} + limit, most)) != (1u << VL) - 1;
}

/* Upper limit (exclusive) of the pixels that are faint in this image; 0: none are. A maximum waits
 * for the one before it, so there are several. */
static float faint_limit(const struct dt_winograd *w, const float *x)
{
    enum { N = 4 };
    const size_t n_elems = (size_t)w->h * (size_t)w->w * (size_t)w->c,
                 n_whole = n_elems / (N * VL) * (N * VL);
    vf most[N] = {0};
    for (size_t i = 0; i < n_whole; i += N * VL) {
        UNROLLED(j, N) {
            most[j] = largest(VL, x + i + j * VL, most[j]);
        }
    }
    const vf all = larger(larger(most[0], most[1]), larger(most[2], most[3]));
    return two_to(exponent(largest_lane(largest(n_elems - n_whole, x + n_whole, all))) -
                  faint_gap(w) + 1);
}

/* Sets bit j of a row's words if pixel j differs from the background, which is `background`, or
 * zeros if that is NULL. Returns true if some pixels are faint beside others. Without branches,
 * because ink begins anywhere. */
ALWAYS_INLINE bool find_pixels(const size_t n_c, const struct dt_winograd *w, const float *x,
                               const float *background, uint64_t *other)
{
    const float limit = faint_limit(w, x);
    uint64_t has_faint = background != NULL && !reaches(n_c, background, limit);
    for (int i = 0; i < w->h; i++) {
        for (int first = 0; first < w->w; first += 64, other++) {
            const int n = dt_min(64, w->w - first);
            uint64_t bits = 0, large = 0;
            for (int j = 0; j < n; j++, x += n_c) {
                const bool is_other =
                    background != NULL ? differ(n_c, x, background) : is_nonzero(n_c, x);
                bits |= (uint64_t)is_other << j;
                large |= (uint64_t)reaches(n_c, x, limit) << j;
            }
            has_faint |= bits & ~large;
            *other = bits;
        }
    }
    return has_faint != 0;
}

static void find_magnitudes(const struct dt_winograd *w, const float *x, uint8_t *magnitude)
{
    const size_t n_pixels = (size_t)w->h * (size_t)w->w, n_c = (size_t)w->c;
    for (size_t i = 0; i < n_pixels; i++) {
        magnitude[i] = (uint8_t)exponent(largest_lane(largest(n_c, x + i * n_c, (vf){0})));
    }
}

/* The first set bit in [from, end); or `end`. */
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

/* An image as its outputs see it: all places are counted from the padding's corner. */
struct view {
    const struct dt_winograd *w;
    const uint64_t *others;      /* per row */
    const uint8_t *magnitude;    /* per pixel; NULL: none is faint beside others */
    bool pads_alike;             /* the padding's zeros equal the background */
    int n_rows, n_columns, step; /* of outputs; tiles begin at multiples of `step` */
};

/* In row i, the first place in [from, end) with a pixel that differs from the background; or `end`.
 */
static int first_other(const struct view *s, int i, int from, int end)
{
    const struct dt_winograd *w = s->w;
    const int y = i - w->top, begin = from < w->left ? w->left : from,
              edge = dt_min(end, w->left + w->w);
    const bool inside = y >= 0 && y < w->h && begin < edge;
    if (!s->pads_alike && (!inside || from < w->left)) {
        return from;
    }
    if (!inside) {
        return end;
    }
    const int first = first_bit(s->others + (size_t)y * dt_winograd_row_words(w), begin - w->left,
                                edge - w->left) +
                      w->left;
    return first == edge && s->pads_alike ? end : first;
}

/* Start of a band or a tile whose first output from `from` on sees place `first`. Near the end it
 * begins earlier, as far as it may: tiles that cross the end take longer. */
static int begin_at(const struct view *s, int first, int from, int end)
{
    const int at = dt_min(first - (dt_winograd_kernel(s->w) - 1), end - M);
    return at > from ? at / s->step * s->step : from;
}

/* The first row of the next band, or n_rows. */
static int next_band(const struct view *s, int from)
{
    const int beyond = dt_winograd_kernel(s->w) - 1, end = s->n_rows + beyond,
              width = s->n_columns + beyond;
    for (int i = from; i < end && s->w->skips_uniform; i++) {
        if (first_other(s, i, 0, width) < width) {
            return begin_at(s, i, from, s->n_rows);
        }
    }
    return s->w->skips_uniform ? s->n_rows : from;
}

/* The first column of the next tile of the band [top, bottom), or n_columns. */
static int next_column(const struct view *s, int top, int bottom, int from)
{
    const int beyond = dt_winograd_kernel(s->w) - 1, width = s->n_columns + beyond;
    int first = s->w->skips_uniform ? width : from;
    for (int i = top; i < bottom + beyond && first > from; i++) {
        first = first_other(s, i, from, first);
    }
    return first < width ? begin_at(s, first, from, s->n_columns) : s->n_columns;
}

/* Bits of a tile's pixels of row i from place `left` on: set if they differ from the background. */
static uint64_t others_in_row(const struct view *s, int i, int left)
{
    const int y = i - s->w->top, x = left - s->w->left, n_words = (int)dt_winograd_row_words(s->w);
    const int n_seen = dt_winograd_seen(s->w), begin = dt_max(0, -x),
              end = dt_min(n_seen, s->w->w - x);
    if (y < 0 || y >= s->w->h || begin >= end) {
        return s->pads_alike ? 0 : UINT64_MAX;
    }
    const uint64_t *word = s->others + (size_t)y * (size_t)n_words,
                   inside = ((uint64_t)1 << end) - ((uint64_t)1 << begin);
    const bool two = x % 64 > 64 - n_seen && x / 64 + 1 < n_words;
    const uint64_t row =
        x < 0 ? word[0] << -x
              : word[x / 64] >> x % 64 | (two ? word[x / 64 + 1] << (64 - x % 64) : 0);
    return s->pads_alike ? row & inside : row | ~inside;
}

/* The outputs of a tile that see only the background, in the form of struct dt_winograd_area. */
static uint16_t background_outputs(const struct view *s, int top, int left)
{
    const int kernel = dt_winograd_kernel(s->w), n_seen = dt_winograd_seen(s->w);
    uint64_t
        row[M + DT_WINOGRAD_MAX_KERNEL - 1]; /* bit j: output j of a row sees such a pixel in it */
    uint32_t background = 0;
    for (int i = 0; i < n_seen; i++) {
        const uint64_t other = others_in_row(s, top + i, left);
        row[i] = 0;
        UNROLLED(j, DT_WINOGRAD_MAX_KERNEL) {
            row[i] |= j < kernel ? other >> j : 0;
        }
    }
    for (int p = 0; p < M; p++) {
        uint64_t seen = 0;
        UNROLLED(i, DT_WINOGRAD_MAX_KERNEL) {
            seen |= i < kernel ? row[p + i] : 0;
        }
        background |= (uint32_t)(~seen & ((1u << M) - 1)) << M * p;
    }
    return (uint16_t)background;
}

/* The largest magnitude that each output of a tile sees. */
static void find_seen(const struct view *s, int top, int left, int seen[M * M])
{
    const int y = top - s->w->top, x = left - s->w->left, n_seen = dt_winograd_seen(s->w),
              beyond = dt_winograd_kernel(s->w) - 1;
    memset(seen, 0, M * M * sizeof(int));
    for (int i = dt_max(0, -y); i < dt_min(n_seen, s->w->h - y); i++) {
        const uint8_t *magnitude = s->magnitude + (size_t)(y + i) * (size_t)s->w->w;
        for (int j = dt_max(0, -x); j < dt_min(n_seen, s->w->w - x); j++) {
            for (int p = dt_max(0, i - beyond); p <= dt_min(i, M - 1); p++) {
                for (int q = dt_max(0, j - beyond); q <= dt_min(j, M - 1); q++) {
                    seen[p * M + q] = dt_max(seen[p * M + q], magnitude[x + j]);
                }
            }
        }
    }
}

/* Expected wrong decisions if outputs that see at most magnitude `cut` get their own tile: each
 * one's errors are as large as the largest pixel of its tile. */
static uint64_t risk(const int seen[M * M], uint32_t outputs, int most, int cut)
{
    uint64_t sum = 0;
    for (int i = 0; i < M * M; i++) {
        const int distance = (seen[i] <= cut ? cut : most) - seen[i];
        sum += (uint64_t)(outputs >> i & 1) << dt_min(distance, 48);
    }
    return sum;
}

/* Chooses the faint outputs, if some are far below the largest: those below the best cut, because
 * magnitude may fall in many small steps. Zeros and the background need no care. */
static void find_faint(const struct view *s, struct dt_winograd_area *tile)
{
    int seen[M * M], least = UINT8_MAX, most = 0;
    uint64_t lowest = UINT64_MAX;
    find_seen(s, tile->top, tile->left, seen);
    for (int i = 0; i < M * M; i++) {
        tile->zeros |= (uint16_t)((seen[i] == 0 && (tile->background >> i & 1) == 0) << i);
    }
    const uint32_t outputs = (uint16_t) ~(tile->background | tile->zeros);
    for (int i = 0; i < M * M; i++) {
        least = outputs >> i & 1 ? dt_min(least, seen[i]) : least;
        most = dt_max(most, seen[i]);
    }
    for (int i = 0; i < M * M && most - least >= faint_gap(s->w); i++) {
        uint32_t faint = 0;
        for (int j = 0; j < M * M; j++) {
            faint |= (uint32_t)(seen[j] <= seen[i]) << j;
        }
        const uint64_t sum = seen[i] < most ? risk(seen, outputs, most, seen[i]) : UINT64_MAX;
        tile->faint = sum < lowest ? (uint16_t)(faint & outputs) : tile->faint;
        lowest = sum < lowest ? sum : lowest;
    }
}

static bool fill(const struct view *s, const struct dt_conv_outputs *out,
                 struct dt_winograd_area area, const float *m)
{
    return area.top == area.bottom || area.left == area.right ||
           DT_KERNEL(winograd_output)(s->w, out, &area, true, m, NULL);
}

int DT_KERNEL(winograd_cover)(const struct dt_winograd *w, const struct dt_conv_outputs *out,
                              int image, const float *x, const float *background, const float *m,
                              uint64_t *words, struct dt_winograd_area *tile, bool *finite)
{
    const int step = out->pool ? 2 : 1;
    const bool zeros = !is_nonzero((size_t)w->c, background);
    uint8_t *magnitude = (uint8_t *)(words + (size_t)w->h * dt_winograd_row_words(w));
    const float *other_than = zeros ? NULL : background;
    const bool has_faint = w->c == 2 * VL   ? find_pixels(2 * VL, w, x, other_than, words)
                           : w->c == 3 * VL ? find_pixels(3 * VL, w, x, other_than, words)
                                            : find_pixels((size_t)w->c, w, x, other_than, words);
    if (has_faint) {
        find_magnitudes(w, x, magnitude);
    }
    const struct view s = {.w = w,
                           .others = words,
                           .magnitude = has_faint ? magnitude : NULL,
                           .pads_alike = zeros,
                           .n_rows = w->out_h / step * step,
                           .n_columns = w->out_w / step * step,
                           .step = step};
    int n_tiles = 0;
    for (int from = 0, bottom; from < s.n_rows; from = bottom) {
        const int top = next_band(&s, from);
        bottom = dt_min(top + M, s.n_rows);
        *finite = fill(&s, out,
                       (struct dt_winograd_area){image, from, 0, top, s.n_columns, 0, 0, 0}, m) &&
                  *finite;
        for (int end = 0, right; top < bottom && end < s.n_columns; end = right) {
            const int left = next_column(&s, top, bottom, end);
            right = dt_min(left + M, s.n_columns);
            *finite = fill(&s, out,
                           (struct dt_winograd_area){image, top, end, bottom, left, 0, 0, 0}, m) &&
                      *finite;
            if (left < right) {
                tile[n_tiles] = (struct dt_winograd_area){
                    image, top, left, bottom, right, background_outputs(&s, top, left), 0, 0};
                if (s.magnitude != NULL) {
                    find_faint(&s, &tile[n_tiles]);
                }
                n_tiles++;
            }
        }
    }
    return n_tiles;
}
