/* Vectors of floats as GCC and clang spell them for every processor; VL lanes, as many as the instruction set has. */
#ifndef DT_CPU_VECTOR_H
#define DT_CPU_VECTOR_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define VL 16
#elif defined(__AVX__)
#define VL 8
#else
#define VL 4
#endif

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
typedef uint32_t vu __attribute__((vector_size(4 * VL)));
typedef uint64_t vu64 __attribute__((vector_size(4 * VL)));
typedef float vf_memory __attribute__((vector_size(4 * VL), aligned(4), may_alias)); /* unaligned, as memory is */

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE vf load(const float *p)
{
    return *(const vf_memory *)p;
}

ALWAYS_INLINE void store(float *p, vf v)
{
    *(vf_memory *)p = v;
}

ALWAYS_INLINE void store_first(float *p, vf v, int n)
{
    memcpy(p, &v, (size_t)n * sizeof(float));
}

ALWAYS_INLINE vf blend(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

ALWAYS_INLINE vi lane_numbers(void)
{
    vi lane;
    UNROLL
    for (int i = 0; i < VL; i++) {
        lane[i] = i;
    }
    return lane;
}

/* Lanes below n: all bits set. */
ALWAYS_INLINE vi first_lanes(int n)
{
    return lane_numbers() < n;
}

/* 64-bit products of the even lanes with a number. */
ALWAYS_INLINE vu multiply_even(vu a, uint32_t factor)
{
#if defined(__AVX512F__)
    return (vu)_mm512_mul_epu32((__m512i)a, _mm512_set1_epi64(factor));
#elif defined(__AVX2__)
    return (vu)_mm256_mul_epu32((__m256i)a, _mm256_set1_epi64x(factor));
#elif defined(__SSE2__)
    return (vu)_mm_mul_epu32((__m128i)a, _mm_set1_epi64x(factor));
#else
    return (vu)(((vu64)a & 0xFFFFFFFFu) * factor);
#endif
}

/* One bit per lane that is not zero; a NaN is not zero. */
ALWAYS_INLINE uint64_t nonzero_lanes(vf v)
{
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)v, _mm512_setzero_ps(), _CMP_NEQ_UQ);
#elif defined(__AVX__)
    return (uint64_t)_mm256_movemask_ps(_mm256_cmp_ps((__m256)v, _mm256_setzero_ps(), _CMP_NEQ_UQ));
#elif defined(__SSE2__)
    return (uint64_t)_mm_movemask_ps(_mm_cmpneq_ps((__m128)v, _mm_setzero_ps()));
#else
    uint64_t bits = 0;
    for (int i = 0; i < VL; i++) {
        bits |= (uint64_t)(v[i] != 0) << i;
    }
    return bits;
#endif
}

#endif
