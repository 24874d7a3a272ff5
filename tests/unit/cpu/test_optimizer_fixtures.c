/* Ten steps of every optimizer, with and without weight decay and clipping, on every CPU backend,
 * against PyTorch; and Adam with betas near 1 against the rule in double. */
#include "model/backend.h"
#include "model/optimizer.h"
#include "tests/lib/check.h"
#include "tests/lib/fixture.h"
#include "tests/lib/optimizer_step.h"

#define N_STEPS 10
#define N_WEIGHTS 19 /* more than one vector, and not a whole number of them */
#define GRAD_SCALE 0.25

static const struct named_spec {
    const char *name;
    struct dt_optimizer_spec spec;
} specs[] = {
    {"sgd", {.type = DT_OPTIMIZER_SGD, .lr = 0.1}},
    {"momentum", {.type = DT_OPTIMIZER_SGD, .lr = 0.1, .momentum = 0.9}},
    {"nesterov", {.type = DT_OPTIMIZER_SGD, .lr = 0.1, .momentum = 0.9, .nesterov = true}},
    {"adam",
     {.type = DT_OPTIMIZER_ADAM, .lr = 0.05, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-7}},
    {"adamw",
     {.type = DT_OPTIMIZER_ADAMW, .lr = 0.05, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-7}},
};

static struct dt_optimizer_spec spec_of(const char *name)
{
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        if (strcmp(specs[i].name, name) == 0) {
            return specs[i].spec;
        }
    }
    CHECK_FAIL("the fixture has an unknown optimizer %s", name);
}

/* The gradients handed over are sums, so the mean that PyTorch was given is divided by the scale
 * first: exact, a power of two. */
static void step(struct dt_optimizer *optimizer, struct dt_backend *backend, float *weights,
                 float *grads, int number)
{
    float host[N_WEIGHTS];
    for (int i = 0; i < N_WEIGHTS; i++) {
        host[i] = fixture_number((uint32_t)(10 + number), (uint32_t)i) / (float)GRAD_SCALE;
    }
    CHECK_OK(backend->ops->copy_in(backend, grads, host, sizeof host));
    CHECK_OK(optimizer_step(optimizer, weights, grads, optimizer->spec.lr, GRAD_SCALE));
}

static void run_case(struct dt_backend *backend, FILE *file, const char *name,
                     const float *decay_and_clip)
{
    struct dt_optimizer_spec spec = spec_of(name);
    spec.weight_decay = (double)decay_and_clip[0];
    spec.clip_norm = (double)decay_and_clip[1];
    struct dt_optimizer optimizer;
    CHECK_OK(dt_optimizer_open(&spec, backend, N_WEIGHTS, NULL, &optimizer));
    void *weights = NULL, *grads = NULL;
    CHECK_OK(backend->ops->alloc(backend, N_WEIGHTS * sizeof(float), &weights));
    CHECK_OK(backend->ops->alloc(backend, N_WEIGHTS * sizeof(float), &grads));
    float host[N_WEIGHTS], expected[N_WEIGHTS];
    for (int i = 0; i < N_WEIGHTS; i++) {
        host[i] = fixture_number(1, (uint32_t)i);
    }
    CHECK_OK(backend->ops->copy_in(backend, weights, host, sizeof host));
    for (int i = 0; i < N_STEPS; i++) {
        char what[256], found[64];
        snprintf(what, sizeof what, "%s: %s, decay %g, clip %g, step %d: weight",
                 backend->ops->name, name, spec.weight_decay, spec.clip_norm, i + 1);
        CHECK(fixture_next(file, "weights", found, expected, N_WEIGHTS));
        step(&optimizer, backend, weights, grads, i);
        CHECK_OK(backend->ops->copy_out(backend, host, weights, sizeof host));
        fixture_check(what, host, expected, N_WEIGHTS, 1e-6);
    }
    backend->ops->free(backend, weights);
    backend->ops->free(backend, grads);
    dt_optimizer_close(&optimizer);
}

static void run_backend(const struct dt_backend_ops *ops)
{
    const struct dt_backend_options options = {.n_threads = 2};
    struct dt_backend *backend = NULL;
    CHECK_OK(ops->open(&options, &backend));
    FILE *file = fixture_open("optimizers.txt");
    char name[64];
    float decay_and_clip[2];
    int n_cases = 0;
    while (fixture_next(file, "", name, decay_and_clip, 2)) {
        run_case(backend, file, name, decay_and_clip);
        n_cases++;
    }
    CHECK_INT(n_cases, 15);
    fclose(file);
    ops->close(backend);
}

/* Adam as it is written, in double. */
struct adam {
    double weight, mean, square;
};

static void adam_step(struct adam *a, const struct dt_optimizer_spec *spec, double g, int t)
{
    a->mean = spec->beta1 * a->mean + (1 - spec->beta1) * g;
    a->square = spec->beta2 * a->square + (1 - spec->beta2) * g * g;
    a->weight -= spec->lr * (a->mean / (1 - pow(spec->beta1, t))) /
                 (sqrt(a->square / (1 - pow(spec->beta2, t))) + spec->epsilon);
}

/* A state within 2e-6 of the rule's, where 1 - beta of floats would leave it 1.7e-4, and at the
 * last beta 19 %, away. */
static void check_betas(const struct dt_backend_ops *ops, double beta1, double beta2)
{
    const struct dt_optimizer_spec spec = {
        .type = DT_OPTIMIZER_ADAM, .lr = 0.01, .beta1 = beta1, .beta2 = beta2, .epsilon = 1e-8};
    const struct dt_backend_options options = {.n_threads = 1};
    struct dt_backend *backend = NULL;
    struct dt_optimizer optimizer;
    void *weight = NULL, *grad = NULL;
    struct adam exact = {0};
    CHECK_OK(ops->open(&options, &backend));
    CHECK_OK(dt_optimizer_open(&spec, backend, 1, NULL, &optimizer));
    CHECK_OK(ops->alloc(backend, sizeof(float), &weight));
    CHECK_OK(ops->alloc(backend, sizeof(float), &grad));
    for (int t = 1; t <= 300; t++) {
        float *g = grad;
        *g = 0.5f + fixture_number(3, (uint32_t)t);
        CHECK_OK(optimizer_step(&optimizer, weight, grad, spec.lr, 1));
        adam_step(&exact, &spec, (double)*g, t);
    }
    CHECK_NEAR((double)optimizer.states[0][0] / exact.mean, 1, 2e-6);
    CHECK_NEAR((double)optimizer.states[1][0] / exact.square, 1, 2e-6);
    CHECK_NEAR((double)*(float *)weight / exact.weight, 1, 5e-6);
    ops->free(backend, weight);
    ops->free(backend, grad);
    dt_optimizer_close(&optimizer);
    ops->close(backend);
}

int main(void)
{
    const struct dt_backend_ops *const backends[] = {&dt_ref_backend, &dt_cpu_backend};
    for (int i = 0; i < 2; i++) {
        run_backend(backends[i]);
        check_betas(backends[i], 0.9, 0.999);
        check_betas(backends[i], 0.9999, 0.9999);
        check_betas(backends[i], 0.9, 0.9999999);
        check_betas(backends[i], 0, 0);
    }
    return 0;
}
