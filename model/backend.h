/* The compute interface: everything that touches a sample, an activation or a weight goes through
 * here.
 *
 * Three backends implement it: `ref` (plain loops, double accumulators: the oracle), `cpu` (vector
 * kernels), `cuda`. All slots are mandatory. Device memory is whatever `alloc` returns; only
 * `copy_in` and `copy_out` cross the border. Work may be enqueued: it is done after `sync`, and in
 * the order of the calls. The layout of activations is the backend's own up to a block with
 * `flatten`, which says what order its outputs have; parameters and gradients are always in the
 * arena's (model/block.h).
 *
 * Contract shared by all: nothing is allocated after `open` and `block_open`; the same call on the
 * same numbers gives the same bits, whatever the number of threads; NaN and infinity pass through.
 */
#ifndef DT_MODEL_BACKEND_H
#define DT_MODEL_BACKEND_H

#include "base/rng.h"
#include "model/block.h"
#include "model/trace.h"

/* Of activations and of the products of convolutions and dense layers; weights, gradients and sums
 * are always float. f32   strict tf32  products of numbers with 10 bits of fraction, on GPUs bf16
 * activations of 7 bits, on GPUs; on CPUs with AMX only the products of convolutions forward are of
 * such numbers */
#define DT_PRECISION_LIST(X)     \
    X(DT_PRECISION_F32, "f32")   \
    X(DT_PRECISION_TF32, "tf32") \
    X(DT_PRECISION_BF16, "bf16")
enum dt_precision { DT_PRECISION_LIST(DT_NAMED_ENUM) };

struct dt_backend_options {
    int n_threads;               /* >= 1; CPU backends */
    int local_rank;              /* which device, where there are several */
    enum dt_precision precision; /* DT_UNAVAILABLE where the backend has not got it */
    bool deterministic; /* nothing is chosen by time: each run on the same machine gives the same
                           bits */
    double limit_s; /* DT_STALLED once a device has not finished what it was given for so long; 0:
                       it is waited for */
};

/* One pass of a batch through the network, or through a block in parts: forward part by part,
 * backward part by part, each time the same parts in order, with the same weights. A block may be
 * asked to go forward again just before it goes backward. */
struct dt_pass {
    const struct dt_batch *batch; /* the part's samples */
    int first; /* samples of the parts before: where this one begins in what a block remembers */
    bool more; /* other parts follow; gradients need not be in `grads` before the last one */
    bool training;   /* dropout is drawn, and backward will follow */
    bool accumulate; /* backward adds to the gradients instead of overwriting them */
    uint64_t seed;   /* of the run; dropout masks derive from (seed, layer, epoch, sample id, unit):
                        base/rng.h */
    void (*poll)(void *context); /* may be NULL; long host kernels call it a few times, on the
                                    calling thread, so that messages progress */
    /* May be NULL; before a block goes forward, whose weights lie from element `begin` of the arena
     * on: they are to be there now.
     */
    enum dt_status (*need)(void *context, size_t begin);
    void *context; /* of both */
    struct dt_trace
        *trace; /* who watches the parts of the pass, or NULL; backends leave it alone */
};

/* How a network runs on a backend, and which of its memory it can do without. All zero but `chunk`
 * is always right. */
struct dt_network_plan {
    int chunk; /* samples that the spatial blocks take at a time, so that caches hold what one block
                * leaves to the next; at least 1, and the network's capacity for all at once */
    int n_recomputed; /* leading spatial blocks, never the last of them, whose outputs are there for
                       * the chunk at hand only: they are recomputed in the backward pass. Worth it
                       * where an output is large and cheap */
    /* The block's dx takes the memory of its x: it is done with x when it writes dx, and the block
     * below does not look at its output on the way back. Counts only behind the spatial blocks. */
    bool dx_over_x[DT_MAX_LAYERS];
};

/* Sums over samples, so that they can be added over batches and ranks. */
struct dt_metrics {
    double loss_sum;  /* cross-entropy in nats, or squared error averaged over a sample's outputs */
    double n_correct; /* classification: samples whose largest logit is the label's; a tie goes to
                         the lowest class */
    double n_samples;
};

struct dt_update;        /* one step of an optimizer: model/optimizer.h */
struct dt_block_state;   /* a backend's own, per block */
struct dt_bound_samples; /* a backend's own, per data set */

