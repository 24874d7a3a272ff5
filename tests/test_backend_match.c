/* Every kind of block of the cpu backend against the reference, on every instruction set of this machine.
 *
 * Inputs, weights and gradients are small multiples of 1/8, so that almost every sum is exact in float as in double: both backends
 * then agree on ties, and the tolerance only has to cover tanh, sigmoid and averages. Buffers have guard words on both sides, NaNs
 * that no result may read nor write. The reference keeps C H W order, the cpu backend H W C until a flatten: converted here. */
#include "check.h"

#include "base/rng.h"
#include "cpu/cpu_isa.h"
#include "model/backend.h"

#define CAPACITY 5
#define GUARD 64 /* floats; also the 256 readable bytes past the end that the contract grants */
#define GUARD_WORD 0x7fc0deadu

static uint32_t draw_counter;

static uint32_t draw(uint32_t below)
{
    const struct dt_rng4 counter = {{draw_counter++, 0, 0, 0}};
    return dt_philox4x32(counter, 1234, 5678).v[0] % below;
}

static float draw_eighths(int largest)
{
    return ((float)draw((uint32_t)(2 * largest + 1)) - (float)largest) / 8.0f;
}

/* ---- buffers */

struct buffer {
    size_t n;
    float *memory, *data;
};

static void fill_guards(struct buffer *b)
{
    const uint32_t word = GUARD_WORD;
    for (size_t i = 0; i < GUARD; i++) {
        memcpy(&b->memory[i], &word, sizeof word);
        memcpy(&b->data[b->n + i], &word, sizeof word);
    }
}

static struct buffer buffer_open(size_t n)
{
    struct buffer b = {.n = n, .memory = aligned_alloc(64, ((n + 2 * GUARD) * sizeof(float) + 63) / 64 * 64)};
    CHECK(b.memory != NULL);
    b.data = b.memory + GUARD;
    for (size_t i = 0; i < n; i++) {
        b.data[i] = 0;
    }
    fill_guards(&b);
    return b;
}

static void buffer_close(struct buffer *b, const char *what)
{
    for (size_t i = 0; i < GUARD; i++) {
        uint32_t before, after;
        memcpy(&before, &b->memory[i], sizeof before);
        memcpy(&after, &b->data[b->n + i], sizeof after);
        if (before != GUARD_WORD || after != GUARD_WORD) {
            CHECK_FAIL("guard word %zu of %s was overwritten", i, what);
        }
    }
    free(b->memory);
}

/* `share` of 8 elements are zero. */
static struct buffer buffer_random(size_t n, int largest, uint32_t zeros_of_8)
{
    struct buffer b = buffer_open(n);
    for (size_t i = 0; i < n; i++) {
        b.data[i] = draw(8) < zeros_of_8 ? 0.0f : draw_eighths(largest);
    }
    return b;
}

/* n samples of shape s, C H W to H W C or back. A flat shape stays as it is. */
static struct buffer turned(const struct buffer *from, struct dt_shape s, bool to_hwc)
{
    struct buffer to = buffer_open(from->n);
    const size_t n_c = (size_t)s.c, n_hw = (size_t)s.h * (size_t)s.w;
    for (size_t i = 0; i < from->n; i++) {
        const size_t sample = i / (n_c * n_hw), in = i % (n_c * n_hw), c = in / n_hw, hw = in % n_hw;
        const size_t chw = i, hwc = sample * n_c * n_hw + hw * n_c + c;
        to.data[to_hwc ? hwc : chw] = from->data[to_hwc ? chw : hwc];
    }
    return to;
}

/* ---- one block on one backend */

struct case_setup {
    const struct dt_model *model;
    int block, n_threads;
    struct dt_pass pass;
    struct buffer params, grads, x, dy; /* canonical order; grads: what is there before */
    bool want_dx;
};

struct outcome { /* canonical order */
    struct buffer y, eval_y, grads, dx;
};

