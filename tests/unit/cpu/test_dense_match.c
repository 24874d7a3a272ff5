/* Dense blocks of the cpu backend against the reference, on every instruction set of this machine
 * and at every share of zeros: few zeros or many choose other ways through the same sums.
 *
 * Numbers are small multiples of 1/8, so that every sum is exact in float as in double, in whatever
 * order. Buffers have guard words on both sides, NaNs that no result may read nor write. */
#include "tests/lib/guarded.h"
#include "tests/lib/layers.h"

#include "cpu/isa.h"
#include "model/backend.h"

#define CAPACITY 300

static const uint32_t per_mille[] = {0, 10, 150, 500, 1000};
enum { N_SHARES = sizeof per_mille / sizeof per_mille[0] };

struct setup {
    struct dt_model model;
    int n, n_threads;
    bool accumulate, want_dx, over_x; /* over_x: dx takes the place of x */
    struct buffer params, grads, x, dy;
};

struct outcome {
    struct buffer y, grads, dx;
};

static struct buffer with_zeros(size_t n, uint32_t alive)
{
    struct buffer b = buffer_open(n);
    for (size_t i = 0; i < n; i++) {
        b.data[i] = draw(1000) < alive ? (float)(1 + draw(8)) / (draw(2) == 0 ? 8 : -8) : 0.0f;
    }
    return b;
}

static struct outcome run(const struct dt_backend_ops *ops, const struct setup *setup)
{
    const struct dt_backend_options options = {.n_threads = setup->n_threads};
    const struct dt_batch batch = {.n = setup->n};
    const struct dt_pass pass = {
        .batch = &batch, .training = true, .accumulate = setup->accumulate};
    struct dt_backend *backend;
    struct dt_block_state *state;
    struct buffer dy = copy_of(&setup->dy);
    const bool over_x = setup->over_x && setup->want_dx;
    struct outcome out = {.y = buffer_open(dy.n),
                          .grads = copy_of(&setup->grads),
                          .dx = over_x ? copy_of(&setup->x) : buffer_open(setup->x.n)};
    const float *x = over_x ? out.dx.data : setup->x.data;
    CHECK_OK(ops->open(&options, &backend));
    CHECK_OK(ops->block_open(backend, &setup->model, 0, CAPACITY, &state));
    CHECK_OK(ops->block_forward(state, setup->params.data, x, out.y.data, &pass));
    CHECK_OK(ops->block_backward(state, setup->params.data, out.grads.data, x, out.y.data, dy.data,
                                 setup->want_dx ? out.dx.data : NULL, &pass));
    buffer_close(&dy, "dy");
    ops->block_close(state);
    ops->close(backend);
    return out;
}

static void close_outcome(struct outcome *o)
{
    BUFFERS_CLOSE(&o->y, &o->grads, &o->dx);
}

static bool same_bits(const struct buffer *a, const struct buffer *b)
{
    return memcmp(a->data, b->data, a->n * sizeof(float)) == 0;
}

static int n_isas;
static const char *isas[DT_CPU_MAX_ISAS];

static void check_run(struct setup *setup)
{
    struct outcome expected = run(&dt_ref_backend, setup);
    for (int i = 0; i < n_isas; i++) {
        setenv("DTRAIN_ISA", isas[i], 1);
        setup->n_threads = 1;
        setup->over_x = false;
        struct outcome actual = run(&dt_cpu_backend, setup);
        setup->n_threads = 3;
        setup->over_x = true;
        struct outcome again = run(&dt_cpu_backend, setup);
        compare(isas[i], "y", &actual.y, &expected.y);
        compare(isas[i], "grads", &actual.grads, &expected.grads);
        compare(isas[i], "dx", &actual.dx, &expected.dx);
        CHECK(same_bits(&actual.y, &again.y) && same_bits(&actual.grads, &again.grads) &&
              same_bits(&actual.dx, &again.dx));
        close_outcome(&actual);
        close_outcome(&again);
    }
    close_outcome(&expected);
}

static void open_model(struct setup *setup, int n_in, int n_out)
{
    const struct dt_model_spec spec = {.input = {n_in, 1, 1},
                                       .n_layers = 1,
                                       .loss = DT_LOSS_MEAN_SQUARED_ERROR,
                                       .layers = {DENSE(n_out, NONE)}};
    CHECK_OK(dt_model_lower(&spec, &setup->model));
}

