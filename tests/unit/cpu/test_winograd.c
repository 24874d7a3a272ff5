/* The convolution by Winograd's method, kernel by kernel, against sums in double, on every
 * instruction set of this machine and for shapes of every kind, also those for which blocks would
 * not use it: channels and filters that fill no vector, images smaller than a tile, remainders of
 * tiles and pools, padding, parts of equal pixels. Buffers have guard words on both sides, NaNs
 * that no result may read nor write. test_winograd_block.c has whole blocks. */
#include "tests/lib/guarded.h"

#include "cpu/isa.h"
#include "cpu/kernels/kernels.h"

#define N_IMAGES 3

static const struct dt_cpu_kernels *kernels;

struct problem {
    struct dt_winograd w;
    struct buffer x, weight, bias, packed, scratch;
    double *z;      /* (images, out_h, out_w, k) the exact outputs before ReLU */
    bool *is_blank; /* of each: it sees nothing but zeros, so it has to be its bias */
    size_t n_x, n_z;
    double scale; /* the largest of them */
};

static double exact(const struct problem *s, size_t image, int p, int q, int k, bool *is_blank)
{
    const struct dt_winograd *w = &s->w;
    double sum = (double)s->bias.data[k];
    *is_blank = true;
    for (int tap = 0; tap < 9; tap++) {
        const int h = p + tap / 3 - w->top, v = q + tap % 3 - w->left;
        for (int c = 0; h >= 0 && h < w->h && v >= 0 && v < w->w && c < w->c; c++) {
            const float x = s->x.data[image * s->n_x + (size_t)((h * w->w + v) * w->c + c)];
            sum += (double)x * s->weight.data[(k * w->c + c) * 9 + tap];
            *is_blank = *is_blank && x == 0;
        }
    }
    return sum;
}

static void compute_exact(struct problem *s)
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
static void blank_parts(struct problem *s)
{
    const size_t n_c = (size_t)s->w.c, n_w = (size_t)s->w.w, n_pixels = (size_t)s->w.h * n_w;
    for (size_t i = n_pixels; i < N_IMAGES * n_pixels; i++) {
        const bool blank = i >= (N_IMAGES - 1) * n_pixels || i % n_w >= n_w / 3;
        for (size_t c = 0; c < n_c && blank; c++) {
            s->x.data[i * n_c + c] = s->x.data[c];
        }
    }
}

static struct problem problem_open(int c, int k, int h, int w, bool same)
{
    const int pad = same ? 1 : 0;
    struct problem s = {.w = {.c = c,
                              .h = h,
                              .w = w,
                              .top = pad,
                              .left = pad,
                              .k = k,
                              .out_h = h - 2 + 2 * pad,
                              .out_w = w - 2 + 2 * pad}};
    dt_winograd_plan(&s.w, kernels->vector);
    s.n_x = (size_t)(c * h * w);
    s.n_z = (size_t)(s.w.out_h * s.w.out_w * k);
    s.x = buffer_uniform(N_IMAGES * s.n_x, 1);
    if (draw(4) == 0) {
        blank_parts(&s);
    }
    s.weight = buffer_uniform((size_t)(9 * c * k), sqrtf(2.0f / (float)(3 * c)));
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
    snprintf(case_text, sizeof case_text, "%s, %dx%dx%d to %d, %s", kernels->isa, c, h, w, k,
             same ? "same" : "valid");
    return s;
}

static void problem_close(struct problem *s)
{
    buffer_close(&s->x, "x");
    buffer_close(&s->weight, "weight");
    buffer_close(&s->bias, "bias");
    buffer_close(&s->packed, "packed");
    buffer_close(&s->scratch, "scratch");
    free(s->z);
    free(s->is_blank);
}

static void check_near(const struct problem *s, const char *what, size_t i, float actual,
                       double expected, bool exactly)
{
    if (!(fabs((double)actual - expected) <= (exactly ? 0 : 1e-5 * s->scale))) {
        CHECK_FAIL("%s: %s[%zu] is %.9g, the exact sum %.9g%s, the largest %.3g", case_text, what,
                   i, (double)actual, expected, exactly ? " of zeros" : "", s->scale);
    }
}

/* All images together, then one by one and by another number of tiles at a time: the same bits.
 * Then without making blank parts shorter. */
