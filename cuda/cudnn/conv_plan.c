#include "cuda/cudnn/conv_plan.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_check.h"

#define TENSOR_ALIGN 16 /* bytes; cuDNN's fastest engines need it */
#define BIAS_ALIGN 4
#define MAX_CONFIGS 128 /* examined per mode of the heuristics; at most 67 were seen */

/* Names of the tensors in the graph. */
enum { ID_X = 1, ID_FILTER, ID_Y, ID_BIAS, ID_SUM, ID_BIASED, N_IDS };

/* The operations differ only in names and in these fields. */
struct operation {
    const char *name;
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, filter, y, convolution, alpha, beta;
    int64_t ids[DT_CONV_N_OPERANDS];
    bool with_relu; /* and a bias before it */
};

/* direction, attributes, x, filter, y: parts of cuDNN's names. */
#define OPERATION(text, direction, attributes, X, FILTER, Y, ...)                           \
    {                                                                                       \
        .name = text, .type = CUDNN_BACKEND_OPERATION_CONVOLUTION_##direction##_DESCRIPTOR, \
        .x = CUDNN_ATTR_OPERATION_CONVOLUTION_##attributes##_##X,                           \
        .filter = CUDNN_ATTR_OPERATION_CONVOLUTION_##attributes##_##FILTER,                 \
        .y = CUDNN_ATTR_OPERATION_CONVOLUTION_##attributes##_##Y,                           \
        .convolution = CUDNN_ATTR_OPERATION_CONVOLUTION_##attributes##_CONV_DESC,           \
        .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_##attributes##_ALPHA,                     \
        .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_##attributes##_BETA, __VA_ARGS__,          \
    }

static const struct operation operations[] = {
    [DT_CONV_FORWARD_RELU] = OPERATION("convolution with bias and relu", FORWARD, FORWARD, X, W, Y,
                                       .ids = {ID_X, ID_FILTER, ID_Y, ID_BIAS}, .with_relu = true),
    [DT_CONV_FORWARD] =
        OPERATION("convolution", FORWARD, FORWARD, X, W, Y, .ids = {ID_X, ID_FILTER, ID_Y}),
    [DT_CONV_INPUT_GRADIENT] = OPERATION("gradient of the input", BACKWARD_DATA, BWD_DATA, DX, W,
                                         DY, .ids = {ID_Y, ID_FILTER, ID_X}),
    [DT_CONV_FILTER_GRADIENT] = OPERATION("gradient of the filter", BACKWARD_FILTER, BWD_FILTER, X,
                                          DW, DY, .ids = {ID_Y, ID_X, ID_FILTER}),
};

/* ---- descriptors */

/* An attribute of a descriptor. Its values are copied; NULL leaves it out. */
struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t n; /* of values; 0 ends a list */
    const void *values;
};

#define MAKE(d, type, ...) make(d, type, (const struct attribute[]){__VA_ARGS__, {.n = 0}})
#define OWN(d, type, ...) own(d, MAKE(d, type, __VA_ARGS__))

static void note(struct dt_descriptors *d, cudnnStatus_t status, const char *call)
{
    if (d->status == CUDNN_STATUS_SUCCESS && status != CUDNN_STATUS_SUCCESS) {
        d->status = status;
        d->call = call;
    }
}

/* NULL after a failure. The caller destroys it. */
static cudnnBackendDescriptor_t create(struct dt_descriptors *d, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t descriptor = NULL;
    if (d->status == CUDNN_STATUS_SUCCESS) {
        note(d, cudnnBackendCreateDescriptor(type, &descriptor), "cudnnBackendCreateDescriptor");
    }
    return descriptor;
}

/* The same with attributes, finalized. */
static cudnnBackendDescriptor_t make(struct dt_descriptors *d, cudnnBackendDescriptorType_t type,
                                     const struct attribute *a)
{
    cudnnBackendDescriptor_t descriptor = create(d, type);
    for (; a->n > 0 && d->status == CUDNN_STATUS_SUCCESS; a++) {
        if (a->values != NULL) {
            note(d, cudnnBackendSetAttribute(descriptor, a->name, a->type, a->n, a->values),
                 "cudnnBackendSetAttribute");
        }
    }
    if (d->status == CUDNN_STATUS_SUCCESS) {
        note(d, cudnnBackendFinalize(descriptor), "cudnnBackendFinalize");
    }
    return descriptor;
}

