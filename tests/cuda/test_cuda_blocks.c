/* Every kind of block of the cuda backend against the reference, in every precision, and twice with
 * the same bits. Inputs and weights are halves up to 1, so that results of linear operations are
 * exact in all precisions and every pool finds the same winner. NaNs follow the batch; no result
 * may depend on them. */
#include "tests/cuda/on_gpu.h"
#include "tests/lib/block_run.h"
#include "tests/lib/layer_draws.h"
#include "tests/lib/layers.h"

#include "cuda/block_plan.h"
#include "cuda/cuda_block.h"
#include "model/network.h"

#define CAPACITY 5

static struct dt_backend *gpu;
static const struct mode *mode; /* of the cuda backend */

static struct buffer halves(size_t n, uint32_t zeros_of_8)
{
    struct buffer b = buffer_open(n);
    for (size_t i = 0; i < n; i++) {
        b.data[i] = draw(8) < zeros_of_8 ? 0.0f : ((float)draw(5) - 2.0f) / 2.0f;
    }
    return b;
}

/* Gathering a batch sends its ids to the device. */
static void send_ids(const struct dt_batch *batch)
{
    static const float values[CAPACITY];
    static const uint16_t labels[CAPACITY];
    const struct dt_samples samples = {
        .n = CAPACITY, .shape = {1, 1, 1}, .values = values, .labels = labels, .n_classes = 1};
    struct dt_bound_samples *bound;
    void *x;
    CHECK_OK(gpu->ops->samples_open(gpu, &samples, &bound));
    CHECK_OK(gpu->ops->alloc(gpu, sizeof values, &x));
    CHECK_OK(gpu->ops->gather(gpu, bound, batch, x));
    gpu->ops->free(gpu, x);
    gpu->ops->samples_close(gpu, bound);
}

/* Runs an earlier, full batch with NaNs: its leftovers in scratch memory must not matter. */
static void run_nans(struct dt_block_state *state, const struct block_case *setup,
                     struct block_memory at, bool bf16_out)
{
    static const uint32_t numbers[CAPACITY];
    const struct dt_batch batch = {.n = CAPACITY, .rows = numbers, .ids = numbers};
    const struct buffer nothing = {0};
    struct block_case nans = *setup;
    nans.pass = (struct dt_pass){.batch = &batch, .training = true};
    at.dy = to_gpu(gpu, &nothing, setup->model->blocks[setup->block].out, CAPACITY, bf16_out);
    at.grads =
        to_gpu(gpu, &nothing, (struct dt_shape){(int)setup->model->arena_elems, 1, 1}, 1, false);
    send_ids(&batch);
    block_passes(gpu, state, &nans, at);
    gpu->ops->free(gpu, at.dy);
    gpu->ops->free(gpu, at.grads);
}

static struct block_results run_gpu(const struct block_case *setup)
{
    const struct dt_backend_ops *ops = gpu->ops;
    const bool bf16 = mode->precision == DT_PRECISION_BF16;
    const struct dt_block *b = &setup->model->blocks[setup->block];
    const bool bf16_out = bf16 && setup->block < setup->model->n_blocks - 1;
    const int n = setup->pass.batch->n;
    const struct dt_shape arena = {(int)setup->model->arena_elems, 1, 1};
    const struct buffer nothing = {0};
    struct dt_block_state *state;
    struct dt_pass eval = setup->pass;
    CHECK_OK(ops->block_open(gpu, setup->model, setup->block, CAPACITY, &state));
    const struct block_memory at = {.params = to_gpu(gpu, &setup->params, arena, 1, false),
                                    .x = to_gpu(gpu, &setup->x, b->in, CAPACITY, bf16),
                                    .y = to_gpu(gpu, &nothing, b->out, CAPACITY, bf16_out),
                                    .grads = to_gpu(gpu, &setup->grads, arena, 1, false),
                                    .dy = to_gpu(gpu, &setup->dy, b->out, CAPACITY, bf16_out),
                                    .dx = to_gpu(gpu, &nothing, b->in, CAPACITY, bf16)};
    float *eval_y = to_gpu(gpu, &nothing, b->out, CAPACITY, bf16_out);

