/* Makes numbers too small for a normal float count as zero, in this thread and in threads that it
 * starts from then on. A weight whose input is always zero has gradients of zero. Adam's mean of
 * them shrinks by a tenth a step until it is subnormal, and there it stays, rounded up again each
 * time. A thousand steps later this holds for most weights after a blank background, and a
 * processor needs a hundred cycles for each operation on such a number. */
#ifndef DT_CPU_SUBNORMALS_H
#define DT_CPU_SUBNORMALS_H

#include <stdint.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* Returns the thread's previous state, for dt_subnormals_restore. */
static inline uint32_t dt_subnormals_flush(void)
{
#if defined(__SSE2__)
    const uint32_t before = _mm_getcsr();
    _mm_setcsr(before | 0x8000 | 0x0040); /* results, and operands */
    return before;
#elif defined(__aarch64__)
    const uint32_t before = __builtin_aarch64_get_fpcr();
    __builtin_aarch64_set_fpcr(before | (uint32_t)1 << 24);
    return before;
#else
    return 0;
#endif
}

static inline void dt_subnormals_restore(uint32_t before)
{
#if defined(__SSE2__)
    _mm_setcsr(before);
#elif defined(__aarch64__)
    __builtin_aarch64_set_fpcr(before);
#else
    (void)before;
#endif
}

#endif
