/* Blocks of the cuda backend against the reference, and twice with the same bits. Inputs and
 * weights are halves up to 1, so that results of linear operations are exact in all precisions and
 * every pool finds the same winner. NaNs follow the batch; no result may depend on them. */
#ifndef DT_TESTS_CUDA_GPU_BLOCKS_H
#define DT_TESTS_CUDA_GPU_BLOCKS_H

#include "tests/cuda/on_gpu.h"
#include "tests/lib/block_run.h"
#include "tests/lib/layer_draws.h"
#include "tests/lib/layers.h"

#include "cuda/block_plan.h"

#define CAPACITY 5
#define MOST 70001 /* samples: more than a grid of blocks has rows */

static int n_cases, n_partial, n_empty, n_padded, n_none, n_accumulated, n_bytes_read;
static uint32_t numbers[MOST], ids[MOST];
static struct dt_backend *gpu;
static const struct mode *mode; /* of the cuda backend */

static inline struct buffer halves(size_t n, uint32_t zeros_of_8)
{
    struct buffer b = buffer_open(n);
    for (size_t i = 0; i < n; i++) {
        b.data[i] = draw(8) < zeros_of_8 ? 0.0f : ((float)draw(5) - 2.0f) / 2.0f;
    }
    return b;
}

static inline void add_strange(struct buffer *b)
{
    static const float strange[] = {NAN, INFINITY, -INFINITY, -0.0f};
    for (int i = 0; i < 3 && b->n > 0; i++) {
        b->data[draw((uint32_t)b->n)] = strange[draw(4)];
    }
}

/* Gathers the batch, as the step of a network begins. The first block's input comes from samples of
 * bytes or floats, which its convolution may read in place; others only need the ids. */
static inline struct dt_bound_samples *gather(const struct block_case *setup, float *x)
{
    static const uint16_t labels[MOST];
    static uint8_t bytes[MOST * 4];
    const struct dt_batch *batch = setup->pass.batch;
    const struct dt_shape shape =
        setup->block == 0 ? setup->model->blocks[0].in : (struct dt_shape){1, 1, 1};
    const size_t n = (size_t)setup->capacity * dt_shape_elems(shape);
    struct buffer values = buffer_open(n);
    memcpy(values.data, setup->x.data, setup->block == 0 ? setup->x.n * sizeof(float) : 0);
    bool are_bytes = n <= sizeof bytes;
    for (size_t i = 0; i < n && are_bytes; i++) {
        are_bytes = !signbit(values.data[i]) && values.data[i] <= 1;
        bytes[i] = are_bytes ? (uint8_t)(2 * values.data[i]) : 0;
    }
    const struct dt_samples samples = {.n = (size_t)setup->capacity,
                                       .shape = shape,
                                       .values = are_bytes ? NULL : values.data,
                                       .pixels = are_bytes ? bytes : NULL,
                                       .scale = 0.5f,
                                       .labels = labels,
                                       .n_classes = 1};
    struct dt_bound_samples *bound;
    CHECK_OK(gpu->ops->samples_open(gpu, &samples, &bound));
    CHECK_OK(gpu->ops->gather(gpu, bound, batch, x));
    BUFFERS_CLOSE(&values);
    n_bytes_read += are_bytes && setup->block == 0;
    return bound;
}

/* Runs an earlier, full batch with NaNs: its leftovers in scratch memory must not matter. */
static inline void run_nans(struct dt_block_state *state, const struct block_case *setup,
                            struct block_memory at, bool bf16_out)
{
    const struct dt_batch batch = {.n = setup->capacity, .rows = numbers, .ids = numbers};
    const struct buffer nothing = {0};
    struct block_case nans = *setup;
    nans.pass = (struct dt_pass){.batch = &batch, .training = true};
    at.dy =
        to_gpu(gpu, &nothing, setup->model->blocks[setup->block].out, setup->capacity, bf16_out);
    at.grads =
        to_gpu(gpu, &nothing, (struct dt_shape){(int)setup->model->arena_elems, 1, 1}, 1, false);
    float *other = to_gpu(gpu, &nothing, setup->model->blocks[0].in, setup->capacity, false);
    struct dt_bound_samples *bound = gather(&nans, other);
    block_passes(gpu, state, &nans, at);
    gpu->ops->samples_close(gpu, bound);
    gpu->ops->free(gpu, other);
    gpu->ops->free(gpu, at.dy);
    gpu->ops->free(gpu, at.grads);
}

