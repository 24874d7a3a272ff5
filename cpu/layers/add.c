/* The sum of two outputs on the cpu backend. */
#include <string.h>

#include "cpu/layers/parts.h"

/* Elements of all samples. */
struct part {
    size_t at, n;
};

static size_t count(const struct dt_layer_call *call)
{
    return (size_t)call->pass->batch->n * call->n_elems;
}

static struct part part_of(const struct dt_layer_call *call, int part)
{
    const size_t at = (size_t)part * DT_PART;
    return (struct part){at, dt_min_size(DT_PART, count(call) - at)};
}

/* y may be a. */
static void add(size_t n_elems, const float *a, const float *b, bool relu, float *y)
{
    for (size_t i = 0; i < n_elems; i++) {
        const float sum = a[i] + b[i];
        y[i] = relu && sum < 0 ? 0.0f : sum; /* written so that NaN stays NaN */
    }
}

static void forward_part(void *context, int part, int thread)
{
    const struct dt_layer_call *call = context;
    const struct part p = part_of(call, part);
    (void)thread;
    add(p.n, call->x[0] + p.at, call->x[1] + p.at, call->relu, call->y + p.at);
}

static void backward_part(void *context, int part, int thread)
{
    const struct dt_layer_call *call = context;
    const struct part p = part_of(call, part);
    float *dy = call->dy + p.at;
    (void)thread;
    if (call->relu) {
        DT_KERNEL(activate_backward)(DT_ACTIVATION_RELU, p.n, call->y + p.at, 1, dy);
    }
    for (int k = 0; k < 2; k++) {
        if (call->dx[k] != NULL && call->adds_dx[k]) {
            add(p.n, call->dx[k] + p.at, dy, false, call->dx[k] + p.at);
        } else if (call->dx[k] != NULL) {
            memcpy(call->dx[k] + p.at, dy, p.n * sizeof(float));
        }
    }
}

static enum dt_status forward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    dt_parts_run(backend, call->pass, dt_parts_of(count(call), DT_PART), forward_part, call);
    return DT_OK;
}

static enum dt_status backward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    dt_parts_run(backend, call->pass, dt_parts_of(count(call), DT_PART), backward_part, call);
    return DT_OK;
}

const struct dt_layer_ops DT_KERNEL(add) = {.forward = forward, .backward = backward};
