/* How layers with an operation of their own become blocks. */
#include <stdio.h>
#include <string.h>

#include "base/arithmetic.h"
#include "model/layers/layers.h"

/* ---- names of layers */

static int find_layer(const struct dt_model_spec *spec, const char *name)
{
    int i = 0;
    while (i < spec->n_layers && strcmp(spec->layers[i].name, name) != 0) {
        i++;
    }
    return i;
}

static bool reads(const struct dt_layer_spec *layer, const char *name)
{
    bool found = strcmp(layer->input, name) == 0;
    for (int i = 0; i < layer->inputs.n; i++) {
        found = found || strcmp(layer->inputs.names[i], name) == 0;
    }
    return found;
}

static bool is_read(const struct dt_model_spec *spec, const char *name)
{
    bool found = false;
    for (int i = 0; i < spec->n_layers && name[0] != '\0'; i++) {
        found = found || reads(&spec->layers[i], name);
    }
    return found;
}

static enum dt_status check_name(const struct dt_lowering *l, const char *name)
{
    if (name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")] !=
        '\0') {
        return dt_error(DT_CONFIG,
                        "name \"%s\": only letters, digits, _ and . are possible (take "
                        "another name)",
                        name);
    }
    return name[0] == '\0' || find_layer(&l->model->spec, name) == l->layer
               ? DT_OK
               : dt_error(DT_CONFIG, "name \"%s\" is model.layers[%d]'s (take another name)", name,
                          find_layer(&l->model->spec, name));
}

/* The output of the block that a layer belongs to: its last, if others read it. */
static int output_of(const struct dt_model *model, int layer)
{
    int output = model->n_blocks;
    while (output > 0 && model->blocks[output - 1].first_layer > layer) {
        output--;
    }
    DT_ASSERT(output >= 0 && output <= model->n_blocks);
    return output;
}

static enum dt_status find_output(const struct dt_lowering *l, const char *name, int *output)
{
    const int layer = find_layer(&l->model->spec, name);
    if (layer >= l->model->spec.n_layers) {
        return dt_error(DT_CONFIG,
                        "input \"%s\": no layer has this name (give one \"name\": \"%s\")", name,
                        name);
    }
    if (layer >= l->layer) {
        return dt_error(DT_CONFIG,
                        "input \"%s\" is model.layers[%d], not yet computed (a layer reads "
                        "earlier ones)",
                        name, layer);
    }
    *output = output_of(l->model, layer);
    DT_ASSERT(*output > 0);
    return DT_OK;
}

/* ---- what an output is */

struct output {
    struct dt_shape shape, image;
    bool flat;
};

static struct output describe(const struct dt_model *model, int output)
{
    DT_ASSERT(output >= 0 && output <= model->n_blocks);
    struct output out = {.shape = model->spec.input};
    if (output == 0) {
        out.flat = out.shape.h == 1 && out.shape.w == 1;
        return out;
    }
    const struct dt_block *b = &model->blocks[output - 1];
    const struct dt_shape pooled = b->pool_out;
    out = describe(model, dt_block_input(model, output - 1, 0));
    out.shape = b->out;
    if (b->linear == DT_LINEAR_DENSE) {
        out.image = (struct dt_shape){0};
    }
    if (b->flatten) {
        out.image = pooled.c > 1 && pooled.h * pooled.w > 1 ? pooled : (struct dt_shape){0};
    }
    out.flat = out.flat || b->flatten;
    return out;
}

static bool same_shape(struct dt_shape a, struct dt_shape b)
{
    return a.c == b.c && a.h == b.h && a.w == b.w;
}

/* The next block begins at an output, the last one's or an earlier one's. */
static void go_to(struct dt_lowering *l, int output)
{
    const struct output at = describe(l->model, output);
    l->block = NULL;
    l->input = 1 + output;
    l->shape = at.shape;
    l->image = at.image;
    l->flat = at.flat;
}

