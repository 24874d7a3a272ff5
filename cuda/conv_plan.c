#include "cuda/conv_plan.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_check.h"

#define TENSOR_ALIGN 16 /* bytes; cuDNN's fastest engines want it */
#define MAX_CONFIGS 128 /* that are looked at, of a mode of the heuristics; 67 were seen */
#define MAX_OWNED 16

#if CUDNN_VERSION < 90800 /* described devices came with 9.8; an older library refuses them */
#define CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR ((cudnnBackendDescriptorType_t)38)
#define CUDNN_ATTR_ENGINEHEUR_DEVICEPROP ((cudnnBackendAttributeName_t)204)
#define CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP ((cudnnBackendAttributeName_t)407)
#define CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION ((cudnnBackendAttributeName_t)2702)
#endif

/* Names of the tensors in the graph. */
enum { ID_X = 1, ID_FILTER, ID_Y };

struct dt_conv_plan {
    cudnnHandle_t handle; /* NULL: made for a described device */
    cudnnBackendDescriptor_t owned[MAX_OWNED];
    int n_owned;
    cudnnBackendDescriptor_t execution; /* NULL until an engine is found */
    size_t workspace_bytes;
    int64_t ids[3]; /* of in, other and out */
    /* The pointers of the last run, and the descriptor that carries them: it cannot be changed, but a block's buffers seldom do. */
    void *pointers[3], *workspace;
    cudnnBackendDescriptor_t pack;
};

/* The three operations differ in names only. */
static const struct operation {
    const char *name;
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, filter, y, convolution, alpha, beta;
    int64_t ids[3];
} operations[] = {
    [DT_CONV_FORWARD] = {"convolution",
                         CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                         {ID_X, ID_FILTER, ID_Y}},
    [DT_CONV_INPUT_GRADIENT] = {"gradient of the input",
                                CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                                {ID_Y, ID_FILTER, ID_X}},
    [DT_CONV_FILTER_GRADIENT] = {"gradient of the filter",
                                 CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                                 {ID_Y, ID_X, ID_FILTER}},
};

/* ---- descriptors, one call after the other: after a failure the others do nothing, so that only the end has to be checked */

struct builder {
    struct dt_conv_plan *plan; /* owns what create_owned makes */
    cudnnStatus_t status;      /* of the first failure */
    const char *call;          /* that failed */
};

static void note(struct builder *b, cudnnStatus_t status, const char *call)
{
    if (b->status == CUDNN_STATUS_SUCCESS && status != CUDNN_STATUS_SUCCESS) {
        b->status = status;
        b->call = call;
    }
}

static cudnnBackendDescriptor_t create(struct builder *b, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t descriptor = NULL;
    if (b->status == CUDNN_STATUS_SUCCESS) {
        note(b, cudnnBackendCreateDescriptor(type, &descriptor), "cudnnBackendCreateDescriptor");
    }
    return descriptor;
}

static void own(struct dt_conv_plan *plan, cudnnBackendDescriptor_t descriptor)
{
    plan->owned[plan->n_owned++] = descriptor;
}

static cudnnBackendDescriptor_t create_owned(struct builder *b, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t descriptor = create(b, type);
    if (descriptor != NULL) {
        own(b->plan, descriptor);
    }
    return descriptor;
}

static void set(struct builder *b, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    if (b->status == CUDNN_STATUS_SUCCESS) {
        note(b, cudnnBackendSetAttribute(descriptor, name, type, n, values), "cudnnBackendSetAttribute");
    }
}

