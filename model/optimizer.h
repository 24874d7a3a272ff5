/* Optimizer rules. Every parameter means what it means in PyTorch, so that its fixtures apply
 * (tests/fixtures).
 *
 * sgd:    g += weight_decay * w;  v = momentum * v + g;
 *         w -= lr * (nesterov ? g + momentum * v : v)      (no v when momentum is 0)
 * adam:   g += weight_decay * w;  m, v: moving averages;
 *         w -= lr * (m / c1) / (sqrt(v / c2) + epsilon)
 * adamw:  w -= lr * weight_decay * w, then as adam without decay
 *
 * Kingma and Ba 2015 (arXiv 1412.6980); Loshchilov and Hutter 2019 (arXiv 1711.05101); Sutskever et
 * al. 2013 for Nesterov. */
#ifndef DT_MODEL_OPTIMIZER_H
#define DT_MODEL_OPTIMIZER_H

#include <math.h>

#include "base/rng.h"
#include "base/status.h"
#include "model/spec.h"

struct dt_backend;
struct dt_model;

#define DT_OPTIMIZER_LIST(X)     \
    X(DT_OPTIMIZER_SGD, "sgd")   \
    X(DT_OPTIMIZER_ADAM, "adam") \
    X(DT_OPTIMIZER_ADAMW, "adamw")
enum dt_optimizer_type { DT_OPTIMIZER_LIST(DT_NAMED_ENUM) };

/* One optimizer step; everything that depends on the step's number is computed in advance. */
struct dt_update {
    enum dt_optimizer_type type;
    float grad_scale; /* makes the mean gradient of the sum in `grads`; nothing else divides it */
    float clip_norm;  /* scales a mean gradient with a larger L2 norm down to it; 0: off */
    float lr, weight_decay, momentum; /* momentum: sgd */
    bool nesterov;
    /* adam, adamw: a moving mean m of x becomes m - (1 - beta) m + (1 - beta) x. Computed in
     * double: a beta near 1 rounded to float first would leave few digits of 1 - beta. */
    float one_minus_beta1, one_minus_beta2, epsilon;
    float bias_correction1, bias_correction2; /* 1 - beta1^t, 1 - beta2^t */
};

/* Whether each element's step depends on its own gradient alone, not on the norm of all. */
static inline bool dt_update_is_elementwise(const struct dt_update *update)
{
    return update->clip_norm == 0;
}

/* grad_scale after clipping; sum_squares is that of grads. torch.nn.utils.clip_grad_norm_ has the
 * same 1e-6. */
static inline DT_HOST_DEVICE float dt_update_clipped_scale(const struct dt_update *update,
                                                           double sum_squares)
{
    const double scale = (double)update->grad_scale, limit = (double)update->clip_norm,
                 norm = sqrt(sum_squares) * scale + 1e-6;
    return norm > limit ? (float)(scale * (limit / norm)) : update->grad_scale;
}

struct dt_optimizer_spec {
    enum dt_optimizer_type type;
    double lr; /* before scaling and schedule */
    bool nesterov;
    double momentum, beta1, beta2, epsilon, weight_decay;
    double clip_norm; /* largest allowed global norm of the mean gradient; 0: off */
};

struct dt_optimizer {
    struct dt_optimizer_spec spec;
    struct dt_backend *backend; /* borrowed */
    size_t n_elems;
    int n_states;
    float *states[2];       /* device; n_elems floats each */
    bool owns_states;       /* private */
    uint64_t n_steps;       /* steps taken; part of a checkpoint */
    struct dt_trace *trace; /* observer of updates, or NULL */
    /* A dt_optimizer_apply_rates and the model, where blocks have rates of their own; or NULL. */
    enum dt_status (*by_rates)(struct dt_optimizer optimizer, struct dt_update update, size_t begin,
                               size_t end, float *params, const float *grads);
    const struct dt_model *model;
};

int dt_optimizer_n_states(const struct dt_optimizer_spec *spec); /* 0, 1 or 2 */

/* states: borrowed, n_states of them, zeroed; NULL: the optimizer allocates its own. */
enum dt_status dt_optimizer_open(const struct dt_optimizer_spec *spec, struct dt_backend *backend,
                                 size_t n_elems, float *const *states, struct dt_optimizer *out);
void dt_optimizer_close(struct dt_optimizer *optimizer);

/* Prepares the next step at learning rate `lr`: gradients are sums, grad_scale makes them means.
 * Counts the step. */
struct dt_update dt_optimizer_next(struct dt_optimizer *optimizer, double lr, double grad_scale);
/* Applies it to elements [begin, end) of weights and states (the whole arena if it clips by norm);
 * `grads` begins at `begin`. */
enum dt_status dt_optimizer_apply_range(struct dt_optimizer *optimizer,
                                        const struct dt_update *update, size_t begin, size_t end,
                                        float *params, const float *grads);

/* The same, block by block, each at its factor of the rate, without those that are frozen; a norm
 * is that of all gradients. */
enum dt_status dt_optimizer_apply_rates(struct dt_optimizer optimizer, struct dt_update update,
                                        size_t begin, size_t end, float *params,
                                        const float *grads);

/* The hint of an error about a loss or weights that are not finite. */
#define DT_DIVERGED_HINT "lower train.optimizer.lr or set clip_norm"

#endif
