/* The cuda backend outside blocks against the reference: samples, losses, and ten steps of a whole
 * network. */
#include "tests/cuda/session.h"

#include "tests/lib/layers.h"

/* ---- samples, losses */

struct head { /* results of gather and loss */
    struct buffer x, dlogits;
    struct dt_metrics metrics;
};

#define N_BATCH 4
#define N_OUTPUTS 7

static struct head run_head(struct dt_backend *backend, bool bf16, const struct dt_samples *samples,
                            const struct dt_model_spec *spec, const struct buffer *logits)
{
    const struct dt_shape flat = {(int)dt_shape_elems(samples->shape), 1,
                                  1}; /* the reference keeps canonical order */
    const struct dt_shape shape = backend->host_memory ? flat : samples->shape;
    static const uint32_t rows[] = {5, 0, 3, 3}, ids[] = {0, 1, 2, 3};
    const struct dt_batch batch = {.n = N_BATCH, .rows = rows, .ids = ids},
                          empty = {.n = 0, .rows = rows, .ids = ids};
    const struct dt_backend_ops *ops = backend->ops;
    const struct dt_shape out = {N_OUTPUTS, 1, 1};
    const struct buffer nothing = {0};
    struct head head;
    struct dt_bound_samples *bound;
    float *x = to_gpu(backend, &nothing, shape, N_BATCH, bf16),
          *z = to_gpu(backend, logits, out, N_BATCH, false);
    float *dz = to_gpu(backend, &nothing, out, N_BATCH, false);
    CHECK_OK(ops->samples_open(backend, samples, &bound));
    CHECK_OK(ops->gather(backend, bound, &batch, x));
    CHECK_OK(ops->loss(backend, spec, bound, &batch, N_OUTPUTS, z, dz));
    CHECK_OK(ops->loss(backend, spec, bound, &batch, N_OUTPUTS, z, NULL));
    CHECK_OK(ops->gather(backend, bound, &empty, x));
    CHECK_OK(ops->loss(backend, spec, bound, &empty, N_OUTPUTS, z, dz));
    CHECK_OK(ops->metrics_take(backend, &head.metrics));
    head.x = from_gpu(backend, x, shape, N_BATCH, bf16);
    head.dlogits = from_gpu(backend, dz, out, N_BATCH, false);
    struct dt_metrics none;
    CHECK_OK(ops->metrics_take(backend, &none));
    CHECK(none.loss_sum == 0 && none.n_correct == 0 && none.n_samples == 0);
    ops->samples_close(backend, bound);
    ops->free(backend, x);
    ops->free(backend, z);
    ops->free(backend, dz);
    return head;
}

static void check_head(const struct mode *mode, const struct dt_samples *samples,
                       struct dt_model_spec spec)
{
    struct dt_backend *ref = open_ref(), *gpu = open_gpu(mode);
    struct buffer logits = buffer_random(N_BATCH * N_OUTPUTS, 40, 0);
    logits.data[3] = logits.data[5] = 7; /* a tie for the largest */
    snprintf(case_text, sizeof case_text, "loss %d, smoothing %g", (int)spec.loss,
             spec.label_smoothing);
    struct head actual =
        run_head(gpu, mode->precision == DT_PRECISION_BF16, samples, &spec, &logits);
    struct head expected = run_head(ref, false, samples, &spec, &logits);
    compare_within(mode, "gathered x", &actual.x, &expected.x);
    compare_within(&modes[0], "dlogits", &actual.dlogits, &expected.dlogits);
    CHECK_NEAR(actual.metrics.loss_sum, expected.metrics.loss_sum,
               1e-6 * fabs(expected.metrics.loss_sum));
    CHECK_NEAR(actual.metrics.n_correct, expected.metrics.n_correct, 0);
    CHECK_NEAR(actual.metrics.n_samples, 2 * N_BATCH, 0);
    BUFFERS_CLOSE(&actual.x, &actual.dlogits, &expected.x, &expected.dlogits, &logits);
    gpu->ops->close(gpu);
    ref->ops->close(ref);
}

