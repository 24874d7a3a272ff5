/* From layers to blocks: shapes, names, the arena's order, and every way in which layers do not
 * fit. */
#include "checkpoint/checkpoint.h"
#include "model/layers/layers.h"
#include "model/optimizer.h"
#include "tests/lib/layers.h"
#include "tests/lib/temporary.h"

static struct dt_model model;
static const struct dt_layer_entries rows = {
    .enter = dt_layers_enter, .lower = dt_layer_lower, .finish = dt_layers_finish};

static const struct dt_layer_spec tutorial[] = {
    CONV(32, 3, 1, VALID, RELU),
    CONV(64, 3, 1, VALID, RELU),
    MAX_POOL(2, 2),
    DROPOUT(0.25),
    LAYER(FLATTEN),
    DENSE(128, RELU),
    DROPOUT(0.5),
    DENSE(10, NONE),
};

static enum dt_status lower(struct dt_shape input, const struct dt_layer_spec *layers, int n_layers)
{
    struct dt_model_spec spec = {.input = input, .n_layers = n_layers, .rows = &rows};
    memcpy(spec.layers, layers, (size_t)n_layers * sizeof *layers);
    dt_error_clear();
    return dt_model_lower(&spec, &model);
}

/* Four blocks, 320 + 18,496 + 1,179,776 + 1,290 parameters, PyTorch's names and shapes. */
static void test_tutorial_model(void)
{
    CHECK_OK(lower((struct dt_shape){1, 28, 28}, tutorial, 8));
    CHECK_INT(model.n_blocks, 4);
    CHECK_INT(model.n_parameters, 1199882);
    CHECK_INT(model.n_outputs, 10);
    const char *names[] = {"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
                           "fc1.weight",   "fc1.bias",   "fc2.weight",   "fc2.bias"};
    const size_t sizes[] = {288, 32, 18432, 64, 1179648, 128, 1280, 10};
    for (int i = 0; i < 8; i++) {
        CHECK_TEXT(model.params[i].name, names[i]);
        CHECK_INT(model.params[i].n_elems, sizes[i]);
        CHECK_INT(model.params[i].offset % DT_PARAM_ALIGN, 0);
    }
    CHECK_INT(model.params[2].dims[0], 64);
    CHECK_INT(model.params[2].dims[1], 32);
    CHECK_INT(model.params[4].dims[1], 9216);
    CHECK_INT(model.params[0].init, DT_INIT_HE_UNIFORM);
    CHECK_INT(model.params[6].init, DT_INIT_GLOROT_UNIFORM);
    const struct dt_block *conv2 = &model.blocks[1];
    CHECK_INT(conv2->linear_out.h, 24);
    CHECK_INT(conv2->pool_out.h, 12);
    CHECK(conv2->flatten && !conv2->canonical);
    const struct dt_shape image = model.params[4].image;
    CHECK(image.c == 64 && image.h == 12 && image.w == 12);
    CHECK_INT(model.params[6].image.c, 0);
    CHECK_INT(conv2->out.c, 9216);
    CHECK_NEAR(conv2->dropout_rate, 0.25, 0);
    CHECK_NEAR(dt_block_flops(conv2), 2.0 * 24 * 24 * 64 * 32 * 9, 0);
}

/* Front to back in the backward pass's order, without holes but for alignment. */
static void test_arena_is_in_reverse(void)
{
    CHECK_OK(lower((struct dt_shape){1, 28, 28}, tutorial, 8));
    CHECK_INT(model.blocks[3].grad_begin, 0);
    for (int b = model.n_blocks - 1; b > 0; b--) {
        CHECK_INT(model.blocks[b - 1].grad_begin, model.blocks[b].grad_end);
    }
    CHECK_INT(model.blocks[0].grad_end, model.arena_elems);
    CHECK(model.params[7].offset < model.params[5].offset);
}

