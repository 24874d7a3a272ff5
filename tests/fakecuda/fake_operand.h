/* Operands of the libraries' calls: elements of float or bfloat16, rounded as in hardware, and
 * workspace. */
#ifndef DT_TESTS_FAKECUDA_FAKE_OPERAND_H
#define DT_TESTS_FAKECUDA_FAKE_OPERAND_H

#include <stdint.h>

#include <algorithm>
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

/* Ties to even. */
static inline uint16_t to_bf16(float x)
{
    const uint32_t bits = to_bits(x);
    return std::isnan(x) ? 0x7fff : (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static inline float from_bf16(uint16_t bits)
{
    return from_bits((uint32_t)bits << 16);
}

/* With tf32, 10 bits of fraction; truncates the rest, as tensor cores do with unrounded floats. */
static inline float fake_load(const void *memory, size_t i, bool is_float, bool tf32)
{
    const float x =
        is_float ? ((const float *)memory)[i] : from_bf16(((const uint16_t *)memory)[i]);
    return tf32 && std::isfinite(x) ? from_bits(to_bits(x) & ~0x1fffu) : x;
}

static inline void fake_store(void *memory, size_t i, bool is_float, float value)
{
    if (is_float) {
        ((float *)memory)[i] = value;
    } else {
        ((uint16_t *)memory)[i] = to_bf16(value);
    }
}

/* No caller may rely on its contents. */
static inline void fake_spoil(void *workspace, size_t n_bytes)
{
    memset(workspace, 0xff, std::min(n_bytes, (size_t)4096));
}

static inline bool fake_overlap(const void *a, size_t n_a, const void *b, size_t n_b)
{
    return (const char *)a < (const char *)b + n_b && (const char *)b < (const char *)a + n_a;
}

#endif
