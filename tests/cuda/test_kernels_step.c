/* Kernels of the loss, of sums and of optimizers, as in test_kernels.c: against the reference
 * backend, over odd sizes, NaN and infinity, with guards around their results, and twice, for the
 * same bits. */
#include "tests/cuda/numbers.h"
#include "tests/lib/optimizer_step.h"

/* ---- loss, against the reference backend */

struct loss_case {
    struct dt_model_spec spec;
    int n, n_outputs;
    float *logits;
    struct dt_samples samples;
    uint32_t *rows;
    uint16_t *labels; /* of the samples */
};

static void reference_loss(const struct loss_case *k, float *dlogits, struct dt_metrics *metrics)
{
    const struct dt_backend_ops *ops = &dt_ref_backend;
    const struct dt_backend_options options = {.n_threads = 1};
    const struct dt_batch batch = {.n = k->n, .rows = k->rows, .ids = k->rows};
    struct dt_backend *backend;
    struct dt_bound_samples *bound;
    CHECK_OK(ops->open(&options, &backend));
    CHECK_OK(ops->samples_open(backend, &k->samples, &bound));
    CHECK_OK(ops->loss(backend, &k->spec, bound, &batch, k->n_outputs, k->logits, dlogits));
    CHECK_OK(ops->metrics_take(backend, metrics));
    ops->samples_close(backend, bound);
    ops->close(backend);
}

/* Adds to metrics that are already 100, 10 and 20. */
static struct dt_gpu_metrics run_loss(const struct loss_case *k, float *dlogits)
{
    const size_t n = (size_t)k->n, n_logits = n * (size_t)k->n_outputs, n_set = k->samples.n;
    struct dt_gpu_metrics metrics = {100, 10, 20};
    struct device logits = numbers_open(k->logits, n_logits, DT_GPU_F32, 0),
                  to = numbers_open(NULL, n_logits, DT_GPU_F32, 0);
    struct device rows = device_open(k->rows, n * sizeof *k->rows, 0),
                  scratch = device_open(NULL, 2 * n * sizeof(double), 0);
    struct device labels = device_open(k->samples.labels, n_set * sizeof *k->samples.labels, 0);
    struct device targets =
        numbers_open(k->samples.targets, n_set * (size_t)k->n_outputs, DT_GPU_F32, 0);
    struct device sums = device_open(&metrics, sizeof metrics, 0);
    const struct dt_gpu_samples samples = {.labels = labels.data, .targets = targets.data};
    OK(dt_gpu_loss(stream, &k->spec, &samples, rows.data, k->n, k->n_outputs, logits.data,
                   dlogits != NULL ? to.data : NULL, scratch.data, sums.data));
    DEVICES_CLOSE(&logits, &rows, &scratch, &labels, &targets);
    device_close(&to, dlogits);
    device_close(&sums, &metrics);
    return metrics;
}

/* Rows and labels by the draw. */
static struct loss_case draw_loss(struct dt_model_spec spec, int n, int n_outputs)
{
    enum { N_SET = 6 };
    struct loss_case k = {.spec = spec,
                          .n = n,
                          .n_outputs = n_outputs,
                          .rows = temporary((size_t)n * sizeof *k.rows + 1),
                          .labels = temporary(N_SET * sizeof *k.labels)};
    k.samples = (struct dt_samples){.n = N_SET, .labels = k.labels};
    for (int i = 0; i < n; i++) {
        k.rows[i] = draw(N_SET);
    }
    for (int i = 0; i < N_SET; i++) {
        k.labels[i] = (uint16_t)draw((uint32_t)n_outputs);
    }
    return k;
}

