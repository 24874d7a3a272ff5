/* Random numbers without state: a pure function of (seed, purpose, epoch, sample, unit).
 *
 * So initial weights, batches and dropout masks are the same on every backend and at every world
 * size, and a checkpoint needs no generator state. Philox4x32-10 after Salmon, Moraes, Dror, Shaw,
 * "Parallel random numbers: as easy as 1, 2, 3", SC 2011; tests/unit/base/test_rng.c holds its
 * published answers. Header only, plain C: gcc, clang and nvcc compile it alike. */
#ifndef DT_BASE_RNG_H
#define DT_BASE_RNG_H

#include <stdint.h>

#include "base/assert.h"

#ifdef __CUDACC__
#define DT_HOST_DEVICE __host__ __device__
#else
#define DT_HOST_DEVICE
#endif

/* The purpose of a number. Two purposes never share a number. */
enum dt_rng_purpose {
    DT_RNG_INIT = 1,      /* initial weights */
    DT_RNG_SHUFFLE = 2,   /* the permutation of an epoch */
    DT_RNG_DROPOUT = 3,   /* dropout masks */
    DT_RNG_SYNTHETIC = 4, /* generated data sets */
    DT_RNG_ROUNDING = 5,  /* gradients in few bits */
    DT_RNG_JITTER = 6,    /* delays put into a run */
    DT_RNG_AUGMENT = 7    /* changes of training images */
};

struct dt_rng4 {
    uint32_t v[4];
};

static inline DT_HOST_DEVICE struct dt_rng4 dt_philox4x32(struct dt_rng4 counter, uint32_t key0,
                                                          uint32_t key1)
{
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * counter.v[0];
        const uint64_t p1 = (uint64_t)0xCD9E8D57u * counter.v[2];
        const struct dt_rng4 next = {{(uint32_t)(p1 >> 32) ^ counter.v[1] ^ key0, (uint32_t)p1,
                                      (uint32_t)(p0 >> 32) ^ counter.v[3] ^ key1, (uint32_t)p0}};
        counter = next;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

/* Four words for (seed; purpose, stream, epoch; sample, group). The seed is the key; the counter is
 * { group, sample, epoch, purpose << 24 | stream }, with stream < 2^24 (a layer or tensor number).
 */
static inline DT_HOST_DEVICE struct dt_rng4 dt_rng_words(uint64_t seed, enum dt_rng_purpose purpose,
                                                         uint32_t stream, uint32_t epoch,
                                                         uint32_t sample, uint32_t group)
{
    DT_ASSERT(purpose >= DT_RNG_INIT && purpose <= DT_RNG_AUGMENT && stream < 1u << 24);
    const struct dt_rng4 counter = {
        {group, sample, epoch, (uint32_t)purpose << 24 | (stream & 0xFFFFFFu)}};
    return dt_philox4x32(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
}

/* Uniform in [0, 1) with 24 bits, exact in a float. */
static inline DT_HOST_DEVICE float dt_rng_uniform(uint32_t word)
{
    return (float)(word >> 8) * (1.0f / 16777216.0f);
}

#endif
