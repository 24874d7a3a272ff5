#include "cuda/cuda_check.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define LOOKS_PER_YIELD 64

/* cure: "" or " (..." */
static enum dt_status failed(enum dt_status status, const char *library, const char *words,
                             const char *call, const char *file, int line, const char *cure)
{
    const char *slash = strrchr(file, '/'); /* __FILE__ has the build machine's path */
    return dt_error(status, "%s: %s%s, %s:%d: %s%s", library,
                    status == DT_NO_MEMORY ? "out of memory: " : "", words,
                    slash != NULL ? slash + 1 : file, line, call, cure);
}

#define LOOK_FOR_XID \
    "dmesg has an Xid of it, which NVIDIA's catalogue explains; another GPU will do"
#define ASK_MPS "see the logs of nvidia-cuda-mps-control, or stop it"

/* Failures outside the program. cure: NULL if the text is enough. */
static const struct fault {
    cudaError_t code;
    enum dt_status status;
    const char *cure;
} faults[] = {
    {cudaErrorMemoryAllocation, DT_NO_MEMORY, NULL},
    {cudaErrorInitializationError, DT_UNAVAILABLE, NULL},
    {cudaErrorInsufficientDriver, DT_UNAVAILABLE, NULL},
    {cudaErrorCallRequiresNewerDriver, DT_UNAVAILABLE, NULL},
    {cudaErrorNoDevice, DT_UNAVAILABLE, NULL},
    {cudaErrorNoKernelImageForDevice, DT_UNAVAILABLE, NULL},
    {cudaErrorCompatNotSupportedOnDevice, DT_UNAVAILABLE, NULL},
    {cudaErrorDevicesUnavailable, DT_UNAVAILABLE,
     "another process may have it for itself: nvidia-smi -q -d COMPUTE,PIDS"},
    {cudaErrorECCUncorrectable, DT_UNAVAILABLE,
     "its memory is damaged: nvidia-smi -q -d ECC,ROW_REMAPPER; reset it, or use another"},
    {cudaErrorNvlinkUncorrectable, DT_UNAVAILABLE,
     "a link between GPUs is damaged: nvidia-smi nvlink -e; dmesg has Xid 74"},
    {cudaErrorUnsupportedPtxVersion, DT_UNAVAILABLE,
     "the driver is older than the toolkit: install a newer one, or build for this GPU"},
    {cudaErrorContained, DT_UNAVAILABLE, LOOK_FOR_XID},
    {cudaErrorLaunchTimeout, DT_UNAVAILABLE,
     "a display is attached to it, whose driver ends long kernels: use another GPU"},
    {cudaErrorHardwareStackError, DT_UNAVAILABLE, LOOK_FOR_XID},
    {cudaErrorExternalDevice, DT_UNAVAILABLE, LOOK_FOR_XID},
    {cudaErrorSystemNotReady, DT_UNAVAILABLE,
     "where GPUs share an NVSwitch: systemctl status nvidia-fabricmanager"},
    {cudaErrorSystemDriverMismatch, DT_UNAVAILABLE,
     "the driver was changed under a running system: restart it"},
    {cudaErrorMpsConnectionFailed, DT_UNAVAILABLE, ASK_MPS},
    {cudaErrorMpsRpcFailure, DT_UNAVAILABLE, ASK_MPS},
    {cudaErrorMpsServerNotReady, DT_UNAVAILABLE, ASK_MPS},
    {cudaErrorMpsMaxClientsReached, DT_UNAVAILABLE, ASK_MPS},
    {cudaErrorMpsMaxConnectionsReached, DT_UNAVAILABLE, ASK_MPS},
    {cudaErrorMpsClientTerminated, DT_UNAVAILABLE, ASK_MPS},
    {cudaErrorLaunchFailure, DT_INTERNAL, "a bug; or a broken GPU, if dmesg has an Xid of it"},
    {cudaErrorIllegalAddress, DT_INTERNAL, "a bug; or a broken GPU, if dmesg has an Xid of it"},
};

static char gpu[128]; /* " (NVIDIA H200, GPU-..." */

void dt_cuda_check_names(const char *name, const char *uuid)
{
    snprintf(gpu, sizeof gpu, " (%s, %s", name, uuid);
}

static const struct fault *fault_of(cudaError_t code)
{
    static const struct fault ours = {.status = DT_INTERNAL};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        if (faults[i].code == code) {
            return &faults[i];
        }
    }
    return &ours;
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
    const struct fault *fault = fault_of(code);
    char cure[256] = "";
    cudaGetLastError(); /* so that the next call does not report it again */
    if (fault->cure != NULL) {
        snprintf(cure, sizeof cure, "%s%s%s)", gpu, gpu[0] != '\0' ? ": " : " (", fault->cure);
    }
    return failed(fault->status, "CUDA", cudaGetErrorString(code), call, file, line, cure);
}

enum dt_status dt_cublas_failed(cublasStatus_t code, const char *call, const char *file, int line)
{
    return failed(cublas_status(code), "cuBLAS", cublasGetStatusString(code), call, file, line, "");
}

enum dt_status dt_cudnn_failed(cudnnStatus_t code, const char *call, const char *file, int line)
{
    char words[256] = "";
    cudnnGetLastErrorString(words, sizeof words);
    return failed(cudnn_status(code), "cuDNN", words[0] != '\0' ? words : cudnnGetErrorString(code),
                  call, file, line, "");
}

cudaError_t dt_cuda_wait(cudaStream_t stream, cudaEvent_t event, double limit_s)
{
    if (limit_s <= 0) {
        return event != NULL ? cudaEventSynchronize(event) : cudaStreamSynchronize(stream);
    }
    struct dt_patience patience = dt_patience_begin();
    cudaError_t code;
    for (unsigned n = 1; (code = event != NULL ? cudaEventQuery(event) : cudaStreamQuery(stream)) ==
                         cudaErrorNotReady;
         n++) {
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
