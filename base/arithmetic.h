/* Small arithmetic that C has no names for. */
#ifndef DT_BASE_ARITHMETIC_H
#define DT_BASE_ARITHMETIC_H

#include <stddef.h>

static inline int dt_min(int a, int b)
{
    return a < b ? a : b;
}

static inline int dt_max(int a, int b)
{
    return a > b ? a : b;
}

static inline size_t dt_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t dt_max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The least multiple of `to` that is not below n. */
static inline size_t dt_round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

#endif
