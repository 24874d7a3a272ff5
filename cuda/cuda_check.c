#include "cuda/cuda_check.h"

#include <sched.h>
#include <string.h>

#include "base/clock.h"

#define LOOKS_PER_YIELD 64

/* Paths are the build machine's: the file's name says enough. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static enum dt_status failed(enum dt_status status, const char *library, const char *words, const char *call, const char *file,
                             int line)
{
    if (status == DT_NO_MEMORY) {
        return dt_error(status, "%s: out of memory: %s, %s:%d: %s", library, words, base_name(file), line, call);
    }
    return dt_error(status, "%s: %s, %s:%d: %s", library, words, base_name(file), line, call);
}

static enum dt_status cuda_status(cudaError_t code)
{
    switch (code) {
    case cudaErrorMemoryAllocation:
        return DT_NO_MEMORY;
    case cudaErrorInitializationError:
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoDevice:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
        return DT_UNAVAILABLE;
    default:
        return DT_INTERNAL;
    }
}

static enum dt_status cublas_status(cublasStatus_t code)
{
    switch (code) {
    case CUBLAS_STATUS_ALLOC_FAILED:
        return DT_NO_MEMORY;
    case CUBLAS_STATUS_NOT_INITIALIZED:
    case CUBLAS_STATUS_ARCH_MISMATCH:
        return DT_UNAVAILABLE;
    default:
        return DT_INTERNAL;
    }
}

static enum dt_status cudnn_status(cudnnStatus_t code)
{
    switch (code) {
    case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
    case CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED:
        return DT_NO_MEMORY;
    case CUDNN_STATUS_NOT_INITIALIZED:
    case CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH:
#if CUDNN_VERSION >= 90200
    case CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED:
#endif
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER:
    case CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART:
    case CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH:
        return DT_UNAVAILABLE;
    default:
        return DT_INTERNAL;
    }
}

enum dt_status dt_cuda_failed(cudaError_t code, const char *call, const char *file, int line)
{
    cudaGetLastError(); /* so that the next call does not report it again */
    return failed(cuda_status(code), "CUDA", cudaGetErrorString(code), call, file, line);
}

enum dt_status dt_cublas_failed(cublasStatus_t code, const char *call, const char *file, int line)
{
    return failed(cublas_status(code), "cuBLAS", cublasGetStatusString(code), call, file, line);
}

enum dt_status dt_cudnn_failed(cudnnStatus_t code, const char *call, const char *file, int line)
{
    char words[256] = "";
    cudnnGetLastErrorString(words, sizeof words);
    return failed(cudnn_status(code), "cuDNN", words[0] != '\0' ? words : cudnnGetErrorString(code), call, file, line);
}

enum dt_status dt_nccl_failed(ncclResult_t code, const char *call, const char *file, int line)
{
    const char *last = ncclGetLastError(NULL);
    return failed(DT_INTERNAL, "NCCL", last != NULL && last[0] != '\0' ? last : ncclGetErrorString(code), call, file, line);
}

cudaError_t dt_cuda_wait(cudaStream_t stream, cudaEvent_t event, double limit_s)
{
    if (limit_s <= 0) {
        return event != NULL ? cudaEventSynchronize(event) : cudaStreamSynchronize(stream);
    }
    struct dt_patience patience = dt_patience_begin();
    cudaError_t code;
    for (unsigned n = 1; (code = event != NULL ? cudaEventQuery(event) : cudaStreamQuery(stream)) == cudaErrorNotReady; n++) {
        cudaGetLastError();
        if (n % LOOKS_PER_YIELD == 0) {
            if (dt_patience_look(&patience) > limit_s) {
                break;
            }
            sched_yield();
        }
    }
    return code;
}
