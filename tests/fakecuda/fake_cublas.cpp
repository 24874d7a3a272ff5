/* Fake cuBLAS's matrix product: C = alpha op(A) op(B) + beta C, column-major, summed in double in
 * the order of k. */
#include <cublas_v2.h>
#include <stdint.h>

#include <cstring>
#include <set>
#include <vector>

#include "tests/fakecuda/fake.h"
#include "tests/fakecuda/fake_number.h"

struct cublasContext {
    cudaStream_t stream;
    void *workspace; /* the caller's, else NULL */
    size_t workspace_bytes;
    bool workspace_lost; /* by cublasSetStream */
};

namespace {

std::set<cublasHandle_t> handles;

struct matrix {
    const void *elements;
    cudaDataType type;
    bool turned;
    size_t n_rows, n_cols, stride; /* as stored in memory */

    size_t n_bytes() const
    {
        const size_t n_elems = n_rows == 0 || n_cols == 0 ? 0 : (n_cols - 1) * stride + n_rows;
        return n_elems * (type == CUDA_R_32F ? sizeof(float) : sizeof(uint16_t));
    }
    float at(size_t row, size_t col) const
    {
        const size_t i = turned ? row * stride + col : col * stride + row;
        return type == CUDA_R_32F ? ((const float *)elements)[i]
                                  : from_bf16(((const uint16_t *)elements)[i]);
    }
};

struct product {
    matrix a, b, c;
    size_t m, n, k;
    float alpha, beta;
    bool tf32;
    void *workspace;
    size_t workspace_bytes;

    void run() const
    {
        if (workspace != nullptr) {
            memset(workspace, 0xff, workspace_bytes); /* no caller may rely on its contents */
        }
        std::vector<float> a_rows(m * k);
        for (size_t l = 0; l < k; l++) {
            for (size_t i = 0; i < m; i++) {
                a_rows[l * m + i] = tf32 ? to_tf32(a.at(i, l)) : a.at(i, l);
            }
        }
        std::vector<double> sums(m);
        for (size_t j = 0; j < n; j++) {
            sums.assign(m, 0);
            for (size_t l = 0; l < k; l++) {
                const double factor = tf32 ? to_tf32(b.at(l, j)) : b.at(l, j);
                for (size_t i = 0; i < m; i++) {
                    sums[i] += a_rows[l * m + i] * factor;
                }
            }
            store_column(j, sums);
        }
    }

    void store_column(size_t j, const std::vector<double> &sums) const
    {
        for (size_t i = 0; i < m; i++) {
            float value = alpha * (float)sums[i];
            if (beta != 0) { /* else C is not read */
                value += beta * c.at(i, j);
            }
            if (c.type == CUDA_R_32F) {
                ((float *)c.elements)[j * c.stride + i] = value;
            } else {
                ((uint16_t *)c.elements)[j * c.stride + i] = to_bf16(value);
            }
        }
    }
};

bool overlap(const matrix &x, const matrix &y)
{
    const char *x_begin = (const char *)x.elements, *y_begin = (const char *)y.elements;
    return x_begin < y_begin + y.n_bytes() && y_begin < x_begin + x.n_bytes();
}

bool is_supported(cudaDataType a, cudaDataType b, cudaDataType c, cublasComputeType_t compute)
{
    const bool all_float = a == CUDA_R_32F && b == CUDA_R_32F && c == CUDA_R_32F;
    const bool from_bf16 =
        a == CUDA_R_16BF && b == CUDA_R_16BF && (c == CUDA_R_16BF || c == CUDA_R_32F);
    const bool in_float = compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_PEDANTIC;
    return (all_float && (in_float || compute == CUBLAS_COMPUTE_32F_FAST_TF32)) ||
           (from_bf16 && in_float);
}

cublasStatus_t enqueue(cublasHandle_t handle, product gemm)
{
    if (handle->workspace_lost) {
        fake_die("cublasGemmEx: cublasSetStream took the workspace away that cublasSetWorkspace "
                 "had given");
    }
    if (handle->workspace != nullptr) {
        fake_need_device(handle->workspace, handle->workspace_bytes, "cublasGemmEx, workspace");
        gemm.workspace = handle->workspace;
        gemm.workspace_bytes = handle->workspace_bytes < 4096 ? handle->workspace_bytes : 4096;
    }
    fake_need_device(gemm.a.elements, gemm.a.n_bytes(), "cublasGemmEx, A");
    fake_need_device(gemm.b.elements, gemm.b.n_bytes(), "cublasGemmEx, B");
    fake_need_device(gemm.c.elements, gemm.c.n_bytes(), "cublasGemmEx, C");
    if (overlap(gemm.c, gemm.a) || overlap(gemm.c, gemm.b)) {
        fake_die("cublasGemmEx: C overlaps A or B");
    }
    fake_moves(gemm.a.n_bytes() + gemm.b.n_bytes() + gemm.c.n_bytes());
    const cudaError_t code = fake_enqueue(handle->stream, "cublasGemmEx", [gemm] { gemm.run(); });
    return code == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

} // namespace

#define NEED_HANDLE(handle)                   \
    if (handles.count(handle) == 0) {         \
        return CUBLAS_STATUS_NOT_INITIALIZED; \
    }

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    int device;
    if (cudaGetDevice(&device) != cudaSuccess) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    *handle = new cublasContext{};
    handles.insert(*handle);
    fake_opened("cuBLAS handle");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    NEED_HANDLE(handle);
    handles.erase(handle);
    delete handle;
    fake_closed("cuBLAS handle");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    NEED_HANDLE(handle);
    handle->stream = stream;
    handle->workspace_lost = handle->workspace != nullptr;
    handle->workspace = nullptr;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t n_bytes)
{
    NEED_HANDLE(handle);
    if ((uintptr_t)workspace % 256 != 0) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    fake_need_device(workspace, n_bytes, "cublasSetWorkspace");
    handle->workspace = workspace;
    handle->workspace_bytes = n_bytes;
    handle->workspace_lost = false;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    NEED_HANDLE(handle);
    return mode == CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION ? CUBLAS_STATUS_SUCCESS
                                                                    : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t turn_a,
                            cublasOperation_t turn_b, int m, int n, int k, const void *alpha,
                            const void *a, cudaDataType a_type, int a_stride, const void *b,
                            cudaDataType b_type, int b_stride, const void *beta, void *c,
                            cudaDataType c_type, int c_stride, cublasComputeType_t compute,
                            cublasGemmAlgo_t)
{
    NEED_HANDLE(handle);
    const bool a_turned = turn_a != CUBLAS_OP_N, b_turned = turn_b != CUBLAS_OP_N;
    const int a_rows = a_turned ? k : m, b_rows = b_turned ? n : k;
    if (a_stride < a_rows || b_stride < b_rows || c_stride < m) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!is_supported(a_type, b_type, c_type, compute)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (m == 0 || n == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    product gemm = {};
    gemm.a = {a, a_type, a_turned, (size_t)a_rows, (size_t)(a_turned ? m : k), (size_t)a_stride};
    gemm.b = {b, b_type, b_turned, (size_t)b_rows, (size_t)(b_turned ? k : n), (size_t)b_stride};
    gemm.c = {c, c_type, false, (size_t)m, (size_t)n, (size_t)c_stride};
    gemm.m = (size_t)m;
    gemm.n = (size_t)n;
    gemm.k = (size_t)k;
    gemm.alpha = *(const float *)alpha;
    gemm.beta = *(const float *)beta;
    gemm.tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    return enqueue(handle, gemm);
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value)
{
    const int version[] = {CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH};
    *value = version[type];
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "the function failed";
}
