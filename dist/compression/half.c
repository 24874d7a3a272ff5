/* Numbers of 16 bits, each by itself: IEEE half precision, and bfloat16, the upper half of a float.
 */
#include "dist/compression/codec.h"

#define SIGN 0x80000000u
#define SMALLEST_NORMAL 0x38800000u /* 2^-14, as a float's bits; and what follows */
#define INFINITE 0x7F800000u
#define HALF_INFINITE 0x7C00u
#define BIAS_DIFFERENCE (112u << 23) /* of the exponents */

/* Without branches, so that the compiler does several at once. */
static inline uint16_t fp16_of(float x)
{
    const uint32_t bits = dt_float_bits(x), size = bits & ~SIGN;
    const uint32_t rounded = (size + 0xFFFu + (size >> 13 & 1u) - BIAS_DIFFERENCE) >> 13;
    /* A float as large as 0.5 has steps of 2^-24, as the smallest halves have. */
    const uint32_t subnormal = dt_float_bits(dt_float_of_bits(size) + 0.5f) - dt_float_bits(0.5f);
    const uint32_t finite = size < SMALLEST_NORMAL    ? subnormal
                            : rounded < HALF_INFINITE ? rounded
                                                      : HALF_INFINITE;
    const uint32_t nan = HALF_INFINITE | 0x200u | (size >> 13 & 0x3FFu);
    return (uint16_t)((bits & SIGN) >> 16 | (size > INFINITE    ? nan
                                             : size == INFINITE ? HALF_INFINITE
                                                                : finite));
}

static inline float float_of_fp16(uint16_t half)
{
    const uint32_t size = half & 0x7FFFu;
    const uint32_t normal = (size << 13) + BIAS_DIFFERENCE;
    const uint32_t subnormal = dt_float_bits((float)size * 0x1p-24f);
    const uint32_t bits = size < 0x400u          ? subnormal
                          : size < HALF_INFINITE ? normal
                                                 : normal + BIAS_DIFFERENCE;
    return dt_float_of_bits((uint32_t)(half & 0x8000u) << 16 | bits);
}

static size_t half_bytes(const struct dt_codec *codec, size_t begin, size_t n)
{
    (void)codec, (void)begin;
    return n * sizeof(uint16_t);
}

#define DEFINE_CODEC(name, of_float, to_float)                                                \
    static void name##_encode(const struct dt_codec *codec, uint64_t draw, const float *from, \
                              size_t begin, size_t n, uint8_t *bytes)                         \
    {                                                                                         \
        (void)codec, (void)draw, (void)begin;                                                 \
        for (size_t i = 0; i < n; i++) {                                                      \
            const uint16_t half = of_float(from[i]);                                          \
            memcpy(bytes + i * sizeof half, &half, sizeof half);                              \
        }                                                                                     \
    }                                                                                         \
                                                                                              \
    static void name##_decode_add(const struct dt_codec *codec, const uint8_t *bytes,         \
                                  size_t begin, size_t n, float *to)                          \
    {                                                                                         \
        (void)codec, (void)begin;                                                             \
        for (size_t i = 0; i < n; i++) {                                                      \
            uint16_t half;                                                                    \
            memcpy(&half, bytes + i * sizeof half, sizeof half);                              \
            to[i] += to_float(half);                                                          \
        }                                                                                     \
    }                                                                                         \
                                                                                              \
    const struct dt_codec_ops dt_##name##_codec = {.summable = true,                          \
                                                   .bytes = half_bytes,                       \
                                                   .encode = name##_encode,                   \
                                                   .decode_add = name##_decode_add}

DEFINE_CODEC(fp16, fp16_of, float_of_fp16);
DEFINE_CODEC(bf16, dt_bf16_of, dt_float_of_bf16);
