/* Convolutions of bf16 numbers against the reference, which is given the inputs and weights already
 * rounded: products are then exact in float, and only the order of the sums differs. Rounding is
 * checked at ties and next to them, at NaN, infinity and numbers that round to it. The backward
 * pass knows no bf16: it is compared with the reference on what was not rounded. */
#include "tests/lib/guarded.h"
#include "tests/lib/layers.h"
#include "tests/lib/modes.h"

#define BATCH 3

static struct mode bf16;

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* To the nearest number whose lower half is zero, to even. */
static float rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (isnan(x)) {
        return NAN;
    }
    return from_bits((bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u);
}

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
        to.data[i] = rounded(to.data[i]);
    }
    return to;
}

/* The bias is not rounded. */
static struct buffer rounded_params(const struct dt_model *model, const struct buffer *params)
{
    const struct dt_block *b = &model->blocks[0];
    struct buffer to = rounded_copy(params);
    const struct dt_param *bias = &model->params[b->bias];
    memcpy(to.data + bias->offset, params->data + bias->offset, bias->n_elems * sizeof(float));
    return to;
}

struct results {
    struct buffer y, grads, dx;
};

/* Forward and backward of block 0, in canonical order; mode NULL: the reference. */
static struct results run(const struct mode *mode, const struct dt_model *model,
                          const struct buffer *params, const struct buffer *x,
                          const struct buffer *dy)
{
    static const uint32_t ids[BATCH] = {5, 77, 12345};
    const struct dt_backend_ops *ops = mode != NULL ? &dt_cpu_backend : &dt_ref_backend;
    const struct dt_backend_options options =
        mode != NULL ? use_mode(mode, 2) : (struct dt_backend_options){.n_threads = 1};
    const struct dt_batch batch = {.n = BATCH, .rows = ids, .ids = ids};
    const struct dt_pass pass = {.batch = &batch, .training = true, .seed = 4};
    const struct dt_block *b = &model->blocks[0];
    struct dt_backend *backend;
    struct dt_block_state *state;
    struct buffer in = mode != NULL ? turned(x, b->in, true) : copy_of(x);
    struct buffer y = buffer_open(BATCH * dt_shape_elems(b->out)), back = buffer_open(y.n),
                  dx = buffer_open(x->n);
    struct buffer gradient = mode != NULL && !b->flatten ? turned(dy, b->out, true) : copy_of(dy);
    struct results out = {.grads = buffer_open(params->n)};
    CHECK_OK(ops->open(&options, &backend));
    CHECK_OK(ops->block_open(backend, model, 0, BATCH, &state));
    CHECK_OK(ops->block_forward(state, params->data, in.data, y.data, &pass));
    CHECK_OK(ops->block_backward(state, params->data, out.grads.data, in.data, y.data,
                                 gradient.data, dx.data, &pass));
    ops->block_close(state);
    ops->close(backend);
    out.y = mode != NULL && !b->flatten ? turned(&y, b->out, false) : copy_of(&y);
    out.dx = mode != NULL ? turned(&dx, b->in, false) : copy_of(&dx);
    BUFFERS_CLOSE(&in, &y, &back, &dx, &gradient);
    return out;
}

static void close_results(struct results *r)
{
    BUFFERS_CLOSE(&r->y, &r->grads, &r->dx);
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
    struct buffer params = buffer_drawn(model->arena_elems),
                  x = buffer_drawn(BATCH * dt_shape_elems(model->blocks[0].in));
    struct buffer dy = buffer_open(BATCH * dt_shape_elems(model->blocks[0].out));
    if (poison != 0) {
        x.data[draw((uint32_t)x.n)] = poison;
    }
    struct buffer params_16 = rounded_params(model, &params), x_16 = rounded_copy(&x);
    struct results expected = run(NULL, model, &params_16, &x_16, &dy),
                   actual = run(&bf16, model, &params, &x, &dy);
    struct results unrounded = run(NULL, model, &params, &x, &dy);
    compare_outputs(&actual.y, &expected.y);
    for (size_t i = 0; i < actual.y.n; i++) {
        n_rounded += fabsf(actual.y.data[i] - unrounded.y.data[i]) > 1e-3f;
    }
    close_results(&expected);
    close_results(&actual);
    close_results(&unrounded);
    BUFFERS_CLOSE(&params, &x, &dy, &params_16, &x_16);
}

/* Without activation and pool, gradients do not depend on the outputs. */
static void check_backward(const struct dt_model *model)
{
    struct buffer params = buffer_drawn(model->arena_elems),
                  x = buffer_drawn(BATCH * dt_shape_elems(model->blocks[0].in));
    struct buffer dy = buffer_random(BATCH * dt_shape_elems(model->blocks[0].out), 8, 4);
    struct results expected = run(NULL, model, &params, &x, &dy),
                   actual = run(&bf16, model, &params, &x, &dy);
    allowed_error = 1e-4;
    compare("bf16", "grads", &actual.grads, &expected.grads);
    compare("bf16", "dx", &actual.dx, &expected.dx);
    close_results(&expected);
    close_results(&actual);
    BUFFERS_CLOSE(&params, &x, &dy);
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
    struct buffer params = buffer_drawn(model.arena_elems), x = buffer_drawn(BATCH * 32),
                  dy = buffer_open(BATCH * 2);
    for (int i = 0; i < 4; i++) {
        x.data[32 + 6] = from_bits(nans[i]);
        struct results r = run(&bf16, &model, &params, &x, &dy);
        for (size_t j = 0; j < r.y.n; j++) {
            CHECK(j == 2 ? isnan(r.y.data[j]) : isfinite(r.y.data[j]));
        }
        close_results(&r);
    }
    BUFFERS_CLOSE(&params, &x, &dy);
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
                     kernels[] = {1, 2, 3, 5};
    struct mode modes[MAX_MODES];
    const int n_modes = list_modes(modes);
    bf16 = modes[n_modes - 1];
    if (bf16.precision != DT_PRECISION_BF16) {
        return CHECK_SKIP_CODE;
    }
    check_description();
    check_nan_bits();
    for (int i = 0; i < 4 * 4 * 4 * 4; i += EVERY(3)) {
        const int kernel = kernels[i % 4], one = draw(6) == 0 ? 0 : 1; /* 0: a single output */
        const struct dt_shape in = {channels[i / 4 % 4], kernel + one * (int)draw(5),
                                    kernel + one * (int)draw(24)};
        check_shape(in, filters[i / 16 % 4], kernel, 1 + (int)draw(2),
                    (enum dt_padding)(i / 64 % 2), i / 128 % 2 == 1);
    }
    printf("%d outputs that float would have made otherwise\n", n_rounded);
    CHECK(n_rounded > 10000 / EVERY(3));
    return 0;
}
