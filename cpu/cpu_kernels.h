/* The vector kernels of the cpu backend: one table of functions per instruction set.
 *
 * Every kernel source is compiled once per instruction set, with DT_CPU_ISA naming it; cpu_isa.c chooses a table at open.
 * Kernels work on one image, or on one part of a matrix: threads, batches and memory are cpu_block.c's affair. Activations are
 * H W C (channels innermost). Every buffer may be read up to 256 bytes past its end; nothing is written past it.
 * What is read past a row or an image may be another thread's work in progress: those lanes are never used. */
#ifndef DT_CPU_KERNELS_H
#define DT_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/backend.h"

/* A convolution over an input whose padding is already in place, so that every window lies inside. */
struct dt_conv {
    int c, h, w;
    int k, out_h, out_w;
    int kernel, stride;
};

/* One nonzero number of a list. Zeros contribute nothing to a backward pass, and after ReLU, max pool and dropout most are zero. */
struct dt_entry {
    int32_t index;
    float value;
};

/* The nonzero output gradients of one image. `index` is a filter in the row list, and in a filter's list the offset of the window
 * in the input. */
struct dt_conv_lists {
    uint32_t *row_begin;        /* (out_w + 1) */
    struct dt_entry *row;       /* (out_w * k) one output row, position by position */
    uint32_t *n_of_filter;      /* (k) */
    struct dt_entry *of_filter; /* (k, out_h * out_w) */
};

struct dt_pooling {
    int c, h, w;
    int out_h, out_w;
    int size, stride;
};

/* The nonzero elements of a matrix a (k, m), by column, for DT_GEMM_DEPTH rows at a time: column i of rows block b are the entries
 * begin[b * m + i] .. begin[b * m + i + 1] - 1; `index` is the row within the block. */
struct dt_sparse {
    uint32_t *begin;        /* (blocks * m + 1) */
    struct dt_entry *entry; /* (k * m) */
};

/* Which mask a sample's dropout draws: base/rng.h. */
struct dt_dropout_key {
    uint64_t seed;
    uint32_t stream, epoch, sample, threshold;
};

/* X(result, name, arguments)
 *
 * conv_pack_forward, conv_pack_backward: arena weights (K C R S) to the kernels' own orders; sizes below.
 * conv_forward: y = conv(x) + bias, and ReLU where asked.
 * count_nonzero: how many of x.
 * conv_backward: n_nonzero says how many elements of dy are not zero. Adds to dw (k, kernel rows, dt_conv_segment) and db (k), and,
 * unless dx is NULL, to dx, which has x's shape; if a segment is not whole vectors, dx needs room for one more vector.
 * conv_store_gradient: grads (K C R S) = or += the slices of dw, one after the other, so always in the same order.
 * gemm_nt: c (m, n) = a (m, k) * b (n, k)^T + bias (n).
 * gemm_tn: DT_GEMM_TILE or fewer columns of c: c (m, n) = or += sum over k of a[k * a_step + m * a_stride] * b[k * b_step + n];
 *   packed: scratch of DT_GEMM_PACKED floats.
 * sparse_fill: lists a (k, m) as gemm_tn sees it; returns the number of entries. gemm_sparse: gemm_tn with such an a.
 * max_pool: winner (out) is the chosen element's place in its window, row by row; NULL if not wanted. The first of equals wins, and
 *   a NaN beats every number. *_pool_backward: overwrites dx.
 * activate: in place. activate_backward: dy *= slope at the activation's output y * y_scale.
 * dropout_mask: keep[unit] is 1 or 0. dropout: x *= keep ? scale : 0.
 * transpose: to (n_cols, n_rows) from (n_rows, n_cols).
 * fma_loop: n_rounds times DT_FMA_CHAINS independent vector multiply-adds, for measuring what the core can do at most.
 * sum_squares: of at most DT_SUM_CHUNK floats. sgd, adam: the rules of model/optimizer.h. */
