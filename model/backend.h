/* The compute interface: all work on samples, activations and weights goes through it. Three
 * backends implement it: `ref` (plain loops, double accumulators: the oracle), `cpu` (vector
 * kernels), `cuda`. All slots are mandatory. Device memory comes from `alloc`; only `copy_in` and
 * `copy_out` move data between host and device. Work may be enqueued: it is done after `sync`, and
 * in the order of the calls. The layout of activations is the backend's own up to a block with
 * `flatten`, which fixes the order of its outputs; parameters and gradients always have the arena's
 * layout (model/block.h). Contract for all: nothing is allocated after `open` and `block_open`; the
 * same call on the same numbers gives the same bits, whatever the number of threads; NaN and
 * infinity pass through. */
#ifndef DT_MODEL_BACKEND_H
#define DT_MODEL_BACKEND_H

#include "base/clock.h"
#include "base/rng.h"
#include "model/block.h"

/* Precision of activations and of the products of convolutions and dense layers; weights, gradients
 * and sums are always float.
 *   f32   strict
 *   tf32  products of numbers with 10 bits of fraction, on GPUs
 *   bf16  activations of 7 bits, on GPUs; on CPUs with AMX only the products of forward
 *         convolutions use such numbers */
#define DT_PRECISION_LIST(X)     \
    X(DT_PRECISION_F32, "f32")   \
    X(DT_PRECISION_TF32, "tf32") \
    X(DT_PRECISION_BF16, "bf16")
enum dt_precision { DT_PRECISION_LIST(DT_NAMED_ENUM) };

struct dt_backend_options {
    int n_threads;               /* >= 1; CPU backends */
    int local_rank;              /* chooses the device, if there are several */
    enum dt_precision precision; /* DT_UNAVAILABLE if the backend lacks it */
    bool deterministic; /* no choice depends on timing or on the largest batch: each run on the same
                           machine gives the same bits */
    double limit_s;     /* of a wait for the device, then DT_STALLED; 0: waits forever */
    struct dt_alive alive; /* shown while a device opens: of a library, an engine, a block */
};

/* Spans: an observer is called around each part of a step, learns what a rank does when, or waits
 * for what the part needs (dist/strategy/priority.c). They nest, but for buckets. Without one the
 * pointer is NULL. Work may only be enqueued when its span ends: to time it, sync the backend. */
/* X(constant, name) */
#define DT_SPAN_LIST(X)                                                                         \
    X(DT_SPAN_GATHER, "gather")                                                                 \
    X(DT_SPAN_FORWARD, "forward") /* of a block */                                              \
    X(DT_SPAN_LOSS, "loss")                                                                     \
    X(DT_SPAN_RECOMPUTE, "recompute") /* a block's forward pass again, during backward */       \
    X(DT_SPAN_BACKWARD, "backward")   /* of a block */                                          \
    X(DT_SPAN_UPDATE, "update")       /* of the weights, or of a range of them */               \
    X(DT_SPAN_BUCKET, "bucket")       /* of gradients, from its start until its sum is there */ \
    X(DT_SPAN_WAIT, "wait")           /* for sums, including the updates meanwhile */           \
    X(DT_SPAN_GPU, "gpu")             /* steps that a GPU takes on its own */
enum dt_span_kind { DT_SPAN_LIST(DT_NAMED_ENUM) DT_N_SPANS };

struct dt_span {
    enum dt_span_kind kind;
    int block;            /* index of the block, or of the bucket */
    int first, n_samples; /* of the batch */
    const float *y;       /* forward, at its end: the block's output; device memory, as dy */
    const float *dy; /* backward, at its begin: its gradient, which may lie where the output was */
};

struct dt_trace {
    enum dt_status (*begin)(struct dt_trace *trace, const struct dt_span *span);
    enum dt_status (*end)(struct dt_trace *trace, const struct dt_span *span);
};

static inline enum dt_status dt_span_begin(struct dt_trace *trace, const struct dt_span *span)
{
    return trace == NULL ? DT_OK : trace->begin(trace, span);
}

static inline enum dt_status dt_span_end(struct dt_trace *trace, const struct dt_span *span)
{
    return trace == NULL ? DT_OK : trace->end(trace, span);
}

/* One pass of a batch through the network, or through a block in parts: forward part by part,
 * backward part by part, the same parts in the same order, with the same weights. A block may have
 * to repeat its forward pass just before its backward pass. */
struct dt_pass {
    const struct dt_batch *batch; /* the part's samples */
    int first; /* samples of the earlier parts: the offset of this part in a block's stored state */
    bool more; /* other parts follow; gradients need not be in `grads` before the last one */
    bool training;   /* draws dropout; a backward pass follows */
    bool accumulate; /* backward adds to the gradients instead of overwriting them */
    uint64_t seed;   /* of the run; dropout masks derive from (seed, layer, epoch, sample id, unit):
                        base/rng.h */
    void (*poll)(void *context); /* may be NULL; long host kernels call it a few times, on the
                                    calling thread, so that messages progress */
    void *context;               /* of poll */
    struct dt_trace *trace;      /* observer of the pass's spans, or NULL; backends ignore it */
};

