/* One bit a number, its sign: 512 of them share the mean of those that are positive and of those that are negative, which their
 * sign is read as. Of little use without error feedback (Seide 2014).
 *
 * A group is the two means (bf16, so that what is left behind is exact in a float), and the bits, low ones first; 1: negative. */
#include "base/arithmetic.h"
#include "dist/compression/codec.h"

#define GROUP ((size_t)512)
#define HEAD ((size_t)4) /* bytes: the means */

static size_t bits_bytes(size_t n)
{
    return (n + 7) / 8;
}

static size_t onebit_bytes(const struct dt_codec *codec, size_t n)
{
    (void)codec;
    return bits_bytes(n) + HEAD * ((n + GROUP - 1) / GROUP);
}

static void encode_group(const float *from, size_t n, uint8_t *bytes)
{
    double sums[2] = {0, 0};
    size_t n_negative = 0;
    memset(bytes + HEAD, 0, bits_bytes(n));
    for (size_t i = 0; i < n; i++) {
        const uint32_t negative = dt_float_bits(from[i]) >> 31;
        sums[negative] += (double)from[i];
        n_negative += negative;
        bytes[HEAD + i / 8] |= (uint8_t)(negative << i % 8);
    }
    const size_t counts[] = {n - n_negative, n_negative};
    for (size_t k = 0; k < 2; k++) {
        const uint16_t mean = dt_bf16_of(counts[k] > 0 ? (float)(sums[k] / (double)counts[k]) : 0);
        memcpy(bytes + k * sizeof mean, &mean, sizeof mean);
    }
}

static void onebit_encode(const struct dt_codec *codec, uint64_t draw, const float *from, size_t n, uint8_t *bytes)
{
    (void)codec, (void)draw;
    for (size_t at = 0; at < n; at += GROUP, bytes += HEAD + bits_bytes(GROUP)) {
        encode_group(from + at, dt_min_size(GROUP, n - at), bytes);
    }
}

static void decode_group(const uint8_t *bytes, size_t n, float *to)
{
    uint16_t means[2];
    memcpy(means, bytes, sizeof means);
    const float values[] = {dt_float_of_bf16(means[0]), dt_float_of_bf16(means[1])};
    for (size_t i = 0; i < n; i++) {
        to[i] += values[bytes[HEAD + i / 8] >> i % 8 & 1];
    }
}

static void onebit_decode_add(const struct dt_codec *codec, const uint8_t *bytes, size_t n, float *to)
{
    (void)codec;
    for (size_t at = 0; at < n; at += GROUP, bytes += HEAD + bits_bytes(GROUP)) {
        decode_group(bytes, dt_min_size(GROUP, n - at), to + at);
    }
}

const struct dt_codec_ops dt_onebit_codec = {
    .summable = false, .bytes = onebit_bytes, .encode = onebit_encode, .decode_add = onebit_decode_add};