    run_nans(state, setup, at, bf16_out);
    send_ids(setup->pass.batch);
    eval.training = false;
    CHECK_OK(ops->block_forward(state, at.params, at.x, eval_y, &eval));
    block_passes(gpu, state, setup, at);
    struct block_results out = {.y = from_gpu(gpu, at.y, b->out, n, bf16_out),
                                .eval_y = from_gpu(gpu, eval_y, b->out, n, bf16_out),
                                .grads = from_gpu(gpu, at.grads, arena, 1, false),
                                .dx = setup->want_dx ? from_gpu(gpu, at.dx, b->in, n, bf16)
                                                     : buffer_open(setup->x.n)};
    struct buffer x_after = from_gpu(gpu, at.x, b->in, n, bf16),
                  params_after = from_gpu(gpu, at.params, arena, 1, false);
    check_same_bits("x", &setup->x, &x_after);
    check_same_bits("params", &setup->params, &params_after);
    BUFFERS_CLOSE(&x_after, &params_after);
    float *all[] = {at.params, at.x, at.y, at.grads, at.dy, at.dx, eval_y};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ops->free(gpu, all[i]);
    }
    ops->block_close(state);
    return out;
}

static int n_cases, n_partial, n_empty, n_padded, n_none, n_accumulated;

static void check_on_gpu(const struct block_case *setup, const struct block_results *expected)
{
    struct block_results first = run_gpu(setup), second = run_gpu(setup);
    compare_within(mode, "y", &first.y, &expected->y);
    compare_within(mode, "y of evaluation", &first.eval_y, &expected->eval_y);
    compare_within(mode, "grads", &first.grads, &expected->grads);
    compare_within(mode, "dx", &first.dx, &expected->dx);
    check_same_bits("y", &first.y, &second.y);
    check_same_bits("grads", &first.grads, &second.grads);
    check_same_bits("dx", &first.dx, &second.dx);
    block_results_close(&first);
    block_results_close(&second);
}

static void check_block(const struct dt_model *model, int block)
{
    static const int sizes[] = {0, 1, 3, 4, CAPACITY, CAPACITY, CAPACITY, CAPACITY};
    static const uint32_t rows[CAPACITY] = {0, 1, 2, 3, 4},
                          ids[CAPACITY] = {7, 70000, 3, 12345678, 1};
    const struct dt_block *b = &model->blocks[block];
    const struct dt_batch batch = {.n = sizes[draw(8)], .rows = rows, .ids = ids, .epoch = draw(3)};
    const size_t n = (size_t)batch.n;
    struct block_case setup = {
        .model = model,
        .block = block,
        .capacity = CAPACITY,
        .pass = {.batch = &batch, .training = true, .accumulate = draw(2) == 1, .seed = 99},
        .params = halves(model->arena_elems, 0),
        .grads = halves(model->arena_elems, 0),
        .x = halves(n * dt_shape_elems(b->in), draw(2) * 4),
        .dy = halves(n * dt_shape_elems(b->out), draw(2) * 4),
        .want_dx = block > 0};
    struct block_results expected = block_on_ref(&setup);
    check_on_gpu(&setup, &expected);
    block_results_close(&expected);
    block_case_close(&setup);
    n_cases++;
    n_partial += batch.n > 0 && batch.n < CAPACITY;
    n_empty += batch.n == 0;
    n_padded += b->pad_before_h > 0;
    n_none += b->linear == DT_LINEAR_NONE;
    n_accumulated += setup.pass.accumulate;
}

static void check_model(const struct dt_model_spec *spec)
{
    static struct dt_model model;
    CHECK_OK(dt_model_lower(spec, &model));
    for (int b = 0; b < model.n_blocks; b++) {
        const size_t length = strlen(case_text);
        snprintf(case_text + length, sizeof case_text - length, ", block %d", b);
        check_block(&model, b);
        case_text[length] = '\0';
    }
}

/* Draws pools, dropout, activations, a flatten and a dense layer after the first. */
static void add_rest(struct dt_model_spec *spec)
{
    add_pool_and_dropout(spec, 8);
    if (draw(3) == 0) { /* a block without a linear operation */
        add_layer(spec, draw_activation());
    }
    add_layer(spec, (struct dt_layer_spec)LAYER(FLATTEN));
    if (draw(2) == 0) {
        add_layer(spec, (struct dt_layer_spec)LAYER(DENSE, .size = 1 + (int)draw(20),
                                                    .activation =
                                                        (enum dt_activation)draw(N_ACTIVATIONS)));
    }
}

