/* For tests of the cuda backend on fake CUDA: a small network, images to train it with, and the
 * objects that training needs. */
#ifndef DT_TESTS_SESSION_H
#define DT_TESTS_SESSION_H

#include "tests/cuda/on_gpu.h"

#include "model/network.h"
#include "model/optimizer.h"
#include "tests/lib/layers.h"
#include "tests/lib/optimizer_step.h"

#define N_SAMPLES 40
#define CAPACITY 16

/* Smooth: without relu and max pool, where a rounding error may select another branch and so
 * another gradient. */
static inline struct dt_model small_cnn(bool smooth)
{
    const enum dt_activation activation = smooth ? DT_ACTIVATION_TANH : DT_ACTIVATION_RELU;
    const enum dt_layer_type pool = smooth ? DT_LAYER_AVG_POOL2D : DT_LAYER_MAX_POOL2D;
    const struct dt_model_spec spec = {
        .input = {1, 8, 8},
        .n_layers = 7,
        .layers = {LAYER(CONV2D, .size = 4, .kernel = 3, .stride = 1, .activation = activation),
                   LAYER(CONV2D, .size = 6, .kernel = 3, .stride = 1, .padding = DT_PADDING_SAME,
                         .activation = activation),
                   {.type = pool, .size = 2, .stride = 2},
                   DROPOUT(0.25),
                   LAYER(FLATTEN),
                   LAYER(DENSE, .size = 12, .activation = activation),
                   DENSE(3, NONE)},
        .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY};
    struct dt_model model;
    CHECK_OK(dt_model_lower(&spec, &model));
    return model;
}

/* Images whose brightest third is their class. */
static inline struct dt_samples small_images(void)
{
    static uint8_t pixels[N_SAMPLES * 64];
    static uint16_t labels[N_SAMPLES];
    draw_counter = 0; /* the same images each time */
    for (size_t i = 0; i < sizeof pixels; i++) {
        labels[i / 64] = (uint16_t)(i / 64 % 3);
        pixels[i] = (uint8_t)(draw(128) + (i % 64 / 22 == i / 64 % 3 ? 127 : 0));
    }
    return (struct dt_samples){.n = N_SAMPLES,
                               .shape = {1, 8, 8},
                               .pixels = pixels,
                               .scale = 1.0f / 255,
                               .labels = labels,
                               .n_classes = 3,
                               .n_total = N_SAMPLES,
                               .id_stride = 1};
}

struct session { /* objects of a training */
    struct dt_backend *backend;
    struct dt_bound_samples *bound;
    struct dt_network *network;
    struct dt_optimizer optimizer;
};

static inline enum dt_status session_open(const struct dt_backend_ops *ops,
                                          enum dt_precision precision, const struct dt_model *model,
                                          const struct dt_samples *samples,
                                          const struct dt_optimizer_spec *spec, struct session *out)
{
    const struct dt_backend_options options = {
        .n_threads = 1, .precision = precision, .deterministic = true};
    *out = (struct session){0};
    DT_TRY(ops->open(&options, &out->backend));
    DT_TRY(ops->samples_open(out->backend, samples, &out->bound));
    DT_TRY(dt_network_open_alone(model, out->backend, CAPACITY, &out->network));
    return dt_optimizer_open(spec, out->backend, model->arena_elems, NULL, &out->optimizer);
}

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

/* A step after its batch is gathered. */
static inline void compute_step(struct session *session, const struct dt_batch *batch)
{
    const struct dt_pass pass = {.batch = batch, .training = true, .seed = 77};
    struct dt_network *network = session->network;
    CHECK_OK(dt_network_forward(network, &pass));
    CHECK_OK(dt_network_loss(network, session->bound, &pass));
    CHECK_OK(dt_network_backward(network, &pass, NULL, NULL));
    CHECK_OK(optimizer_step(&session->optimizer, network->params, network->grads, 0.1,
                            batch->n > 0 ? 1.0 / batch->n : 1.0));
}

#endif
