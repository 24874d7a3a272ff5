/* Generated data sets: every sample is a function of (seed, split, its number), so a sample is the
 * same whichever rank makes it.
 *
 * Images: each class has a random pattern of cells of 4 x 4 pixels (1 x 1 in images of less than
 * 8). A sample is its class's pattern with a contrast of its own, and over it that of another
 * class, from not at all to 0.7 times as strong; both are moved by up to a cell. Then comes `noise`
 * (standard deviation; 1 is the range from black to white). So most samples are easy and some are
 * hard: one pass over 2000 images of 28 x 28 with noise 0.5 takes softmax regression to 98 or 99 %.
 * Training and test samples differ, the patterns do not. Noise is a sum of four uniform numbers,
 * which is normal enough, and exact in integers: the same on every machine. */
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/memory.h"
#include "base/rng.h"
#include "data/dataset.h"

#define STREAM_PATTERNS 0u
#define STREAM_SAMPLES 1u /* + split */
#define NOISE_GROUPS 2u   /* of a sample's random words; the first two are its pose */
#define CELL 4u           /* pixels */
#define MOST_OTHER 0.7f   /* of the class's own contrast */

/* The sum of the four bytes has mean 510 and variance 4 (256^2 - 1) / 12. */
float dt_generated_normal(uint32_t word)
{
    const uint32_t sum = (word & 0xff) + (word >> 8 & 0xff) + (word >> 16 & 0xff) + (word >> 24);
    return ((float)sum - 510.0f) / 147.8f;
}

static const char *split_name(enum dt_split split)
{
    return split == DT_SPLIT_TRAIN ? "train" : "test";
}

/* How a sample is drawn: its class's pattern, and fainter over it that of another class. */
struct pose {
    uint32_t label, other;
    float contrast, other_contrast;
    uint32_t cell;             /* pixels */
    uint32_t shift_y, shift_x; /* 0 .. cell - 1 pixels */
};

static uint32_t below(uint32_t word, uint32_t n)
{
    DT_ASSERT(n > 0);
    return (uint32_t)((uint64_t)word * n >> 32);
}

static struct pose pose_of(const struct dt_data_spec *spec, uint32_t stream, uint32_t id)
{
    DT_ASSERT(spec->n_classes >= 2);
    const struct dt_rng4 a = dt_rng_words(spec->seed, DT_RNG_SYNTHETIC, stream, 0, id, 0);
    const struct dt_rng4 b = dt_rng_words(spec->seed, DT_RNG_SYNTHETIC, stream, 0, id, 1);
    const uint32_t n_classes = (uint32_t)spec->n_classes, label = below(a.v[0], n_classes);
    const uint32_t cell = spec->shape.h >= 8 && spec->shape.w >= 8 ? CELL : 1;
    const float contrast = 0.5f + 0.5f * dt_rng_uniform(a.v[2]);
    return (struct pose){
        .label = label,
        .other = (label + 1 + below(b.v[0], n_classes - 1)) % n_classes,
        .contrast = contrast,
        .other_contrast = contrast * MOST_OTHER * dt_rng_uniform(b.v[1]),
        .cell = cell,
        .shift_y = below(a.v[1], cell),
        .shift_x = below(a.v[3], cell),
    };
}

/* A cell of a class's pattern, -0.5 .. 0.5. */
static float pattern_at(const struct dt_data_spec *spec, uint32_t label, uint32_t row,
                        uint32_t column)
{
    const struct dt_rng4 words =
        dt_rng_words(spec->seed, DT_RNG_SYNTHETIC, STREAM_PATTERNS, row, label, column / 4);
    return dt_rng_uniform(words.v[column % 4]) - 0.5f;
}

static uint8_t to_pixel(float value)
{
    const float scaled = value * 255.0f + 0.5f;
    return (uint8_t)(scaled < 0.0f ? 0.0f : scaled > 255.0f ? 255.0f : scaled);
}

