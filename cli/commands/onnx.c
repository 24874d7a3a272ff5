#include "cli/commands/onnx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "onnx.pb-c.h"

/* Normalization; linear operation, activation, pool and flatten of each block. */
#define MAX_NODES (4 + 4 * DT_MAX_LAYERS)
#define MAX_ATTRIBUTES 3
#define MAX_TENSORS (2 * DT_MAX_PARAMS + 4) /* weights, buffers, normalization */
#define MAX_NUMBERS 8                       /* of all attributes of a node */
#define NAME_SIZE 48

/* An operator; its one output has its name. */
struct node {
    Onnx__NodeProto proto;
    char name[NAME_SIZE];
    char *inputs[5], *output;
    Onnx__AttributeProto attributes[MAX_ATTRIBUTES], *attribute_list[MAX_ATTRIBUTES];
    int64_t numbers[MAX_NUMBERS];
    int n_numbers;
};

struct tensor {
    Onnx__TensorProto proto;
    int64_t dims[4];
};

/* The input or the output: a batch of floats. */
struct value {
    Onnx__ValueInfoProto proto;
    Onnx__TypeProto type;
    Onnx__TypeProto__Tensor tensor;
    Onnx__TensorShapeProto shape;
    Onnx__TensorShapeProto__Dimension dims[4], *dim_list[4];
};

struct builder {
    struct dt_model model; /* a copy: the format's strings are not const */
    const float *arena, *buffers;
    const struct dt_normalize *of_input, *of_output;
    float factors[2][DT_MOST_SCALED], summands[2][DT_MOST_SCALED]; /* of both */
    struct node nodes[MAX_NODES];
    Onnx__NodeProto *node_list[MAX_NODES];
    int n_nodes;
    size_t n_tensors;
    struct tensor tensors[MAX_TENSORS];
    Onnx__TensorProto *tensor_list[MAX_TENSORS];
    struct value input, output;
    Onnx__ValueInfoProto *input_list[1], *output_list[1];
    char *
        outputs[DT_MAX_LAYERS + 1]; /* as the network has them: of the samples, and of each block */
    bool flats[DT_MAX_LAYERS + 1];  /* it is a row of units */
    char *last;                     /* what the next node reads */
    bool flat;                      /* the same of it */
};

/* ---- operators */

/* The next of the chain. `suffix`: behind the block's name, which is enough for its linear
 * operation. */
static struct node *add_node(struct builder *b, char *type, const char *block, const char *suffix)
{
    struct node *node = &b->nodes[b->n_nodes];
    node->proto = (Onnx__NodeProto)ONNX__NODE_PROTO__INIT;
    snprintf(node->name, sizeof node->name, "%s%s", block, suffix);
    node->inputs[0] = b->last;
    node->output = b->last = node->name;
    node->proto.name = node->name;
    node->proto.op_type = type;
    node->proto.n_input = node->proto.n_output = 1;
    node->proto.input = node->inputs;
    node->proto.output = &node->output;
    node->proto.attribute = node->attribute_list;
    b->node_list[b->n_nodes++] = &node->proto;
    return node;
}

static Onnx__AttributeProto *add_attribute(struct node *node, char *name,
                                           Onnx__AttributeProto__AttributeType type)
{
    Onnx__AttributeProto *a = &node->attributes[node->proto.n_attribute];
    *a = (Onnx__AttributeProto)ONNX__ATTRIBUTE_PROTO__INIT;
    a->name = name;
    a->type = type;
    node->attribute_list[node->proto.n_attribute++] = a;
    return a;
}

static void add_number(struct node *node, char *name, int64_t number)
{
    add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT)->i = number;
}

