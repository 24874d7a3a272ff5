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

/* A step of each rule, and how many states it changes: for tests that compare backends. */
/* clang-format off */
#define ADAM_CASE(type_)                                                                        \
    {{.type = DT_OPTIMIZER_##type_, .grad_scale = 1.0f / 128, .lr = 0.01f, .weight_decay = 0.1f, \
      .one_minus_beta1 = 0.1f, .one_minus_beta2 = 0.01f, .epsilon = 1e-7f,                      \
      .bias_correction1 = 0.19f, .bias_correction2 = 0.02f}, 2}
#define SGD_CASE(n_states_, ...)                                                                \
    {{.grad_scale = 0.25f, .lr = 0.1f, .weight_decay = 0.01f, .momentum = 0.9f, ##__VA_ARGS__}, \
     n_states_}
/* clang-format on */

enum { N_UPDATE_CASES = 7 };
static const struct {
    struct dt_update update;
    int n_states;
} update_cases[N_UPDATE_CASES] = {ADAM_CASE(ADAM),
                                  ADAM_CASE(ADAMW),
                                  SGD_CASE(1),
                                  SGD_CASE(0),
                                  SGD_CASE(1, .nesterov = true),
                                  SGD_CASE(1, .clip_norm = 0.5f),
                                  SGD_CASE(1, .clip_norm = 1e6f)};

#endif