static void test_same_padding(void)
{
    const struct dt_layer_spec layers[] = {CONV(2, 4, 2, SAME, NONE), LAYER(FLATTEN)};
    CHECK_OK(lower((struct dt_shape){1, 9, 8}, layers, 2));
    CHECK_INT(model.blocks[0].linear_out.h,
              5); /* ceil(9 / 2); (5 - 1) * 2 + 4 - 9 = 3 zeros, one of them above */
    CHECK_INT(model.blocks[0].pad_before_h, 1);
    CHECK_INT(model.blocks[0].linear_out.w, 4); /* (4 - 1) * 2 + 4 - 8 = 2 */
    CHECK_INT(model.blocks[0].pad_before_w, 1);
}

/* A layer that would have to run before what the block already does opens a new one. */
static void test_any_order(void)
{
    const struct dt_layer_spec layers[] = {LAYER(TANH),    DROPOUT(0.5),   LAYER(RELU),
                                           AVG_POOL(2, 1), LAYER(FLATTEN), LAYER(SIGMOID),
                                           DENSE(2, NONE)};
    CHECK_OK(lower((struct dt_shape){3, 4, 4}, layers, 7));
    CHECK_INT(model.n_blocks, 4);
    CHECK_INT(model.blocks[1].activation, DT_ACTIVATION_RELU);
    CHECK_INT(model.blocks[1].pool, DT_POOL_AVG);
    CHECK(model.blocks[1].flatten);
    CHECK_INT(model.blocks[2].in.c, 27);
    CHECK_INT(model.blocks[3].linear, DT_LINEAR_DENSE);
}

/* ReLU after a max pool is ReLU before it; tanh, an average pool or another ReLU are not. */
static void test_relu_after_max_pool(void)
{
    const struct dt_layer_spec layers[] = {CONV(2, 3, 1, VALID, NONE),
                                           MAX_POOL(2, 2),
                                           LAYER(RELU),
                                           CONV(2, 3, 1, VALID, TANH),
                                           MAX_POOL(2, 2),
                                           LAYER(RELU),
                                           AVG_POOL(2, 1),
                                           LAYER(RELU),
                                           LAYER(FLATTEN)};
    CHECK_OK(lower((struct dt_shape){1, 19, 19}, layers, 9));
    CHECK_INT(model.n_blocks, 4);
    CHECK_INT(model.blocks[0].activation, DT_ACTIVATION_RELU);
    CHECK_INT(model.blocks[0].pool, DT_POOL_MAX);
    CHECK_INT(model.blocks[1].activation, DT_ACTIVATION_TANH);
    CHECK_INT(model.blocks[2].activation, DT_ACTIVATION_RELU);
    CHECK_INT(model.blocks[2].pool, DT_POOL_AVG);
    CHECK_INT(model.blocks[3].activation, DT_ACTIVATION_RELU);
}

/* The average of an image of any shape is one pixel, which a flatten only renames. */
static void test_global_pool(void)
{
    const struct dt_layer_spec layers[] = {CONV(6, 3, 1, VALID, NONE), LAYER(GLOBAL_AVG_POOL),
                                           LAYER(FLATTEN), DENSE(3, NONE)};
    CHECK_OK(lower((struct dt_shape){2, 9, 6}, layers, 4));
    const struct dt_block *conv = &model.blocks[0];
    CHECK_INT(model.n_blocks, 2);
    CHECK_INT(conv->pool, DT_POOL_AVG);
    CHECK(conv->pool_h == 7 && conv->pool_w == 4);
    CHECK(conv->out.c == 6 && conv->out.h == 1 && conv->out.w == 1);
    CHECK_INT(model.params[2].dims[1], 6);
    CHECK_INT(model.params[2].image.c, 0);
}

static void test_flatten_of_gray_input_is_no_block(void)
{
    const struct dt_layer_spec layers[] = {LAYER(FLATTEN), DENSE(3, NONE)};
    CHECK_OK(lower((struct dt_shape){1, 4, 4}, layers, 2));
    CHECK_INT(model.n_blocks, 1);
    CHECK_INT(model.n_spatial, 0);
    CHECK_INT(model.blocks[0].in.c, 16);
    CHECK_INT(model.params[0].image.c, 0);
    CHECK_OK(lower((struct dt_shape){3, 4, 4}, layers, 2));
    CHECK_INT(model.n_blocks, 2);
    CHECK_INT(model.params[0].image.c, 3);
}