static void near_or_same(const char *what, double actual, double expected)
{
    const bool same = actual == expected || (isnan(actual) && isnan(expected)) ||
                      fabs(actual - expected) <= 1e-11 * fabs(expected);
    CHECK_MESSAGE(same, "%s: %s is %.17g, expected %.17g", case_text, what, actual, expected);
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
    snprintf(case_text, sizeof case_text, "loss %d of %d samples, %d outputs, strange %d", loss, n,
             n_outputs, strange);
    const size_t n_logits = (size_t)n * (size_t)n_outputs;
    struct loss_case k = draw_loss(
        (struct dt_model_spec){.loss = loss, .label_smoothing = draw(2) * 0.125}, n, n_outputs);
    k.samples.targets = random_floats(k.samples.n * (size_t)n_outputs, 16);
    k.logits = random_floats(n_logits, 20);
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
    for (int i = 0; i < n; i += 2) { /* makes hits, which a NaN beside them does not change */
        k.labels[k.rows[i]] =
            (uint16_t)largest(k.logits + (size_t)i * (size_t)n_outputs, n_outputs);
    }
    float *expected = floats(n_logits), *actual = floats(n_logits), *again = floats(n_logits);
    struct dt_metrics sums[3]; /* the last without a gradient, and so without smoothing */
    reference_loss(&k, expected, &sums[0]);
    sums[1] = sums[0];
    reference_loss(&k, NULL, &sums[2]);
    const struct dt_gpu_metrics metrics[] = {run_loss(&k, actual), run_loss(&k, again),
                                             run_loss(&k, NULL)};
    if (n > 0) {
        near("dlogits", actual, expected, n_logits, 1e-7);
        same_bits("dlogits", actual, again, n_logits);
    }
    for (int i = 0; i < 3; i++) {
        near_or_same("loss", metrics[i].loss_sum, 100 + sums[i].loss_sum);
        near_or_same("correct", metrics[i].n_correct, 10 + sums[i].n_correct);
        near_or_same("samples", metrics[i].n_samples, 20 + n);
    }
    CHECK(memcmp(&metrics[1], &metrics[0], sizeof metrics[0]) == 0);
    CHECK(k.spec.label_smoothing > 0 || memcmp(&metrics[2], &metrics[0], sizeof metrics[0]) == 0);
    temporaries_end();
}

static void test_loss(void)
{
    static const int numbers[] = {0, 1, 9}, outputs[] = {2, 10, 32, 33, 1000};
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        for (size_t j = 0; j < sizeof numbers / sizeof numbers[0]; j++) {
            for (int strange = 0; strange < 3; strange++) {
                check_loss(DT_LOSS_SOFTMAX_CROSS_ENTROPY, numbers[j], outputs[i], strange);
                check_loss(DT_LOSS_MEAN_SQUARED_ERROR, numbers[j], i == 0 ? 1 : outputs[i],
                           strange);
            }
        }
    }
    check_loss(DT_LOSS_SOFTMAX_CROSS_ENTROPY, 600, 3,
               0); /* more samples than the last block has threads; many ties */
}

/* ---- a head, against plain loops and the reference's loss */

struct head_case {
    int n, n_in, n_out;
    enum dt_gpu_type type;
    bool with_loss, with_dlogits, with_dx, accumulate;
    float *x, *weight, *bias, *before; /* before: the initial gradients, weights and then biases */
    struct loss_case loss;             /* its logits are the expected ones */
};

struct head_result {
    float *logits, *dlogits, *dx, *gradients;
    struct dt_gpu_metrics metrics;
};

static size_t n_gradients(const struct head_case *k)
{
    return (size_t)k->n_out * ((size_t)k->n_in + 1);
}

static struct head_result result_open(const struct head_case *k)
{
    const size_t n = (size_t)k->n;
    return (struct head_result){.logits = floats(n * (size_t)k->n_out),
                                .dlogits = floats(n * (size_t)k->n_out),
                                .dx = floats(n * (size_t)k->n_in),
                                .gradients = floats(n_gradients(k)),
                                .metrics = {100, 10, 20}};
}

/* Computes logits, and from dlogits dx and the gradients. */
static void plain_head(const struct head_case *k, struct head_result *r)
{
    const size_t n_in = (size_t)k->n_in, n_out = (size_t)k->n_out;
    for (size_t i = 0; i < n_gradients(k); i++) {
        r->gradients[i] = k->accumulate || k->n == 0 ? k->before[i] : 0;
    }
    for (size_t o = 0; o < (size_t)k->n * n_out; o++) {
        const size_t s = o / n_out, j = o % n_out;
        double sum = (double)k->bias[j];
        for (size_t i = 0; i < n_in; i++) {
            sum += (double)k->x[s * n_in + i] * (double)k->weight[j * n_in + i];
            r->dx[s * n_in + i] += r->dlogits[o] * k->weight[j * n_in + i];
            r->gradients[j * n_in + i] += r->dlogits[o] * k->x[s * n_in + i];
        }
        r->logits[o] = (float)sum;
        r->gradients[n_out * n_in + j] += r->dlogits[o];
    }
}

