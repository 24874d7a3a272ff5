/* The micro-kernel under everything that skips zeros: a row of c kept in registers while a list of nonzero factors is walked,
 *     c[j] (+)= sum over entries of value * b[index * stride + j]. */
#ifndef DT_CPU_LIST_H
#define DT_CPU_LIST_H

#include "cpu/cpu_kernels.h"
#include "cpu/cpu_vector.h"

#define LIST_VECTORS 12

/* V vectors of c; of the last one, only lanes in `valid` are changed. */
ALWAYS_INLINE void list_add(const int V, const struct dt_entry *entry, const struct dt_entry *end, const float *b, size_t stride,
                            const bool accumulate, vi valid, float *c)
{
    vf sum[LIST_VECTORS];
    const vf last = load(c + (V - 1) * VL);
    UNROLL
    for (int v = 0; v < V; v++) {
        sum[v] = accumulate ? load(c + v * VL) : (vf){0};
    }
    for (; entry < end; entry++) {
        const float *from = b + (size_t)entry->index * stride, value = entry->value;
        UNROLL
        for (int v = 0; v < V; v++) {
            sum[v] += value * load(from + v * VL);
        }
    }
    sum[V - 1] = blend(valid, sum[V - 1], last);
    UNROLL
    for (int v = 0; v < V; v++) {
        store(c + v * VL, sum[v]);
    }
}

/* A row is walked in pieces of 12, 6, 4, 2 or 1 vectors. */
static inline int list_piece(size_t n_vectors)
{
    return n_vectors >= 12 ? 12 : n_vectors >= 6 ? 6 : n_vectors >= 4 ? 4 : n_vectors >= 2 ? 2 : 1;
}

/* Calls `call`, a macro of the number of vectors, with V as a constant. */
#define LIST_EACH_PIECE(V, call) \
    switch (V) {                 \
    case 12:                     \
        call(12);                \
        break;                   \
    case 6:                      \
        call(6);                 \
        break;                   \
    case 4:                      \
        call(4);                 \
        break;                   \
    case 2:                      \
        call(2);                 \
        break;                   \
    default:                     \
        call(1);                 \
        break;                   \
    }

#endif