static void test_flatten_at_the_end_is_canonical(void)
{
    const struct dt_layer_spec layers[] = {CONV(2, 3, 1, VALID, NONE), LAYER(FLATTEN)};
    CHECK_OK(lower((struct dt_shape){1, 4, 4}, layers, 2));
    CHECK(model.blocks[0].flatten && model.blocks[0].canonical);
}

/* Files have PyTorch's order: unit, then C H W of its inputs; the arena has H W C. */
static void test_order_in_files(void)
{
    const struct dt_layer_spec layers[] = {CONV(2, 2, 1, VALID, NONE), LAYER(FLATTEN),
                                           DENSE(3, NONE), DENSE(2, NONE)};
    CHECK_OK(lower((struct dt_shape){1, 4, 5}, layers, 4));
    const struct dt_param *fc1 = &model.params[2];
    float *arena = temporary(model.arena_elems * sizeof *arena),
          *file = temporary(model.arena_elems * sizeof *file);
    CHECK_INT(dt_param_at(fc1, 24 + 12 + 1 * 4 + 3),
              24 + (1 * 4 + 3) * 2 + 1); /* unit 1, c 1, h 1, w 3 of 2 x 3 x 4 */
    for (size_t i = 0; i < model.arena_elems; i++) {
        arena[i] = file[i] = (float)i;
    }
    CHECK_OK(dt_model_reorder(&model, true, file));
    for (int p = 0; p < model.n_params; p++) {
        const struct dt_param *param = &model.params[p];
        for (size_t i = 0; i < param->n_elems; i++) {
            CHECK_NEAR(file[param->offset + i], arena[param->offset + dt_param_at(param, i)], 0);
        }
    }
    CHECK(memcmp(arena, file, model.arena_elems * sizeof *arena) != 0);
    CHECK_OK(dt_model_reorder(&model, false, file));
    CHECK(memcmp(arena, file, model.arena_elems * sizeof *arena) == 0);
}

static void expect_error(struct dt_shape input, const struct dt_layer_spec *layers, int n_layers,
                         const char *needle)
{
    CHECK_FAILS(lower(input, layers, n_layers), DT_CONFIG, needle);
}

#define EXPECT(needle, ...)                                                           \
    do {                                                                              \
        const struct dt_layer_spec layers[] = {__VA_ARGS__};                          \
        expect_error(input, layers, (int)(sizeof layers / sizeof layers[0]), needle); \
    } while (0)

static void test_errors_name_the_layer(void)
{
    const struct dt_shape input = {1, 4, 4};
    const struct dt_layer_spec flatten = LAYER(FLATTEN), dense = DENSE(3, NONE);
    const struct dt_layer_spec conv7 = CONV(3, 7, 1, VALID, NONE);
    const struct dt_layer_spec conv3 = CONV(3, 3, 1, VALID, NONE);
    EXPECT("model.layers[0] conv2d: kernel 7 does not fit input 4x4", conv7, flatten);
    EXPECT("model.layers[1] conv2d: kernel 3 does not fit input 2x2", conv3, conv3, flatten);
    EXPECT("model.layers[0] dense: its input is an image", dense);
    EXPECT("model.layers[1] conv2d: its input is flat", flatten, conv3);
    EXPECT("model.layers[1] global_avg_pool: its input is flat", flatten, LAYER(GLOBAL_AVG_POOL));
    EXPECT("model.layers[0] max_pool2d: size 5 does not fit input 4x4", MAX_POOL(5, 5), flatten);
    EXPECT("model.layers[0] max_pool2d: stride out of range", LAYER(MAX_POOL2D, .size = 2),
           flatten);
    EXPECT("model.layers[0] conv2d: size out of range", LAYER(CONV2D, .kernel = 3, .stride = 1),
           flatten);
    EXPECT("the last layer gives 3x2x2 images", conv3);
    EXPECT("nothing to train", flatten);
    EXPECT("at least 2 classes", flatten, DENSE(1, NONE));
    EXPECT("rate out of range", DROPOUT(NAN), flatten, dense);
    const struct dt_layer_spec pool = AVG_POOL(1, 1), windows[] = {conv3, pool};
    for (int i = 0; i < 2; i++) { /* no flatten layer is to blame */
        expect_error((struct dt_shape){3, 1, 1}, &windows[i], 1,
                     "2d: model.input has 3 features and no image (use dense layers");
    }
    expect_error((struct dt_shape){65536, 65536, 65536}, &flatten, 1, "model.input");
}

