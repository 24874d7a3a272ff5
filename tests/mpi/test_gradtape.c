/* The worked example of Horovod's gradient tape, with two ranks: a dense layer 2 -> 3, inputs from
 * MT19937 seeded by the rank, rank 0 beginning with ones and rank 1 with zeros, the loss being the
 * sum of all outputs. Every printed digit must come out.
 *
 * (The text that goes with the example says that new weights are old plus gradients; its numbers,
 * and we, subtract.) */
#include "dist/ranks/launch/job.h"
#include "lab/gradtape.h"
#include "model/stages.h"
#include "tests/lib/rig.h"

/* The example prints as many digits as it takes to tell a float from its neighbours: the same
 * digits are the same bits. The reference backend adds in double and so rounds the sum 1.46055642
 * of four inputs down where floats added in order end above. */
static bool same_digits(float actual, const char *digits, const struct dt_backend_ops *backend)
{
    const float expected = strtof(digits, NULL);
    const bool neighbours =
        actual == nextafterf(expected, INFINITY) || actual == nextafterf(expected, -INFINITY);
    return actual == expected || (backend == &dt_ref_backend && neighbours);
}

#define CHECK_DIGITS(actual, expected)                                                             \
    do {                                                                                           \
        const float check_f = (actual);                                                            \
        if (!same_digits(check_f, expected, spec.backend)) {                                       \
            CHECK_FAIL("%s is %.9g, expected the float %s (%s backend)", #actual, (double)check_f, \
                       expected, spec.backend->name);                                              \
        }                                                                                          \
    } while (0)

enum { N_SAMPLES = 4, N_INPUTS = 2, N_UNITS = 3 };

static float x[N_SAMPLES * N_INPUTS],
    targets[N_SAMPLES * N_UNITS]; /* targets are unused: the loss is the sum of the outputs */
static const uint32_t rows[N_SAMPLES] = {0, 1, 2, 3};
static const struct dt_samples samples = {.n = N_SAMPLES,
                                          .shape = {N_INPUTS, 1, 1},
                                          .values = x,
                                          .targets = targets,
                                          .n_targets = N_UNITS,
                                          .n_total = N_SAMPLES};

static struct rig_spec spec = {.n_inputs = N_INPUTS,
                               .units = {N_UNITS},
                               .loss = DT_LOSS_MEAN_SQUARED_ERROR,
                               .optimizer = {.type = DT_OPTIMIZER_SGD},
                               .dist = {.broadcast = true, .overlap = true}};

static void make_inputs(int rank)
{
    struct dt_mt19937 mt;
    dt_mt19937_seed(&mt, (uint32_t)rank);
    for (int i = 0; i < N_SAMPLES * N_INPUTS; i++) {
        x[i] = (float)dt_mt19937_uniform(&mt);
    }
}

static void set_weights(struct rig *rig, float value)
{
    float *weight = rig_param(rig, "fc1.weight"), *bias = rig_param(rig, "fc1.bias");
    for (int i = 0; i < N_UNITS * N_INPUTS; i++) {
        weight[i] = value;
    }
    for (int i = 0; i < N_UNITS; i++) {
        bias[i] = value;
    }
}

/* The sum of all outputs, its gradient with respect to every output being 1; then the backward
 * pass, and a step. */
static float forward_and_backward(struct rig *rig, const struct dt_update *update)
{
    const struct dt_batch batch = {.n = N_SAMPLES, .rows = rows, .ids = rows};
    struct dt_pass pass = {.batch = &batch, .training = true};
    CHECK_OK(dt_network_gather(rig->network, rig->bound, &batch));
    CHECK_OK(dt_network_forward(rig->network, &pass));
    double loss = 0;
    for (int i = 0; i < N_SAMPLES * N_UNITS; i++) {
        loss += (double)dt_network_logits(rig->network)[i];
        dt_network_dlogits(rig->network)[i] = 1.0f;
    }
    struct dt_strategy_step step = dt_strategy_begin(rig->strategy, update);
    CHECK_OK(dt_strategy_backward(&step, rig->network, &pass));
    CHECK_OK(dt_strategy_wait(&step));
    return (float)loss;
}

/* `w0`, `w1`: what all units have for each input, in weights or in gradients times `scale`. */
static void check_layer(const float *weight, const float *bias, float scale, const char *w0,
                        const char *w1, const char *b)
{
    for (int unit = 0; unit < N_UNITS; unit++) {
        CHECK_DIGITS(weight[unit * N_INPUTS] * scale, w0);
        CHECK_DIGITS(weight[unit * N_INPUTS + 1] * scale, w1);
        CHECK_DIGITS(bias[unit] * scale, b);
    }
}

static void check_weights(struct rig *rig, const char *w0, const char *w1, const char *b)
{
    check_layer(rig_param(rig, "fc1.weight"), rig_param(rig, "fc1.bias"), 1, w0, w1, b);
}

static void test_backend(const struct dt_backend_ops *backend, struct dt_comm *comm)
{
    struct rig rig;
    const struct dt_update no_step = {.type = DT_OPTIMIZER_SGD}; /* its learning rate is 0 */
    spec.backend = backend;
    const bool first = comm->rank == 0;

    spec.dist.average = false; /* the gradients of each rank by itself */
    rig_open(&rig, &spec, comm, &samples);
    set_weights(&rig, first ? 1 : 0);
    CHECK_DIGITS(forward_and_backward(&rig, &no_step), first ? "26.431675" : "0");
    check_layer(rig_grad(&rig, "fc1.weight"), rig_grad(&rig, "fc1.bias"), 1,
                first ? "2.0128188" : "0.75015247", first ? "2.7977395" : "1.4605565", "4");
    rig_close(&rig);

    spec.dist.average = true; /* their mean, a step with it, and the broadcast */
    rig_open(&rig, &spec, comm, &samples);
    set_weights(&rig, first ? 1 : 0);
    const struct dt_update update = dt_strategy_next(rig.strategy, 1.0, 2, 1);
    forward_and_backward(&rig, &update);
    check_layer(rig_grad(&rig, "fc1.weight"), rig_grad(&rig, "fc1.bias"), 0.5f, "1.3814857",
                "2.129148", "4");
    check_weights(&rig, first ? "-0.3814857" : "-1.3814857", first ? "-1.129148" : "-2.129148",
                  first ? "-3" : "-4");
    CHECK_OK(dt_strategy_broadcast(rig.strategy));
    check_weights(&rig, "-0.3814857", "-1.129148", "-3");
    rig_close(&rig);
}

int main(void)
{
    struct dt_world world;
    CHECK_OK(dt_world_open(&world));
    CHECK_INT(world.size, 2);
    make_inputs(world.rank);
    test_backend(&dt_ref_backend, world.comm);
    test_backend(&dt_cpu_backend, world.comm);
    dt_world_exit(&world, DT_OK, true);
}
