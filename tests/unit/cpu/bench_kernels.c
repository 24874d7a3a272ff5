/* How near the cpu backend's kernels come to what the core can do: GFLOP/s and the share of an FMA
 * loop's, measured in the same run, for the large layers of configs/mnist.json and mnist-mlp.json,
 * on every instruction set; then a whole training step.
 *
 *     bench_kernels [--smoke]
 *
 * Times are thread CPU time, the best of several rounds; --smoke runs everything once on few
 * images, as a test that it works. Backward is shown for several shares of a block's outputs that
 * are positive, so that gradients pass them; its rates count the dense operation's FLOPs, so they
 * may exceed the peak. Training this model has 0.4 (first steps) to 0.1 behind its pool. */
#include "tests/lib/optimizer_step.h"
#include "tests/unit/cpu/bench.h"

#include "base/rng.h"
#include "cpu/block.h"
#include "cpu/isa.h"
#include "model/network.h"
#include "model/optimizer.h"

static int n_images = 128, n_rounds = 7;

static double peak_flops(const struct dt_cpu_kernels *kernels)
{
    const size_t n = n_rounds == 1 ? 1000 : 10000000;
    float out[2 * DT_MAX_VECTOR];
    double best = 1e9;
    for (int round = 0; round < n_rounds; round++) {
        for (int i = 0; i < 2 * DT_MAX_VECTOR; i++) {
            out[i] = i < kernels->vector ? 0.999f : 0.001f;
        }
        const double start = now_s();
        kernels->fma_loop(n, out);
        best = fmin(best, now_s() - start);
    }
    CHECK(isfinite(out[0]));
    return 2.0 * (double)n * DT_FMA_CHAINS * kernels->vector / best;
}

static void report(const char *isa, const char *what, float alive, double seconds, double flops,
                   double peak)
{
    printf("%-10s %-24s alive %-5.3g %8.3f ms %8.1f GFLOP/s %6.1f %%\n", isa, what, (double)alive,
           1e3 * seconds, 1e-9 * flops / seconds, 100.0 * flops / seconds / peak);
}

/* ---- convolutions */

struct conv_bench {
    const struct dt_cpu_kernels *kernels;
    struct dt_conv conv;
    size_t n_x, y_step; /* y_step 0: before a pool, an image's output lives in one small buffer */
    float *x, *y, *packed, *bias;
};

static double forward_time(const struct conv_bench *b)
{
    double best = 1e9;
    for (int round = 0; round < n_rounds; round++) {
        const double start = now_s();
        for (int i = 0; i < n_images; i++) {
            const size_t n = (size_t)i;
            b->kernels->conv_forward(&b->conv, b->x + n * b->n_x, b->packed, b->bias, true,
                                     b->y + n * b->y_step);
        }
        best = fmin(best, now_s() - start);
    }
    return best;
}

static void conv_bench(const struct dt_cpu_kernels *kernels, const char *name, struct dt_conv conv,
                       bool pooled, double peak)
{
    const size_t n = (size_t)n_images, n_k = (size_t)conv.k,
                 taps = (size_t)(conv.kernel * conv.kernel * conv.c);
    const size_t n_y = (size_t)(conv.out_h * conv.out_w) * n_k;
    struct conv_bench b = {.kernels = kernels, .conv = conv};
    char text[64];
    b.n_x = (size_t)(conv.h * conv.w * conv.c);
    b.y_step = pooled ? 0 : n_y;
    b.x = random_floats(n * b.n_x, 0.6f);
    b.y = random_floats(n * n_y, 0);
    b.bias = random_floats(n_k, 1);
    b.packed = random_floats(dt_conv_packed_forward_elems(&conv, kernels->vector), 0);
    float *weight = random_floats(n_k * taps, 1);
    kernels->conv_pack_forward(&conv, weight, b.packed);
    snprintf(text, sizeof text, "%s forward", name);
    report(kernels->isa, text, 1, forward_time(&b), 2.0 * (double)n * (double)n_y * (double)taps,
           peak);
    free(b.x);
    free(b.y);
    free(b.bias);
    free(b.packed);
    free(weight);
}

