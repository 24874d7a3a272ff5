/* For tests of the cuda backend on fake CUDA: a small network, images to train it with, and its
 * session. */
#ifndef DT_TESTS_CUDA_SESSION_H
#define DT_TESTS_CUDA_SESSION_H

#include "tests/cuda/on_gpu.h"

#include "tests/lib/layers.h"

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

/* Images whose brightest third is their class, of which the target is 1. */
static inline struct dt_samples small_images(void)
{
    static uint8_t pixels[N_SAMPLES * 64];
    static uint16_t labels[N_SAMPLES];
    static float targets[N_SAMPLES][3];
    draw_counter = 0; /* the same images each time */
    for (size_t i = 0; i < sizeof pixels; i++) {
        labels[i / 64] = (uint16_t)(i / 64 % 3);
        pixels[i] = (uint8_t)(draw(128) + (i % 64 / 22 == i / 64 % 3 ? 127 : 0));
        targets[i / 64][i / 64 % 3] = 1;
    }
    return (struct dt_samples){.n = N_SAMPLES,
                               .shape = {1, 8, 8},
                               .pixels = pixels,
                               .scale = 1.0f / 255,
                               .labels = labels,
                               .n_classes = 3,
                               .targets = targets[0], /* for who takes the labels away */
                               .n_targets = 3,
                               .n_total = N_SAMPLES,
                               .id_stride = 1};
}

static inline enum dt_status
small_session_open(const struct dt_backend_ops *ops, enum dt_precision precision,
                   const struct dt_model *model, const struct dt_samples *samples,
                   const struct dt_optimizer_spec *spec, struct session *out)
{
    const struct dt_backend_options options = {
        .n_threads = 1, .precision = precision, .deterministic = true};
    struct dt_backend *backend;
    *out = (struct session){0};
    DT_TRY(ops->open(&options, &backend));
    return session_open(backend, model, samples, CAPACITY, spec, out);
}

#endif