static void add_numbers(struct node *node, char *name, int n, const int64_t *numbers)
{
    Onnx__AttributeProto *a =
        add_attribute(node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    a->ints = node->numbers + node->n_numbers;
    a->n_ints = (size_t)n;
    for (int i = 0; i < n; i++) {
        node->numbers[node->n_numbers++] = numbers[i];
    }
}

static void add_pair(struct node *node, char *name, int64_t both)
{
    add_numbers(node, name, 2, (const int64_t[]){both, both});
}

static void take_input(struct node *node, char *name)
{
    node->inputs[node->proto.n_input++] = name;
}

static void take_weights(struct builder *b, struct node *node, const struct dt_block *block)
{
    take_input(node, b->model.params[block->weight].name);
    take_input(node, b->model.params[block->bias].name);
}

static void add_flatten(struct builder *b, const char *block)
{
    add_number(add_node(b, "Flatten", block, ".flatten"), "axis", 1);
    b->flat = true;
}

static void add_conv(struct builder *b, const struct dt_block *block)
{
    struct node *node = add_node(b, "Conv", block->name, "");
    const int top = block->pad_before_h, left = block->pad_before_w;
    const int64_t pads[] = {top, left,
                            dt_conv_pad_after(block, block->in.h, top, block->linear_out.h),
                            dt_conv_pad_after(block, block->in.w, left, block->linear_out.w)};
    take_weights(b, node, block);
    add_pair(node, "kernel_shape", block->kernel);
    add_pair(node, "strides", block->stride);
    add_numbers(node, "pads", 4, pads);
}

static void add_dense(struct builder *b, const struct dt_block *block)
{
    if (!b->flat) { /* a grey image, whose flatten changes nothing and has no block */
        add_flatten(b, b->input.proto.name);
    }
    struct node *node = add_node(b, "Gemm", block->name, "");
    take_weights(b, node, block);
    add_number(node, "transB", 1);
}

/* Its inputs, weights, buffers and epsilon. */
static void add_own(struct builder *b, int i)
{
    const struct dt_block *block = &b->model.blocks[i];
    const struct dt_layer_spec *layer = &b->model.spec.layers[block->row - 1];
    const struct dt_operation *operation = dt_operation_of(layer->type);
    struct node *node = add_node(b, (char *)operation->onnx, block->name, "");
    if (block->weight != DT_NO_PARAM) {
        take_weights(b, node, block);
    }
    if (block->buffer > 0) {
        take_input(node, b->model.buffers[block->buffer - 1].name);
        take_input(node, b->model.buffers[block->buffer].name);
    }
    for (int k = 1; k < DT_MAX_INPUTS && dt_block_input(&b->model, i, k) >= 0; k++) {
        take_input(node, b->outputs[dt_block_input(&b->model, i, k)]);
    }
    if (layer->epsilon > 0) {
        add_attribute(node, "epsilon", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT)->f =
            (float)layer->epsilon;
    }
    if (operation->onnx_axis) {
        add_number(node, "axis", 1);
    }
}

static void add_activation(struct builder *b, const struct dt_block *block)
{
    static char *const types[] = {[DT_ACTIVATION_RELU] = "Relu",
                                  [DT_ACTIVATION_TANH] = "Tanh",
                                  [DT_ACTIVATION_SIGMOID] = "Sigmoid",
                                  [DT_ACTIVATION_LEAKY_RELU] = "LeakyRelu", /* alpha is 0.01 */
                                  [DT_ACTIVATION_GELU] = "Gelu"};
    char suffix[16];
    if (block->activation != DT_ACTIVATION_NONE) {
        snprintf(suffix, sizeof suffix, ".%s", dt_activation_names[block->activation]);
        add_node(b, types[block->activation], block->name, suffix);
    }
}

static void add_pool(struct builder *b, const struct dt_block *block)
{
    const bool global = block->pool == DT_POOL_AVG && block->pool_h == block->linear_out.h &&
                        block->pool_w == block->linear_out.w;
    if (block->pool == DT_POOL_NONE) {
        return;
    }
    if (global) {
        add_node(b, "GlobalAveragePool", block->name, ".pool");
        return;
    }
    struct node *node =
        add_node(b, block->pool == DT_POOL_MAX ? "MaxPool" : "AveragePool", block->name, ".pool");
    add_pair(node, "kernel_shape", block->pool_h);
    add_pair(node, "strides", block->pool_stride);
}

static void add_operation(struct builder *b, int i)
{
    const struct dt_block *block = &b->model.blocks[i];
    if (block->linear != DT_LINEAR_NONE) {
        (block->linear == DT_LINEAR_CONV ? add_conv : add_dense)(b, block);
    } else if (block->row > 0) {
        add_own(b, i);
    }
}

static void add_blocks(struct builder *b)
{
    b->outputs[0] = b->last;
    b->flats[0] = b->flat;
    for (int i = 0; i < b->model.n_blocks; i++) {
        const struct dt_block *block = &b->model.blocks[i];
        const int input = dt_block_input(&b->model, i, 0);
        b->last = b->outputs[input];
        b->flat = b->flats[input];
        add_operation(b, i);
        add_activation(b, block);
        add_pool(b, block);
        if (block->flatten) {
            add_flatten(b, block->name);
        }
        b->outputs[i + 1] = b->last;
        b->flats[i + 1] = b->flat;
    }
}

/* ---- weights, input and output */

/* One without dimensions yet. */
static struct tensor *add_tensor(struct builder *b, char *name, const float *numbers,
                                 size_t n_elems)
{
    struct tensor *t = &b->tensors[b->n_tensors];
    t->proto = (Onnx__TensorProto)ONNX__TENSOR_PROTO__INIT;
    t->proto.name = name;
    t->proto.data_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    t->proto.dims = t->dims;
    t->proto.raw_data.data = (uint8_t *)numbers;
    t->proto.raw_data.len = n_elems * sizeof(float);
    b->tensor_list[b->n_tensors++] = &t->proto;
    return t;
}

static void add_tensors(struct builder *b, int n, struct dt_param *params, const float *arena)
{
    for (int i = 0; i < n; i++) {
        struct dt_param *param = &params[i];
        struct tensor *t = add_tensor(b, param->name, arena + param->offset, param->n_elems);
        t->proto.n_dims = (size_t)param->n_dims;
        for (int d = 0; d < param->n_dims; d++) {
            t->dims[d] = (int64_t)param->dims[d];
        }
    }
}

/* The chain's next node, with a number for each channel. */
static void add_per_channel(struct builder *b, char *type, char *name, char *tensor, int n,
                            const float *numbers)
{
    struct node *node = add_node(b, type, name, "");
    struct tensor *t = add_tensor(b, tensor, numbers, (size_t)n);
    take_input(node, t->proto.name);
    t->proto.n_dims = b->flat ? 2 : 4;
    t->dims[0] = t->dims[2] = t->dims[3] = 1;
    t->dims[1] = n;
}

/* (x - mean) / std, as training has it: a product and a sum. */
static void add_normalization(struct builder *b)
{
    const struct dt_normalize *of = b->of_input;
    for (int c = 0; c < of->n; c++) {
        b->factors[0][c] = (float)(1.0 / of->std[c]);
        b->summands[0][c] = (float)(-of->mean[c] / of->std[c]);
    }
    if (of->n > 0) {
        add_per_channel(b, "Mul", "normalize.scaled", "normalize.factor", of->n, b->factors[0]);
        add_per_channel(b, "Add", "normalized", "normalize.summand", of->n, b->summands[0]);
    }
}

/* std * y + mean: outputs in the units of the targets. */
static void add_units(struct builder *b)
{
    const struct dt_normalize *of = b->of_output;
    for (int c = 0; c < of->n; c++) {
        b->factors[1][c] = (float)of->std[c];
        b->summands[1][c] = (float)of->mean[c];
    }
    if (of->n > 0) {
        add_per_channel(b, "Mul", "output.scaled", "output.factor", of->n, b->factors[1]);
        add_per_channel(b, "Add", "output.moved", "output.summand", of->n, b->summands[1]);
    }
}

/* Describes a tensor of n dimensions behind the batch's, which is free. */
static void set_value(struct value *v, char *name, int n, const int *dims)
{
    v->proto = (Onnx__ValueInfoProto)ONNX__VALUE_INFO_PROTO__INIT;
    v->type = (Onnx__TypeProto)ONNX__TYPE_PROTO__INIT;
    v->tensor = (Onnx__TypeProto__Tensor)ONNX__TYPE_PROTO__TENSOR__INIT;
    v->shape = (Onnx__TensorShapeProto)ONNX__TENSOR_SHAPE_PROTO__INIT;
    v->proto.name = name;
    v->proto.type = &v->type;
    v->type.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    v->type.tensor_type = &v->tensor;
    v->tensor.elem_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    v->tensor.shape = &v->shape;
    v->shape.n_dim = (size_t)n + 1;
    v->shape.dim = v->dim_list;
    for (int i = 0; i <= n; i++) {
        v->dims[i] = (Onnx__TensorShapeProto__Dimension)ONNX__TENSOR_SHAPE_PROTO__DIMENSION__INIT;
        v->dim_list[i] = &v->dims[i];
    }
    v->dims[0].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
    v->dims[0].dim_param = "N";
    for (int i = 0; i < n; i++) {
        v->dims[i + 1].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        v->dims[i + 1].dim_value = dims[i];
    }
}

static void build(struct builder *b)
{
    const struct dt_shape in = b->model.spec.input;
    const bool classifies = b->model.spec.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY;
    b->flat = in.h == 1 && in.w == 1;
    set_value(&b->input, "input", b->flat ? 1 : 3, (const int[]){in.c, in.h, in.w});
    set_value(&b->output, classifies ? "logits" : "output", 1, &b->model.n_outputs);
    b->input_list[0] = &b->input.proto;
    b->output_list[0] = &b->output.proto;
    add_tensors(b, b->model.n_params, b->model.params, b->arena);
    add_tensors(b, b->model.n_buffers, b->model.buffers, b->buffers);
    b->last = b->input.proto.name;
    add_normalization(b);
    add_blocks(b);
    add_units(b);
    b->nodes[b->n_nodes - 1].output = b->output.proto.name;
}

/* ---- bytes */

static enum dt_status pack(const Onnx__ModelProto *proto, uint8_t **bytes, size_t *n_bytes)
{
    *n_bytes = onnx__model_proto__get_packed_size(proto);
    if (*n_bytes > INT32_MAX) {
        return dt_error(DT_CONFIG, "the model has more than the 2 GiB that an ONNX file holds");
    }
    *bytes = malloc(*n_bytes);
    if (*bytes == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the model in ONNX");
    }
    onnx__model_proto__pack(proto, *bytes);
    return DT_OK;
}

static enum dt_status pack_model(struct builder *b, const char *input_text, const char *class_names,
                                 uint8_t **bytes, size_t *n_bytes)
{
    Onnx__ModelProto proto = ONNX__MODEL_PROTO__INIT;
    Onnx__GraphProto graph = ONNX__GRAPH_PROTO__INIT;
    Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT, *opsets[] = {&opset};
    Onnx__StringStringEntryProto classes = ONNX__STRING_STRING_ENTRY_PROTO__INIT,
                                 *properties[] = {&classes};
    classes.key = "class_names";
    classes.value = (char *)class_names;
    opset.version = dt_onnx_opset(&b->model);
    graph.name = "dtrain";
    graph.n_node = (size_t)b->n_nodes;
    graph.node = b->node_list;
    graph.n_initializer = b->n_tensors;
    graph.initializer = b->tensor_list;
    graph.n_input = graph.n_output = 1;
    graph.input = b->input_list;
    graph.output = b->output_list;
    b->input.proto.doc_string = (char *)input_text;
    proto.ir_version = opset.version < 17   ? 7
                       : opset.version < 20 ? 8
                                            : 9; /* the format's, of the time of the opset */
    proto.producer_name = "dtrain";
    proto.producer_version = (char *)dt_version;
    proto.graph = &graph;
    proto.n_opset_import = 1;
    proto.opset_import = opsets;
    proto.n_metadata_props = class_names != NULL;
    proto.metadata_props = properties;
    return pack(&proto, bytes, n_bytes);
}

enum dt_status dt_onnx_make(const struct dt_model *model, const float *arena, const float *buffers,
                            const struct dt_normalize *of_input,
                            const struct dt_normalize *of_output, const char *input_text,
                            const char *class_names, uint8_t **bytes, size_t *n_bytes)
{
    struct builder *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the model in ONNX");
    }
    b->model = *model;
    b->arena = arena;
    b->of_input = of_input;
    b->of_output = of_output;
    b->buffers = buffers;
    build(b);
    const enum dt_status s = pack_model(b, input_text, class_names, bytes, n_bytes);
    free(b);
    return s;
}
