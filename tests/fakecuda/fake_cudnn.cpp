/* Fake cuDNN's calls for convolutions, with heuristics that answer with every kind of engine that a
 * caller must distinguish. cuDNN itself checks descriptors' attributes in test_conv_plans.c. */
#include <chrono>
#include <thread>

#include "tests/fakecuda/fake_convolution.h"
#include "tests/fakecuda/fake_runtime.h"

struct cudnnContext {
    cudaStream_t stream;
};

using namespace fake_cudnn;

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

namespace {

std::string last_error;

/* The text is that of cudnnGetLastErrorString. */
cudnnStatus_t fail(cudnnStatus_t status, const char *text)
{
    last_error = text;
    return status;
}

/* ---- descriptors ---- */

struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool finalized;
    std::map<cudnnBackendAttributeName_t, std::vector<char>> attributes; /* bytes of their values */
    /* Results of finalizing, or of the heuristics. */
    tensor shape;
    convolution problem;
    cudnnHandle_t handle;
    std::vector<const engine *> found;
    const engine *chosen;

    /* Empty: not set. */
    template <typename type> std::vector<type> all(cudnnBackendAttributeName_t name) const
    {
        const auto found = attributes.find(name);
        const size_t n_bytes = found != attributes.end() ? found->second.size() : 0;
        std::vector<type> values(n_bytes / sizeof(type));
        if (n_bytes > 0) {
            memcpy(values.data(), found->second.data(), n_bytes);
        }
        return values;
    }
    template <typename type> type get(cudnnBackendAttributeName_t name, size_t i = 0) const
    {
        return all<type>(name).at(i);
    }
    template <size_t n> void get_all(cudnnBackendAttributeName_t name, int64_t (&values)[n]) const
    {
        std::copy_n(all<int64_t>(name).begin(), n, values);
    }
    const descriptor *operand(cudnnBackendAttributeName_t name, size_t i = 0) const;
};

fake::living<cudnnContext> handles = {"cuDNN handle", {}};
fake::living<descriptor> descriptors = {"cuDNN descriptor", {}};
long n_plans;

descriptor *known(cudnnBackendDescriptor_t pointer, const char *call)
{
    return descriptors.need((descriptor *)pointer, call);
}

const descriptor *descriptor::operand(cudnnBackendAttributeName_t name, size_t i) const
{
    const descriptor *found = known(get<cudnnBackendDescriptor_t>(name, i), "cudnnBackendFinalize");
    FAKE_CHECK(found->finalized, "cudnnBackendFinalize: an operand is not finalized");
    return found;
}

size_t size_of(cudnnBackendAttributeType_t type)
{
    const bool is_long = type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_HANDLE ||
                         type == CUDNN_TYPE_VOID_PTR || type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
    return is_long ? 8 : type == CUDNN_TYPE_BOOLEAN ? sizeof(bool) : 4;
}

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
    const auto nans = pointwise->all<cudnnNanPropagation_t>(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION);
    d->problem.keeps_nans = !nans.empty() && nans[0] == CUDNN_PROPAGATE_NAN;
    d->problem.of[Y] = d->operand(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)->shape;
    if (d->attributes.count(CUDNN_ATTR_OPERATION_POINTWISE_BDESC) != 0) {
        d->problem.of[BIAS] = d->operand(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)->shape;
    }
}

/* A convolution; or one forward, then a bias for each channel, then relu. */
void finalize_graph(descriptor *d)
{
    const auto op = [d](size_t i) { return d->operand(CUDNN_ATTR_OPERATIONGRAPH_OPS, i); };
    d->problem = op(0)->problem;
    if (d->all<void *>(CUDNN_ATTR_OPERATIONGRAPH_OPS).size() > 1) {
        d->problem.of[BIAS] = op(1)->problem.of[BIAS];
        d->problem.of[Y] = op(2)->problem.of[Y];
        d->problem.with_relu = true;
        d->problem.keeps_nans = op(2)->problem.keeps_nans;
    }
}

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
        d->handle = (cudnnHandle_t)d->get<void *>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
        d->problem = config->problem;
        d->chosen = config->chosen;
        break;
    }
    default:
        break;
    }
    return CUDNN_STATUS_SUCCESS;
}

bool is_among(const engine *e, long engines)
{
    return (engines >> e->number & 1) != 0;
}

/* ---- answers ---- */

constexpr int64_t n_empty = 3; /* announced by the heuristics, but not filled */

