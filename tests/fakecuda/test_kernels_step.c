/* Kernels of the loss, of sums and of optimizers, as test_kernels.c has those of blocks: against the reference backend, over odd
 * sizes, NaN and infinity, with guards around what they write, and twice, for the same bits. */
#include "tests/fakecuda/numbers.h"

/* ---- loss, against the reference backend */

struct loss_case {
    enum dt_loss loss;
    int n, n_outputs;
    float *logits;
    struct dt_samples samples;
    uint32_t *rows;
};

static void reference_loss(const struct loss_case *k, float *dlogits, struct dt_metrics *metrics)
{
    const struct dt_backend_ops *ops = &dt_ref_backend;
    const struct dt_backend_options options = {.n_threads = 1};
    const struct dt_batch batch = {.n = k->n, .rows = k->rows, .ids = k->rows};
    struct dt_backend *backend;
    struct dt_bound_samples *bound;
    CHECK_INT(ops->open(&options, &backend), DT_OK);
    CHECK_INT(ops->samples_open(backend, &k->samples, &bound), DT_OK);
    CHECK_INT(ops->loss(backend, k->loss, bound, &batch, k->n_outputs, k->logits, dlogits), DT_OK);
    CHECK_INT(ops->metrics_take(backend, metrics), DT_OK);
    ops->samples_close(backend, bound);
    ops->close(backend);
}

/* Into metrics that are already 100, 10 and 20. */
static struct dt_gpu_metrics run_loss(const struct loss_case *k, float *dlogits)
{
    const size_t n = (size_t)k->n, n_logits = n * (size_t)k->n_outputs, n_set = k->samples.n;
    struct dt_gpu_metrics metrics = {100, 10, 20};
    struct device logits = numbers_open(k->logits, n_logits, DT_GPU_F32, 0), to = numbers_open(NULL, n_logits, DT_GPU_F32, 0);
    struct device rows = device_open(k->rows, n * sizeof *k->rows, 0), scratch = device_open(NULL, 2 * n * sizeof(double), 0);
    struct device labels = device_open(k->samples.labels, n_set * sizeof *k->samples.labels, 0);
    struct device targets = numbers_open(k->samples.targets, n_set * (size_t)k->n_outputs, DT_GPU_F32, 0);
    struct device sums = device_open(&metrics, sizeof metrics, 0);
    const struct dt_gpu_samples samples = {.labels = labels.data, .targets = targets.data};
    OK(dt_gpu_loss(stream, k->loss, &samples, rows.data, k->n, k->n_outputs, logits.data, dlogits != NULL ? to.data : NULL,
                   scratch.data, sums.data));
    struct device *inputs[] = {&logits, &rows, &scratch, &labels, &targets};
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        device_close(inputs[i], NULL);
    }
    device_close(&to, dlogits);
    device_close(&sums, &metrics);
    return metrics;
}

static void near_or_same(const char *what, double actual, double expected)
{
    const bool same = actual == expected || (isnan(actual) && isnan(expected)) || fabs(actual - expected) <= 1e-11 * fabs(expected);
    if (!same) {
        CHECK_FAIL("%s: %s is %.17g, expected %.17g", case_text, what, actual, expected);
    }
}

static int largest(const float *z, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) {
        best = z[i] > z[best] ? i : best;
    }
    return best;
}

