/* Where Winograd's method pays: forward convolutions 3 x 3 of many shapes, directly and by it, on
 * every instruction set; `plan` is what dt_winograd_plan decides by the shape, and a wrong decision
 * is marked. Then the second block of configs/mnist.json as a whole, with ReLU, pool, dropout and
 * flatten, for images with noise everywhere and with a blank margin.
 *
 *     bench_winograd [--smoke]
 *
 * Times are thread CPU time, the least of several rounds in which both take turns; --smoke runs
 * everything once on few images, as a test that it works. */
#include "tests/unit/cpu/bench.h"

#include "cpu/isa.h"
#include "model/backend.h"

static int n_images = 16, n_rounds = 9;

struct contest {
    const struct dt_cpu_kernels *kernels;
    struct dt_winograd w;
    struct dt_conv conv;
    float *x, *padded, *y, *weight, *bias, *direct, *winograd, *scratch;
    size_t n_x, n_y;
};

/* One round of the direct kernel, as blocks use it: padding is copied around the image. */
static double time_direct(const struct contest *s)
{
    const struct dt_winograd *w = &s->w;
    const size_t n_c = (size_t)w->c, row = (size_t)w->w * n_c, padded_row = (size_t)s->conv.w * n_c;
    const double start = now_s();
    for (size_t i = 0; i < (size_t)n_images; i++) {
        const float *x = s->x + i * s->n_x;
        for (size_t h = 0; w->top > 0 && h < (size_t)w->h; h++) {
            memcpy(s->padded + (h + 1) * padded_row + n_c, x + h * row, row * sizeof(float));
        }
        s->kernels->conv_forward(&s->conv, w->top > 0 ? s->padded : x, s->direct, s->bias, true,
                                 s->y + i * s->n_y);
    }
    return now_s() - start;
}

static double time_winograd(const struct contest *s)
{
    struct dt_conv_outputs out = {.bias = s->bias, .relu = true};
    bool finite = true;
    const double start = now_s();
    for (int i = 0; i < n_images; i += s->w.images) {
        const int n = n_images - i < s->w.images ? n_images - i : s->w.images;
        const float *x = s->x + (size_t)i * s->n_x;
        out.y = s->y + (size_t)i * s->n_y;
        finite =
            s->kernels->winograd_forward(&s->w, n, x, s->winograd, &out, s->scratch) == 0 && finite;
    }
    CHECK(finite);
    return now_s() - start;
}

/* Square images; returns whether the plan was right, or nearly. */
static bool contest(const struct dt_cpu_kernels *kernels, int c, int k, int side, bool same)
{
    const int pad = same ? 1 : 0, out = side - 2 + 2 * pad;
    struct contest s = {.kernels = kernels,
                        .w = {.c = c,
                              .h = side,
                              .w = side,
                              .top = pad,
                              .left = pad,
                              .k = k,
                              .out_h = out,
                              .out_w = out},
                        .conv = {.c = c,
                                 .h = out + 2,
                                 .w = out + 2,
                                 .k = k,
                                 .out_h = out,
                                 .out_w = out,
                                 .kernel = 3,
                                 .stride = 1}};
    dt_winograd_plan(&s.w, kernels->vector);
    s.n_x = (size_t)(c * side * side);
    s.n_y = (size_t)(k * out * out);
    s.x = random_floats((size_t)n_images * s.n_x, 1);
    s.padded = random_floats((size_t)(c * (out + 2) * (out + 2)), 0);
    s.y = random_floats((size_t)n_images * s.n_y, 0);
    s.weight = random_floats((size_t)(9 * c * k), 1);
    s.bias = random_floats((size_t)k, 1);
    s.direct = random_floats(dt_conv_packed_forward_elems(&s.conv, kernels->vector), 0);
    s.winograd = random_floats(dt_winograd_packed_elems(&s.w), 0);
    s.scratch = random_floats(dt_winograd_scratch_elems(&s.w), 0);
    kernels->conv_pack_forward(&s.conv, s.weight, s.direct);
    kernels->winograd_pack(&s.w, s.weight, s.winograd);
    double direct = 1e9, winograd = 1e9;
    for (int round = 0; round < n_rounds; round++) {
        direct = fmin(direct, time_direct(&s));
        winograd = fmin(winograd, time_winograd(&s));
    }
    const bool right = s.w.used ? winograd < 1.05 * direct : direct < 1.05 * winograd;
    printf("%-10s %3d x %2d x %2d to %3d, %-5s: direct %8.1f us, winograd %8.1f us an image, ratio "
           "%.2f, plan: %s%s\n",
           kernels->isa, c, side, side, k, same ? "same" : "valid", 1e6 * direct / n_images,
           1e6 * winograd / n_images, winograd / direct, s.w.used ? "winograd" : "direct",
           right ? "" : " WRONG");
    float *all[] = {s.x, s.padded, s.y, s.weight, s.bias, s.direct, s.winograd, s.scratch};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
    return right;
}