static void check_conv(void)
{
    static const int channels[] = {1, 2, 3, 8}, filters[] = {1, 3, 10, 16},
                     kernels[] = {1, 2, 3, 5};
    const int kernel = kernels[draw(4)];
    struct dt_layer_spec conv =
        LAYER(CONV2D, .size = filters[draw(4)], .kernel = kernel, .stride = 1 + (int)draw(6) / 2,
              .padding = DT_PADDING_VALID - (int)draw(2),
              .activation = (enum dt_activation)draw(N_ACTIVATIONS));
    struct dt_model_spec spec = {
        .input = {channels[draw(4)], kernel + 6 + (int)draw(4), kernel + 6 + (int)draw(5)},
        .loss = DT_LOSS_MEAN_SQUARED_ERROR};
    if (draw(2) == 0) { /* a block before it, so that the gradient of its input is needed */
        add_layer(&spec, (struct dt_layer_spec)LAYER(TANH));
    }
    add_layer(&spec, conv);
    add_rest(&spec);
    snprintf(case_text, sizeof case_text,
             "conv %dx%dx%d to %d, kernel %d, stride %d, padding %d, activation %d, %d layers",
             spec.input.c, spec.input.h, spec.input.w, conv.size, kernel, conv.stride, conv.padding,
             conv.activation, spec.n_layers);
    check_model(&spec);
}

/* Convolutions followed by relu, alone and before a pool, with the plan that does all in one and,
 * without such an engine, with separate steps. */
static void check_relu(long without)
{
    const struct dt_layer_spec conv = CONV(3 + (int)draw(6), 3, 1, SAME, RELU);
    struct dt_model_spec spec = {.input = {2, 6, 5}, .loss = DT_LOSS_MEAN_SQUARED_ERROR};
    add_layer(&spec, (struct dt_layer_spec)LAYER(TANH));
    add_layer(&spec, conv);
    add_layer(&spec, conv);
    add_layer(&spec, (struct dt_layer_spec){.type = draw(2) == 0 ? DT_LAYER_MAX_POOL2D
                                                                 : DT_LAYER_AVG_POOL2D,
                                            .size = 2,
                                            .stride = 2});
    add_dropout(&spec);
    add_layer(&spec, (struct dt_layer_spec)LAYER(FLATTEN));
    fake_options.no_fusion = without;
    snprintf(case_text, sizeof case_text, "relu of %d channels, fusion %s", conv.size,
             without ? "off" : "on");
    check_model(&spec);
    fake_options.no_fusion = 0;
}

/* A NaN passes through a convolution, its bias and relu, and a pool, to every output that depends
 * on it, and to no other: else a diverged training would continue. */
static void check_nan(const struct dt_model *model, int block)
{
    static const uint32_t numbers[2] = {0, 1};
    const struct dt_block *b = &model->blocks[block];
    const struct dt_batch batch = {.n = 2, .rows = numbers, .ids = numbers};
    struct block_case setup = {.model = model,
                               .block = block,
                               .capacity = CAPACITY,
                               .pass = {.batch = &batch},
                               .params = halves(model->arena_elems, 0),
                               .grads = halves(model->arena_elems, 0),
                               .x = halves(2 * dt_shape_elems(b->in), 0),
                               .dy = halves(2 * dt_shape_elems(b->out), 0),
                               .want_dx = true};
    setup.x.data[setup.x.n - 1] = NAN; /* the last sample's lower right corner */
    struct block_results expected = block_on_ref(&setup), found = run_gpu(&setup);
    int n_nans = 0;
    for (size_t i = 0; i < expected.y.n; i++) {
        n_nans += isnan(expected.y.data[i]);
        CHECK_MESSAGE(isnan(expected.y.data[i]) == isnan(found.y.data[i]),
                      "%s, %s, block %d: y[%zu] is %g, the reference has %g", mode->name, case_text,
                      block, i, (double)found.y.data[i], (double)expected.y.data[i]);
    }
    CHECK(n_nans > 0 && n_nans < (int)expected.y.n / 2);
    block_results_close(&expected);
    block_results_close(&found);
    block_case_close(&setup);
}

/* Of the block's forward pass: whether one plan does bias and relu, too. */
static bool is_fused(const struct dt_model *model, int block, long fused_ms)
{
    struct dt_block_state *state;
    struct dt_device_engine engines[DT_DEVICE_MAX_ENGINES];
    fake_options.fused_ms = fused_ms;
    CHECK_OK(gpu->ops->block_open(gpu, model, block, CAPACITY, &state));
    CHECK_INT(dt_cuda_block_engines(state, engines), 3);
    const bool fused = strcmp(engines[0].operation, "convolution with bias and relu") == 0;
    CHECK(fused || strcmp(engines[0].operation, "convolution") == 0);
    gpu->ops->block_close(state);
    fake_options.fused_ms = 0;
    return fused;
}

