/* Every kind of block of the cpu backend against the reference, in every way this machine computes.
 *
 * Inputs, weights and gradients are small multiples of 1/8, also as bf16, so that almost every sum
 * is exact in float as in double: both backends then agree on ties, and the tolerance only has to
 * cover tanh, sigmoid and averages. Winograd's sums are not exact, but for those of zeros: it gets
 * images with blank parts whose other sums are no ties, and errors are relative to the largest of
 * them; bf16 products are compared on those images that are exact in bf16. Buffers have guard words
 * on both sides, NaNs that no result may read nor write. The cpu backend gets the batch in two
 * parts. The reference keeps C H W order, the cpu backend H W C until a flatten: converted here. */
#include "tests/lib/layer_draws.h"
#include "tests/lib/layers.h"
#include "tests/unit/cpu/drawings.h"
#include "tests/unit/cpu/modes.h"

#ifdef __SANITIZE_ADDRESS__
#define N_ROUNDS 1 /* slow, and the numbers are compared without sanitizers too */
#else
#define N_ROUNDS 3
#endif

/* ---- comparison */

static void compare_all(const char *isa, const struct block_results *actual,
                        const struct block_results *expected)
{
    compare(isa, "y", &actual->y, &expected->y);
    compare(isa, "y of evaluation", &actual->eval_y, &expected->eval_y);
    compare(isa, "grads", &actual->grads, &expected->grads);
    compare(isa, "dx", &actual->dx, &expected->dx);
}

static int n_modes;
static struct mode modes[MAX_MODES];
static int n_cases, n_flattened, n_canonical, n_padded, n_none, n_winograd, n_gradients, n_wider;

/* Gradients of which all, about a half, a few, one or none are not zero. */
static struct buffer draw_gradient(size_t n)
{
    static const uint32_t zeros_of_8[] = {0, 3, 4, 6, 7, 8, 8};
    const uint32_t kind = draw(7);
    struct buffer dy = buffer_random(n, 8, zeros_of_8[kind]);
    if (kind == 6 && n > 0) {
        dy.data[draw((uint32_t)n)] = 0.625f;
    }
    return dy;
}

/* Zeroes a rectangle of each image, in all channels: windows there are blank. */
static void clear_part(struct dt_shape in, struct buffer *x)
{
    const int h = (int)draw((uint32_t)in.h), w = (int)draw((uint32_t)in.w);
    for (size_t plane = 0; plane < x->n / (size_t)(in.h * in.w); plane++) {
        for (int i = h / 2; i < in.h - h / 3; i++) {
            for (int j = w / 2; j < in.w - w / 3; j++) {
                x->data[(plane * (size_t)in.h + (size_t)i) * (size_t)in.w + (size_t)j] = 0;
            }
        }
    }
}

