/* The sum of two outputs on the reference backend. */
#include "model/layers/layers.h"

static size_t count(const struct dt_layer_call *call)
{
    return (size_t)call->pass->batch->n * call->n_elems;
}

static enum dt_status forward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    (void)backend;
    for (size_t i = 0; i < count(call); i++) {
        const float sum = call->x[0][i] + call->x[1][i];
        call->y[i] = call->relu && sum < 0 ? 0.0f : sum; /* a NaN stays one */
    }
    return DT_OK;
}

static enum dt_status backward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    (void)backend;
    for (int k = 0; k < 2; k++) {
        float *dx = call->dx[k];
        for (size_t i = 0; dx != NULL && i < count(call); i++) {
            const float dy = call->relu && !(call->y[i] > 0) ? 0.0f : call->dy[i];
            dx[i] = call->adds_dx[k] ? dx[i] + dy : dy;
        }
    }
    return DT_OK;
}

const struct dt_layer_ops dt_ref_add = {.forward = forward, .backward = backward};