static struct head_result run_head(const struct head_case *k)
{
    const size_t n = (size_t)k->n, n_out = (size_t)k->n_out, n_weights = n_out * (size_t)k->n_in,
                 n_x = n * (size_t)k->n_in;
    struct head_result r = result_open(k);
    struct device x = numbers_open(k->x, n_x, k->type, 0),
                  weight = numbers_open(k->weight, n_weights, DT_GPU_F32, 0);
    struct device bias = numbers_open(k->bias, n_out, DT_GPU_F32, 0),
                  to_dx = numbers_open(NULL, n_x, k->type, 0);
    struct device gradients = numbers_open(k->before, n_gradients(k), DT_GPU_F32, 0);
    struct device logits = numbers_open(NULL, n * n_out, DT_GPU_F32, 0),
                  dlogits = numbers_open(NULL, n * n_out, DT_GPU_F32, 0);
    struct device rows = device_open(k->loss.rows, n * sizeof *k->loss.rows, 0),
                  metrics = device_open(&r.metrics, sizeof r.metrics, 0);
    struct device labels =
        device_open(k->loss.samples.labels, k->loss.samples.n * sizeof(uint16_t), 0);
    struct device scratch = scratch_open(dt_gpu_head_scratch(k->n_in, k->n_out, k->n));
    const struct dt_gpu_head head = {k->n_in, k->n_out, weight.data, bias.data};
    const struct dt_gpu_head_loss loss = {labels.data,
                                          rows.data,
                                          k->loss.spec.label_smoothing,
                                          k->with_dlogits ? dlogits.data : NULL,
                                          metrics.data,
                                          scratch.data};
    OK(dt_gpu_head_forward(stream, &head, k->n, k->type, x.data, logits.data,
                           k->with_loss ? &loss : NULL));
    numbers_close(&dlogits, DT_GPU_F32, n * n_out, r.dlogits);
    dlogits = numbers_open(k->with_loss && k->with_dlogits ? r.dlogits : k->loss.logits, n * n_out,
                           DT_GPU_F32, 0);
    float *db = (float *)gradients.data + n_weights;
    const struct dt_gpu_gradients to = {gradients.data, db, k->accumulate, scratch.data};
    OK(dt_gpu_head_backward(stream, &head, k->n, k->type, x.data, dlogits.data,
                            k->with_dx ? to_dx.data : NULL, &to));
    DEVICES_CLOSE(&x, &weight, &bias, &rows, &labels, &dlogits);
    scratch_close(&scratch);
    device_close(&logits, r.logits);
    numbers_close(&to_dx, k->type, n_x, r.dx);
    device_close(&gradients, r.gradients);
    device_close(&metrics, &r.metrics);
    return r;
}

static void compare_heads(const struct head_case *k, const struct head_result *actual,
                          const struct head_result *again, const struct head_result *expected)
{
    const size_t n_logits = (size_t)k->n * (size_t)k->n_out, n_x = (size_t)k->n * (size_t)k->n_in;
    near("logits", actual->logits, expected->logits, n_logits, 0);
    same_bits("logits", actual->logits, again->logits, n_logits);
    if (k->with_loss && k->with_dlogits) {
        near("dlogits", actual->dlogits, expected->dlogits, n_logits, 1e-6);
        same_bits("dlogits", actual->dlogits, again->dlogits, n_logits);
    }
    if (k->with_dx) {
        near("dx", actual->dx, expected->dx, n_x, k->type == DT_GPU_F32 ? 1e-5 : 1.0 / 256);
        same_bits("dx", actual->dx, again->dx, n_x);
    }
    near("gradients", actual->gradients, expected->gradients, n_gradients(k), 1e-4);
    same_bits("gradients", actual->gradients, again->gradients, n_gradients(k));
    near_or_same("loss", actual->metrics.loss_sum, expected->metrics.loss_sum);
    near_or_same("correct", actual->metrics.n_correct, expected->metrics.n_correct);
    near_or_same("samples", actual->metrics.n_samples, expected->metrics.n_samples);
    CHECK(memcmp(&actual->metrics, &again->metrics, sizeof actual->metrics) == 0);
}