static void check_block(const struct dt_model *model, int block, bool first)
{
    static const int sizes[] = {0, 1, 3, 1, 3, 3, 3, CAPACITY};
    static const uint32_t rows[CAPACITY] = {0, 1, 2, 3, 4},
                          ids[CAPACITY] = {7, 70000, 3, 12345678, 1};
    const struct dt_block *b = &model->blocks[block];
    const struct dt_batch batch = {.n = sizes[draw(8)], .rows = rows, .ids = ids, .epoch = draw(3)};
    const size_t n = (size_t)batch.n;
    const int n_threads = 1 + (int)draw(3);
    struct block_case setup = {
        .model = model,
        .block = block,
        .capacity = CAPACITY,
        .pass = {.batch = &batch, .training = true, .accumulate = draw(2) == 1, .seed = 99},
        .params = buffer_random(model->arena_elems, 4, 0),
        .grads = buffer_random(model->arena_elems, 8, 0),
        .x = buffer_random(n * dt_shape_elems(b->in), 8, draw(2) * 4),
        .dy = draw_gradient(n * dt_shape_elems(b->out)),
        .want_dx = !first || draw(2) == 1};
    if (first && b->in.c <= 4) {
        clear_part(b->in, &setup.x);
    }
    /* A NaN times a padding zero is a NaN or nothing: either is fine, so not there. */
    const bool inside =
        b->linear != DT_LINEAR_CONV || ((b->linear_out.h - 1) * b->stride + b->kernel <= b->in.h &&
                                        (b->linear_out.w - 1) * b->stride + b->kernel <= b->in.w);
    const bool nan_dy =
        draw(12) == 0 && setup.dy.n > 0 && b->activation == DT_ACTIVATION_NONE && inside;
    if (nan_dy) {
        setup.dy.data[draw((uint32_t)setup.dy.n)] = NAN;
    }
    if (b->linear_out.h * b->linear_out.w > 1000) {
        allowed_error = 3e-5; /* of gradients that are sums of thousands of products in float */
    }
    bool rounds = true;
    if (uses_winograd(b)) {
        rounds = draw(2) == 0;
        allowed_error = 1e-5 * draw_drawings(&setup, rounds);
        n_winograd++;
        n_gradients += b->kernel == 3 && b->pool == DT_POOL_NONE && !b->flatten;
        n_wider += b->kernel > 3;
    }
    struct block_results expected = block_on_ref(&setup);
    setup.n_first = (int)draw((uint32_t)batch.n + 1);
    for (int i = 0; i < n_modes; i++) {
        if (modes[i].precision == DT_PRECISION_BF16 && !rounds) {
            continue;
        }
        struct block_results actual =
            block_run(&dt_cpu_backend, use_mode(&modes[i], n_threads), &setup);
        compare_all(modes[i].text, &actual, &expected);
        block_results_close(&actual);
    }
    block_results_close(&expected);
    block_case_close(&setup);
    allowed_error = 1e-5;
    n_cases++;
    n_flattened += b->flatten;
    n_canonical += b->canonical && b->pool_out.c > 1 && b->pool_out.h * b->pool_out.w > 1;
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

/* Pools, dropout, activations and flatten after the first layer, by the draw. */
static void add_rest(struct dt_model_spec *spec)
{
    add_pool_and_dropout(spec, 10);
    if (draw(4) == 0) { /* a block without a linear operation */
        add_layer(spec, draw_activation());
        if (draw(2) == 0) {
            add_layer(spec, pools[draw(N_POOLS)]);
        }
    }
    add_layer(spec, (struct dt_layer_spec)LAYER(FLATTEN));
}

static void check_conv(struct dt_shape input, int k, int kernel, int stride,
                       enum dt_padding padding)
{
    struct dt_model_spec spec = {.input = input};
    const enum dt_activation activation = (enum dt_activation)draw(N_ACTIVATIONS);
    add_layer(&spec,
              (struct dt_layer_spec)LAYER(CONV2D, .size = k, .kernel = kernel, .stride = stride,
                                          .padding = padding, .activation = activation));
    if (draw(3) == 0) { /* the block ends with the convolution, as most of a deep network do */
        add_layer(&spec, (struct dt_layer_spec)LAYER(CONV2D, .size = 2, .kernel = 1, .stride = 1));
    }
    add_rest(&spec);
    snprintf(case_text, sizeof case_text,
             "conv %dx%dx%d to %d, kernel %d, stride %d, padding %d, activation %d, %d layers",
             spec.input.c, spec.input.h, spec.input.w, k, kernel, stride, padding, activation,
             spec.n_layers);
    check_model(&spec);
}

static void check_pooled(struct dt_shape input, int k, int kernel)
{
    struct dt_model_spec spec = {.input = input};
    const enum dt_padding padding = draw(2) == 0 ? DT_PADDING_VALID : DT_PADDING_SAME;
    add_layer(&spec,
              (struct dt_layer_spec)LAYER(CONV2D, .size = k, .kernel = kernel, .stride = 1,
                                          .padding = padding, .activation = DT_ACTIVATION_RELU));
    add_layer(&spec, (struct dt_layer_spec)MAX_POOL(2, 2));
    if (draw(2) == 0) {
        add_dropout(&spec);
    }
    add_layer(&spec, (struct dt_layer_spec)LAYER(FLATTEN));
    snprintf(case_text, sizeof case_text, "conv %dx%dx%d to %d, kernel %d, padding %d, pool",
             input.c, input.h, input.w, k, kernel, padding);
    check_model(&spec);
}

static void check_dense(int n_in, int n_out)
{
    struct dt_model_spec spec = {.input = {n_in, 1, 1}};
    add_layer(&spec,
              (struct dt_layer_spec)LAYER(DENSE, .size = n_out,
                                          .activation = (enum dt_activation)draw(N_ACTIVATIONS)));
    if (draw(2) == 0) {
        add_dropout(&spec);
    }
    snprintf(case_text, sizeof case_text, "dense %d to %d", n_in, n_out);
    check_model(&spec);
}

static void check_grid(void)
{
    static const int channels[] = {1, 2, 3, 5, 17, 32}, filters[] = {1, 3, 10, 16, 33, 64},
                     sides[] = {1, 2, 3, 4, 5, 7};
    static const int inputs[] = {1, 2, 5, 16, 17, 100, 1537, 3080},
                     units[] = {1, 3, 10, 16, 33, 64, 300};
    for (int i = 0; i < 6 * 6 * 6; i++) {
        for (int stride = 1; stride <= 3; stride++) {
            const int kernel = sides[i % 6],
                      one =
                          draw(8) == 0 ? 0 : 1; /* 0: a single output, or "same" on a small image */
            const struct dt_shape input = {channels[i / 36],
                                           kernel + one * (int)draw(kernel == 3 ? 12 : 7),
                                           kernel + one * (int)draw(9)};
            check_conv(input, filters[i / 6 % 6], kernel, stride, DT_PADDING_VALID);
            check_conv(input, filters[i / 6 % 6], kernel, stride, DT_PADDING_SAME);
        }
    }
    for (int i = 0; i < 6 * 3; i++) { /* where Winograd's method pays */
        check_conv((struct dt_shape){16 + (int)draw(33), 3 + (int)draw(12), 3 + (int)draw(9)},
                   filters[i % 6], 3, 1, DT_PADDING_VALID);
        check_conv((struct dt_shape){16 + (int)draw(33), 3 + (int)draw(12), 3 + (int)draw(9)},
                   filters[i % 6], 3, 1, DT_PADDING_SAME);
        check_conv((struct dt_shape){8 + (int)draw(33), 6 + (int)draw(12), 8 + (int)draw(9)},
                   filters[i % 6], 4 + i % 2, 1, DT_PADDING_VALID);
        check_conv((struct dt_shape){8 + (int)draw(33), 3 + (int)draw(12), 3 + (int)draw(9)},
                   filters[i % 6], 4 + i % 2, 1, DT_PADDING_SAME);
        check_conv((struct dt_shape){4 + (int)draw(33), 7 + (int)draw(18), 7 + (int)draw(9)},
                   filters[i % 6], 5 + i % 2, 2, i % 4 < 2 ? DT_PADDING_VALID : DT_PADDING_SAME);
    }
    for (int i = 0; i < 8;
         i++) { /* wide images, which are taken in bands of rows, and more than 64 filters */
        check_conv((struct dt_shape){40, 17 + (int)draw(5), 61}, 3 + 66 * (i % 2), 1 + i % 3,
                   1 + i / 4, DT_PADDING_VALID);
    }
    for (int i = 0; i < 6 * 12; i++) { /* numbers of zeros, also more than "same" has */
        const int kernel = 2 + i % 6;
        check_conv((struct dt_shape){channels[i / 6 % 6], kernel + (int)draw(9), 8 + (int)draw(9)},
                   filters[i / 12], kernel, 1 + i % 3, 1 + (int)draw((uint32_t)kernel / 2));
    }
    for (int i = 0; i < 4 * 5; i++) { /* first layers, whose pool follows at once */
        check_pooled((struct dt_shape){1 + i % 4, 7 + (int)draw(12), 7 + (int)draw(12)},
                     1 + (int)draw(70), 3 + i / 4);
    }
    for (int i = 0; i < 8 * 7; i++) {
        check_dense(inputs[i / 7], units[i % 7]);
        check_dense(inputs[i / 7], units[i % 7]);
    }
}

/* A NaN among the inputs, or in the last filter, reaches every output that depends on it, and no
 * other. */
static void check_nan_forward(int c, int kernel)
{
    static const uint32_t ids[1] = {0};
    const struct dt_batch batch = {.n = 1, .rows = ids, .ids = ids};
    struct dt_model_spec spec = {.input = {c, 9, 9}};
    static struct dt_model model;
    add_layer(&spec, (struct dt_layer_spec)CONV(20, kernel, 1, SAME, RELU));
    add_layer(&spec, (struct dt_layer_spec)MAX_POOL(2, 2));
    add_layer(&spec, (struct dt_layer_spec)LAYER(FLATTEN));
    CHECK_OK(dt_model_lower(&spec, &model));
    struct block_case setup = {.model = &model,
                               .capacity = 1,
                               .pass = {.batch = &batch, .training = true},
                               .params = buffer_random(model.arena_elems, 4, 0),
                               .grads = buffer_open(model.arena_elems),
                               .x = buffer_random((size_t)c * 81, 8, 0),
                               .dy = buffer_open(dt_shape_elems(model.blocks[0].out))};
    for (size_t at = 0; at <= setup.x.n; at += (size_t)(c / 3)) {
        float *of =
            at < setup.x.n ? &setup.x.data[at] : &setup.params.data[19 * c * kernel * kernel];
        const float before = *of;
        snprintf(case_text, sizeof case_text, "NaN in %s", at < setup.x.n ? "x" : "a weight");
        *of = NAN;
        struct block_results expected = block_on_ref(&setup);
        CHECK(at != 40 || isnan(expected.y.data[10]));
        for (int i = 0; i < n_modes; i++) {
            struct block_results actual =
                block_run(&dt_cpu_backend, use_mode(&modes[i], 1), &setup);
            compare(modes[i].text, "y", &actual.y, &expected.y);
            block_results_close(&actual);
        }
        block_results_close(&expected);
        *of = before;
    }
    block_case_close(&setup);
}

int main(void)
{
    n_modes = list_modes(modes);
    check_nan_forward(3, 3);
    check_nan_forward(3, 7);
    check_nan_forward(20, 3);
    check_nan_forward(20, 4);
    check_nan_forward(20, 5);
    for (int round = 0; round < N_ROUNDS; round++) { /* each with other draws */
        check_grid();
    }
    printf(
        "%d blocks in %d ways; %d flatten, %d of them turn, %d padded, %d without a linear "
        "operation, %d by Winograd's method, %d of them in both directions, %d wider than 3 x 3\n",
        n_cases, n_modes, n_flattened, n_canonical, n_padded, n_none, n_winograd, n_gradients,
        n_wider);
    CHECK(n_cases > 1000 * N_ROUNDS && n_flattened > 200 * N_ROUNDS &&
          n_canonical > 50 * N_ROUNDS && n_flattened > n_canonical + 50 * N_ROUNDS &&
          n_padded > 100 * N_ROUNDS && n_none > 70 * N_ROUNDS && n_winograd > 35 * N_ROUNDS &&
          n_gradients > 8 * N_ROUNDS && n_wider > 30 * N_ROUNDS);
    return 0;
}
