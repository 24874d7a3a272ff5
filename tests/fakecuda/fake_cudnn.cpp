/* Fake cuDNN's convolutions: descriptors as strict as cuDNN's, heuristics that answer with every
 * kind of engine that a caller must distinguish, and plain loops, summed in double in a fixed
 * order. */
#include <cudnn.h>
#include <stdint.h>

#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/fakecuda/fake.h"
#include "tests/fakecuda/fake_number.h"

#if CUDNN_VERSION < 90100
#define CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP ((cudnnBackendNumericalNote_t)9)
#endif
#if CUDNN_VERSION < 90600
#define CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE ((cudnnStatus_t)2012)
#endif

struct cudnnContext {
    cudaStream_t stream;
};

namespace {

std::set<cudnnHandle_t> handles;
std::string last_error;
long n_plans, n_descriptors;

cudnnStatus_t fail(cudnnStatus_t status, const char *text)
{
    last_error = text;
    return status;
}

#define NEED(condition, status)                             \
    do {                                                    \
        if (!(condition)) {                                 \
            return fail(CUDNN_STATUS_##status, #condition); \
        }                                                   \
    } while (0)
#define PASS_ON(call)                         \
    do {                                      \
        const cudnnStatus_t status = (call);  \
        if (status != CUDNN_STATUS_SUCCESS) { \
            return status;                    \
        }                                     \
    } while (0)

/* ---- attributes: type, number of elements, required at finalize ---- */

struct rule {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count; /* 0: any */
    bool required;
};

enum direction { FORWARD, INPUT_GRADIENT, FILTER_GRADIENT };

const struct operation {
    cudnnBackendDescriptorType_t type;
    direction is;
    cudnnBackendAttributeName_t x, filter, y, convolution, alpha, beta;
} operations[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, FORWARD,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, INPUT_GRADIENT,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, FILTER_GRADIENT,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

const operation *operation_of(cudnnBackendDescriptorType_t type)
{
    for (const operation &o : operations) {
        if (o.type == type) {
            return &o;
        }
    }
    return nullptr;
}

std::vector<rule> rules_of(cudnnBackendDescriptorType_t type)
{
    constexpr auto is_descriptor = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    if (const operation *o = operation_of(type)) {
        return {{o->x, is_descriptor, 1, true},        {o->filter, is_descriptor, 1, true},
                {o->y, is_descriptor, 1, true},        {o->convolution, is_descriptor, 1, true},
                {o->alpha, CUDNN_TYPE_FLOAT, 1, true}, {o->beta, CUDNN_TYPE_FLOAT, 1, true}};
    }
    switch (type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return {{CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, true},
                {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true},
                {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, true},
                {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, true},
                {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, true},
                {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, false}};
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
        return {{CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, true},
                {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, true},
                {CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, false}};
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return {{CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, is_descriptor, 1, true},
                {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, is_descriptor, 1, true},
                {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, is_descriptor, 1, false},
                {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, is_descriptor, 1, true}};
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        return {{CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true},
                {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, true},
                {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, true},
                {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, true},
                {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, true},
                {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, true},
                {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, true}};
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return {{CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, true},
                {CUDNN_ATTR_OPERATIONGRAPH_OPS, is_descriptor, 0, true}};
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, is_descriptor, 1, true},
                {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, true}};
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return {{CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, true},
                {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, is_descriptor, 1, true}};
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 0, false},
                {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 0, false},
                {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, false}};
    default: /* the heuristics create engines and their configurations */
        return {};
    }
}

size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_INT64:
        return sizeof(int64_t);
    case CUDNN_TYPE_FLOAT:
        return sizeof(float);
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return sizeof(void *);
    default: /* enumerations */
        return sizeof(int);
    }
}

/* ---- the operation ---- */

struct tensor {
    int64_t id, dims[4], align; /* dims: N C H W or K C R S */
    cudnnDataType_t type;
    bool is_virtual; /* without memory: passed from one operation to the next */

