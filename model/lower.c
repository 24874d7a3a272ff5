#include "model/layers/layers.h"

#include <stdio.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/rng.h"

#define MAX_KERNEL 1024

const char *const dt_layer_names[] = {DT_LAYER_LIST(DT_ENUM_NAME)};

/* The parts of a block in execution order; a layer that must run before the block's last part opens
 * a new block. */
enum stage { STAGE_LINEAR, STAGE_ACTIVATION, STAGE_POOL, STAGE_DROPOUT, STAGE_FLATTEN, STAGE_END };

static enum dt_status check_range(const char *name, int value, int most)
{
    DT_ASSERT(most >= 1);
    return value >= 1 && value <= most
               ? DT_OK
               : dt_error(DT_CONFIG, "%s out of range (use 1 to %d)", name, most);
}

/* For a layer with a window. An input of one pixel counts as flat. */
static enum dt_status need_image(const struct dt_lowering *l)
{
    const struct dt_shape in = l->model->spec.input;
    if (l->flat && (in.h > 1 || in.w > 1)) {
        return dt_error(DT_CONFIG, "its input is flat (move it before the flatten layer)");
    }
    return !l->flat ? DT_OK
                    : dt_error(DT_CONFIG,
                               "model.input has %d features and no image (use dense layers, or set "
                               "model.input to [channels, height, width])",
                               in.c);
}

static void open_block(struct dt_lowering *l)
{
    DT_ASSERT(l->model->n_blocks < DT_MAX_LAYERS);
    struct dt_model *model = l->model;
    l->block = &model->blocks[model->n_blocks++];
    *l->block = (struct dt_block){.inputs = {l->input},
                                  .first_layer = model->n_blocks == 1 ? 0 : l->layer,
                                  .in = l->shape,
                                  .linear_out = l->shape,
                                  .pool_out = l->shape,
                                  .out = l->shape,
                                  .weight = DT_NO_PARAM,
                                  .bias = DT_NO_PARAM};
    snprintf(l->block->name, sizeof l->block->name, "block%d", model->n_blocks);
    l->next_stage = STAGE_LINEAR;
    l->input = 0;
}

/* Returns the block that takes a part of this stage, and marks the stages up to it as used. */
static struct dt_block *block_for(struct dt_lowering *l, int stage)
{
    DT_ASSERT(stage >= STAGE_LINEAR && stage < STAGE_END);
    if (l->block == NULL || l->next_stage > stage) {
        open_block(l);
    }
    l->next_stage = stage + 1;
    return l->block;
}

static enum dt_status add_activation(struct dt_lowering *l, enum dt_activation activation)
{
    if (activation != DT_ACTIVATION_NONE) {
        block_for(l, STAGE_ACTIVATION)->activation = activation;
    }
    return DT_OK;
}

/* Output extent of one direction, and zeros before the input; "same" gives ceil(in / stride), as in
 * TensorFlow and Keras, a number of zeros what PyTorch gives. */
static int conv_extent(int in, int kernel, int stride, int padding, int *before)
{
    DT_ASSERT(in >= 1 && kernel >= 1 && stride >= 1);
    *before = dt_max(padding, 0);
    if (padding != DT_PADDING_SAME) {
        const int padded = in + 2 * *before;
        return padded < kernel ? 0 : (padded - kernel) / stride + 1;
    }
    const int out = (in + stride - 1) / stride;
    const int total = (out - 1) * stride + kernel - in;
    *before = total > 0 ? total / 2 : 0;
    DT_ASSERT(out * stride >= in && (out - 1) * stride < in);
    return out;
}

static enum dt_status lower_conv2d(struct dt_lowering *l, const struct dt_layer_spec *layer)
{
    DT_TRY(check_range("size", layer->size, DT_MAX_EXTENT));
    DT_TRY(check_range("stride", layer->stride, DT_MAX_EXTENT));
    DT_TRY(check_range("kernel", layer->kernel, MAX_KERNEL));
    DT_TRY(need_image(l));
    if (layer->padding > layer->kernel / 2) {
        return dt_error(DT_CONFIG, "padding %d is more than half of kernel %d (take at most %d)",
                        layer->padding, layer->kernel, layer->kernel / 2);
    }
    struct dt_block *block = block_for(l, STAGE_LINEAR);
    struct dt_shape *out = &block->linear_out;
    block->linear = DT_LINEAR_CONV;
    block->kernel = layer->kernel;
    block->stride = layer->stride;
    out->c = layer->size;
    out->h =
        conv_extent(l->shape.h, layer->kernel, layer->stride, layer->padding, &block->pad_before_h);
    out->w =
        conv_extent(l->shape.w, layer->kernel, layer->stride, layer->padding, &block->pad_before_w);
    if (out->h < 1 || out->w < 1) {
        return dt_error(DT_CONFIG,
                        "kernel %d does not fit input %dx%d (use a smaller kernel, or \"padding\": "
                        "\"same\")",
                        layer->kernel, l->shape.h, l->shape.w);
    }
    snprintf(block->name, sizeof block->name, "conv%d", ++l->n_conv);
    DT_TRY(dt_block_add_params(l->model, block, layer->init));
    l->shape = *out;
    return add_activation(l, layer->activation);
}

