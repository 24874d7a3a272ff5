/* The reference backend: plain loops in canonical order with double accumulators. It is what every
 * other backend is tested against, so it is written to be obviously right, and only that. Block
 * kernels are in block.c. */
#include "cpu/reference/reference_block.h"
#include "model/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct ref_backend {
    struct dt_backend base;
    struct dt_metrics metrics;
};

static struct ref_backend *ref_of(struct dt_backend *backend)
{
    return (struct ref_backend *)backend;
}

static enum dt_status ref_open(const struct dt_backend_options *options, struct dt_backend **out)
{
    if (options->precision != DT_PRECISION_F32) {
        return dt_error(
            DT_UNAVAILABLE,
            "the ref backend computes in f32 alone (use \"precision\": \"f32\", or a GPU)");
    }
    struct ref_backend *ref = calloc(1, sizeof *ref);
    if (ref == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening the reference backend");
    }
    ref->base.ops = &dt_ref_backend;
    ref->base.description = "reference, plain loops, 1 thread";
    ref->base.host_memory = true;
    *out = &ref->base;
    return DT_OK;
}

static void ref_close(struct dt_backend *backend)
{
    free(backend);
}

static enum dt_status ref_alloc(struct dt_backend *backend, size_t n_bytes, void **out)
{
    (void)backend;
    const size_t rounded = (n_bytes + 63) / 64 * 64 + 256;
    *out = aligned_alloc(64, rounded);
    if (*out == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory: %zu bytes (use a smaller model or batch)",
                        n_bytes);
    }
    memset(*out, 0, rounded);
    return DT_OK;
}

static void ref_free(struct dt_backend *backend, void *memory)
{
    (void)backend;
    free(memory);
}

static enum dt_status ref_copy(struct dt_backend *backend, void *to, const void *from,
                               size_t n_bytes)
{
    (void)backend;
    memcpy(to, from, n_bytes);
    return DT_OK;
}

static enum dt_status ref_sync(struct dt_backend *backend)
{
    (void)backend;
    return DT_OK;
}

/* It reads the samples where they are: what stands for them is their own address. */
static enum dt_status ref_samples_open(struct dt_backend *backend, const struct dt_samples *samples,
                                       struct dt_bound_samples **out)
{
    (void)backend;
    *out = (struct dt_bound_samples *)samples;
    return DT_OK;
}

static void ref_samples_close(struct dt_backend *backend, struct dt_bound_samples *bound)
{
    (void)backend;
    (void)bound;
}

static enum dt_status ref_gather(struct dt_backend *backend, struct dt_bound_samples *bound,
                                 const struct dt_batch *batch, float *x)
{
    (void)backend;
    const struct dt_samples *samples = (const struct dt_samples *)bound;
    const size_t n_elems = dt_shape_elems(samples->shape);
    for (int i = 0; i < batch->n; i++) {
        const size_t from = batch->rows[i] * n_elems;
        if (samples->transform != NULL) {
            samples->transform->apply(samples->transform, samples->pixels + from, batch->epoch,
                                      batch->ids[i], x);
            x += n_elems;
            continue;
        }
        for (size_t j = from; j < from + n_elems; j++) {
            *x++ = samples->pixels != NULL ? (float)samples->pixels[j] * samples->scale
                                           : samples->values[j];
        }
    }
    return DT_OK;
}

/* loss = log(sum exp(z)) - target z, with the largest logit taken out first; its gradient is
 * softmax(z) - target, which is onehot(label), or with s of it spread over all classes. */
static void cross_entropy(int label, int n, double s, const float *z, float *dz,
                          struct dt_metrics *metrics)
{
    int best = 0;
    for (int k = 1; k < n; k++) {
        best = z[k] > z[best] ? k : best;
    }
    double sum = 0;
    for (int k = 0; k < n; k++) {
        sum += exp((double)z[k] - (double)z[best]);
    }
    metrics->loss_sum += log(sum) + (double)z[best] - (double)z[label];
    metrics->n_correct += best == label;
    for (int k = 0; dz != NULL && k < n; k++) {
        const double target = (1 - s) * (k == label) + s / n;
        dz[k] = (float)(exp((double)z[k] - (double)z[best]) / sum - target);
        metrics->loss_sum += s > 0 ? s / n * ((double)z[label] - (double)z[k]) : 0;
    }
}

static void squared_error(const float *target, int n, const float *z, float *dz,
                          struct dt_metrics *metrics)
{
    for (int k = 0; k < n; k++) {
        const double error = (double)z[k] - (double)target[k];
        metrics->loss_sum += error * error / n;
        if (dz != NULL) {
            dz[k] = (float)(2.0 * error / n);
        }
    }
}

