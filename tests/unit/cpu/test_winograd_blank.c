/* Winograd's convolution of images with parts of equal pixels, which it computes once, against sums
 * in double: regions, ink on a ground, one pixel that differs, and nothing but a ground. */
#include "tests/unit/cpu/winograd_problem.h"

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

static void check_regions(void)
{
    static const int channels[] = {1, 5, 16, 24, 32}, sides[] = {3, 5, 9, 12, 16, 21, 26},
                     widths[] = {3, 12, 21, 26, 64, 70, 131};
    for (int i = 0; i < 5 * 7 * 2; i += EVERY(3)) {
        const bool same = i % 2 == 0 || sides[i % 7] < 3 + wider;
        const int w = dt_max(widths[draw(7)], same ? 1 : 3 + wider);
        struct problem s = problem_open(channels[i % 5], 1 + (int)draw(20), sides[i % 7], w, same);
        paint_regions(&s);
        check_plain(&s, draw(2) == 1);
        check_pooled(&s, draw(2) == 1);
        problem_close(&s);
    }
}

/* The inputs of an output: nothing but the ground; or, beside it, padding and what is as small. */
static bool sees_only(const struct problem *s, size_t image, int p, int q, const float *ground,
                      float most)
{
    const struct dt_winograd *w = &s->w;
    bool only = true;
    const int kernel = 3 + w->wider;
    for (int tap = 0; tap < kernel * kernel; tap++) {
        const int h = p + tap / kernel - w->top, v = q + tap % kernel - w->left;
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
    forward(s, &out);
    out.pool = true;
    out.y = pooled.data;
    forward(s, &out);
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
    BUFFERS_CLOSE(&y, &pooled);
}

static void check_grounds(void)
{
    static const int channels[] = {1, 5, 16, 27, 32}, sides[] = {5, 9, 12, 21},
                     widths[] = {12, 21, 70};
    static const float sizes[] = {1e-20f, 1e-12f, 1e-8f, 1e-5f};
    for (int i = 0; i < 5 * 4 * 2; i += EVERY(3)) {
        struct problem s = problem_open(channels[i % 5], 1 + (int)draw(20), sides[i % 4],
                                        widths[draw(3)], i % 2 == 0);
        const bool soft = draw(2) == 0;
        check_ground(&s, soft ? 1e-5f : sizes[draw(4)], soft);
        problem_close(&s);
    }
}

/* In an image of equal pixels one is changed: the outputs of one tile change, of a wider kernel
 * those of four, and all that see it do. */
static void check_odd_pixel(void)
{
    enum { C = 19, K = 5, H = 13, W = 16 };
    struct problem s = problem_open(C, K, H, W, false);
    const int out_w = s.w.out_w, n = s.w.out_h * out_w;
    struct buffer before = buffer_open((size_t)(n * K)), y = buffer_open((size_t)(n * K));
    struct dt_conv_outputs out = {.bias = s.bias.data, .y = before.data};
    paint(&s, 0, 0, 0, H, W, s.x.data);
    kernels->winograd_forward(&s.w, 1, s.x.data, s.packed.data, &out, s.scratch.data);
    out.y = y.data;
    for (int i = 0; i < H * W; i++) {
        float *at = &s.x.data[i * C + (int)draw(C)], was = *at;
        int n_changed = 0;
        *at = was + 1;
        kernels->winograd_forward(&s.w, 1, s.x.data, s.packed.data, &out, s.scratch.data);
        for (int j = 0; j < n; j++) {
            const int down = i / W - j / out_w, right = i % W - j % out_w;
            const bool sees = down >= 0 && down < 3 + wider && right >= 0 && right < 3 + wider;
            bool changed = false;
            for (int k = j * K; k < (j + 1) * K; k++) {
                changed = changed || y.data[k] != before.data[k];
            }
            CHECK(changed || !sees);
            n_changed += changed;
        }
        CHECK(n_changed <= (wider > 0 ? 4 : 1) * 16);
        *at = was;
    }
    BUFFERS_CLOSE(&before, &y);
    problem_close(&s);
}

/* Where all pixels are equal, so are all outputs, exactly, and the first of a window wins. */
static void check_blank(void)
{
    struct problem s = problem_open(11, 19, 14 + wider, 14 + wider, false);
    const size_t n = N_IMAGES * 36 * 19;
    struct buffer y = buffer_open(N_IMAGES * s.n_z), pooled = buffer_open(n),
                  words = buffer_words(&s.w);
    uint64_t *word = (uint64_t *)words.data;
    for (size_t i = 11; i < s.x.n; i++) {
        s.x.data[i] = s.x.data[i % 11];
    }
    memset(word, 0xFF, words.n * sizeof(float));
    struct dt_conv_outputs out = {.bias = s.bias.data, .y = y.data};
    forward(&s, &out);
    for (size_t i = 19; i < y.n; i++) {
        CHECK(y.data[i] == y.data[i % 19]);
    }
    s.w.skips_uniform = false; /* tiles give the same bits */
    struct buffer tiles = buffer_open(y.n);
    out.y = tiles.data;
    forward(&s, &out);
    CHECK(memcmp(tiles.data, y.data, y.n * sizeof(float)) == 0);
    s.w.skips_uniform = true;
    out = (struct dt_conv_outputs){
        .bias = s.bias.data, .relu = true, .pool = true, .y = pooled.data, .bitmask = word};
    forward(&s, &out);
    for (size_t i = 0; i < n; i++) {
        const int place = survivor(&s.w, word, i / (36 * 19), i / (6 * 19) % 6, i / 19 % 6, i % 19);
        CHECK(place == (pooled.data[i] > 0 ? 0 : -1) && pooled.data[i] == fmaxf(y.data[i % 19], 0));
    }
    BUFFERS_CLOSE(&y, &pooled, &words, &tiles);
    problem_close(&s);
}

static void check_all(void)
{
    for (wider = 0; wider <= 2; wider += EVERY(2)) {
        check_regions();
        check_grounds();
        check_odd_pixel();
        check_blank();
    }
}

int main(void)
{
    on_every_isa(check_all);
    return 0;
}
