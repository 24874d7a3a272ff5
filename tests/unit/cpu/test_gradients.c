/* Finite differences: the gradients of weights and biases of every kind of block, on every backend,
 * against the loss itself.
 *
 * Signed comparison; NaN fails. A step of 5e-4 keeps the error of float activations near 1e-4 and
 * few probes across a kink of relu or max pool; those few are why nearly all probes have to agree
 * instead of all: a wrong sign, factor or index fails most of them.
 */
#include "model/layers/layers.h"
#include "tests/lib/layers.h"
#include "tests/lib/session.h"
#include "tests/unit/cpu/made_samples.h"

#define BATCH 3
#define N_CLASSES 4

struct probe {
    struct dt_model model;
    struct session session;
    float *params, *grads;
};

static const uint32_t rows[BATCH] = {0, 1, 2};
static const struct dt_batch batch = {.n = BATCH, .rows = rows, .ids = rows, .epoch = 5};

static double loss_of(struct probe *p, bool backward)
{
    const struct dt_backend_ops *ops = p->session.backend->ops;
    struct dt_network *network = p->session.network;
    struct dt_metrics metrics;
    const struct dt_pass pass = {.batch = &batch, .training = true, .seed = 77};
    CHECK_OK(ops->copy_in(p->session.backend, network->params, p->params,
                          p->model.arena_elems * sizeof(float)));
    CHECK_OK(dt_network_gather(network, p->session.bound, &batch));
    CHECK_OK(dt_network_forward(network, &pass));
    CHECK_OK(dt_network_loss(network, p->session.bound, &pass));
    CHECK_OK(ops->metrics_take(p->session.backend, &metrics));
    if (backward) {
        CHECK_OK(dt_network_backward(network, &pass, NULL, NULL));
        CHECK_OK(ops->copy_out(p->session.backend, p->grads, network->grads,
                               p->model.arena_elems * sizeof(float)));
    }
    return metrics.loss_sum;
}

/* Central difference along parameter i. */
static double slope_of(struct probe *p, size_t i)
{
    const float step = 5e-4f, kept = p->params[i];
    p->params[i] = kept + step;
    const double above = loss_of(p, false);
    p->params[i] = kept - step;
    const double below = loss_of(p, false);
    p->params[i] = kept;
    return (above - below) / (2.0 * (double)step);
}

static void check_tensor(struct probe *p, const char *backend, const char *what,
                         const struct dt_param *param)
{
    const size_t n_probes = param->n_elems < 24 ? param->n_elems : 24;
    size_t n_wrong = 0;
    double worst = 0;
    for (size_t k = 0; k < n_probes; k++) {
        const size_t i = param->offset + k * param->n_elems / n_probes;
        const double expected = slope_of(p, i), actual = p->grads[i];
        const double error = fabs(actual - expected);
        if (!(error <= 2e-3 + 2e-2 * fabs(expected))) {
            n_wrong++;
            worst = error > worst || isnan(error) ? error : worst;
        }
    }
    if (n_wrong * 8 > n_probes) { /* a kink may spoil a probe, a wrong gradient spoils most */
        CHECK_FAIL("%s, %s, %s: %zu of %zu gradients are wrong, worst by %g", backend, what,
                   param->name, n_wrong, n_probes, worst);
    }
}

