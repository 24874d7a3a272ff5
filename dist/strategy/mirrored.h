/* Mirrored weights: the parts of allreduce.c that priority.c and host_step.c use, too. */
#ifndef DT_DIST_STRATEGY_MIRRORED_H
#define DT_DIST_STRATEGY_MIRRORED_H

#include "dist/strategy/grad_sync.h"
#include "dist/strategy/strategy.h"

struct dt_mirrored;

/* Takes one step for all ranks of a host (host_step.c). */
struct dt_host_step {
    /* dt_strategy_each_sum of elements [begin, end). */
    enum dt_status (*each_sum)(struct dt_host_step *step, size_t begin, size_t end, dt_sums_fn fn,
                               void *context);
    void (*close)(struct dt_host_step *step);
};
/* The host_step_open of struct dt_dist_entries. Where the ranks of a host cannot share their steps,
 * or one does not want to (shared_step of its spec), nothing changes. */
enum dt_status dt_host_step_open(struct dt_mirrored *mirrored);

struct dt_mirrored {
    struct dt_strategy base;
    struct dt_grad_sync sync;
    struct dt_host_step *host_step; /* NULL: every rank takes its own steps */
    struct dt_update update;        /* of the step whose sums are under way */
    int n_stepped;                  /* buckets, of that step */
};

static inline struct dt_mirrored *dt_mirrored_of(struct dt_strategy *strategy)
{
    return (struct dt_mirrored *)strategy;
}

/* dt_strategy_open of a struct of n_bytes that begins with a struct dt_mirrored. */
enum dt_status dt_mirrored_open(const struct dt_strategy_spec *spec,
                                const struct dt_strategy_ops *ops, size_t n_bytes,
                                struct dt_strategy **out);

/* Slots of the row and of the strategy. */
enum dt_status dt_mirrored_check(const struct dt_strategy_spec *spec, const char **key);
void dt_mirrored_start(struct dt_strategy_step *step);
enum dt_status dt_mirrored_ready(struct dt_strategy_step *step, size_t begin, size_t end);
void dt_mirrored_poll(struct dt_strategy_step *step);
enum dt_status dt_mirrored_each_sum(struct dt_strategy *strategy, dt_sums_fn fn, void *context);
void dt_mirrored_close(struct dt_strategy *strategy);

/* Steps the weights of a bucket, whose sums are there. */
enum dt_status dt_mirrored_step_bucket(struct dt_strategy_step *step,
                                       const struct dt_bucket *bucket);

#endif