static inline struct block_results run_gpu(const struct block_case *setup)
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
    CHECK_OK(ops->block_open(gpu, setup->model, setup->block, setup->capacity, &state));
    const struct block_memory at = {
        .params = to_gpu(gpu, &setup->params, arena, 1, false),
        .x = to_gpu(gpu, setup->block == 0 ? &nothing : &setup->x, b->in, setup->capacity, bf16),
        .y = to_gpu(gpu, &nothing, b->out, setup->capacity, bf16_out),
        .grads = to_gpu(gpu, &setup->grads, arena, 1, false),
        .dy = to_gpu(gpu, &setup->dy, b->out, setup->capacity, bf16_out),
        .dx = to_gpu(gpu, &nothing, b->in, setup->capacity, bf16)};
    float *eval_y = to_gpu(gpu, &nothing, b->out, setup->capacity, bf16_out);

    run_nans(state, setup, at, bf16_out);
    float *other = to_gpu(gpu, &nothing, (struct dt_shape){1, 1, 1}, setup->capacity, false);
    struct dt_bound_samples *bound = gather(setup, setup->block == 0 ? at.x : other);
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
    for (size_t i = 0; i < x_after.n; i++) { /* bits of NaNs may differ */
        const float a = x_after.data[i], e = setup->x.data[i];
        CHECK_MESSAGE(a == e || (isnan(a) && isnan(e)), "%s: x[%zu] is %g, not %g", case_text, i,
                      (double)a, (double)e);
    }
    check_same_bits("params", &setup->params, &params_after);
    BUFFERS_CLOSE(&x_after, &params_after);
    float *all[] = {at.params, at.x, at.y, at.grads, at.dy, at.dx, eval_y, other};
    ops->samples_close(gpu, bound);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ops->free(gpu, all[i]);
    }
    ops->block_close(state);
    return out;
}

static inline void check_on_gpu(const struct block_case *setup,
                                const struct block_results *expected)
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

static inline struct block_case draw_case(const struct dt_model *model, int block, int capacity,
                                          const struct dt_batch *batch)
{
    const struct dt_block *b = &model->blocks[block];
    const size_t n = (size_t)batch->n;
    return (struct block_case){
        .model = model,
        .block = block,
        .capacity = capacity,
        .pass = {.batch = batch, .training = true, .accumulate = draw(2) == 1, .seed = 99},
        .params = halves(model->arena_elems, 0),
        .grads = halves(model->arena_elems, 0),
        .x = halves(n * dt_shape_elems(b->in), draw(2) * 4),
        .dy = halves(n * dt_shape_elems(b->out), draw(2) * 4),
        .want_dx = block > 0};
}

static inline void check_block(const struct dt_model *model, int block, int n, int capacity,
                               bool strange)
{
    const struct dt_block *b = &model->blocks[block];
    const struct dt_batch batch = {.n = n, .rows = numbers, .ids = ids, .epoch = draw(3)};
    struct block_case setup = draw_case(model, block, capacity, &batch);
    const bool bytes = block == 0 && draw(2) == 0;
    for (size_t i = 0; i < setup.x.n && bytes; i++) {
        setup.x.data[i] = fabsf(setup.x.data[i]);
    }
    if (strange) {
        add_strange(&setup.x);
        add_strange(&setup.dy);
    }
    struct block_results expected = block_on_ref(&setup);
    check_on_gpu(&setup, &expected);
    block_results_close(&expected);
    block_case_close(&setup);
    n_cases++;
    n_partial += n > 0 && n < capacity;
    n_empty += n == 0;
    n_padded += b->pad_before_h > 0;
    n_none += b->linear == DT_LINEAR_NONE;
    n_accumulated += setup.pass.accumulate;
}

/* n: samples; 0: of few, by the draw. */
static inline void check_model(const struct dt_model_spec *spec, int n, bool strange)
{
    static const int sizes[] = {0, 1, 3, 4, CAPACITY, CAPACITY, CAPACITY, CAPACITY};
    static struct dt_model model;
    CHECK_OK(dt_model_lower(spec, &model));
    for (uint32_t i = 0; i < MOST; i++) {
        numbers[i] = i;
        ids[i] = i * 2469135 % 70001;
    }
    for (int b = 0; b < model.n_blocks; b++) {
        const size_t length = strlen(case_text);
        snprintf(case_text + length, sizeof case_text - length, ", block %d", b);
        check_block(&model, b, n > 0 ? n : sizes[draw(8)], n > 0 ? n : CAPACITY, strange);
        case_text[length] = '\0';
    }
}

/* Draws pools, dropout, activations, a flatten and a dense layer after the first. */
static inline void add_rest(struct dt_model_spec *spec)
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

#endif