static void check_head(int n, int n_in, int n_out, bool strange)
{
    const size_t n_logits = (size_t)n * (size_t)n_out;
    struct head_case k = {
        .n = n, .n_in = n_in, .n_out = n_out, .type = draw(2) == 0 ? DT_GPU_F32 : DT_GPU_BF16};
    k.with_loss = draw(4) > 0;
    k.with_dlogits = draw(4) > 0;
    k.with_dx = draw(4) > 0;
    k.accumulate = draw(2) == 0;
    snprintf(case_text, sizeof case_text,
             "head of %d samples, %d to %d, type %d, loss %d, dlogits %d, dx %d, accumulate %d, "
             "strange %d",
             n, n_in, n_out, k.type, k.with_loss, k.with_dlogits, k.with_dx, k.accumulate, strange);
    k.x = random_floats((size_t)n * (size_t)n_in, 8);
    k.weight = random_floats((size_t)n_out * (size_t)n_in, 8);
    k.bias = random_floats((size_t)n_out, 8);
    k.before = random_floats(n_gradients(&k), 8);
    if (strange) {
        add_strange(k.x, (size_t)n * (size_t)n_in);
    }
    k.loss = draw_loss((struct dt_model_spec){.label_smoothing = draw(2) * 0.25}, n, n_out);
    struct head_result expected = result_open(&k);
    plain_head(&k, &expected); /* for the logits */
    k.loss.logits = random_floats(n_logits, 8);
    memcpy(k.loss.logits, expected.logits, n_logits * sizeof(float));
    struct dt_metrics sums;
    reference_loss(&k.loss, k.with_dlogits ? expected.dlogits : NULL, &sums);
    if (!k.with_loss || !k.with_dlogits) {
        memcpy(expected.dlogits, k.loss.logits, n_logits * sizeof(float));
    }
    if (k.with_loss) {
        expected.metrics =
            (struct dt_gpu_metrics){100 + sums.loss_sum, 10 + sums.n_correct, 20 + n};
    }
    memset(expected.dx, 0, (size_t)n * (size_t)n_in * sizeof(float));
    plain_head(&k, &expected);
    struct head_result actual = run_head(&k), again = run_head(&k);
    compare_heads(&k, &actual, &again, &expected);
    temporaries_end();
}

static void test_head(void)
{
    static const int numbers[] = {0, 1, 8, 35, 70}, inputs[] = {1, 33, 128, 300},
                     outputs[] = {2, 10, 16, 17, 32};
    for (int i = 0; i < 100; i++) {
        check_head(numbers[i % 5], inputs[i / 5 % 4], outputs[i / 20], i % 7 == 0);
    }
    check_head(9, DT_CUDA_HEAD_INPUTS, DT_CUDA_HEAD_OUTPUTS, false);
    check_head(4200, 5, 3, false); /* more tiles of samples than slices */
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
        struct device from = numbers_open(x, n, DT_GPU_F32, 0),
                      to = device_open(NULL, sizeof(double), 0);
        struct device scratch = device_open(NULL, DT_GPU_SUM_SCRATCH * sizeof(double), 0);
        OK(dt_gpu_sum_squares(stream, n, from.data, scratch.data, to.data));
        DEVICES_CLOSE(&from, &scratch);
        device_close(&to, &actual[again]);
    }
    near_or_same("sum", actual[0], expected);
    CHECK(memcmp(&actual[0], &actual[1], sizeof actual[0]) == 0);
    temporaries_end();
}