/* Fills descriptors that the caller has created. */
cudnnStatus_t fill(const descriptor *from, cudnnBackendDescriptorType_t type,
                   const std::vector<const engine *> &engines, int64_t capacity, int64_t *count,
                   void *elements)
{
    *count = std::min((int64_t)engines.size(), capacity);
    for (int64_t i = 0; i < *count; i++) {
        descriptor *d =
            known(((cudnnBackendDescriptor_t *)elements)[i], "cudnnBackendGetAttribute");
        NEED(d->type == type, BAD_PARAM);
        d->problem = from->problem;
        d->chosen = engines[(size_t)i];
        d->finalized = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- running ---- */

/* The pack's pointer for this operand. */
cudnnStatus_t pointer_of(const descriptor *pack, const tensor &t, const char *name, void **out)
{
    const std::string what = std::string("cudnnBackendExecute, ") + name;
    const auto ids = pack->all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto place = std::find(ids.begin(), ids.end(), t.id);
    NEED(place != ids.end(), BAD_PARAM);
    *out = pack->get<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, (size_t)(place - ids.begin()));
    NEED(*out != nullptr, BAD_PARAM_NULL_POINTER);
    NEED((uintptr_t)*out % (uintptr_t)t.align == 0, BAD_PARAM_MISALIGNED_POINTER);
    fake::need_device(*out, t.n_bytes(), what.c_str());
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t workspace_of(const descriptor *pack, size_t n_bytes, void **out)
{
    const auto given = pack->all<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    *out = given.empty() ? nullptr : given[0];
    if (n_bytes > 0) {
        NEED(*out != nullptr, BAD_PARAM_NULL_POINTER);
        fake::need_device(*out, n_bytes, "cudnnBackendExecute, workspace");
    }
    return CUDNN_STATUS_SUCCESS;
}

void check_overlaps(const convolution &c, const operands &m, size_t workspace_bytes)
{
    for (int o = 0; o < c.n_operands(); o++) {
        const auto overlaps = [&](const void *other, size_t n_bytes) {
            return fake::overlap(m.at[o], c.of[o].n_bytes(), other, n_bytes);
        };
        FAKE_CHECK(workspace_bytes == 0 || !overlaps(m.workspace, workspace_bytes),
                   "cudnnBackendExecute: %s overlaps the workspace", operand_names[o]);
        FAKE_CHECK(o == c.result || !overlaps(m.at[c.result], c.of[c.result].n_bytes()),
                   "cudnnBackendExecute: the result, %s, overlaps %s", operand_names[c.result],
                   operand_names[o]);
    }
}

} // namespace

/* ---- the library's calls ---- */

size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    static const char *const names[] = {
        "CUDNN_STATUS_SUCCESS",        "CUDNN_STATUS_NOT_INITIALIZED",
        "CUDNN_STATUS_BAD_PARAM",      "CUDNN_STATUS_NOT_SUPPORTED",
        "CUDNN_STATUS_INTERNAL_ERROR", "CUDNN_STATUS_EXECUTION_FAILED"};
    return names[std::min(status / 1000, 5)]; /* each has a thousand of its kind */
}

void cudnnGetLastErrorString(char *message, size_t max_size)
{
    snprintf(message, max_size, "%s", last_error.c_str());
    last_error.clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    *handle = handles.add(new cudnnContext{});
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    handles.remove(handle, __func__);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    handles.need(handle, __func__)->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out)
{
    descriptor *d = descriptors.add(new descriptor{});
    d->type = type;
    fake::counts.n_descriptors++;
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t pointer)
{
    descriptors.remove((descriptor *)pointer, __func__);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t pointer,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *elements)
{
    descriptor *d = known(pointer, __func__);
    NEED(!d->finalized, BAD_PARAM);
    const char *bytes = (const char *)elements;
    d->attributes[name].assign(bytes, bytes + (size_t)count * size_of(type));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t pointer)
{
    descriptor *d = known(pointer, __func__);
    NEED(!d->finalized, BAD_PARAM);
    PASS_ON(finalize(d));
    d->finalized = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t pointer,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t capacity,
                                       int64_t *count, void *elements)
{
    const descriptor *d = known(pointer, __func__);
    NEED(d->finalized, BAD_PARAM_NOT_FINALIZED);
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        if (capacity == 0) {
            *count = (int64_t)d->found.size() + (d->found.empty() ? 0 : n_empty);
            return CUDNN_STATUS_SUCCESS;
        }
        return fill(d, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, d->found, capacity, count, elements);
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        return fill(d, CUDNN_BACKEND_ENGINE_DESCRIPTOR, {d->chosen}, capacity, count, elements);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *count = std::min((int64_t)d->chosen->notes.size(), capacity);
        std::copy_n(d->chosen->notes.begin(), *count, (cudnnBackendNumericalNote_t *)elements);
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        *count = 1;
        *(int64_t *)elements =
            name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX ? d->chosen->number : d->chosen->workspace;
        return CUDNN_STATUS_SUCCESS;
    default:
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "fake cuDNN does not support this");
    }
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan_pointer,
                                  cudnnBackendDescriptor_t pack_pointer)
{
    handles.need(handle, __func__);
    const descriptor *plan = known(plan_pointer, __func__), *pack = known(pack_pointer, __func__);
    NEED(plan->finalized && pack->finalized && plan->handle == handle, BAD_PARAM);
    const engine *used = plan->chosen;
    const convolution problem = plan->problem;
    operands memory;
    FAKE_CHECK(used->allowed(), "cudnnBackendExecute: the engine '%s' was run", used->name);
    for (int o = 0; o < problem.n_operands(); o++) {
        PASS_ON(pointer_of(pack, problem.of[o], operand_names[o], &memory.at[o]));
    }
    PASS_ON(workspace_of(pack, (size_t)used->workspace, &memory.workspace));
    check_overlaps(problem, memory, (size_t)used->workspace);
    NEED(!is_among(used, fake_options.failing_engines), EXECUTION_FAILED);
    if (is_among(used, fake_options.unrecordable_engines) && handle->stream->capturing) {
        NEED(cudaStreamSynchronize(handle->stream) == cudaSuccess, EXECUTION_FAILED);
    }
    std::this_thread::sleep_for(
        std::chrono::milliseconds(fake_options.engine_load_ms)); /* on the host */
    fake::moves(problem.of[X].n_bytes() + problem.of[FILTER].n_bytes() + problem.of[Y].n_bytes());
    const cudaError_t code = fake::enqueue_until(handle->stream, "cudnnBackendExecute", [=] {
        run(problem, memory, *used);
        fake::take_time(fake_options.engine_ms[used->number] +
                        (problem.with_relu ? fake_options.fused_ms : 0));
        return !is_among(used, fake_options.endless_engines);
    });
    NEED(code == cudaSuccess, EXECUTION_FAILED);
    return CUDNN_STATUS_SUCCESS;
}