static void check_plain(struct problem *s, bool relu)
{
    struct buffer y = buffer_open(N_IMAGES * s->n_z), again = buffer_open(y.n);
    struct dt_conv_outputs out = {.bias = s->bias.data, .relu = relu, .y = y.data};
    kernels->winograd_forward(&s->w, N_IMAGES, s->x.data, s->packed.data, &out, s->scratch.data);
    for (size_t i = 0; i < y.n; i++) {
        check_near(s, "y", i, y.data[i], relu ? fmax(s->z[i], 0) : s->z[i], s->is_blank[i]);
    }
    struct dt_winograd other = s->w;
    other.group = 2 + (int)draw((uint32_t)s->w.group - 1);
    for (size_t image = N_IMAGES; image-- > 0;) {
        out.y = again.data + image * s->n_z;
        kernels->winograd_forward(&other, 1, s->x.data + image * s->n_x, s->packed.data, &out,
                                  s->scratch.data);
    }
    CHECK(memcmp(y.data, again.data, y.n * sizeof(float)) == 0);
    other.skips_blank = false;
    out.y = again.data;
    kernels->winograd_forward(&other, N_IMAGES, s->x.data, s->packed.data, &out, s->scratch.data);
    for (size_t i = 0; i < y.n; i++) {
        check_near(s, "y of tiles alone", i, again.data[i], relu ? fmax(s->z[i], 0) : s->z[i],
                   s->is_blank[i]);
    }
    buffer_close(&y, "y");
    buffer_close(&again, "y again");
}

/* The bits of one window, of which at most one is set: its place, or -1. */
static int survivor(const struct dt_winograd *w, const uint64_t *word, size_t image, size_t p,
                    size_t q, size_t k)
{
    const size_t n_words = dt_survivor_words(w->k), n_w = (size_t)w->out_w;
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
static void check_window(const struct problem *s, size_t i, float y, const uint64_t *word,
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
static void check_other_bits(const struct dt_winograd *w, const uint64_t *word)
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

static struct buffer buffer_words(const struct dt_winograd *w)
{
    return buffer_open(2 * (size_t)(N_IMAGES * w->out_h * w->out_w) * dt_survivor_words(w->k));
}

static void check_pooled(struct problem *s, bool drops)
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
                                  .word = word,
                                  .keep = drops ? kept : NULL,
                                  .scale = 1.25f};
    kernels->winograd_forward(&s->w, N_IMAGES, s->x.data, s->packed.data, &out, s->scratch.data);
    for (size_t i = 0; i < n; i++) {
        check_window(s, i, y.data[i], word, drops ? (kept[i] ? 1.25f : 0.0f) : 1.0f);
    }
    check_other_bits(&s->w, word);
    out.y = eval_y.data; /* as in evaluation */
    out.word = NULL;
    out.keep = NULL;
    kernels->winograd_forward(&s->w, N_IMAGES, s->x.data, s->packed.data, &out, s->scratch.data);
    for (size_t i = 0; i < n; i++) {
        CHECK(y.data[i] == eval_y.data[i] * (drops ? (kept[i] ? 1.25f : 0.0f) : 1.0f));
    }
    buffer_close(&y, "pooled");
    buffer_close(&eval_y, "pooled in evaluation");
    buffer_close(&words, "words");
    buffer_close(&keep, "keep");
}

static void check_shapes(void)
{
    static const int channels[] = {1, 3, 5, 16, 27, 40}, filters[] = {1, 5, 16, 27, 64, 70},
                     sides[] = {3, 4, 5, 6, 7, 8, 11, 14};
    for (int i = 0; i < 6 * 6 * 8; i++) {
        const int h = sides[i % 8], w = sides[draw(8)];
        struct problem s = problem_open(channels[i / 48], filters[i / 8 % 6], h, w, draw(2) == 1);
        check_plain(&s, draw(2) == 1);
        check_pooled(&s, draw(2) == 1);
        problem_close(&s);
    }
    for (int i = 1; i <= 2; i++) { /* "same" alone allows images this small */
        struct problem s = problem_open(9, 20, i, 3 - i, true);
        check_plain(&s, true);
        check_pooled(&s, true);
        problem_close(&s);
    }
}