/* A backend's plan for a network: chunk size, and memory it can save. All zero but `chunk` is
 * always correct. */
struct dt_network_plan {
    int chunk; /* samples that the spatial blocks process at a time, so that one block's output
                  stays in the caches for the next; at least 1; the network's capacity: the whole
                  batch at once */
    int n_recomputed; /* leading spatial blocks, never the last one, whose outputs exist for the
                         current chunk only; the backward pass recomputes them. Pays off where an
                         output is large and cheap */
    /* The block's dx overwrites its x: the block has finished with x when it writes dx, and the
     * block below does not read its output in the backward pass. Applies only after the spatial
     * blocks. */
    bool dx_over_x[DT_MAX_LAYERS];
};

/* Sums over samples: batches and ranks can add them, as three doubles. */
struct dt_metrics {
    double loss_sum;  /* cross-entropy in nats, or squared or absolute error, of which each sample
                         has the mean over its outputs */
    double n_correct; /* classification: samples whose largest logit is the label's; a tie goes to
                         the lowest class. Targets: of each sample 1 less its mean squared error,
                         whose mean is R2 where targets have the variance 1 */
    double n_samples;
};

struct dt_update;        /* one optimizer step: model/optimizer.h */
struct dt_block_state;   /* defined by each backend, per block */
struct dt_bound_samples; /* defined by each backend, per data set */

struct dt_backend {
    const struct dt_backend_ops *ops;
    const char *description; /* for the banner: "x86-64-v4, 2 threads" */
    bool host_memory;        /* the program itself can read and write memory from `alloc` */
    const struct dt_layer_ops *const *layers; /* by type (model/layers/layers.h); NULL: ref's */
};

struct dt_backend_ops {
    const char *name; /* "ref", "cpu", "cuda" */

    /* DT_UNAVAILABLE: this machine cannot run it. The caller closes what it opened. */
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

    /* Makes a data set available to `gather` and `loss`; `samples` must stay alive and unchanged
     * until the close. */
    enum dt_status (*samples_open)(struct dt_backend *backend, const struct dt_samples *samples,
                                   struct dt_bound_samples **out);
    void (*samples_close)(struct dt_backend *backend, struct dt_bound_samples *bound);
    /* x (batch->n samples, backend's layout) = the batch's samples, scaled. The batch stays current
     * for all calls until the next gather. */
    enum dt_status (*gather)(struct dt_backend *backend, struct dt_bound_samples *bound,
                             const struct dt_batch *batch, float *x);

    /* The backend's plan for a network of this model whose largest batch is `capacity`. */
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
    /* Call it after the forward pass of the same samples: computes the block's range of `grads`
     * and, unless dx is NULL, dx (n, in) from dy (n, out). For the first block with parameters dx
     * is NULL: the gradient of the samples is not needed. Gradients are sums over samples. With an
     * empty batch the gradients become zero (or stay, when accumulating). dy may be destroyed. */
    enum dt_status (*block_backward)(struct dt_block_state *state, const float *params,
                                     float *grads, const float *x, const float *y, float *dy,
                                     float *dx, const struct dt_pass *pass);

    /* Adds the batch's sums to the backend's running metrics. Unless dlogits is NULL, smooths
     * labels and writes the gradient of the *sum* of losses. logits, dlogits: (n, n_outputs). */
    enum dt_status (*loss)(struct dt_backend *backend, const struct dt_model_spec *spec,
                           struct dt_bound_samples *bound, const struct dt_batch *batch,
                           int n_outputs, const float *logits, float *dlogits);
    /* Reads the running metrics and sets them to zero. Waits. */
    enum dt_status (*metrics_take)(struct dt_backend *backend, struct dt_metrics *out);

    /* One optimizer step over the n floats of the whole arena. state1, state2: see
     * dt_optimizer_n_states; NULL where unused. Clips first, if update says so: adds squares in
     * double, in an order that depends on n alone. */
    enum dt_status (*optimizer_step)(struct dt_backend *backend, const struct dt_update *update,
                                     size_t n_elems, float *params, const float *grads,
                                     float *state1, float *state2);
    /* Sum of squares of n floats of a gradient arena, in double: added as clipping does, in an
     * order that depends on n alone. Waits. */
    enum dt_status (*sum_squares)(struct dt_backend *backend, size_t n_elems, const float *x,
                                  double *out);
};

extern const struct dt_backend_ops dt_ref_backend; /* cpu/reference/reference_backend.c */
extern const struct dt_backend_ops dt_cpu_backend; /* cpu/backend.c */

#endif
