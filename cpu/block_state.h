/* A block's state, shared by block.c, tail.c and, for convolutions, conv.c and conv_algorithms.c.
 */
#ifndef DT_CPU_BLOCK_STATE_H
#define DT_CPU_BLOCK_STATE_H

#include "cpu/block.h"
#include "cpu/conv.h"

/* One thread's memory for one image. NULL where the block does not need it. */
struct dt_cpu_scratch {
    float *padded; /* conv: the input framed with zeros */
    float *linear; /* the linear operation's output, before the pool; of n_together images */
    float *pooled; /* the block's output in H W C order, before a flatten reorders it; as many */
    float *dx;     /* conv: gradient of the padded input, whole vectors of channels; NULL: that is
                      the input's */
    struct dt_nonzeros
        nonzeros; /* conv; without a bitmask if the forward pass writes it to conv.bitmask */
    struct dt_conv_lists lists;
    float *work;      /* conv.n_work, of the algorithm that runs */
    uint8_t *mask;    /* fuses_pool: for n_together images */
    uint16_t *winner; /* fuses_pool: for an image that is not finite */
    uint16_t *bf16;   /* conv: the padded input, rounded */
    float *dense;     /* DT_DENSE_SCRATCH floats */
};

struct dt_cpu_dense {
    struct dt_sparse by_unit, by_sample; /* the output's gradient, (n, units), in both directions */
    bool past; /* the weights' gradient would push all else out of the second-level cache */
};

/* The part after the linear operation: activation, pool, dropout, flatten. */
struct dt_cpu_tail {
    struct dt_pooling pooling;
    uint16_t *winner; /* (capacity, pool_out) if the backward pass needs it */
    bool has_slope; /* the output is not enough for the activation's slope: behind it is an average
                       pool, or it is gelu */
    float *slope;   /* (capacity, linear_out) if so */
    uint8_t *mask;  /* (capacity, pool_out) dropout's, if the backward pass needs them */
    float dropout_scale;
    bool reorders; /* flatten changes the order of elements */
};

struct dt_block_state {
    const struct dt_cpu *cpu;
    struct dt_block block;
    int capacity;
    size_t n_in, n_linear, n_pooled; /* floats per sample; the output has n_pooled too */
    size_t weight_offset, bias_offset, n_weights;
    struct dt_cpu_conv conv;
    struct dt_cpu_dense dense;
    struct dt_cpu_tail tail;
    struct dt_cpu_scratch *scratch; /* (threads) */
    void *memory;                   /* one allocation for all of the above */
};

/* One pass through a block, shared by the threads. */
struct dt_cpu_job {
    struct dt_block_state *state;
    const struct dt_pass *pass;
    const float *params, *x, *y;
    float *y_out, *dy, *dx, *grads;
    int n;                 /* samples */
    int begin;             /* conv: the first sample of the slices */
    struct dt_dense dense; /* backward */
};

/* Index, in the block's stored state, of a sample's first of `n_elems` elements. */
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

/* The buffer that a sample's linear operation writes: the last one that needs no further step. */
float *dt_cpu_linear_output(const struct dt_cpu_job *job, int sample, int thread);

/* Of a level of the caches (_SC_LEVEL...), as the system says it. */
size_t dt_cpu_cache_bytes(int level, size_t otherwise);

/* tail.c: one sample. Forward: `linear` is the linear operation's output, and may be changed. */
void dt_cpu_tail_forward(const struct dt_cpu_job *job, int sample, int thread, float *linear,
                         bool activated);
/* From the gradient of the block's output back to that of its linear operation; or only to the max
 * pool's output, if nonzeros are found there; or only to H W C order, if they are known. May
 * change dy; the result lies in dy or in the thread's scratch. */
float *dt_cpu_tail_backward(const struct dt_cpu_job *job, int sample, int thread);
void dt_cpu_draw_mask(const struct dt_cpu_job *job, int sample,
                      uint8_t *mask); /* draws dropout's mask */
void dt_cpu_reorder(const struct dt_cpu_job *job, const float *pooled,
                    float *y); /* reorders for `flatten` */

#endif
