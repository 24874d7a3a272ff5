/* Shapes of convolutions by Winograd's method; and one such, its exact sums in double, and how
 * outputs are compared with them: for test_winograd.c and test_winograd_blank.c. Buffers have guard
 * words on both sides, NaNs that no result may read nor write. */
#ifndef DT_TESTS_WINOGRAD_PROBLEM_H
#define DT_TESTS_WINOGRAD_PROBLEM_H

#include "tests/lib/guarded.h"
#include "tests/unit/cpu/modes.h"

#define N_IMAGES 3

static int wider; /* than 3 x 3, of every shape */

static inline struct dt_winograd winograd_shape(int c, int k, int h, int w, bool same)
{
    const int kernel = 3 + wider, pad = same ? (kernel - 1) / 2 : 0;
    snprintf(case_text, sizeof case_text, "%s, %dx%dx%d to %d, kernel %d, %s", kernels->isa, c, h,
             w, k, kernel, same ? "same" : "valid");
    return (struct dt_winograd){.c = c,
                                .h = h,
                                .w = w,
                                .top = pad,
                                .left = pad,
                                .k = k,
                                .out_h = same ? h : h - kernel + 1,
                                .out_w = same ? w : w - kernel + 1,
                                .wider = wider};
}

/* Also shapes for which blocks would not use the method: channels and filters that fill no vector,
 * images smaller than a tile, remainders of tiles and pools, padding. */
static inline void on_shapes(void (*check)(int c, int k, int h, int w, bool same))
{
    static const int channels[] = {1, 3, 5, 16, 27, 40}, filters[] = {1, 5, 16, 27, 64, 70},
                     sides[] = {3, 4, 5, 6, 7, 8, 11, 14};
    for (int i = 0; i < 6 * 6 * 8; i += EVERY(5)) {
        const int h = sides[i % 8], w = sides[draw(8)];
        const bool fits = dt_min(h, w) >= 3 + wider;
        check(channels[i / 48], filters[i / 8 % 6], h, w, draw(2) == 1 || !fits);
    }
    for (int i = 1; i <= 2; i++) { /* "same" alone allows images this small */
        check(9, 20, i, 3 - i, true);
    }
}

struct problem {
    struct dt_winograd w;
    struct buffer x, weight, bias, packed, scratch;
    double *z;      /* (images, out_h, out_w, k) the exact outputs before ReLU */
    bool *is_blank; /* of each: it sees nothing but zeros, so it has to be its bias */
    size_t n_x, n_z;
    double scale; /* the largest of them */
};

static inline double exact(const struct problem *s, size_t image, int p, int q, int k,
                           bool *is_blank)
{
    const struct dt_winograd *w = &s->w;
    double sum = (double)s->bias.data[k];
    *is_blank = true;
    const int kernel = 3 + w->wider, n_taps = kernel * kernel;
    for (int tap = 0; tap < n_taps; tap++) {
        const int h = p + tap / kernel - w->top, v = q + tap % kernel - w->left;
        for (int c = 0; h >= 0 && h < w->h && v >= 0 && v < w->w && c < w->c; c++) {
            const float x = s->x.data[image * s->n_x + (size_t)((h * w->w + v) * w->c + c)];
            sum += (double)x * s->weight.data[(k * w->c + c) * n_taps + tap];
            *is_blank = *is_blank && x == 0;
        }
    }
    return sum;
}

static inline void compute_exact(struct problem *s)
{
    const struct dt_winograd *w = &s->w;
    double *z = s->z;
    bool *is_blank = s->is_blank;
    s->scale = 1;
    for (size_t image = 0; image < N_IMAGES; image++) {
        for (int i = 0; i < w->out_h * w->out_w; i++) {
            for (int k = 0; k < w->k; k++) {
                *z = exact(s, image, i / w->out_w, i % w->out_w, k, is_blank++);
                s->scale = fmax(s->scale, fabs(*z++));
            }
        }
    }
}

/* Leaves the first image as it is, gives the second equal pixels to the right, and makes the last
 * one blank. */
static inline void blank_parts(struct problem *s)
{
    const size_t n_c = (size_t)s->w.c, n_w = (size_t)s->w.w, n_pixels = (size_t)s->w.h * n_w;
    for (size_t i = n_pixels; i < N_IMAGES * n_pixels; i++) {
        const bool blank = i >= (N_IMAGES - 1) * n_pixels || i % n_w >= n_w / 3;
        for (size_t c = 0; c < n_c && blank; c++) {
            s->x.data[i * n_c + c] = s->x.data[c];
        }
    }
}

