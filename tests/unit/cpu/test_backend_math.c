/* The cpu backend outside blocks against the reference, on every instruction set of this machine:
 * gather, loss heads, optimizer steps, norm, dropout masks; and how an instruction set is chosen.
 */
#include "tests/lib/guarded.h"
#include "tests/lib/session.h"
#include "tests/unit/cpu/modes.h"

#include "base/rng.h"

static void check_gather_and_loss(struct dt_model_spec spec, struct dt_shape shape)
{
    enum { N = 6, OUT = 7 };
    static uint8_t pixels[N * 3 * 4 * 5];
    static uint16_t labels[N];
    struct buffer targets = buffer_random(N * OUT, 20, 0), logits = buffer_random(N * OUT, 40, 0);
    logits.data[3] = logits.data[5] = 7; /* a tie for the largest */
    static const uint32_t rows[] = {5, 0, 3, 3}, ids[] = {0, 1, 2, 3};
    const struct dt_batch batch = {.n = 4, .rows = rows, .ids = ids};
    for (size_t i = 0; i < sizeof pixels; i++) {
        pixels[i] = (uint8_t)draw(256);
    }
    for (size_t i = 0; i < N; i++) {
        labels[i] = (uint16_t)draw(OUT);
    }
    const struct dt_samples samples = {.n = N,
                                       .shape = shape,
                                       .pixels = pixels,
                                       .scale = 1.0f / 255,
                                       .labels = labels,
                                       .targets = targets.data};
    struct buffer x[2], dlogits[2];
    struct dt_metrics metrics[2];
    for (int i = 0; i < 2; i++) {
        const struct dt_backend_ops *ops = i == 0 ? &dt_ref_backend : &dt_cpu_backend;
        struct dt_backend *backend = backend_open(ops, 2);
        struct dt_bound_samples *bound;
        x[i] = buffer_open(4 * dt_shape_elems(shape));
        dlogits[i] = buffer_open(4 * OUT);
        CHECK_OK(ops->samples_open(backend, &samples, &bound));
        CHECK_OK(ops->gather(backend, bound, &batch, x[i].data));
        CHECK_OK(ops->loss(backend, &spec, bound, &batch, OUT, logits.data, dlogits[i].data));
        CHECK_OK(ops->loss(backend, &spec, bound, &batch, OUT, logits.data, NULL));
        CHECK_OK(ops->metrics_take(backend, &metrics[i]));
        ops->samples_close(backend, bound);
        ops->close(backend);
    }
    struct buffer hwc = turned(&x[0], samples.shape, true);
    compare(kernels->isa, "gathered x", &x[1], &hwc);
    compare(kernels->isa, "dlogits", &dlogits[1], &dlogits[0]);
    CHECK_NEAR(metrics[1].loss_sum, metrics[0].loss_sum, 1e-9 * fabs(metrics[0].loss_sum));
    CHECK_NEAR(metrics[1].n_correct, metrics[0].n_correct, 1e-9 * fabs(metrics[0].n_correct));
    CHECK_NEAR(metrics[1].n_samples, 8, 0);
    BUFFERS_CLOSE(&x[0], &x[1], &dlogits[0], &dlogits[1], &hwc, &targets, &logits);
}

static void check_update(const struct dt_update *update, bool with_states)
{
    const size_t n = 70007;
    struct buffer params = buffer_random(n, 8, 0), grads = buffer_random(n, 8, 1),
                  states[2] = {buffer_random(n, 4, 0), buffer_open(n)};
    struct buffer got[2][3];
    for (size_t i = 0; i < n; i++) {
        states[1].data[i] = fabsf(draw_eighths(3));
    }
    for (int i = 0; i < 2; i++) {
        const struct dt_backend_ops *ops = i == 0 ? &dt_ref_backend : &dt_cpu_backend;
        struct dt_backend *backend = backend_open(ops, 2);
        got[i][0] = copy_of(&params);
        got[i][1] = copy_of(&states[0]);
        got[i][2] = copy_of(&states[1]);
        CHECK_OK(ops->optimizer_step(backend, update, n, got[i][0].data, grads.data,
                                     with_states ? got[i][1].data : NULL,
                                     with_states ? got[i][2].data : NULL));
        ops->close(backend);
    }
    for (int j = 0; j < 3; j++) {
        compare(kernels->isa, "parameters or optimizer state", &got[1][j], &got[0][j]);
        BUFFERS_CLOSE(&got[0][j], &got[1][j]);
    }
    BUFFERS_CLOSE(&params, &grads, &states[0], &states[1]);
}

/* With weights that are zero, a step of rate 1 leaves minus the clipped gradient, whose norm is the
 * limit; shorter ones stay. */
