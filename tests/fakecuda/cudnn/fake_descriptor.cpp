/* What finalizing makes of attributes. cuDNN itself checks them in test_conv_plans.c. */
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
    cudnnBackendAttributeName_t x, filter, y, convolution;
} operations[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, FORWARD,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, INPUT_GRADIENT,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, FILTER_GRADIENT,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC},
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

void finalize_tensor(descriptor *d)
{
    tensor &t = d->shape;
    t.id = d->get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    t.type = d->get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    t.align = d->get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    for (size_t i = 0; i < 4; i++) {
        t.dims[i] = d->get<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, i);
    }
}

void finalize_convolution(descriptor *d)
{
    convolution &c = d->problem;
    for (size_t i = 0; i < 2; i++) {
        c.strides[i] = d->get<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i);
        c.before[i] = d->get<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i);
        c.after[i] = d->get<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i);
    }
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
    d->problem = d->operand(names.convolution)->problem;
    d->problem.is = names.is;
    d->problem.x = d->operand(names.x)->shape;
    d->problem.filter = d->operand(names.filter)->shape;
    d->problem.y = d->operand(names.y)->shape;
    return check_shapes(d->problem);
}

/* Of a bias or relu: its tensors are bias and y of its problem. */
void finalize_pointwise_operation(descriptor *d)
{
    const descriptor *pointwise = d->operand(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    d->problem.keeps_nans =
        pointwise->attributes.count(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION) != 0 &&
        pointwise->get<cudnnNanPropagation_t>(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION) ==
            CUDNN_PROPAGATE_NAN;
    d->problem.y = d->operand(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)->shape;
    if (d->attributes.count(CUDNN_ATTR_OPERATION_POINTWISE_BDESC) != 0) {
        d->problem.bias = d->operand(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)->shape;
    }
}

/* A convolution; or one forward, then a bias for each channel, then relu. */
void finalize_graph(descriptor *d)
{
    const auto op = [d](size_t i) { return d->operand(CUDNN_ATTR_OPERATIONGRAPH_OPS, i); };
    d->problem = op(0)->problem;
    if (d->attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).count > 1) {
        d->problem.bias = op(1)->problem.bias;
        d->problem.y = op(2)->problem.y;
        d->problem.with_relu = true;
        d->problem.keeps_nans = op(2)->problem.keeps_nans;
    }
}

cudnnStatus_t finalize_plan(descriptor *d)
{
    const descriptor *config = d->operand(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    NEED(++n_plans > fake_options.n_refused_plans, NOT_SUPPORTED);
    d->handle = d->get<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
    d->problem = config->problem;
    d->chosen = config->chosen;
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

descriptor *descriptor::operand(cudnnBackendAttributeName_t name, size_t i) const
{
    descriptor *found = known(get<cudnnBackendDescriptor_t>(name, i));
    if (found == nullptr || !found->finalized) {
        fake_die("cudnnBackendFinalize: an operand is not finalized, or destroyed");
    }
    return found;
}

cudnnStatus_t finalize(descriptor *d)
{
    const operation *o = operation_of(d->type);
    if (o != nullptr) {
        return finalize_operation(d, *o);
    }
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        finalize_tensor(d);
        break;
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        finalize_convolution(d);
        break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        finalize_pointwise_operation(d);
        break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        finalize_graph(d);
        break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        d->problem = d->operand(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)->problem;
        d->found =
            engines_of(d->problem, d->get<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE));
        break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return finalize_plan(d);
    default:
        break;
    }
    return CUDNN_STATUS_SUCCESS;
}

} // namespace fake_cudnn