static struct buffer copy_of(const struct buffer *from)
{
    struct buffer to = buffer_open(from->n);
    memcpy(to.data, from->data, from->n * sizeof(float));
    return to;
}

static struct outcome run_block(const struct dt_backend_ops *ops, bool hwc, const struct case_setup *setup)
{
    const struct dt_block *b = &setup->model->blocks[setup->block];
    const struct dt_backend_options options = {.n_threads = setup->n_threads};
    const size_t n = (size_t)setup->pass.batch->n;
    struct dt_backend *backend;
    struct dt_block_state *state;
    CHECK_INT(ops->open(&options, &backend), DT_OK);
    CHECK_INT(ops->block_open(backend, setup->model, setup->block, CAPACITY, &state), DT_OK);

    struct buffer x = hwc ? turned(&setup->x, b->in, true) : copy_of(&setup->x);
    struct buffer dy = hwc ? turned(&setup->dy, b->out, true) : copy_of(&setup->dy);
    struct buffer x_before = copy_of(&x), params = copy_of(&setup->params);
    struct buffer y = buffer_open(n * dt_shape_elems(b->out)), eval_y = buffer_open(y.n), dx = buffer_open(x.n);
    struct outcome out = {.grads = copy_of(&setup->grads)};
    struct dt_pass eval = setup->pass;
    eval.training = false;
    CHECK_INT(ops->block_forward(state, params.data, x.data, eval_y.data, &eval), DT_OK);
    CHECK_INT(ops->block_forward(state, params.data, x.data, y.data, &setup->pass), DT_OK);
    CHECK_INT(ops->block_backward(state, params.data, out.grads.data, x.data, y.data, dy.data, setup->want_dx ? dx.data : NULL,
                                  &setup->pass),
              DT_OK);
    CHECK(memcmp(x.data, x_before.data, x.n * sizeof(float)) == 0);
    CHECK(memcmp(params.data, setup->params.data, params.n * sizeof(float)) == 0);
    out.y = hwc ? turned(&y, b->out, false) : copy_of(&y);
    out.eval_y = hwc ? turned(&eval_y, b->out, false) : copy_of(&eval_y);
    out.dx = hwc ? turned(&dx, b->in, false) : copy_of(&dx);
    buffer_close(&x, "x");
    buffer_close(&dy, "dy");
    buffer_close(&x_before, "x_before");
    buffer_close(&params, "params");
    buffer_close(&y, "y");
    buffer_close(&eval_y, "y of evaluation");
    buffer_close(&dx, "dx");
    ops->block_close(state);
    ops->close(backend);
    return out;
}

static void close_outcome(struct outcome *o)
{
    buffer_close(&o->y, "y");
    buffer_close(&o->eval_y, "y of evaluation");
    buffer_close(&o->grads, "grads");
    buffer_close(&o->dx, "dx");
}

/* ---- comparison */

static char case_text[256];

static void compare(const char *isa, const char *what, const struct buffer *actual, const struct buffer *expected)
{
    CHECK_INT(actual->n, expected->n);
    for (size_t i = 0; i < actual->n; i++) {
        const double a = (double)actual->data[i], e = (double)expected->data[i];
        if (isnan(a) && isnan(e)) {
            continue;
        }
        if (!(fabs(a - e) <= 1e-5 * (1.0 + fabs(e)))) {
            CHECK_FAIL("%s, %s: %s[%zu] is %.9g, the reference has %.9g", isa, case_text, what, i, a, e);
        }
    }
}

static void compare_all(const char *isa, const struct outcome *actual, const struct outcome *expected)
{
    compare(isa, "y", &actual->y, &expected->y);
    compare(isa, "y of evaluation", &actual->eval_y, &expected->eval_y);
    compare(isa, "grads", &actual->grads, &expected->grads);
    compare(isa, "dx", &actual->dx, &expected->dx);
}

static int n_isas;
static const char *isas[DT_CPU_MAX_ISAS];
static int n_cases, n_flattened, n_padded, n_none;