static void check_clipping(void)
{
    struct buffer grads = buffer_random(10001, 100, 0), got[2];
    for (size_t n = 0; n <= grads.n; n += n < 40 ? 1 : 997) {
        for (int clip = 0; clip < 3; clip++) {
            const float limits[] = {0, 0.5f, 1e6f};
            const struct dt_update update = {
                .grad_scale = 0.25f, .clip_norm = limits[clip], .lr = 1};
            double norm = 0;
            for (int i = 0; i < 2; i++) {
                const struct dt_backend_ops *ops = i == 0 ? &dt_ref_backend : &dt_cpu_backend;
                struct dt_backend *backend = backend_open(ops, 2);
                got[i] = buffer_open(n);
                CHECK_OK(
                    ops->optimizer_step(backend, &update, n, got[i].data, grads.data, NULL, NULL));
                ops->close(backend);
            }
            for (size_t i = 0; i < n; i++) {
                norm += (double)got[1].data[i] * got[1].data[i];
            }
            snprintf(case_text, sizeof case_text, "clipping %zu numbers to %g", n,
                     (double)limits[clip]);
            CHECK(clip != 1 || n < 2 || fabs(sqrt(norm) - 0.5) < 1e-4);
            compare(kernels->isa, "the step", &got[1], &got[0]);
            BUFFERS_CLOSE(&got[0], &got[1]);
        }
    }
    buffer_close(&grads, "grads");
}

static void check_isa_choice(void)
{
    struct dt_backend *backend;
    const struct dt_backend_options options = {.n_threads = 1};
    const char *isas[DT_CPU_MAX_ISAS];
    const int n_isas = dt_cpu_isa_list(isas);
    setenv("DTRAIN_ISA", "x86-64-v9", 1);
    CHECK_FAILS(dt_cpu_backend.open(&options, &backend), DT_CONFIG, "DTRAIN_ISA=x86-64-v9");
    for (int i = 0; i < n_isas; i++) {
        setenv("DTRAIN_ISA", isas[i], 1);
        CHECK_TEXT(dt_cpu_isa(), isas[i]);
        CHECK_OK(dt_cpu_backend.open(&options, &backend));
        CHECK_HAS(backend->description, isas[i]);
        dt_cpu_backend.close(backend);
    }
    unsetenv("DTRAIN_ISA");
    CHECK_TEXT(dt_cpu_isa(), isas[0]);
}

/* Unit by unit what base/rng.h says, of 8 bits and of 16; a million of them, so that numbers
 * equal to the threshold are among them.
 */
static void check_dropout_masks(void)
{
    enum { UNITS = 1000003 };
    static const uint32_t thresholds[] = {1, 256, 16384, 19661, 40000, 65280, 65535, 65536};
    static uint8_t keep[UNITS + 1];
    for (uint32_t i = 0; i < sizeof thresholds / sizeof thresholds[0]; i++) {
        const struct dt_dropout_key key = {.seed = 0x123456789abcdef0u,
                                           .stream = 5 + i,
                                           .epoch = 3,
                                           .sample = 0xfedcba98u,
                                           .threshold = thresholds[i]};
        struct dt_rng4 words = {{0}};
        const uint32_t step = key.threshold % 256 == 0 ? 256 : 1;
        uint32_t n_equal = 0;
        keep[UNITS] = 77;
        kernels->dropout_mask(&key, UNITS, keep);
        for (uint32_t unit = 0; unit < UNITS; unit++) {
            if (unit % 8 == 0) {
                words = dt_dropout_words(key.seed, key.stream, key.epoch, key.sample, unit,
                                         key.threshold);
            }
            CHECK_INT(keep[unit], dt_dropout_keeps(words, unit, key.threshold));
            n_equal += dt_dropout_keeps(words, unit, key.threshold) &&
                       !dt_dropout_keeps(words, unit, key.threshold + step);
        }
        CHECK(n_equal > 0 || key.threshold == 65536);
        CHECK_INT(keep[UNITS], 77);
    }
}

static void check_refused(const struct dt_backend_ops *ops, enum dt_precision precision)
{
    struct dt_backend *backend;
    const struct dt_backend_options options = {.n_threads = 1, .precision = precision};
    CHECK_FAILS(ops->open(&options, &backend), DT_UNAVAILABLE, "\"precision\": \"f32\"");
}

static void check_all(void)
{
    static const struct dt_model_spec classes = {.loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY},
                                      smooth = {.label_smoothing = 0.125},
                                      errors = {.loss = DT_LOSS_MEAN_SQUARED_ERROR},
                                      absolute = {.loss = DT_LOSS_MEAN_ABSOLUTE_ERROR};
    check_refused(&dt_cpu_backend, DT_PRECISION_TF32);
    if (strcmp(kernels->isa, "x86-64-v4") != 0) { /* bf16 goes with AMX: test_bf16.c */
        check_refused(&dt_cpu_backend, DT_PRECISION_BF16);
    }
    check_gather_and_loss(classes, (struct dt_shape){3, 4, 5});
    check_gather_and_loss(smooth, (struct dt_shape){3, 4, 5});
    check_gather_and_loss(errors, (struct dt_shape){1, 5, 11});
    check_gather_and_loss(errors, (struct dt_shape){37, 1, 1});
    check_gather_and_loss(absolute, (struct dt_shape){37, 1, 1});
    for (int k = 0; k < N_UPDATE_CASES; k++) {
        check_update(&update_cases[k].update, update_cases[k].n_states > 0);
    }
    check_clipping();
    check_dropout_masks();
}

int main(void)
{
    check_isa_choice();
    check_refused(&dt_ref_backend, DT_PRECISION_TF32);
    check_refused(&dt_ref_backend, DT_PRECISION_BF16);
    on_every_isa(check_all);
    return 0;
}
