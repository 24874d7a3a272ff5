/* Our own kernels, for operations that the libraries lack: in tail.cu, head.cu, first_conv.cu and
 * step.cu. Each call enqueues on `stream` and returns the launch's error; nothing here waits or
 * allocates. All pointers are device memory unless stated otherwise. `type` is that of activations
 * and packed weights: float, or bfloat16 in precision bf16. Activations are N H W C, except after a
 * flatten: there C H W, the canonical order. Arithmetic is in float. The same call on the same
 * numbers gives the same bits: sums have a fixed order and use no floating-point atomics (only the
 * count of finished blocks is atomic, an integer). NaN and infinity pass through. */
#ifndef DT_CUDA_KERNELS_KERNELS_H
#define DT_CUDA_KERNELS_KERNELS_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda/block_plan.h"
#include "model/device_module.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dt_gpu_type { DT_GPU_F32, DT_GPU_BF16 };

/* A batch on the device; members as in base/samples.h. */
struct dt_gpu_batch {
    const uint32_t *rows, *ids, *epoch;
};

/* x (n, H, W, C) = samples `rows`, scaled or transformed: only that asks for ids and epoch. All
 * pointers of `samples`, here and below, are device memory. */
cudaError_t dt_gpu_gather(cudaStream_t stream, const struct dt_samples *samples,
                          const struct dt_gpu_batch *batch, int n, enum dt_gpu_type type, void *x);

/* Gradients of parameters, sums over a batch. Each block of a kernel writes its sums to scratch
 * memory; the block that ends last adds them in the order of the blocks, so no extra kernel is
 * needed. */
struct dt_gpu_gradients {
    float *weight, *bias; /* overwritten or added to; NULL: not wanted */
    bool accumulate;
    float *scratch; /* as many floats as the kernel's ..._scratch returns; at first zero */
};

/* Added to a winner (the index of an element of its window) if relu zeroes it. */
#define DT_GPU_CLOSED 128

/* The part of a block after its linear operation, on n samples. Kernels take it by value, as they
 * do the other structs here. */
struct dt_gpu_tail {
    struct dt_block b; /* dropout_rate: 0 outside training */
    int n;
    enum dt_gpu_type type, y_type; /* y_type: of y and dy; float stays float */
    uint64_t seed;
    const uint32_t *epoch, *ids; /* read where dropout is on (base/rng.h) */
    const void *z; /* (n, linear_out), the linear operation's output; all pointers are aligned */
    const float *bias; /* NULL: none */
    uint8_t *winners; /* (n, pool_out) N H W C, or NULL; of a max pool with activation none or relu:
                         written forward, and read instead of z and bias backward */
    void *y;          /* forward */
    const void *dy;   /* backward, as the next two; to.weight is not written */
    void *dz;
    struct dt_gpu_gradients to;
};

/* y (n, pool_out) = dropout(pool(activation(z + bias))). z may be y, which overwrites it, when
 * there is no pool and no flatten that changes the order. Of equal values in a max pool the first
 * in row-major order wins; NaN wins over all. */
cudaError_t dt_gpu_tail_forward(cudaStream_t stream, const struct dt_gpu_tail *tail);

/* dz (n, linear_out) from dy (n, pool_out) and z (everything in between is recomputed), and to.bias
 * = the sums of dz before they are rounded. dz and dy do not overlap; dz may be z, unless z is read
 * and windows overlap; n = 0 does nothing. Bytes: reads z or the winners, and dy, writes dz, once
 * each. */
size_t dt_gpu_tail_scratch(const struct dt_block *block);
cudaError_t dt_gpu_tail_backward(cudaStream_t stream, const struct dt_gpu_tail *tail);

/* The first convolution, if cuda/block_plan.c says that it is small enough. Its input is `rows` of
 * the samples, as dt_gpu_gather would read them, or x (n, in) of `type` if x is not NULL. All
 * pointers to `type` are aligned. */
struct dt_gpu_first_conv {
    struct dt_block b; /* activation: none where the tail does it */
    int n;
    enum dt_gpu_type type;
    struct dt_samples samples;
    const uint32_t *rows;
    const void *x;
    const float *weight, *bias; /* K C R S, the arena's; NULL: no bias */
    void *y;                    /* (n, linear_out) */
    uint8_t *signs; /* (n, linear_out), one bit each, 8 channels a byte, or NULL; of relu, if
                       channels fill whole bytes: written forward, read instead of y backward */
    const void *dy; /* backward: y NULL: dy is behind the activation already */
    struct dt_gpu_gradients to;
};

/* y = activation(convolution + bias). Bytes: the images as stored, y once. */
cudaError_t dt_gpu_first_conv_forward(cudaStream_t stream, const struct dt_gpu_first_conv *conv);

/* to.weight, and to.bias unless NULL, from dy (n, linear_out), which first passes back through the
 * activation, whose result is y. n = 0 does nothing. Bytes: the images, the signs or y, and dy
 * once. */
size_t dt_gpu_first_conv_scratch(const struct dt_block *block);
cudaError_t dt_gpu_first_conv_gradient(cudaStream_t stream, const struct dt_gpu_first_conv *conv);

/* A weight, (K, C, R, S) float in the arena, packed: (K, R, S, C) of `type`. */
struct dt_gpu_filter {
    int k, c, kernel; /* kernel 1 and c = in features for a dense layer */
};
static inline size_t dt_gpu_filter_elems(const struct dt_gpu_filter *f)
{
    return (size_t)f->k * (size_t)f->c * (size_t)(f->kernel * f->kernel);
}
/* Writes `packed` from the arena's elements, or elements, overwritten or added to, from `packed`.
 */
