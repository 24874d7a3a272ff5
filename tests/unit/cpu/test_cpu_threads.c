/* A training step on the cpu backend gives the same bits with 1, 2 and 3 threads, and the second of
 * two equal steps those of the first. Several small models, batches that do not divide evenly, in
 * every way this machine computes. */
#include "tests/lib/guarded.h"
#include "tests/lib/layers.h"
#include "tests/lib/session.h"
#include "tests/unit/cpu/made_samples.h"
#include "tests/unit/cpu/modes.h"

#include "model/network.h"

#define N_SAMPLES 41
#define CAPACITY 37
#define N_STEPS 3

static const struct dt_model_spec specs[] = {
    {.input = {1, 12, 12},
     .n_layers = 8,
     .layers = {CONV(20, 3, 1, VALID, RELU), CONV(40, 3, 1, VALID, RELU), MAX_POOL(2, 2),
                DROPOUT(0.25), LAYER(FLATTEN), DENSE(50, RELU), DROPOUT(0.5), DENSE(10, NONE)}},
    {.input = {3, 11, 9},
     .n_layers = 6,
     .layers = {CONV(7, 4, 2, SAME, TANH), AVG_POOL(2, 1), LAYER(SIGMOID),
                CONV(5, 3, 1, SAME, NONE), LAYER(FLATTEN), DENSE(10, NONE)}},
    {.input = {300, 1, 1}, .n_layers = 2, .layers = {DENSE(33, SIGMOID), DENSE(10, NONE)}},
};

static const struct mode *mode;

/* Gradients and outputs after a few steps. */
struct result {
    struct buffer params, grads, logits;
    struct dt_metrics metrics;
};

/* N_STEPS steps; each also accumulates a second, smaller batch. */
static void train(struct session *session)
{
    uint32_t rows[CAPACITY];
    for (uint32_t step = 0; step < N_STEPS; step++) {
        for (uint32_t part = 0; part < 2; part++) {
            const struct dt_batch batch = {
                .n = part == 0 ? CAPACITY : 5, .rows = rows, .ids = rows, .epoch = step};
            const struct dt_pass pass = {
                .batch = &batch, .training = true, .accumulate = part == 1, .seed = 11};
            for (uint32_t i = 0; i < CAPACITY; i++) {
                rows[i] = (i * 7 + step + part) % N_SAMPLES;
            }
            CHECK_OK(session_pass(session, &pass));
        }
        CHECK_OK(session_step(session, 0.01, 1.0 / 42));
    }
}

static struct result run(const struct dt_model *model, int n_threads)
{
    const struct dt_backend_options options = use_mode(mode, n_threads);
    const struct dt_optimizer_spec adam = {
        .type = DT_OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-7, .clip_norm = 0.5};
    struct dt_backend *backend;
    struct session session;
    const struct dt_samples samples = made_samples(N_SAMPLES, model->spec.input, 10);
    CHECK_OK(dt_cpu_backend.open(&options, &backend));
    CHECK_OK(session_open(backend, model, &samples, CAPACITY, &adam, &session));
    struct dt_network *net = session.network;
    dt_model_init(model, 5, net->params);
    train(&session);

    struct result out = {.params = buffer_of(net->params, model->arena_elems),
                         .grads = buffer_of(net->grads, model->arena_elems),
                         .logits = buffer_of(dt_network_logits(net), 5 * (size_t)model->n_outputs)};
    CHECK_OK(backend->ops->metrics_take(backend, &out.metrics));
    session_close(&session);
    return out;
}

static void close_result(struct result *r)
{
    BUFFERS_CLOSE(&r->params, &r->grads, &r->logits);
}

static void check_model(int spec)
{
    static struct dt_model model;
    static const int threads[] = {1, 2, 3, 3};
    CHECK_OK(dt_model_lower(&specs[spec], &model));
    struct result one = run(&model, 1);
    for (size_t i = 0; i < one.params.n; i++) {
        CHECK(isfinite(one.params.data[i]) && isfinite(one.grads.data[i]));
    }
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        struct result several = run(&model, threads[i]);
        snprintf(case_text, sizeof case_text, "%s, model %d, %d threads", mode->text, spec,
                 threads[i]);
        check_same_bits("params", &one.params, &several.params);
        check_same_bits("grads", &one.grads, &several.grads);
        check_same_bits("logits", &one.logits, &several.logits);
        CHECK(one.metrics.loss_sum > 0);
        CHECK(memcmp(&one.metrics, &several.metrics, sizeof one.metrics) == 0);
        close_result(&several);
    }
    close_result(&one);
}

static float half(volatile float x)
{
    return x * 0.5f;
}

/* An earlier error: means that had shrunk to subnormal numbers doubled the time of Adam's update.
 * Whichever thread takes a part of the update, they become zero; the program's own arithmetic is as
 * before when the backend is closed. */
static void subnormals_are_zero(void)
{
#if defined(__x86_64__) || defined(__aarch64__)
    enum { N = 1 << 20 };
    const struct dt_backend_options options = {.n_threads = 3};
    const struct dt_update update = {.type = DT_OPTIMIZER_ADAM,
                                     .grad_scale = 1,
                                     .one_minus_beta1 = 0.5f,
                                     .one_minus_beta2 = 0.5f,
                                     .bias_correction1 = 1,
                                     .bias_correction2 = 1};
    const float least = 1.17549435e-38f; /* of the normal ones */
    struct dt_backend *backend;
    void *memory[4];
    CHECK_OK(dt_cpu_backend.open(&options, &backend));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(dt_cpu_backend.alloc(backend, N * sizeof(float), &memory[i]));
    }
    float *mean = memory[2];
    for (size_t i = 0; i < N; i++) {
        mean[i] = least;
    }
    CHECK_OK(
        dt_cpu_backend.optimizer_step(backend, &update, N, memory[0], memory[1], mean, memory[3]));
    for (size_t i = 0; i < N; i++) {
        CHECK(mean[i] == 0 ||
              mean[i] ==
                  least); /* half of it was taken away, or as half of it is nothing, nothing was */
    }
    for (int i = 0; i < 4; i++) {
        dt_cpu_backend.free(backend, memory[i]);
    }
    dt_cpu_backend.close(backend);
    CHECK(half(least) > 0);
#endif
}

int main(void)
{
    struct mode modes[MAX_MODES];
    const int n_modes = list_modes(modes);
    for (mode = modes; mode < modes + n_modes; mode++) {
        for (int spec = 0; spec < (int)(sizeof specs / sizeof specs[0]); spec++) {
            check_model(spec);
        }
        subnormals_are_zero();
    }
    return 0;
}