#define GRAPH_CONV(...) CONV(2, 3, 1, SAME, NONE, ##__VA_ARGS__)
#define GRAPH_ADD(...) LAYER(ADD, .inputs = {1, {__VA_ARGS__}})
#define GRAPH_CONCAT(n, ...) LAYER(CONCAT, .inputs = {(n), {__VA_ARGS__}})
#define END LAYER(FLATTEN), DENSE(3, NONE)

static void test_graphs(void)
{
    const struct dt_shape input = {2, 4, 4};
    const struct dt_layer_spec layers[] = {GRAPH_CONV(.name = "a"),
                                           LAYER(RELU, .name = "b"),
                                           GRAPH_CONV(.name = "c"),
                                           GRAPH_CONV(.input = "b"),
                                           GRAPH_ADD("c"),
                                           LAYER(RELU),
                                           END};
    CHECK_OK(lower(input, layers, 8));
    CHECK(model.is_graph);
    CHECK_INT(model.n_blocks, 5); /* a and b are one; add, relu and flatten, too */
    CHECK_TEXT(model.blocks[0].name, "a");
    CHECK_TEXT(model.params[2].name, "c.weight");
    CHECK_TEXT(model.params[4].name, "conv3.weight");
    CHECK_TEXT(model.blocks[3].name, "add1");
    CHECK_INT(dt_block_input(&model, 0, 0), 0);
    CHECK_INT(dt_block_input(&model, 2, 0), 1);
    CHECK_INT(dt_block_input(&model, 3, 0), 3);
    CHECK_INT(dt_block_input(&model, 3, 1), 2);
    CHECK(model.blocks[3].activation == DT_ACTIVATION_RELU && model.blocks[3].flatten);
    CHECK_OK(lower(input, (const struct dt_layer_spec[]){END}, 2));
    CHECK(!model.is_graph);
}

static void test_concat(void)
{
    const struct dt_shape input = {2, 4, 4};
    const struct dt_layer_spec layers[] = {GRAPH_CONV(.name = "a"),
                                           CONV(5, 1, 1, VALID, NONE, .input = "a", .name = "b"),
                                           GRAPH_CONV(.input = "a", .name = "c"),
                                           GRAPH_CONCAT(3, "b", "a", "c"),
                                           GRAPH_CONCAT(1, "a"),
                                           LAYER(RELU),
                                           END};
    CHECK_OK(lower(input, layers, 8));
    const struct dt_block *concat = &model.blocks[3];
    CHECK_TEXT(concat->name, "concat1");
    CHECK_INT(concat->out.c, 9);
    CHECK(concat->out.h == 4 && concat->out.w == 4);
    CHECK_INT(dt_block_input(&model, 3, 0), 2);
    CHECK_INT(dt_block_input(&model, 3, 1), 1);
    CHECK_INT(dt_block_input(&model, 3, 2), 3);
    CHECK_INT(dt_block_input(&model, 3, 3), -1);
    CHECK_INT(dt_block_input(&model, 4, 0), 4); /* the layer before, and then the named one */
    CHECK_INT(dt_block_input(&model, 4, 1), 1);
    CHECK_INT(model.blocks[4].linear_out.c, 11);
    CHECK(model.blocks[4].activation == DT_ACTIVATION_RELU && model.blocks[4].flatten);
    CHECK_INT(model.params[model.blocks[5].weight].dims[1], 11 * 16);
}

