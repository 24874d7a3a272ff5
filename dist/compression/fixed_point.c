#include "dist/compression/fixed_point.h"

#include <string.h>

#include "base/assert.h"

#define UNIT 0x1p-40
/* A double from 2^12 up to 2^13 has its last bit at 2^-40: added to this one, an addend is rounded
 * to units, and its integer can be read off the bits. Vector units then convert without an
 * instruction for it, and the same bits come out on all of them. */
#define SHIFT 0x1.8p12

/* A copy for each of these instruction sets, of the same bits: the loader takes the best one. Clang
 * gives the one name that callers know to none of them. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define FOR_EACH_ISA __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_ISA
#endif

static inline uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t is_wrong(float x)
{
    const float largest = DT_FIXED_LARGEST;
    uint32_t bits, limit;
    memcpy(&bits, &x, sizeof bits);
    memcpy(&limit, &largest, sizeof limit);
    return (bits & 0x7FFFFFFFU) >= limit;
}

FOR_EACH_ISA
uint32_t dt_fixed_add(size_t n, const float *x, int64_t *sums)
{
    uint32_t n_wrong = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t units = bits_of((double)x[i] + SHIFT) - bits_of(SHIFT);
        sums[i] = (int64_t)((uint64_t)sums[i] + units); /* wraps around, where one is wrong */
    }
    for (size_t i = 0; i < n; i++) {
        n_wrong += is_wrong(x[i]);
    }
    return n_wrong;
}

/* As (double)x, of halves that are exact, without an instruction that old vector units lack. */
static inline double rounded(int64_t x)
{
    const double high = double_of(((uint64_t)x >> 32) ^ (bits_of(0x1p84) | 0x80000000U));
    const double low = double_of(((uint64_t)x & 0xFFFFFFFFU) | bits_of(0x1p52));
    return (high - (0x1p84 + 0x1p63 + 0x1p52)) + low;
}

/* The top digit holds what is left of 63 bits, in at most 2^23; those below are balanced, so that
 * n ranks' are at most n / 2 times their base: 2^20 * 16, 2^14 * 1024. */
int dt_fixed_n_digits(int n_ranks)
{
    DT_ASSERT(n_ranks >= 1 && n_ranks <= DT_FIXED_MOST_RANKS);
    return n_ranks == 1 ? 1 : n_ranks <= 32 ? 3 : 4;
}

static int bits_per_digit(int n_digits)
{
    return n_digits == 3 ? 20 : 14;
}

static void split_group(int n_digits, const int64_t *sums, float *digits)
{
    const int bits = bits_per_digit(n_digits);
    const uint64_t half = UINT64_C(1) << (bits - 1), mask = 2 * half - 1;
    uint64_t left[DT_FIXED_GROUP]; /* never negative: 2^63 more, and half a base for each digit */
    for (int i = 0; i < DT_FIXED_GROUP; i++) {
        left[i] = (uint64_t)sums[i] + (UINT64_C(1) << 63);
    }
    for (int d = 0; d < n_digits - 1; d++, digits += DT_FIXED_GROUP) {
        for (int i = 0; i < DT_FIXED_GROUP; i++) {
            left[i] += half;
            digits[i] =
                (float)(double_of((left[i] & mask) | bits_of(0x1p52)) - (0x1p52 + (double)half));
            left[i] >>= bits;
        }
    }
    const double top = (double)(UINT64_C(1) << (63 - bits * (n_digits - 1)));
    for (int i = 0; i < DT_FIXED_GROUP; i++) {
        digits[i] = (float)(double_of(left[i] | bits_of(0x1p52)) - (0x1p52 + top));
    }
}

FOR_EACH_ISA
void dt_fixed_split(int n_digits, size_t n, const int64_t *sums, float *digits)
{
    DT_ASSERT(n % DT_FIXED_GROUP == 0 && (n_digits == 1 || n_digits == 3 || n_digits == 4));
    for (size_t i = 0; i < n && n_digits > 1; i += DT_FIXED_GROUP) {
        split_group(n_digits, sums + i, digits + (size_t)n_digits * i);
    }
    for (size_t i = 0; i < n && n_digits == 1; i++) {
        digits[i] = (float)(rounded(sums[i]) * UNIT);
    }
}

/* All but the last addition are exact, so the bits are those of rounded(). */
static inline void join_group(int n_digits, const float *digits, float *out)
{
    const double base = n_digits > 1 ? (double)(1 << bits_per_digit(n_digits)) : 1,
                 unit = n_digits > 1 ? UNIT : 1;
    double powers[4] = {unit};
    double sums[DT_FIXED_GROUP] = {0};
    for (int d = 1; d < n_digits; d++) {
        powers[d] = powers[d - 1] * base;
    }
    for (int d = 0; d < n_digits; d++) {
        for (int i = 0; i < DT_FIXED_GROUP; i++) {
            sums[i] += powers[d] * (double)digits[DT_FIXED_GROUP * d + i];
        }
    }
    for (int i = 0; i < DT_FIXED_GROUP; i++) {
        out[i] = (float)sums[i];
    }
}

FOR_EACH_ISA
size_t dt_fixed_join(int n_digits, size_t n, const float *digits, float *out)
{
    DT_ASSERT(n % DT_FIXED_GROUP == 0 && (n_digits == 1 || n_digits == 3 || n_digits == 4));
    size_t n_wrong = 0;
    for (size_t at = 0; at < n; at += DT_FIXED_GROUP) {
        join_group(n_digits, digits + (size_t)n_digits * at, out + at);
        for (size_t i = 0; i < DT_FIXED_GROUP; i++) {
            n_wrong += is_wrong(out[at + i]) && out[at + i] != out[at + i];
        }
    }
    return n_wrong;
}
