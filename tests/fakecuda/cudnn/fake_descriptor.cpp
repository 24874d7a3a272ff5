/* What finalizing makes of attributes. cuDNN itself checks them in test_conv_plans.c. */
#include "tests/fakecuda/cudnn/fake_descriptor.h"

namespace fake_cudnn {

fake_living<descriptor> descriptors = {"cuDNN descriptor", {}};
std::string last_error;

cudnnStatus_t fail(cudnnStatus_t status, const char *text)
{
    last_error = text;
    return status;
}

size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_INT64:
        return sizeof(int64_t);
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return sizeof(void *);
    default: /* floats and enumerations */
        return 4;
    }
}

descriptor *known(cudnnBackendDescriptor_t pointer)
{
    return descriptors.has((descriptor *)pointer) ? (descriptor *)pointer : nullptr;
}

descriptor *descriptor::operand(cudnnBackendAttributeName_t name, size_t i) const
{
    descriptor *found = known(get<cudnnBackendDescriptor_t>(name, i));
    if (found == nullptr || !found->finalized) {
        fake_die("cudnnBackendFinalize: an operand is not finalized, or destroyed");
    }
    return found;
}

namespace {

long n_plans;

/* An operation's attributes; FORWARD_X, BWD_DATA_DX and the like. */
struct operation {
    operand result;
    cudnnBackendAttributeName_t tensors[3], convolution;
};
#define OPERATION(result, kind, x, filter, y)                    \
    {                                                            \
        result,                                                  \
            {CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_##x,      \
             CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_##filter, \
             CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_##y},     \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##kind##_CONV_DESC  \
    }
const std::map<cudnnBackendDescriptorType_t, operation> operations = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, OPERATION(Y, FORWARD, X, W, Y)},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     OPERATION(X, BWD_DATA, DX, W, DY)},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     OPERATION(FILTER, BWD_FILTER, X, DW, DY)},
};

cudnnStatus_t check_shapes(const convolution &c)
{
    const int64_t *x = c.of[X].dims, *filter = c.of[FILTER].dims, *y = c.of[Y].dims;
    NEED(x[0] == y[0], BAD_PARAM_SHAPE_MISMATCH);
    NEED(x[1] == filter[1], BAD_PARAM_SHAPE_MISMATCH);
    NEED(y[1] == filter[0], BAD_PARAM_SHAPE_MISMATCH);
    for (size_t i = 0; i < 2; i++) {
        const int64_t reach = x[i + 2] + c.before[i] + c.after[i] - filter[i + 2];
        NEED(reach >= 0 && y[i + 2] == reach / c.strides[i] + 1, BAD_PARAM_SHAPE_MISMATCH);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t finalize_operation(descriptor *d, const operation &o)
{
    d->problem = d->operand(o.convolution)->problem;
    d->problem.result = o.result;
    for (const operand of : {X, FILTER, Y}) {
        d->problem.of[of] = d->operand(o.tensors[of])->shape;
    }
    return check_shapes(d->problem);
}

/* Of a bias or relu: its tensors are bias and y of its problem. */
void finalize_pointwise_operation(descriptor *d)
{
    const descriptor *pointwise = d->operand(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    d->problem.keeps_nans = pointwise->has(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION) &&
                            pointwise->get<cudnnNanPropagation_t>(
                                CUDNN_ATTR_POINTWISE_NAN_PROPAGATION) == CUDNN_PROPAGATE_NAN;
    d->problem.of[Y] = d->operand(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)->shape;
    if (d->has(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)) {
        d->problem.of[BIAS] = d->operand(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)->shape;
    }
}

/* A convolution; or one forward, then a bias for each channel, then relu. */
void finalize_graph(descriptor *d)
{
    const auto op = [d](size_t i) { return d->operand(CUDNN_ATTR_OPERATIONGRAPH_OPS, i); };
    d->problem = op(0)->problem;
    if (d->count(CUDNN_ATTR_OPERATIONGRAPH_OPS) > 1) {
        d->problem.of[BIAS] = op(1)->problem.of[BIAS];
        d->problem.of[Y] = op(2)->problem.of[Y];
        d->problem.with_relu = true;
        d->problem.keeps_nans = op(2)->problem.keeps_nans;
    }
}

} // namespace

cudnnStatus_t finalize(descriptor *d)
{
    const auto o = operations.find(d->type);
    if (o != operations.end()) {
        return finalize_operation(d, o->second);
    }
    switch (d->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        d->shape.id = d->get<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
        d->shape.type = d->get<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
        d->shape.align = d->get<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
        d->get_all(CUDNN_ATTR_TENSOR_DIMENSIONS, d->shape.dims);
        break;
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
        d->get_all(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, d->problem.strides);
        d->get_all(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, d->problem.before);
        d->get_all(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, d->problem.after);
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
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
        const descriptor *config = d->operand(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        NEED(++n_plans > fake_options.n_refused_plans, NOT_SUPPORTED);
        d->handle = d->get<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
        d->problem = config->problem;
        d->chosen = config->chosen;
        break;
    }
    default:
        break;
    }
    return CUDNN_STATUS_SUCCESS;
}

} // namespace fake_cudnn