static void check_loss(enum dt_loss loss, int n, int n_outputs, int strange)
{
    enum { N = 6 };
    snprintf(case_text, sizeof case_text, "loss %d of %d samples, %d outputs, strange %d", loss, n, n_outputs, strange);
    const size_t n_logits = (size_t)n * (size_t)n_outputs;
    uint16_t labels[N];
    uint32_t *rows = malloc((size_t)n * sizeof *rows + 1);
    CHECK(rows != NULL);
    for (int i = 0; i < n; i++) {
        rows[i] = draw(N);
    }
    for (int i = 0; i < N; i++) {
        labels[i] = (uint16_t)draw((uint32_t)n_outputs);
    }
    float *targets = random_floats((size_t)N * (size_t)n_outputs, 16);
    struct loss_case k = {.loss = loss, .n = n, .n_outputs = n_outputs, .rows = rows, .logits = random_floats(n_logits, 20)};
    k.samples = (struct dt_samples){.n = N, .labels = labels, .targets = targets};
    for (int i = 0; i < n && strange > 0; i++) {
        float *z = k.logits + (size_t)i * (size_t)n_outputs;
        add_strange(z, (size_t)n_outputs);
        z[0] = draw(2) == 0 ? NAN : 1;
        if (strange == 2 && n_outputs > 1) {
            z[0] = 1;
            z[1] = NAN;
            z[n_outputs - 1] = 99;
        }
    }
    for (int i = 0; i < n; i += 2) { /* so that there are hits, which a NaN beside them does not change */
        labels[rows[i]] = (uint16_t)largest(k.logits + (size_t)i * (size_t)n_outputs, n_outputs);
    }
    float *expected = floats(n_logits), *actual = floats(n_logits), *again = floats(n_logits);
    struct dt_metrics sums;
    reference_loss(&k, expected, &sums);
    const struct dt_gpu_metrics metrics[] = {run_loss(&k, actual), run_loss(&k, again), run_loss(&k, NULL)};
    if (n > 0) {
        near("dlogits", actual, expected, n_logits, 1e-7);
        same_bits("dlogits", actual, again, n_logits);
    }
    for (int i = 0; i < 3; i++) {
        near_or_same("loss", metrics[i].loss_sum, 100 + sums.loss_sum);
        near_or_same("correct", metrics[i].n_correct, 10 + sums.n_correct);
        near_or_same("samples", metrics[i].n_samples, 20 + n);
        CHECK(memcmp(&metrics[i], &metrics[0], sizeof metrics[0]) == 0);
    }
    float *all[] = {targets, k.logits, expected, actual, again};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
    free(rows);
}

static void test_loss(void)
{
    static const int numbers[] = {0, 1, 9}, outputs[] = {2, 10, 32, 33, 1000};
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        for (size_t j = 0; j < sizeof numbers / sizeof numbers[0]; j++) {
            for (int strange = 0; strange < 3; strange++) {
                check_loss(DT_LOSS_SOFTMAX_CROSS_ENTROPY, numbers[j], outputs[i], strange);
                check_loss(DT_LOSS_MEAN_SQUARED_ERROR, numbers[j], i == 0 ? 1 : outputs[i], strange);
            }
        }
    }
    check_loss(DT_LOSS_SOFTMAX_CROSS_ENTROPY, 600, 3, 0); /* more samples than the last block has threads; many ties */
}

/* ---- sums and optimizers, against the reference backend */

static void check_sum_squares(size_t n)
{
    snprintf(case_text, sizeof case_text, "sum of squares of %zu", n);
    float *x = random_floats(n, 40);
    double expected, actual[2];
    for (size_t i = 0; i < n; i++) {
        x[i] /= 3;
    }
    expected = 0;
    for (size_t i = 0; i < n; i++) {
        expected += (double)x[i] * (double)x[i];
    }
    for (int again = 0; again < 2; again++) {
        struct device from = numbers_open(x, n, DT_GPU_F32, 0), to = device_open(NULL, sizeof(double), 0);
        struct device scratch = device_open(NULL, DT_GPU_SUM_SCRATCH * sizeof(double), 0);
        OK(dt_gpu_sum_squares(stream, n, from.data, scratch.data, to.data));
        device_close(&from, NULL);
        device_close(&scratch, NULL);
        device_close(&to, &actual[again]);
    }
    near_or_same("sum", actual[0], expected);
    CHECK(memcmp(&actual[0], &actual[1], sizeof actual[0]) == 0);
    free(x);
}