static void set_type(struct builder *b, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnDataType_t type)
{
    set(b, descriptor, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

static void set_descriptor(struct builder *b, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                           cudnnBackendDescriptor_t value)
{
    set(b, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalize(struct builder *b, cudnnBackendDescriptor_t descriptor)
{
    if (b->status == CUDNN_STATUS_SUCCESS) {
        note(b, cudnnBackendFinalize(descriptor), "cudnnBackendFinalize");
    }
}

static void get(struct builder *b, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t capacity, int64_t *n, void *values)
{
    if (b->status == CUDNN_STATUS_SUCCESS) {
        note(b, cudnnBackendGetAttribute(descriptor, name, type, capacity, n, values), "cudnnBackendGetAttribute");
    }
}

static void destroy(cudnnBackendDescriptor_t descriptor)
{
    if (descriptor != NULL) {
        cudnnBackendDestroyDescriptor(descriptor);
    }
}

/* ---- the operation graph */

struct problem {
    const struct dt_conv_target *target;
    enum dt_conv_kind kind;
    const struct dt_block *block;
    int batch;
    enum dt_precision precision;
};

/* dims are cuDNN's: N C H W, or K C R S; the channels lie innermost. */
static cudnnBackendDescriptor_t make_tensor(struct builder *b, int64_t id, cudnnDataType_t type, int n, int c, int h, int w)
{
    const int64_t dims[] = {n, c, h, w}, align = TENSOR_ALIGN;
    const int64_t strides[] = {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]};
    cudnnBackendDescriptor_t tensor = create_owned(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(b, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set_type(b, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    set(b, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(b, tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(b, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    finalize(b, tensor);
    return tensor;
}

/* Zeros below or to the right: what the last output still needs. Where it needs less than there is, cuDNN's formula for the size
 * rounds down, as ours does. */
static int pad_after(int in, int out, int kernel, int stride, int before)
{
    const int after = (out - 1) * stride + kernel - in - before;
    return after > 0 ? after : 0;
}

static cudnnBackendDescriptor_t make_convolution(struct builder *b, const struct dt_block *block)
{
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t n_spatial = 2, dilations[] = {1, 1}, strides[] = {block->stride, block->stride};
    const int64_t before[] = {block->pad_before_h, block->pad_before_w};
    const int64_t after[] = {pad_after(block->in.h, block->linear_out.h, block->kernel, block->stride, block->pad_before_h),
                             pad_after(block->in.w, block->linear_out.w, block->kernel, block->stride, block->pad_before_w)};
    cudnnBackendDescriptor_t convolution = create_owned(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set_type(b, convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    set(b, convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(b, convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n_spatial);
    set(b, convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations);
    set(b, convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
    set(b, convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, before);
    set(b, convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, after);
    finalize(b, convolution);
    return convolution;
}

static cudnnBackendDescriptor_t make_operation(struct builder *b, const struct problem *p)
{
    const struct operation *names = &operations[p->kind];
    const struct dt_shape in = p->block->in, out = p->block->linear_out;
    const cudnnDataType_t type = p->precision == DT_PRECISION_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    const int kernel = p->block->kernel;
    const float one = 1, zero = 0;
    cudnnBackendDescriptor_t x = make_tensor(b, ID_X, type, p->batch, in.c, in.h, in.w);
    cudnnBackendDescriptor_t filter = make_tensor(b, ID_FILTER, type, out.c, in.c, kernel, kernel);
    cudnnBackendDescriptor_t y = make_tensor(b, ID_Y, type, p->batch, out.c, out.h, out.w);
    cudnnBackendDescriptor_t convolution = make_convolution(b, p->block);
    cudnnBackendDescriptor_t operation = create_owned(b, names->type);
    set_descriptor(b, operation, names->x, x);
    set_descriptor(b, operation, names->filter, filter);
    set_descriptor(b, operation, names->y, y);
    set_descriptor(b, operation, names->convolution, convolution);
    set(b, operation, names->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(b, operation, names->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    finalize(b, operation);
    return operation;
}

static cudnnBackendDescriptor_t make_graph(struct builder *b, const struct problem *p)
{
    cudnnBackendDescriptor_t operation = make_operation(b, p);
    cudnnBackendDescriptor_t graph = create_owned(b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (p->target->handle != NULL) {
        set(b, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &p->target->handle);
    }
    set_descriptor(b, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    finalize(b, graph);
    return graph;
}

/* NULL for a target with a handle. */
static cudnnBackendDescriptor_t make_device(struct builder *b, const char *json)
{
    if (json == NULL) {
        return NULL;
    }
    cudnnBackendDescriptor_t device = create_owned(b, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    set(b, device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1, json);
    finalize(b, device);
    return device;
}

/* ---- the choice of an engine */

struct search {
    struct dt_conv_plan *plan; /* takes what is found */
    enum dt_precision precision;
    cudnnBackendDescriptor_t graph, device; /* device NULL: the handle's */
    int64_t workspace_limit;
    cudnnStatus_t last_failure;
};

static bool is_avoided(cudnnBackendNumericalNote_t numerical_note, enum dt_precision precision)
{
    switch (numerical_note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        return true;
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: /* they multiply no floats: tf32 */
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
    case CUDNN_NUMERICAL_NOTE_FFT: /* these two are less exact than sums of products */
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
        return precision == DT_PRECISION_F32;
    default:
        return false;
    }
}

static bool is_allowed(struct search *s, cudnnBackendDescriptor_t config)
{
    struct builder b = {.plan = s->plan};
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t n_engines = 0, n_notes = 0;
    cudnnBackendDescriptor_t engine = create(&b, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    get(&b, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n_engines, &engine);
    get(&b, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n_notes, notes);
    destroy(engine);
    bool allowed = b.status == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; allowed && i < n_notes; i++) {
        allowed = !is_avoided(notes[i], s->precision);
    }
    return allowed;
}

/* True when the plan now has its engine. */
static bool try_config(struct search *s, cudnnBackendDescriptor_t config)
{
    struct builder b = {.plan = s->plan};
    int64_t n = 0, workspace = 0;
    cudnnBackendDescriptor_t execution = create(&b, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (s->device == NULL) {
        set(&b, execution, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &s->plan->handle);
    } else {
        set_descriptor(&b, execution, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, s->device);
    }
    set_descriptor(&b, execution, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    finalize(&b, execution);
    get(&b, execution, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &workspace);
    if (b.status != CUDNN_STATUS_SUCCESS || workspace > s->workspace_limit) {
        s->last_failure = b.status;
        destroy(execution);
        return false;
    }
    own(s->plan, execution);
    s->plan->execution = execution;
    s->plan->workspace_bytes = (size_t)workspace;
    return true;
}

/* Configurations in the order of the speed that cuDNN expects. */
static int ask_heuristics(struct search *s, cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t configs[MAX_CONFIGS])
{
    struct builder b = {.plan = s->plan};
    int64_t n = 0, n_filled = 0;
    int n_made = 0;
    cudnnBackendDescriptor_t heuristics = create(&b, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(&b, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, s->graph);
    set(&b, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (s->device != NULL) {
        set_descriptor(&b, heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, s->device);
    }
    finalize(&b, heuristics);
    get(&b, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n, NULL);
    while (b.status == CUDNN_STATUS_SUCCESS && n_made < n && n_made < MAX_CONFIGS) {
        configs[n_made] = create(&b, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        n_made += configs[n_made] != NULL;
    }
    get(&b, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n_made, &n_filled, configs);
    destroy(heuristics);
    s->last_failure = b.status;
    return n_made;
}

static bool search_mode(struct search *s, cudnnBackendHeurMode_t mode)
{
    cudnnBackendDescriptor_t configs[MAX_CONFIGS];
    const int n = ask_heuristics(s, mode, configs);
    bool found = false;
    for (int i = 0; i < n; i++) {
        if (!found && is_allowed(s, configs[i]) && try_config(s, configs[i])) {
            own(s->plan, configs[i]);
            found = true;
        } else {
            destroy(configs[i]);
        }
    }
    return found;
}

static enum dt_status no_engine(const struct problem *p, cudnnStatus_t reason)
{
    static const char *const precisions[] = {
#define DT_NAME(constant, name) [constant] = name,
        DT_PRECISION_LIST(DT_NAME)};
    const struct dt_block *b = p->block;
    const size_t version = cudnnGetVersion();
    return dt_error(
        DT_UNAVAILABLE,
        "block %s: cuDNN %zu.%zu.%zu has no engine for the %s in %s, %d samples of %dx%dx%d, %d filters %dx%d, stride %d, to %dx%d"
        "%s%s (use another precision or batch, or \"device\": \"cpu\")",
        b->name, version / 10000, version / 100 % 100, version % 100, operations[p->kind].name, precisions[p->precision], p->batch,
        b->in.c, b->in.h, b->in.w, b->linear_out.c, b->kernel, b->kernel, b->stride, b->linear_out.h, b->linear_out.w,
        reason == CUDNN_STATUS_SUCCESS ? "" : ": ", reason == CUDNN_STATUS_SUCCESS ? "" : cudnnGetErrorString(reason));
}

static enum dt_status build(struct dt_conv_plan *plan, const struct problem *p)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK};
    struct builder b = {.plan = plan};
    struct search search = {.plan = plan, .precision = p->precision, .workspace_limit = (int64_t)p->target->workspace_limit};
    search.graph = make_graph(&b, p);
    search.device = make_device(&b, p->target->device_json);
    if (b.status >= CUDNN_STATUS_NOT_SUPPORTED && b.status < CUDNN_STATUS_INTERNAL_ERROR) {
        return no_engine(p, b.status);
    }
    if (b.status != CUDNN_STATUS_SUCCESS) {
        return dt_cudnn_failed(b.status, b.call, __FILE__, __LINE__);
    }
    for (int i = 0; i < 3; i++) {
        if (search_mode(&search, modes[i])) {
            return DT_OK;
        }
    }
    return no_engine(p, search.last_failure);
}

/* ---- the interface */

enum dt_status dt_conv_plan_open(const struct dt_conv_target *target, enum dt_conv_kind kind, const struct dt_block *block,
                                 int batch, enum dt_precision precision, struct dt_conv_plan **out)
{
    const struct problem problem = {.target = target, .kind = kind, .block = block, .batch = batch, .precision = precision};
    struct dt_conv_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening block %s", block->name);
    }
    plan->handle = target->handle;
    memcpy(plan->ids, operations[kind].ids, sizeof plan->ids);
    const enum dt_status status = build(plan, &problem);
    if (status != DT_OK) {
        dt_conv_plan_close(plan);
        return status;
    }
    *out = plan;
    return DT_OK;
}

void dt_conv_plan_close(struct dt_conv_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    destroy(plan->pack);
    for (int i = plan->n_owned - 1; i >= 0; i--) {
        destroy(plan->owned[i]);
    }
    free(plan);
}

size_t dt_conv_plan_workspace(const struct dt_conv_plan *plan)
{
    return plan->workspace_bytes;
}

static enum dt_status take_pointers(struct dt_conv_plan *plan, void *const pointers[3], void *workspace)
{
    struct builder b = {.plan = plan};
    destroy(plan->pack);
    plan->pack = create(&b, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(&b, plan->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, plan->ids);
    set(&b, plan->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers);
    set(&b, plan->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    finalize(&b, plan->pack);
    if (b.status != CUDNN_STATUS_SUCCESS) {
        return dt_cudnn_failed(b.status, b.call, __FILE__, __LINE__);
    }
    memcpy(plan->pointers, pointers, sizeof plan->pointers);
    plan->workspace = workspace;
    return DT_OK;
}

enum dt_status dt_conv_plan_run(struct dt_conv_plan *plan, const void *in, const void *other, void *out, void *workspace)
{
    void *const pointers[3] = {(void *)in, (void *)other, out};
    if (plan->pack == NULL || workspace != plan->workspace || memcmp(pointers, plan->pointers, sizeof pointers) != 0) {
        DT_TRY(take_pointers(plan, pointers, workspace));
    }
    DT_CUDNN(cudnnBackendExecute(plan->handle, plan->execution, plan->pack));
    return DT_OK;
}
