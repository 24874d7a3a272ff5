/* Our own kernels, and products of cuBLAS, against the reference: gathering, blocks without cuDNN,
 * losses, sums and optimizers, over odd sizes, NaN and infinity. scripts/gpu-check runs it first,
 * and under compute-sanitizer: it opens no plan of cuDNN's. */
#include "tests/cuda/gpu_blocks.h"

#include "cuda/kernels/kernels.h"

/* ---- blocks */

/* A convolution of the samples themselves. */
static void check_first_conv(struct dt_shape in, int filters, int kernel, int n)
{
    struct dt_model_spec spec = {.input = in, .loss = DT_LOSS_MEAN_SQUARED_ERROR};
    const struct dt_layer_spec conv =
        LAYER(CONV2D, .size = filters, .kernel = kernel, .stride = 1 + (int)draw(3),
              .padding = DT_PADDING_VALID - (int)draw(2),
              .activation = (enum dt_activation)draw(N_ACTIVATIONS));
    if (filters * in.c * kernel * kernel > DT_CUDA_FIRST_CONV_WEIGHTS) {
        return;
    }
    add_layer(&spec, conv);
    if (in.h >= kernel + 6) {
        add_rest(&spec);
    } else {
        add_layer(&spec, (struct dt_layer_spec)LAYER(FLATTEN));
    }
    snprintf(case_text, sizeof case_text,
             "first conv %dx%dx%d to %d, kernel %d, stride %d, padding %d, activation %d", in.c,
             in.h, in.w, filters, kernel, conv.stride, conv.padding, conv.activation);
    check_model(&spec, n, false);
}

static void check_first_convs(void)
{
    static const int filters[] = {1, 6, 8, 10, 32}, kernels[] = {1, 2, 3, 5};
    for (int i = 0; i < 24; i++) {
        const int kernel = kernels[draw(4)], one = draw(8) == 0 ? 0 : 6;
        check_first_conv((struct dt_shape){1 + (int)draw(4), kernel + one + (int)draw(9),
                                           kernel + one + (int)draw(9)},
                         filters[draw(5)], kernel, 0);
    }
    check_first_conv((struct dt_shape){1, 28, 28}, 32, 3, 2); /* more places than threads */
    check_first_conv((struct dt_shape){3, 32, 32}, 64, 3, 1);
    check_first_conv((struct dt_shape){1, 3, 2}, 8, 2, 1060); /* more images than blocks */
}

/* An activation, a pool and dropout behind a flatten or before it, without a linear operation. */
static void check_tail(struct dt_shape in, int n, bool strange)
{
    struct dt_model_spec spec = {.input = in, .loss = DT_LOSS_MEAN_SQUARED_ERROR};
    for (int i = 0; i < 2; i++) { /* of the second the gradient of its input is wanted */
        add_layer(&spec, draw_activation());
        if (i == 1 && in.h > 5) {
            add_pool_and_dropout(&spec, 8);
        } else {
            add_dropout(&spec);
        }
    }
    add_layer(&spec, (struct dt_layer_spec)LAYER(FLATTEN));
    add_layer(&spec, (struct dt_layer_spec)DENSE(2, NONE)); /* a model without weights is refused */
    snprintf(case_text, sizeof case_text, "tail of %d, %dx%dx%d, strange %d", n, in.c, in.h, in.w,
             strange);
    check_model(&spec, n, strange);
}

static void check_tails(void)
{
    static const int channels[] = {1, 3, 8, 10, 16, 24, 40};
    for (int i = 0; i < 35; i++) {
        check_tail((struct dt_shape){channels[i % 7], 6 + (int)draw(9), 6 + (int)draw(9)}, 0,
                   i % 3 == 0);
    }
    if (mode->precision == DT_PRECISION_TF32) {
        return; /* as f32 */
    }
    check_tail((struct dt_shape){1, 1, 1}, MOST, false);
    check_tail((struct dt_shape){257, 1, 1}, 5, true);    /* channels that fill a row of blocks, */
    check_tail((struct dt_shape){65536, 1, 1}, 5, false); /* or leave room for few rows of sums */
}

