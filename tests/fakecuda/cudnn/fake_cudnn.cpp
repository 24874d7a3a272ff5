/* Fake cuDNN's calls for convolutions, with heuristics that answer with every kind of engine that a
 * caller must distinguish. */
#include <chrono>
#include <thread>

#include "tests/fakecuda/cudnn/fake_descriptor.h"
#include "tests/fakecuda/fake_operand.h"

struct cudnnContext {
    cudaStream_t stream;
};

using namespace fake_cudnn;

namespace {

fake_living<cudnnContext> handles = {"cuDNN handle", {}};
long n_descriptors;

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

/* The pack's pointer for this operand. */
cudnnStatus_t pointer_of(const descriptor *pack, const tensor &t, const char *name, void **out)
{
    const std::string what = std::string("cudnnBackendExecute, ") + name;
    NEED(pack->has(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS), BAD_PARAM);
    for (size_t i = 0; i < pack->count(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS); i++) {
        if (pack->get<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i) == t.id) {
            *out = pack->get<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
            NEED(*out != nullptr, BAD_PARAM_NULL_POINTER);
            NEED((uintptr_t)*out % (uintptr_t)t.align == 0, BAD_PARAM_MISALIGNED_POINTER);
            fake_need_device(*out, t.n_bytes(), what.c_str());
            return CUDNN_STATUS_SUCCESS;
        }
    }
    return fail(CUDNN_STATUS_BAD_PARAM, name);
}

cudnnStatus_t workspace_of(const descriptor *pack, size_t n_bytes, void **out)
{
    const bool given = pack->has(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    *out = given ? pack->get<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE) : nullptr;
    if (n_bytes > 0) {
        NEED(*out != nullptr, BAD_PARAM_NULL_POINTER);
        fake_need_device(*out, n_bytes, "cudnnBackendExecute, workspace");
    }
    return CUDNN_STATUS_SUCCESS;
}

void check_overlaps(const convolution &c, const operands &m, size_t workspace_bytes)
{
    for (int o = 0; o < c.n_operands(); o++) {
        const auto overlaps = [&](const void *other, size_t n_bytes) {
            return fake_overlap(m.at[o], c.of[o].n_bytes(), other, n_bytes);
        };
        if (workspace_bytes > 0 && overlaps(m.workspace, workspace_bytes)) {
            fake_die("cudnnBackendExecute: %s overlaps the workspace", operand_names[o]);
        }
        if (o != c.result && overlaps(m.at[c.result], c.of[c.result].n_bytes())) {
            fake_die("cudnnBackendExecute: the result, %s, overlaps %s", operand_names[c.result],
                     operand_names[o]);
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
    int device;
    NEED(cudaGetDevice(&device) == cudaSuccess, NOT_INITIALIZED);
    *handle = handles.add(new cudnnContext{});
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    NEED(handles.has(handle), NOT_INITIALIZED);
    handles.remove(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    NEED(handles.has(handle), NOT_INITIALIZED);
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out)
{
    descriptor *d = descriptors.add(new descriptor{});
    d->type = type;
    n_descriptors++;
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t pointer)
{
    descriptor *d = known(pointer);
    if (d == nullptr) {
        fake_die("cudnnBackendDestroyDescriptor: not a descriptor, or destroyed before");
    }
    descriptors.remove(d);
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
    const char *bytes = (const char *)elements;
    d->attributes[name] = {count, std::vector<char>(bytes, bytes + (size_t)count * size_of(type))};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t pointer)
{
    descriptor *d = known(pointer);
    NEED(d != nullptr, BAD_PARAM_NULL_POINTER);
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
    const descriptor *d = known(pointer);
    NEED(d != nullptr && d->finalized, BAD_PARAM_NOT_FINALIZED);
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        PASS_ON(fill(d, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, d->found, capacity, count, elements));
        *count += capacity == 0 && *count > 0 ? n_empty : 0;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        return fill(d, CUDNN_BACKEND_ENGINE_DESCRIPTOR, {d->chosen}, capacity, count, elements);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        return notes_of(d, capacity, count, elements);
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
    NEED(handles.has(handle), NOT_INITIALIZED);
    const descriptor *plan = known(plan_pointer), *pack = known(pack_pointer);
    NEED(plan != nullptr && pack != nullptr && plan->finalized && pack->finalized, BAD_PARAM);
    NEED(plan->handle == handle, BAD_PARAM);
    const engine *used = plan->chosen;
    const convolution problem = plan->problem;
    operands memory;
    if (!used->allowed()) {
        fake_die("cudnnBackendExecute: the engine '%s' was run", used->name);
    }
    for (int o = 0; o < problem.n_operands(); o++) {
        PASS_ON(pointer_of(pack, problem.of[o], operand_names[o], &memory.at[o]));
    }
    PASS_ON(workspace_of(pack, (size_t)used->workspace, &memory.workspace));
    check_overlaps(problem, memory, (size_t)used->workspace);
    NEED(!is_among(used, fake_options.failing_engines), EXECUTION_FAILED);
    if (is_among(used, fake_options.unrecordable_engines) && fake_is_capturing(handle->stream)) {
        NEED(cudaStreamSynchronize(handle->stream) == cudaSuccess, EXECUTION_FAILED);
    }
    std::this_thread::sleep_for(
        std::chrono::milliseconds(fake_options.engine_load_ms)); /* on the host */
    fake_moves(problem.of[X].n_bytes() + problem.of[FILTER].n_bytes() + problem.of[Y].n_bytes());
    const cudaError_t code = fake_enqueue_until(handle->stream, "cudnnBackendExecute", [=] {
        run(problem, memory, *used);
        fake_take_time(fake_options.engine_ms[used->number] +
                       (problem.with_relu ? fake_options.fused_ms : 0));
        return !is_among(used, fake_options.endless_engines);
    });
    NEED(code == cudaSuccess, EXECUTION_FAILED);
    return CUDNN_STATUS_SUCCESS;
}
