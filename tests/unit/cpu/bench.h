/* Shared by programs that measure kernels: thread CPU time, and numbers to compute with. */
#ifndef DT_TESTS_BENCH_H
#define DT_TESTS_BENCH_H

#include "tests/lib/check.h"

#include <time.h>

#include "base/rng.h"
#include "cpu/block.h"

static inline double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Uniform in -0.5 .. 0.5; a share of them, `alive`, is not zero. */
static inline float *random_floats(size_t n, float alive)
{
    float *x = dt_cpu_memory(n * sizeof(float));
    CHECK(x != NULL);
    for (size_t i = 0; i < n; i++) {
        const struct dt_rng4 words = dt_rng_words(1, DT_RNG_SYNTHETIC, 0, 0, 0, (uint32_t)i);
        x[i] = dt_rng_uniform(words.v[0]) < alive ? dt_rng_uniform(words.v[1]) - 0.5f : 0.0f;
    }
    return x;
}

#endif