static void check_update(const struct dt_update *update, size_t n, bool with_states, size_t shift, bool strange)
{
    snprintf(case_text, sizeof case_text, "optimizer %d on %zu, momentum %g, nesterov %d, decay %g, shift %zu, strange %d",
             update->type, n, (double)update->momentum, update->nesterov, (double)update->weight_decay, shift, strange);
    float *grads = random_floats(n, 16), *before[3], *expected[3], *actual[2][3];
    for (int i = 0; i < 3; i++) {
        before[i] = random_floats(n, 16);
        expected[i] = floats(n);
        actual[0][i] = floats(n);
        actual[1][i] = floats(n);
    }
    for (size_t i = 0; i < n; i++) {
        before[2][i] = fabsf(before[2][i]);
    }
    if (strange) {
        add_strange(grads, n);
        add_strange(before[0], n);
    }
    for (int i = 0; i < 3; i++) {
        memcpy(expected[i], before[i], n * sizeof(float));
    }
    CHECK_INT(dt_ref_backend.optimizer_step(NULL, update, n, expected[0], grads, with_states ? expected[1] : NULL,
                                            with_states ? expected[2] : NULL),
              DT_OK);
    for (int again = 0; again < 2; again++) {
        struct device d[3], from = numbers_open(grads, n, DT_GPU_F32, 0), u = device_open(update, sizeof *update, 0);
        for (int i = 0; i < 3; i++) {
            d[i] = numbers_open(before[i], n, DT_GPU_F32, shift);
        }
        OK(dt_gpu_optimizer_step(stream, u.data, n, d[0].data, from.data, with_states ? d[1].data : NULL,
                                 with_states ? d[2].data : NULL));
        device_close(&from, NULL);
        device_close(&u, NULL);
        for (int i = 0; i < 3; i++) {
            device_close(&d[i], actual[again][i]);
        }
    }
    for (int i = 0; i < 3; i++) {
        near("a result of the step", actual[0][i], expected[i], n, 2e-6);
        same_bits("a result of the step", actual[0][i], actual[1][i], n);
        free(before[i]);
        free(expected[i]);
        free(actual[0][i]);
        free(actual[1][i]);
    }
    free(grads);
}

static void test_sums_and_optimizers(void)
{
    static const size_t numbers[] = {0, 1, 3, 4, 5, 255, 1024, 1027, 10001};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const size_t n = numbers[i], shift = i % 2 * 4;
        check_sum_squares(n);
        for (int decay = 0; decay < 2; decay++) {
            struct dt_update u = {.grad_scale = 0.5f, .lr = 0.125f, .weight_decay = (float)decay * 0.25f};
            check_update(&u, n, false, shift, decay == 0);
            u.momentum = 0.75f;
            check_update(&u, n, true, shift, decay == 1);
            u.nesterov = true;
            check_update(&u, n, true, 4 - shift, false);
            for (int type = DT_OPTIMIZER_ADAM; type <= DT_OPTIMIZER_ADAMW; type++) {
                const struct dt_update adam = {.type = (enum dt_optimizer_type)type,
                                               .grad_scale = 0.5f,
                                               .lr = 0.01f,
                                               .weight_decay = (float)decay * 0.25f,
                                               .one_minus_beta1 = 0.1f,
                                               .one_minus_beta2 = 0.001f,
                                               .epsilon = 1e-6f,
                                               .bias_correction1 = 0.19f,
                                               .bias_correction2 = 0.002f};
                check_update(&adam, n, true, type == DT_OPTIMIZER_ADAM ? shift : 4 - shift, decay == 0);
            }
        }
    }
    check_sum_squares(4097);
    check_sum_squares((size_t)4096 * DT_GPU_SUM_SCRATCH + 5); /* more blocks than there is scratch */
}

int main(void)
{
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    test_loss();
    test_sums_and_optimizers();
    OK(cudaStreamDestroy(stream));
    return 0;
}
