/* Rounding as in hardware. */
#ifndef DT_TESTS_FAKECUDA_FAKE_NUMBER_H
#define DT_TESTS_FAKECUDA_FAKE_NUMBER_H

#include <stdint.h>

#include <cmath>
#include <cstring>

static inline float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t to_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float from_bf16(uint16_t bits)
{
    return from_bits((uint32_t)bits << 16);
}

/* Ties to even. */
static inline uint16_t to_bf16(float x)
{
    const uint32_t bits = to_bits(x);
    return std::isnan(x) ? 0x7fff : (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* 10 bits of fraction; truncates the rest, as tensor cores do with unrounded floats. */
static inline float to_tf32(float x)
{
    return std::isfinite(x) ? from_bits(to_bits(x) & ~0x1fffu) : x;
}

#endif
