/* Convolutions of bf16 numbers against the reference, which is given the inputs and weights already
 * rounded: products are then exact in float, and only the order of the sums differs. Rounding is
 * checked at ties and next to them, at NaN, infinity and numbers that round to it. The backward
 * pass knows no bf16: it is compared with the reference on what was not rounded. */
#include "tests/lib/block_run.h"
#include "tests/lib/layers.h"
#include "tests/unit/cpu/modes.h"

#define BATCH 3

static struct mode bf16;

/* Between 1/8 and 2 and their negatives; half of them ties, or next to one. */
static struct buffer buffer_drawn(size_t n)
{
    static const uint32_t lower[] = {0x8000, 0x7fff, 0x8001, 0xffff};
    struct buffer b = buffer_open(n);
    for (size_t i = 0; i < n; i++) {
        const uint32_t upper = draw(2) << 15 | (124 + draw(4)) << 7 | draw(128);
        b.data[i] = from_bits(upper << 16 | (draw(2) == 0 ? lower[draw(4)] : draw(1 << 16)));
    }
    return b;
}

static struct buffer rounded_copy(const struct buffer *from)
{
    struct buffer to = copy_of(from);
    for (size_t i = 0; i < to.n; i++) {
        to.data[i] = from_bf16(to_bf16(to.data[i]));
    }
    return to;
}

/* Block 0, with parameters, inputs and gradients drawn by the caller. */
static struct block_case case_of(const struct dt_model *model)
{
    static const uint32_t ids[BATCH] = {5, 77, 12345};
    static const struct dt_batch batch = {.n = BATCH, .rows = ids, .ids = ids};
    return (struct block_case){
        .model = model,
        .capacity = BATCH,
        .passes = BLOCK_TRAINING,
        .pass = {.batch = &batch, .training = true, .seed = 4},
        .params = buffer_drawn(model->arena_elems),
        .grads = buffer_open(model->arena_elems),
        .x = buffer_drawn(BATCH * dt_shape_elems(model->blocks[0].in)),
        .dy = buffer_random(BATCH * dt_shape_elems(model->blocks[0].out), 8, 4),
        .want_dx = true};
}

static struct block_results in_bf16(const struct block_case *c)
{
    return block_run(&dt_cpu_backend, use_mode(&bf16, 2), c);
}

/* The bias is not rounded. */
static struct block_results of_rounded(const struct block_case *c)
{
    const struct dt_param *bias = &c->model->params[c->model->blocks[0].bias];
    struct block_case rounded = *c;
    rounded.params = rounded_copy(&c->params);
    rounded.x = rounded_copy(&c->x);
    memcpy(rounded.params.data + bias->offset, c->params.data + bias->offset,
           bias->n_elems * sizeof(float));
    struct block_results results = block_on_ref(&rounded);
    BUFFERS_CLOSE(&rounded.params, &rounded.x);
    return results;
}

/* Numbers that are not finite must be the same, the rest near. */
static void compare_outputs(const struct buffer *actual, const struct buffer *expected)
{
    double largest = 1;
    for (size_t i = 0; i < expected->n; i++) {
        largest =
            isfinite(expected->data[i]) ? fmax(largest, fabs((double)expected->data[i])) : largest;
    }
    for (size_t i = 0; i < expected->n; i++) {
        const float a = actual->data[i], e = expected->data[i];
        CHECK_MESSAGE(
            a == e || (isnan(a) && isnan(e)) || fabs((double)a - (double)e) <= 1e-5 * largest,
            "%s: y[%zu] is %.9g, the reference has %.9g", case_text, i, (double)a, (double)e);
    }
}

static int n_rounded; /* outputs that f32 would have made otherwise */

/* poison: written into one place of x, if not 0. */
static void check_forward(const struct dt_model *model, float poison)
{
    struct block_case c = case_of(model);
    if (poison != 0) {
        c.x.data[draw((uint32_t)c.x.n)] = poison;
    }
    struct block_results expected = of_rounded(&c), actual = in_bf16(&c),
                         unrounded = block_on_ref(&c);
    compare_outputs(&actual.y, &expected.y);
    for (size_t i = 0; i < actual.y.n; i++) {
        n_rounded += fabsf(actual.y.data[i] - unrounded.y.data[i]) > 1e-3f;
    }
    block_results_close(&expected);
    block_results_close(&actual);
    block_results_close(&unrounded);
    block_case_close(&c);
}