static void check_update(const struct dt_update *update, size_t n, bool with_states, size_t shift,
                         bool strange)
{
    snprintf(case_text, sizeof case_text,
             "optimizer %d on %zu, momentum %g, nesterov %d, decay %g, shift %zu, strange %d",
             update->type, n, (double)update->momentum, update->nesterov,
             (double)update->weight_decay, shift, strange);
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
    CHECK_OK(dt_ref_backend.optimizer_step(NULL, update, n, expected[0], grads,
                                           with_states ? expected[1] : NULL,
                                           with_states ? expected[2] : NULL));
    for (int again = 0; again < 2; again++) {
        struct device d[3], from = numbers_open(grads, n, DT_GPU_F32, 0),
                            u = device_open(update, sizeof *update, 0);
        for (int i = 0; i < 3; i++) {
            d[i] = numbers_open(before[i], n, DT_GPU_F32, shift);
        }
        const struct dt_gpu_packs none = {0};
        OK(dt_gpu_optimizer_step(stream, u.data, n, d[0].data, from.data,
                                 with_states ? d[1].data : NULL, with_states ? d[2].data : NULL,
                                 &none));
        DEVICES_CLOSE(&from, &u);
        for (int i = 0; i < 3; i++) {
            device_close(&d[i], actual[again][i]);
        }
    }
    for (int i = 0; i < 3; i++) {
        near("a result of the step", actual[0][i], expected[i], n, 2e-6);
        same_bits("a result of the step", actual[0][i], actual[1][i], n);
    }
    temporaries_end();
}

/* A step of one times the gradient over a filter of 3 x 2 x 3 x 3 at element 5, whose packed
 * gradient is read: both copies of the weight get the result, and the elements around it are
 * updated as usual. */
static void check_packed(enum dt_gpu_type type)
{
    enum { K = 3, C = 2, TAPS = 9, N = K * C * TAPS, BEGIN = 5, ALL = BEGIN + N + 4 };
    const struct dt_update update = {.type = DT_OPTIMIZER_SGD, .grad_scale = 1, .lr = 1};
    float *w = random_floats(ALL, 16), *g = random_floats(ALL, 16), *packed = random_floats(N, 16),
          after[ALL], copy[N];
    struct device u = device_open(&update, sizeof update, 0),
                  params = numbers_open(w, ALL, DT_GPU_F32, 0);
    struct device grads = numbers_open(g, ALL, DT_GPU_F32, 0), to = numbers_open(NULL, N, type, 0);
    struct device from = numbers_open(packed, N, type, 0);
    snprintf(case_text, sizeof case_text, "packed companions, type %d", type);
    const struct dt_gpu_pack pack = {
        .filter = {K, C, 3}, .begin = BEGIN, .weight = to.data, .gradient = from.data};
    const struct dt_gpu_packs packs = {.n = 1, .type = type, .at = {pack}};
    OK(dt_gpu_optimizer_step(stream, u.data, ALL, params.data, grads.data, NULL, NULL, &packs));
    device_close(&params, after);
    numbers_close(&to, type, N, copy);
    DEVICES_CLOSE(&grads, &from, &u);
    for (size_t i = 0; i < ALL; i++) {
        const size_t j = i - BEGIN, k = j / TAPS / C, c = j / TAPS % C,
                     at = (k * TAPS + j % TAPS) * C + c;
        const bool inside = i >= BEGIN && j < N;
        CHECK_NEAR(after[i], w[i] - (inside ? packed[at] : g[i]), 0); /* eighths: exact */
        CHECK(!inside || copy[at] == after[i]);
    }
    temporaries_end();
}

static void test_sums_and_optimizers(void)
{
    static const size_t numbers[] = {0, 1, 3, 4, 5, 255, 1024, 1027, 10001};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const size_t n = numbers[i], shift = i % 2 * 4;
        check_sum_squares(n);
        for (int k = 0; k < 2 * N_UPDATE_CASES; k++) { /* each with weight decay and without */
            struct dt_update u = update_cases[k / 2].update;
            u.weight_decay *= (float)(k % 2);
            if (u.clip_norm == 0) { /* clipping is in other kernels */
                check_update(&u, n, update_cases[k / 2].n_states > 0, k % 4 < 2 ? shift : 4 - shift,
                             k % 3 == 0);
            }
        }
    }
    check_sum_squares(4097);
    check_sum_squares((size_t)4096 * DT_GPU_SUM_SCRATCH + 5); /* more blocks than scratch */
}

int main(void)
{
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    test_loss();
    test_head();
    test_sums_and_optimizers();
    check_packed(DT_GPU_F32);
    check_packed(DT_GPU_BF16);
    OK(cudaStreamDestroy(stream));
    return 0;
}