static void check_model(const struct dt_backend_ops *ops, const char *what, struct dt_shape input,
                        const struct dt_layer_spec *layers, int n_layers)
{
    struct probe p = {0};
    struct dt_model_spec spec = {.input = input,
                                 .n_layers = n_layers,
                                 .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY,
                                 .rows = &dt_all_layers};
    const struct dt_samples samples = made_samples(BATCH, input, N_CLASSES);
    memcpy(spec.layers, layers, (size_t)n_layers * sizeof *layers);
    CHECK_MESSAGE(dt_model_lower(&spec, &p.model) == DT_OK, "%s: %s", what, dt_error_text());
    CHECK_OK(session_open(backend_open(ops, 1), &p.model, &samples, BATCH, NULL, &p.session));
    p.params = calloc(p.model.arena_elems, sizeof(float));
    p.grads = calloc(p.model.arena_elems, sizeof(float));
    CHECK(p.params != NULL && p.grads != NULL);
    dt_model_init(&p.model, 3, p.params);
    for (int i = 0; i < p.model.n_params;
         i++) { /* biases off zero, so that relu's kink is not where everything sits */
        const struct dt_param *param = &p.model.params[i];
        for (size_t k = 0; param->is_bias && param->initial == 0 && k < param->n_elems; k++) {
            p.params[param->offset + k] = 0.1f * (float)((k % 5) + 1) - 0.2f;
        }
    }
    loss_of(&p, true);
    for (int i = 0; i < p.model.n_params; i++) {
        check_tensor(&p, ops->name, what, &p.model.params[i]);
    }
    free(p.params);
    free(p.grads);
    session_close(&p.session);
}