static const struct dt_model_spec tutorial = {
    .input = {1, 28, 28},
    .n_layers = 8,
    .layers = {{.type = DT_LAYER_CONV2D,
                .size = 32,
                .kernel = 3,
                .stride = 1,
                .activation = DT_ACTIVATION_RELU},
               {.type = DT_LAYER_CONV2D,
                .size = 64,
                .kernel = 3,
                .stride = 1,
                .activation = DT_ACTIVATION_RELU},
               {.type = DT_LAYER_MAX_POOL2D, .size = 2, .stride = 2},
               {.type = DT_LAYER_DROPOUT, .rate = 0.25},
               {.type = DT_LAYER_FLATTEN},
               {.type = DT_LAYER_DENSE, .size = 128, .activation = DT_ACTIVATION_RELU},
               {.type = DT_LAYER_DROPOUT, .rate = 0.5},
               {.type = DT_LAYER_DENSE, .size = 10}}};

/* ---- the convolutions' blocks, backward, a few images at a time as a network does */

struct block_bench {
    struct dt_backend *backend;
    struct dt_model model;
    struct dt_block_state *state;
    float *params, *grads, *x, *y, *dy, *dx;
};

#define HIGH_BIAS 1000.0f /* makes all outputs positive */

static int descending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static void block_forward(const struct block_bench *b, const struct dt_block *block, float bias,
                          const struct dt_pass *pass)
{
    float *params = b->params + b->model.params[block->bias].offset;
    for (int i = 0; i < block->linear_out.c; i++) {
        params[i] = bias;
    }
    CHECK_INT(dt_cpu_block_forward(b->state, b->params, b->x, b->y, pass), DT_OK);
}

/* A forward pass with a bias that leaves about a share of the outputs positive, or as many as
 * dropout keeps; returns the share. */
static float forward_alive(const struct block_bench *b, const struct dt_block *block, float share)
{
    static const uint32_t ids[128];
    const struct dt_batch batch = {.n = n_images, .rows = ids, .ids = ids};
    const struct dt_pass pass = {.batch = &batch, .training = true};
    const size_t out = dt_shape_elems(block->out), n_out = (size_t)n_images * out;
    size_t n_alive = 0;
    block_forward(b, block, HIGH_BIAS, &pass);
    qsort(b->y, out, sizeof(float), descending); /* the first image's */
    const float least = b->y[(size_t)(share * (float)(out - 1))] * (1.0f - block->dropout_rate);
    block_forward(b, block, least > 0 ? HIGH_BIAS - least : HIGH_BIAS, &pass);
    for (size_t i = 0; i < n_out; i++) {
        n_alive += b->y[i] > 0;
    }
    return (float)n_alive / (float)n_out;
}

static double block_backward_time(const struct block_bench *b, int index)
{
    enum { CHUNK = 8 };
    static const uint32_t ids[CHUNK];
    const struct dt_block *block = &b->model.blocks[index];
    const size_t in = dt_shape_elems(block->in), out = dt_shape_elems(block->out),
                 n_out = (size_t)n_images * out;
    float *dy = random_floats(n_out, 1);
    double best = 1e9;
    for (int round = 0; round < n_rounds; round++) {
        double seconds = 0;
        memcpy(b->dy, dy, n_out * sizeof(float));
        for (int first = 0; first < n_images; first += CHUNK) {
            const struct dt_batch batch = {
                .n = n_images < CHUNK ? n_images : CHUNK, .rows = ids, .ids = ids};
            const struct dt_pass pass = {
                .batch = &batch,
                .first = first,
                .more = first + CHUNK<n_images, .training = true, .accumulate = first> 0};
            const size_t at = (size_t)first;
            const double start = now_s();
            CHECK_INT(dt_cpu_block_backward(b->state, b->params, b->grads, b->x + at * in,
                                            b->y + at * out, b->dy + at * out,
                                            index > 0 ? b->dx : NULL, &pass),
                      DT_OK);
            seconds += now_s() - start;
        }
        best = fmin(best, seconds);
    }
    free(dy);
    return best;
}

