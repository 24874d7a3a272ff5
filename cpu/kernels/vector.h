/* Vectors of floats in GCC's and clang's notation for every processor, with as many lanes, VL, as
 * the instruction set has. */
#ifndef DT_CPU_KERNELS_VECTOR_H
#define DT_CPU_KERNELS_VECTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define VL 16
#define VL_LOG 4
#elif defined(__AVX__)
#define VL 8
#define VL_LOG 3
#else
#define VL 4
#define VL_LOG 2
#endif

typedef float vf __attribute__((vector_size(4 * VL)));
typedef int32_t vi __attribute__((vector_size(4 * VL)));
typedef uint32_t vu __attribute__((vector_size(4 * VL)));
typedef uint64_t vu64 __attribute__((vector_size(4 * VL)));
typedef float vf_memory
    __attribute__((vector_size(4 * VL), aligned(4), may_alias)); /* unaligned, like the memory */

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")
#else
#define UNROLL _Pragma("GCC unroll 32")
#define UNROLL_4 _Pragma("GCC unroll 4")
#endif
#define UNROLLED(i, n) UNROLL for (int i = 0; i < (n); i++)
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Uses one register for an address, not one for each of its offsets. */
#define KEEP_ADDRESS(p) __asm__("" : "+r"(p))

ALWAYS_INLINE vf load(const float *p)
{
    return *(const vf_memory *)p;
}

/* Zeros if not `inside`, when p may be no address. */
ALWAYS_INLINE vf load_if(bool inside, const float *p)
{
#if defined(__AVX512F__)
    return (vf)_mm512_maskz_loadu_ps((__mmask16) - (int)inside, p);
#else
    return inside ? load(p) : (vf){0};
#endif
}

ALWAYS_INLINE void store(float *p, vf v)
{
    *(vf_memory *)p = v;
}

/* Stores to an address aligned like a vector without reading its cache line, nor keeping it in a
 * cache. Only a whole line, stored at once, is faster so. */
ALWAYS_INLINE void store_past(float *p, vf v)
{
#if defined(__AVX512F__)
    _mm512_stream_ps(p, (__m512)v);
#elif defined(__AVX__)
    _mm256_stream_ps(p, (__m256)v);
#elif defined(__SSE2__)
    _mm_stream_ps(p, (__m128)v);
#else
    store(p, v);
#endif
}

ALWAYS_INLINE void store_by(bool past, float *p, vf v)
{
    if (past) {
        store_past(p, v);
    } else {
        store(p, v);
    }
}

/* Other threads see what was stored past the caches before what is stored from now on. */
ALWAYS_INLINE void store_past_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* At most 2^log_most bytes, without a call. */
ALWAYS_INLINE void copy_few(const int log_most, void *to, const void *from, size_t n_bytes)
{
    size_t at = 0;
    UNROLL
    for (int log = log_most; log >= 0; log--) {
        const size_t n = (size_t)1 << log;
        if ((n_bytes & n) != 0) {
            memcpy((char *)to + at, (const char *)from + at, n);
            at += n;
        }
    }
}

/* The first n lanes. */
ALWAYS_INLINE void store_first(float *p, vf v, int n)
{
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
#else
    copy_few(VL_LOG + 2, p, &v, (size_t)n * sizeof(float));
#endif
}

/* The first n lanes, or all. */
ALWAYS_INLINE void store_lanes(float *p, vf v, int n)
{
    if (n >= VL) {
        store(p, v);
    } else {
        store_first(p, v, n);
    }
}

ALWAYS_INLINE vf blend(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

ALWAYS_INLINE vf choose(bool which, vf yes, vf no)
{
#if defined(__AVX512F__)
    return (vf)_mm512_mask_mov_ps((__m512)no, (__mmask16) - (int)which, (__m512)yes);
#else
    return blend((vi){0} - (int)which, yes, no);
#endif
}

/* Picks lanes of a (from 0 on) and of b (from VL on) by `from`, a constant. */
ALWAYS_INLINE vf shuffle(vf a, vf b, vi from)
{
#if defined(__clang__)
    vf out;
    UNROLLED(i, VL) {
        out[i] = from[i] < VL ? a[from[i] % VL] : b[from[i] % VL];
    }
    return out;
#else
    return __builtin_shuffle(a, b, from);
#endif
}

/* a > b ? a : b, so b if either is NaN. */
ALWAYS_INLINE vf larger(vf a, vf b)
{
#if defined(__AVX512F__)
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX__)
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (vf)_mm_max_ps((__m128)a, (__m128)b);
#else
    return blend(a > b, a, b);
#endif
}

