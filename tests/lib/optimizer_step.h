/* An optimizer over the whole arena, for tests that train without buckets. */
#ifndef DT_TESTS_OPTIMIZER_STEP_H
#define DT_TESTS_OPTIMIZER_STEP_H

#include "model/optimizer.h"

static inline enum dt_status optimizer_apply(struct dt_optimizer *optimizer,
                                             const struct dt_update *update, float *params,
                                             const float *grads)
{
    return dt_optimizer_apply_range(optimizer, update, 0, optimizer->n_elems, params, grads);
}

static inline enum dt_status optimizer_step(struct dt_optimizer *optimizer, float *params,
                                            const float *grads, double lr, double grad_scale)
{
    const struct dt_update update = dt_optimizer_next(optimizer, lr, grad_scale);
    return optimizer_apply(optimizer, &update, params, grads);
}

#endif