/* n_last: outputs of the following head. */
static void check_dense(int n_in, int n_out, int n_last, int n)
{
    struct dt_model_spec spec = {.input = {n_in, 1, 1}, .loss = DT_LOSS_MEAN_SQUARED_ERROR};
    add_layer(&spec,
              (struct dt_layer_spec)LAYER(DENSE, .size = n_out,
                                          .activation = (enum dt_activation)draw(N_ACTIVATIONS)));
    add_dropout(&spec);
    add_layer(&spec, (struct dt_layer_spec)DENSE(n_last, NONE));
    snprintf(case_text, sizeof case_text, "dense %d to %d to %d", n_in, n_out, n_last);
    check_model(&spec, n, false);
}

static void check_denses(void)
{
    static const int inputs[] = {1, 2, 5, 17, 33, 100, 300, 500}, units[] = {1, 3, 16, 33},
                     outputs[] = {1, 2, 10, 16, 17, 32};
    for (int i = 0; i < 8 * 4; i++) {
        check_dense(inputs[i / 4], units[i % 4], outputs[i % 6], 0);
    }
    check_dense(5, 7, DT_CUDA_HEAD_OUTPUTS + 1, 0); /* more than the head's kernel handles */
    check_dense(3, DT_CUDA_HEAD_INPUTS + 1, 2, 0);
    check_dense(3, DT_CUDA_HEAD_INPUTS, DT_CUDA_HEAD_OUTPUTS, 0);
    check_dense(2, 5, 3, 4200); /* more tiles of samples than slices */
}

/* ---- the rest, by the same calls on both backends */

static float *lent(struct dt_backend *backend, const struct buffer *from)
{
    return to_gpu(backend, from, (struct dt_shape){(int)from->n + 1, 1, 1}, 1, false);
}

static struct buffer taken(struct dt_backend *backend, float *memory, size_t n)
{
    struct buffer to = from_gpu(backend, memory, (struct dt_shape){(int)n, 1, 1}, 1, false);
    backend->ops->free(backend, memory);
    return to;
}

struct loss_case {
    struct dt_model model; /* a dense layer, with the loss in one kernel if it is a head */
    struct dt_samples samples;
    struct dt_batch batch;
    struct buffer params, x;
};

struct loss_results {
    struct buffer logits, dlogits;
    struct dt_metrics both, alone; /* with the gradient, and without, and so without smoothing */
};

static struct loss_results loss_by(struct dt_backend *backend, struct loss_case *k)
{
    const struct dt_backend_ops *ops = backend->ops;
    const int n_out = k->samples.n_classes;
    const size_t n = (size_t)k->batch.n * (size_t)n_out;
    const int n_part = k->batch.n / 10 + 1; /* so that more batches than slots are under way */
    const struct dt_pass pass = {.batch = &k->batch, .training = true};
    struct dt_block_state *state;
    struct dt_bound_samples *bound;
    struct buffer zeros = buffer_open(n);
    struct loss_results out;
    CHECK_OK(ops->block_open(backend, &k->model, 0, k->batch.n > 0 ? k->batch.n : 1, &state));
    CHECK_OK(ops->samples_open(backend, &k->samples, &bound));
    float *params = lent(backend, &k->params), *x = lent(backend, &k->x),
          *all = lent(backend, &k->x);
    float *logits = lent(backend, &zeros), *dlogits = lent(backend, &zeros);
    for (int alone = 0; alone < 2; alone++) {
        for (int i = 0; i < k->batch.n; i += n_part) {
            const int n_left = k->batch.n - i;
            const struct dt_batch part = {.n = n_left < n_part ? n_left : n_part,
                                          .rows = k->batch.rows + i,
                                          .ids = k->batch.ids + i};
            CHECK_OK(ops->gather(backend, bound, &part, x + i * k->model.spec.input.c));
        }
        CHECK_OK(ops->gather(backend, bound, &k->batch, all));
        CHECK_OK(ops->block_forward(state, params, x, logits, &pass));
        CHECK_OK(ops->loss(backend, &k->model.spec, bound, &k->batch, n_out, logits,
                           alone ? NULL : dlogits));
        CHECK_OK(ops->metrics_take(backend, alone ? &out.alone : &out.both));
    }
    out.logits = taken(backend, logits, n);
    out.dlogits = taken(backend, dlogits, n);
    ops->free(backend, params);
    ops->free(backend, x);
    ops->free(backend, all);
    ops->samples_close(backend, bound);
    ops->block_close(state);
    buffer_close(&zeros, "zeros");
    return out;
}