static uint16_t make_image(const struct dt_data_spec *spec, uint32_t stream, uint32_t id,
                           uint8_t *pixels)
{
    const struct pose pose = pose_of(spec, stream, id);
    DT_ASSERT(pose.label < (uint32_t)spec->n_classes && pose.other != pose.label);
    const uint32_t height = (uint32_t)spec->shape.h, width = (uint32_t)spec->shape.w;
    const float noise = (float)spec->noise;
    const uint32_t n_pixels = (uint32_t)dt_shape_elems(spec->shape);
    struct dt_rng4 words = {{0}};
    float pattern = 0.0f;
    for (uint32_t i = 0; i < n_pixels; i++) {
        const uint32_t x = i % width, row = i / width, y = row % height, channel = row / height;
        if (i % 4 == 0) {
            words = dt_rng_words(spec->seed, DT_RNG_SYNTHETIC, stream, 0, id, NOISE_GROUPS + i / 4);
        }
        if (x == 0 || (x + pose.shift_x) % pose.cell == 0) { /* a cell begins */
            const uint32_t cell_row =
                channel * (height / pose.cell + 2) + (y + pose.shift_y) / pose.cell;
            const uint32_t cell_column = (x + pose.shift_x) / pose.cell;
            pattern = pose.contrast * pattern_at(spec, pose.label, cell_row, cell_column) +
                      pose.other_contrast * pattern_at(spec, pose.other, cell_row, cell_column);
        }
        pixels[i] = to_pixel(0.5f + pattern + noise * dt_generated_normal(words.v[i % 4]));
    }
    return (uint16_t)pose.label;
}

enum dt_status dt_generated_count(const struct dt_data_spec *spec, enum dt_split split,
                                  size_t *n_total)
{
    *n_total = dt_dataset_limit(spec, split);
    if (*n_total == 0 || *n_total > INT32_MAX) {
        return dt_error(DT_CONFIG, "data.%s_samples: generated data need 1..%d samples, got %zu",
                        split_name(split), INT32_MAX, *n_total);
    }
    return DT_OK;
}

enum dt_status dt_generated_open(const struct dt_data_spec *spec, enum dt_split split,
                                 struct dt_owned owned, size_t n_item_bytes, size_t n_answer_bytes,
                                 enum dt_data_format format, struct dt_dataset *out)
{
    out->samples.n_total = dt_dataset_limit(spec, split);
    out->items = dt_memory_alloc(owned.n * n_item_bytes + 1);
    out->answers = malloc(owned.n * n_answer_bytes + 1);
    if (out->items == NULL || out->answers == NULL) {
        return dt_error(DT_NO_MEMORY,
                        "no memory for %zu generated samples of %zu bytes (lower data.%s_samples)",
                        owned.n, n_item_bytes, split_name(split));
    }
    char recipe[256];
    const int n = snprintf(
        recipe, sizeof recipe, "%d %d %zu %llu %a %a %a %d %d %d %d", (int)format, (int)split,
        out->samples.n_total, (unsigned long long)spec->seed, spec->slope, spec->intercept,
        spec->noise, spec->shape.c, spec->shape.h, spec->shape.w, spec->n_classes);
    DT_ASSERT(n > 0 && (size_t)n < sizeof recipe);
    out->crc = (uint32_t)crc32(0, (const Bytef *)recipe, (uInt)n);
    return DT_OK;
}

static enum dt_status synthetic_load(const struct dt_data_spec *spec, enum dt_split split,
                                     struct dt_owned owned, struct dt_dataset *out)
{
    const size_t n_pixels = dt_shape_elems(spec->shape);
    DT_TRY(
        dt_generated_open(spec, split, owned, n_pixels, sizeof(uint16_t), DT_DATA_SYNTHETIC, out));
    uint8_t *pixels = out->items;
    uint16_t *labels = out->answers;
    for (size_t row = 0; row < owned.n; row++) {
        const uint32_t id = owned.first + (uint32_t)row * owned.stride;
        DT_ASSERT(id < out->samples.n_total);
        dt_alive_show(&spec->alive);
        labels[row] =
            make_image(spec, STREAM_SAMPLES + (uint32_t)split, id, pixels + row * n_pixels);
    }
    return DT_OK;
}

const struct dt_data_reader dt_synthetic_data = {.generated = true,
                                                 .check = dt_dataset_check_labelled,
                                                 .count = dt_generated_count,
                                                 .load = synthetic_load};