static enum dt_status ref_loss(struct dt_backend *backend, const struct dt_model_spec *spec,
                               struct dt_bound_samples *bound, const struct dt_batch *batch,
                               int n_outputs, const float *logits, float *dlogits)
{
    struct dt_metrics *metrics = &ref_of(backend)->metrics;
    const struct dt_samples *samples = (const struct dt_samples *)bound;
    for (int i = 0; i < batch->n; i++) {
        const size_t row = batch->rows[i];
        const float *z = logits + (size_t)i * (size_t)n_outputs;
        float *dz = dlogits != NULL ? dlogits + (size_t)i * (size_t)n_outputs : NULL;
        if (spec->loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY) {
            cross_entropy(samples->labels[row], n_outputs, spec->label_smoothing, z, dz, metrics);
        } else {
            squared_error(samples->targets + row * (size_t)n_outputs, n_outputs, z, dz, metrics);
        }
    }
    metrics->n_samples += batch->n;
    return DT_OK;
}

static enum dt_status ref_metrics_take(struct dt_backend *backend, struct dt_metrics *out)
{
    *out = ref_of(backend)->metrics;
    ref_of(backend)->metrics = (struct dt_metrics){0};
    return DT_OK;
}

static enum dt_status ref_sum_squares(struct dt_backend *backend, size_t n_elems, const float *x,
                                      double *out)
{
    (void)backend;
    *out = 0;
    for (size_t i = 0; i < n_elems; i++) {
        *out += (double)x[i] * (double)x[i];
    }
    return DT_OK;
}

static void sgd_step(const struct dt_update *u, size_t n_elems, float *params, const float *grads,
                     float *velocity)
{
    for (size_t i = 0; i < n_elems; i++) {
        double g = (double)grads[i] * u->grad_scale + (double)u->weight_decay * params[i];
        if (velocity != NULL) {
            const double v = (double)u->momentum * velocity[i] + g;
            velocity[i] = (float)v;
            g = u->nesterov ? g + (double)u->momentum * v : v;
        }
        params[i] = (float)(params[i] - (double)u->lr * g);
    }
}

static void adam_step(const struct dt_update *u, size_t n_elems, float *params, const float *grads,
                      float *mean, float *square)
{
    const bool decoupled = u->type == DT_OPTIMIZER_ADAMW;
    for (size_t i = 0; i < n_elems; i++) {
        double w = params[i];
        double g = (double)grads[i] * u->grad_scale;
        if (decoupled) {
            w -= (double)u->lr * u->weight_decay * w;
        } else {
            g += (double)u->weight_decay * w;
        }
        const double m =
            (1.0 - (double)u->one_minus_beta1) * mean[i] + (double)u->one_minus_beta1 * g;
        const double v =
            (1.0 - (double)u->one_minus_beta2) * square[i] + (double)u->one_minus_beta2 * g * g;
        mean[i] = (float)m;
        square[i] = (float)v;
        params[i] = (float)(w - (double)u->lr * (m / u->bias_correction1) /
                                    (sqrt(v / u->bias_correction2) + u->epsilon));
    }
}

static enum dt_status ref_optimizer_step(struct dt_backend *backend, const struct dt_update *update,
                                         size_t n_elems, float *params, const float *grads,
                                         float *state1, float *state2)
{
    struct dt_update clipped = *update;
    if (update->clip_norm > 0) {
        double squares;
        DT_TRY(ref_sum_squares(backend, n_elems, grads, &squares));
        clipped.grad_scale = dt_update_clipped_scale(update, squares);
    }
    if (update->type == DT_OPTIMIZER_SGD) {
        sgd_step(&clipped, n_elems, params, grads, state1);
    } else {
        adam_step(&clipped, n_elems, params, grads, state1, state2);
    }
    return DT_OK;
}

/* Few at a time, so that every test of a network goes through chunks. */
static struct dt_network_plan ref_plan(const struct dt_backend *backend,
                                       const struct dt_model *model, int capacity)
{
    (void)backend;
    (void)model;
    return (struct dt_network_plan){.chunk = capacity < 2 ? 1 : 2};
}

const struct dt_backend_ops dt_ref_backend = {
    .name = "ref",
    .open = ref_open,
    .close = ref_close,
    .alloc = ref_alloc,
    .free = ref_free,
    .copy_in = ref_copy,
    .copy_out = ref_copy,
    .sync = ref_sync,
    .samples_open = ref_samples_open,
    .samples_close = ref_samples_close,
    .gather = ref_gather,
    .plan = ref_plan,
    .block_open = dt_ref_block_open,
    .block_close = dt_ref_block_close,
    .block_forward = dt_ref_block_forward,
    .block_backward = dt_ref_block_backward,
    .loss = ref_loss,
    .metrics_take = ref_metrics_take,
    .optimizer_step = ref_optimizer_step,
    .sum_squares = ref_sum_squares,
};
