/* Dense blocks of the cpu backend against the reference, on every instruction set of this machine
 * and at every share of zeros: few zeros or many choose other ways through the same sums.
 *
 * Numbers are small multiples of 1/8, so that every sum is exact in float as in double, in whatever
 * order. Buffers have guard words on both sides, NaNs that no result may read nor write. */
#include "tests/lib/block_run.h"
#include "tests/lib/layers.h"

#include "cpu/isa.h"

#define CAPACITY 300

static const uint32_t per_mille[] = {0, 10, 150, 500, 1000};
enum { N_SHARES = sizeof per_mille / sizeof per_mille[0] };

static struct buffer with_zeros(size_t n, uint32_t alive)
{
    struct buffer b = buffer_open(n);
    for (size_t i = 0; i < n; i++) {
        b.data[i] = draw(1000) < alive ? (float)(1 + draw(8)) / (draw(2) == 0 ? 8 : -8) : 0.0f;
    }
    return b;
}

static int n_isas;
static const char *isas[DT_CPU_MAX_ISAS];

static struct block_results on_cpu(struct block_case *setup, const char *isa, int n_threads)
{
    setenv("DTRAIN_ISA", isa, 1);
    return block_run(&dt_cpu_backend, (struct dt_backend_options){.n_threads = n_threads}, setup);
}

static void check_run(struct block_case *setup)
{
    struct block_results expected = block_on_ref(setup);
    for (int i = 0; i < n_isas; i++) {
        setup->over_x = false;
        struct block_results actual = on_cpu(setup, isas[i], 1);
        setup->over_x = true;
        struct block_results again = on_cpu(setup, isas[i], 3);
        compare(isas[i], "y", &actual.y, &expected.y);
        compare(isas[i], "grads", &actual.grads, &expected.grads);
        compare(isas[i], "dx", &actual.dx, &expected.dx);
        check_same_bits("y", &actual.y, &again.y);
        check_same_bits("grads", &actual.grads, &again.grads);
        check_same_bits("dx", &actual.dx, &again.dx);
        block_results_close(&actual);
        block_results_close(&again);
    }
    block_results_close(&expected);
}

/* One block, and a pass over n samples. */
static struct block_case open_case(int n_in, int n_out, struct dt_batch *batch)
{
    static struct dt_model model;
    static const uint32_t ids[CAPACITY];
    const struct dt_model_spec spec = {.input = {n_in, 1, 1},
                                       .n_layers = 1,
                                       .loss = DT_LOSS_MEAN_SQUARED_ERROR,
                                       .layers = {DENSE(n_out, NONE)}};
    CHECK_OK(dt_model_lower(&spec, &model));
    batch->rows = batch->ids = ids;
    return (struct block_case){.model = &model,
                               .capacity = CAPACITY,
                               .passes = BLOCK_TRAINING,
                               .pass = {.batch = batch, .training = true},
                               .params = buffer_random(model.arena_elems, 4, 0),
                               .grads = buffer_random(model.arena_elems, 8, 0)};
}

static void check_dense(int n_in, int n_out, int n, uint32_t x_alive, uint32_t dy_alive)
{
    struct dt_batch batch = {.n = n};
    struct block_case setup = open_case(n_in, n_out, &batch);
    setup.pass.accumulate = draw(2) == 1;
    setup.want_dx = draw(4) > 0;
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
    block_case_close(&setup);
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
    struct dt_batch batch = {.n = 20}; /* too many for dense_few */
    struct block_case setup = open_case(70, 18, &batch);
    setup.dy = with_zeros(20 * 18, 0);
    setup.x = with_zeros(20 * 70, alive);
    snprintf(case_text, sizeof case_text, "NaN in x, %u per mille alive", alive);
    for (size_t at = 0; at < setup.x.n; at += 9) {
        const float before = setup.x.data[at];
        setup.x.data[at] = NAN;
        struct block_results expected = block_on_ref(&setup);
        CHECK(isnan(expected.y.data[at / 70 * 18]));
        for (int i = 0; i < n_isas; i++) {
            struct block_results actual = on_cpu(&setup, isas[i], 1);
            compare(isas[i], "y", &actual.y, &expected.y);
            block_results_close(&actual);
        }
        block_results_close(&expected);
        setup.x.data[at] = before;
    }
    block_case_close(&setup);
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