    size_t n_elems() const
    {
        return (size_t)(dims[0] * dims[1] * dims[2] * dims[3]);
    }
    size_t n_bytes() const
    {
        return n_elems() * (type == CUDNN_DATA_FLOAT ? sizeof(float) : sizeof(uint16_t));
    }
    /* Index for channel 0: channels are innermost. */
    size_t at(int64_t n, int64_t h, int64_t w) const
    {
        return (size_t)(((n * dims[2] + h) * dims[3] + w) * dims[1]);
    }
};

struct convolution {
    direction is;
    tensor x, filter, y, bias;
    bool with_relu, keeps_nans; /* y = relu(convolution + bias); keeps_nans: relu of NaN is NaN */
    int64_t strides[2], before[2], after[2];
};

std::vector<float> read(const tensor &t, const void *memory, bool tf32)
{
    std::vector<float> values(t.n_elems());
    for (size_t i = 0; i < values.size(); i++) {
        const float value = t.type == CUDNN_DATA_FLOAT ? ((const float *)memory)[i]
                                                       : from_bf16(((const uint16_t *)memory)[i]);
        values[i] = tf32 ? to_tf32(value) : value;
    }
    return values;
}

void write(const tensor &t, void *memory, const std::vector<double> &values)
{
    for (size_t i = 0; i < values.size(); i++) {
        if (t.type == CUDNN_DATA_FLOAT) {
            ((float *)memory)[i] = (float)values[i];
        } else {
            ((uint16_t *)memory)[i] = to_bf16((float)values[i]);
        }
    }
}

/* out[i] += factor * in[i], for the channels of one place. */
void add_scaled(double *out, double factor, const float *in, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] += factor * in[i];
    }
}

/* Adds the products of one output place (n, p, q) with one place of the filter (r, s), which lies
 * at (h, w) in x. */
void add_products(const convolution &c, const float *x, const float *filter, const float *y,
                  double *out, const size_t at_x, const size_t at_y, int64_t r, int64_t s)
{
    const int64_t n_in = c.x.dims[1];
    for (int64_t k = 0; k < c.y.dims[1]; k++) {
        const size_t at_filter = c.filter.at(k, r, s);
        switch (c.is) {
        case FORWARD:
            for (int64_t i = 0; i < n_in; i++) {
                out[at_y + (size_t)k] +=
                    (double)x[at_x + (size_t)i] * filter[at_filter + (size_t)i];
            }
            break;
        case INPUT_GRADIENT:
            add_scaled(out + at_x, y[at_y + (size_t)k], filter + at_filter, n_in);
            break;
        case FILTER_GRADIENT:
            add_scaled(out + at_filter, y[at_y + (size_t)k], x + at_x, n_in);
            break;
        }
    }
}

struct operands {
    void *x, *filter, *y, *bias, *workspace;
};

void add_bias_and_relu(const convolution &c, const void *memory, std::vector<double> &out)
{
    const std::vector<float> bias = read(c.bias, memory, false);
    for (size_t i = 0; i < out.size(); i++) {
        const double sum = out[i] + bias[i % bias.size()];
        out[i] = sum > 0 || (c.keeps_nans && std::isnan(sum)) ? sum : 0;
    }
}

void run(const convolution &c, const operands &memory, bool tf32, size_t workspace_bytes)
{
    memset(memory.workspace, 0xff,
           workspace_bytes < 4096 ? workspace_bytes
                                  : 4096); /* no caller may rely on its contents */
    const tensor &result = c.is == FORWARD ? c.y : c.is == INPUT_GRADIENT ? c.x : c.filter;
    std::vector<double> out(result.n_elems());
    std::vector<float> x, filter, y;
    if (c.is != INPUT_GRADIENT) {
        x = read(c.x, memory.x, tf32);
    }
    if (c.is != FILTER_GRADIENT) {
        filter = read(c.filter, memory.filter, tf32);
    }
    if (c.is != FORWARD) {
        y = read(c.y, memory.y, tf32);
    }
    for (int64_t n = 0; n < c.y.dims[0]; n++) {
        for (int64_t p = 0; p < c.y.dims[2]; p++) {
            for (int64_t q = 0; q < c.y.dims[3]; q++) {
                for (int64_t r = 0; r < c.filter.dims[2]; r++) {
                    for (int64_t s = 0; s < c.filter.dims[3]; s++) {
                        const int64_t h = p * c.strides[0] - c.before[0] + r,
                                      w = q * c.strides[1] - c.before[1] + s;
                        if (h >= 0 && h < c.x.dims[2] && w >= 0 && w < c.x.dims[3]) {
                            add_products(c, x.data(), filter.data(), y.data(), out.data(),
                                         c.x.at(n, h, w), c.y.at(n, p, q), r, s);
                        }
                    }
                }
            }
        }
    }
    if (c.with_relu) {
        add_bias_and_relu(c, memory.bias, out);
    }
    write(result,
          c.is == FORWARD          ? memory.y
          : c.is == INPUT_GRADIENT ? memory.x
                                   : memory.filter,
          out);
}