/* A layer that others read ends its block. */
enum dt_status dt_layers_enter(struct dt_lowering *l)
{
    const struct dt_layer_spec *layer = &l->model->spec.layers[l->layer];
    const char *first = layer->inputs.n >= 2 ? layer->inputs.names[0] : layer->input;
    int output;
    DT_TRY(check_name(l, layer->name));
    if (l->layer > 0 && l->block != NULL && is_read(&l->model->spec, layer[-1].name)) {
        l->block = NULL;
        l->input = 1 + l->model->n_blocks;
    }
    if (first[0] != '\0') {
        DT_TRY(find_output(l, first, &output));
        go_to(l, output);
    }
    return DT_OK;
}

/* ---- layers */

/* The next tensor of a list: one number per channel or unit, or with 3 dimensions per pixel, H W C
 * in the arena. */
static struct dt_param *add_tensor(struct dt_lowering *l, struct dt_param *list, int *n,
                                   const char *kind, float initial, int n_dims)
{
    DT_ASSERT(*n < DT_MAX_PARAMS && (n_dims == 1 || n_dims == 3));
    const struct dt_block *block = l->block;
    const struct dt_shape in = block->in;
    struct dt_param *param = &list[(*n)++];
    *param = (struct dt_param){.n_dims = n_dims,
                               .dims = {(size_t)in.c, (size_t)in.h, (size_t)in.w},
                               .n_elems = n_dims == 1 ? (size_t)in.c : dt_shape_elems(in),
                               .image = n_dims == 1 ? l->image : in,
                               .is_bias = true,
                               .initial = initial};
    snprintf(param->name, sizeof param->name, "%s.%s", block->name, kind);
    return param;
}

static void add_params(struct dt_lowering *l, int n_dims)
{
    DT_ASSERT(l->block->weight == DT_NO_PARAM && l->block->bias == DT_NO_PARAM);
    struct dt_model *model = l->model;
    l->block->weight = model->n_params;
    (void)add_tensor(l, model->params, &model->n_params, "weight", 1, n_dims);
    l->block->bias = model->n_params;
    (void)add_tensor(l, model->params, &model->n_params, "bias", 0, n_dims);
}

static void add_buffer(struct dt_lowering *l, const char *kind, float initial)
{
    struct dt_model *model = l->model;
    struct dt_param *buffer = add_tensor(l, model->buffers, &model->n_buffers, kind, initial, 1);
    buffer->offset = model->buffer_elems;
    DT_ASSERT(buffer->offset % DT_PARAM_ALIGN == 0);
    model->buffer_elems += dt_round_up(buffer->n_elems, DT_PARAM_ALIGN);
}

static int count_rows(const struct dt_model *model, enum dt_layer_type type)
{
    int n = 0;
    for (int b = 0; b < model->n_blocks; b++) {
        const int row = model->blocks[b].row;
        n += row > 0 && model->spec.layers[row - 1].type == type;
    }
    return n;
}

static enum dt_status check_epsilon(const struct dt_layer_spec *layer)
{
    return layer->epsilon > 0 && layer->epsilon <= 1
               ? DT_OK
               : dt_error(DT_CONFIG, "epsilon out of range (use above 0 to 1)");
}

/* Units after a flatten are in H W C order, and in a file in PyTorch's, as the inputs of a dense
 * layer. */
static enum dt_status lower_batch_norm(struct dt_lowering *l, const struct dt_layer_spec *layer)
{
    struct dt_block *block = l->block;
    DT_TRY(check_epsilon(layer));
    if (!(layer->momentum > 0 && layer->momentum <= 1)) {
        return dt_error(DT_CONFIG, "momentum out of range (use above 0 to 1)");
    }
    add_params(l, 1);
    block->buffer = 1 + l->model->n_buffers;
    add_buffer(l, "running_mean", 0);
    add_buffer(l, "running_var", 1);
    return DT_OK;
}

static const struct dt_operation batch_norm = {
    .block = "bn", .onnx = "BatchNormalization", .onnx_opset = 14, .lower = lower_batch_norm};

static enum dt_status lower_layer_norm(struct dt_lowering *l, const struct dt_layer_spec *layer)
{
    DT_TRY(check_epsilon(layer));
    add_params(l, l->flat ? 1 : 3);
    return DT_OK;
}

