/* Descriptors of cuDNN 9's "backend" C API. After a failure all further calls do nothing, so the
 * caller checks the status once, at the end. */
#ifndef DT_CUDA_CUDNN_DESCRIPTOR_H
#define DT_CUDA_CUDNN_DESCRIPTOR_H

#include <cudnn.h>

#include "base/status.h"

#if CUDNN_VERSION < 90800 /* cuDNN 9.8 added described devices; an older library refuses them */
#define CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR ((cudnnBackendDescriptorType_t)38)
#define CUDNN_ATTR_ENGINEHEUR_DEVICEPROP ((cudnnBackendAttributeName_t)204)
#define CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP ((cudnnBackendAttributeName_t)407)
#define CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION ((cudnnBackendAttributeName_t)2702)
#endif

#define DT_MAX_DESCRIPTORS 32

/* Zero it before use. */
struct dt_descriptors {
    cudnnBackendDescriptor_t owned[DT_MAX_DESCRIPTORS]; /* made by dt_descriptor_create_owned */
    int n_owned;
    cudnnStatus_t status; /* of the first failure */
    const char *call;     /* the call that failed */
};

/* NULL after a failure. The caller destroys the first; dt_descriptors_close destroys those of the
 * second, the last one first. */
cudnnBackendDescriptor_t dt_descriptor_create(struct dt_descriptors *d,
                                              cudnnBackendDescriptorType_t type);
cudnnBackendDescriptor_t dt_descriptor_create_owned(struct dt_descriptors *d,
                                                    cudnnBackendDescriptorType_t type);
void dt_descriptor_destroy(cudnnBackendDescriptor_t descriptor); /* NULL is fine */
void dt_descriptors_close(struct dt_descriptors *d);

void dt_descriptor_set(struct dt_descriptors *d, cudnnBackendDescriptor_t descriptor,
                       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       int64_t n, const void *values);
void dt_descriptor_set_type(struct dt_descriptors *d, cudnnBackendDescriptor_t descriptor,
                            cudnnBackendAttributeName_t name, cudnnDataType_t type);
void dt_descriptor_set_descriptor(struct dt_descriptors *d, cudnnBackendDescriptor_t descriptor,
                                  cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value);
void dt_descriptor_finalize(struct dt_descriptors *d, cudnnBackendDescriptor_t descriptor);
void dt_descriptor_get(struct dt_descriptors *d, cudnnBackendDescriptor_t descriptor,
                       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       int64_t capacity, int64_t *n, void *values);

#endif