/* Gives the descriptor to `d`. */
static cudnnBackendDescriptor_t own(struct dt_descriptors *d, cudnnBackendDescriptor_t descriptor)
{
    if (descriptor != NULL) {
        d->owned[d->n_owned++] = descriptor;
    }
    return descriptor;
}

/* Returns how many values there are. */
static int64_t get(struct dt_descriptors *d, cudnnBackendDescriptor_t descriptor,
                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   int64_t capacity, void *values)
{
    int64_t n = 0;
    if (d->status == CUDNN_STATUS_SUCCESS) {
        note(d, cudnnBackendGetAttribute(descriptor, name, type, capacity, &n, values),
             "cudnnBackendGetAttribute");
    }
    return n;
}

static void destroy(cudnnBackendDescriptor_t descriptor)
{
    if (descriptor != NULL) {
        cudnnBackendDestroyDescriptor(descriptor);
    }
}

/* Destroys what `d` owns, the last first. */
static void close_descriptors(struct dt_descriptors *d)
{
    while (d->n_owned > 0) {
        destroy(d->owned[--d->n_owned]);
    }
}

/* ---- the operation graph */

static cudnnDataType_t data_type(const struct dt_conv_spec *spec)
{
    return spec->precision == DT_PRECISION_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/* dims are cuDNN's: N C H W, or K C R S; channels are innermost. A bias may lie anywhere in the
 * arena; intermediate results, in float, have no address. */
static cudnnBackendDescriptor_t make_tensor(struct dt_descriptors *d, int64_t id,
                                            cudnnDataType_t type, int n, int c, int h, int w)
{
    const bool is_virtual = id == ID_SUM || id == ID_BIASED;
    const int64_t dims[] = {n, c, h, w}, align = id == ID_BIAS ? BIAS_ALIGN : TENSOR_ALIGN;
    const int64_t strides[] = {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]};
    return OWN(d, CUDNN_BACKEND_TENSOR_DESCRIPTOR,
               {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id},
               {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
               {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims},
               {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides},
               {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align},
               {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual});
}

static cudnnBackendDescriptor_t make_convolution(struct dt_descriptors *d, const struct dt_block *b)
{
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const int64_t n_spatial = 2, dilations[] = {1, 1}, strides[] = {b->stride, b->stride};
    const int64_t before[] = {b->pad_before_h, b->pad_before_w};
    /* Where an input has more rows than are needed, cuDNN's size of the output rounds down, too. */
    const int64_t after[] = {dt_conv_pad_after(b, b->in.h, b->pad_before_h, b->linear_out.h),
                             dt_conv_pad_after(b, b->in.w, b->pad_before_w, b->linear_out.w)};
    return OWN(d, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
               {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
               {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode},
               {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n_spatial},
               {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations},
               {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides},
               {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, before},
               {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, after});
}

/* y: the operation's result. */
static cudnnBackendDescriptor_t make_operation(struct dt_descriptors *d,
                                               const struct dt_conv_spec *spec,
                                               cudnnBackendDescriptor_t y)
{
    const struct operation *names = &operations[spec->kind];
    const struct dt_shape in = spec->block->in, out = spec->block->linear_out;
    const cudnnDataType_t type = data_type(spec);
    const int kernel = spec->block->kernel;
    const float one = 1, zero = 0;
    cudnnBackendDescriptor_t x = make_tensor(d, ID_X, type, spec->batch, in.c, in.h, in.w);
    cudnnBackendDescriptor_t filter = make_tensor(d, ID_FILTER, type, out.c, in.c, kernel, kernel);
    cudnnBackendDescriptor_t convolution = make_convolution(d, spec->block);
    return OWN(d, names->type, {names->x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
               {names->filter, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &filter},
               {names->y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y},
               {names->convolution, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &convolution},
               {names->alpha, CUDNN_TYPE_FLOAT, 1, &one},
               {names->beta, CUDNN_TYPE_FLOAT, 1, &zero});
}

/* y = mode(x), or mode(x, *bias). */
static cudnnBackendDescriptor_t make_pointwise(struct dt_descriptors *d, cudnnPointwiseMode_t mode,
                                               cudnnBackendDescriptor_t x,
                                               const cudnnBackendDescriptor_t *bias,
                                               cudnnBackendDescriptor_t y)
{
    const cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t pointwise =
        OWN(d, CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
            {CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode},
            {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type},
            {CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &nan});
    return OWN(d, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
               {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                &pointwise},
               {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
               {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, bias},
               {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y});
}

/* Of the convolution alone, or of convolution, bias and relu. */
static cudnnBackendDescriptor_t make_graph(struct dt_descriptors *d,
                                           const struct dt_conv_spec *spec)
{
    const struct dt_shape s = spec->block->linear_out;
    const cudnnHandle_t *handle = spec->handle != NULL ? &spec->handle : NULL;
    cudnnBackendDescriptor_t y = make_tensor(d, ID_Y, data_type(spec), spec->batch, s.c, s.h, s.w);
    cudnnBackendDescriptor_t all[3];
    int n = 0;
    if (!operations[spec->kind].with_relu) {
        all[n++] = make_operation(d, spec, y);
    } else {
        cudnnBackendDescriptor_t bias = make_tensor(d, ID_BIAS, data_type(spec), 1, s.c, 1, 1);
        cudnnBackendDescriptor_t sum =
            make_tensor(d, ID_SUM, CUDNN_DATA_FLOAT, spec->batch, s.c, s.h, s.w);
        cudnnBackendDescriptor_t biased =
            make_tensor(d, ID_BIASED, CUDNN_DATA_FLOAT, spec->batch, s.c, s.h, s.w);
        all[n++] = make_operation(d, spec, sum);
        all[n++] = make_pointwise(d, CUDNN_POINTWISE_ADD, sum, &bias, biased);
        all[n++] = make_pointwise(d, CUDNN_POINTWISE_RELU_FWD, biased, NULL, y);
    }
    return OWN(d, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
               {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, handle},
               {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, all});
}

/* NULL for a target with a handle. */
static cudnnBackendDescriptor_t make_device(struct dt_descriptors *d, const char *json)
{
    return json == NULL ? NULL
                        : OWN(d, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR,
                              {CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                               (int64_t)strlen(json) + 1, json});
}

/* ---- engines */

static bool is_avoided(cudnnBackendNumericalNote_t numerical_note, enum dt_precision precision)
{
    switch (numerical_note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
        return true;
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: /* they multiply tf32, not floats */
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
    case CUDNN_NUMERICAL_NOTE_FFT: /* FFT and Winograd are less exact than sums of products */
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
        return precision == DT_PRECISION_F32;
    default:
        return false;
    }
}

static bool is_allowed(cudnnBackendDescriptor_t config, enum dt_precision precision,
                       int64_t *number)
{
    struct dt_descriptors d = {0};
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine = own(&d, create(&d, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
    get(&d, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    get(&d, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, number);
    const int64_t n_notes = get(&d, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes);
    bool allowed = d.status == CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; allowed && i < n_notes; i++) {
        allowed = !is_avoided(notes[i], precision);
    }
    close_descriptors(&d);
    return allowed;
}

static void close_engine(struct dt_engine *engine)
{
    destroy(engine->execution);
    destroy(engine->config);
    *engine = (struct dt_engine){0};
}

/* True if `out`, with its configuration, can run within the limit. */
static bool plan_execution(const struct dt_conv_plan *plan, size_t workspace_limit,
                           struct dt_engine *out, cudnnStatus_t *why)
{
    struct dt_descriptors d = {0};
    int64_t workspace = 0;
    out->execution = MAKE(
        &d, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
        {CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
         plan->device == NULL ? &plan->handle : NULL},
        {CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
         plan->device != NULL ? &plan->device : NULL},
        {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &out->config});
    get(&d, out->execution, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
        &workspace);
    *why = d.status;
    out->workspace_bytes = (size_t)workspace;
    return d.status == CUDNN_STATUS_SUCCESS && out->workspace_bytes <= workspace_limit;
}

/* Returns the number of configurations, which the caller destroys. cuDNN at times returns fewer
 * than it announced. */
static int ask_heuristics(const struct dt_conv_plan *plan, cudnnBackendHeurMode_t mode,
                          cudnnBackendDescriptor_t configs[MAX_CONFIGS], cudnnStatus_t *why)
{
    struct dt_descriptors d = {0};
    int n_made = 0;
    cudnnBackendDescriptor_t heuristics =
        OWN(&d, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
            {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
             &plan->operations},
            {CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode},
            {CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
             plan->device != NULL ? &plan->device : NULL});
    const int64_t n =
        get(&d, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, NULL);
    while (d.status == CUDNN_STATUS_SUCCESS && n_made < n && n_made < MAX_CONFIGS) {
        configs[n_made] = create(&d, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        n_made += configs[n_made] != NULL;
    }
    const int64_t n_filled = get(&d, heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, n_made, configs);
    *why = d.status;
    close_descriptors(&d);
    while (n_made > n_filled) {
        destroy(configs[--n_made]);
    }
    return n_made;
}

static bool has_number(const struct dt_conv_plan *plan, int64_t number)
{
    int i = 0;
    while (i < plan->n_engines && plan->engines[i].number != number) {
        i++;
    }
    return i < plan->n_engines;
}

/* Adds the first DT_FIRST_ENGINES admissible ones of the list, then the first of each number that
 * is not among them. *why: of the last refusal, which may be CUDNN_STATUS_SUCCESS. */
static void find_engines(struct dt_conv_plan *plan, const struct dt_conv_spec *spec,
                         cudnnBackendHeurMode_t mode, cudnnStatus_t *why)
{
    cudnnBackendDescriptor_t configs[MAX_CONFIGS];
    const int n = ask_heuristics(plan, mode, configs, why);
    for (int i = 0; i < n; i++) {
        struct dt_engine engine = {.config = configs[i], .place = i + 1};
        if (plan->n_engines < spec->n_engines &&
            is_allowed(configs[i], spec->precision, &engine.number) &&
            (plan->n_engines < DT_FIRST_ENGINES || !has_number(plan, engine.number)) &&
            plan_execution(plan, spec->workspace_limit, &engine, why)) {
            plan->engines[plan->n_engines++] = engine;
        } else {
            close_engine(&engine);
        }
    }
}

static enum dt_status no_engine(const struct dt_conv_spec *p, cudnnStatus_t reason)
{
    static const char *const precisions[] = {DT_PRECISION_LIST(DT_ENUM_NAME)};
    const struct dt_block *b = p->block;
    const size_t version = cudnnGetVersion();
    return dt_error(DT_UNAVAILABLE,
                    "block %s: cuDNN %zu.%zu.%zu has no engine for the %s in %s, %d samples of "
                    "%dx%dx%d, %d filters %dx%d, stride %d, to %dx%d"
                    "%s%s (use another precision or batch, or \"device\": \"cpu\")",
                    b->name, version / 10000, version / 100 % 100, version % 100,
                    operations[p->kind].name, precisions[p->precision], p->batch, b->in.c, b->in.h,
                    b->in.w, b->linear_out.c, b->kernel, b->kernel, b->stride, b->linear_out.h,
                    b->linear_out.w, reason == CUDNN_STATUS_SUCCESS ? "" : ": ",
                    reason == CUDNN_STATUS_SUCCESS ? "" : cudnnGetErrorString(reason));
}

/* A mode of the heuristics is queried only if the one before finds no engine. */
static enum dt_status build(struct dt_conv_plan *plan, const struct dt_conv_spec *spec)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                   CUDNN_HEUR_MODE_FALLBACK};
    struct dt_descriptors *d = &plan->graph;
    plan->operations = make_graph(d, spec);
    plan->device = make_device(d, spec->device_json);
    cudnnStatus_t why = d->status;
    if (why != CUDNN_STATUS_SUCCESS &&
        (why < CUDNN_STATUS_NOT_SUPPORTED || why >= CUDNN_STATUS_INTERNAL_ERROR)) {
        return dt_cudnn_failed(why, d->call, __FILE__, __LINE__);
    }
    for (int i = 0; i < 3 && d->status == CUDNN_STATUS_SUCCESS && plan->n_engines == 0; i++) {
        find_engines(plan, spec, modes[i], &why);
    }
    return plan->n_engines > 0 ? DT_OK : no_engine(spec, why);
}

static void size_operands(struct dt_conv_plan *plan, const struct dt_conv_spec *spec)
{
    const struct dt_block *b = spec->block;
    const size_t n = (size_t)spec->batch, n_taps = (size_t)b->kernel * (size_t)b->kernel;
    const size_t n_elems[N_IDS] = {[ID_X] = n * dt_shape_elems(b->in),
                                   [ID_FILTER] = (size_t)b->linear_out.c * (size_t)b->in.c * n_taps,
                                   [ID_Y] = n * dt_shape_elems(b->linear_out),
                                   [ID_BIAS] = (size_t)b->linear_out.c};
    for (int i = 0; i < DT_CONV_N_OPERANDS; i++) {
        plan->ids[i] = operations[spec->kind].ids[i];
        plan->n_bytes[i] = n_elems[plan->ids[i]] * plan->elem_bytes;
    }
}

/* ---- the interface */

enum dt_status dt_conv_plan_open(const struct dt_conv_spec *spec, struct dt_conv_plan **out)
{
    struct dt_conv_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening block %s", spec->block->name);
    }
    plan->handle = spec->handle;
    plan->name = operations[spec->kind].name;
    plan->has_relu = operations[spec->kind].with_relu;
    plan->elem_bytes = spec->precision == DT_PRECISION_BF16 ? 2 : sizeof(float);
    size_operands(plan, spec);
    const enum dt_status status = build(plan, spec);
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
    for (int i = 0; i < plan->n_engines; i++) {
        close_engine(&plan->engines[i]);
    }
    close_descriptors(&plan->graph);
    free(plan);
}

void dt_conv_plan_keep(struct dt_conv_plan *plan)
{
    for (int i = 0; i < plan->n_engines; i++) {
        if (i != plan->used) {
            close_engine(&plan->engines[i]);
        }
    }
}

static enum dt_status take_pointers(struct dt_conv_plan *plan,
                                    void *const pointers[DT_CONV_N_OPERANDS], void *workspace)
{
    const int n_operands = plan->has_relu ? DT_CONV_N_OPERANDS : DT_CONV_N_OPERANDS - 1;
    struct dt_descriptors d = {0};
    destroy(plan->pack);
    plan->pack =
        MAKE(&d, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
             {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n_operands, plan->ids},
             {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n_operands, pointers},
             {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace});
    if (d.status != CUDNN_STATUS_SUCCESS) {
        return dt_cudnn_failed(d.status, d.call, __FILE__, __LINE__);
    }
    memcpy(plan->pointers, pointers, sizeof plan->pointers);
    plan->workspace = workspace;
    return DT_OK;
}

enum dt_status dt_conv_plan_run(struct dt_conv_plan *plan, const void *in, const void *other,
                                const void *bias, void *out, void *workspace)
{
    void *const pointers[DT_CONV_N_OPERANDS] = {(void *)in, (void *)other, out, (void *)bias};
    if (plan->pack == NULL || workspace != plan->workspace ||
        memcmp(pointers, plan->pointers, sizeof pointers) != 0) {
        DT_TRY(take_pointers(plan, pointers, workspace));
    }
    DT_CUDNN(cudnnBackendExecute(plan->handle, plan->engines[plan->used].execution, plan->pack));
    return DT_OK;
}
