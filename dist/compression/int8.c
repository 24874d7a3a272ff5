/* 8 bits a number: 256 of them share a scale and a zero point, with which zero itself is exact.
 *
 * A group is its scale (bf16, so that whole multiples of it are exact in a float), its zero point
 * z, and a byte q for each number, which stands for (q - z) scale. Stochastic rounding goes up with
 * the probability of what is beyond the step below, so that the mean is the number: Alistarh,
 * Grubic, Li, Tomioka, Vojnovic, "QSGD", NIPS 2017, arXiv 1610.02132. */
#include <math.h>

#include "base/arithmetic.h"
#include "base/rng.h"
#include "dist/compression/codec.h"

#define GROUP ((size_t)256)
#define LAST 255         /* the largest q */
#define HEAD ((size_t)3) /* bytes: scale, zero point */
#define DRAWS 8          /* of 16 bits, from one call */

static size_t int8_bytes(const struct dt_codec *codec, size_t begin, size_t n)
{
    (void)codec, (void)begin;
    return n + HEAD * ((n + GROUP - 1) / GROUP);
}

struct group {
    float scale; /* NaN: some number is not finite, and nothing that is read will be */
    uint8_t zero;
};

static struct group measure(const float *from, size_t n)
{
    float low = 0, high = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        low = from[i] < low ? from[i] : low;
        high = from[i] > high ? from[i] : high;
        sum += from[i] * 0; /* NaN, if one is NaN or infinite */
    }
    const uint32_t bits = dt_float_bits(
        (high - low) / (LAST - 1)); /* one step less than there are: zero is one of them */
    const float scale = dt_float_of_bits((bits + 0xFFFFu) & 0xFFFF0000u) + sum; /* rounded up */
    return (struct group){.scale = scale, .zero = scale > 0 ? (uint8_t)ceilf(-low / scale) : 0};
}

/* Offsets that are added before the fraction is cut off, for a group's numbers [at, at + DRAWS). */
static void draw_offsets(const struct dt_codec *codec, uint64_t draw, size_t at, float out[DRAWS])
{
    if (codec->spec.rounding == DT_ROUNDING_NEAREST) {
        for (int i = 0; i < DRAWS; i++) {
            out[i] = 0.5f;
        }
        return;
    }
    const struct dt_rng4 words =
        dt_rng_words(draw, DT_RNG_ROUNDING, 0, 0, 0, (uint32_t)(at / DRAWS));
    for (int i = 0; i < DRAWS; i++) {
        out[i] = (float)(words.v[i / 2] >> 16 * (i % 2) & 0xFFFFu) * 0x1p-16f;
    }
}

static void encode_group(const struct dt_codec *codec, uint64_t draw, size_t at, const float *from,
                         size_t n, uint8_t *bytes)
{
    DT_ASSERT(n >= 1 && n <= GROUP && at % GROUP == 0);
    const struct group group = measure(from, n);
    const uint16_t scale = dt_bf16_of(group.scale);
    float offsets[DRAWS];
    memcpy(bytes, &scale, sizeof scale);
    bytes[2] = group.zero;
    draw_offsets(codec, draw, at, offsets);
    for (size_t i = 0; i < n; i++) {
        if (i % DRAWS == 0 && codec->spec.rounding == DT_ROUNDING_STOCHASTIC) {
            draw_offsets(codec, draw, at + i, offsets);
        }
        const float q =
            group.scale > 0 ? from[i] / group.scale + (float)group.zero + offsets[i % DRAWS] : 0;
        bytes[HEAD + i] = (uint8_t)(q < LAST ? q : LAST);
    }
}

static void int8_encode(const struct dt_codec *codec, uint64_t draw, const float *from,
                        size_t begin, size_t n, uint8_t *bytes)
{
    (void)begin;
    for (size_t at = 0; at < n; at += GROUP, bytes += HEAD + GROUP) {
        encode_group(codec, draw, at, from + at, dt_min_size(GROUP, n - at), bytes);
    }
}

static void decode_group(const uint8_t *bytes, size_t n, float *to)
{
    DT_ASSERT(n >= 1 && n <= GROUP);
    uint16_t half;
    memcpy(&half, bytes, sizeof half);
    const float scale = dt_float_of_bf16(half);
    const int zero = bytes[2];
    for (size_t i = 0; i < n; i++) {
        to[i] += (float)(bytes[HEAD + i] - zero) * scale;
    }
}

static void int8_decode_add(const struct dt_codec *codec, const uint8_t *bytes, size_t begin,
                            size_t n, float *to)
{
    (void)codec, (void)begin;
    for (size_t at = 0; at < n; at += GROUP, bytes += HEAD + GROUP) {
        decode_group(bytes, dt_min_size(GROUP, n - at), to + at);
    }
}

const struct dt_codec_ops dt_int8_codec = {
    .summable = false, .bytes = int8_bytes, .encode = int8_encode, .decode_add = int8_decode_add};