static enum dt_status lower_dense(struct dt_lowering *l, const struct dt_layer_spec *layer)
{
    DT_TRY(check_range("size", layer->size, DT_MAX_EXTENT));
    if (!l->flat) {
        return dt_error(DT_CONFIG, "its input is an image (put {\"type\": \"flatten\"} before it)");
    }
    struct dt_block *block = block_for(l, STAGE_LINEAR);
    DT_ASSERT(l->image.c == 0 || dt_shape_elems(l->image) == (size_t)l->shape.c);
    block->linear = DT_LINEAR_DENSE;
    block->linear_out = (struct dt_shape){layer->size, 1, 1};
    snprintf(block->name, sizeof block->name, "fc%d", ++l->n_dense);
    DT_TRY(dt_block_add_params(l->model, block, layer->init));
    l->model->params[block->weight].image = l->image;
    l->image = (struct dt_shape){0};
    l->shape = block->linear_out;
    return add_activation(l, layer->activation);
}

static enum dt_status add_pool(struct dt_lowering *l, enum dt_pool pool, int h, int w, int stride)
{
    DT_TRY(check_range("size", h, DT_MAX_EXTENT));
    DT_TRY(check_range("stride", stride, DT_MAX_EXTENT));
    DT_TRY(need_image(l));
    if (l->shape.h < h || l->shape.w < w) {
        return dt_error(DT_CONFIG,
                        "size %d does not fit input %dx%d (use a smaller size, or drop a layer)", h,
                        l->shape.h, l->shape.w);
    }
    struct dt_block *block = block_for(l, STAGE_POOL);
    block->pool = pool;
    block->pool_h = h;
    block->pool_w = w;
    block->pool_stride = stride;
    l->shape.h = (l->shape.h - h) / stride + 1;
    l->shape.w = (l->shape.w - w) / stride + 1;
    DT_ASSERT(l->shape.h >= 1 && l->shape.w >= 1);
    return DT_OK;
}

static enum dt_status lower_pool(struct dt_lowering *l, const struct dt_layer_spec *layer)
{
    return add_pool(l, layer->type == DT_LAYER_MAX_POOL2D ? DT_POOL_MAX : DT_POOL_AVG, layer->size,
                    layer->size, layer->stride);
}

static enum dt_status lower_global_pool(struct dt_lowering *l, const struct dt_layer_spec *layer)
{
    (void)layer;
    return add_pool(l, DT_POOL_AVG, l->shape.h, l->shape.w, dt_max(l->shape.h, l->shape.w));
}

static enum dt_status lower_dropout(struct dt_lowering *l, const struct dt_layer_spec *layer)
{
    if (!(layer->rate >= 0 && layer->rate < 1)) {
        return dt_error(DT_CONFIG, "rate out of range (use 0 to below 1)");
    }
    if (dt_dropout_threshold((float)layer->rate) > 0) {
        struct dt_block *block = block_for(l, STAGE_DROPOUT);
        block->dropout_rate = (float)layer->rate;
        block->dropout_stream = (uint32_t)l->layer;
    }
    return DT_OK;
}

/* A flatten that only renames its input needs no block. */
static enum dt_status lower_flatten(struct dt_lowering *l, const struct dt_layer_spec *layer)
{
    (void)layer;
    if (l->flat) {
        return DT_OK;
    }
    if (l->shape.c > 1 && l->shape.h * l->shape.w > 1) {
        l->image = l->shape;
    }
    if (l->block != NULL || l->shape.c > 1) {
        block_for(l, STAGE_FLATTEN)->flatten = true;
    }
    l->shape = (struct dt_shape){(int)dt_shape_elems(l->shape), 1, 1};
    l->flat = true;
    return DT_OK;
}

/* ReLU after a max pool is the same function before it, where kernels fuse the two. */
static enum dt_status lower_nonlinear(struct dt_lowering *l, const struct dt_layer_spec *layer)
{
    const int index = (int)layer->type - DT_LAYER_RELU; /* in the order of activations */
    DT_ASSERT(index >= 0 && index <= DT_ACTIVATION_GELU - DT_ACTIVATION_RELU);
    if (layer->type == DT_LAYER_RELU && l->block != NULL && l->next_stage == STAGE_POOL + 1 &&
        l->block->pool == DT_POOL_MAX && l->block->activation == DT_ACTIVATION_NONE) {
        l->block->activation = DT_ACTIVATION_RELU;
        return DT_OK;
    }
    return add_activation(l, (enum dt_activation)(DT_ACTIVATION_RELU + index));
}