static void block_bench(const char *isa, int index, double peak)
{
    static const float shares[] = {1.0f, 0.75f, 0.39f, 0.2f, 0.1f, 0.02f};
    static struct block_bench b;
    const struct dt_backend_options options = {.n_threads = 1};
    char text[64];
    CHECK_INT(dt_model_lower(&tutorial, &b.model), DT_OK);
    CHECK_INT(dt_cpu_backend.open(&options, &b.backend), DT_OK);
    CHECK_INT(dt_cpu_backend.block_open(b.backend, &b.model, index, n_images, &b.state), DT_OK);
    const struct dt_block *block = &b.model.blocks[index];
    const size_t n = (size_t)n_images, in = dt_shape_elems(block->in),
                 out = dt_shape_elems(block->out);
    b.params = random_floats(b.model.arena_elems, 1);
    b.grads = random_floats(b.model.arena_elems, 0);
    b.x = random_floats(n * in, 0.6f);
    b.y = random_floats(n * out, 0);
    b.dy = random_floats(n * out, 0);
    b.dx = random_floats(n * in, 0);
    snprintf(text, sizeof text, "%s backward", block->name);
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        const double flops = dt_block_flops(block) * (double)n * (index > 0 ? 2 : 1);
        const float alive = forward_alive(&b, block, shares[i]);
        report(isa, text, alive, block_backward_time(&b, index), flops, peak);
    }
    float *all[] = {b.params, b.grads, b.x, b.y, b.dy, b.dx};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
    dt_cpu_backend.block_close(b.state);
    dt_cpu_backend.close(b.backend);
}

/* ---- dense layers as blocks, so with everything that surrounds its matrix products */

static double block_time(struct dt_block_state *state, const float *params, float *grads,
                         const float *x, float *y, float *dy, float *dx, const struct dt_pass *pass,
                         bool is_forward)
{
    double best = 1e9;
    for (int round = 0; round < n_rounds; round++) {
        const double start = now_s();
        if (is_forward) {
            CHECK_INT(dt_cpu_block_forward(state, params, x, y, pass), DT_OK);
        } else {
            CHECK_INT(dt_cpu_block_backward(state, params, grads, x, y, dy, dx, pass), DT_OK);
        }
        best = fmin(best, now_s() - start);
    }
    return best;
}

static void dense_bench(const char *isa, const char *name, int n_in, int n_out, double peak)
{
    /* Inputs and output gradients that are not zero: all, half; as training configs/mnist.json
     * begins, after 200 steps and an epoch; as in configs/mnist-mlp.json. */
    static const float shares[][2] = {{1, 1},        {0.5f, 0.5f},  {0.39f, 0.13f},
                                      {0.2f, 0.13f}, {0.1f, 0.13f}, {0.19f, 0.65f}};
    const struct dt_model_spec spec = {
        .input = {n_in, 1, 1}, .n_layers = 1, .layers = {{.type = DT_LAYER_DENSE, .size = n_out}}};
    const struct dt_backend_options options = {.n_threads = 1};
    const struct dt_batch batch = {.n = n_images};
    const struct dt_pass pass = {.batch = &batch, .training = true};
    static struct dt_model model;
    struct dt_backend *backend;
    struct dt_block_state *state;
    CHECK_INT(dt_model_lower(&spec, &model), DT_OK);
    CHECK_INT(dt_cpu_backend.open(&options, &backend), DT_OK);
    CHECK_INT(dt_cpu_backend.block_open(backend, &model, 0, n_images, &state), DT_OK);
    const size_t n_x = (size_t)n_images * (size_t)n_in, n_y = (size_t)n_images * (size_t)n_out;
    const double flops = 2.0 * (double)n_x * n_out;
    float *params = random_floats(model.arena_elems, 1),
          *grads = random_floats(model.arena_elems, 0), *y = random_floats(n_y, 0);
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        float *x = random_floats(n_x, shares[i][0]), *dy = random_floats(n_y, shares[i][1]),
              *dx = random_floats(n_x, 0);
        char text[64];
        const double forward = block_time(state, params, grads, x, y, dy, dx, &pass, true);
        const double weights = block_time(state, params, grads, x, y, dy, NULL, &pass, false);
        const double both = block_time(state, params, grads, x, y, dy, dx, &pass, false);
        snprintf(text, sizeof text, "%s forward", name);
        report(isa, text, shares[i][0], forward, flops, peak);
        snprintf(text, sizeof text, "%s weights, x %.2g", name, (double)shares[i][0]);
        report(isa, text, shares[i][1], weights, flops, peak);
        snprintf(text, sizeof text, "%s data", name);
        report(isa, text, shares[i][1], fmax(both - weights, 1e-9), flops, peak);
        free(x);
        free(dy);
        free(dx);
    }
    free(params);
    free(grads);
    free(y);
    dt_cpu_backend.block_close(state);
    dt_cpu_backend.close(backend);
}

