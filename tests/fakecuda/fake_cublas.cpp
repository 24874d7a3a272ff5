/* Fake cuBLAS's matrix product: C = alpha op(A) op(B) + beta C, column-major, summed in double in
 * the order of k. */
#include <cublas_v2.h>

#include "tests/fakecuda/fake_runtime.h"

struct cublasContext {
    cudaStream_t stream;
    void *workspace; /* the caller's, else NULL */
    size_t workspace_bytes;
    bool workspace_lost; /* by cublasSetStream */
};

namespace {

fake::living<cublasContext> handles = {"cuBLAS handle", {}};

struct matrix {
    void *elements;
    cudaDataType type;
    bool turned;
    size_t n_rows, n_cols, stride; /* as stored in memory */

    size_t n_bytes() const
    {
        const size_t n_elems = n_rows == 0 || n_cols == 0 ? 0 : (n_cols - 1) * stride + n_rows;
        return n_elems * (type == CUDA_R_32F ? sizeof(float) : sizeof(uint16_t));
    }
    float at(size_t row, size_t col, bool tf32) const
    {
        const size_t i = turned ? row * stride + col : col * stride + row;
        return fake::load(elements, i, type == CUDA_R_32F, tf32);
    }
    bool overlaps(const matrix &other) const
    {
        return fake::overlap(elements, n_bytes(), other.elements, other.n_bytes());
    }
};

/* Of an operand op(X) of n_rows x n_cols. */
matrix stored(const void *elements, cudaDataType type, cublasOperation_t op, int n_rows, int n_cols,
              int stride)
{
    const bool turned = op != CUBLAS_OP_N;
    return {(void *)elements,
            type,
            turned,
            (size_t)(turned ? n_cols : n_rows),
            (size_t)(turned ? n_rows : n_cols),
            (size_t)stride};
}

struct product {
    matrix a, b, c;
    size_t m, n, k;
    float alpha, beta;
    bool tf32;

    void run() const
    {
        std::vector<float> a_rows(m * k);
        for (size_t l = 0; l < k; l++) {
            for (size_t i = 0; i < m; i++) {
                a_rows[l * m + i] = a.at(i, l, tf32);
            }
        }
        std::vector<double> sums(m);
        for (size_t j = 0; j < n; j++) {
            sums.assign(m, 0);
            for (size_t l = 0; l < k; l++) {
                const double factor = b.at(l, j, tf32);
                for (size_t i = 0; i < m; i++) {
                    sums[i] += a_rows[l * m + i] * factor;
                }
            }
            for (size_t i = 0; i < m; i++) {
                float value = alpha * (float)sums[i];
                if (beta != 0) { /* else C is not read */
                    value += beta * c.at(i, j, false);
                }
                fake::store(c.elements, j * c.stride + i, c.type == CUDA_R_32F, value);
            }
        }
    }
};

bool is_supported(cudaDataType a, cudaDataType b, cudaDataType c, cublasComputeType_t compute)
{
    const bool all_float = a == CUDA_R_32F && b == CUDA_R_32F && c == CUDA_R_32F;
    const bool from_bf16 =
        a == CUDA_R_16BF && b == CUDA_R_16BF && (c == CUDA_R_16BF || c == CUDA_R_32F);
    const bool in_float = compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_PEDANTIC;
    return (all_float && (in_float || compute == CUBLAS_COMPUTE_32F_FAST_TF32)) ||
           (from_bf16 && in_float);
}

cublasStatus_t enqueue(cublasHandle_t handle, const product &gemm)
{
    FAKE_CHECK(!handle->workspace_lost,
               "cublasGemmEx: cublasSetStream took the workspace away that "
               "cublasSetWorkspace had given");
    if (handle->workspace != nullptr) {
        fake::need_device(handle->workspace, handle->workspace_bytes, "cublasGemmEx, workspace");
    }
    fake::need_device(gemm.a.elements, gemm.a.n_bytes(), "cublasGemmEx, A");
    fake::need_device(gemm.b.elements, gemm.b.n_bytes(), "cublasGemmEx, B");
    fake::need_device(gemm.c.elements, gemm.c.n_bytes(), "cublasGemmEx, C");
    FAKE_CHECK(!gemm.c.overlaps(gemm.a) && !gemm.c.overlaps(gemm.b),
               "cublasGemmEx: C overlaps A or B");
    fake::moves(gemm.a.n_bytes() + gemm.b.n_bytes() + gemm.c.n_bytes());
    const auto run = [gemm, workspace = handle->workspace, n_bytes = handle->workspace_bytes] {
        if (workspace != nullptr) {
            fake::spoil(workspace, n_bytes);
        }
        gemm.run();
    };
    const cudaError_t code = fake::enqueue(handle->stream, "cublasGemmEx", run);
    return code == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

} // namespace

cublasStatus_t cublasCreate(cublasHandle_t *handle)
{
    *handle = handles.add(new cublasContext{});
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle)
{
    handles.remove(handle, __func__);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream)
{
    handles.need(handle, __func__)->stream = stream;
    handle->workspace_lost = handle->workspace != nullptr;
    handle->workspace = nullptr;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void *workspace, size_t n_bytes)
{
    FAKE_CHECK((uintptr_t)workspace % 256 == 0, "%s: %p is not aligned", __func__, workspace);
    fake::need_device(workspace, n_bytes, "cublasSetWorkspace");
    *handles.need(handle, __func__) = {handle->stream, workspace, n_bytes, false};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    handles.need(handle, __func__);
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
    handles.need(handle, __func__);
    const matrix stored_a = stored(a, a_type, turn_a, m, k, a_stride),
                 stored_b = stored(b, b_type, turn_b, k, n, b_stride),
                 stored_c = stored(c, c_type, CUBLAS_OP_N, m, n, c_stride);
    for (const matrix &each : {stored_a, stored_b, stored_c}) {
        FAKE_CHECK(each.stride >= each.n_rows, "cublasGemmEx: columns of %zu rows, %zu apart",
                   each.n_rows, each.stride);
    }
    if (!is_supported(a_type, b_type, c_type, compute)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (m == 0 || n == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    return enqueue(handle, {stored_a, stored_b, stored_c, (size_t)m, (size_t)n, (size_t)k,
                            *(const float *)alpha, *(const float *)beta,
                            compute == CUBLAS_COMPUTE_32F_FAST_TF32});
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