struct dt_backend {
    const struct dt_backend_ops *ops;
    const char *description; /* "x86-64-v4, 2 threads": for the roster */
    bool host_memory; /* what `alloc` returns can be read and written by the program itself */
};

struct dt_backend_ops {
    const char *name; /* "ref", "cpu", "cuda" */

    /* DT_UNAVAILABLE when this machine cannot run it. The caller closes what was opened. */
    enum dt_status (*open)(const struct dt_backend_options *options, struct dt_backend **out);
    void (*close)(struct dt_backend *backend);

    /* Zeroed, 64-byte aligned, at least 256 readable bytes past the end. DT_NO_MEMORY. */
    enum dt_status (*alloc)(struct dt_backend *backend, size_t n_bytes, void **out);
    void (*free)(struct dt_backend *backend, void *memory); /* NULL is fine */
    enum dt_status (*copy_in)(struct dt_backend *backend, void *device, const void *host,
                              size_t n_bytes);
    enum dt_status (*copy_out)(struct dt_backend *backend, void *host, const void *device,
                               size_t n_bytes); /* waits */
    enum dt_status (*sync)(struct dt_backend *backend);

    /* Makes a data set reachable by `gather` and `loss`; `samples` must stay alive and unchanged
     * until the close. */
    enum dt_status (*samples_open)(struct dt_backend *backend, const struct dt_samples *samples,
                                   struct dt_bound_samples **out);
    void (*samples_close)(struct dt_backend *backend, struct dt_bound_samples *bound);
    /* x (batch->n samples, backend's layout) = the batch's samples, scaled. The batch counts for
     * all that follows until the next.
     */
    enum dt_status (*gather)(struct dt_backend *backend, struct dt_bound_samples *bound,
                             const struct dt_batch *batch, float *x);

    /* What the backend wants of a network of this model whose largest batch is `capacity`. */
    struct dt_network_plan (*plan)(const struct dt_backend *backend, const struct dt_model *model,
                                   int capacity);

    /* `params` and `grads` are always the whole arena. capacity: the largest batch. A failed open
     * owes nothing. */
    enum dt_status (*block_open)(struct dt_backend *backend, const struct dt_model *model,
                                 int block, int capacity, struct dt_block_state **out);
    void (*block_close)(struct dt_block_state *state);
    /* y (n, out) from x (n, in). */
    enum dt_status (*block_forward)(struct dt_block_state *state, const float *params,
                                    const float *x, float *y, const struct dt_pass *pass);
    /* After the forward pass of the same samples: the block's range of `grads` and, unless dx is
     * NULL, dx (n, in) from dy (n, out). For the first block with parameters dx is NULL: nobody
     * needs the gradient of the samples. Gradients are sums over samples. With an empty batch the
     * gradients become zero (or stay, when accumulating). dy may be destroyed. */
    enum dt_status (*block_backward)(struct dt_block_state *state, const float *params,
                                     float *grads, const float *x, const float *y, float *dy,
                                     float *dx, const struct dt_pass *pass);

    /* Adds the batch's sums to the backend's running metrics, and unless dlogits is NULL writes the
     * gradient of the *sum* of the samples' losses. logits, dlogits: (n, n_outputs). */
    enum dt_status (*loss)(struct dt_backend *backend, enum dt_loss loss,
                           struct dt_bound_samples *bound, const struct dt_batch *batch,
                           int n_outputs, const float *logits, float *dlogits);
    /* Reads the running metrics and sets them to zero. Waits. */
    enum dt_status (*metrics_take)(struct dt_backend *backend, struct dt_metrics *out);

    /* One optimizer step over the n floats of the whole arena. state1, state2: see
     * dt_optimizer_n_states; NULL where unused. Clips first, if so set: squares are added in
     * double, in an order that depends on n alone. */
    enum dt_status (*optimizer_step)(struct dt_backend *backend, const struct dt_update *update,
                                     size_t n_elems, float *params, const float *grads,
                                     float *state1, float *state2);
    /* Of n floats of an arena of gradients, in double: as clipping adds them, in an order that
     * depends on n alone. Waits. */
    enum dt_status (*sum_squares)(struct dt_backend *backend, size_t n_elems, const float *x,
                                  double *out);
};

extern const struct dt_backend_ops dt_ref_backend; /* cpu/reference/backend.c */
extern const struct dt_backend_ops dt_cpu_backend; /* cpu/backend.c */

#endif