/* ---- the whole training step of configs/mnist.json, on blobs of ink that are learnt, so that
 * zeros come as in training */

#define N_SAMPLES 1280

static struct dt_samples blobs(void)
{
    static uint8_t pixels[N_SAMPLES * 784];
    static uint16_t labels[N_SAMPLES];
    for (uint32_t i = 0; i < N_SAMPLES; i++) {
        labels[i] = (uint16_t)(i % 10);
        for (uint32_t stroke = 0; stroke < 4;
             stroke++) { /* four short strokes, placed by the label, shaken by the sample */
            const struct dt_rng4 place = dt_rng_words(2, DT_RNG_SYNTHETIC, 0, 0, labels[i], stroke);
            const struct dt_rng4 shake = dt_rng_words(2, DT_RNG_SYNTHETIC, 1, 0, i, stroke);
            const uint32_t row = 4 + place.v[0] % 16 + shake.v[0] % 4,
                           column = 4 + place.v[1] % 12 + shake.v[1] % 4;
            for (uint32_t p = 0; p < 8; p++) {
                const uint32_t r = place.v[2] % 2 ? row + p / 2 : row,
                               c = place.v[2] % 2 ? column : column + p;
                pixels[i * 784 + r * 28 + c] = 255;
                pixels[i * 784 + (r + 1) * 28 + c] = 180;
            }
        }
    }
    return (struct dt_samples){.n = N_SAMPLES,
                               .shape = {1, 28, 28},
                               .pixels = pixels,
                               .scale = 1.0f / 255,
                               .labels = labels,
                               .n_classes = 10};
}

enum { PART_GATHER, PART_FORWARD, PART_LOSS, PART_BACKWARD, PART_UPDATE, N_PARTS };

static void step(struct dt_network *net, struct dt_bound_samples *bound,
                 struct dt_optimizer *optimizer, uint32_t number, double seconds[N_PARTS])
{
    uint32_t rows[128];
    double at[N_PARTS + 1];
    const struct dt_batch batch = {.n = n_images, .rows = rows, .ids = rows, .epoch = number};
    const struct dt_pass pass = {.batch = &batch, .training = true, .seed = 1};
    for (uint32_t i = 0; i < 128; i++) {
        rows[i] = (number * 128 + i) % N_SAMPLES;
    }
    at[0] = now_s();
    CHECK_INT(dt_network_gather(net, bound, &batch), DT_OK);
    at[1] = now_s();
    CHECK_INT(dt_network_forward(net, &pass), DT_OK);
    at[2] = now_s();
    CHECK_INT(dt_network_loss(net, bound, &pass), DT_OK);
    at[3] = now_s();
    CHECK_INT(dt_network_backward(net, &pass, NULL, NULL), DT_OK);
    at[4] = now_s();
    CHECK_INT(optimizer_step(optimizer, net->params, net->grads, 0.001, 1.0 / n_images), DT_OK);
    at[5] = now_s();
    for (int i = 0; i < N_PARTS; i++) {
        seconds[i] += at[i + 1] - at[i];
    }
}

