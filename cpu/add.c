/* The sum of two outputs on the cpu backend. */
#include <string.h>

#include "cpu/block.h"
#include "model/layers/layers.h"

#define PART ((size_t)1 << 15)

struct add {
    const struct dt_cpu *cpu;
    const struct dt_layer_call *call;
    size_t n_elems;
};

static void run(struct dt_backend *backend, const struct dt_layer_call *call, dt_threads_fn fn)
{
    struct add add = {(const struct dt_cpu *)backend, call,
                      (size_t)call->pass->batch->n * call->n_elems};
    dt_threads_run(add.cpu->threads, (int)((add.n_elems + PART - 1) / PART), fn, &add);
    if (call->pass->poll != NULL) {
        call->pass->poll(call->pass->context);
    }
}

static void forward_part(void *context, int part, int thread)
{
    const struct add *add = context;
    const struct dt_layer_call *call = add->call;
    const size_t at = (size_t)part * PART, n = dt_min_size(PART, add->n_elems - at);
    (void)thread;
    add->cpu->kernels->add(n, call->x[0] + at, call->x[1] + at, call->relu, call->y + at);
}

static void backward_part(void *context, int part, int thread)
{
    const struct add *add = context;
    const struct dt_layer_call *call = add->call;
    const size_t at = (size_t)part * PART, n = dt_min_size(PART, add->n_elems - at);
    (void)thread;
    if (call->relu) {
        add->cpu->kernels->activate_backward(DT_ACTIVATION_RELU, n, call->y + at, 1, call->dy + at);
    }
    for (int k = 0; k < 2; k++) {
        if (call->dx[k] != NULL && call->adds_dx[k]) {
            add->cpu->kernels->add(n, call->dx[k] + at, call->dy + at, false, call->dx[k] + at);
        } else if (call->dx[k] != NULL) {
            memcpy(call->dx[k] + at, call->dy + at, n * sizeof(float));
        }
    }
}

static enum dt_status forward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    run(backend, call, forward_part);
    return DT_OK;
}

static enum dt_status backward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    run(backend, call, backward_part);
    return DT_OK;
}

const struct dt_layer_ops dt_cpu_add = {
    .type = DT_LAYER_ADD, .forward = forward, .backward = backward};
