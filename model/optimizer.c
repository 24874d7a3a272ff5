#include "model/optimizer.h"

#include "model/network.h"

int dt_optimizer_n_states(const struct dt_optimizer_spec *spec)
{
    return spec->type != DT_OPTIMIZER_SGD ? 2 : spec->momentum != 0.0 ? 1 : 0;
}

enum dt_status dt_optimizer_open(const struct dt_optimizer_spec *spec, struct dt_backend *backend,
                                 size_t n_elems, float *const *states, struct dt_optimizer *out)
{
    *out = (struct dt_optimizer){.spec = *spec,
                                 .backend = backend,
                                 .n_elems = n_elems,
                                 .n_states = dt_optimizer_n_states(spec),
                                 .owns_states = states == NULL};
    enum dt_status s = DT_OK;
    for (int i = 0; i < out->n_states && s == DT_OK; i++) {
        if (states != NULL) {
            out->states[i] = states[i];
        } else {
            s = dt_floats_alloc(backend, "the optimizer's state", "", n_elems, &out->states[i]);
        }
    }
    if (s != DT_OK) {
        dt_optimizer_close(out);
    }
    DT_ASSERT(s != DT_OK || out->n_steps == 0);
    return s;
}

void dt_optimizer_close(struct dt_optimizer *optimizer)
{
    for (int i = 0; i < 2 && optimizer->owns_states; i++) {
        optimizer->backend->ops->free(optimizer->backend, optimizer->states[i]);
    }
    *optimizer = (struct dt_optimizer){.n_states = 0};
}

struct dt_update dt_optimizer_next(struct dt_optimizer *optimizer, double lr, double grad_scale)
{
    DT_ASSERT(lr >= 0 && grad_scale >= 0);
    const struct dt_optimizer_spec *spec = &optimizer->spec;
    optimizer->n_steps++;
    const double t = (double)optimizer->n_steps;
    DT_ASSERT(spec->type == DT_OPTIMIZER_SGD ||
              (pow(spec->beta1, t) < 1 && pow(spec->beta2, t) < 1));
    return (struct dt_update){
        .type = spec->type,
        .grad_scale = (float)grad_scale,
        .clip_norm = (float)spec->clip_norm,
        .lr = (float)lr,
        .weight_decay = (float)spec->weight_decay,
        .momentum = (float)spec->momentum,
        .nesterov = spec->nesterov,
        .one_minus_beta1 = (float)(1.0 - spec->beta1),
        .one_minus_beta2 = (float)(1.0 - spec->beta2),
        .epsilon = (float)spec->epsilon,
        .bias_correction1 = (float)(1.0 - pow(spec->beta1, t)),
        .bias_correction2 = (float)(1.0 - pow(spec->beta2, t)),
    };
}

enum dt_status dt_optimizer_apply_range(struct dt_optimizer *optimizer,
                                        const struct dt_update *update, size_t begin, size_t end,
                                        float *params, const float *grads)
{
    DT_ASSERT(begin <= end && end <= optimizer->n_elems);
    DT_ASSERT(update->type == optimizer->spec.type && optimizer->n_steps > 0);
    DT_ASSERT(update->clip_norm == 0 || (begin == 0 && end == optimizer->n_elems));
    const struct dt_span span = {.kind = DT_SPAN_UPDATE};
    struct dt_backend *backend = optimizer->backend;
    float *states[2] = {NULL};
    if (optimizer->by_rates != NULL) {
        return optimizer->by_rates(*optimizer, *update, begin, end, params, grads);
    }
    for (int i = 0; i < optimizer->n_states; i++) {
        states[i] = optimizer->states[i] + begin;
    }
    DT_TRY(dt_span_begin(optimizer->trace, &span));
    DT_TRY(backend->ops->optimizer_step(backend, update, end - begin, params + begin, grads,
                                        states[0], states[1]));
    return dt_span_end(optimizer->trace, &span);
}
