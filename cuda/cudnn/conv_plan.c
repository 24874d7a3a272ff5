#include "cuda/cudnn/conv_plan.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_check.h"

#define TENSOR_ALIGN 16 /* bytes; cuDNN's fastest engines need it */
#define BIAS_ALIGN 4

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

/* ---- the operation graph */

struct problem {
    const struct dt_conv_target *target;
    enum dt_conv_kind kind;
    const struct dt_block *block;
    int batch;
    enum dt_precision precision;
};

static cudnnDataType_t data_type(const struct problem *p)
{
    return p->precision == DT_PRECISION_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

static void set_ints(struct dt_descriptors *d, cudnnBackendDescriptor_t descriptor,
                     cudnnBackendAttributeName_t name, int64_t n, const int64_t *values)
{
    dt_descriptor_set(d, descriptor, name, CUDNN_TYPE_INT64, n, values);
}

/* dims are cuDNN's: N C H W, or K C R S; channels are innermost. A bias may lie anywhere in the
 * arena; intermediate results, in float, have no address. */
static cudnnBackendDescriptor_t make_tensor(struct dt_descriptors *d, int64_t id,
                                            cudnnDataType_t type, int n, int c, int h, int w)
{
    const bool is_virtual = id == ID_SUM || id == ID_BIASED;
    const int64_t dims[] = {n, c, h, w}, align = id == ID_BIAS ? BIAS_ALIGN : TENSOR_ALIGN;
    const int64_t strides[] = {dims[1] * dims[2] * dims[3], 1, dims[1] * dims[3], dims[1]};
    cudnnBackendDescriptor_t tensor =
        dt_descriptor_create_owned(d, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set_ints(d, tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id);
    dt_descriptor_set_type(d, tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
    set_ints(d, tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dims);
    set_ints(d, tensor, CUDNN_ATTR_TENSOR_STRIDES, 4, strides);
    set_ints(d, tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &align);
    dt_descriptor_set(d, tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    dt_descriptor_finalize(d, tensor);
    return tensor;
}

/* Zeros below or to the right, as many as the last output needs. Where it needs fewer rows than
 * there are, cuDNN's formula for the size rounds down, as ours does. */
static int pad_after(int in, int out, int kernel, int stride, int before)
{
    const int after = (out - 1) * stride + kernel - in - before;
    return after > 0 ? after : 0;
}

static cudnnBackendDescriptor_t make_convolution(struct dt_descriptors *d,
                                                 const struct dt_block *block)
{
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t n_spatial = 2, dilations[] = {1, 1}, strides[] = {block->stride, block->stride};
    const int64_t before[] = {block->pad_before_h, block->pad_before_w};
    const int64_t after[] = {pad_after(block->in.h, block->linear_out.h, block->kernel,
                                       block->stride, block->pad_before_h),
                             pad_after(block->in.w, block->linear_out.w, block->kernel,
                                       block->stride, block->pad_before_w)};
    cudnnBackendDescriptor_t convolution =
        dt_descriptor_create_owned(d, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    dt_descriptor_set_type(d, convolution, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    dt_descriptor_set(d, convolution, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                      1, &mode);
    set_ints(d, convolution, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &n_spatial);
    set_ints(d, convolution, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, dilations);
    set_ints(d, convolution, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, strides);
    set_ints(d, convolution, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, before);
    set_ints(d, convolution, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, after);
    dt_descriptor_finalize(d, convolution);
    return convolution;
}

/* y: the operation's result. */
static cudnnBackendDescriptor_t make_operation(struct dt_descriptors *d, const struct problem *p,
                                               cudnnBackendDescriptor_t y)
{
    const struct operation *names = &operations[p->kind];
    const struct dt_shape in = p->block->in, out = p->block->linear_out;
    const cudnnDataType_t type = data_type(p);
    const int kernel = p->block->kernel;
    const float one = 1, zero = 0;
    cudnnBackendDescriptor_t x = make_tensor(d, ID_X, type, p->batch, in.c, in.h, in.w);
    cudnnBackendDescriptor_t filter = make_tensor(d, ID_FILTER, type, out.c, in.c, kernel, kernel);
    cudnnBackendDescriptor_t convolution = make_convolution(d, p->block);
    cudnnBackendDescriptor_t operation = dt_descriptor_create_owned(d, names->type);
    dt_descriptor_set_descriptor(d, operation, names->x, x);
    dt_descriptor_set_descriptor(d, operation, names->filter, filter);
    dt_descriptor_set_descriptor(d, operation, names->y, y);
    dt_descriptor_set_descriptor(d, operation, names->convolution, convolution);
    dt_descriptor_set(d, operation, names->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    dt_descriptor_set(d, operation, names->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    dt_descriptor_finalize(d, operation);
    return operation;
}

/* y = mode(x), or mode(x, bias). */
static cudnnBackendDescriptor_t make_pointwise(struct dt_descriptors *d, cudnnPointwiseMode_t mode,
                                               cudnnBackendDescriptor_t x,
                                               cudnnBackendDescriptor_t bias,
                                               cudnnBackendDescriptor_t y)
{
    const cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    cudnnBackendDescriptor_t pointwise =
        dt_descriptor_create_owned(d, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    dt_descriptor_set(d, pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    dt_descriptor_set_type(d, pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    dt_descriptor_set(d, pointwise, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION,
                      CUDNN_TYPE_NAN_PROPOGATION, 1, &nan);
    dt_descriptor_finalize(d, pointwise);
    cudnnBackendDescriptor_t operation =
        dt_descriptor_create_owned(d, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    dt_descriptor_set_descriptor(d, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                                 pointwise);
    dt_descriptor_set_descriptor(d, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (bias != NULL) {
        dt_descriptor_set_descriptor(d, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias);
    }
    dt_descriptor_set_descriptor(d, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    dt_descriptor_finalize(d, operation);
    return operation;
}

/* Returns the number of operations: the convolution alone, or convolution, bias and relu. */
static int make_operations(struct dt_descriptors *d, const struct problem *p,
                           cudnnBackendDescriptor_t out[3])
{
    const struct dt_shape s = p->block->linear_out;
    cudnnBackendDescriptor_t y = make_tensor(d, ID_Y, data_type(p), p->batch, s.c, s.h, s.w);
    if (!operations[p->kind].with_relu) {
        out[0] = make_operation(d, p, y);
        return 1;
    }
    cudnnBackendDescriptor_t bias = make_tensor(d, ID_BIAS, data_type(p), 1, s.c, 1, 1);
    cudnnBackendDescriptor_t sum =
        make_tensor(d, ID_SUM, CUDNN_DATA_FLOAT, p->batch, s.c, s.h, s.w);
    cudnnBackendDescriptor_t biased =
        make_tensor(d, ID_BIASED, CUDNN_DATA_FLOAT, p->batch, s.c, s.h, s.w);
    out[0] = make_operation(d, p, sum);
    out[1] = make_pointwise(d, CUDNN_POINTWISE_ADD, sum, bias, biased);
    out[2] = make_pointwise(d, CUDNN_POINTWISE_RELU_FWD, biased, NULL, y);
    return 3;
}

static cudnnBackendDescriptor_t make_graph(struct dt_descriptors *d, const struct problem *p)
{
    cudnnBackendDescriptor_t all[3];
    const int n = make_operations(d, p, all);
    cudnnBackendDescriptor_t graph =
        dt_descriptor_create_owned(d, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (p->target->handle != NULL) {
        dt_descriptor_set(d, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                          &p->target->handle);
    }
    dt_descriptor_set(d, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n,
                      all);
    dt_descriptor_finalize(d, graph);
    return graph;
}

/* NULL for a target with a handle. */
static cudnnBackendDescriptor_t make_device(struct dt_descriptors *d, const char *json)
{
    if (json == NULL) {
        return NULL;
    }
    cudnnBackendDescriptor_t device =
        dt_descriptor_create_owned(d, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    dt_descriptor_set(d, device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                      (int64_t)strlen(json) + 1, json);
    dt_descriptor_finalize(d, device);
    return device;
}

static enum dt_status no_engine(const struct problem *p, cudnnStatus_t reason)
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

static enum dt_status build(struct dt_conv_plan *plan, const struct problem *p)
{
    struct dt_descriptors *d = &plan->graph;
    const struct dt_engine_search search = {.handle = plan->handle,
                                            .graph = make_graph(d, p),
                                            .device = make_device(d, p->target->device_json),
                                            .precision = p->precision,
                                            .workspace_limit = p->target->workspace_limit};
    cudnnStatus_t why = d->status;
    if (d->status != CUDNN_STATUS_SUCCESS &&
        (d->status < CUDNN_STATUS_NOT_SUPPORTED || d->status >= CUDNN_STATUS_INTERNAL_ERROR)) {
        return dt_cudnn_failed(d->status, d->call, __FILE__, __LINE__);
    }
    if (d->status == CUDNN_STATUS_SUCCESS) {
        plan->n_engines = dt_engines_find(&search, p->target->n_engines, plan->engines, &why);
    }
    return plan->n_engines > 0 ? DT_OK : no_engine(p, why);
}

static size_t elem_bytes(const struct problem *p)
{
    return p->precision == DT_PRECISION_BF16 ? 2 : sizeof(float);
}

static size_t bytes_of(const struct problem *p, int64_t id)
{
    const struct dt_block *b = p->block;
    const size_t n = (size_t)p->batch, n_taps = (size_t)b->kernel * (size_t)b->kernel;
    const size_t n_elems[N_IDS] = {[ID_X] = n * dt_shape_elems(b->in),
                                   [ID_FILTER] = (size_t)b->linear_out.c * (size_t)b->in.c * n_taps,
                                   [ID_Y] = n * dt_shape_elems(b->linear_out),
                                   [ID_BIAS] = (size_t)b->linear_out.c};
    return n_elems[id] * elem_bytes(p);
}

/* ---- the interface */

enum dt_status dt_conv_plan_open(const struct dt_conv_target *target, enum dt_conv_kind kind,
                                 const struct dt_block *block, int batch,
                                 enum dt_precision precision, struct dt_conv_plan **out)
{
    const struct problem problem = {
        .target = target, .kind = kind, .block = block, .batch = batch, .precision = precision};
    struct dt_conv_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening block %s", block->name);
    }
    plan->handle = target->handle;
    plan->name = operations[kind].name;
    plan->has_relu = operations[kind].with_relu;
    plan->elem_bytes = elem_bytes(&problem);
    for (int i = 0; i < DT_CONV_N_OPERANDS; i++) {
        plan->ids[i] = operations[kind].ids[i];
        plan->n_bytes[i] = bytes_of(&problem, plan->ids[i]);
    }
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
    dt_descriptor_destroy(plan->pack);
    for (int i = 0; i < plan->n_engines; i++) {
        dt_engine_close(&plan->engines[i]);
    }
    dt_descriptors_close(&plan->graph);
    free(plan);
}

void dt_conv_plan_keep(struct dt_conv_plan *plan)
{
    for (int i = 0; i < plan->n_engines; i++) {
        if (i != plan->used) {
            dt_engine_close(&plan->engines[i]);
        }
    }
}

static enum dt_status take_pointers(struct dt_conv_plan *plan,
                                    void *const pointers[DT_CONV_N_OPERANDS], void *workspace)
{
    const int n_operands = plan->has_relu ? DT_CONV_N_OPERANDS : DT_CONV_N_OPERANDS - 1;
    struct dt_descriptors d = {0};
    dt_descriptor_destroy(plan->pack);
    plan->pack = dt_descriptor_create(&d, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set_ints(&d, plan->pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, n_operands, plan->ids);
    dt_descriptor_set(&d, plan->pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                      n_operands, pointers);
    dt_descriptor_set(&d, plan->pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                      &workspace);
    dt_descriptor_finalize(&d, plan->pack);
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
