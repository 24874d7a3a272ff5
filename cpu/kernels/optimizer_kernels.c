/* Optimizer steps in one pass over the arena, and the norm. Plain loops: the compiler vectorizes
 * them. */
#include "cpu/kernels/kernels.h"

#include <math.h>

/* Eight running sums in double; the order depends on n alone, and squares of floats are exact in
 * double. */
double DT_KERNEL(sum_squares)(size_t n_elems, const float *x)
{
    enum { SUMS = 8 };
    double sums[SUMS] = {0}, total = 0;
    size_t i = 0;
    for (; i + SUMS <= n_elems; i += SUMS) {
        for (int j = 0; j < SUMS; j++) {
            sums[j] += (double)x[i + (size_t)j] * (double)x[i + (size_t)j];
        }
    }
    for (; i < n_elems; i++) {
        sums[i % SUMS] += (double)x[i] * (double)x[i];
    }
    for (int j = 0; j < SUMS; j++) {
        total += sums[j];
    }
    return total;
}

void DT_KERNEL(sgd)(const struct dt_update *update, size_t n_elems, float *restrict params,
                    const float *restrict grads, float *restrict velocity)
{
    const float scale = update->grad_scale, lr = update->lr, decay = update->weight_decay,
                momentum = update->momentum;
    if (velocity == NULL) {
        for (size_t i = 0; i < n_elems; i++) {
            params[i] -= lr * (grads[i] * scale + decay * params[i]);
        }
        return;
    }
    const float of_gradient = update->nesterov ? 1.0f : 0.0f,
                of_velocity = update->nesterov ? momentum : 1.0f;
    for (size_t i = 0; i < n_elems; i++) {
        const float g = grads[i] * scale + decay * params[i];
        const float v = momentum * velocity[i] + g;
        velocity[i] = v;
        params[i] -= lr * (of_gradient * g + of_velocity * v);
    }
}

void DT_KERNEL(adam)(const struct dt_update *update, size_t n_elems, float *restrict params,
                     const float *restrict grads, float *restrict mean, float *restrict square)
{
    const float scale = update->grad_scale, lr = update->lr, epsilon = update->epsilon;
    const float share1 = update->one_minus_beta1, share2 = update->one_minus_beta2;
    const bool decoupled = update->type == DT_OPTIMIZER_ADAMW;
    const float decay = decoupled ? 0.0f : update->weight_decay;
    const float shrink = decoupled ? 1.0f - lr * update->weight_decay : 1.0f;
    const float step = lr / update->bias_correction1, root = 1.0f / sqrtf(update->bias_correction2);
    for (size_t i = 0; i < n_elems; i++) {
        const float g = grads[i] * scale + decay * params[i];
        const float m = mean[i] - share1 * mean[i] + share1 * g;
        const float v = square[i] - share2 * square[i] + share2 * g * g;
        mean[i] = m;
        square[i] = v;
        params[i] = params[i] * shrink - step * m / (sqrtf(v) * root + epsilon);
    }
}
