/* A step of each optimizer, for tests that compare backends. */
#ifndef DT_TESTS_UPDATE_CASES_H
#define DT_TESTS_UPDATE_CASES_H

#include "model/optimizer.h"

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
