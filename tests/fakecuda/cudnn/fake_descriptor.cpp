/* As strict as cuDNN's. */
#include "tests/fakecuda/cudnn/fake_descriptor.h"
#include "tests/fakecuda/fake.h"

namespace fake_cudnn {

std::set<cudnnHandle_t> handles;
std::set<descriptor *> descriptors;
std::string last_error;

cudnnStatus_t fail(cudnnStatus_t status, const char *text)
{
    last_error = text;
    return status;
}

namespace {

long n_plans;

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

} // namespace

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

descriptor *known(cudnnBackendDescriptor_t pointer)
{
    const auto found = descriptors.find((descriptor *)pointer);
    return found == descriptors.end() ? nullptr : *found;
}

namespace {

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

} // namespace

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

} // namespace fake_cudnn
