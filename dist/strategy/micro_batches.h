/* The passes of a step whose gradient has the same bits at any number of ranks.
 *
 * The global batch is cut into micro-batches of dt_dist_spec.leaf samples; the configuration calls
 * them leaves. The same code passes each leaf through the network on every rank, so its gradient
 * has the same bits on all. dist/compression/fixed_point.h adds these gradients as integers. */
#ifndef DT_DIST_STRATEGY_MICRO_BATCHES_H
#define DT_DIST_STRATEGY_MICRO_BATCHES_H

#include "dist/compression/fixed_point.h"
#include "dist/strategy/grad_sync.h"
#include "dist/strategy/strategy.h"

#define DT_LEAVES_AT_ONCE 4

struct dt_micro_batches {
    int n_digits;
    size_t n_elems;
    float *grads;  /* (DT_LEAVES_AT_ONCE, n_elems): of leaves that are not added yet */
    int64_t *sums; /* (n_elems): of those that are */
    /* of the step under way */
    size_t n_wrong;   /* gradients of this rank that no sum holds */
    int n_kept;       /* leaves in grads */
    bool first, last; /* they are the first ones of the batch, the last ones */
    float *digits;    /* (n_digits * n_elems) */
    struct dt_strategy_step *step;
};

/* n_ranks: that add their digits. What a failed open leaves, the close frees. */
enum dt_status dt_micro_batches_open(const struct dt_strategy_spec *spec, int n_ranks,
                                     struct dt_micro_batches *out);
void dt_micro_batches_close(struct dt_backend *backend, struct dt_micro_batches *leaves);

/* Bytes that these need, and the digits, beside one gradient. */
size_t dt_micro_batches_n_bytes(const struct dt_model *model, int n_ranks);

/* DT_CONFIG if the configuration, or the backend (NULL: not asked), does not allow leaves. */
enum dt_status dt_micro_batches_check(const struct dt_strategy_spec *spec, const char **key);

/* Buckets of gradients become the buckets of their digits. */
void dt_micro_batches_widen(int n_digits, struct dt_grad_sync *buckets);

/* The parts of dt_micro_batches_passes, for a strategy with passes of its own: a step begins; so
 * does the next leaf, whose gradients the network writes into `grads`; [begin, end) of them
 * are final (a dt_grad_ready_fn of a struct dt_micro_batches). */
void dt_micro_batches_begin(struct dt_micro_batches *leaves, struct dt_strategy_step *step,
                            float *digits);
void dt_micro_batches_next(struct dt_micro_batches *leaves, struct dt_network *network, bool last);
enum dt_status dt_micro_batches_ready(void *leaves, size_t begin, size_t end);

/* dt_strategy_passes. This rank's gradient comes as digits, front to back; the strategy's `ready`
 * gets ranges of the gradient as they come. */
enum dt_status dt_micro_batches_passes(struct dt_micro_batches *leaves,
                                       struct dt_strategy_step *step, struct dt_network *network,
                                       struct dt_bound_samples *samples, const struct dt_pass *pass,
                                       float *digits);

#endif