static void check_block(const struct dt_model *model, int block, bool first)
{
    static const int sizes[] = {0, 1, 3, CAPACITY};
    static const uint32_t rows[CAPACITY] = {0, 1, 2, 3, 4}, ids[CAPACITY] = {7, 70000, 3, 12345678, 1};
    const struct dt_block *b = &model->blocks[block];
    const struct dt_batch batch = {.n = sizes[draw(4)], .rows = rows, .ids = ids, .epoch = draw(3)};
    const size_t n = (size_t)batch.n;
    const uint32_t dense_or_sparse = draw(3) * 3; /* zeros: none, a few, most */
    struct case_setup setup = {.model = model,
                               .block = block,
                               .n_threads = 1 + (int)draw(3),
                               .pass = {.batch = &batch, .training = true, .accumulate = draw(2) == 1, .seed = 99},
                               .params = buffer_random(model->arena_elems, 4, 0),
                               .grads = buffer_random(model->arena_elems, 8, 0),
                               .x = buffer_random(n * dt_shape_elems(b->in), 8, draw(2) * 4),
                               .dy = buffer_random(n * dt_shape_elems(b->out), 8, dense_or_sparse),
                               .want_dx = !first || draw(2) == 1};
    /* A NaN times a padding zero is a NaN or nothing: either is fine, so not there. */
    const bool inside = b->linear != DT_LINEAR_CONV || ((b->linear_out.h - 1) * b->stride + b->kernel <= b->in.h &&
                                                        (b->linear_out.w - 1) * b->stride + b->kernel <= b->in.w);
    const bool nan_dy = draw(12) == 0 && setup.dy.n > 0 && b->activation == DT_ACTIVATION_NONE && inside;
    if (nan_dy) {
        setup.dy.data[draw((uint32_t)setup.dy.n)] = NAN;
    }
    struct outcome expected = run_block(&dt_ref_backend, false, &setup);
    for (int i = 0; i < n_isas; i++) {
        setenv("DTRAIN_ISA", isas[i], 1);
        struct outcome actual = run_block(&dt_cpu_backend, true, &setup);
        compare_all(isas[i], &actual, &expected);
        close_outcome(&actual);
    }
    close_outcome(&expected);
    buffer_close(&setup.params, "params");
    buffer_close(&setup.grads, "grads before");
    buffer_close(&setup.x, "x");
    buffer_close(&setup.dy, "dy");
    n_cases++;
    n_flattened += b->flatten;
    n_padded += b->pad_before_h > 0;
    n_none += b->linear == DT_LINEAR_NONE;
}

static void check_model(const struct dt_model_spec *spec)
{
    static struct dt_model model;
    if (dt_model_lower(spec, &model) != DT_OK) {
        dt_error_clear(); /* a kernel or pool that does not fit */
        return;
    }
    for (int b = 0; b < model.n_blocks; b++) {
        const size_t length = strlen(case_text);
        snprintf(case_text + length, sizeof case_text - length, ", block %d", b);
        check_block(&model, b, b == 0);
        case_text[length] = '\0';
    }
}

/* ---- the grid */

static void add(struct dt_model_spec *spec, struct dt_layer_spec layer)
{
    spec->layers[spec->n_layers++] = layer;
}

/* Pools, dropout, activations and flatten after the first layer, by the draw. */
static void add_rest(struct dt_model_spec *spec)
{
    static const struct dt_layer_spec pools[] = {{.type = DT_LAYER_MAX_POOL2D, .size = 2, .stride = 2},
                                                 {.type = DT_LAYER_MAX_POOL2D, .size = 3, .stride = 2},
                                                 {.type = DT_LAYER_AVG_POOL2D, .size = 2, .stride = 2},
                                                 {.type = DT_LAYER_AVG_POOL2D, .size = 2, .stride = 1},
                                                 {.type = DT_LAYER_MAX_POOL2D, .size = 2, .stride = 3}};
    const uint32_t pool = draw(10);
    if (pool < 5) {
        add(spec, pools[pool]);
    }
    if (draw(3) == 0) {
        add(spec, (struct dt_layer_spec){.type = DT_LAYER_DROPOUT, .rate = 0.5});
    }
    if (draw(4) == 0) { /* a block without a linear operation */
        add(spec, (struct dt_layer_spec){.type = (enum dt_layer_type)(DT_LAYER_RELU + (int)draw(3))});
        if (draw(2) == 0) {
            add(spec, pools[draw(5)]);
        }
    }
    add(spec, (struct dt_layer_spec){.type = DT_LAYER_FLATTEN});
}