static void check_heads(const struct mode *mode)
{
    enum { N = 6 };
    static uint8_t pixels[N * 3 * 4 * 5];
    static uint16_t labels[N];
    struct buffer values = buffer_random(N * 60, 20, 0),
                  targets = buffer_random(N * N_OUTPUTS, 20, 0);
    for (size_t i = 0; i < sizeof pixels; i++) {
        pixels[i] = (uint8_t)draw(256);
    }
    for (size_t i = 0; i < N; i++) {
        labels[i] = (uint16_t)draw(N_OUTPUTS);
    }
    const struct dt_samples images = {.n = N,
                                      .shape = {3, 4, 5},
                                      .pixels = pixels,
                                      .scale = 1.0f / 255,
                                      .labels = labels,
                                      .n_classes = N_OUTPUTS};
    const struct dt_samples numbers = {.n = N,
                                       .shape = {3, 4, 5},
                                       .values = values.data,
                                       .scale = 1,
                                       .targets = targets.data,
                                       .n_targets = N_OUTPUTS};
    check_head(mode, &images, (struct dt_model_spec){.loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY});
    check_head(mode, &images, (struct dt_model_spec){.label_smoothing = 0.25});
    check_head(mode, &numbers, (struct dt_model_spec){.loss = DT_LOSS_MEAN_SQUARED_ERROR});
    BUFFERS_CLOSE(&values, &targets);
}

/* More batches than slots, before any copy has reached the device. */
static void check_batches_in_flight(void)
{
    enum { N = 40 };
    struct dt_backend *gpu = open_gpu(&modes[0]);
    struct buffer values = buffer_random(N, 100, 0), x = buffer_open(N);
    static const uint16_t labels[N];
    const struct dt_samples samples = {
        .n = N, .shape = {1, 1, 1}, .values = values.data, .labels = labels, .n_classes = 1};
    struct dt_bound_samples *bound;
    float *device = to_gpu(gpu, &x, (struct dt_shape){N, 1, 1}, 1, false);
    CHECK_OK(gpu->ops->samples_open(gpu, &samples, &bound));
    for (uint32_t row = 0; row < N; row++) {
        const struct dt_batch batch = {.n = 1, .rows = &row, .ids = &row};
        CHECK_OK(gpu->ops->gather(gpu, bound, &batch, device + row));
    }
    CHECK_OK(gpu->ops->copy_out(gpu, x.data, device, N * sizeof(float)));
    snprintf(case_text, sizeof case_text, "batches in flight");
    compare_within(&modes[0], "x", &x, &values);
    gpu->ops->samples_close(gpu, bound);
    gpu->ops->free(gpu, device);
    gpu->ops->close(gpu);
    BUFFERS_CLOSE(&x, &values);
}

/* ---- a whole network */

#define N_STEPS 10

/* Batches of 16, 16, 5 and, once, none: the last steps of an epoch have partial and empty ones. */
static void train_step(struct session *session, int step)
{
    static const int sizes[] = {CAPACITY, CAPACITY, 5, CAPACITY, 0};
    uint32_t rows[CAPACITY], ids[CAPACITY];
    for (int i = 0; i < CAPACITY; i++) {
        rows[i] = (uint32_t)(step * CAPACITY + i) % N_SAMPLES;
        ids[i] = rows[i] + 1000;
    }
    const struct dt_batch batch = {
        .n = sizes[step % 5], .rows = rows, .ids = ids, .epoch = (uint32_t)step / 5};
    const struct dt_pass pass = {.batch = &batch, .training = true, .seed = 77};
    CHECK_OK(session_pass(session, &pass));
    CHECK_OK(session_step(session, 0.1, batch.n > 0 ? 1.0 / batch.n : 1.0));
}

struct training {
    struct buffer losses, params;
};

/* Changes weights as a restore does: copies made from the old weights are invalid. */
static void shrink_weights(struct session *session, struct buffer *params)
{
    const struct dt_backend_ops *ops = session->backend->ops;
    const size_t n_bytes = params->n * sizeof(float);
    CHECK_OK(ops->copy_out(session->backend, params->data, session->network->params, n_bytes));
    for (size_t i = 0; i < params->n; i++) {
        params->data[i] *= 0.75f;
    }
    CHECK_OK(ops->copy_in(session->backend, session->network->params, params->data, n_bytes));
}

static struct training train(const struct dt_backend_ops *ops, enum dt_precision precision,
                             bool smooth, double clip_norm)
{
    const struct dt_model model = small_cnn(smooth);
    const struct dt_samples samples = small_images();
    const struct dt_optimizer_spec spec = {.momentum = 0.9, .clip_norm = clip_norm};
    const size_t n_bytes = model.arena_elems * sizeof(float);
    struct training out = {.losses = buffer_open(N_STEPS),
                           .params = buffer_open(model.arena_elems)};
    struct session session;
    CHECK_OK(small_session_open(ops, precision, &model, &samples, &spec, &session));
    dt_model_init(&model, 5, out.params.data);
    CHECK_OK(ops->copy_in(session.backend, session.network->params, out.params.data, n_bytes));
    for (int step = 0; step < N_STEPS; step++) {
        if (step == 3) {
            shrink_weights(&session, &out.params);
        }
        const struct fake_counts before = fake_counts();
        struct dt_metrics metrics;
        train_step(&session, step);
        CHECK(fake_counts().n_host_waits - before.n_host_waits <=
              1); /* for a slot of the batches */
        CHECK_INT(fake_counts().n_mallocs, before.n_mallocs);
        CHECK_OK(ops->metrics_take(session.backend, &metrics));
        out.losses.data[step] =
            (float)(metrics.loss_sum / (metrics.n_samples > 0 ? metrics.n_samples : 1));
    }
    CHECK_OK(ops->copy_out(session.backend, out.params.data, session.network->params, n_bytes));
    session_close(&session);
    return out;
}