/* PyTorch's shapes; the order in the arena is H W C. */
static void test_layer_norm(void)
{
    const struct dt_shape input = {2, 4, 3};
    const struct dt_layer_spec norm = LAYER(LAYER_NORM, .epsilon = 1e-5),
                               layers[] = {norm, LAYER(FLATTEN), norm, DENSE(3, NONE), norm};
    CHECK_OK(lower(input, layers, 5));
    CHECK_TEXT(model.params[0].name, "ln1.weight");
    CHECK_TEXT(model.params[3].name, "ln2.bias");
    CHECK(model.params[0].n_dims == 3 && model.params[1].n_dims == 3);
    CHECK(model.params[0].dims[0] == 2 && model.params[0].dims[1] == 4 &&
          model.params[0].dims[2] == 3);
    CHECK_INT(model.params[1].n_elems, 24);
    CHECK_INT(dt_param_at(&model.params[0], 1), 2); /* the next place of the first channel */
    CHECK(model.params[2].n_dims == 1 && model.params[2].dims[0] == 24);
    CHECK_INT(dt_param_at(&model.params[2], 1), 2);
    CHECK(model.params[6].n_dims == 1 && model.params[6].dims[0] == 3);
    CHECK_INT(model.n_buffers, 0);
    /* Where no dense layer follows, the row is C H W; an image stays as it is. */
    const struct dt_layer_spec row[] = {norm, LAYER(FLATTEN), norm};
    CHECK_OK(lower(input, row, 3));
    CHECK_INT(dt_param_at(&model.params[0], 1), 2);
    CHECK_INT(dt_param_at(&model.params[2], 1), 1);
}

static void test_wrong_graphs(void)
{
    const struct dt_shape input = {2, 4, 4};
    EXPECT("model.layers[0] conv2d: input \"x\": no layer has this name", GRAPH_CONV(.input = "x"),
           END);
    EXPECT("model.layers[0] conv2d: input \"b\" is model.layers[1], not yet computed",
           GRAPH_CONV(.input = "b"), GRAPH_CONV(.name = "b"), END);
    EXPECT("input \"a\" is model.layers[0], not yet computed",
           GRAPH_CONV(.name = "a", .input = "a"), END);
    EXPECT("model.layers[1] conv2d: name \"a\" is model.layers[0]'s", GRAPH_CONV(.name = "a"),
           GRAPH_CONV(.name = "a"), END);
    EXPECT("name \"a b\": only letters", GRAPH_CONV(.name = "a b"), END);
    EXPECT("two blocks have the name conv2", GRAPH_CONV(.name = "conv2"), GRAPH_CONV(.name = ""),
           END);
    EXPECT("model.layers[1] conv2d: nothing reads its output", GRAPH_CONV(.name = "a"),
           GRAPH_CONV(.name = "b"), GRAPH_CONV(.input = "a"), END);
    EXPECT("model.layers[1] add: has no second input", GRAPH_CONV(.name = "a"), LAYER(ADD), END);
    EXPECT("model.layers[3] add: its inputs are 2x4x4 and 2x2x2", GRAPH_CONV(.name = "a"),
           LAYER(MAX_POOL2D, .size = 2, .stride = 2, .name = "b"), GRAPH_CONV(.input = "a"),
           GRAPH_ADD("b"), END);
    EXPECT("model.layers[2] add: its inputs are flattened images (put the flatten behind the add, "
           "or a dense layer between them)",
           LAYER(FLATTEN, .name = "a"), DENSE(32, NONE), GRAPH_ADD("a"), DENSE(3, NONE));
    EXPECT("32x1x1 in a row and 7x1x1 in a row (give both as many units)", LAYER(FLATTEN),
           DENSE(7, NONE, .name = "a"), DENSE(32, NONE), GRAPH_ADD("a"), DENSE(3, NONE));
    EXPECT("model.layers[1] concat: has no second input (give \"inputs\": names of layers, or one "
           "that goes with the last layer's output)",
           GRAPH_CONV(.name = "a"), LAYER(CONCAT), END);
    EXPECT("model.layers[2] concat: its inputs are 2x2x2 and 2x4x4 (give them one height and "
           "width, by strides or pools, or flatten all)",
           GRAPH_CONV(.name = "a"), MAX_POOL(2, 2), GRAPH_CONCAT(1, "a"), END);
    EXPECT("model.layers[2] concat: its inputs are 32x1x1 in a row and 2x4x4",
           GRAPH_CONV(.name = "a"), LAYER(FLATTEN), GRAPH_CONCAT(1, "a"), END);
    EXPECT("model.layers[2] concat: its inputs are flattened images (put the flatten behind the "
           "concat, or a dense layer between them)",
           LAYER(FLATTEN, .name = "a"), DENSE(5, NONE), GRAPH_CONCAT(1, "a"), DENSE(3, NONE));
    EXPECT("model.layers[1] concat: input \"b\": no layer has this name", GRAPH_CONV(.name = "a"),
           GRAPH_CONCAT(3, "a", "a", "b"), END);
    EXPECT("model.layers[1] concat: inputs and input both name its first input (leave input out)",
           GRAPH_CONV(.name = "a"), LAYER(CONCAT, .input = "a", .inputs = {2, {"a", "a"}}), END);
    EXPECT("model.layers[0] layer_norm: epsilon out of range", LAYER(LAYER_NORM), END);
    EXPECT("epsilon out of range", LAYER(BATCH_NORM, .momentum = 0.1), END);
    EXPECT("momentum out of range", LAYER(BATCH_NORM, .epsilon = 1), END);
}

