/* Gradients of drawings on a blank ground while biases are 0 or small, as they are when a training
 * begins: most of a convolution's outputs see the ground alone and are as small as biases, and
 * rounding must not decide which of them ReLU and pools let through. Every instruction set against
 * the reference, which sums in double. */
#include "tests/lib/layers.h"
#include "tests/lib/session.h"

#include "base/rng.h"
#include "cpu/isa.h"

enum { MAX_SAMPLES = 8, MAX_SIDE = 28, N_STEPS = 12 };

/* 3 x 3 convolutions with ReLU, and perhaps a pool behind the second. */
struct net {
    const char *name;
    int side, n_samples;
    int filters[4]; /* 0 ends the list */
    enum dt_padding padding;
    bool pool;
};
static const struct net tutorial = {"the tutorial's", 28, 8, {32, 64}, DT_PADDING_VALID, true};
static const struct net small[] = {{"two convolutions", 20, 3, {16, 32}, DT_PADDING_VALID, false},
                                   {"two padded", 20, 3, {16, 32}, DT_PADDING_SAME, true},
                                   {"three", 20, 3, {16, 32, 32}, DT_PADDING_VALID, true},
                                   {"three padded", 20, 3, {16, 16, 32}, DT_PADDING_SAME, true}};
enum { N_SMALL = sizeof small / sizeof *small };
static struct dt_model model;

static struct dt_model_spec spec_of(const struct net *net)
{
    struct dt_model_spec spec = {.input = {1, net->side, net->side}};
    for (int i = 0; i < 4 && net->filters[i] > 0; i++) {
        spec.layers[spec.n_layers++] =
            (struct dt_layer_spec)LAYER(CONV2D, .size = net->filters[i], .kernel = 3, .stride = 1,
                                        .padding = net->padding, .activation = DT_ACTIVATION_RELU);
        if (net->pool && i == 1) {
            spec.layers[spec.n_layers++] = (struct dt_layer_spec)MAX_POOL(2, 2);
        }
    }
    spec.layers[spec.n_layers++] = (struct dt_layer_spec)LAYER(FLATTEN);
    spec.layers[spec.n_layers++] = (struct dt_layer_spec)DENSE(128, RELU);
    spec.layers[spec.n_layers++] = (struct dt_layer_spec)DENSE(10, NONE);
    return spec;
}

static uint32_t word(uint32_t i)
{
    return dt_rng_words(7, DT_RNG_SYNTHETIC, 0, 0, 0, i).v[0];
}

/* Strokes three pixels wide, in shades. */
static struct dt_samples drawings(int side, int n_samples)
{
    static float pixels[MAX_SAMPLES * MAX_SIDE * MAX_SIDE];
    static uint16_t labels[MAX_SAMPLES];
    memset(pixels, 0, sizeof pixels);
    for (uint32_t n = 0; n < (uint32_t)n_samples; n++) {
        labels[n] = (uint16_t)n;
        for (uint32_t stroke = 0; stroke < 3; stroke++) {
            const uint32_t room = (uint32_t)side - 10, seed = word(n * 3 + stroke),
                           across = seed % 2, at = 4 + seed / 2 % room, from = 4 + seed / 64 % 8;
            for (uint32_t i = 0; i < 3 * 12 && from + i % 12 < (uint32_t)side; i++) {
                const uint32_t a = at + i / 12, b = from + i % 12;
                pixels[(n * (uint32_t)side + (across ? a : b)) * (uint32_t)side +
                       (across ? b : a)] = dt_rng_uniform(word(1000 + n * 200 + i));
            }
        }
    }
    return (struct dt_samples){.n = (uint32_t)n_samples,
                               .shape = {1, side, side},
                               .values = pixels,
                               .labels = labels,
                               .n_classes = 10};
}

/* Biases are drawn from -bias to bias. */
static void set_params(double bias, float *params)
{
    dt_model_init(&model, 5, params);
    for (uint32_t p = 0; p < (uint32_t)model.n_params; p++) {
        for (uint32_t i = 0; i < model.params[p].n_elems && model.params[p].is_bias; i++) {
            const double share = 2 * (double)dt_rng_uniform(word(20000 + 1000 * p + i)) - 1;
            params[model.params[p].offset + i] = (float)(bias * share);
        }
    }
}

/* The gradients of each of n_steps steps of plain SGD. */
static void train(const struct dt_backend_ops *ops, const struct dt_samples *samples, double bias,
                  double lr, int n_steps, float *grads)
{
    uint32_t rows[MAX_SAMPLES];
    const struct dt_batch batch = {.n = (int)samples->n, .rows = rows, .ids = rows};
    const struct dt_pass pass = {.batch = &batch, .training = true};
    struct session session;
    for (uint32_t i = 0; i < MAX_SAMPLES; i++) {
        rows[i] = i;
    }
    CHECK_OK(session_open(backend_open(ops, 1), &model, samples, batch.n, NULL, &session));
    set_params(bias, session.network->params);
    for (int step = 0; step < n_steps; step++, grads += model.arena_elems) {
        CHECK_OK(session_pass(&session, &pass));
        memcpy(grads, session.network->grads, model.arena_elems * sizeof(float));
        for (size_t i = 0; i < model.arena_elems; i++) {
            session.network->params[i] -= (float)(lr / (double)samples->n) * grads[i];
        }
    }
    session_close(&session);
}

/* An error in a step moves weights, and so the steps after it: later steps are allowed
 * more. */
static void check(const struct net *net, double bias, double lr, int n_steps)
{
    const char *isas[DT_CPU_MAX_ISAS];
    const int n_isas = dt_cpu_isa_list(isas);
    const struct dt_samples samples = drawings(net->side, net->n_samples);
    const struct dt_model_spec spec = spec_of(net);
    CHECK_OK(dt_model_lower(&spec, &model));
    const size_t n_elems = model.arena_elems, n = (size_t)n_steps * n_elems;
    float *expected = calloc(n, sizeof *expected), *actual = calloc(n, sizeof *actual);
    CHECK(expected != NULL && actual != NULL);
    train(&dt_ref_backend, &samples, bias, lr, n_steps, expected);
    for (int i = 0; i < n_isas; i++) {
        setenv("DTRAIN_ISA", isas[i], 1);
        train(&dt_cpu_backend, &samples, bias, lr, n_steps, actual);
        for (size_t step = 0; step < (size_t)n_steps; step++) {
            char what[128];
            snprintf(what, sizeof what, "%s, %s, biases up to %g, rate %g, step %zu", isas[i],
                     net->name, bias, lr, step + 1);
            compare_tensors(what, &model, actual + step * n_elems, expected + step * n_elems,
                            step == 0 ? 1e-5 : 1e-4, 0);
        }
    }
    free(expected);
    free(actual);
}

int main(void)
{
    static const double biases[] = {0, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1},
                        rates[] = {1e-4, 1e-3, 0.05};
    check(&tutorial, 0, 0, 1);
    check(&tutorial, 1e-6, 0, 1);
    for (int i = 0; i < N_SMALL; i++) {
        for (size_t b = 0; b < sizeof biases / sizeof *biases; b += EVERY(2)) {
            check(&small[i], biases[b], 0, 1);
        }
    }
    for (int i = 0; i < 3; i++) {
        check(&small[i + 1], 0, rates[i], N_STEPS);
    }
    return 0;
}