static inline struct problem problem_open(int c, int k, int h, int w, bool same)
{
    struct problem s = {.w = winograd_shape(c, k, h, w, same)};
    dt_winograd_plan(&s.w, kernels->vector);
    s.n_x = (size_t)(c * h * w);
    s.n_z = (size_t)(s.w.out_h * s.w.out_w * k);
    s.x = buffer_uniform(N_IMAGES * s.n_x, 1);
    if (draw(4) == 0) {
        blank_parts(&s);
    }
    const int kernel = 3 + wider;
    s.weight = buffer_uniform((size_t)(kernel * kernel * c * k), sqrtf(2.0f / (float)(kernel * c)));
    s.bias = buffer_uniform((size_t)k, 0.5f);
    for (size_t i = 0; i < s.bias.n; i += 2) {
        s.bias.data[i] = 0;
    }
    s.packed = buffer_open(dt_winograd_packed_elems(&s.w));
    s.scratch = buffer_open(dt_winograd_scratch_elems(&s.w));
    s.z = calloc(N_IMAGES * s.n_z, sizeof(double));
    s.is_blank = calloc(N_IMAGES * s.n_z, sizeof(bool));
    CHECK(s.z != NULL && s.is_blank != NULL);
    compute_exact(&s);
    kernels->winograd_pack(&s.w, s.weight.data, s.packed.data);
    return s;
}

static inline void problem_close(struct problem *s)
{
    BUFFERS_CLOSE(&s->x, &s->weight, &s->bias, &s->packed, &s->scratch);
    free(s->z);
    free(s->is_blank);
}

static inline void check_near(const struct problem *s, const char *what, size_t i, float actual,
                              double expected, bool exactly)
{
    if (!(fabs((double)actual - expected) <= (exactly ? 0 : 1e-5 * s->scale))) {
        CHECK_FAIL("%s: %s[%zu] is %.9g, the exact sum %.9g%s, the largest %.3g", case_text, what,
                   i, (double)actual, expected, exactly ? " of zeros" : "", s->scale);
    }
}

/* All images; returns which have a number that is not finite, one bit each. */
static inline int forward(const struct problem *s, const struct dt_conv_outputs *out)
{
    return (int)kernels->winograd_forward(&s->w, N_IMAGES, s->x.data, s->packed.data, out,
                                          s->scratch.data);
}

/* `blanks`: where an output sees nothing but zeros, it is exactly its bias. */
static inline void check_outputs(const struct problem *s, const char *what, const struct buffer *y,
                                 bool relu, bool blanks)
{
    for (size_t i = 0; i < y->n; i++) {
        check_near(s, what, i, y->data[i], relu ? fmax(s->z[i], 0) : s->z[i],
                   blanks && s->is_blank[i]);
    }
}

/* All images together, then one by one and by another number of tiles at a time: the same bits.
 * Then without making blank parts shorter, and without care for small outputs. */
static inline void check_plain(const struct problem *s, bool relu)
{
    struct buffer y = buffer_open(N_IMAGES * s->n_z), again = buffer_open(y.n);
    struct dt_conv_outputs out = {.bias = s->bias.data, .relu = relu, .y = y.data};
    struct problem other = *s;
    forward(s, &out);
    check_outputs(s, "y", &y, relu, true);
    other.w.group = 2 + (int)draw((uint32_t)s->w.group - 1);
    for (size_t image = N_IMAGES; image-- > 0;) {
        out.y = again.data + image * s->n_z;
        kernels->winograd_forward(&other.w, 1, s->x.data + image * s->n_x, s->packed.data, &out,
                                  s->scratch.data);
    }
    CHECK(memcmp(y.data, again.data, y.n * sizeof(float)) == 0);
    other.w.skips_uniform = false;
    out.y = again.data;
    forward(&other, &out);
    check_outputs(s, "y of tiles alone", &again, relu, true);
    other.w.plain = true;
    forward(&other, &out);
    check_outputs(s, "plain y", &again, relu, false);
    BUFFERS_CLOSE(&y, &again);
}

/* The bits of one window, of which at most one is set: its place, or -1. */
static inline int survivor(const struct dt_winograd *w, const uint64_t *word, size_t image,
                           size_t p, size_t q, size_t k)
{
    const size_t n_words = dt_nonzero_words(w->k), n_w = (size_t)w->out_w;
    int place = -1;
    for (int i = 0; i < 4; i++) {
        const size_t at =
            (image * (size_t)w->out_h + 2 * p + (size_t)(i / 2)) * n_w + 2 * q + (size_t)(i % 2);
        if (word[at * n_words + k / 64] >> k % 64 & 1) {
            CHECK(place < 0);
            place = i;
        }
    }
    return place;
}