static const struct dt_operation layer_norm = {.block = "ln",
                                               .onnx = "LayerNormalization",
                                               .onnx_opset = 17,
                                               .onnx_axis = true,
                                               .lower = lower_layer_norm};

/* The inputs of a layer behind its first. */
static enum dt_status find_inputs(struct dt_lowering *l, const struct dt_layer_spec *layer)
{
    const int begin = layer->inputs.n == 1 ? 0 : 1;
    int output;
    if (layer->inputs.n == 0) {
        return dt_error(DT_CONFIG, "has no second input (give \"inputs\": names of layers, or one "
                                   "that goes with the last layer's output)");
    }
    if (begin > 0 && layer->input[0] != '\0') {
        return dt_error(DT_CONFIG, "inputs and input both name its first input (leave input out)");
    }
    for (int i = begin; i < layer->inputs.n; i++) {
        DT_TRY(find_output(l, layer->inputs.names[i], &output));
        DT_ASSERT(1 + i - begin < DT_MAX_INPUTS && output <= l->model->n_blocks);
        l->block->inputs[1 + i - begin] = 1 + output;
    }
    return DT_OK;
}

static enum dt_status unlike(const struct dt_lowering *l, const struct output *other,
                             const char *cure)
{
    const struct dt_shape a = l->shape, b = other->shape;
    return dt_error(DT_CONFIG, "its inputs are %dx%dx%d%s and %dx%dx%d%s (%s)", a.c, a.h, a.w,
                    l->flat ? " in a row" : "", b.c, b.h, b.w, other->flat ? " in a row" : "",
                    cure);
}

/* The values of a flattened image lie H W C. */
static enum dt_status mixed_order(const char *layer)
{
    return dt_error(DT_CONFIG,
                    "its inputs are flattened images (put the flatten behind the %s, or a dense "
                    "layer between them)",
                    layer);
}

static enum dt_status lower_add(struct dt_lowering *l, const struct dt_layer_spec *layer)
{
    DT_TRY(find_inputs(l, layer));
    const struct output other = describe(l->model, l->block->inputs[1] - 1);
    if (!same_shape(l->shape, other.shape) || l->flat != other.flat) {
        return unlike(l, &other,
                      l->flat && other.flat
                          ? "give both as many units"
                          : "make them alike: a 1x1 conv2d changes channels and, with a stride, "
                            "the size");
    }
    return same_shape(l->image, other.image) ? DT_OK : mixed_order("add");
}

static const struct dt_operation add = {.block = "add", .onnx = "Add", .lower = lower_add};

/* Rows of flattened images would be H W C one by one, which no weight behind them could be. */
static enum dt_status lower_concat(struct dt_lowering *l, const struct dt_layer_spec *layer)
{
    struct dt_block *block = l->block;
    bool in_order = l->image.c == 0;
    DT_TRY(find_inputs(l, layer));
    for (int i = 1; i < DT_MAX_INPUTS && block->inputs[i] > 0; i++) {
        const struct output other = describe(l->model, block->inputs[i] - 1);
        if (l->shape.h != other.shape.h || l->shape.w != other.shape.w || l->flat != other.flat) {
            return unlike(l, &other,
                          "give them one height and width, by strides or pools, or flatten all");
        }
        in_order = in_order && other.image.c == 0;
        block->linear_out.c += other.shape.c;
    }
    block->in = block->linear_out;
    return in_order ? DT_OK : mixed_order("concat");
}

static const struct dt_operation concat = {
    .block = "concat", .onnx = "Concat", .onnx_axis = true, .lower = lower_concat};

#define DT_OPERATION_ROW(constant, name, symbol) [constant] = &symbol,
static const struct dt_operation *const operations[] = {DT_OPERATION_LIST(DT_OPERATION_ROW)};

const struct dt_operation *dt_operation_of(enum dt_layer_type type)
{
    return (size_t)type < sizeof operations / sizeof operations[0] ? operations[type] : NULL;
}

