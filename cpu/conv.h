/* Convolutions on the cpu backend. What computes a convolution, or one of its gradients, is an
 * entry of a table in conv_algorithms.c: conv.c plans a block with those that fit, and chooses for
 * each image by cost. A new algorithm is an entry, and the file that it is in. */
#ifndef DT_CPU_CONV_H
#define DT_CPU_CONV_H

#include "cpu/kernels/bf16.h"
#include "cpu/kernels/kernels.h"

struct dt_block_state;
struct dt_cpu_job;
struct dt_cpu_scratch;

/* A block has one allocation, which is divided twice: first to measure it, and then to assign
 * pointers. */
struct dt_pieces {
    char *memory;   /* NULL: measuring */
    size_t n_bytes; /* so far */
    bool too_large;
};

/* n elements of `size` bytes, aligned to a cache line, plus the margin that kernels read. NULL in a
 * block that does not need them. */
void *dt_piece(struct dt_pieces *pieces, bool wanted, size_t n, size_t size);

/* A convolution's gradients are summed per slice of the batch, and the slices' sums are added in
 * order: so the bits do not depend on the number of threads. Until the pass ends they keep the
 * kernels' order. */
struct dt_conv_sums {
    float *sparse,
        *dense;  /* of weights: from lists, ordered as by conv_pack_backward; from dense products */
    float *bias; /* (dt_conv_filters) */
    bool sparse_used, dense_used;
};

/* The output: for neighbouring images from `first` on, at most conv.n_together. */
struct dt_conv_forward {
    bool pools; /* it can do ReLU, max pool 2 x 2, and dropout as well: struct dt_conv_outputs */
    /* Plans its state; false: another one is faster. NULL: it always fits. */
    bool (*fits)(struct dt_block_state *state);
    void (*pack)(struct dt_block_state *state, const float *weight);
    /* Returns a bit for each image whose outputs are unusable, because not all are finite; then
     * `repeat` computes such an image, without a pool. */
    uint32_t (*run)(const struct dt_cpu_job *job, int first, int n, int thread,
                    const struct dt_conv_outputs *out);
    const struct dt_conv_forward *repeat;
};

/* An image on its way back. */
struct dt_conv_image {
    int sample;
    const float *dy;             /* where its nonzeros are found; or the block's own, if fused */
    struct dt_nonzeros nonzeros; /* not of neighbours that are computed together */
    const float *y;              /* fused, of a block with ReLU; else NULL */
    bool wants_lists, listed;    /* the weights' gradient will read lists; they are there */
};

/* The gradient of the weights, which it adds to `sums`, or of the input, which it writes to
 * job->dx: for an image; with `together` for n neighbouring ones, whose dy must then lie where the
 * block's output did. */
struct dt_conv_gradient {
    bool together, reads_lists;                 /* that the input's gradient may have made */
    bool (*fits)(struct dt_block_state *state); /* NULL: always */
    /* Of an image, in vector multiply-adds. */
    double (*cost)(const struct dt_block_state *state, size_t n_nonzeros);
    void (*pack)(struct dt_block_state *state, const float *weight);
    void (*run)(const struct dt_cpu_job *job, struct dt_conv_image *image, int n, int thread,
                struct dt_conv_sums *sums);
};

/* ReLU and a max pool 2 x 2 of stride 2 follow: an algorithm that `pools` does them as well. */
bool dt_conv_pools(const struct dt_block *b);
#define DT_CONV_MOST 5
/* In order of preference; NULL after the last. The last forward one and the last of each gradient
 * fit every convolution. Fused ones, for a block whose input needs no gradient, begin with the
 * gradient of the block's output, and pass it through activation and pool themselves. */
extern const struct dt_conv_forward *const dt_conv_forwards[];
extern const struct dt_conv_gradient *const dt_conv_fused[], *const dt_conv_data[],
                                                                 *const dt_conv_weights[];

enum dt_conv_packed {
    DT_CONV_DIRECT,
    DT_CONV_WINOGRAD,
    DT_CONV_BF16,
    DT_CONV_LISTS,
    DT_CONV_WINOGRAD_DX,
    DT_CONV_ROTATED, /* by 180 degrees: DT_CONV_WINOGRAD_DX is packed from them */
    DT_CONV_N_PACKED
};

/* All 0 in a block without a convolution. */
struct dt_cpu_conv {
    struct dt_conv shape; /* its input is the padded image */
    bool pads;            /* the input is copied into a frame of zeros */
    const struct dt_conv_forward *forward;
    const struct dt_conv_gradient *fused[DT_CONV_MOST], *dx[DT_CONV_MOST], *dw[DT_CONV_MOST];
    int n_together;    /* images at a time in forward */
    bool fuses_pool;   /* the forward algorithm pools, and also finds the outputs' nonzeros */
    uint64_t *bitmask; /* with fuses_pool: (capacity, n_words), as in struct dt_nonzeros; the tail
                       then has no winner and no mask */
    size_t n_words;
    bool nonzeros_pooled; /* no windows of a max pool overlap: nonzeros are found in its dy */
    int slice, n_slices;  /* images per slice; concurrent slices, one per thread */
    struct dt_conv_sums *sums, total; /* (n_slices); of the pass so far */

    /* States of the algorithms, for a block that uses them. */
    float *packed[DT_CONV_N_PACKED]; /* weights, each in an algorithm's order */
    size_t n_packed[DT_CONV_N_PACKED];
    float *no_bias;
    struct dt_bf16 bf16;
    struct dt_winograd winograd, winograd_dx; /* dx: the output's gradient by rotated weights */
    struct dt_winograd_gradient winograd_dw;
    size_t n_work; /* floats of a thread's memory, which the algorithms share */
};

void dt_cpu_conv_describe(struct dt_block_state *state, int slice);
void dt_cpu_conv_place(struct dt_block_state *state, struct dt_pieces *pieces);
void dt_cpu_conv_place_scratch(const struct dt_block_state *state, struct dt_pieces *pieces,
                               struct dt_cpu_scratch *scratch);
void dt_cpu_conv_open(struct dt_block_state *state); /* after placing */
void dt_cpu_conv_forward(struct dt_cpu_job *job);
void dt_cpu_conv_backward(struct dt_cpu_job *job);

/* Finds the nonzeros of image->dy, unless the forward pass has done so; returns their number. */
size_t dt_cpu_conv_find_nonzeros(const struct dt_cpu_job *job, struct dt_conv_image *image,
                                 int thread);

/* Returns `sum`, (n_elems), zeroed at its first use. */
float *dt_conv_begin_sum(float *sum, size_t n_elems, bool *used);

#endif