/* Puts one pixel into a rectangle of an image; NULL: noise. */
static void paint(struct problem *s, size_t image, int top, int left, int bottom, int right,
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

/* A background and up to six rectangles, some of one pixel, in few colours: black, as padding is,
 * is one of them, and two differ in the last channel alone. */
static void paint_regions(struct problem *s)
{
    float colour[4][64] = {{0}};
    const int h = s->w.h, w = s->w.w;
    for (int c = 0; c < s->w.c; c++) {
        colour[1][c] = 0.5f - (float)c / 64;
        colour[2][c] = colour[1][c];
        colour[3][c] = (float)draw(9) / 8;
    }
    colour[2][s->w.c - 1] += 0.25f;
    for (size_t image = 0; image < N_IMAGES; image++) {
        paint(s, image, 0, 0, h, w, colour[draw(4)]);
        for (uint32_t i = draw(7); i > 0; i--) {
            const int top = (int)draw((uint32_t)h), left = (int)draw((uint32_t)w),
                      kind = (int)draw(6);
            const bool dot = draw(2) == 0;
            paint(s, image, top, left, dot ? top + 1 : top + 1 + (int)draw((uint32_t)(h - top)),
                  dot ? left + 1 : left + 1 + (int)draw((uint32_t)(w - left)),
                  kind < 4 ? colour[kind] : NULL);
        }
    }
    compute_exact(s);
}

/* The inputs of an output: nothing but the ground; or, beside it, padding and what is as small. */
static bool sees_only(const struct problem *s, size_t image, int p, int q, const float *ground,
                      float most)
{
    const struct dt_winograd *w = &s->w;
    bool only = true;
    for (int tap = 0; tap < 9; tap++) {
        const int h = p + tap / 3 - w->top, v = q + tap % 3 - w->left;
        const bool inside = h >= 0 && h < w->h && v >= 0 && v < w->w;
        const float *x = s->x.data + image * s->n_x + (size_t)((h * w->w + v) * w->c);
        only = only && (inside || ground == NULL);
        for (int c = 0; c < w->c && inside; c++) {
            only = only && (ground != NULL ? x[c] == ground[c] : fabsf(x[c]) <= most);
        }
    }
    return only;
}

/* The frame around a rectangle is larger than the ground, and the next is larger still, by steps of
 * the same width. */
static void paint_slope(struct problem *s, size_t image, int top, int left, const float *ground,
                        float size)
{
    const struct dt_winograd *w = &s->w;
    for (int step = 2; step > 0; step--) {
        float pixel[64];
        for (int c = 0; c < w->c; c++) {
            pixel[c] = ground[c] * powf(size, (float)(step - 3) / 3);
        }
        paint(s, image, dt_max(top - step, 0), dt_max(left - step, 0), dt_min(top + 3 + step, w->h),
              dt_min(left + 5 + step, w->w), pixel);
    }
}

/* A small ground, ink on it, in some images with soft edges, and specks as small as the ground.
 * What sees no ink is as near as in an image without ink, and the ground's outputs are all the
 * same, with a pool or without. */
static void check_ground(struct problem *s, float size, bool soft)
{
    const struct dt_winograd *w = &s->w;
    const size_t n_k = (size_t)w->k, n_w = (size_t)w->out_w;
    float ground[64];
    for (int c = 0; c < w->c; c++) {
        ground[c] = size * (1 - (float)draw(8) / 8);
    }
    for (size_t k = 0; k < n_k; k++) {
        s->bias.data[k] *= size;
    }
    for (size_t image = 0; image < N_IMAGES; image++) {
        const int top = (int)draw((uint32_t)w->h), left = (int)draw((uint32_t)w->w);
        paint(s, image, 0, 0, w->h, w->w, ground);
        if (soft) {
            paint_slope(s, image, top, left, ground, size);
        }
        paint(s, image, top, left, dt_min(top + 3, w->h), dt_min(left + 5, w->w), NULL);
        s->x.data[image * s->n_x + draw((uint32_t)s->n_x)] *= 0.5f;
    }
    compute_exact(s);
    struct buffer y = buffer_open(N_IMAGES * s->n_z),
                  pooled = buffer_open(N_IMAGES * (size_t)(w->out_h / 2) * (n_w / 2) * n_k);
    struct dt_conv_outputs out = {.bias = s->bias.data, .relu = true, .y = y.data};
    const float *first = NULL;
    kernels->winograd_forward(w, N_IMAGES, s->x.data, s->packed.data, &out, s->scratch.data);
    out.pool = true;
    out.y = pooled.data;
    kernels->winograd_forward(w, N_IMAGES, s->x.data, s->packed.data, &out, s->scratch.data);
    for (size_t at = 0; at < N_IMAGES * s->n_z / n_k; at++) {
        const size_t image = at / (s->n_z / n_k), p = at % (s->n_z / n_k) / n_w, q = at % n_w;
        const float *values = y.data + at * n_k;
        const double *z = s->z + at * n_k;
        if (!sees_only(s, image, (int)p, (int)q, NULL, size)) {
            continue;
        }
        for (size_t k = 0; k < n_k; k++) {
            CHECK(fabs((double)values[k] - fmax(z[k], 0)) <= (soft ? 1e-3 : 1e-4) * (double)size);
        }
        const bool alone = sees_only(s, image, (int)p, (int)q, ground, 0);
        CHECK(first == NULL || !alone || memcmp(values, first, n_k * sizeof(float)) == 0);
        first = alone ? values : first;
        const bool window = p % 2 == 0 && q % 2 == 0 && p + 1 < (size_t)w->out_h && q + 1 < n_w;
        if (window && sees_only(s, image, (int)p + 1, (int)q, NULL, size) &&
            sees_only(s, image, (int)p, (int)q + 1, NULL, size) &&
            sees_only(s, image, (int)p + 1, (int)q + 1, NULL, size)) {
            const float *best =
                pooled.data + ((image * (size_t)(w->out_h / 2) + p / 2) * (n_w / 2) + q / 2) * n_k;
            for (size_t k = 0; k < n_k; k++) {
                const double z_best =
                    fmax(fmax(z[k], z[n_k + k]), fmax(z[n_w * n_k + k], z[(n_w + 1) * n_k + k]));
                CHECK(fabs((double)best[k] - fmax(z_best, 0)) <=
                      (soft ? 1e-3 : 1e-4) * (double)size);
            }
        }
    }
    buffer_close(&y, "y");
    buffer_close(&pooled, "pooled");
}

static void check_grounds(void)
{
    static const int channels[] = {1, 5, 16, 27, 32}, sides[] = {5, 9, 12, 21},
                     widths[] = {12, 21, 70};
    static const float sizes[] = {1e-20f, 1e-12f, 1e-8f, 1e-5f};
    for (int i = 0; i < 5 * 4 * 2; i++) {
        struct problem s = problem_open(channels[i % 5], 1 + (int)draw(20), sides[i % 4],
                                        widths[draw(3)], i % 2 == 0);
        const bool soft = draw(2) == 0;
        check_ground(&s, soft ? 1e-5f : sizes[draw(4)], soft);
        problem_close(&s);
    }
}

static void check_regions(void)
{
    static const int channels[] = {1, 5, 16, 27, 32}, sides[] = {3, 5, 9, 12, 16, 21, 26},
                     widths[] = {3, 12, 21, 26, 64, 70, 131};
    for (int i = 0; i < 5 * 7 * 2; i++) {
        struct problem s = problem_open(channels[i % 5], 1 + (int)draw(20), sides[i % 7],
                                        widths[draw(7)], i % 2 == 0);
        paint_regions(&s);
        check_plain(&s, draw(2) == 1);
        check_pooled(&s, draw(2) == 1);
        problem_close(&s);
    }
}

/* In an image of equal pixels one is changed: the outputs of one tile change, and all that see it
 * do. */
static void check_odd_pixel(void)
{
    enum { C = 19, K = 5, H = 13, W = 16, OUT_W = W - 2, N = (H - 2) * OUT_W };
    struct problem s = problem_open(C, K, H, W, false);
    struct buffer before = buffer_open(N * K), y = buffer_open(N * K);
    struct dt_conv_outputs out = {.bias = s.bias.data, .y = before.data};
    paint(&s, 0, 0, 0, H, W, s.x.data);
    kernels->winograd_forward(&s.w, 1, s.x.data, s.packed.data, &out, s.scratch.data);
    out.y = y.data;
    for (int i = 0; i < H * W; i++) {
        float *at = &s.x.data[i * C + (int)draw(C)], was = *at;
        int n_changed = 0;
        *at = was + 1;
        kernels->winograd_forward(&s.w, 1, s.x.data, s.packed.data, &out, s.scratch.data);
        for (int j = 0; j < N; j++) {
            const int down = i / W - j / OUT_W, right = i % W - j % OUT_W;
            const bool sees = down >= 0 && down < 3 && right >= 0 && right < 3;
            bool changed = false;
            for (int k = j * K; k < (j + 1) * K; k++) {
                changed = changed || y.data[k] != before.data[k];
            }
            CHECK(changed || !sees);
            n_changed += changed;
        }
        CHECK(n_changed <= 16);
        *at = was;
    }
    buffer_close(&before, "y");
    buffer_close(&y, "y");
    problem_close(&s);
}

/* The error as a whole, where single outputs may differ more: a few times that of a direct sum. */
static void check_accuracy(void)
{
    struct problem s = problem_open(32, 64, 26, 26, false);
    struct buffer y = buffer_open(N_IMAGES * s.n_z);
    const struct dt_conv_outputs out = {.bias = s.bias.data, .y = y.data};
    double error = 0, norm = 0;
    kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out, s.scratch.data);
    for (size_t i = 0; i < y.n; i++) {
        error += ((double)y.data[i] - s.z[i]) * ((double)y.data[i] - s.z[i]);
        norm += s.z[i] * s.z[i];
    }
    CHECK_NEAR(0.0, sqrt(error / norm), 1.2e-6);
    buffer_close(&y, "y");
    problem_close(&s);
}

