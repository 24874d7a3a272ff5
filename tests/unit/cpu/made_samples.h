/* Samples for the tests of whole networks. */
#ifndef DT_TESTS_MADE_SAMPLES_H
#define DT_TESTS_MADE_SAMPLES_H

#include "base/rng.h"
#include "base/samples.h"
#include "tests/lib/check.h"

/* The next call writes them anew. */
static inline struct dt_samples made_samples(size_t n, struct dt_shape shape, int n_classes)
{
    static uint16_t labels[64];
    static float values[64 * 512];
    CHECK(n <= 64 && n * dt_shape_elems(shape) <= sizeof values / sizeof values[0]);
    for (size_t i = 0; i < n * dt_shape_elems(shape); i++) {
        values[i] =
            2 * dt_rng_uniform(dt_rng_words(11, DT_RNG_SYNTHETIC, 1, 0, 0, (uint32_t)i).v[0]) - 1;
    }
    for (size_t i = 0; i < n; i++) {
        labels[i] = (uint16_t)(i % (size_t)n_classes);
    }
    return (struct dt_samples){
        .n = n, .shape = shape, .values = values, .labels = labels, .n_classes = n_classes};
}

#endif