static void check_conv(int c, int k, int kernel, int stride, enum dt_padding padding)
{
    struct dt_model_spec spec = {.input = {c, kernel + (int)draw(7), kernel + (int)draw(9)}};
    const enum dt_activation activation = (enum dt_activation)draw(4);
    add(&spec,
        (struct dt_layer_spec){
            .type = DT_LAYER_CONV2D, .size = k, .kernel = kernel, .stride = stride, .padding = padding, .activation = activation});
    add_rest(&spec);
    snprintf(case_text, sizeof case_text, "conv %dx%dx%d to %d, kernel %d, stride %d, padding %d, activation %d, %d layers",
             spec.input.c, spec.input.h, spec.input.w, k, kernel, stride, padding, activation, spec.n_layers);
    check_model(&spec);
}

static void check_dense(int n_in, int n_out)
{
    struct dt_model_spec spec = {.input = {n_in, 1, 1}};
    add(&spec, (struct dt_layer_spec){.type = DT_LAYER_DENSE, .size = n_out, .activation = (enum dt_activation)draw(4)});
    if (draw(2) == 0) {
        add(&spec, (struct dt_layer_spec){.type = DT_LAYER_DROPOUT, .rate = 0.5});
    }
    snprintf(case_text, sizeof case_text, "dense %d to %d", n_in, n_out);
    check_model(&spec);
}

static void check_grid(void)
{
    static const int channels[] = {1, 2, 3, 5, 17, 32}, filters[] = {1, 3, 10, 16, 33, 64}, kernels[] = {1, 2, 3, 4, 5, 7};
    static const int inputs[] = {1, 2, 5, 16, 17, 100, 1537, 3080}, units[] = {1, 3, 10, 16, 33, 64, 300};
    for (int i = 0; i < 6 * 6 * 6; i++) {
        for (int stride = 1; stride <= 3; stride++) {
            check_conv(channels[i / 36], filters[i / 6 % 6], kernels[i % 6], stride, DT_PADDING_VALID);
            check_conv(channels[i / 36], filters[i / 6 % 6], kernels[i % 6], stride, DT_PADDING_SAME);
        }
    }
    for (int i = 0; i < 8 * 7; i++) {
        check_dense(inputs[i / 7], units[i % 7]);
        check_dense(inputs[i / 7], units[i % 7]);
    }
}

