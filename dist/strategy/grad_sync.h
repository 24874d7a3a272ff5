/* Averaging gradients while the backward pass still runs.
 *
 * Gradients become final front to back in the arena, so a bucket is a contiguous range, filled
 * until it holds `bucket_bytes`, and its allreduce starts the moment it is full: tensor fusion
 * without a copy (Sergeev and Del Balso 2018, arXiv 1802.05799; Li et al. 2020, arXiv 2006.15704).
 * The buckets are a function of the model and the setting, so every rank forms the same ones. */
#ifndef DT_DIST_STRATEGY_GRAD_SYNC_H
#define DT_DIST_STRATEGY_GRAD_SYNC_H

#include "dist/strategy/dist_spec.h"
#include "model/network.h"

#define DT_MAX_BUCKETS DT_ALLREDUCE_MAX_SLOTS

struct dt_bucket {
    size_t begin, end; /* of the arena, in floats */
    char name[48];
    struct dt_request request;
};

struct dt_grad_sync {
    struct dt_allreduce *allreduce; /* borrowed */
    bool overlap;                   /* false: everything is sent at the end, to compare */
    bool quiet; /* true: no poll before the wait. While a step is recorded (cuda/step_graph.c),
                   a look would be part of it */
    struct dt_trace *trace; /* who watches the buckets, or NULL */
    int n_buckets;
    struct dt_bucket buckets[DT_MAX_BUCKETS];
    /* of the step under way */
    int n_started;
    size_t n_ready;        /* floats whose gradients are final */
    enum dt_status failed; /* what a poll ran into; the wait returns it */
};

/* allreduce: adds the gradients, which are its part; bucket i is in its slot i. Buckets end where
 * blocks of the model do; bucket_bytes 0: one bucket per block. */
void dt_grad_sync_open(struct dt_allreduce *allreduce, const struct dt_model *model,
                       const struct dt_dist_spec *dist, struct dt_grad_sync *out);

/* Before the backward pass of a step. */
void dt_grad_sync_begin(struct dt_grad_sync *sync);
/* A dt_grad_ready_fn, with the dt_grad_sync as its context: starts every bucket that is now full,
 * and helps the others along. */
enum dt_status dt_grad_sync_ready(void *context, size_t begin, size_t end);
/* Lets messages progress; a dt_pass.poll. Errors surface in the wait. */
void dt_grad_sync_poll(void *context);
/* After the backward pass: every bucket is on its way when this returns. */
enum dt_status dt_grad_sync_end(struct dt_grad_sync *sync);
/* Bucket `index` is summed over all ranks when this returns. */
enum dt_status dt_grad_sync_wait(struct dt_grad_sync *sync, int index);

#endif
