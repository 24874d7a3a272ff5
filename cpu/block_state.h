/* What a block keeps, shared by block.c (open and close), block_forward.c, block_backward.c,
 * conv_block.c and tail.c. */
#ifndef DT_CPU_BLOCK_STATE_H
#define DT_CPU_BLOCK_STATE_H

#include "cpu/block.h"

/* A convolution's gradients are summed per slice of the batch, and the slices' sums are added in
 * order: so the bits do not depend on the number of threads. Until the pass ends they stay as the
 * kernels leave them. */
struct dt_conv_sums {
    float *sparse, *dense; /* the weights': of lists, ordered as by conv_pack_backward; and of dense
                              products */
    float *bias;           /* (dt_conv_filters) */
    bool sparse_used, dense_used;
};

/* One thread's memory for one image. NULL where the block has no use for it. */
struct dt_cpu_scratch {
    float *padded; /* conv: the input with its zeros around */
    float *linear; /* the linear operation's output, before the pool; of n_together images */
    float *pooled; /* the block's output in H W C order, before a flatten changes that; as many */
    float *dx;     /* conv: gradient of the padded input, whole vectors of channels */
    float *framed; /* conv, where `rotated` is used: the output's gradient with zeros around */
    struct dt_survivors
        survivors; /* conv; no words where the forward pass leaves them in conv.word */
    struct dt_conv_lists lists;
    float *winograd;
    uint8_t *keep;    /* fuses_pool: of n_together images */
    uint16_t *winner; /* fuses_pool: of an image that is not finite */
    uint16_t *bf16;   /* conv: the padded input, rounded */
    float *dense;     /* DT_DENSE_SCRATCH floats */
};

/* All 0 in a block without a convolution. */
struct dt_cpu_conv {
    struct dt_conv shape; /* its input is the padded image */
    bool pads;            /* the input is copied, with zeros around */
    float *packed_forward, *packed_backward;

    struct dt_winograd winograd; /* where it pays */
    float *packed_winograd;
    struct dt_bf16 bf16; /* where it is used, instead of Winograd */
    uint16_t *packed_bf16;
    int n_together; /* images at a time forward, with Winograd or bf16 */

    bool fuses_pool; /* ReLU, pool and dropout are done where outputs arise, and what comes through
                        is known at once */
    uint64_t *word;  /* then: (capacity, n_words), as in struct dt_survivors; the tail has no winner
                        and no keep */
    size_t n_words;

    bool dx_direct;         /* dx needs no scratch */
    bool survivors_pooled;  /* a max pool's windows do not overlap: survivors are found behind it */
    bool masks_only;        /* behind the convolution is nothing but perhaps ReLU */
    struct dt_conv rotated; /* stride 1: the convolution that makes dx of the output's gradient,
                               where that has few zeros */
    float *rotated_weight, *rotated_packed, *rotated_bias;
    int slice, n_slices;              /* images of a slice; slices at a time, one for each thread */
    struct dt_conv_sums *sums, total; /* (n_slices); of the pass so far */
};

struct dt_cpu_dense {
    struct dt_sparse by_unit, by_sample; /* the output's gradient, (n, units), both ways */
};

/* What follows the linear operation: activation, pool, dropout, flatten. */
struct dt_cpu_tail {
    struct dt_pooling pooling;
    uint16_t *winner; /* (capacity, pool_out) where the backward pass asks for it */
    float *activated; /* (capacity, linear_out) where an average pool hides what the activation's
                         slope needs */
    uint8_t *keep; /* (capacity, pool_out) dropout's masks, where the backward pass asks for them */
    float dropout_scale;
    bool reorders; /* flatten has to change the order of elements */
};

struct dt_block_state {
    const struct dt_cpu *cpu;
    struct dt_block block;
    int capacity;
    size_t n_in, n_linear, n_pooled; /* floats of a sample; the output has n_pooled too */
    size_t weight_offset, bias_offset, n_weights;
    struct dt_cpu_conv conv;
    struct dt_cpu_dense dense;
    struct dt_cpu_tail tail;
    struct dt_cpu_scratch *scratch; /* (threads) */
    void *memory;                   /* all that is pointed to */
};

/* One pass through a block, as the threads see it. */
struct dt_cpu_job {
    struct dt_block_state *state;
    const struct dt_pass *pass;
    const float *params, *x, *y;
    float *y_out, *dy, *dx, *grads;
    int n;                 /* samples */
    int begin;             /* conv: where the slices begin */
    struct dt_dense dense; /* backward */
};

/* Where the block remembers element 0 of a sample's `n_elems`. */
static inline size_t dt_cpu_kept(const struct dt_pass *pass, int sample, size_t n_elems)
{
    return (size_t)(pass->first + sample) * n_elems;
}

/* Lets messages progress; only the calling thread may. */
static inline void dt_cpu_poll(const struct dt_pass *pass, int thread)
{
    if (thread == 0 && pass->poll != NULL) {
        pass->poll(pass->context);
    }
}

/* Copies an image into a larger one of `to_w` columns, at (top, left). */
void dt_cpu_frame(struct dt_shape image, const float *from, int to_w, int top, int left, float *to);

/* The convolution's input image: x itself, or a copy with zeros around it. */
const float *dt_cpu_conv_input(const struct dt_block_state *state, const float *x,
                               struct dt_cpu_scratch *scratch);

/* tail.c: one sample. Forward: `linear` is the linear operation's output, and may be changed. */
void dt_cpu_tail_forward(const struct dt_cpu_job *job, int sample, int thread, float *linear,
                         bool activated);
/* From the block's output back to its linear operation's; or to behind the max pool, where
 * survivors are found there; or only to H W C order, where they are known. May change dy; the
 * result lies in dy or in the thread's scratch. */
float *dt_cpu_tail_backward(const struct dt_cpu_job *job, int sample, int thread);
void dt_cpu_draw_mask(const struct dt_cpu_job *job, int sample,
                      uint8_t *keep); /* which units dropout keeps */
void dt_cpu_reorder(const struct dt_cpu_job *job, const float *pooled,
                    float *y); /* as `flatten` wants */

void dt_cpu_conv_backward(struct dt_cpu_job *job);

#endif
