/* The vector kernels of the cpu backend: one table of functions per instruction set. Every kernel
 * source is compiled once per instruction set, with DT_CPU_ISA naming it; isa.c chooses a table at
 * open. Kernels work on one image, or on one part of a matrix: block.c and conv.c handle threads
 * and batches, memory.c handles memory. Activations are H W C (channels innermost). Every buffer
 * may be read up to 256 bytes past its end; nothing is written past it. Bytes read past a row or an
 * image may be another thread's unfinished work: those lanes are never used. */
#ifndef DT_CPU_KERNELS_KERNELS_H
#define DT_CPU_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arithmetic.h"
#include "cpu/kernels/winograd/winograd.h"
#include "model/backend.h"
#include "model/optimizer.h"

/* A convolution over an already padded input, so that every window lies inside. */
struct dt_conv {
    int c, h, w;
    int k, out_h, out_w;
    int kernel, stride;
};

/* One nonzero number of a list. Zeros add nothing to a sum, and most numbers are zero after ReLU,
 * max pool and dropout. */
struct dt_entry {
    int32_t index;
    float value;
};

/* The nonzero output gradients of one image. They may still lie in the pool's layout: each
 * position's k values begin at value + row_at[its row] + column_at[its column]. */
struct dt_nonzeros {
    uint64_t *
        bitmask; /* (out_h, out_w, dt_nonzero_words(k)); bit i of a position: filter i's gradient */
    const float *value;           /* values of other filters are not read */
    float scale;                  /* dropout's factor for them */
    uint32_t *row_at, *column_at; /* (out_h), (out_w) */
};

/* The same by filter: `index` is the offset of a window in the input. Cut into bands of output
 * rows. */
struct dt_conv_lists {
    int band;                       /* rows */
    struct dt_entry *entry;         /* (k, stride) */
    size_t stride;                  /* entries between neighbouring filters */
    struct dt_entry **begin, **end; /* (bands, k) start of each band; (k) end of the last one */
};

struct dt_pooling {
    int c, h, w;
    int out_h, out_w;
    int size_h, size_w, stride;
};

/* Some rows of a batch under normalization, channels innermost: y = (x - mean) scale + bias, then
 * ReLU if `relu`; dx = dy scale + (x - mean) per_x + fixed, where dy has passed the ReLU, and is
 * added to what is there if `adds`. */
struct dt_norm {
    size_t n_rows;
    int n_c;
    bool relu, adds;
    const float *mean, *scale, *bias, *per_x, *fixed; /* (n_c), whole vectors */
    const float *x, *dy;                              /* (n_rows, n_c) */
    float *y, *dx;
};

/* The nonzero elements of a matrix: per block of DT_DENSE_DEPTH samples (or units) m lists, one for
 * every unit (or sample). List i of block b is the entries begin[b * m + i] .. begin[b * m + i + 1]
 * - 1; `index` counts from the block's first. */
struct dt_sparse {
    uint32_t *begin;        /* (blocks * m + 1) */
    struct dt_entry *entry; /* as many as the matrix has elements, and DT_MAX_VECTOR */
};

/* The backward pass of a dense layer. */
struct dt_dense {
    int n, n_in, n_out;           /* samples, inputs, units */
    const float *x, *weight, *dy; /* (n, n_in), (n_out, n_in), (n, n_out) */
    const struct dt_sparse *by_unit,
        *by_sample; /* dy as lists in both directions, or NULL if it has too few zeros */
    bool accumulate;
    bool past;      /* dw, in whole cache lines, may be stored past the caches */
    float *dw, *dx; /* (n_out, n_in); (n, n_in) or NULL */
};

/* Fused processing of a convolution's outputs. An output stays nonzero if it is its window's first
 * largest, positive, and kept by dropout: the bitmask of struct dt_nonzeros, for all images. Bits
 * at positions without filter or window stay unchanged. */
struct dt_conv_outputs {
    const float *bias;
    bool relu;
    bool pool; /* max pool 2 of stride 2 over ReLU's output, without an unpaired last row or column
                */
    float *y;  /* (images, h, w, k), of the pool if there is one */
    const float *next;   /* prefetched memory, like y, that the next call writes; or NULL */
    uint64_t *bitmask;   /* with a pool: the nonzero outputs; NULL if not needed */
    const uint8_t *mask; /* with a pool, in dropout_mask's form; NULL: no dropout */
    float scale;         /* for the outputs that dropout keeps */
};

