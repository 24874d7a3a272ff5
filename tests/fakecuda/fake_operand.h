/* Operands of the libraries' calls: elements of float or bfloat16, rounded as in hardware, and
 * workspace. */
#ifndef DT_TESTS_FAKECUDA_FAKE_OPERAND_H
#define DT_TESTS_FAKECUDA_FAKE_OPERAND_H

#include <cuda_bf16.h>
#include <stdint.h>

#include <algorithm>
#include <cmath>
#include <cstring>

/* With tf32, 10 bits of fraction; truncates the rest, as tensor cores do with unrounded floats. */
static inline float fake_load(const void *memory, size_t i, bool is_float, bool tf32)
{
    float x = is_float ? ((const float *)memory)[i] : (float)((const __nv_bfloat16 *)memory)[i];
    uint32_t bits;
    if (tf32 && std::isfinite(x)) {
        memcpy(&bits, &x, sizeof bits);
        bits &= ~0x1fffu;
        memcpy(&x, &bits, sizeof x);
    }
    return x;
}

static inline void fake_store(void *memory, size_t i, bool is_float, float value)
{
    if (is_float) {
        ((float *)memory)[i] = value;
    } else {
        ((__nv_bfloat16 *)memory)[i] = __nv_bfloat16(value);
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
