/* Samples of ten classes for the tests of whole networks. */
#ifndef DT_TESTS_MADE_SAMPLES_H
#define DT_TESTS_MADE_SAMPLES_H

#include "base/rng.h"
#include "base/samples.h"
#include "tests/lib/check.h"

/* The next call writes them anew. */
static inline struct dt_samples made_samples(size_t n, struct dt_shape shape)
{
    static uint16_t labels[64];
    static float values[64 * 512];
    CHECK(n <= 64 && dt_shape_elems(shape) <= 512);
    for (size_t i = 0; i < n * dt_shape_elems(shape); i++) {
        values[i] =
            dt_rng_uniform(dt_rng_words(3, DT_RNG_SYNTHETIC, 0, 0, 0, (uint32_t)i).v[0]) - 0.4f;
    }
    for (size_t i = 0; i < n; i++) {
        labels[i] = (uint16_t)(i % 10);
    }
    return (struct dt_samples){
        .n = n, .shape = shape, .values = values, .labels = labels, .n_classes = 10};
}

#endif