/* Identifies the dropout mask of a sample: base/rng.h. */
struct dt_dropout_key {
    uint64_t seed;
    uint32_t stream, epoch, sample, threshold;
};

/* X(result, name, arguments)
 *
 * conv_pack_forward, conv_pack_backward: arena weights (K C R S) to the kernels' own orders; sizes
 * below.
 * conv_forward: y = conv(x) + bias, then ReLU if `relu`.
 * conv_forward_pooled: conv_forward with the pool, for few channels; false: not all outputs are
 * finite. conv_weights_pooled: conv_weights_dense for gradients behind a 2 x 2 pool; scratch:
 * dt_conv_pooled_elems.
 * winograd_pack: arena weights transformed.
 * winograd_forward: neighbouring images, at most 32; scratch: dt_winograd_scratch_elems. Returns a
 * bit for each image whose outputs, before ReLU, are not all finite. NaN, infinity and overflow
 * spread here to outputs that do not depend on them: repeat such an image with conv_forward.
 * winograd_gradient: conv_weights_dense of neighbouring images; scratch:
 * dt_winograd_gradient_scratch_elems. NaN, infinity and overflow reach all of a channel's and a
 * filter's weights.
 * count_nonzero: counts the nonzero elements of x.
 * nonzeros: computes the bitmask of dy (positions, k); returns the number of set bits.
 * nonzeros_pooled: the same for the gradient before a max pool without overlapping windows, from
 * the gradient after it; bits outside of all windows stay unchanged.
 * count_bits: counts the set bits. spread_nonzeros: dy (out_h, out_w, k) with zeros in
 * between.
 * conv_backward_data: dx (h, w, dt_conv_channels) = ..., and fills `lists` unless NULL. conv_list:
 * fills `lists` only.
 * conv_backward_weights: adds to dw, in conv_pack_backward's order, and db.
 * conv_weights_dense: adds to dw (kernel rows, kernel * c, dt_conv_filters) and db, for a whole dy;
 * y not NULL: where y > 0.
 * conv_unpack_gradient, conv_unpack_dense: adds dw to grads (K C R S).
 * dense_forward: y (n, n_out) = x (n, n_in) * weight (n_out, n_in)^T + bias, for one part of the
 * samples; the bits do not depend on the number of parts.
 * dense_few: the same for DT_DENSE_FEW samples at most.
 * dense_backward: DT_DENSE_COLUMNS columns of dw and dx, from `column` on. scratch:
 * DT_DENSE_SCRATCH floats, in forward too.
 * list_samples, list_units: lists the nonzero elements of dy (n, n_out), sample by sample or unit
 * by unit.
 * max_pool: winner (out) is the chosen element's index in its window, in row-major order; NULL if
 * not needed. The first of equal elements wins, and NaN wins over every number. *_pool_backward:
 * overwrites dx.
 * activate: in place; slope: (n_elems) its derivative, or NULL. activate_backward: dy *= slope at
 * the activation's output y * y_scale; not of gelu, which has two slopes for most outputs.
 * multiply: x *= by.
 * dropout_mask: mask[unit] is 1 or 0; the threshold is not 0. dropout: x *= mask ? scale : 0.
 * transpose: to (n_cols, n_rows) = scale * from (n_rows, n_cols).
 * scale_pixels: x = pixels * scale.
 * fma_loop: n_rounds times DT_FMA_CHAINS independent vector multiply-adds, to measure the core's
 * peak.
 * norm_measure: mean and sum of squared distances from it, per channel, of few rows (n_rows, n_c).
 * norm_sum: sums of dy and of dy (x - mean).
 * sum_squares: of at most DT_SUM_CHUNK floats. sgd, adam: the rules of model/optimizer.h. */
