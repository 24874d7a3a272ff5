/* A training step on the cpu backend gives the same bits with 1, 2 and 3 threads, and the second of
 * two equal steps those of the first. Several small models, batches that do not divide evenly, in
 * every way this machine computes. */
#include "tests/lib/modes.h"
#include "tests/lib/optimizer_step.h"

#include "base/rng.h"
#include "model/optimizer.h"
#include "model/stages.h"

#define N_SAMPLES 41
#define CAPACITY 37
#define N_STEPS 3

static const struct dt_model_spec specs[] = {
    {.input = {1, 12, 12},
     .n_layers = 8,
     .layers = {{.type = DT_LAYER_CONV2D,
                 .size = 20,
                 .kernel = 3,
                 .stride = 1,
                 .activation = DT_ACTIVATION_RELU},
                {.type = DT_LAYER_CONV2D,
                 .size = 40,
                 .kernel = 3,
                 .stride = 1,
                 .activation = DT_ACTIVATION_RELU},
                {.type = DT_LAYER_MAX_POOL2D, .size = 2, .stride = 2},
                {.type = DT_LAYER_DROPOUT, .rate = 0.25},
                {.type = DT_LAYER_FLATTEN},
                {.type = DT_LAYER_DENSE, .size = 50, .activation = DT_ACTIVATION_RELU},
                {.type = DT_LAYER_DROPOUT, .rate = 0.5},
                {.type = DT_LAYER_DENSE, .size = 10}}},
    {.input = {3, 11, 9},
     .n_layers = 6,
     .layers = {{.type = DT_LAYER_CONV2D,
                 .size = 7,
                 .kernel = 4,
                 .stride = 2,
                 .padding = DT_PADDING_SAME,
                 .activation = DT_ACTIVATION_TANH},
                {.type = DT_LAYER_AVG_POOL2D, .size = 2, .stride = 1},
                {.type = DT_LAYER_SIGMOID},
                {.type = DT_LAYER_CONV2D,
                 .size = 5,
                 .kernel = 3,
                 .stride = 1,
                 .padding = DT_PADDING_SAME},
                {.type = DT_LAYER_FLATTEN},
                {.type = DT_LAYER_DENSE, .size = 10}}},
    {.input = {300, 1, 1},
     .n_layers = 2,
     .layers = {{.type = DT_LAYER_DENSE, .size = 33, .activation = DT_ACTIVATION_SIGMOID},
                {.type = DT_LAYER_DENSE, .size = 10}}},
};

static const struct mode *mode;

/* Gradients and outputs after a few steps. */
struct result {
    size_t n_params, n_logits;
    float *params, *grads, *logits;
    struct dt_metrics metrics;
};

static struct dt_samples make_samples(struct dt_shape shape)
{
    static uint16_t labels[N_SAMPLES];
    const size_t n = N_SAMPLES * dt_shape_elems(shape);
    float *values = malloc(n * sizeof(float));
    CHECK(values != NULL);
    for (size_t i = 0; i < n; i++) {
        values[i] =
            dt_rng_uniform(dt_rng_words(3, DT_RNG_SYNTHETIC, 0, 0, 0, (uint32_t)i).v[0]) - 0.4f;
    }
    for (size_t i = 0; i < N_SAMPLES; i++) {
        labels[i] = (uint16_t)(i % 10);
    }
    return (struct dt_samples){
        .n = N_SAMPLES, .shape = shape, .values = values, .labels = labels, .n_classes = 10};
}

static float *copied(const float *from, size_t n)
{
    float *to = malloc(n * sizeof(float));
    CHECK(to != NULL);
    memcpy(to, from, n * sizeof(float));
    return to;
}