/* Without activation and pool, gradients do not depend on the outputs. */
static void check_backward(const struct dt_model *model)
{
    struct block_case c = case_of(model);
    struct block_results expected = block_on_ref(&c), actual = in_bf16(&c);
    allowed_error = 1e-4;
    compare("bf16", "grads", &actual.grads, &expected.grads);
    compare("bf16", "dx", &actual.dx, &expected.dx);
    block_results_close(&expected);
    block_results_close(&actual);
    block_case_close(&c);
}

static void check_shape(struct dt_shape in, int k, int kernel, int stride, enum dt_padding padding,
                        bool pool)
{
    static const float poison[] = {NAN, INFINITY, -INFINITY, 3.4e38f};
    static struct dt_model model;
    struct dt_model_spec spec = {
        .input = in,
        .n_layers = 1,
        .layers = {LAYER(CONV2D, .size = k, .kernel = kernel, .stride = stride, .padding = padding,
                         .activation = DT_ACTIVATION_RELU)}};
    if (pool) {
        spec.layers[spec.n_layers++] = (struct dt_layer_spec)MAX_POOL(2, 2);
        spec.layers[spec.n_layers++] = (struct dt_layer_spec)DROPOUT(0.25);
    } else {
        spec.layers[0].activation = DT_ACTIVATION_NONE;
    }
    spec.layers[spec.n_layers++] = (struct dt_layer_spec)LAYER(FLATTEN);
    snprintf(case_text, sizeof case_text, "%dx%dx%d to %d, kernel %d, stride %d, padding %d%s",
             in.c, in.h, in.w, k, kernel, stride, padding, pool ? ", pool" : "");
    if (dt_model_lower(&spec, &model) != DT_OK) {
        dt_error_clear();
        return;
    }
    check_forward(&model, 0);
    check_forward(&model, poison[draw(4)]);
    if (!pool) {
        check_backward(&model);
    }
}

static void check_nan_bits(void)
{
    static const uint32_t nans[] = {0x7f800001u, 0xff800001u, 0x7fffffffu,
                                    0x7fc00000u}; /* some only in the half that goes */
    static struct dt_model model;
    const struct dt_model_spec spec = {
        .input = {16, 1, 2}, .n_layers = 2, .layers = {CONV(1, 1, 1, VALID, NONE), LAYER(FLATTEN)}};
    CHECK_OK(dt_model_lower(&spec, &model));
    struct block_case c = case_of(&model);
    for (int i = 0; i < 4; i++) {
        c.x.data[32 + 6] = from_bits(nans[i]);
        struct block_results r = in_bf16(&c);
        for (size_t j = 0; j < r.y.n; j++) {
            CHECK(j == 2 ? isnan(r.y.data[j]) : isfinite(r.y.data[j]));
        }
        block_results_close(&r);
    }
    block_case_close(&c);
}

static void check_description(void)
{
    struct dt_backend *backend;
    const struct dt_backend_options options = use_mode(&bf16, 1);
    CHECK_OK(dt_cpu_backend.open(&options, &backend));
    CHECK_TEXT(backend->description, "x86-64-v4 with AMX, 1 thread");
    dt_cpu_backend.close(backend);
}

int main(void)
{
    static const int channels[] = {20, 32, 48, 64}, filters[] = {1, 16, 27, 64},
                     sides[] = {1, 2, 3, 5};
    struct mode modes[MAX_MODES];
    const int n_modes = list_modes(modes);
    bf16 = modes[n_modes - 1];
    if (bf16.precision != DT_PRECISION_BF16) {
        return CHECK_SKIP_CODE;
    }
    check_description();
    check_nan_bits();
    for (int i = 0; i < 4 * 4 * 4 * 4; i += EVERY(3)) {
        const int kernel = sides[i % 4], one = draw(6) == 0 ? 0 : 1; /* 0: a single output */
        const struct dt_shape in = {channels[i / 4 % 4], kernel + one * (int)draw(5),
                                    kernel + one * (int)draw(24)};
        check_shape(in, filters[i / 16 % 4], kernel, 1 + (int)draw(2),
                    DT_PADDING_VALID - i / 64 % 2, i / 128 % 2 == 1);
    }
    printf("%d outputs that float would have made otherwise\n", n_rounded);
    CHECK(n_rounded > 10000 / EVERY(3));
    return 0;
}