static void close_buffers(struct setup *setup)
{
    BUFFERS_CLOSE(&setup->params, &setup->grads, &setup->x, &setup->dy);
}

static void check_dense(int n_in, int n_out, int n, uint32_t x_alive, uint32_t dy_alive)
{
    static struct setup setup;
    open_model(&setup, n_in, n_out);
    setup.n = n;
    setup.accumulate = draw(2) == 1;
    setup.want_dx = draw(4) > 0;
    setup.params = buffer_random(setup.model.arena_elems, 4, 0);
    setup.grads = buffer_random(setup.model.arena_elems, 8, 0);
    setup.x = with_zeros((size_t)n * (size_t)n_in, x_alive);
    setup.dy = with_zeros((size_t)n * (size_t)n_out, dy_alive);
    if (n > 1 &&
        draw(3) == 0) { /* half of the samples without a zero: neighbours go different ways */
        for (size_t i = 0; i < setup.x.n / 2; i++) {
            setup.x.data[i] = 0.5f;
        }
    }
    snprintf(case_text, sizeof case_text, "dense %d to %d, %d samples, %u and %u per mille alive",
             n_in, n_out, n, x_alive, dy_alive);
    check_run(&setup);
    close_buffers(&setup);
}

/* Every size with every batch, and along the way every share of zeros in x with every one in dy. */
static int check_grid(void)
{
    static const int sizes[] = {1, 10, 27, 128, 1000}, batches[] = {0, 1, 5, 128};
    int n_cases = 0;
    for (int i = 0; i < 5 * 5 * 4; i++) {
        const int n_in = sizes[i / 20], n_out = sizes[i / 4 % 5], n = batches[i % 4];
        const int n_times = n_in * n_out * n > 10000000 ? 2 / EVERY(2) : 5 / EVERY(5);
        for (int times = 0; times < n_times; times++, n_cases++) {
            check_dense(n_in, n_out, n, per_mille[n_cases % N_SHARES],
                        per_mille[n_cases / N_SHARES % N_SHARES]);
        }
    }
    for (int i = 0; i < N_SHARES * N_SHARES;
         i += EVERY(3), n_cases++) { /* panels that are not full, and more than one in depth */
        check_dense(300, 150, CAPACITY, per_mille[i % N_SHARES], per_mille[i / N_SHARES]);
    }
    for (int i = 0; i < 2 * N_SHARES * N_SHARES;
         i += EVERY(3), n_cases++) { /* weights that exceed a second-level cache */
        check_dense(2048 + 32, 300, 64, per_mille[i % N_SHARES],
                    per_mille[i / N_SHARES % N_SHARES]);
    }
    return n_cases;
}

/* A NaN is not zero: it reaches every output of its sample, and no other's. */
static void check_nan(uint32_t alive)
{
    static struct setup setup;
    open_model(&setup, 70, 18);
    setup.n = 20; /* too many for dense_few */
    setup.params = buffer_random(setup.model.arena_elems, 4, 0);
    setup.grads = buffer_open(setup.model.arena_elems);
    setup.dy = with_zeros(20 * 18, 0);
    setup.x = with_zeros(20 * 70, alive);
    snprintf(case_text, sizeof case_text, "NaN in x, %u per mille alive", alive);
    for (size_t at = 0; at < setup.x.n; at += 9) {
        const float before = setup.x.data[at];
        setup.x.data[at] = NAN;
        struct outcome expected = run(&dt_ref_backend, &setup);
        CHECK(isnan(expected.y.data[at / 70 * 18]));
        for (int i = 0; i < n_isas; i++) {
            setenv("DTRAIN_ISA", isas[i], 1);
            struct outcome actual = run(&dt_cpu_backend, &setup);
            compare(isas[i], "y", &actual.y, &expected.y);
            close_outcome(&actual);
        }
        close_outcome(&expected);
        setup.x.data[at] = before;
    }
    close_buffers(&setup);
}

int main(void)
{
    n_isas = dt_cpu_isa_list(isas);
    CHECK(n_isas >= 1);
    check_nan(0);
    check_nan(1000);
    const int n_cases = check_grid();
    printf("%d dense blocks on %d instruction sets\n", n_cases, n_isas);
    CHECK(n_cases > 400 / EVERY(5));
    return 0;
}