/* N_STEPS steps; each also accumulates a second, smaller batch. */
static void train(struct dt_network *net, struct dt_bound_samples *bound,
                  struct dt_optimizer *optimizer)
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
            CHECK_INT(dt_network_gather(net, bound, &batch), DT_OK);
            CHECK_INT(dt_network_forward(net, &pass), DT_OK);
            CHECK_INT(dt_network_loss(net, bound, &pass), DT_OK);
            CHECK_INT(dt_network_backward(net, &pass, NULL, NULL), DT_OK);
        }
        CHECK_INT(optimizer_step(optimizer, net->params, net->grads, 0.01, 1.0 / 42), DT_OK);
    }
}

static struct result run(const struct dt_model *model, int n_threads)
{
    const struct dt_backend_options options = use_mode(mode, n_threads);
    const struct dt_optimizer_spec adam = {
        .type = DT_OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-7, .clip_norm = 0.5};
    const struct dt_backend_ops *ops = &dt_cpu_backend;
    struct dt_backend *backend;
    struct dt_network *net;
    struct dt_bound_samples *bound;
    struct dt_optimizer optimizer;
    const struct dt_samples samples = make_samples(model->spec.input);
    CHECK_INT(ops->open(&options, &backend), DT_OK);
    CHECK_INT(dt_network_open_alone(model, backend, CAPACITY, &net), DT_OK);
    CHECK_INT(dt_optimizer_open(&adam, backend, model->arena_elems, NULL, &optimizer), DT_OK);
    CHECK_INT(ops->samples_open(backend, &samples, &bound), DT_OK);
    float *initial = calloc(model->arena_elems, sizeof(float));
    CHECK(initial != NULL);
    dt_model_init(model, 5, initial);
    CHECK_INT(ops->copy_in(backend, net->params, initial, model->arena_elems * sizeof(float)),
              DT_OK);
    free(initial);
    train(net, bound, &optimizer);

    struct result out = {.n_params = model->arena_elems, .n_logits = 5 * (size_t)model->n_outputs};
    out.params = copied(net->params, out.n_params);
    out.grads = copied(net->grads, out.n_params);
    out.logits = copied(dt_network_logits(net), out.n_logits);
    CHECK_INT(ops->metrics_take(backend, &out.metrics), DT_OK);
    ops->samples_close(backend, bound);
    dt_optimizer_close(&optimizer);
    dt_network_close(net);
    ops->close(backend);
    free((void *)samples.values);
    return out;
}

static void same_bits(const char *what, int spec, int n_threads, const float *a, const float *b,
                      size_t n)
{
    for (size_t i = 0; i < n; i++) {
        CHECK(isfinite(a[i]));
        if (memcmp(&a[i], &b[i], sizeof(float)) != 0) {
            CHECK_FAIL("%s, model %d: %s[%zu] is %.9g with %d threads and %.9g with 1", mode->text,
                       spec, what, i, (double)b[i], n_threads, (double)a[i]);
        }
    }
}

static void close_result(struct result *r)
{
    free(r->params);
    free(r->grads);
    free(r->logits);
}

static void check_model(int spec)
{
    static struct dt_model model;
    static const int threads[] = {1, 2, 3, 3};
    CHECK_INT(dt_model_lower(&specs[spec], &model), DT_OK);
    struct result one = run(&model, 1);
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        struct result several = run(&model, threads[i]);
        same_bits("params", spec, threads[i], one.params, several.params, one.n_params);
        same_bits("grads", spec, threads[i], one.grads, several.grads, one.n_params);
        same_bits("logits", spec, threads[i], one.logits, several.logits, one.n_logits);
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
    CHECK_INT(dt_cpu_backend.open(&options, &backend), DT_OK);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(dt_cpu_backend.alloc(backend, N * sizeof(float), &memory[i]), DT_OK);
    }
    float *mean = memory[2];
    for (size_t i = 0; i < N; i++) {
        mean[i] = least;
    }
    CHECK_INT(
        dt_cpu_backend.optimizer_step(backend, &update, N, memory[0], memory[1], mean, memory[3]),
        DT_OK);
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