/* A NaN among the inputs reaches every output that depends on it, and no other. */
static void check_nan_forward(void)
{
    static const uint32_t ids[1] = {0};
    const struct dt_batch batch = {.n = 1, .rows = ids, .ids = ids};
    struct dt_model_spec spec = {.input = {3, 9, 9}};
    static struct dt_model model;
    add(&spec,
        (struct dt_layer_spec){.type = DT_LAYER_CONV2D, .size = 5, .kernel = 3, .stride = 1, .activation = DT_ACTIVATION_RELU});
    add(&spec, (struct dt_layer_spec){.type = DT_LAYER_MAX_POOL2D, .size = 2, .stride = 2});
    add(&spec, (struct dt_layer_spec){.type = DT_LAYER_FLATTEN});
    CHECK_INT(dt_model_lower(&spec, &model), DT_OK);
    struct case_setup setup = {.model = &model,
                               .n_threads = 1,
                               .pass = {.batch = &batch, .training = true},
                               .params = buffer_random(model.arena_elems, 4, 0),
                               .grads = buffer_open(model.arena_elems),
                               .x = buffer_random(3 * 81, 8, 0),
                               .dy = buffer_open(5 * 9)};
    setup.x.data[40] = NAN;
    snprintf(case_text, sizeof case_text, "NaN in x");
    struct outcome expected = run_block(&dt_ref_backend, false, &setup);
    CHECK(isnan(expected.y.data[4]));
    for (int i = 0; i < n_isas; i++) {
        setenv("DTRAIN_ISA", isas[i], 1);
        struct outcome actual = run_block(&dt_cpu_backend, true, &setup);
        compare(isas[i], "y", &actual.y, &expected.y);
        close_outcome(&actual);
    }
    close_outcome(&expected);
    buffer_close(&setup.params, "params");
    buffer_close(&setup.grads, "grads");
    buffer_close(&setup.x, "x");
    buffer_close(&setup.dy, "dy");
}

/* ---- everything outside blocks */

static struct dt_backend *open_on(const struct dt_backend_ops *ops)
{
    const struct dt_backend_options options = {.n_threads = 2};
    struct dt_backend *backend;
    CHECK_INT(ops->open(&options, &backend), DT_OK);
    return backend;
}

static void check_gather_and_loss(const char *isa, enum dt_loss loss)
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
    const struct dt_samples samples = {
        .n = N, .shape = {3, 4, 5}, .pixels = pixels, .scale = 1.0f / 255, .labels = labels, .targets = targets.data};
    struct buffer x[2], dlogits[2];
    struct dt_metrics metrics[2];
    for (int i = 0; i < 2; i++) {
        const struct dt_backend_ops *ops = i == 0 ? &dt_ref_backend : &dt_cpu_backend;
        struct dt_backend *backend = open_on(ops);
        struct dt_bound_samples *bound;
        x[i] = buffer_open(4 * 60);
        dlogits[i] = buffer_open(4 * OUT);
        CHECK_INT(ops->samples_open(backend, &samples, &bound), DT_OK);
        CHECK_INT(ops->gather(backend, bound, &batch, x[i].data), DT_OK);
        CHECK_INT(ops->loss(backend, loss, bound, &batch, OUT, logits.data, dlogits[i].data), DT_OK);
        CHECK_INT(ops->loss(backend, loss, bound, &batch, OUT, logits.data, NULL), DT_OK);
        CHECK_INT(ops->metrics_take(backend, &metrics[i]), DT_OK);
        ops->samples_close(backend, bound);
        ops->close(backend);
    }
    struct buffer hwc = turned(&x[0], samples.shape, true);
    compare(isa, "gathered x", &x[1], &hwc);
    compare(isa, "dlogits", &dlogits[1], &dlogits[0]);
    CHECK_NEAR(metrics[1].loss_sum, metrics[0].loss_sum, 1e-9 * fabs(metrics[0].loss_sum));
    CHECK_NEAR(metrics[1].n_correct, metrics[0].n_correct, 0);
    CHECK_NEAR(metrics[1].n_samples, 8, 0);
    struct buffer *all[] = {&x[0], &x[1], &dlogits[0], &dlogits[1], &hwc, &targets, &logits};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        buffer_close(all[i], "a buffer of the loss");
    }
}

static void check_update(const char *isa, const struct dt_update *update, bool with_states)
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
        struct dt_backend *backend = open_on(ops);
        got[i][0] = copy_of(&params);
        got[i][1] = copy_of(&states[0]);
        got[i][2] = copy_of(&states[1]);
        CHECK_INT(ops->optimizer_step(backend, update, n, got[i][0].data, grads.data, with_states ? got[i][1].data : NULL,
                                      with_states ? got[i][2].data : NULL),
                  DT_OK);
        ops->close(backend);
    }
    for (int j = 0; j < 3; j++) {
        compare(isa, "parameters or optimizer state", &got[1][j], &got[0][j]);
        buffer_close(&got[0][j], "ref's");
        buffer_close(&got[1][j], "cpu's");
    }
    buffer_close(&params, "params");
    buffer_close(&grads, "grads");
    buffer_close(&states[0], "state1");
    buffer_close(&states[1], "state2");
}