#define DT_CPU_KERNEL_LIST(X)                                                                      \
    X(void, conv_pack_forward, (const struct dt_conv *conv, const float *weight, float *packed))   \
    X(void, conv_forward,                                                                          \
      (const struct dt_conv *conv, const float *x, const float *packed, const float *bias,         \
       bool relu, float *y))                                                                       \
    X(bool, conv_forward_pooled,                                                                   \
      (const struct dt_conv *conv, const float *x, const float *packed,                            \
       const struct dt_conv_outputs *out))                                                         \
    X(void, conv_weights_pooled,                                                                   \
      (const struct dt_conv *conv, const struct dt_nonzeros *from, const float *x, float *dw,      \
       float *db, float *scratch))                                                                 \
    X(void, winograd_pack, (const struct dt_winograd *w, const float *weight, float *packed))      \
    X(uint32_t, winograd_forward,                                                                  \
      (const struct dt_winograd *w, int n_images, const float *x, const float *packed,             \
       const struct dt_conv_outputs *out, float *scratch))                                         \
    X(void, winograd_gradient,                                                                     \
      (const struct dt_winograd_gradient *plan, int n_images, const float *x, const float *dy,     \
       float *dw, float *db, float *scratch))                                                      \
    X(void, conv_pack_backward, (const struct dt_conv *conv, const float *weight, float *packed))  \
    X(size_t, count_nonzero, (size_t n_elems, const float *x))                                     \
    X(size_t, nonzeros, (size_t n_positions, int k, const float *dy, uint64_t *bitmask))           \
    X(size_t, nonzeros_pooled,                                                                     \
      (const struct dt_pooling *pool, const float *dy, const uint16_t *winner, uint64_t *bitmask)) \
    X(size_t, count_bits, (size_t n_words, const uint64_t *bitmask))                               \
    X(void, spread_nonzeros,                                                                       \
      (const struct dt_conv *conv, const struct dt_nonzeros *from, float *dy))                     \
    X(void, conv_backward_data,                                                                    \
      (const struct dt_conv *conv, const struct dt_nonzeros *from, const float *packed,            \
       const struct dt_conv_lists *lists, float *dx))                                              \
    X(void, conv_list,                                                                             \
      (const struct dt_conv *conv, const struct dt_nonzeros *from,                                 \
       const struct dt_conv_lists *lists))                                                         \
    X(void, conv_backward_weights,                                                                 \
      (const struct dt_conv *conv, const struct dt_conv_lists *lists, const float *x, float *dw,   \
       float *db))                                                                                 \
    X(void, conv_weights_dense,                                                                    \
      (const struct dt_conv *conv, const float *x, const float *dy, const float *y, float *dw,     \
       float *db))                                                                                 \
    X(void, conv_unpack_gradient, (const struct dt_conv *conv, const float *dw, float *grads))     \
    X(void, conv_unpack_dense, (const struct dt_conv *conv, const float *dw, float *grads))        \
    X(void, dense_forward,                                                                         \
      (int part, int n_parts, int n, int n_in, int n_out, const float *x, const float *weight,     \
       const float *bias, float *y, float *scratch))                                               \
    X(void, dense_few,                                                                             \
      (int n, int n_in, int n_out, const float *x, const float *weight, const float *bias,         \
       float *y))                                                                                  \
    X(void, dense_backward, (const struct dt_dense *dense, int column, float *scratch))            \
    X(void, list_samples, (int n, int n_out, const float *dy, const struct dt_sparse *lists))      \
    X(void, list_units, (int n, int n_out, const float *dy, const struct dt_sparse *lists))        \
    X(void, max_pool, (const struct dt_pooling *pool, const float *x, float *y, uint16_t *winner)) \
    X(void, max_pool_backward,                                                                     \
      (const struct dt_pooling *pool, const float *dy, const uint16_t *winner, float *dx))         \
    X(void, avg_pool, (const struct dt_pooling *pool, const float *x, float *y))                   \
    X(void, avg_pool_backward, (const struct dt_pooling *pool, const float *dy, float *dx))        \
    X(void, activate, (enum dt_activation activation, size_t n_elems, float *x, float *slope))     \
    X(void, activate_backward,                                                                     \
      (enum dt_activation activation, size_t n_elems, const float *y, float y_scale, float *dy))   \
    X(void, multiply, (size_t n_elems, const float *by, float *x))                                 \
    X(void, dropout_mask, (const struct dt_dropout_key *key, size_t n_units, uint8_t *mask))       \
    X(void, dropout, (size_t n_units, const uint8_t *mask, float scale, float *x))                 \
    X(void, transpose, (size_t n_rows, size_t n_cols, float scale, const float *from, float *to))  \
    X(void, scale_pixels, (size_t n_elems, const uint8_t *pixels, float scale, float *x))          \
    X(void, fma_loop, (size_t n_rounds, float *out))                                               \
    X(void, norm_measure, (size_t n_rows, int n_c, const float *x, float *mean, float *squares))   \
    X(void, norm_apply, (const struct dt_norm *norm))                                              \
    X(void, norm_sum, (const struct dt_norm *norm, float *sums, float *products))                  \
    X(void, norm_backward, (const struct dt_norm *norm))                                           \
    X(double, sum_squares, (size_t n_elems, const float *x))                                       \
    X(void, sgd,                                                                                   \
      (const struct dt_update *update, size_t n_elems, float *params, const float *grads,          \
       float *velocity))                                                                           \
    X(void, adam,                                                                                  \
      (const struct dt_update *update, size_t n_elems, float *params, const float *grads,          \
       float *mean, float *square))

