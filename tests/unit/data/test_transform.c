/* What is done to pixels on their way to a network, on both CPU backends: against images that are
 * changed one step after the other, each in a copy, and against numbers in double. */
#include "base/rng.h"
#include "data/transform.h"
#include "model/backend.h"
#include "tests/lib/check.h"

#include <math.h>

#define MOST_PIXELS (5 * 16 * 16)
#define SEED 11

/* ---- one step after the other */

static uint8_t at(const uint8_t *image, struct dt_shape s, int c, int y, int x)
{
    const bool inside = y >= 0 && y < s.h && x >= 0 && x < s.w;
    return inside ? image[(c * s.h + y) * s.w + x] : 0;
}

/* A copy whose pixel (y, x) is the image's (y + down, x + right), or (y, w - 1 - x). */
static void change(uint8_t *image, struct dt_shape s, bool mirror, int down, int right)
{
    uint8_t copy[MOST_PIXELS];
    memcpy(copy, image, dt_shape_elems(s));
    for (int c = 0; c < s.c; c++) {
        for (int y = 0; y < s.h; y++) {
            for (int x = 0; x < s.w; x++) {
                image[(c * s.h + y) * s.w + x] =
                    mirror ? at(copy, s, c, y, s.w - 1 - x) : at(copy, s, c, y + down, x + right);
            }
        }
    }
}

/* Around the middle, each pixel the nearest. */
static void rotate(uint8_t *image, struct dt_shape s, double angle)
{
    const double cosine = rint(cos(angle) * 65536) / 65536, sine = rint(sin(angle) * 65536) / 65536;
    uint8_t copy[MOST_PIXELS];
    memcpy(copy, image, dt_shape_elems(s));
    for (int i = 0; i < s.c * s.h * s.w; i++) {
        const double down = i / s.w % s.h - (s.h - 1) / 2.0, right = i % s.w - (s.w - 1) / 2.0;
        image[i] = at(copy, s, i / s.w / s.h,
                      (int)floor(cosine * down - sine * right + (s.h - 1) / 2.0 + 0.5),
                      (int)floor(cosine * right + sine * down + (s.w - 1) / 2.0 + 0.5));
    }
}

static void cut(uint8_t *image, struct dt_shape s, int top, int left, int side, uint8_t background)
{
    for (int i = 0; i < s.c * s.h * s.w; i++) {
        const int y = i / s.w % s.h, x = i % s.w;
        if (y >= top && y < top + side && x >= left && x < left + side) {
            image[i] = background;
        }
    }
}

static int draw(uint32_t word, int n)
{
    return (int)floor((double)word / 4294967296.0 * (2 * n + 1)) - n;
}

static void change_all(const struct dt_data_spec *spec, uint32_t epoch, uint32_t id, uint8_t *image)
{
    for (int i = 0; i < spec->augment.n; i++) {
        const struct dt_rng4 words = dt_rng_words(SEED, DT_RNG_AUGMENT, (uint32_t)i, epoch, id, 0);
        const int n = spec->augment.size[i];
        if (spec->augment.kind[i] == DT_AUGMENT_FLIP) {
            change(image, spec->shape, words.v[0] >= 0x80000000u, 0, 0);
        } else if (spec->augment.kind[i] == DT_AUGMENT_ROTATE) {
            rotate(image, spec->shape,
                   (2.0 * words.v[0] / 4294967295.0 - 1) * n * 3.14159265358979323846 / 180);
        } else if (spec->augment.kind[i] == DT_AUGMENT_CUTOUT) {
            cut(image, spec->shape,
                (int)((double)words.v[0] / 4294967296.0 * spec->shape.h) - n / 2,
                (int)((double)words.v[1] / 4294967296.0 * spec->shape.w) - n / 2, n,
                spec->format == DT_DATA_IMAGES ? dt_background(spec) : 0);
        } else {
            change(image, spec->shape, false, draw(words.v[0], n), draw(words.v[1], n));
        }
    }
}

/* ---- the backends */

static struct dt_data_spec spec_of(struct dt_shape shape, bool normalized)
{
    struct dt_data_spec spec = {.row = &dt_synthetic_data,
                                .n_train = 40,
                                .n_test = 40,
                                .noise = 0.3,
                                .transform = dt_transform_open,
                                .augment_seed = SEED,
                                .shape = shape,
                                .n_classes = 3};
    for (int c = 0; normalized && c < shape.c; c++) {
        spec.normalize.mean[c] = 0.1 + 0.15 * c;
        spec.normalize.std[c] = 0.3 / (c + 1);
    }
    spec.normalize.n = normalized ? shape.c : 0;
    return spec;
}