static void loss_results_close(struct loss_results *r)
{
    BUFFERS_CLOSE(&r->logits, &r->dlogits);
}

static bool are_near(double a, double e)
{
    return a == e || (isnan(a) && isnan(e)) || fabs(a - e) <= 1e-5 * fabs(e);
}

/* The number of correct answers is whole, and so exact; of targets it is a sum of squares. */
static void check_metrics(const struct dt_metrics *a, const struct dt_metrics *e)
{
    CHECK_MESSAGE(a->n_samples == e->n_samples && are_near(a->n_correct, e->n_correct) &&
                      are_near(a->loss_sum, e->loss_sum),
                  "%s: loss %g, correct %g of %g; the reference has %g, %g of %g", case_text,
                  a->loss_sum, a->n_correct, a->n_samples, e->loss_sum, e->n_correct, e->n_samples);
}

/* strange: 1: NaN and infinity among the inputs; 2: one output of each sample is NaN. */
static void check_loss(enum dt_loss loss, int n, int n_in, int n_out, int strange)
{
    enum { N_SET = 6 };
    static uint16_t labels[N_SET];
    const struct dt_model_spec spec = {
        .input = {n_in, 1, 1},
        .layers = {DENSE(n_out, NONE)},
        .n_layers = 1,
        .loss = loss,
        .label_smoothing = loss != DT_LOSS_SOFTMAX_CROSS_ENTROPY ? 0 : (double)draw(2) * 0.125};
    static struct loss_case k;
    static uint32_t rows[MOST];
    struct buffer values = halves(N_SET * (size_t)n_in, 0),
                  targets = halves(N_SET * (size_t)n_out, 0);
    snprintf(case_text, sizeof case_text, "loss %d of %d samples, %d to %d, strange %d", loss, n,
             n_in, n_out, strange);
    CHECK_OK(dt_model_lower(&spec, &k.model));
    for (int i = 0; i < N_SET; i++) {
        labels[i] = (uint16_t)draw((uint32_t)n_out);
    }
    for (int i = 0; i < n; i++) {
        rows[i] = draw(N_SET);
    }
    k.params = halves(k.model.arena_elems, 0);
    if (strange == 1) {
        add_strange(&values);
    }
    if (strange == 2) {
        k.params.data[k.model.params[k.model.blocks[0].bias].offset + 1] = NAN;
    }
    k.x = buffer_open((size_t)n * (size_t)n_in);
    k.samples = (struct dt_samples){.n = N_SET,
                                    .shape = {n_in, 1, 1},
                                    .values = values.data,
                                    .labels = loss != DT_LOSS_SOFTMAX_CROSS_ENTROPY ? NULL : labels,
                                    .n_classes = n_out,
                                    .targets = targets.data,
                                    .n_targets = n_out};
    k.batch = (struct dt_batch){.n = n, .rows = rows, .ids = rows};
    struct dt_backend *ref = backend_open(&dt_ref_backend, 1);
    struct loss_results expected = loss_by(ref, &k), first = loss_by(gpu, &k),
                        second = loss_by(gpu, &k);
    compare_within(mode, "logits", &first.logits, &expected.logits);
    compare_within(mode, "dlogits", &first.dlogits, &expected.dlogits);
    check_same_bits("dlogits", &first.dlogits, &second.dlogits);
    check_metrics(&first.both, &expected.both);
    check_metrics(&first.alone, &expected.alone);
    CHECK(memcmp(&first.both, &second.both, sizeof first.both) == 0);
    ref->ops->close(ref);
    loss_results_close(&expected);
    loss_results_close(&first);
    loss_results_close(&second);
    BUFFERS_CLOSE(&values, &targets, &k.params, &k.x);
}

