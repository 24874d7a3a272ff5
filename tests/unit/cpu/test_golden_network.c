/* Small networks, together with every common part, on every CPU backend, against PyTorch: logits,
 * loss, every gradient, and the losses of ten steps of training. The largest difference allowed is
 * some rounding errors of float32; PyTorch computed in double. */
#include "model/network.h"
#include "tests/lib/fixture.h"
#include "tests/lib/layers.h"
#include "tests/lib/session.h"

#define N_SAMPLES 6
#define N_CLASSES 5
#define N_STEPS 10
#define MAX_PIXELS (2 * 8 * 8)

static uint8_t pixels[N_SAMPLES * MAX_PIXELS];
static uint16_t labels[N_SAMPLES];
static const uint32_t rows[N_SAMPLES] = {0, 1, 2, 3, 4, 5};

/* A fixture, and the network that it is of. */
static const struct golden {
    const char *file;
    struct dt_model_spec spec;
} goldens[] = {
    {"network.txt",
     {.input = {2, 8, 8},
      .n_layers = 5,
      .layers = {CONV(3, 3, 1, VALID, RELU), CONV(4, 3, 1, SAME, RELU), MAX_POOL(2, 2),
                 LAYER(FLATTEN), DENSE(N_CLASSES, NONE)}}},
    {"smoothing.txt",
     {.input = {2, 8, 8},
      .n_layers = 5,
      .layers = {CONV(3, 3, 1, VALID, RELU), CONV(4, 3, 1, SAME, RELU), MAX_POOL(2, 2),
                 LAYER(FLATTEN), DENSE(N_CLASSES, NONE)},
      .label_smoothing = 0.1}},
    {"activations.txt",
     {.input = {2, 8, 8},
      .n_layers = 6,
      .layers = {CONV(3, 3, 1, VALID, LEAKY_RELU), CONV(4, 3, 1, SAME, GELU), MAX_POOL(2, 2),
                 LAYER(FLATTEN), DENSE(6, GELU), DENSE(N_CLASSES, NONE)}}},
    {"global-pool.txt",
     {.input = {2, 8, 6},
      .n_layers = 5,
      .layers = {CONV(3, 3, 1, VALID, LEAKY_RELU), CONV(4, 3, 1, SAME, GELU),
                 LAYER(GLOBAL_AVG_POOL), LAYER(FLATTEN), DENSE(N_CLASSES, NONE)}}},
};

static struct dt_samples golden_samples(struct dt_shape shape)
{
    CHECK(dt_shape_elems(shape) <= MAX_PIXELS);
    for (uint32_t i = 0; i < sizeof pixels; i++) {
        pixels[i] = (uint8_t)((fixture_number(200, i) * 16 + 15) * 8);
    }
    for (int i = 0; i < N_SAMPLES; i++) {
        labels[i] = (uint16_t)((3 * i + 1) % N_CLASSES);
    }
    return (struct dt_samples){
        .n = N_SAMPLES,
        .shape = shape,
        .pixels = pixels,
        .scale = 1.0f / 255.0f,
        .labels = labels,
        .n_classes = N_CLASSES,
        .n_total = N_SAMPLES,
        .id_stride = 1,
    };
}

static void set_weights(const struct dt_model *model, struct dt_network *network)
{
    float *arena = calloc(model->arena_elems, sizeof *arena);
    CHECK(arena != NULL);
    for (int p = 0; p < model->n_params; p++) {
        for (size_t i = 0; i < model->params[p].n_elems; i++) {
            const float scale = model->params[p].is_bias ? 0.25f : 0.5f;
            arena[model->params[p].offset + dt_param_at(&model->params[p], i)] =
                fixture_number((uint32_t)(100 + p), (uint32_t)i) * scale;
        }
    }
    struct dt_backend *backend = network->backend;
    CHECK_OK(
        backend->ops->copy_in(backend, network->params, arena, model->arena_elems * sizeof *arena));
    free(arena);
}

static double train_pass(const struct session *session, const struct dt_pass *pass)
{
    struct dt_metrics metrics;
    CHECK_OK(session_pass(session, pass));
    CHECK_OK(session->backend->ops->metrics_take(session->backend, &metrics));
    CHECK_INT(metrics.n_samples, N_SAMPLES);
    return metrics.loss_sum / metrics.n_samples;
}

/* Compares n floats of device memory, times `scale`, with the fixture's line of that name. `param`:
 * whose order they have, or NULL.
 */
static void check_line(struct dt_backend *backend, FILE *file, const char *name,
                       const float *device, size_t n, float scale, const struct dt_param *param)
{
    char found[64], what[128];
    float *actual = malloc(n * sizeof *actual), *expected = malloc(n * sizeof *expected),
          *host = malloc(n * sizeof *host);
    CHECK(actual != NULL && expected != NULL && host != NULL);
    CHECK(fixture_next(file, name, found, expected, (int)n));
    CHECK_OK(backend->ops->copy_out(backend, host, device, n * sizeof *host));
    for (size_t i = 0; i < n; i++) {
        actual[i] = scale * host[param != NULL ? dt_param_at(param, i) : i];
    }
    snprintf(what, sizeof what, "%s: %s", backend->ops->name, name);
    fixture_check(what, actual, expected, (int)n, 2e-6);
    free(host);
    free(actual);
    free(expected);
}

static void check_training(struct session *session, const struct dt_pass *pass, FILE *file)
{
    float losses[N_STEPS], expected[N_STEPS];
    char found[64];
    for (int i = 0; i < N_STEPS; i++) {
        losses[i] = (float)train_pass(session, pass);
        CHECK_OK(session_step(session, 0.1, 1.0 / N_SAMPLES));
    }
    CHECK(fixture_next(file, "losses", found, expected, N_STEPS));
    fixture_check("loss of step", losses, expected, N_STEPS, 1e-5);
}

static void run_backend(const struct dt_backend_ops *ops, const struct golden *golden)
{
    const struct dt_optimizer_spec sgd = {.type = DT_OPTIMIZER_SGD};
    struct dt_model model;
    CHECK_OK(dt_model_lower(&golden->spec, &model));
    const struct dt_samples samples = golden_samples(golden->spec.input);
    const struct dt_batch batch = {.n = N_SAMPLES, .rows = rows, .ids = rows};
    const struct dt_pass pass = {.batch = &batch, .training = true};
    struct session session;
    CHECK_OK(session_open(backend_open(ops, 2), &model, &samples, N_SAMPLES, &sgd, &session));
    struct dt_network *network = session.network;
    set_weights(&model, network);

    FILE *file = fixture_open(golden->file);
    const double loss = train_pass(&session, &pass);
    char found[64];
    float expected_loss = 0;
    check_line(session.backend, file, "logits", dt_network_logits(network), N_SAMPLES * N_CLASSES,
               1.0f, NULL);
    CHECK(fixture_next(file, "loss", found, &expected_loss, 1));
    CHECK_NEAR(loss, expected_loss, 2e-6);
    for (int p = 0; p < model.n_params;
         p++) { /* gradients are sums over the samples, PyTorch's are means */
        const struct dt_param *param = &model.params[p];
        check_line(session.backend, file, param->name, network->grads + param->offset,
                   param->n_elems, 1.0f / N_SAMPLES, param);
    }
    check_training(&session, &pass, file);
    fclose(file);
    session_close(&session);
}

int main(void)
{
    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++) {
        run_backend(&dt_ref_backend, &goldens[i]);
        run_backend(&dt_cpu_backend, &goldens[i]);
    }
    return 0;
}