static void training_close(struct training *t)
{
    BUFFERS_CLOSE(&t->losses, &t->params);
}

static void check_training(const struct mode *mode, double clip_norm)
{
    const bool smooth = mode->precision != DT_PRECISION_F32;
    struct training expected = train(&dt_ref_backend, DT_PRECISION_F32, smooth, clip_norm);
    struct training first = train(&dt_cuda_backend, mode->precision, smooth, clip_norm);
    struct training second = train(&dt_cuda_backend, mode->precision, smooth, clip_norm);
    snprintf(case_text, sizeof case_text, "ten steps, clip %g", clip_norm);
    compare_within(mode, "losses", &first.losses, &expected.losses);
    compare_within(mode, "params", &first.params, &expected.params);
    CHECK(first.losses.data[8] < 0.9f * first.losses.data[0]);
    check_same_bits("losses", &first.losses, &second.losses);
    check_same_bits("params", &first.params, &second.params);
    training_close(&expected);
    training_close(&first);
    training_close(&second);
}

/* The first convolution reads the samples in place; a later reader of x still gets it. */
static void check_x_after_first_conv(void)
{
    enum { N = 3, H = 6 };
    static const uint32_t rows[N] = {2, 0, 1};
    static const uint16_t labels[N];
    const struct dt_layer_spec conv = CONV(2, 3, 1, VALID, RELU);
    const struct dt_model_spec spec = {.input = {1, H, H},
                                       .layers = {conv, LAYER(FLATTEN)},
                                       .n_layers = 2,
                                       .loss = DT_LOSS_MEAN_SQUARED_ERROR};
    struct buffer values = buffer_random(N * H * H, 8, 0), x = buffer_open(N * H * H);
    const struct dt_samples samples = {.n = N,
                                       .shape = spec.input,
                                       .values = values.data,
                                       .labels = labels,
                                       .n_classes = 1,
                                       .n_total = N,
                                       .id_stride = 1};
    const struct dt_batch batch = {.n = N, .rows = rows, .ids = rows};
    const struct dt_pass pass = {.batch = &batch, .training = true};
    static struct dt_model model;
    struct dt_backend *gpu = open_gpu(&modes[0]);
    struct dt_bound_samples *bound;
    struct dt_block_state *state;
    void *on_gpu[3]; /* x, y, parameters */
    CHECK_OK(dt_model_lower(&spec, &model));
    CHECK_OK(gpu->ops->samples_open(gpu, &samples, &bound));
    CHECK_OK(gpu->ops->block_open(gpu, &model, 0, N, &state));
    const size_t n_elems[3] = {N * H * H, N * dt_shape_elems(model.blocks[0].out),
                               model.arena_elems};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(gpu->ops->alloc(gpu, n_elems[i] * sizeof(float), &on_gpu[i]));
    }
    CHECK_OK(gpu->ops->gather(gpu, bound, &batch, on_gpu[0]));
    CHECK_OK(gpu->ops->block_forward(state, on_gpu[2], on_gpu[0], on_gpu[1], &pass));
    CHECK_OK(gpu->ops->copy_out(gpu, x.data, on_gpu[0], N * H * H * sizeof(float)));
    for (size_t i = 0; i < x.n; i++) {
        CHECK_NEAR(x.data[i], values.data[rows[i / (H * H)] * H * H + i % (H * H)], 0);
    }
    for (int i = 0; i < 3; i++) {
        gpu->ops->free(gpu, on_gpu[i]);
    }
    gpu->ops->block_close(state);
    gpu->ops->samples_close(gpu, bound);
    gpu->ops->close(gpu);
    BUFFERS_CLOSE(&values, &x);
}

int main(void)
{
    check_x_after_first_conv();
    for (size_t m = 0; m < N_MODES; m++) {
        check_heads(&modes[m]);
        check_training(&modes[m], 0);
        check_training(&modes[m], 0.5);
    }
    check_batches_in_flight();
    return 0;
}