#define NORM(a) LAYER(BATCH_NORM, .activation = DT_ACTIVATION_##a, .epsilon = 1e-3, .momentum = 0.1)
#define LAYER_NORM(a) LAYER(LAYER_NORM, .activation = DT_ACTIVATION_##a, .epsilon = 1e-3)
#define CONCAT(a, n, ...) \
    LAYER(CONCAT, .activation = DT_ACTIVATION_##a, .inputs = {n, {__VA_ARGS__}})
#define END LAYER(FLATTEN), DENSE(N_CLASSES, NONE)
#define MODEL(what, ...)                                                                \
    do {                                                                                \
        const struct dt_layer_spec layers[] = {__VA_ARGS__};                            \
        check_model(ops, what, input, layers, (int)(sizeof layers / sizeof layers[0])); \
    } while (0)

/* A block's gradient is probed together with that of a convolution before it: its dx is what
 * reaches that one's weights. */
static void check_backend(const struct dt_backend_ops *ops)
{
    const struct dt_shape input = {2, 9, 8};
    MODEL("dense", LAYER(FLATTEN), DENSE(7, TANH), DENSE(N_CLASSES, NONE));
    MODEL("dense sigmoid", LAYER(FLATTEN), DENSE(7, SIGMOID), DENSE(N_CLASSES, NONE));
    MODEL("dense relu", LAYER(FLATTEN), DENSE(17, RELU), DENSE(N_CLASSES, NONE));
    MODEL("dense leaky relu", LAYER(FLATTEN), DENSE(17, LEAKY_RELU), DENSE(N_CLASSES, NONE));
    MODEL("dense gelu", LAYER(FLATTEN), DENSE(17, GELU), DROPOUT(0.3), DENSE(N_CLASSES, NONE));
    MODEL("conv gelu", CONV(3, 3, 1, VALID, GELU), CONV(17, 3, 1, SAME, GELU), END);
    MODEL("conv gelu max pool", CONV(3, 3, 1, VALID, LEAKY_RELU), CONV(5, 3, 1, SAME, GELU),
          MAX_POOL(2, 2), DROPOUT(0.25), END);
    MODEL("gelu alone", CONV(3, 3, 1, VALID, LEAKY_RELU), AVG_POOL(2, 2), LAYER(GELU),
          AVG_POOL(2, 1), LAYER(FLATTEN), LAYER(LEAKY_RELU), DENSE(N_CLASSES, NONE));
    MODEL("conv valid", CONV(3, 3, 1, VALID, TANH), CONV(5, 3, 1, VALID, TANH), END);
    MODEL("conv same", CONV(3, 3, 1, SAME, TANH), CONV(5, 4, 1, SAME, SIGMOID), END);
    MODEL("conv stride", CONV(3, 2, 1, VALID, TANH), CONV(5, 3, 2, SAME, TANH), END);
    MODEL("conv stride 3", CONV(3, 1, 1, VALID, TANH), CONV(17, 5, 3, VALID, TANH), END);
    MODEL("conv relu max pool", CONV(16, 3, 1, VALID, TANH), CONV(16, 3, 1, VALID, RELU),
          MAX_POOL(2, 2), END);
    MODEL("max pool overlapping", CONV(3, 3, 1, VALID, TANH), MAX_POOL(3, 2), END);
    MODEL("avg pool", CONV(3, 3, 1, VALID, TANH), AVG_POOL(3, 1), END);
    MODEL("global avg pool", CONV(5, 3, 1, VALID, TANH), LAYER(GLOBAL_AVG_POOL), END);
    MODEL("global avg pool without flatten's block", CONV(5, 3, 1, VALID, GELU), DROPOUT(0.25),
          LAYER(GLOBAL_AVG_POOL), CONV(N_CLASSES, 1, 1, VALID, NONE), LAYER(FLATTEN));
    MODEL("pool, then activation", CONV(3, 3, 1, VALID, NONE), AVG_POOL(2, 2), LAYER(TANH), END);
    MODEL("dropout", CONV(3, 3, 1, VALID, TANH), DROPOUT(0.25), CONV(4, 2, 1, VALID, TANH),
          LAYER(FLATTEN), DROPOUT(0.5), DENSE(N_CLASSES, NONE));
    MODEL("dropout twice", LAYER(FLATTEN), DENSE(9, TANH), DROPOUT(0.3), DROPOUT(0.2),
          DENSE(N_CLASSES, NONE));
    MODEL("everything fused", CONV(8, 3, 1, SAME, TANH), CONV(8, 3, 1, VALID, TANH), AVG_POOL(2, 2),
          DROPOUT(0.25), LAYER(FLATTEN), DENSE(11, TANH), DROPOUT(0.5), DENSE(N_CLASSES, NONE));
    MODEL("norm", CONV(3, 3, 1, VALID, TANH), NORM(NONE), CONV(5, 3, 1, VALID, TANH), END);
    MODEL("norm relu", CONV(17, 3, 1, SAME, TANH), NORM(RELU), END);
    MODEL("norm, then everything", CONV(4, 3, 1, VALID, TANH), NORM(SIGMOID), AVG_POOL(2, 2),
          DROPOUT(0.25), LAYER(FLATTEN), NORM(TANH), DENSE(N_CLASSES, NONE));
    MODEL("layer norm", CONV(3, 3, 1, VALID, TANH), LAYER_NORM(NONE), CONV(5, 3, 1, VALID, TANH),
          LAYER_NORM(SIGMOID), LAYER(FLATTEN), LAYER_NORM(TANH), DENSE(N_CLASSES, NONE));
    MODEL("layer norm relu", CONV(17, 3, 1, SAME, TANH), LAYER_NORM(RELU), END);
    MODEL("layer norm of few units", LAYER(FLATTEN), DENSE(7, TANH), LAYER_NORM(NONE),
          DENSE(N_CLASSES, NONE));
    MODEL("concat of three", CONV(3, 3, 1, VALID, TANH, .name = "a"),
          CONV(17, 1, 1, VALID, NONE, .name = "b", .input = "a"),
          CONV(2, 3, 1, SAME, NONE, .name = "c", .input = "a"), CONCAT(RELU, 3, "b", "a", "c"),
          AVG_POOL(2, 2), END);
    MODEL("concat of rows with itself", LAYER(FLATTEN), DENSE(5, TANH, .name = "a"),
          CONCAT(TANH, 2, "a", "a"), DENSE(N_CLASSES, NONE));
    MODEL("flatten alone at the end", CONV(N_CLASSES, 9, 1, SAME, TANH), AVG_POOL(8, 8),
          LAYER(SIGMOID), LAYER(FLATTEN));
}

int main(void)
{
    check_backend(&dt_ref_backend);
    check_backend(&dt_cpu_backend);
    return 0;
}