enum dt_status dt_layer_lower(struct dt_lowering *l, const struct dt_layer_spec *layer)
{
    DT_ASSERT(dt_operation_of(layer->type) != NULL && l->block->linear == DT_LINEAR_NONE);
    const struct dt_operation *operation = operations[layer->type];
    struct dt_block *block = l->block;
    block->row = 1 + l->layer;
    snprintf(block->name, sizeof block->name, "%s%d", operation->block,
             count_rows(l->model, layer->type));
    DT_TRY(operation->lower(l, layer));
    l->shape = block->linear_out;
    block->activation = layer->activation;
    l->next_stage += layer->activation != DT_ACTIVATION_NONE;
    return DT_OK;
}

static void forget_images(int n, struct dt_param *params)
{
    for (int i = 0; i < n; i++) {
        params[i].image = params[i].n_dims == 1 ? (struct dt_shape){0} : params[i].image;
    }
}

/* A layer's name is that of its block, and so of its tensors. */
static void name_block(struct dt_model *model, struct dt_block *block, const char *name)
{
    snprintf(block->name, sizeof block->name, "%s", name);
    if (block->weight != DT_NO_PARAM) {
        struct dt_param *weight = &model->params[block->weight],
                        *bias = &model->params[block->bias];
        snprintf(weight->name, sizeof weight->name, "%s.weight", name);
        snprintf(bias->name, sizeof bias->name, "%s.bias", name);
    }
    if (block->buffer > 0) {
        struct dt_param *buffers = &model->buffers[block->buffer - 1];
        snprintf(buffers[0].name, sizeof buffers[0].name, "%s.running_mean", name);
        snprintf(buffers[1].name, sizeof buffers[1].name, "%s.running_var", name);
    }
}

static bool makes_block(enum dt_layer_type type)
{
    return type == DT_LAYER_CONV2D || type == DT_LAYER_DENSE || dt_operation_of(type) != NULL;
}

static enum dt_status name_blocks(struct dt_model *model)
{
    for (int i = 0; i < model->spec.n_layers; i++) {
        const struct dt_layer_spec *layer = &model->spec.layers[i];
        if (makes_block(layer->type) && layer->name[0] != '\0') {
            name_block(model, &model->blocks[output_of(model, i) - 1], layer->name);
        }
    }
    for (int b = 0; b < model->n_blocks; b++) {
        for (int a = 0; a < b; a++) {
            if (strcmp(model->blocks[a].name, model->blocks[b].name) == 0) {
                return dt_error(DT_CONFIG,
                                "model.layers: two blocks have the name %s (dtrain's own "
                                "are conv1, fc1, bn1 and so on; take another name)",
                                model->blocks[a].name);
            }
        }
    }
    return DT_OK;
}

static enum dt_status check_used(const struct dt_model *model)
{
    for (int b = 0; b < model->n_blocks - 1; b++) {
        bool used = false;
        for (int r = b + 1; r < model->n_blocks; r++) {
            for (int i = 0; i < DT_MAX_INPUTS; i++) {
                used = used || dt_block_input(model, r, i) == b + 1;
            }
        }
        if (!used) {
            const int layer = model->blocks[b + 1].first_layer - 1;
            DT_ASSERT(layer >= 0 && layer < model->spec.n_layers);
            return dt_error(DT_CONFIG,
                            "model.layers[%d] %s: nothing reads its output (name it as an "
                            "input of a later layer, or leave it out)",
                            layer, dt_layer_names[model->spec.layers[layer].type]);
        }
    }
    return DT_OK;
}

/* Where no dense layer follows, a flatten gives C H W (dt_block.canonical). */
enum dt_status dt_layers_finish(struct dt_lowering *l)
{
    struct dt_model *model = l->model;
    if (l->n_dense == 0) {
        forget_images(model->n_params, model->params);
        forget_images(model->n_buffers, model->buffers);
    } else if (l->image.c > 0) {
        return dt_error(DT_CONFIG,
                        "model.layers: the last layer gives a flattened image, while other "
                        "layers are dense (end with a dense layer)");
    }
    DT_TRY(check_used(model));
    return name_blocks(model);
}
