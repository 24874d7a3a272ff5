/* The data format "linear": x uniform in [-1, 1), y = slope * x + intercept + noise. */
#include "base/rng.h"
#include "data/dataset.h"

#define STREAM 1u /* + split, of random words */

static enum dt_status check(const struct dt_data_spec *spec)
{
    return spec->n_classes == 0 && spec->n_targets == 1 && dt_shape_elems(spec->shape) == 1
               ? DT_OK
               : dt_error(DT_CONFIG,
                          "data.format: linear is one number in and one out (set model.input to "
                          "[1], the last layer to 1 unit and the loss to mean_squared_error)");
}

static enum dt_status load(const struct dt_data_spec *spec, enum dt_split split,
                           struct dt_owned owned, struct dt_dataset *out)
{
    DT_TRY(
        dt_generated_open(spec, split, owned, sizeof(float), sizeof(float), DT_DATA_LINEAR, out));
    float *x = out->items, *y = out->answers;
    for (size_t row = 0; row < owned.n; row++) {
        const uint32_t id = owned.first + (uint32_t)row * owned.stride;
        DT_ASSERT(id < out->samples.n_total);
        const struct dt_rng4 words =
            dt_rng_words(spec->seed, DT_RNG_SYNTHETIC, STREAM + (uint32_t)split, 0, id, 0);
        x[row] = 2.0f * dt_rng_uniform(words.v[0]) - 1.0f;
        y[row] = (float)(spec->slope * (double)x[row] + spec->intercept +
                         spec->noise * (double)dt_generated_normal(words.v[1]));
    }
    out->samples.values = x;
    out->samples.scale = 1.0f;
    out->samples.targets = y;
    out->samples.n_targets = 1;
    return DT_OK;
}

const struct dt_data_reader dt_linear_data = {
    .generated = true, .check = check, .count = dt_generated_count, .load = load};
