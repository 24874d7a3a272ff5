/* Mirrored weights: the parts of allreduce.c that priority.c uses, too. */
#ifndef DT_DIST_STRATEGY_MIRRORED_H
#define DT_DIST_STRATEGY_MIRRORED_H

#include "dist/strategy/grad_sync.h"
#include "dist/strategy/host_step.h"
#include "dist/strategy/strategies.h"

struct dt_mirrored {
    struct dt_strategy base;
    struct dt_grad_sync sync;
    struct dt_host_step host_step; /* the ranks of the host share their steps, unless it is zero */
    int n_stepped;                 /* buckets, of the step under way */
    struct dt_strategy_step last;  /* priority.c: its weights may still be on their way */
};

static inline struct dt_mirrored *dt_mirrored_of(struct dt_strategy *strategy)
{
    return (struct dt_mirrored *)strategy;
}

static inline bool dt_mirrored_shares(const struct dt_mirrored *self)
{
    return self->host_step.memory.bytes != NULL;
}

/* dt_strategy_open, with other slots. credit_bytes: of struct dt_allreduce_spec. */
enum dt_status dt_mirrored_open(const struct dt_strategy_spec *spec,
                                const struct dt_strategy_ops *ops, size_t credit_bytes,
                                struct dt_strategy **out);

/* Slots of the row and of the strategy. */
enum dt_status dt_mirrored_check(const struct dt_strategy_spec *spec, const char **key);
void dt_mirrored_begin(struct dt_strategy_step *step);
enum dt_status dt_mirrored_ready(struct dt_strategy_step *step, size_t begin, size_t end);
void dt_mirrored_poll(struct dt_strategy_step *step);
enum dt_status dt_mirrored_each_sum(struct dt_strategy *strategy, dt_sums_fn fn, void *context);
void dt_mirrored_close(struct dt_strategy *strategy);

/* A dt_grad_ready_fn of a struct dt_strategy_step: the sums of a bucket are there. */
enum dt_status dt_mirrored_step_bucket(void *context, size_t begin, size_t end);

#endif