struct dt_cpu_kernels {
    const char *isa;
    int vector;                               /* floats per vector */
    const struct dt_layer_ops *const *layers; /* cpu/layers/, of the same instruction set */
#define DT_KERNEL_MEMBER(result, name, arguments) result(*name) arguments;
    DT_CPU_KERNEL_LIST(DT_KERNEL_MEMBER)
#undef DT_KERNEL_MEMBER
};

#define DT_DENSE_FEW 16 /* samples, at most */
#define DT_DENSE_COLUMNS 64
#define DT_DENSE_DEPTH 128
#define DT_DENSE_PANEL (DT_DENSE_COLUMNS * DT_DENSE_DEPTH) /* 32 KB: a first-level cache */
#define DT_DENSE_SCRATCH (3 * DT_DENSE_PANEL)
#define DT_SUM_CHUNK 4096
#define DT_FMA_CHAINS 12
#define DT_MAX_VECTOR 16

/* Cuts n into pieces of at most `most`, as even as possible: their number, and where each
 * begins. */
static inline int dt_cut_count(int n, int most)
{
    return (n + most - 1) / most;
}

static inline int dt_cut_begin(int n, int most, int i)
{
    return (int)((int64_t)n * i / dt_cut_count(n, most));
}

/* For the backward pass. A window's row is kernel * c floats side by side: where these take fewer
 * vectors than the channels of each column by themselves, the row counts as one column. */
static inline bool dt_conv_joins(const struct dt_conv *conv, int vector)
{
    return dt_cut_count(conv->kernel * conv->c, vector) <
           conv->kernel * dt_cut_count(conv->c, vector);
}

/* Columns of a window, and floats of a column. */
static inline int dt_conv_columns(const struct dt_conv *conv, int vector)
{
    return dt_conv_joins(conv, vector) ? 1 : conv->kernel;
}

static inline int dt_conv_lanes(const struct dt_conv *conv, int vector)
{
    return dt_conv_joins(conv, vector) ? conv->kernel * conv->c : conv->c;
}

/* Vectors of a window. */
static inline int dt_conv_window(const struct dt_conv *conv, int vector)
{
    return conv->kernel * dt_conv_columns(conv, vector) *
           dt_cut_count(dt_conv_lanes(conv, vector), vector);
}

/* Floats from one place of dx to the next: whole vectors, unless columns are joined. */
static inline size_t dt_conv_channels(const struct dt_conv *conv, int vector)
{
    return dt_conv_joins(conv, vector) ? (size_t)conv->c
                                       : dt_round_up((size_t)conv->c, (size_t)vector);
}

/* Filters, rounded up to whole vectors. */
static inline size_t dt_conv_filters(const struct dt_conv *conv, int vector)
{
    return dt_round_up((size_t)conv->k, (size_t)vector);
}

static inline size_t dt_nonzero_words(int k)
{
    return ((size_t)k + 63) / 64;
}

static inline size_t dt_conv_packed_forward_elems(const struct dt_conv *conv, int vector)
{
    return dt_round_up((size_t)conv->k, (size_t)vector) * (size_t)conv->kernel *
           (size_t)conv->kernel * (size_t)conv->c;
}

/* Floats of the weights packed for the backward pass, and of their gradient. */
static inline size_t dt_conv_packed_backward_elems(const struct dt_conv *conv, int vector)
{
    return (size_t)conv->k * (size_t)dt_conv_window(conv, vector) * (size_t)vector;
}

/* Floats of the weights' gradient in conv_weights_dense's order. */
static inline size_t dt_conv_dense_elems(const struct dt_conv *conv, int vector)
{
    return (size_t)conv->kernel * (size_t)conv->kernel * (size_t)conv->c *
           dt_conv_filters(conv, vector);
}

/* Floats of conv_weights_pooled's scratch: for each cell its place, gradients and their places;
 * for each pixel four, and a vector's more. */
static inline size_t dt_conv_pooled_elems(const struct dt_conv *conv, int vector)
{
    return (size_t)(conv->out_h / 2) * (size_t)(conv->out_w / 2) *
               (2 * dt_conv_filters(conv, vector) + 2) +
           4 * (size_t)(conv->h * conv->w * conv->c) + 5 * (size_t)vector;
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
