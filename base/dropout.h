/* Which units dropout drops: a pure function, header only, plain C that nvcc compiles too. */
#ifndef DT_BASE_DROPOUT_H
#define DT_BASE_DROPOUT_H

#include "base/rng.h"

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