static void step_bench(const char *isa)
{
    static struct dt_model model;
    const struct dt_backend_options options = {.n_threads = 1};
    const struct dt_optimizer_spec adam = {
        .type = DT_OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-7};
    const struct dt_samples samples = blobs();
    struct dt_backend *backend;
    struct dt_network *net;
    struct dt_bound_samples *bound;
    struct dt_optimizer optimizer;
    CHECK_INT(dt_model_lower(&tutorial, &model), DT_OK);
    CHECK_INT(dt_cpu_backend.open(&options, &backend), DT_OK);
    CHECK_INT(dt_network_open(&model, backend, n_images, NULL, &net), DT_OK);
    CHECK_INT(dt_optimizer_open(&adam, backend, model.arena_elems, NULL, &optimizer), DT_OK);
    CHECK_INT(dt_cpu_backend.samples_open(backend, &samples, &bound), DT_OK);
    dt_model_init(&model, 1, net->params); /* device memory is host memory here */
    const uint32_t n_steps = n_rounds == 1 ? 1 : 60;
    for (uint32_t done = 0; done < 2 * n_steps; done += n_steps) {
        double s[N_PARTS] = {0}, total = 0;
        struct dt_metrics metrics;
        for (uint32_t i = 0; i < n_steps; i++) {
            step(net, bound, &optimizer, done + i, s);
        }
        for (int i = 0; i < N_PARTS; i++) {
            s[i] *= 1e3 / n_steps;
            total += s[i];
        }
        CHECK_INT(dt_cpu_backend.metrics_take(backend, &metrics), DT_OK);
        printf("%-10s step %3u..%3u: %7.2f ms = gather %.2f + forward %.2f + loss %.2f + backward "
               "%.2f + update %.2f; loss %.3f\n",
               isa, done, done + n_steps - 1, total, s[PART_GATHER], s[PART_FORWARD], s[PART_LOSS],
               s[PART_BACKWARD], s[PART_UPDATE], metrics.loss_sum / metrics.n_samples);
    }
    dt_cpu_backend.samples_close(backend, bound);
    dt_optimizer_close(&optimizer);
    dt_network_close(net);
    dt_cpu_backend.close(backend);
}

int main(int argc, char **argv)
{
    static const struct dt_conv conv1 = {
        .c = 1, .h = 28, .w = 28, .k = 32, .out_h = 26, .out_w = 26, .kernel = 3, .stride = 1};
    static const struct dt_conv conv2 = {
        .c = 32, .h = 26, .w = 26, .k = 64, .out_h = 24, .out_w = 24, .kernel = 3, .stride = 1};
    const char *isas[DT_CPU_MAX_ISAS];
    const int n_isas = dt_cpu_isa_list(isas);
    if (argc > 1 && strcmp(argv[1], "--smoke") == 0) {
        n_images = 2;
        n_rounds = 1;
    }
    for (int i = 0; i < n_isas; i++) {
        const struct dt_cpu_kernels *kernels;
        setenv("DTRAIN_ISA", isas[i], 1);
        CHECK_INT(dt_cpu_isa_choose(&kernels), DT_OK);
        const double peak = peak_flops(kernels);
        printf("%-10s FMA loop: %.1f GFLOP/s\n", isas[i], 1e-9 * peak);
        conv_bench(kernels, "conv1", conv1, false, peak);
        conv_bench(kernels, "conv2", conv2, true, peak);
        block_bench(isas[i], 0, peak);
        block_bench(isas[i], 1, peak);
        dense_bench(isas[i], "dense1", 9216, 128, peak);
        dense_bench(isas[i], "mlp", 784, 128, peak);
        step_bench(isas[i]);
    }
    return 0;
}
