/* Layers with an operation of their own, at sizes of several parts: the cpu backend, with every
 * instruction set, has the gradients of the reference, which sums in double, and the same bits with
 * one thread and with three. A second, smaller batch is added to the first one's gradients. */
#include "tests/lib/layers.h"
#include "tests/lib/session.h"
#include "tests/unit/cpu/made_samples.h"

#include "cpu/isa.h"
#include "model/layers/layers.h"

enum { N_SAMPLES = 7, N_CLASSES = 5 };

#define NORM(type_, ...) LAYER(type_, .epsilon = 1e-5, .momentum = 0.1, ##__VA_ARGS__)
#define END LAYER(FLATTEN), DENSE(N_CLASSES, NONE)

/* A ReLU is the operation's own where another block follows. */
static const struct dt_model_spec specs[] = {
    {.input = {1, 61, 35},
     .n_layers = 5,
     .layers = {CONV(19, 3, 1, SAME, TANH), NORM(LAYER_NORM, .activation = DT_ACTIVATION_RELU),
                NORM(BATCH_NORM), END}},
    {.input = {2, 41, 31},
     .n_layers = 7,
     .layers = {CONV(33, 3, 1, SAME, NONE, .name = "a"),
                NORM(LAYER_NORM, .activation = DT_ACTIVATION_TANH, .name = "b"),
                CONV(33, 3, 1, SAME, NONE, .input = "a"),
                LAYER(ADD, .activation = DT_ACTIVATION_RELU, .inputs = {1, {"b"}}),
                NORM(BATCH_NORM), END}},
    {.input = {3, 37, 29},
     .n_layers = 7,
     .layers = {CONV(17, 3, 1, SAME, TANH, .name = "a"), CONV(3, 3, 1, SAME, NONE, .name = "b"),
                CONV(30, 3, 1, SAME, NONE, .input = "a", .name = "c"),
                LAYER(CONCAT, .activation = DT_ACTIVATION_RELU,
                      .inputs = {4, {"b", "a", "c", "a"}}),
                LAYER(CONCAT, .inputs = {1, {"a"}}), END}},
    {.input = {2100, 1, 1},
     .n_layers = 5,
     .layers = {NORM(LAYER_NORM), DENSE(29, NONE, .name = "a"),
                NORM(LAYER_NORM, .activation = DT_ACTIVATION_RELU),
                LAYER(CONCAT, .inputs = {1, {"a"}}), DENSE(N_CLASSES, NONE)}}};
enum { N_SPECS = sizeof specs / sizeof *specs };

static struct dt_model model;

static float number(uint32_t i)
{
    return 2 * dt_rng_uniform(dt_rng_words(9, DT_RNG_SYNTHETIC, 0, 0, 0, i).v[0]) - 1;
}

static void set_params(float *params)
{
    dt_model_init(&model, 5, params);
    for (uint32_t p = 0; p < (uint32_t)model.n_params; p++) {
        for (uint32_t i = 0; i < model.params[p].n_elems && model.params[p].is_bias; i++) {
            params[model.params[p].offset + i] += 0.3f * number(100000 * (p + 1) + i);
        }
    }
}

/* Gradients of all samples and, again, of the first three. */
static float *gradients(const struct dt_backend_ops *ops, int n_threads)
{
    const struct dt_samples samples = made_samples(N_SAMPLES, model.spec.input, N_CLASSES);
    static const uint32_t rows[N_SAMPLES] = {0, 1, 2, 3, 4, 5, 6};
    struct session session;
    float *grads = calloc(model.arena_elems, sizeof *grads);
    CHECK(grads != NULL);
    CHECK_OK(
        session_open(backend_open(ops, n_threads), &model, &samples, N_SAMPLES, NULL, &session));
    set_params(session.network->params);
    for (int part = 0; part < 2; part++) {
        const struct dt_batch batch = {.n = part == 0 ? N_SAMPLES : 3, .rows = rows, .ids = rows};
        const struct dt_pass pass = {.batch = &batch, .training = true, .accumulate = part == 1};
        CHECK_OK(session_pass(&session, &pass));
    }
    memcpy(grads, session.network->grads, model.arena_elems * sizeof *grads);
    session_close(&session);
    return grads;
}

int main(void)
{
    const char *isas[DT_CPU_MAX_ISAS];
    const int n_isas = dt_cpu_isa_list(isas);
    for (int spec = 0; spec < N_SPECS; spec++) {
        struct dt_model_spec named = specs[spec];
        named.rows = &dt_all_layers;
        CHECK_MESSAGE(dt_model_lower(&named, &model) == DT_OK, "model %d: %s", spec,
                      dt_error_text());
        float *expected = gradients(&dt_ref_backend, 1);
        for (int i = 0; i < n_isas; i++) {
            setenv("DTRAIN_ISA", isas[i], 1);
            float *one = gradients(&dt_cpu_backend, 1), *three = gradients(&dt_cpu_backend, 3);
            char what[64];
            snprintf(what, sizeof what, "%s, model %d", isas[i], spec);
            compare_tensors(what, &model, one, expected, 2e-5, 1e-3);
            CHECK(memcmp(one, three, model.arena_elems * sizeof *one) == 0);
            free(one);
            free(three);
        }
        free(expected);
    }
    return 0;
}