static void add(struct dt_data_spec *spec, enum dt_augment_kind kind, int size)
{
    spec->augment.kind[spec->augment.n] = (int)kind;
    spec->augment.size[spec->augment.n++] = size;
}

static struct dt_dataset open_split(const struct dt_data_spec *spec, enum dt_split split)
{
    struct dt_dataset out;
    CHECK_OK(
        dt_dataset_open(spec, split, (struct dt_owned){.n = 20, .first = 1, .stride = 2}, &out));
    return out;
}

/* A few rows in any order, as floats (n, H, W, C) or (n, C, H, W). */
static void gather(const struct dt_backend_ops *ops, const struct dt_samples *samples,
                   const struct dt_batch *batch, float *x)
{
    struct dt_backend *backend;
    struct dt_bound_samples *bound;
    CHECK_OK(ops->open(&(struct dt_backend_options){.n_threads = 1}, &backend));
    CHECK_OK(ops->samples_open(backend, samples, &bound));
    CHECK_OK(ops->gather(backend, bound, batch, x));
    ops->samples_close(backend, bound);
    ops->close(backend);
}

static void check_sample(const struct dt_data_spec *spec, const uint8_t *image, const float *ref,
                         const float *cpu)
{
    const struct dt_shape s = spec->shape;
    for (int c = 0; c < s.c; c++) {
        const double mean = spec->normalize.n > 0 ? spec->normalize.mean[c] : 0,
                     std = spec->normalize.n > 0 ? spec->normalize.std[c] : 1;
        for (int i = 0; i < s.h * s.w; i++) {
            const double expected = (image[c * s.h * s.w + i] / 255.0 - mean) / std;
            CHECK_NEAR(ref[c * s.h * s.w + i], expected, 4e-7 * (1 + mean) / std);
            CHECK(cpu[i * s.c + c] == ref[c * s.h * s.w + i]);
        }
    }
}

static void check(const struct dt_data_spec *spec, enum dt_split split, uint32_t epoch)
{
    enum { N = 5 };
    static const uint32_t rows[N] = {7, 0, 19, 7, 3}, ids[N] = {15, 1, 39, 15, 7};
    static float ref[N * MOST_PIXELS], cpu[N * MOST_PIXELS];
    const size_t n_pixels = dt_shape_elems(spec->shape);
    struct dt_dataset data = open_split(spec, split);
    const struct dt_batch batch = {.n = N, .rows = rows, .ids = ids, .epoch = epoch};
    gather(&dt_ref_backend, &data.samples, &batch, ref);
    gather(&dt_cpu_backend, &data.samples, &batch, cpu);
    for (size_t i = 0; i < N; i++) {
        uint8_t image[MOST_PIXELS];
        memcpy(image, data.samples.pixels + rows[i] * n_pixels, n_pixels);
        if (split == DT_SPLIT_TRAIN) {
            change_all(spec, epoch, ids[i], image);
        }
        check_sample(spec, image, ref + i * n_pixels, cpu + i * n_pixels);
    }
    dt_dataset_close(&data);
}

static void test_against_copies(void)
{
    static const struct dt_shape shapes[] = {{1, 9, 12}, {3, 7, 6}, {5, 8, 8}, {2, 16, 5}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int normalized = 0; normalized < 2; normalized++) {
            struct dt_data_spec spec = spec_of(shapes[i], normalized);
            check(&spec, DT_SPLIT_TRAIN, 0);
            static const struct {
                enum dt_augment_kind kind;
                int size;
            } steps[] = {{DT_AUGMENT_FLIP, 0},  {DT_AUGMENT_SHIFT, 2},   {DT_AUGMENT_FLIP, 0},
                         {DT_AUGMENT_CROP, 4},  {DT_AUGMENT_CUTOUT, 3},  {DT_AUGMENT_FLIP, 0},
                         {DT_AUGMENT_SHIFT, 1}, {DT_AUGMENT_ROTATE, 180}};
            spec.format = i % 2 == 0 ? DT_DATA_IDX : DT_DATA_IMAGES;
            spec.background = 77;
            for (int n = 0; n < 8; n++) {
                add(&spec, steps[n].kind, steps[n].size);
                for (uint32_t epoch = 0; epoch < 6; epoch++) {
                    check(&spec, DT_SPLIT_TRAIN, epoch);
                }
                check(&spec, DT_SPLIT_TEST, 0);
            }
        }
    }
}