/* Sizes whose product would overflow are named, not multiplied. */
static void test_sizes_cannot_overflow(void)
{
    const struct dt_shape input = {65536, 64, 64};
    const struct dt_layer_spec flatten = LAYER(FLATTEN);
    EXPECT("more than 2^31 weights", flatten, DENSE(65536, NONE));
    EXPECT("more than 2^31 weights", CONV(65536, 64, 64, VALID, NONE), flatten);
}

static void test_initial_weights(void)
{
    CHECK_OK(lower((struct dt_shape){1, 28, 28}, tutorial, 8));
    float *arena = temporary(model.arena_elems * sizeof *arena),
          *again = temporary(model.arena_elems * sizeof *again);
    dt_model_init(&model, 1, arena);
    dt_model_init(&model, 1, again);
    CHECK(memcmp(arena, again, model.arena_elems * sizeof *arena) == 0);
    dt_model_init(&model, 2, again);
    CHECK(memcmp(arena, again, model.arena_elems * sizeof *arena) != 0);
    const struct dt_param *fc1 =
        &model.params[4]; /* He uniform: variance 2 / fan_in, largest sqrt(6 / fan_in) */
    double sum = 0, squares = 0, largest = 0;
    for (size_t i = 0; i < fc1->n_elems; i++) {
        const double w = arena[fc1->offset + i];
        sum += w;
        squares += w * w;
        largest = fmax(largest, fabs(w));
    }
    const double n = (double)fc1->n_elems, variance = 2.0 / 9216;
    CHECK_NEAR(sum / n, 0, 4 * sqrt(variance / n));
    CHECK_NEAR(squares / n, variance, 0.01 * variance);
    CHECK_NEAR(largest, sqrt(6.0 / 9216), 1e-5);
    for (size_t i = 0; i < 128; i++) {
        CHECK_NEAR(arena[model.params[5].offset + i], 0, 0);
    }
}

int main(void)
{
    test_tutorial_model();
    test_arena_is_in_reverse();
    test_same_padding();
    test_any_order();
    test_relu_after_max_pool();
    test_global_pool();
    test_flatten_of_gray_input_is_no_block();
    test_flatten_at_the_end_is_canonical();
    test_order_in_files();
    test_errors_name_the_layer();
    test_graphs();
    test_concat();
    test_layer_norm();
    test_wrong_graphs();
    test_sizes_cannot_overflow();
    test_initial_weights();
    return 0;
}
