/* Convolutions by cuDNN, and what follows them in a block, against the reference in every precision
 * (gpu_blocks.h). test_kernels.c has the blocks without cuDNN. */
#include "tests/cuda/gpu_blocks.h"

#include "cuda/cuda_backend.h"

/* relu: the block ends with it, as one plan of cuDNN's may do; without: there is no such plan. */
static void check_conv(bool relu, long without)
{
    static const int channels[] = {1, 2, 3, 8}, filters[] = {1, 3, 10, 16},
                     kernels[] = {1, 2, 3, 5};
    const int kernel = kernels[draw(4)];
    struct dt_layer_spec conv =
        LAYER(CONV2D, .size = filters[draw(4)], .kernel = kernel, .stride = 1 + (int)draw(6) / 2,
              .padding = DT_PADDING_VALID - (int)draw(2),
              .activation = relu ? DT_ACTIVATION_RELU : (enum dt_activation)draw(N_ACTIVATIONS));
    struct dt_model_spec spec = {
        .input = {channels[draw(4)], kernel + 6 + (int)draw(4), kernel + 6 + (int)draw(5)},
        .loss = DT_LOSS_MEAN_SQUARED_ERROR};
    if (relu || draw(2) == 0) { /* a block before it, so that the gradient of its input is needed */
        add_layer(&spec, (struct dt_layer_spec)LAYER(TANH));
    }
    add_layer(&spec, conv);
    if (relu) {
        add_layer(&spec, (struct dt_layer_spec)CONV(3, 1, 1, VALID, NONE));
    }
    add_rest(&spec);
    snprintf(case_text, sizeof case_text,
             "conv %dx%dx%d to %d, kernel %d, stride %d, padding %d, activation %d, %d layers, "
             "fusion %s",
             spec.input.c, spec.input.h, spec.input.w, conv.size, kernel, conv.stride, conv.padding,
             conv.activation, spec.n_layers, without ? "off" : "on");
    fake_options.no_fusion = without;
    check_model(&spec, 0, false);
    fake_options.no_fusion = 0;
}

/* A NaN passes through a convolution, its bias and relu, and a pool, to every output that depends
 * on it, and to no other: else a diverged training would continue. */
static void check_nan(const struct dt_model *model, int block)
{
    const struct dt_batch batch = {.n = 2, .rows = numbers, .ids = numbers};
    struct block_case setup = draw_case(model, block, CAPACITY, &batch);
    setup.x.data[setup.x.n - 1] = NAN; /* the last sample's lower right corner */
    struct block_results expected = block_on_ref(&setup), found = run_gpu(&setup);
    int n_nans = 0;
    for (size_t i = 0; i < expected.y.n; i++) {
        n_nans += isnan(expected.y.data[i]);
    }
    CHECK(n_nans > 0 && n_nans < (int)expected.y.n / 2);
    compare_within(mode, "y", &found.y, &expected.y);
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
        const long n_before = fake_counts().n_descriptors;
        CHECK_OK(gpu->ops->block_open(gpu, &model, b, CAPACITY, &state));
        n[b] = fake_counts().n_descriptors - n_before;
        gpu->ops->block_close(state);
    }
    CHECK_INT(3 * n[0], 2 * n[1]);
}

int main(void)
{
    for (mode = modes; mode < modes + N_MODES; mode++) {
        gpu = open_gpu(mode);
        check_plans();
        for (int i = 0; i < 36; i++) { /* other draws in each precision */
            check_conv(i % 6 < 2, i % 2);
        }
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