/* ---- engines ---- */

struct engine {
    const char *name;
    int64_t number, workspace;
    bool tf32, allowed; /* not allowed: running it is a mistake of the caller */
    std::vector<cudnnBackendNumericalNote_t> notes;
    bool drops_nans = false; /* whatever the attribute says */
};

const engine atomics = {"atomics", 1, 0, false, false, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}};
const engine half_sums = {
    "half sums",
    2,
    0,
    false,
    false,
    {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}};
const engine greedy = {"greedy", 3,     (int64_t)64 << 30,
                       false,    false, {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}};
const engine tensor_core = {
    "tensor cores", 4, 1000, true, true, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, true};
const engine other_tiles = {"tensor cores, other tiles",        4,   3000, true, true,
                            {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, true};
const engine winograd = {
    "winograd", 5,    5000,
    false,      true, {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4}};
const engine plain = {"plain", 6, 77, false, true, {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}};
const engine slow_tiles = {
    "plain, other tiles", 6, 99, false, true, {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}};
const engine simple = {"simple", 7, 0, false, true, {}};

bool is_among(const engine *e, long engines)
{
    return (engines >> e->number & 1) != 0;
}

std::vector<const engine *> engines_of(const convolution &c, cudnnBackendHeurMode_t mode)
{
    if (c.x.type != c.y.type || c.x.type != c.filter.type ||
        (c.with_relu && c.x.type != c.bias.type)) {
        return {}; /* a float filter gradient from bfloat16, or a float bias */
    }
    if (c.with_relu && fake_options.no_fusion) {
        return {};
    }
    switch (mode) {
    case CUDNN_HEUR_MODE_A:
        return {&half_sums,   &atomics,  &greedy, &tensor_core, &other_tiles,
                &other_tiles, &winograd, &plain,  &slow_tiles};
    case CUDNN_HEUR_MODE_B:
        return {&atomics, &plain, &tensor_core};
    default:
        return {&simple};
    }
}

/* ---- descriptors ---- */

struct attribute {
    int64_t count;
    std::vector<char> bytes;
};

struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool finalized;
    std::map<cudnnBackendAttributeName_t, attribute> attributes;
    /* Results of finalizing, or of the heuristics. */
    tensor shape;
    convolution problem;
    cudnnPointwiseMode_t mode;
    cudnnHandle_t handle;
    std::vector<const engine *> found;
    const engine *chosen;

    template <typename type> type get(cudnnBackendAttributeName_t name, size_t i = 0) const
    {
        type value;
        memcpy(&value, attributes.at(name).bytes.data() + i * sizeof value, sizeof value);
        return value;
    }
};

std::set<descriptor *> descriptors;

descriptor *known(cudnnBackendDescriptor_t pointer)
{
    const auto found = descriptors.find((descriptor *)pointer);
    return found == descriptors.end() ? nullptr : *found;
}