/* Every shift, and both sides, are as likely as they should be: of 20000 draws within 5 standard
 * deviations. */
static void test_chances(void)
{
    enum { N = 20000, SHIFT = 2, SIDE = 5 };
    const double share = 1.0 / (SIDE * SIDE), deviation = sqrt(N * share * (1 - share));
    int n_shifts[SIDE * SIDE] = {0}, n_mirrored = 0;
    for (uint32_t id = 0; id < N; id++) {
        struct dt_data_spec spec = spec_of((struct dt_shape){1, SIDE, SIDE}, false);
        uint8_t image[SIDE * SIDE] = {[SIDE * SHIFT + SHIFT] = 1}, row[SIDE * SIDE] = {[0] = 1};
        add(&spec, DT_AUGMENT_SHIFT, SHIFT);
        change_all(&spec, 3, id, image);
        for (int i = 0; i < SIDE * SIDE; i++) {
            n_shifts[i] += image[i];
        }
        spec.augment.n = 0;
        add(&spec, DT_AUGMENT_FLIP, 0);
        change_all(&spec, 3, id, row);
        n_mirrored += row[SIDE - 1];
    }
    for (int i = 0; i < SIDE * SIDE; i++) {
        CHECK_NEAR(n_shifts[i], N * share, 5 * deviation);
    }
    CHECK_NEAR(n_mirrored, N / 2, 5 * sqrt(N / 4.0));
}

/* Parts of the pixels add up to the sums of all, whoever has them. */
static void test_sums(void)
{
    const struct dt_data_spec spec = spec_of((struct dt_shape){3, 6, 5}, false);
    struct dt_channel_sums all[3] = {{0}}, parts[3] = {{0}};
    struct dt_normalize found;
    double sum = 0, squares = 0, n = 0;
    for (int size = 1; size <= 3; size += 2) {
        for (int rank = 0; rank < size; rank++) {
            struct dt_dataset data;
            const struct dt_owned owned = {.n = (size_t)((40 - rank + size - 1) / size),
                                           .first = (uint32_t)rank,
                                           .stride = (uint32_t)size};
            CHECK_OK(dt_dataset_open(&spec, DT_SPLIT_TRAIN, owned, &data));
            dt_channel_sums_add(&data.samples, size == 1 ? all : parts);
            for (size_t i = 0; size == 1 && i < 40; i++) {
                for (int p = 0; p < 30; p++, n++) {
                    const double value = data.samples.pixels[i * 90 + 60 + (size_t)p] / 255.0;
                    sum += value;
                    squares += value * value;
                }
            }
            dt_dataset_close(&data);
        }
    }
    CHECK(memcmp(all, parts, sizeof all) == 0);
    CHECK_OK(dt_normalize_of(all, 3, &found));
    CHECK_INT(found.n, 3);
    CHECK_NEAR(found.mean[2], sum / n, 1e-12);
    CHECK_NEAR(found.std[2], sqrt(squares / n - sum / n * (sum / n)), 1e-12);
    const struct dt_channel_sums flat = {.n = 10, .sum = 50, .squares = 250};
    CHECK_FAILS(dt_normalize_of(&flat, 1, &found), DT_BAD_DATA,
                "channel 0 is the same in all training images (leave");
}

static void expect_refusal(const struct dt_data_spec *spec, const char *text)
{
    struct dt_dataset data;
    CHECK_FAILS(dt_dataset_open(spec, DT_SPLIT_TRAIN,
                                (struct dt_owned){.n = 1, .first = 0, .stride = 1}, &data),
                DT_CONFIG, text);
    CHECK(data.items == NULL && data.transform == NULL);
    dt_error_clear();
}

static void test_refusals(void)
{
    struct dt_data_spec spec = spec_of((struct dt_shape){3, 6, 5}, true);
    spec.normalize.n = 1;
    expect_refusal(&spec, "data.normalize: numbers for 1 channels, model.input has 3 (give");
    spec = spec_of((struct dt_shape){3, 6, 5}, false);
    add(&spec, DT_AUGMENT_SHIFT, 5);
    expect_refusal(&spec, "data.augment: moved by 5 pixels, an image of 6x5 can leave the picture");
    spec = spec_of((struct dt_shape){17, 6, 5}, false);
    spec.normalize.of_dataset = true;
    expect_refusal(&spec, "data.normalize: 17 channels, at most 16");
}

int main(void)
{
    test_against_copies();
    test_chances();
    test_sums();
    test_refusals();
    return 0;
}
