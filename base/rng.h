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

/* ---- which units dropout drops */

/* Units of a sample are numbered with channels innermost, unit = (h * W + w) * C + c. Each
 * draws a number below 65536 and is dropped where that is below the threshold; the rate is thus met
 * to 1/65536. A rate of whole 1/256, as most are, needs the upper 8 bits alone. So one Philox call,
 * a group, decides n = 16 neighbouring units there, and 8 at any other rate: unit u takes place u %
 * n of group u / n, low bits first. */
static inline DT_HOST_DEVICE uint32_t dt_dropout_threshold(float rate)
{
    DT_ASSERT(rate >= 0 && rate < 1);
    return (uint32_t)(rate * 65536.0f + 0.5f);
}

static inline DT_HOST_DEVICE uint32_t dt_dropout_group_units(uint32_t threshold)
{
    return threshold % 256 == 0 ? 16 : 8;
}

/* The words of the group that a unit belongs to. */
static inline DT_HOST_DEVICE struct dt_rng4 dt_dropout_words(uint64_t seed, uint32_t stream,
                                                             uint32_t epoch, uint32_t sample,
                                                             uint32_t unit, uint32_t threshold)
{
    return dt_rng_words(seed, DT_RNG_DROPOUT, stream, epoch, sample,
                        unit / dt_dropout_group_units(threshold));
}

static inline DT_HOST_DEVICE int dt_dropout_keeps(struct dt_rng4 words, uint32_t unit,
                                                  uint32_t threshold)
{
    const uint32_t byte = unit % 16, half = unit % 8;
    return threshold % 256 == 0
               ? ((words.v[byte / 4] >> (8 * (byte % 4))) & 0xFFu) >= threshold / 256
               : ((words.v[half / 2] >> (16 * (half % 2))) & 0xFFFFu) >= threshold;
}

#endif
