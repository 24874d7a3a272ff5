/* One macro per library: a failing call returns from the caller; the message has the call's text,
 * its place and the library's own error string. Out of memory becomes DT_NO_MEMORY; a missing or
 * broken driver or device DT_UNAVAILABLE, with the GPU and a cure; everything else DT_INTERNAL. */
#ifndef DT_CUDA_CUDA_CHECK_H
#define DT_CUDA_CUDA_CHECK_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "base/status.h"

/* Sets the GPU's name for messages: a broken GPU can no longer be queried. */
void dt_cuda_check_names(const char *name, const char *uuid);

enum dt_status dt_cuda_failed(cudaError_t code, const char *call, const char *file, int line);
enum dt_status dt_cublas_failed(cublasStatus_t code, const char *call, const char *file, int line);
enum dt_status dt_cudnn_failed(cudnnStatus_t code, const char *call, const char *file, int line);

/* Waits for the event or, if it is NULL, for all work on the stream, and clears the "not ready"
 * error, which the check after the next launch would find. cudaErrorNotReady: limit_s has passed,
 * and no call that waits for the GPU is allowed any more. 0: no limit. */
cudaError_t dt_cuda_wait(cudaStream_t stream, cudaEvent_t event, double limit_s);

#define DT_CHECK_CALL(type, success, failed, call)                \
    do {                                                          \
        const type check_code = (call);                           \
        if (check_code != (success)) {                            \
            return failed(check_code, #call, __FILE__, __LINE__); \
        }                                                         \
    } while (0)

#define DT_CUDA(call) DT_CHECK_CALL(cudaError_t, cudaSuccess, dt_cuda_failed, call)
#define DT_CUBLAS(call) DT_CHECK_CALL(cublasStatus_t, CUBLAS_STATUS_SUCCESS, dt_cublas_failed, call)
#define DT_CUDNN(call) DT_CHECK_CALL(cudnnStatus_t, CUDNN_STATUS_SUCCESS, dt_cudnn_failed, call)

#endif