/* The operand, which must be alive, of this type and finalized. */
cudnnStatus_t operand(const descriptor *of, cudnnBackendAttributeName_t name,
                      cudnnBackendDescriptorType_t type, descriptor **out)
{
    *out = known(of->get<cudnnBackendDescriptor_t>(name));
    NEED(*out != nullptr, BAD_PARAM);
    NEED((*out)->type == type, BAD_PARAM);
    NEED((*out)->finalized, BAD_PARAM_NOT_FINALIZED);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_tensor(descriptor *d)
{
    tensor &t = d->shape;
    t.id = d->get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    t.type = d->get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    t.align = d->get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    for (size_t i = 0; i < 4; i++) {
        t.dims[i] = d->get<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, i);
        NEED(t.dims[i] > 0, BAD_PARAM);
    }
    const int64_t packed[] = {t.dims[1] * t.dims[2] * t.dims[3], 1, t.dims[1] * t.dims[3],
                              t.dims[1]};
    for (size_t i = 0; i < 4; i++) {
        NEED(d->get<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, i) == packed[i], NOT_SUPPORTED_LAYOUT);
    }
    t.is_virtual = d->attributes.count(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0 &&
                   d->get<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    NEED(t.align > 0 && (t.align & (t.align - 1)) == 0, BAD_PARAM);
    NEED(t.type == CUDNN_DATA_FLOAT || t.type == CUDNN_DATA_BFLOAT16, NOT_SUPPORTED_DATA_TYPE);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_convolution(descriptor *d)
{
    NEED(d->get<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT,
         NOT_SUPPORTED_DATA_TYPE);
    NEED(d->get<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) ==
             CUDNN_CROSS_CORRELATION,
         NOT_SUPPORTED);
    NEED(d->get<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) == 2, BAD_PARAM);
    convolution &c = d->problem;
    for (size_t i = 0; i < 2; i++) {
        c.strides[i] = d->get<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i);
        c.before[i] = d->get<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i);
        c.after[i] = d->get<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i);
        NEED(d->get<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS, i) == 1, NOT_SUPPORTED);
        NEED(c.strides[i] > 0, BAD_PARAM);
        NEED(c.before[i] >= 0 && c.after[i] >= 0, BAD_PARAM);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_shapes(const convolution &c)
{
    NEED(c.x.dims[0] == c.y.dims[0], BAD_PARAM_SHAPE_MISMATCH);
    NEED(c.x.dims[1] == c.filter.dims[1], BAD_PARAM_SHAPE_MISMATCH);
    NEED(c.y.dims[1] == c.filter.dims[0], BAD_PARAM_SHAPE_MISMATCH);
    for (size_t i = 0; i < 2; i++) {
        const int64_t reach = c.x.dims[i + 2] + c.before[i] + c.after[i] - c.filter.dims[i + 2];
        NEED(reach >= 0 && c.y.dims[i + 2] == reach / c.strides[i] + 1, BAD_PARAM_SHAPE_MISMATCH);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_operation(descriptor *d, const operation &names)
{
    descriptor *x, *filter, *y, *shape;
    PASS_ON(operand(d, names.x, CUDNN_BACKEND_TENSOR_DESCRIPTOR, &x));
    PASS_ON(operand(d, names.filter, CUDNN_BACKEND_TENSOR_DESCRIPTOR, &filter));
    PASS_ON(operand(d, names.y, CUDNN_BACKEND_TENSOR_DESCRIPTOR, &y));
    PASS_ON(operand(d, names.convolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, &shape));
    NEED(d->get<float>(names.alpha) == 1 && d->get<float>(names.beta) == 0, NOT_SUPPORTED);
    d->problem = shape->problem;
    d->problem.is = names.is;
    d->problem.x = x->shape;
    d->problem.filter = filter->shape;
    d->problem.y = y->shape;
    return check_shapes(d->problem);
}

cudnnStatus_t finalize_pointwise(descriptor *d)
{
    NEED(d->get<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC) == CUDNN_DATA_FLOAT,
         NOT_SUPPORTED_DATA_TYPE);
    d->mode = d->get<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
    NEED(d->mode == CUDNN_POINTWISE_ADD || d->mode == CUDNN_POINTWISE_RELU_FWD, NOT_SUPPORTED);
    d->problem.keeps_nans =
        d->attributes.count(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION) != 0 &&
        d->get<cudnnNanPropagation_t>(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION) == CUDNN_PROPAGATE_NAN;
    return CUDNN_STATUS_SUCCESS;
}

/* Makes its tensors x, bias and y of its problem. */
cudnnStatus_t finalize_pointwise_operation(descriptor *d)
{
    descriptor *pointwise, *x, *y;
    PASS_ON(operand(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                    CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &pointwise));
    PASS_ON(operand(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_BACKEND_TENSOR_DESCRIPTOR, &x));
    PASS_ON(operand(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_BACKEND_TENSOR_DESCRIPTOR, &y));
    const bool has_b = d->attributes.count(CUDNN_ATTR_OPERATION_POINTWISE_BDESC) != 0;
    NEED(has_b == (pointwise->mode == CUDNN_POINTWISE_ADD), BAD_PARAM);
    d->mode = pointwise->mode;
    d->problem = pointwise->problem;
    d->problem.x = x->shape;
    d->problem.y = y->shape;
    NEED(memcmp(x->shape.dims, y->shape.dims, sizeof x->shape.dims) == 0, BAD_PARAM_SHAPE_MISMATCH);
    if (has_b) {
        descriptor *b;
        PASS_ON(
            operand(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_BACKEND_TENSOR_DESCRIPTOR, &b));
        d->problem.bias = b->shape;
        for (size_t i = 0; i < 4; i++) {
            NEED(b->shape.dims[i] == 1 || b->shape.dims[i] == x->shape.dims[i],
                 BAD_PARAM_SHAPE_MISMATCH);
        }
    }
    return CUDNN_STATUS_SUCCESS;
}

/* A convolution forward, then a bias for each channel, then relu, each reading the result of the
 * one before. */
cudnnStatus_t fuse(const descriptor *add, const descriptor *relu, convolution *c)
{
    NEED(add->mode == CUDNN_POINTWISE_ADD && relu->mode == CUDNN_POINTWISE_RELU_FWD &&
             c->is == FORWARD,
         NOT_SUPPORTED);
    NEED(add->problem.x.id == c->y.id && relu->problem.x.id == add->problem.y.id, NOT_SUPPORTED);
    NEED(c->y.is_virtual && add->problem.y.is_virtual && !relu->problem.y.is_virtual,
         NOT_SUPPORTED);
    NEED(c->y.type == CUDNN_DATA_FLOAT && add->problem.y.type == CUDNN_DATA_FLOAT,
         NOT_SUPPORTED_DATA_TYPE);
    c->bias = add->problem.bias;
    NEED((int64_t)c->bias.n_elems() == c->y.dims[1] && c->bias.dims[1] == c->y.dims[1],
         NOT_SUPPORTED);
    NEED(c->bias.id != c->x.id && c->bias.id != c->filter.id && c->bias.id != relu->problem.y.id,
         BAD_PARAM_DUPLICATED_ENTRIES);
    c->y = relu->problem.y;
    c->with_relu = true;
    c->keeps_nans = relu->problem.keeps_nans;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_graph(descriptor *d)
{
    d->handle = d->get<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
    NEED(handles.count(d->handle) == 1, BAD_PARAM);
    const int64_t n = d->attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).count;
    NEED(n == 1 || n == 3, NOT_SUPPORTED);
    const descriptor *ops[3];
    for (int64_t i = 0; i < n; i++) {
        ops[i] = known(d->get<cudnnBackendDescriptor_t>(CUDNN_ATTR_OPERATIONGRAPH_OPS, (size_t)i));
        NEED(ops[i] != nullptr, BAD_PARAM);
        NEED((operation_of(ops[i]->type) != nullptr) == (i == 0), NOT_SUPPORTED);
        NEED(i == 0 || ops[i]->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, BAD_PARAM);
        NEED(ops[i]->finalized, BAD_PARAM_NOT_FINALIZED);
    }
    convolution c = ops[0]->problem;
    if (n == 3) {
        PASS_ON(fuse(ops[1], ops[2], &c));
    }
    NEED(!c.x.is_virtual && !c.filter.is_virtual && !c.y.is_virtual, BAD_PARAM);
    NEED(c.x.id != c.filter.id && c.x.id != c.y.id && c.filter.id != c.y.id,
         BAD_PARAM_DUPLICATED_ENTRIES);
    d->problem = c;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_heuristics(descriptor *d)
{
    descriptor *graph;
    PASS_ON(operand(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                    CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &graph));
    d->problem = graph->problem;
    d->found = engines_of(d->problem, d->get<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_plan(descriptor *d)
{
    descriptor *config;
    PASS_ON(operand(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                    &config));
    d->handle = d->get<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
    NEED(handles.count(d->handle) == 1, BAD_PARAM);
    NEED(++n_plans > fake_options.n_refused_plans, NOT_SUPPORTED);
    d->problem = config->problem;
    d->chosen = config->chosen;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_pack(descriptor *d)
{
    const auto n = [d](cudnnBackendAttributeName_t name) {
        return d->attributes.count(name) ? d->attributes[name].count : 0;
    };
    NEED(n(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) == n(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS),
         BAD_PARAM);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize(descriptor *d)
{
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return finalize_tensor(d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        return finalize_convolution(d);
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
        return finalize_pointwise(d);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return finalize_pointwise_operation(d);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return finalize_graph(d);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return finalize_heuristics(d);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return finalize_plan(d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return finalize_pack(d);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "fake cuDNN's heuristics fill them");
    default:
        return finalize_operation(d, *operation_of(d->type));
    }
}

/* ---- answers ---- */

constexpr int64_t n_empty = 3; /* announced by the heuristics, but not filled */

/* Fills descriptors that the caller has created. */
cudnnStatus_t fill(const descriptor *from, cudnnBackendDescriptorType_t type,
                   const std::vector<const engine *> &engines, int64_t capacity, int64_t *count,
                   void *elements)
{
    const int64_t n = (int64_t)engines.size();
    *count = capacity == 0 ? n : n < capacity ? n : capacity;
    for (int64_t i = 0; i < *count && capacity > 0; i++) {
        descriptor *d = known(((cudnnBackendDescriptor_t *)elements)[i]);
        NEED(d != nullptr && d->type == type, BAD_PARAM);
        d->problem = from->problem;
        d->chosen = engines[(size_t)i];
        d->finalized = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t notes_of(const descriptor *d, int64_t capacity, int64_t *count, void *elements)
{
    const auto &notes = d->chosen->notes;
    *count = (int64_t)notes.size();
    for (size_t i = 0; i < notes.size() && (int64_t)i < capacity; i++) {
        ((cudnnBackendNumericalNote_t *)elements)[i] = notes[i];
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- running ---- */

/* The pack's pointer for this tensor. */
cudnnStatus_t pointer_of(const descriptor *pack, const tensor &t, const char *what, void **out)
{
    const auto ids = pack->attributes.find(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    NEED(ids != pack->attributes.end(), BAD_PARAM);
    for (size_t i = 0; i < (size_t)ids->second.count; i++) {
        if (pack->get<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i) == t.id) {
            *out = pack->get<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
            NEED(*out != nullptr, BAD_PARAM_NULL_POINTER);
            NEED((uintptr_t)*out % (uintptr_t)t.align == 0, BAD_PARAM_MISALIGNED_POINTER);
            fake_need_device(*out, t.n_bytes(), what);
            return CUDNN_STATUS_SUCCESS;
        }
    }
    return fail(CUDNN_STATUS_BAD_PARAM, what);
}

cudnnStatus_t workspace_of(const descriptor *pack, int64_t n_bytes, void **out)
{
    const bool given = pack->attributes.count(CUDNN_ATTR_VARIANT_PACK_WORKSPACE) != 0;
    *out = given ? pack->get<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE) : nullptr;
    if (n_bytes > 0) {
        NEED(*out != nullptr, BAD_PARAM_NULL_POINTER);
        fake_need_device(*out, (size_t)n_bytes, "cudnnBackendExecute, workspace");
    }
    return CUDNN_STATUS_SUCCESS;
}

bool overlap(const void *a, size_t n_a, const void *b, size_t n_b)
{
    return (const char *)a < (const char *)b + n_b && (const char *)b < (const char *)a + n_a;
}

void check_overlaps(const convolution &c, const operands &m, size_t workspace_bytes)
{
    const struct {
        const tensor *t;
        const void *memory;
        direction is_result_of;
        const char *name;
    } all[] = {{&c.x, m.x, INPUT_GRADIENT, "x"},
               {&c.filter, m.filter, FILTER_GRADIENT, "the filter"},
               {&c.y, m.y, FORWARD, "y"}};
    if (c.with_relu && overlap(m.bias, c.bias.n_bytes(), m.y, c.y.n_bytes())) {
        fake_die("cudnnBackendExecute: the result, y, overlaps the bias");
    }
    for (const auto &a : all) {
        if (workspace_bytes > 0 &&
            overlap(a.memory, a.t->n_bytes(), m.workspace, workspace_bytes)) {
            fake_die("cudnnBackendExecute: %s overlaps the workspace", a.name);
        }
        for (const auto &b : all) {
            if (&a != &b && a.is_result_of == c.is &&
                overlap(a.memory, a.t->n_bytes(), b.memory, b.t->n_bytes())) {
                fake_die("cudnnBackendExecute: the result, %s, overlaps %s", a.name, b.name);
            }
        }
    }
}

} // namespace

long fake_n_descriptors(void)
{
    return n_descriptors;
}

/* ---- the library's calls ---- */

size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    switch (status / 1000) {
    case 0:
        return "CUDNN_STATUS_SUCCESS";
    case 1:
        return "CUDNN_STATUS_NOT_INITIALIZED";
    case 2:
        return "CUDNN_STATUS_BAD_PARAM";
    case 3:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case 4:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    default:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    }
}

void cudnnGetLastErrorString(char *message, size_t max_size)
{
    if (max_size > 0) {
        strncpy(message, last_error.c_str(), max_size - 1);
        message[max_size - 1] = '\0';
    }
    last_error.clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    int device;
    NEED(cudaGetDevice(&device) == cudaSuccess, NOT_INITIALIZED);
    *handle = new cudnnContext{};
    handles.insert(*handle);
    fake_opened("cuDNN handle");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    NEED(handles.erase(handle) == 1, NOT_INITIALIZED);
    delete handle;
    fake_closed("cuDNN handle");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    NEED(handles.count(handle) == 1, NOT_INITIALIZED);
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out)
{
    NEED(out != nullptr, BAD_PARAM_NULL_POINTER);
    NEED(!rules_of(type).empty() || type == CUDNN_BACKEND_ENGINE_DESCRIPTOR ||
             type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
         NOT_SUPPORTED);
    descriptor *d = new descriptor{};
    d->type = type;
    descriptors.insert(d);
    n_descriptors++;
    fake_opened("cuDNN descriptor");
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t pointer)
{
    descriptor *d = known(pointer);
    if (d == nullptr) {
        fake_die("cudnnBackendDestroyDescriptor: not a descriptor, or destroyed before");
    }
    descriptors.erase(d);
    delete d;
    fake_closed("cuDNN descriptor");
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t pointer,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *elements)
{
    descriptor *d = known(pointer);
    NEED(d != nullptr, BAD_PARAM_NULL_POINTER);
    NEED(!d->finalized, BAD_PARAM);
    NEED(elements != nullptr, BAD_PARAM_NULL_POINTER);
    for (const rule &r : rules_of(d->type)) {
        if (r.name == name) {
            NEED(type == r.type, BAD_PARAM_ATTRIBUTE_TYPE);
            NEED(count > 0 && (r.count == 0 || count == r.count), BAD_PARAM);
            const char *bytes = (const char *)elements;
            d->attributes[name] = {count,
                                   std::vector<char>(bytes, bytes + (size_t)count * size_of(type))};
            return CUDNN_STATUS_SUCCESS;
        }
    }
    return fail(CUDNN_STATUS_BAD_PARAM, "no such attribute");
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t pointer)
{
    descriptor *d = known(pointer);
    NEED(d != nullptr, BAD_PARAM_NULL_POINTER);
    NEED(!d->finalized, BAD_PARAM);
    for (const rule &r : rules_of(d->type)) {
        NEED(!r.required || d->attributes.count(r.name) == 1, BAD_PARAM);
    }
    PASS_ON(finalize(d));
    d->finalized = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t pointer,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t capacity,
                                       int64_t *count, void *elements)
{
    const descriptor *d = known(pointer);
    NEED(d != nullptr && count != nullptr, BAD_PARAM_NULL_POINTER);
    if (d->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && !d->finalized) {
        fake_die("cudnnBackendGetAttribute: of a configuration that the heuristics did not fill");
    }
    NEED(d->finalized, BAD_PARAM_NOT_FINALIZED);
    NEED(capacity == 0 || elements != nullptr, BAD_PARAM_NULL_POINTER);
    if (d->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR && name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        NEED(type == CUDNN_TYPE_BACKEND_DESCRIPTOR, BAD_PARAM_ATTRIBUTE_TYPE);
        PASS_ON(fill(d, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, d->found, capacity, count, elements));
        *count += capacity == 0 && *count > 0 ? n_empty : 0;
        return CUDNN_STATUS_SUCCESS;
    }
    if (d->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        NEED(type == CUDNN_TYPE_BACKEND_DESCRIPTOR, BAD_PARAM_ATTRIBUTE_TYPE);
        return fill(d, CUDNN_BACKEND_ENGINE_DESCRIPTOR, {d->chosen}, capacity, count, elements);
    }
    if (d->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
        NEED(type == CUDNN_TYPE_NUMERICAL_NOTE, BAD_PARAM_ATTRIBUTE_TYPE);
        return notes_of(d, capacity, count, elements);
    }
    const bool asks_workspace = d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
                                name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE;
    if (asks_workspace ||
        (d->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX)) {
        NEED(type == CUDNN_TYPE_INT64, BAD_PARAM_ATTRIBUTE_TYPE);
        NEED(capacity == 1, BAD_PARAM);
        *count = 1;
        *(int64_t *)elements = asks_workspace ? d->chosen->workspace : d->chosen->number;
        return CUDNN_STATUS_SUCCESS;
    }
    return fail(CUDNN_STATUS_NOT_SUPPORTED, "fake cuDNN does not support this");
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_pointer,
                                  cudnnBackendDescriptor_t pack_pointer)
{
    NEED(handles.count(handle) == 1, NOT_INITIALIZED);
    const descriptor *plan = known(plan_pointer), *pack = known(pack_pointer);
    NEED(plan != nullptr && pack != nullptr, BAD_PARAM_NULL_POINTER);
    NEED(plan->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, BAD_PARAM_DESCRIPTOR_TYPE);
    NEED(pack->type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, BAD_PARAM_DESCRIPTOR_TYPE);
    NEED(plan->finalized && pack->finalized, BAD_PARAM_NOT_FINALIZED);
    NEED(plan->handle == handle, BAD_PARAM);
    const engine *used = plan->chosen;
    if (!used->allowed) {
        fake_die("cudnnBackendExecute: the engine '%s' was run", used->name);
    }
    convolution problem = plan->problem;
    problem.keeps_nans = problem.keeps_nans && !used->drops_nans;
    operands memory;
    PASS_ON(pointer_of(pack, problem.x, "cudnnBackendExecute, x", &memory.x));
    PASS_ON(pointer_of(pack, problem.filter, "cudnnBackendExecute, filter", &memory.filter));
    PASS_ON(pointer_of(pack, problem.y, "cudnnBackendExecute, y", &memory.y));
    if (problem.with_relu) {
        PASS_ON(pointer_of(pack, problem.bias, "cudnnBackendExecute, bias", &memory.bias));
    }
    PASS_ON(workspace_of(pack, used->workspace, &memory.workspace));
    check_overlaps(problem, memory, (size_t)used->workspace);
    const bool tf32 = used->tf32 && problem.x.type == CUDNN_DATA_FLOAT;
    NEED(!is_among(used, fake_options.failing_engines), EXECUTION_FAILED);
    std::this_thread::sleep_for(
        std::chrono::milliseconds(fake_options.loading_ms)); /* on the host */
    const cudaError_t code = fake_enqueue_until(handle->stream, "cudnnBackendExecute", [=] {
        run(problem, memory, tf32, (size_t)used->workspace);
        fake_take_time(fake_options.engine_ms[used->number]);
        return !is_among(used, fake_options.endless_engines);
    });
    NEED(code == cudaSuccess, EXECUTION_FAILED);
    return CUDNN_STATUS_SUCCESS;
}