#define DT_CPU_KERNEL_LIST(X)                                                                                                     \
    X(void, conv_pack_forward, (const struct dt_conv *conv, const float *weight, float *packed))                                  \
    X(void, conv_forward,                                                                                                         \
      (const struct dt_conv *conv, const float *x, const float *packed, const float *bias, bool relu, float *y))                  \
    X(void, conv_pack_backward, (const struct dt_conv *conv, const float *weight, float *packed))                                 \
    X(size_t, count_nonzero, (size_t n_elems, const float *x))                                                                    \
    X(void, conv_backward,                                                                                                        \
      (const struct dt_conv *conv, const float *x, const float *dy, size_t n_nonzero, const float *packed,                        \
       const struct dt_conv_lists *lists, float *dw, float *db, float *dx))                                                       \
    X(void, conv_store_gradient, (const struct dt_conv *conv, int n_slices, const float *dw, bool accumulate, float *grads))      \
    X(void, gemm_nt, (int m, int n, int k, const float *a, const float *b, const float *bias, float *c))                          \
    X(void, gemm_tn,                                                                                                              \
      (int m, int n, int k, const float *a, size_t a_step, size_t a_stride, const float *b, size_t b_step, bool accumulate,       \
       float *c, size_t c_stride, float *packed))                                                                                 \
    X(size_t, sparse_fill, (int m, int k, const float *a, size_t a_step, size_t a_stride, const struct dt_sparse *sparse))        \
    X(void, gemm_sparse,                                                                                                          \
      (int m, int n, int k, const struct dt_sparse *a, const float *b, size_t b_step, bool accumulate, float *c, size_t c_stride, \
       float *packed))                                                                                                            \
    X(void, max_pool, (const struct dt_pooling *pool, const float *x, float *y, uint16_t *winner))                                \
    X(void, max_pool_backward, (const struct dt_pooling *pool, const float *dy, const uint16_t *winner, float *dx))               \
    X(void, avg_pool, (const struct dt_pooling *pool, const float *x, float *y))                                                  \
    X(void, avg_pool_backward, (const struct dt_pooling *pool, const float *dy, float *dx))                                       \
    X(void, activate, (enum dt_activation activation, size_t n_elems, float *x))                                                  \
    X(void, activate_backward, (enum dt_activation activation, size_t n_elems, const float *y, float y_scale, float *dy))         \
    X(void, dropout_mask, (const struct dt_dropout_key *key, size_t n_units, uint8_t *keep))                                      \
    X(void, dropout, (size_t n_units, const uint8_t *keep, float scale, float *x))                                                \
    X(void, transpose, (size_t n_rows, size_t n_cols, const float *from, float *to))                                              \
    X(void, fma_loop, (size_t n_rounds, float *out))                                                                              \
    X(double, sum_squares, (size_t n_elems, const float *x))                                                                      \
    X(void, sgd, (const struct dt_update *update, size_t n_elems, float *params, const float *grads, float *velocity))            \
    X(void, adam, (const struct dt_update *update, size_t n_elems, float *params, const float *grads, float *mean, float *square))

struct dt_cpu_kernels {
    const char *isa;
    int vector; /* floats in one */
#define DT_KERNEL_MEMBER(result, name, arguments) result(*name) arguments;
    DT_CPU_KERNEL_LIST(DT_KERNEL_MEMBER)
#undef DT_KERNEL_MEMBER
};

#define DT_GEMM_TILE 96
#define DT_GEMM_DEPTH 256 /* rows of b packed at a time */
#define DT_GEMM_PACKED (DT_GEMM_DEPTH * DT_GEMM_TILE)
#define DT_SUM_CHUNK 4096
#define DT_FMA_CHAINS 12
#define DT_MAX_VECTOR 16

static inline size_t dt_round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Floats of one window row (kernel * c neighbouring floats), in whole vectors. */
static inline size_t dt_conv_segment(const struct dt_conv *conv, int vector)
{
    return dt_round_up((size_t)conv->kernel * (size_t)conv->c, (size_t)vector);
}

static inline size_t dt_conv_packed_forward_elems(const struct dt_conv *conv, int vector)
{
    return dt_round_up((size_t)conv->k, (size_t)vector) * (size_t)conv->kernel * (size_t)conv->kernel * (size_t)conv->c;
}

/* Of the weights packed for the backward pass, and of one slice's dw. */
static inline size_t dt_conv_packed_backward_elems(const struct dt_conv *conv, int vector)
{
    return (size_t)conv->k * (size_t)conv->kernel * dt_conv_segment(conv, vector);
}

#ifdef DT_CPU_ISA
#define DT_KERNEL_PASTE(name, isa) dt_cpu_##name##_##isa
#define DT_KERNEL_EXPAND(name, isa) DT_KERNEL_PASTE(name, isa)
#define DT_KERNEL(name) DT_KERNEL_EXPAND(name, DT_CPU_ISA)
#define DT_KERNEL_DECLARATION(result, name, arguments) result DT_KERNEL(name) arguments;
DT_CPU_KERNEL_LIST(DT_KERNEL_DECLARATION)
#undef DT_KERNEL_DECLARATION
extern const struct dt_cpu_kernels DT_KERNEL(kernels);
#endif

#endif
