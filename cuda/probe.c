#include "cuda/cuda_backend.h"

#include <nccl.h>
#include <stdio.h>

#include "cuda/cuda_check.h"
#include "cuda/range.h"

/* For bf16 and tf32, and the least that kernels are compiled for. */
#define CAPABILITY_MIN_MAJOR 8
#define MAJOR_MINOR(version) (version) / 1000, (version) % 1000 / 10

/* Explains why no GPU can be counted. */
static enum dt_status no_gpu(cudaError_t code)
{
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver); /* 0 without a driver */
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) {
        return dt_error(DT_UNAVAILABLE,
                        "there is no NVIDIA driver (install one, or use \"device\": \"cpu\")");
    }
    if (code == cudaErrorInsufficientDriver) {
        return dt_error(DT_UNAVAILABLE,
                        "the NVIDIA driver serves CUDA %d.%d, but dtrain is built with CUDA %d.%d "
                        "(install a newer driver, build "
                        "with an older toolkit, or use \"device\": \"cpu\")",
                        MAJOR_MINOR(driver), MAJOR_MINOR(runtime));
    }
    if (code == cudaErrorNoDevice || code == cudaSuccess) {
        return dt_error(DT_UNAVAILABLE, "there is no NVIDIA GPU that this process may use (see "
                                        "nvidia-smi and CUDA_VISIBLE_DEVICES, or use "
                                        "\"device\": \"cpu\")");
    }
    return dt_cuda_failed(code, "cudaGetDeviceCount", __FILE__, __LINE__);
}

/* In nvidia-smi's form. */
static void write_uuid(const cudaUUID_t *uuid, char *text, size_t n_text)
{
    int length = snprintf(text, n_text, "GPU");
    for (size_t i = 0; i < sizeof uuid->bytes; i++) {
        const bool group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
        length += snprintf(text + length, n_text - (size_t)length, group ? "-%02x" : "%02x",
                           (unsigned char)uuid->bytes[i]);
    }
}

static enum dt_status describe(int index, struct dt_device_info *out)
{
    struct cudaDeviceProp properties;
    DT_CUDA(cudaGetDeviceProperties(&properties, index));
    *out = (struct dt_device_info){.index = index};
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, properties.name);
    write_uuid(&properties.uuid, out->uuid, sizeof out->uuid);
    dt_cuda_check_names(out->name, out->uuid);
    if (properties.major < CAPABILITY_MIN_MAJOR) {
        return dt_error(DT_UNAVAILABLE,
                        "GPU %d, %s, has compute capability %d.%d (use one with %d.0 or newer, "
                        "Ampere, or \"device\": \"cpu\")",
                        index, out->name, properties.major, properties.minor, CAPABILITY_MIN_MAJOR);
    }
    return DT_OK;
}

enum dt_status dt_cuda_probe(int local_rank, struct dt_device_info *out, int *n_gpus)
{
    *n_gpus = 0; /* stays unwritten without a driver */
    const cudaError_t code = cudaGetDeviceCount(n_gpus);
    if (code != cudaSuccess || *n_gpus == 0) {
        *n_gpus = 0;
        return no_gpu(code);
    }
    if (*n_gpus > 1 && local_rank >= *n_gpus) {
        return dt_error(DT_UNAVAILABLE,
                        "local rank %d has no GPU of its own: this host shows %d (start at most %d "
                        "ranks per host)",
                        local_rank, *n_gpus, *n_gpus);
    }
    const int index = *n_gpus > 1 ? local_rank : 0;
    DT_TRY(describe(index, out));
    DT_CUDA(cudaSetDevice(index));
    DT_CUDA(cudaMemGetInfo(&out->free_bytes, &out->total_bytes));
    return DT_OK;
}

const char *dt_cuda_versions(void)
{
    static char text[128];
    int runtime = 0, driver = 0, nccl = 0, cublas[3] = {0};
    cudaRuntimeGetVersion(&runtime);
    cudaDriverGetVersion(&driver);
    cublasGetProperty(MAJOR_VERSION, &cublas[0]);
    cublasGetProperty(MINOR_VERSION, &cublas[1]);
    cublasGetProperty(PATCH_LEVEL, &cublas[2]);
    ncclGetVersion(&nccl);
    const int cudnn = (int)cudnnGetVersion();
    snprintf(
        text, sizeof text,
        "CUDA %d.%d, driver %d.%d, cuDNN %d.%d.%d, cuBLAS %d.%d.%d, NCCL %d.%d.%d" DT_NVTX_TEXT,
        MAJOR_MINOR(runtime), MAJOR_MINOR(driver), cudnn / 10000, cudnn / 100 % 100, cudnn % 100,
        cublas[0], cublas[1], cublas[2], nccl / 10000, nccl / 100 % 100, nccl % 100);
    return text;
}
