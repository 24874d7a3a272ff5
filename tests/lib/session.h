/* A network on a backend, on its own, with its samples and an optimizer: for tests of steps. */
#ifndef DT_TESTS_SESSION_H
#define DT_TESTS_SESSION_H

#include "tests/lib/check.h"
#include "tests/lib/optimizer_step.h"

#include "model/own_memory.h"

struct session {
    struct dt_backend *backend;
    struct dt_bound_samples *bound;
    struct dt_network *network;
    struct dt_optimizer optimizer;
};

/* optimizer: NULL: none. What is open after an error is closed by session_close. */
static inline enum dt_status session_open(struct dt_backend *backend, const struct dt_model *model,
                                          const struct dt_samples *samples, int capacity,
                                          const struct dt_optimizer_spec *optimizer,
                                          struct session *out)
{
    *out = (struct session){.backend = backend};
    DT_TRY(backend->ops->samples_open(backend, samples, &out->bound));
    DT_TRY(dt_network_open_alone(model, backend, capacity, &out->network));
    return optimizer == NULL
               ? DT_OK
               : dt_optimizer_open(optimizer, backend, model->arena_elems, NULL, &out->optimizer);
}

/* With the backend. */
static inline void session_close(struct session *session)
{
    struct dt_backend *backend = session->backend;
    if (backend == NULL) {
        return;
    }
    dt_optimizer_close(&session->optimizer);
    dt_network_close(session->network);
    if (session->bound != NULL) {
        backend->ops->samples_close(backend, session->bound);
    }
    backend->ops->close(backend);
}

static inline struct dt_backend *backend_open(const struct dt_backend_ops *ops, int n_threads)
{
    const struct dt_backend_options options = {.n_threads = n_threads};
    struct dt_backend *backend;
    CHECK_OK(ops->open(&options, &backend));
    return backend;
}

/* The gradients of a batch, and its loss in the metrics. */
static inline enum dt_status session_pass(const struct session *session, const struct dt_pass *pass)
{
    struct dt_network *network = session->network;
    DT_TRY(dt_network_gather(network, session->bound, pass->batch));
    DT_TRY(dt_network_forward(network, pass));
    DT_TRY(dt_network_loss(network, session->bound, pass));
    return dt_network_backward(network, pass, NULL, NULL);
}

static inline enum dt_status session_step(struct session *session, double lr, double grad_scale)
{
    return optimizer_step(&session->optimizer, session->network->params, session->network->grads,
                          lr, grad_scale);
}

/* Each tensor's gradients, relative to the largest of them or, if that is more, `least`. */
static inline void compare_tensors(const char *what, const struct dt_model *model,
                                   const float *actual, const float *expected, double limit,
                                   double least)
{
    for (int p = 0; p < model->n_params; p++) {
        const struct dt_param *param = &model->params[p];
        double largest = 0, error = 0;
        for (size_t i = param->offset; i < param->offset + param->n_elems; i++) {
            largest = fmax(largest, (double)fabsf(expected[i]));
            const double off = fabs((double)actual[i] - (double)expected[i]);
            error = isnan(off) ? (double)INFINITY : fmax(error, off);
        }
        CHECK_MESSAGE(error <= limit * fmax(largest, least),
                      "%s: the gradient of %s is off by %.2g of its largest, %g", what, param->name,
                      error / largest, largest);
    }
}

#endif
