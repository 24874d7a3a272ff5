/* Mistakes that cuDNN's descriptors refuse. Built twice, with cuDNN itself and with fake cuDNN,
 * which must be as strict. */
#include <cudnn.h>

#include "tests/lib/check.h"

/* Families of status codes; the library may choose any of a family. */
#define OK(call) CHECK_INT(call, CUDNN_STATUS_SUCCESS)
#define REFUSED(call) CHECK_INT((call) / 1000, CUDNN_STATUS_BAD_PARAM / 1000)

typedef cudnnBackendDescriptor_t descriptor;

static descriptor created(cudnnBackendDescriptorType_t type)
{
    descriptor d;
    OK(cudnnBackendCreateDescriptor(type, &d));
    return d;
}

static void set(descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                int64_t count, const void *elements)
{
    OK(cudnnBackendSetAttribute(d, name, type, count, elements));
}

static void set_tensor(descriptor tensor, int64_t id, int64_t n, int64_t c, int64_t h, int64_t w)
{
    const int64_t dims[] = {n, c, h, w}, strides[] = {c * h * w, 1, w * c, c}, align = 16;
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    set(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims);
    set(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
}

static descriptor tensor_of(int64_t id, int64_t n, int64_t c, int64_t h, int64_t w)
{
    descriptor tensor = created(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set_tensor(tensor, id, n, c, h, w);
    OK(cudnnBackendFinalize(tensor));
    return tensor;
}

static cudnnStatus_t finalize_convolution(int64_t stride, int64_t before, int64_t after,
                                          descriptor *out)
{
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const int64_t two = 2, ones[] = {1, 1}, strides[] = {stride, stride}, pre[] = {before, before},
                  post[] = {after, after};
    *out = created(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(*out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(*out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(*out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two);
    set(*out, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones);
    set(*out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides);
    set(*out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pre);
    set(*out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, post);
    return cudnnBackendFinalize(*out);
}

static void test_attributes(void)
{
    const int64_t id = 1, dims[] = {1, 2, 3, 4};
    const float number = 1;
    descriptor tensor = created(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    REFUSED(cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, 1,
                                     &number));
    REFUSED(
        cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 2, dims));
    REFUSED(
        cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, NULL));
    REFUSED(cudnnBackendSetAttribute(NULL, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id));
    REFUSED(cudnnBackendFinalize(tensor)); /* no dimensions */
    set_tensor(tensor, 1, 2, 3, 4, 5);
    OK(cudnnBackendFinalize(tensor));
    REFUSED(
        cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id));
    REFUSED(cudnnBackendFinalize(tensor));
    OK(cudnnBackendDestroyDescriptor(tensor));
}

static void test_convolutions(void)
{
    descriptor convolution;
    OK(finalize_convolution(1, 0, 1, &convolution));
    OK(cudnnBackendDestroyDescriptor(convolution));
    REFUSED(finalize_convolution(0, 0, 0, &convolution));
    OK(cudnnBackendDestroyDescriptor(convolution));
    REFUSED(finalize_convolution(1, -1, 0, &convolution));
    OK(cudnnBackendDestroyDescriptor(convolution));
}

/* 4 samples of 3x9x9, 8 filters of 3x3, stride 2, a zero on each side, to 8 x rows x 5. */
static cudnnStatus_t finalize_forward(int64_t channels, int64_t filters, int64_t rows,
                                      int64_t samples)
{
    const float one = 1, zero = 0;
    descriptor x = tensor_of(1, 4, 3, 9, 9), filter = tensor_of(2, filters, channels, 3, 3);
    descriptor y = tensor_of(3, samples, 8, rows, 5), convolution;
    OK(finalize_convolution(2, 1, 1, &convolution));
    descriptor forward = created(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    set(forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x);
    set(forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &filter);
    set(forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y);
    set(forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        1, &convolution);
    set(forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    set(forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
    const cudnnStatus_t status = cudnnBackendFinalize(forward);
    const descriptor all[] = {forward, convolution, y, filter, x};
    for (int i = 0; i < 5; i++) {
        OK(cudnnBackendDestroyDescriptor(all[i]));
    }
    return status;
}

static void test_shapes(void)
{
    OK(finalize_forward(3, 8, 5, 4));
    REFUSED(finalize_forward(3, 8, 4, 4)); /* rows */
    REFUSED(finalize_forward(3, 8, 6, 4));
    REFUSED(finalize_forward(3, 8, 5, 5)); /* samples */
    REFUSED(finalize_forward(3, 7, 5, 4)); /* filters */
}

static void test_operands(void)
{
    descriptor forward = created(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    descriptor fresh = created(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set_tensor(fresh, 1, 4, 3, 9, 9);
    cudnnStatus_t status =
        cudnnBackendSetAttribute(forward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &fresh);
    if (status == CUDNN_STATUS_SUCCESS) { /* refused here at the latest: unfinalized, and the others
                                             are missing */
        status = cudnnBackendFinalize(forward);
    }
    REFUSED(status);
    OK(cudnnBackendDestroyDescriptor(forward));
    OK(cudnnBackendDestroyDescriptor(fresh));
}

/* conv_plan.c relies on this: a pack of pointers is created once. */
static void test_pack(void)
{
    const int64_t ids[] = {1, 2, 3};
    void *const pointers[] = {(void *)256, (void *)512, (void *)768}, *const none = NULL;
    descriptor pack = created(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids);
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers);
    set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &none);
    OK(cudnnBackendFinalize(pack));
    REFUSED(cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                     CUDNN_TYPE_VOID_PTR, 3, pointers));
    OK(cudnnBackendDestroyDescriptor(pack));
}

int main(void)
{
    test_attributes();
    test_convolutions();
    test_shapes();
    test_operands();
    test_pack();
    return 0;
}