static enum dt_status lower_operation(struct dt_lowering *l, const struct dt_layer_spec *layer)
{
    DT_ASSERT(l->model->spec.rows != NULL);
    block_for(l, STAGE_LINEAR);
    return l->model->spec.rows->lower(l, layer);
}

/* Each checks every field from outside before it is used, so that no caller can overflow an int. */
#define DT_LOWER(constant, name, symbol) [constant] = lower_##symbol,
#define DT_LOWER_OPERATION(constant, ...) [constant] = lower_operation,
static enum dt_status (*const lower[])(struct dt_lowering *, const struct dt_layer_spec *) = {
    DT_BLOCK_LAYER_LIST(DT_LOWER) DT_OPERATION_LIST(DT_LOWER_OPERATION)};

/* Its errors do not name the layer. */
static enum dt_status lower_layer(struct dt_lowering *l, const struct dt_layer_spec *layer)
{
    DT_TRY(l->model->spec.rows != NULL ? l->model->spec.rows->enter(l) : DT_OK);
    DT_TRY(lower[layer->type](l, layer));
    if (dt_shape_elems(l->shape) > (size_t)1 << 28) {
        return dt_error(DT_CONFIG, "more than 2^28 activations per sample (make it smaller)");
    }
    if (l->block != NULL) {
        l->block->lr = layer->frozen ? -1.0f : layer->lr > 0 ? (float)layer->lr : l->block->lr;
        l->block->out = l->shape;
        if (!l->block->flatten) {
            l->block->pool_out = l->shape;
        }
    }
    DT_ASSERT(!l->flat || (l->shape.h == 1 && l->shape.w == 1));
    return DT_OK;
}

static enum dt_status check_head(const struct dt_lowering *l)
{
    if (l->model->n_params == 0) {
        return dt_error(DT_CONFIG, "model.layers: nothing to train (add a conv2d or dense layer)");
    }
    if (!l->flat) {
        return dt_error(DT_CONFIG,
                        "model.layers: the last layer gives %dx%dx%d images (end with flatten, or "
                        "flatten and dense)",
                        l->shape.c, l->shape.h, l->shape.w);
    }
    if (l->model->spec.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY && l->shape.c < 2) {
        return dt_error(DT_CONFIG, "model.loss: softmax_cross_entropy needs at least 2 classes, "
                                   "the last layer has 1 unit (give it one per "
                                   "class, or use mean_squared_error)");
    }
    if (l->shape.c > DT_MAX_EXTENT) {
        return dt_error(
            DT_CONFIG,
            "model.layers: %d outputs, at most %d are possible (end with a smaller dense layer)",
            l->shape.c, DT_MAX_EXTENT);
    }
    return DT_OK;
}

enum dt_status dt_model_lower(const struct dt_model_spec *spec, struct dt_model *model)
{
    DT_ASSERT(spec->n_layers >= 0 && spec->n_layers <= DT_MAX_LAYERS);
    memset(model, 0, sizeof *model);
    model->spec = *spec;
    struct dt_lowering l = {.model = model, .shape = spec->input};
    const struct dt_shape in = spec->input;
    char where[64];
    if (in.c < 1 || in.h < 1 || in.w < 1 || in.c > DT_MAX_EXTENT || in.h > DT_MAX_EXTENT ||
        in.w > DT_MAX_EXTENT || dt_shape_elems(in) > (size_t)1 << 28) {
        return dt_error(DT_CONFIG,
                        "model.input: %dx%dx%d is not a usable size (each 1 to 65536, 2^28 in all)",
                        in.c, in.h, in.w);
    }
    l.flat = in.h == 1 && in.w == 1; /* plain features need no flatten */
    for (l.layer = 0; l.layer < spec->n_layers; l.layer++) {
        const struct dt_layer_spec *layer = &spec->layers[l.layer];
        const enum dt_status status = lower_layer(&l, layer);
        if (status != DT_OK) {
            snprintf(where, sizeof where, "model.layers[%d] %s: ", l.layer,
                     dt_layer_names[layer->type]);
            return dt_error_around(status, where, "");
        }
    }
    DT_TRY(check_head(&l));
    DT_TRY(spec->rows != NULL ? spec->rows->finish(&l) : DT_OK);
    dt_model_place(model);
    DT_ASSERT(model->n_parameters > 0 && model->n_parameters <= model->arena_elems);
    DT_ASSERT(model->blocks[0].grad_end == model->arena_elems);
    for (int b = 0; b < model->n_blocks; b++) {
        model->blocks[b].canonical = model->blocks[b].flatten && l.n_dense == 0;
    }
    DT_ASSERT(model->n_spatial <= model->n_blocks && dt_shape_elems(l.shape) == (size_t)l.shape.c);
    model->n_outputs = l.shape.c;
    return DT_OK;
}