ALWAYS_INLINE vi lane_numbers(void)
{
    vi lane;
    UNROLLED(i, VL) {
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

/* a[0] b[0] a[1] b[1] ..., from the first halves or from the second. */
ALWAYS_INLINE vf interleave_low(vf a, vf b)
{
    return shuffle(a, b, (lane_numbers() >> 1) + (lane_numbers() & 1) * VL);
}

ALWAYS_INLINE vf interleave_high(vf a, vf b)
{
    return shuffle(a, b, (lane_numbers() >> 1) + (lane_numbers() & 1) * VL + VL / 2);
}

/* Transposes a square of vectors: lane j of row i becomes lane i of row j. Each round interleaves
 * rows i and i + VL / 2. */
ALWAYS_INLINE void transpose_block(vf row[VL])
{
    UNROLLED(round, VL_LOG) {
        vf next[VL];
        UNROLLED(i, VL / 2) {
            next[2 * i] = interleave_low(row[i], row[i + VL / 2]);
            next[2 * i + 1] = interleave_high(row[i], row[i + VL / 2]);
        }
        UNROLLED(i, VL) {
            row[i] = next[i];
        }
    }
}

/* A mask of lanes: bits in a mask register, or all bits of each lane. */
#if defined(__AVX512F__)
typedef __mmask16 vm;
#else
typedef vi vm;
#endif

ALWAYS_INLINE vm greater(vf a, vf b)
{
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ);
#else
    return a > b;
#endif
}

/* Lanes whose byte is 1; the others' must be 0. Compilers widen bytes poorly. */
ALWAYS_INLINE vm lanes_of_bytes(const uint8_t *p)
{
#if defined(__AVX512BW__) && defined(__AVX512VL__)
    const __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    return _mm_test_epi8_mask(bytes, bytes);
#elif defined(__AVX512F__)
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm512_test_epi32_mask(bytes, bytes);
#elif defined(__AVX2__)
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)) > 0;
#elif defined(__SSE2__)
    int32_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    const __m128i four = _mm_cvtsi32_si128(bytes), pairs = _mm_unpacklo_epi8(four, four);
    return (vi)_mm_unpacklo_epi16(pairs, pairs) > 0;
#else
    vi byte;
    for (int i = 0; i < VL; i++) {
        byte[i] = p[i];
    }
    return byte > 0;
#endif
}

/* Lane i for bit i. */
ALWAYS_INLINE vm lanes_of_bits(uint32_t bits)
{
#if defined(__AVX512F__)
    return (vm)bits;
#else
    const vi bit = ((vi){0} + 1) << lane_numbers();
    return (((vi){0} + (int32_t)bits) & bit) == bit;
#endif
}

/* v in the masked lanes, zero in the others. */
ALWAYS_INLINE vf only(vm which, vf v)
{
#if defined(__AVX512F__)
    return (vf)_mm512_maskz_mov_ps(which, (__m512)v);
#else
    return (vf)(which & (vi)v);
#endif
}

/* One bit per lane. */
ALWAYS_INLINE uint32_t lane_bits(vm which)
{
#if defined(__AVX512F__)
    return which;
#elif defined(__AVX__)
    return (uint32_t)_mm256_movemask_ps((__m256)which);
#elif defined(__SSE2__)
    return (uint32_t)_mm_movemask_ps((__m128)which);
#else
    uint32_t bits = 0;
    for (int i = 0; i < VL; i++) {
        bits |= (uint32_t)(which[i] & 1) << i;
    }
    return bits;
#endif
}

/* One bit per lane that has any bit set: all but +0. */
ALWAYS_INLINE uint64_t lanes_with_bits(vi v)
{
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)v, (__m512i)v);
#else
    return lane_bits(v != 0);
#endif
}

/* One bit per nonzero lane; NaN counts as nonzero. */
ALWAYS_INLINE uint64_t nonzero_lanes(vf v)
{
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)v, _mm512_setzero_ps(), _CMP_NEQ_UQ);
#else
    return lane_bits(v != 0);
#endif
}

#endif