static void check_losses(void)
{
    static const int ns[] = {0, 1, 9}, outputs[] = {2, 10, 32, 33, 1000};
    for (int i = 0; i < 5 * 3 * 3; i++) {
        const int n_in = 1 + (int)draw(40);
        check_loss(DT_LOSS_SOFTMAX_CROSS_ENTROPY, ns[i % 3], n_in, outputs[i / 9], i / 3 % 3);
        check_loss(DT_LOSS_MEAN_SQUARED_ERROR, ns[i % 3], n_in, outputs[i / 9], i / 3 % 3);
        check_loss(DT_LOSS_MEAN_ABSOLUTE_ERROR, ns[i % 3], n_in, outputs[i / 9], i / 3 % 3);
    }
    check_loss(DT_LOSS_SOFTMAX_CROSS_ENTROPY, 600, 1, 3, 0); /* more than threads; many ties */
    check_loss(DT_LOSS_SOFTMAX_CROSS_ENTROPY, 4200, 5, 3, 0);
}

/* A step of each rule, from an address that misses its alignment by `shift` numbers. */
static void check_update(const struct dt_update *update, int n_states, size_t n, size_t shift,
                         bool strange)
{
    struct buffer before[4], after[2][4]; /* parameters, two states, gradients */
    struct dt_backend *backends[] = {backend_open(&dt_ref_backend, 1), gpu};
    snprintf(case_text, sizeof case_text, "optimizer %d on %zu, clip %g, shift %zu, strange %d",
             update->type, n, (double)update->clip_norm, shift, strange);
    for (int i = 0; i < 4; i++) {
        before[i] = buffer_random(n + shift, 16, 0);
        for (size_t k = 0; k < n + shift && i == 2; k++) {
            before[i].data[k] = fabsf(before[i].data[k]);
        }
    }
    if (strange) {
        add_strange(&before[0]);
        add_strange(&before[3]);
    }
    for (int b = 0; b < 2; b++) {
        float *at[4];
        double sum;
        for (int i = 0; i < 4; i++) {
            at[i] = lent(backends[b], &before[i]);
        }
        CHECK_OK(backends[b]->ops->optimizer_step(
            backends[b], update, n, at[0] + shift, at[3] + shift,
            n_states > 0 ? at[1] + shift : NULL, n_states > 1 ? at[2] + shift : NULL));
        CHECK_OK(backends[b]->ops->sum_squares(backends[b], n, at[3] + shift, &sum));
        for (int i = 0; i < 4; i++) {
            after[b][i] = taken(backends[b], at[i], n + shift);
        }
        after[b][3].data[0] = (float)sum;
    }
    for (int i = 0; i < 4; i++) {
        compare_within(mode, "a result of the step", &after[1][i], &after[0][i]);
        BUFFERS_CLOSE(&before[i], &after[0][i], &after[1][i]);
    }
    backends[0]->ops->close(backends[0]);
}

static void check_updates(void)
{
    static const size_t ns[] = {1, 3, 4, 5, 255, 1024, 1027, 10001};
    for (size_t i = 0; i < 8 * 2 * N_UPDATE_CASES; i++) { /* with weight decay and without */
        struct dt_update u = update_cases[i / 2 % N_UPDATE_CASES].update;
        u.weight_decay *= (float)(i % 2);
        check_update(&u, update_cases[i / 2 % N_UPDATE_CASES].n_states, ns[i / 2 / N_UPDATE_CASES],
                     i / 3 % 2, i % 3 == 0);
    }
    check_update(&update_cases[0].update, 2, (size_t)4096 * DT_GPU_SUM_SCRATCH + 5, 0,
                 false); /* more blocks than scratch */
}

int main(void)
{
    for (mode = modes; mode < modes + N_MODES; mode++) {
        gpu = open_gpu(mode);
        check_first_convs(); /* each with other draws */
        check_tails();
        check_denses();
        if (mode->precision == DT_PRECISION_F32) {
            check_losses();
            check_updates();
        }
        gpu->ops->close(gpu);
        CHECK_INT(fake_counts().n_live_bytes, 0);
    }
    printf("%d blocks, %d of bytes, %d without a linear operation\n", n_cases, n_bytes_read,
           n_none);
    CHECK(n_bytes_read > 100 && n_partial > 50 && n_empty > 20 && n_accumulated > 100);
    return 0;
}