/* Two convolutions followed by relu, the second by a pool, too, and so by a tail in any case. */
static void check_relu_alone(bool timed)
{
    static struct dt_model model;
    const struct dt_layer_spec conv = CONV(8, 3, 1, SAME, RELU);
    const struct dt_model_spec spec = {
        .input = {8, 6, 6},
        .n_layers = 5,
        .layers = {LAYER(TANH), conv, conv, MAX_POOL(2, 2), LAYER(FLATTEN)},
        .loss = DT_LOSS_MEAN_SQUARED_ERROR};
    gpu = open_gpu_by(mode, !timed);
    snprintf(case_text, sizeof case_text, "a NaN, engines %s", timed ? "timed" : "not timed");
    CHECK_OK(dt_model_lower(&spec, &model));
    check_nan(&model, 1);
    check_nan(&model, 2);
    for (int block = 1; block <= 2 && fake_is_linked; block++) {
        CHECK(is_fused(&model, block, 0) == (block == 1 || !timed));
        CHECK(is_fused(&model, block, 5) == !timed);
    }
    gpu->ops->close(gpu);
}

/* n_last: outputs of the following head. */
static void check_dense(int n_in, int n_out, int n_last)
{
    struct dt_model_spec spec = {.input = {n_in, 1, 1}, .loss = DT_LOSS_MEAN_SQUARED_ERROR};
    add_layer(&spec,
              (struct dt_layer_spec)LAYER(DENSE, .size = n_out,
                                          .activation = (enum dt_activation)draw(N_ACTIVATIONS)));
    add_dropout(&spec);
    add_layer(&spec, (struct dt_layer_spec)DENSE(n_last, NONE));
    snprintf(case_text, sizeof case_text, "dense %d to %d to %d", n_in, n_out, n_last);
    check_model(&spec);
}

/* The first of two equal convolutions needs only two of the three plans. */
static void check_plans(void)
{
    static struct dt_model model;
    const struct dt_layer_spec conv = CONV(5, 3, 1, SAME, NONE);
    const struct dt_model_spec spec = {.input = {5, 8, 8},
                                       .layers = {conv, conv, LAYER(FLATTEN)},
                                       .n_layers = 3,
                                       .loss = DT_LOSS_MEAN_SQUARED_ERROR};
    long n[2];
    CHECK_OK(dt_model_lower(&spec, &model));
    for (int b = 0; b < 2; b++) {
        struct dt_block_state *state;
        const long n_before = fake_n_descriptors();
        CHECK_OK(gpu->ops->block_open(gpu, &model, b, CAPACITY, &state));
        n[b] = fake_n_descriptors() - n_before;
        gpu->ops->block_close(state);
    }
    CHECK_INT(3 * n[0], 2 * n[1]);
}

static void check_grid(void)
{
    static const int inputs[] = {1, 2, 5, 17, 100, 500}, units[] = {1, 3, 16, 33};
    for (int i = 0; i < 30; i++) {
        check_conv();
    }
    for (int i = 0; i < 6; i++) {
        check_relu(i % 2);
    }
    for (int i = 0; i < 6 * 4; i++) {
        check_dense(inputs[i / 4], units[i % 4], 3);
    }
    check_dense(5, 7, DT_CUDA_HEAD_OUTPUTS + 1); /* more outputs than the head's kernel handles */
    check_dense(3, DT_CUDA_HEAD_INPUTS + 1, 2);
}

int main(void)
{
    for (mode = modes; mode < modes + N_MODES; mode++) {
        gpu = open_gpu(mode);
        check_plans();
        check_grid(); /* draws other cases in each precision */
        gpu->ops->close(gpu);
        check_relu_alone(false);
        check_relu_alone(true);
        CHECK_INT(fake_counts().n_live_bytes, 0);
    }
    printf("%d blocks; %d partial and %d empty batches, %d padded, %d without a linear operation, "
           "%d accumulated\n",
           n_cases, n_partial, n_empty, n_padded, n_none, n_accumulated);
    CHECK(n_cases > 250 && n_partial > 80 && n_empty > 20 && n_padded > 15 && n_none > 20 &&
          n_accumulated > 100);
    return 0;
}