enum dt_gpu_repack { DT_GPU_PACK, DT_GPU_UNPACK, DT_GPU_UNPACK_ADD };
cudaError_t dt_gpu_repack(cudaStream_t stream, const struct dt_gpu_filter *filter,
                          enum dt_gpu_repack how, float *elems, enum dt_gpu_type type,
                          void *packed);

/* Adds the batch's sums to `metrics`, which its caller zeroes, and writes the gradient of the sum
 * of the samples' losses unless dlogits is NULL: then labels are not smoothed. logits, dlogits: (n,
 * n_outputs) float. scratch: 2 * n doubles. */
cudaError_t dt_gpu_loss(cudaStream_t stream, const struct dt_model_spec *spec,
                        const struct dt_samples *samples, const uint32_t *rows, int n,
                        int n_outputs, const float *logits, float *dlogits, double *scratch,
                        struct dt_metrics *metrics);

/* The last dense layer, if it has few outputs and only a loss after it: dt_gpu_loss with
 * cross-entropy. */
struct dt_gpu_head {
    int n_in, n_out, n; /* at most DT_CUDA_HEAD_INPUTS and _OUTPUTS; samples */
    enum dt_gpu_type type;
    const float *weight, *bias; /* (n_out, n_in), the arena's */
    const void *x;              /* (n, n_in) */
    float *logits, *dlogits;    /* (n, n_out); dlogits: NULL: not wanted */
    const uint16_t *labels;
    const uint32_t *rows;
    double smoothing;           /* of the labels, with dlogits */
    struct dt_metrics *metrics; /* NULL: no loss */
    void *dx;                   /* (n, n_in); NULL: not wanted */
    struct dt_gpu_gradients to; /* its scratch serves the loss, too */
};

/* logits = x weight^T + bias, and the loss, all in one kernel. Bytes: x once, the weights once a
 * block of 8 samples (from the cache), 8 n_out a sample written. */
size_t dt_gpu_head_scratch(int n_in, int n_out, int n); /* for this function and the next */
cudaError_t dt_gpu_head_forward(cudaStream_t stream, const struct dt_gpu_head *head);

/* to.weight, to.bias and dx from x and dlogits, in one kernel; n = 0 does nothing. Bytes: reads x,
 * writes dx, once. */
cudaError_t dt_gpu_head_backward(cudaStream_t stream, const struct dt_gpu_head *head);

/* out (1, double) = sum of squares, in an order that depends on n_elems alone. scratch:
 * DT_GPU_SUM_SCRATCH doubles. */
#define DT_GPU_SUM_SCRATCH 1024
cudaError_t dt_gpu_sum_squares(cudaStream_t stream, size_t n_elems, const float *x, double *scratch,
                               double *out);

/* Clips `update` (device); sum_squares is that of its gradients. */
cudaError_t dt_gpu_clip(cudaStream_t stream, const double *sum_squares, struct dt_update *update);

/* A weight among the elements of an optimizer step, and what is packed of it. */
struct dt_gpu_pack {
    struct dt_gpu_filter filter;
    size_t begin;         /* its first element */
    void *weight;         /* the packed copy, written along with the weight */
    const void *gradient; /* read instead of the one in `grads`; NULL: read `grads` */
};
#define DT_GPU_MAX_PACKS 96 /* a kernel's parameters are 4 KB at most */
struct dt_gpu_packs {       /* for kernels, by value */
    int n;
    enum dt_gpu_type type;
    struct dt_gpu_pack at[DT_GPU_MAX_PACKS];
};

/* One optimizer step (rules in model/optimizer.h) on clipped gradients. update: device. state1,
 * state2: NULL where unused. */
cudaError_t dt_gpu_optimizer_step(cudaStream_t stream, const struct dt_update *update,
                                  size_t n_elems, float *params, const float *grads, float *state1,
                                  float *state2, const struct dt_gpu_packs *packs);

/* Steps that the GPU takes on its own (cuda/step_graph.c): their inputs and results. */
struct dt_gpu_steps {
    int n, now; /* number of steps; the current one */
    struct dt_step_input inputs[DT_MAX_RECORDED_STEPS];
    struct dt_metrics metrics[DT_MAX_RECORDED_STEPS];
};

/* Inputs for the other kernels of a step. */
struct dt_gpu_step {
    uint32_t epoch;
    struct dt_update update;
};

/* Device memory for their rows. */
struct dt_gpu_rows {
    int capacity;         /* samples of a batch at most */
    uint32_t *all;        /* (DT_MAX_RECORDED_STEPS, capacity): per step */
    uint32_t *rows, *ids; /* (capacity) each: of the current step, for the other kernels */
};

/* Draws the rows of all n_steps steps from their inputs on the device, and makes the first the
 * current one: its rows, ids and *step. One thread per sample of all steps. */
cudaError_t dt_gpu_steps_begin(cudaStream_t stream, struct dt_gpu_steps *steps, int n_steps,
                               const struct dt_gpu_rows *rows, struct dt_gpu_step *step);
/* Ends the current step: stores its metrics, zeroes the running ones, and makes the next step
 * current. Then *n_done, in pinned host memory, counts the finished steps. One block. */
cudaError_t dt_gpu_step_end(cudaStream_t stream, struct dt_gpu_steps *steps,
                            const struct dt_gpu_rows *rows, struct dt_gpu_step *step,
                            struct dt_metrics *running, volatile int *n_done);

#ifdef __cplusplus
}
#endif

#endif
