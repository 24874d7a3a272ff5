#include "cuda/cudnn/descriptor.h"

static void note(struct dt_descriptors *d, cudnnStatus_t status, const char *call)
{
    if (d->status == CUDNN_STATUS_SUCCESS && status != CUDNN_STATUS_SUCCESS) {
        d->status = status;
        d->call = call;
    }
}

cudnnBackendDescriptor_t dt_descriptor_create(struct dt_descriptors *d,
                                              cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t descriptor = NULL;
    if (d->status == CUDNN_STATUS_SUCCESS) {
        note(d, cudnnBackendCreateDescriptor(type, &descriptor), "cudnnBackendCreateDescriptor");
    }
    return descriptor;
}

cudnnBackendDescriptor_t dt_descriptor_create_owned(struct dt_descriptors *d,
                                                    cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t descriptor = dt_descriptor_create(d, type);
    if (descriptor != NULL) {
        d->owned[d->n_owned++] = descriptor;
    }
    return descriptor;
}

void dt_descriptor_destroy(cudnnBackendDescriptor_t descriptor)
{
    if (descriptor != NULL) {
        cudnnBackendDestroyDescriptor(descriptor);
    }
}

void dt_descriptors_close(struct dt_descriptors *d)
{
    for (int i = d->n_owned - 1; i >= 0; i--) {
        dt_descriptor_destroy(d->owned[i]);
    }
    *d = (struct dt_descriptors){0};
}

void dt_descriptor_set(struct dt_descriptors *d, cudnnBackendDescriptor_t descriptor,
                       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       int64_t n, const void *values)
{
    if (d->status == CUDNN_STATUS_SUCCESS) {
        note(d, cudnnBackendSetAttribute(descriptor, name, type, n, values),
             "cudnnBackendSetAttribute");
    }
}

void dt_descriptor_set_type(struct dt_descriptors *d, cudnnBackendDescriptor_t descriptor,
                            cudnnBackendAttributeName_t name, cudnnDataType_t type)
{
    dt_descriptor_set(d, descriptor, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

void dt_descriptor_set_descriptor(struct dt_descriptors *d, cudnnBackendDescriptor_t descriptor,
                                  cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    dt_descriptor_set(d, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void dt_descriptor_finalize(struct dt_descriptors *d, cudnnBackendDescriptor_t descriptor)
{
    if (d->status == CUDNN_STATUS_SUCCESS) {
        note(d, cudnnBackendFinalize(descriptor), "cudnnBackendFinalize");
    }
}

void dt_descriptor_get(struct dt_descriptors *d, cudnnBackendDescriptor_t descriptor,
                       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       int64_t capacity, int64_t *n, void *values)
{
    if (d->status == CUDNN_STATUS_SUCCESS) {
        note(d, cudnnBackendGetAttribute(descriptor, name, type, capacity, n, values),
             "cudnnBackendGetAttribute");
    }
}