static void check_updates(const char *isa)
{
    const struct dt_update adam = {.type = DT_OPTIMIZER_ADAM,
                                   .grad_scale = 1.0f / 128,
                                   .lr = 0.01f,
                                   .weight_decay = 0.1f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.99f,
                                   .epsilon = 1e-7f,
                                   .bias_correction1 = 0.19f,
                                   .bias_correction2 = 0.02f};
    const struct dt_update sgd = {.grad_scale = 0.25f, .lr = 0.1f, .weight_decay = 0.01f, .momentum = 0.9f};
    struct dt_update adamw = adam, nesterov = sgd;
    adamw.type = DT_OPTIMIZER_ADAMW;
    nesterov.nesterov = true;
    check_update(isa, &adam, true);
    check_update(isa, &adamw, true);
    check_update(isa, &sgd, true);
    check_update(isa, &sgd, false);
    check_update(isa, &nesterov, true);
}

static void check_sum_squares(void)
{
    struct buffer x = buffer_random(10001, 100, 0);
    for (size_t n = 0; n <= x.n; n += n < 40 ? 1 : 997) {
        double expected, actual;
        struct dt_backend *ref = open_on(&dt_ref_backend), *cpu = open_on(&dt_cpu_backend);
        CHECK_INT(dt_ref_backend.sum_squares(ref, x.data, n, &expected), DT_OK);
        CHECK_INT(dt_cpu_backend.sum_squares(cpu, x.data, n, &actual), DT_OK);
        CHECK_NEAR(actual, expected, 0);
        dt_ref_backend.close(ref);
        dt_cpu_backend.close(cpu);
    }
    buffer_close(&x, "x");
}

static void check_isa_choice(void)
{
    struct dt_backend *backend;
    const struct dt_backend_options options = {.n_threads = 1};
    setenv("DTRAIN_ISA", "x86-64-v9", 1);
    CHECK_INT(dt_cpu_backend.open(&options, &backend), DT_CONFIG);
    CHECK_HAS(dt_error_text(), "DTRAIN_ISA=x86-64-v9");
    dt_error_clear();
    for (int i = 0; i < n_isas; i++) {
        setenv("DTRAIN_ISA", isas[i], 1);
        CHECK_TEXT(dt_cpu_isa(), isas[i]);
        CHECK_INT(dt_cpu_backend.open(&options, &backend), DT_OK);
        CHECK_HAS(backend->description, isas[i]);
        dt_cpu_backend.close(backend);
    }
    unsetenv("DTRAIN_ISA");
    CHECK_TEXT(dt_cpu_isa(), isas[0]);
}

int main(void)
{
    n_isas = dt_cpu_isa_list(isas);
    CHECK(n_isas >= 1);
    check_isa_choice();
    for (int i = 0; i < n_isas; i++) {
        setenv("DTRAIN_ISA", isas[i], 1);
        snprintf(case_text, sizeof case_text, "outside blocks");
        check_gather_and_loss(isas[i], DT_LOSS_SOFTMAX_CROSS_ENTROPY);
        check_gather_and_loss(isas[i], DT_LOSS_MEAN_SQUARED_ERROR);
        check_updates(isas[i]);
        check_sum_squares();
    }
    check_nan_forward();
    for (int round = 0; round < 3; round++) { /* each with other draws */
        check_grid();
    }
    printf("%d blocks on %d instruction sets; %d flatten, %d padded, %d without a linear operation\n", n_cases, n_isas, n_flattened,
           n_padded, n_none);
    CHECK(n_cases > 3000 && n_flattened > 500 && n_padded > 200 && n_none > 200);
    return 0;
}
