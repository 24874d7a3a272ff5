/* Optimizer rules, with PyTorch's meaning of every parameter, so that its fixtures fit (tests/fixtures).
 *
 * sgd:    g += weight_decay * w;  v = momentum * v + g;  w -= lr * (nesterov ? g + momentum * v : v)      (no v when momentum is 0)
 * adam:   g += weight_decay * w;  m, v: moving averages;  w -= lr * (m / c1) / (sqrt(v / c2) + epsilon)
 * adamw:  w -= lr * weight_decay * w, then as adam without decay
 * Kingma and Ba 2015 (arXiv 1412.6980); Loshchilov and Hutter 2019 (arXiv 1711.05101); Sutskever et al. 2013 for Nesterov. */
#ifndef DT_MODEL_OPTIMIZER_H
#define DT_MODEL_OPTIMIZER_H

#include "model/backend.h"

struct dt_optimizer_spec {
    enum dt_optimizer_type type;
    double lr; /* before scaling and schedule */
    double momentum;
    bool nesterov;
    double beta1, beta2, epsilon;
    double weight_decay;
    double clip_norm; /* largest allowed global norm of the mean gradient; 0: off */
};

struct dt_optimizer {
    struct dt_optimizer_spec spec;
    struct dt_backend *backend; /* borrowed */
    size_t n_elems;
    int n_states;
    float *states[2]; /* device; n_elems floats each */
    uint64_t n_steps; /* steps taken; part of a checkpoint */
};

int dt_optimizer_n_states(const struct dt_optimizer_spec *spec); /* 0, 1 or 2 */

enum dt_status dt_optimizer_open(const struct dt_optimizer_spec *spec, struct dt_backend *backend, size_t n_elems,
                                 struct dt_optimizer *out);
void dt_optimizer_close(struct dt_optimizer *optimizer);

/* What the next step does, at learning rate `lr`: gradients are sums, grad_scale makes them means. Counts the step. */
struct dt_update dt_optimizer_next(struct dt_optimizer *optimizer, double lr, double grad_scale);
/* Does it, over the whole arena. */
enum dt_status dt_optimizer_apply(struct dt_optimizer *optimizer, const struct dt_update *update, float *params,
                                  const float *grads);
/* The same of elements [begin, end) of all arrays. Not with clipping by norm, which needs the whole gradient. */
enum dt_status dt_optimizer_apply_range(struct dt_optimizer *optimizer, const struct dt_update *update, size_t begin, size_t end,
                                        float *params, const float *grads);
/* Both. */
enum dt_status dt_optimizer_step(struct dt_optimizer *optimizer, float *params, const float *grads, double lr, double grad_scale);

#endif