static void contests(const struct dt_cpu_kernels *kernels)
{
    static const int channels[] = {1, 3, 8, 16, 32, 64, 128}, filters[] = {8, 16, 32, 64, 128},
                     sides[] = {5, 8, 14, 26};
    int n = 0, n_right = 0;
    for (int i = 0; i < 7 * 5 * 4; i++) {
        n_right += contest(kernels, channels[i / 20], filters[i / 4 % 5], sides[i % 4], i % 3 == 0);
        n++;
    }
    printf("%-10s %d of %d plans within 5 %% of the better way\n", kernels->isa, n_right, n);
}

/* ---- the second block of configs/mnist.json */

static double time_block(struct dt_block_state *state, const float *params, const float *x,
                         float *y)
{
    static const uint32_t ids[8] = {0};
    const double start = now_s();
    for (int first = 0; first + 8 <= n_images; first += 8) {
        const struct dt_batch batch = {.n = 8, .rows = ids, .ids = ids};
        const struct dt_pass pass = {.batch = &batch, .first = first, .training = true, .seed = 1};
        CHECK_INT(dt_cpu_block_forward(state, params, x, y + (size_t)first * 9216, &pass), DT_OK);
    }
    return now_s() - start;
}

/* The margin of 6 pixels in which all are equal makes 20 of 36 tiles blank; of MNIST's it is
 * about 8. */
static void blank_margin(float *x)
{
    for (int i = 0; i < 8 * 26 * 26; i++) {
        const int h = i / 26 % 26, w = i % 26;
        for (int c = 0; c < 32 && (h < 6 || h > 19 || w < 6 || w > 19); c++) {
            x[i * 32 + c] = 0.25f;
        }
    }
}

static void block_bench(const char *isa)
{
    const struct dt_model_spec spec = {
        .input = {32, 26, 26},
        .n_layers = 4,
        .layers = {{.type = DT_LAYER_CONV2D,
                    .size = 64,
                    .kernel = 3,
                    .stride = 1,
                    .activation = DT_ACTIVATION_RELU},
                   {.type = DT_LAYER_MAX_POOL2D, .size = 2, .stride = 2},
                   {.type = DT_LAYER_DROPOUT, .rate = 0.25},
                   {.type = DT_LAYER_FLATTEN}}};
    const struct dt_backend_options options = {.n_threads = 1};
    static struct dt_model model;
    struct dt_backend *backend;
    struct dt_block_state *state;
    n_images = n_rounds == 1 ? 8 : 128;
    CHECK_INT(dt_model_lower(&spec, &model), DT_OK);
    CHECK_INT(dt_cpu_backend.open(&options, &backend), DT_OK);
    CHECK_INT(dt_cpu_backend.block_open(backend, &model, 0, n_images, &state), DT_OK);
    float *params = random_floats(model.arena_elems, 1),
          *x = random_floats((size_t)(8 * 26 * 26 * 32), 0.6f);
    float *y = random_floats((size_t)n_images * 9216, 0);
    double noise = 1e9, margin = 1e9, direct = 1e9;
    for (int round = 0; round < n_rounds; round++) {
        noise = fmin(noise, time_block(state, params, x, y));
        const float before = x[0];
        x[0] = INFINITY; /* one image in eight is made once more by the direct kernel */
        direct = fmin(direct, time_block(state, params, x, y));
        x[0] = before;
    }
    blank_margin(x);
    for (int round = 0; round < n_rounds; round++) {
        margin = fmin(margin, time_block(state, params, x, y));
    }
    printf(
        "%-10s conv2's block, %d images: %.2f ms; with a blank margin %.2f ms; directly %.2f ms\n",
        isa, n_images, 1e3 * noise, 1e3 * margin, 1e3 * 8 * (direct - noise));
    free(params);
    free(x);
    free(y);
    dt_cpu_backend.block_close(state);
    dt_cpu_backend.close(backend);
}

int main(int argc, char **argv)
{
    const char *isas[DT_CPU_MAX_ISAS];
    const int n_isas = dt_cpu_isa_list(isas);
    const bool smoke = argc > 1 && strcmp(argv[1], "--smoke") == 0;
    for (int i = 0; i < n_isas; i++) {
        const struct dt_cpu_kernels *kernels;
        setenv("DTRAIN_ISA", isas[i], 1);
        CHECK_INT(dt_cpu_isa_choose(&kernels), DT_OK);
        n_images = smoke ? 2 : 16;
        n_rounds = smoke ? 1 : 9;
        contests(kernels);
        block_bench(isas[i]);
    }
    return 0;
}
