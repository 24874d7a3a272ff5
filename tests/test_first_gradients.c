/* The first gradients of the tutorial's network: drawings on a ground of zeros, biases of 0, so that most of the second
 * convolution's outputs are exactly 0, and ReLU lets none of them through. Every instruction set against the reference. */
#include "check.h"

#include "base/rng.h"
#include "cpu/isa.h"
#include "model/network.h"

#define N_SAMPLES 8
#define SIDE 28

static const struct dt_model_spec tutorial = {
    .input = {1, SIDE, SIDE},
    .n_layers = 6,
    .layers = {{.type = DT_LAYER_CONV2D, .size = 32, .kernel = 3, .stride = 1, .activation = DT_ACTIVATION_RELU},
               {.type = DT_LAYER_CONV2D, .size = 64, .kernel = 3, .stride = 1, .activation = DT_ACTIVATION_RELU},
               {.type = DT_LAYER_MAX_POOL2D, .size = 2, .stride = 2},
               {.type = DT_LAYER_FLATTEN},
               {.type = DT_LAYER_DENSE, .size = 128, .activation = DT_ACTIVATION_RELU},
               {.type = DT_LAYER_DENSE, .size = 10}}};
static struct dt_model model;

static uint32_t word(uint32_t i)
{
    return dt_rng_words(7, DT_RNG_SYNTHETIC, 0, 0, 0, i).v[0];
}

/* Strokes three pixels wide, in shades. */
static struct dt_samples drawings(void)
{
    static float pixels[N_SAMPLES * SIDE * SIDE];
    static uint16_t labels[N_SAMPLES];
    for (uint32_t n = 0; n < N_SAMPLES; n++) {
        labels[n] = (uint16_t)n;
        for (uint32_t stroke = 0; stroke < 3; stroke++) {
            const uint32_t seed = word(n * 3 + stroke), across = seed % 2, at = 4 + seed / 2 % 18, from = 4 + seed / 64 % 8;
            for (uint32_t i = 0; i < 3 * 12; i++) {
                const uint32_t a = at + i / 12, b = from + i % 12;
                pixels[(n * SIDE + (across ? a : b)) * SIDE + (across ? b : a)] = dt_rng_uniform(word(1000 + n * 200 + i));
            }
        }
    }
    return (struct dt_samples){.n = N_SAMPLES, .shape = {1, SIDE, SIDE}, .values = pixels, .labels = labels, .n_classes = 10};
}

static void first_gradients(const struct dt_backend_ops *ops, const struct dt_samples *samples, float *grads)
{
    const struct dt_backend_options options = {.n_threads = 1};
    uint32_t rows[N_SAMPLES];
    const struct dt_batch batch = {.n = N_SAMPLES, .rows = rows, .ids = rows};
    const struct dt_pass pass = {.batch = &batch, .training = true};
    struct dt_backend *backend;
    struct dt_network *net;
    struct dt_bound_samples *bound;
    for (uint32_t i = 0; i < N_SAMPLES; i++) {
        rows[i] = i;
    }
    CHECK_INT(ops->open(&options, &backend), DT_OK);
    CHECK_INT(dt_network_open(&model, backend, N_SAMPLES, NULL, &net), DT_OK);
    CHECK_INT(ops->samples_open(backend, samples, &bound), DT_OK);
    dt_model_init(&model, 5, net->params);
    CHECK_INT(dt_network_gather(net, bound, &batch), DT_OK);
    CHECK_INT(dt_network_forward(net, &pass), DT_OK);
    CHECK_INT(dt_network_loss(net, bound, &pass), DT_OK);
    CHECK_INT(dt_network_backward(net, &pass, NULL, NULL), DT_OK);
    memcpy(grads, net->grads, model.arena_elems * sizeof(float));
    ops->samples_close(backend, bound);
    dt_network_close(net);
    ops->close(backend);
}

/* Relative to the largest of each tensor. */
static void compare(const char *isa, const float *actual, const float *expected)
{
    for (int p = 0; p < model.n_params; p++) {
        const struct dt_param *param = &model.params[p];
        double largest = 0, error = 0;
        for (size_t i = param->offset; i < param->offset + param->n_elems; i++) {
            largest = fmax(largest, (double)fabsf(expected[i]));
            error = fmax(error, fabs((double)actual[i] - (double)expected[i]));
        }
        if (!(error <= 1e-5 * largest)) {
            CHECK_FAIL("%s: the first gradient of %s is off by %.2g of its largest", isa, param->name, error / largest);
        }
    }
}

int main(void)
{
    const char *isas[DT_CPU_MAX_ISAS];
    const int n_isas = dt_cpu_isa_list(isas);
    const struct dt_samples samples = drawings();
    CHECK_INT(dt_model_lower(&tutorial, &model), DT_OK);
    float *expected = calloc(model.arena_elems, sizeof *expected), *actual = calloc(model.arena_elems, sizeof *actual);
    CHECK(expected != NULL && actual != NULL);
    first_gradients(&dt_ref_backend, &samples, expected);
    for (int i = 0; i < n_isas; i++) {
        setenv("DTRAIN_ISA", isas[i], 1);
        first_gradients(&dt_cpu_backend, &samples, actual);
        compare(isas[i], actual, expected);
    }
    free(expected);
    free(actual);
    return 0;
}