/* Where all pixels are equal, so are all outputs, exactly, and the first of a window wins. */
static void check_blank(void)
{
    struct problem s = problem_open(11, 19, 14, 14, false);
    const size_t n = N_IMAGES * 36 * 19;
    struct buffer y = buffer_open(N_IMAGES * s.n_z), pooled = buffer_open(n),
                  words = buffer_words(&s.w);
    uint64_t *word = (uint64_t *)words.data;
    for (size_t i = 11; i < s.x.n; i++) {
        s.x.data[i] = s.x.data[i % 11];
    }
    memset(word, 0xFF, words.n * sizeof(float));
    struct dt_conv_outputs out = {.bias = s.bias.data, .y = y.data};
    kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out, s.scratch.data);
    for (size_t i = 19; i < y.n; i++) {
        CHECK(y.data[i] == y.data[i % 19]);
    }
    s.w.skips_blank = false; /* tiles give the same bits */
    struct buffer tiles = buffer_open(y.n);
    out.y = tiles.data;
    kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out, s.scratch.data);
    CHECK(memcmp(tiles.data, y.data, y.n * sizeof(float)) == 0);
    buffer_close(&tiles, "y of tiles");
    s.w.skips_blank = true;
    out = (struct dt_conv_outputs){
        .bias = s.bias.data, .relu = true, .pool = true, .y = pooled.data, .word = word};
    kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out, s.scratch.data);
    for (size_t i = 0; i < n; i++) {
        const int place = survivor(&s.w, word, i / (36 * 19), i / (6 * 19) % 6, i / 19 % 6, i % 19);
        CHECK(place == (pooled.data[i] > 0 ? 0 : -1) && pooled.data[i] == fmaxf(y.data[i % 19], 0));
    }
    buffer_close(&y, "y");
    buffer_close(&pooled, "pooled");
    buffer_close(&words, "words");
    problem_close(&s);
}