/* One pooled output: its value, and that its bit, if it is positive, is set where the window is
 * largest but for rounding; where it sees nothing but zeros, that it is exactly its bias, and the
 * first of the four. */
static inline void check_window(const struct problem *s, size_t i, float y, const uint64_t *word,
                                float factor)
{
    const size_t k = (size_t)s->w.k, w = (size_t)s->w.out_w, columns = w / 2,
                 n_image = (size_t)(s->w.out_h / 2) * columns * k;
    const size_t image = i / n_image, p = i % n_image / (columns * k), q = i % (columns * k) / k;
    const size_t at = image * s->n_z + (2 * p * w + 2 * q) * k + i % k;
    const double *z = s->z + at;
    const bool *b = s->is_blank + at, blank = b[0] && b[k] && b[w * k] && b[(w + 1) * k];
    const double window[4] = {fmax(z[0], 0), fmax(z[k], 0), fmax(z[w * k], 0),
                              fmax(z[(w + 1) * k], 0)};
    const double best = fmax(fmax(window[0], window[1]), fmax(window[2], window[3]));
    const int place = survivor(&s->w, word, image, p, q, i % k);
    check_near(s, "pooled", i, y, best * (double)factor, blank);
    CHECK((place >= 0) == (y > 0));
    CHECK(place < 0 || (blank ? place == 0 : window[place] >= best - 1e-5 * s->scale));
}

/* Words begin as zeros, and no bit is set for filters that are not there and positions outside of
 * all windows. */
static inline void check_other_bits(const struct dt_winograd *w, const uint64_t *word)
{
    for (int i = 0; i < N_IMAGES * w->out_h * w->out_w; i++) {
        const bool outside =
            i / w->out_w % w->out_h / 2 == w->out_h / 2 || i % w->out_w / 2 == w->out_w / 2;
        for (int k0 = 0; k0 < w->k; k0 += 64, word++) {
            const uint64_t there = outside          ? 0
                                   : w->k - k0 < 64 ? ((uint64_t)1 << (w->k - k0)) - 1
                                                    : UINT64_MAX;
            CHECK((*word & ~there) == 0);
        }
    }
}

static inline struct buffer buffer_words(const struct dt_winograd *w)
{
    return buffer_open(2 * (size_t)(N_IMAGES * w->out_h * w->out_w) * dt_nonzero_words(w->k));
}

static inline void check_pooled(const struct problem *s, bool drops)
{
    const size_t n =
        N_IMAGES * (size_t)(s->w.out_h / 2) * (size_t)(s->w.out_w / 2) * (size_t)s->w.k;
    struct buffer y = buffer_open(n), eval_y = buffer_open(n), words = buffer_words(&s->w),
                  keep = buffer_open(n / 4 + 1);
    uint64_t *word = (uint64_t *)words.data;
    uint8_t *kept = (uint8_t *)keep.data;
    for (size_t i = 0; i < n; i++) {
        kept[i] = draw(4) != 0;
    }
    struct dt_conv_outputs out = {.bias = s->bias.data,
                                  .relu = true,
                                  .pool = true,
                                  .y = y.data,
                                  .bitmask = word,
                                  .mask = drops ? kept : NULL,
                                  .scale = 1.25f};
    forward(s, &out);
    for (size_t i = 0; i < n; i++) {
        check_window(s, i, y.data[i], word, drops ? (kept[i] ? 1.25f : 0.0f) : 1.0f);
    }
    check_other_bits(&s->w, word);
    out.y = eval_y.data; /* as in evaluation */
    out.bitmask = NULL;
    out.mask = NULL;
    forward(s, &out);
    for (size_t i = 0; i < n; i++) {
        CHECK(y.data[i] == eval_y.data[i] * (drops ? (kept[i] ? 1.25f : 0.0f) : 1.0f));
    }
    BUFFERS_CLOSE(&y, &eval_y, &words, &keep);
}

/* Puts one pixel into a rectangle of an image; NULL: noise. */
static inline void paint(struct problem *s, size_t image, int top, int left, int bottom, int right,
                         const float *pixel)
{
    const int n_c = s->w.c;
    for (int h = top; h < bottom; h++) {
        for (int v = left; v < right; v++) {
            float *at = s->x.data + image * s->n_x + (size_t)((h * s->w.w + v) * n_c);
            for (int c = 0; c < n_c; c++) {
                at[c] = pixel != NULL ? pixel[c] : (float)draw(1 << 16) / (1 << 15) - 1.0f;
            }
        }
    }
}

#endif
