#include "data/transform.h"

#include <math.h>
#include <stdlib.h>

#include "base/transform.h"

static void apply(const struct dt_transform *transform, const uint8_t *pixels, uint32_t epoch,
                  uint32_t id, float *x)
{
    const struct dt_pixel_transform *t = (const struct dt_pixel_transform *)transform;
    dt_transform_pixels(t, pixels, epoch, id, (size_t)t->shape.h * (size_t)t->shape.w, 1, x);
}

static enum dt_status check(const struct dt_data_spec *spec)
{
    const struct dt_shape s = spec->shape;
    const int side = s.h < s.w ? s.h : s.w;
    if (spec->normalize.n > 0 && spec->normalize.n != s.c) {
        return dt_error(DT_CONFIG,
                        "data.normalize: numbers for %d channels, model.input has %d (give one for "
                        "each)",
                        spec->normalize.n, s.c);
    }
    if (spec->normalize.of_dataset && s.c > DT_MOST_CHANNELS) {
        return dt_error(DT_CONFIG, "data.normalize: %d channels, at most %d (leave it out)", s.c,
                        DT_MOST_CHANNELS);
    }
    for (int i = 0; i < spec->augment.n; i++) {
        if (spec->augment.kind[i] < DT_AUGMENT_ROTATE && spec->augment.size[i] >= side) {
            return dt_error(
                DT_CONFIG,
                "data.augment: moved by %d pixel%s, an image of %dx%d can leave the picture "
                "(move it by fewer)",
                spec->augment.size[i], spec->augment.size[i] == 1 ? "" : "s", s.h, s.w);
        }
    }
    return DT_OK;
}

/* value = (pixel / 255 - mean) / std */
static void set_scales(const struct dt_normalize *normalize, struct dt_pixel_transform *t)
{
    DT_ASSERT(normalize->n <= DT_TRANSFORM_MOST_CHANNELS);
    t->scale[0] = 1.0f / 255.0f;
    t->n_scaled = normalize->n;
    for (int c = 0; c < normalize->n; c++) {
        DT_ASSERT(normalize->std[c] > 0);
        t->scale[c] = (float)(1.0 / (255.0 * normalize->std[c]));
        t->offset[c] = (float)(-normalize->mean[c] / normalize->std[c]);
    }
}

enum dt_status dt_transform_open(const struct dt_data_spec *spec, enum dt_split split,
                                 struct dt_transform **out)
{
    DT_ASSERT(spec->augment.n >= 0 && spec->augment.n <= DT_TRANSFORM_MOST_STEPS);
    const int n_steps = split == DT_SPLIT_TRAIN ? spec->augment.n : 0;
    *out = NULL;
    DT_TRY(check(spec));
    if (spec->normalize.n == 0 && n_steps == 0) {
        return DT_OK;
    }
    struct dt_pixel_transform *t = calloc(1, sizeof *t);
    if (t == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for what is done to images");
    }
    t->base.apply = apply;
    t->shape = spec->shape;
    t->seed = spec->augment_seed;
    t->background = spec->format == DT_DATA_IMAGES ? dt_background(spec) : 0;
    t->n_steps = n_steps;
    set_scales(&spec->normalize, t);
    for (int i = 0; i < n_steps; i++) {
        static const int kinds[] = {[DT_AUGMENT_FLIP] = DT_TRANSFORM_MIRROR,
                                    [DT_AUGMENT_ROTATE] = DT_TRANSFORM_ROTATE,
                                    [DT_AUGMENT_CUTOUT] = DT_TRANSFORM_CUT};
        t->steps[i] =
            (struct dt_transform_step){kinds[spec->augment.kind[i]], spec->augment.size[i]};
        t->by_pixel = t->by_pixel || spec->augment.kind[i] >= DT_AUGMENT_ROTATE;
    }
    *out = &t->base;
    return DT_OK;
}

void dt_channel_sums_add(const struct dt_samples *samples, struct dt_channel_sums *sums)
{
    const size_t n_c = (size_t)samples->shape.c,
                 n_hw = (size_t)samples->shape.h * (size_t)samples->shape.w;
    const uint8_t *pixel = samples->pixels;
    for (size_t plane = 0; plane < samples->n * n_c; plane++) {
        struct dt_channel_sums *of = &sums[plane % n_c];
        uint64_t sum = 0, squares = 0;
        for (size_t i = 0; i < n_hw; i++, pixel++) {
            sum += *pixel;
            squares += (uint64_t)*pixel * *pixel;
        }
        of->n += n_hw;
        of->sum += sum;
        of->squares += squares;
        DT_ASSERT(of->squares <= 255 * of->sum && of->sum <= 255 * of->n);
    }
}

enum dt_status dt_normalize_of(const struct dt_channel_sums *sums, int n_channels,
                               struct dt_normalize *out)
{
    DT_ASSERT(n_channels >= 1 && n_channels <= DT_MOST_CHANNELS);
    *out = (struct dt_normalize){.n = n_channels};
    for (int c = 0; c < n_channels; c++) {
        const unsigned __int128 n = sums[c].n, sum = sums[c].sum,
                                spread = n * sums[c].squares - sum * sum; /* n^2 var, exact */
        DT_ASSERT(n > 0 && n * sums[c].squares >= sum * sum);
        if (spread == 0) {
            return dt_error(DT_BAD_DATA,
                            "data.normalize: channel %d is the same in all training images (leave "
                            "data.normalize out)",
                            c);
        }
        out->mean[c] = (double)sums[c].sum / (double)sums[c].n / 255.0;
        out->std[c] = sqrt((double)spread) / (double)sums[c].n / 255.0;
    }
    return DT_OK;
}