/* What is not finite, or becomes so on the way, is reported for the image it is in, and for no
 * other, wherever it is. */
static void check_report(bool blank)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f}, pixel[9] = {0, 1, -0.5f};
    struct problem s = problem_open(9, 20, 11, 9, true);
    for (size_t image = 0; image < N_IMAGES && blank; image++) {
        paint(&s, image, 0, 0, 11, 9, pixel);
    }
    struct buffer y = buffer_open(N_IMAGES * s.n_z);
    struct dt_conv_outputs out = {.bias = s.bias.data, .relu = true, .y = y.data};
    CHECK_INT(
        kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out, s.scratch.data),
        0);
    for (size_t i = 0; i < s.x.n; i++) {
        const float before = s.x.data[i];
        s.x.data[i] = odd[i % 4];
        out.pool = i % 5 == 0 &&
                   i % (11 * 9 * 9) < 10 * 8 * 9; /* away from the rows that a pool leaves out */
        CHECK_INT(kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out,
                                            s.scratch.data),
                  1 << i / s.n_x);
        s.x.data[i] = before;
    }
    out.pool = false;
    for (size_t i = 0; i < s.weight.n; i++) {
        const float before = s.weight.data[i];
        s.weight.data[i] = odd[i % 3];
        kernels->winograd_pack(&s.w, s.weight.data, s.packed.data);
        CHECK_INT(kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out,
                                            s.scratch.data),
                  7);
        s.weight.data[i] = before;
    }
    kernels->winograd_pack(&s.w, s.weight.data, s.packed.data);
    for (size_t i = 0; i < s.bias.n; i++) {
        const float before = s.bias.data[i];
        s.bias.data[i] = odd[i % 3];
        CHECK_INT(kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out,
                                            s.scratch.data),
                  7);
        s.bias.data[i] = before;
    }
    buffer_close(&y, "y");
    problem_close(&s);
}

int main(void)
{
    const char *isas[DT_CPU_MAX_ISAS];
    const int n_isas = dt_cpu_isa_list(isas);
    for (int i = 0; i < n_isas; i++) {
        setenv("DTRAIN_ISA", isas[i], 1);
        CHECK_INT(dt_cpu_isa_choose(&kernels), DT_OK);
        check_shapes();
        check_regions();
        check_grounds();
        check_odd_pixel();
        check_accuracy();
        check_blank();
        check_report(false);
        check_report(true);
    }
    return 0;
}
