/* Fake cuBLAS multiplies as cuBLAS does, and refuses the same mistakes. */
#include <cublas_v2.h>

#include "tests/fakecuda/trace.h"

#define FINE(call) CHECK_INT(call, CUBLAS_STATUS_SUCCESS)

enum { M = 5, N = 4, K = 7, WORKSPACE_BYTES = 4096 };

static const cublasComputeType_t F32 = CUBLAS_COMPUTE_32F, TF32 = CUBLAS_COMPUTE_32F_FAST_TF32,
                                 F16 = CUBLAS_COMPUTE_16F;

/* A matrix as cuBLAS is told of it. */
struct matrix {
    const void *elements;
    int stride;
    cudaDataType type;
};

struct blas {
    stream on;
    floats a, b, c;
    void *workspace;
    cublasHandle_t handle;

    blas()
    {
        OK(cudaMalloc(&workspace, WORKSPACE_BYTES));
        FINE(cublasCreate(&handle));
        FINE(cublasSetStream(handle, on));
        FINE(cublasSetWorkspace(handle, workspace, WORKSPACE_BYTES));
    }
    void close() const
    {
        OK(cudaFree(workspace));
        FINE(cublasDestroy(handle));
    }
    void put(const void *host, void *device, size_t n) const
    {
        OK(cudaMemcpyAsync(device, host, n, cudaMemcpyHostToDevice, on));
    }
    template <typename T> T first(const void *device) const
    {
        T value;
        OK(cudaMemcpyAsync(&value, device, sizeof value, cudaMemcpyDeviceToHost, on));
        return value;
    }
    cublasStatus_t multiply(int m, int n, int k, matrix of, matrix by, matrix to,
                            cublasComputeType_t compute, int turn = CUBLAS_OP_N) const
    {
        const float alpha = 1, beta = 0;
        return cublasGemmEx(handle, (cublasOperation_t)turn, (cublasOperation_t)turn, m, n, k,
                            &alpha, of.elements, of.type, of.stride, by.elements, by.type,
                            by.stride, &beta, (void *)to.elements, to.type, to.stride, compute,
                            CUBLAS_GEMM_DEFAULT);
    }
    /* With these sizes and strides; both transposed or not. */
    cublasStatus_t shaped(int turn, int m, int n, int k, int of, int by, int to) const
    {
        return multiply(m, n, k, {a, of, CUDA_R_32F}, {b, by, CUDA_R_32F}, {c, to, CUDA_R_32F}, F32,
                        turn);
    }
    cublasStatus_t typed(cudaDataType in, cudaDataType out, cublasComputeType_t compute) const
    {
        return multiply(1, 1, 1, {a, 1, in}, {b, 1, in}, {c, 1, out}, compute);
    }
    /* Matrices of one number each. */
    float product(float x, float y, cublasComputeType_t compute) const
    {
        put(&x, a, sizeof x);
        put(&y, b, sizeof y);
        FINE(typed(CUDA_R_32F, CUDA_R_32F, compute));
        return first<float>(c);
    }
};

static void tf32(const blas &with)
{
    const float fine = 1.0f + 0x1p-10f + 0x1p-11f + 0x1p-20f, cut = 1.0f + 0x1p-10f;
    CHECK_NEAR(with.product(fine, 1, F32), fine, 0);
    CHECK_NEAR(with.product(fine, 1, TF32), cut, 0);
    CHECK_NEAR(with.product(1, fine, TF32), cut, 0);
    CHECK_NEAR(with.product(-fine, 1, TF32), -cut, 0);
    CHECK(isinf(with.product(INFINITY, 1, TF32)) && isnan(with.product(NAN, 1, TF32)));
    FINE(cublasSetMathMode(with.handle, CUBLAS_TF32_TENSOR_OP_MATH));
    CHECK_NEAR(with.product(fine, 1, F32), cut, 0);
    CHECK_NEAR(with.product(fine, 1, CUBLAS_COMPUTE_32F_PEDANTIC), fine, 0);
    FINE(cublasSetMathMode(with.handle, CUBLAS_DEFAULT_MATH));
}

static void bf16(const blas &with)
{
    const uint16_t a[] = {0x3f80, 0x3f81}, b[] = {0x3f80, 0x3b80}; /* 1, 1 + 2^-7; 1, 2^-8 */
    const matrix of = {with.a, 1, CUDA_R_16BF}, by = {with.b, 2, CUDA_R_16BF};
    with.put(a, with.a, sizeof a);
    with.put(b, with.b, sizeof b);
    FINE(with.multiply(1, 1, 2, of, by, {with.c, 1, CUDA_R_32F}, F32));
    CHECK_INT(with.first<uint32_t>(with.c), 0x3f808100); /* 1 + 2^-8 + 2^-15 */
    FINE(with.multiply(1, 1, 2, of, by, {with.c, 1, CUDA_R_16BF}, F32));
    CHECK_INT(with.first<uint16_t>(with.c), 0x3f81);
}

/* beta = 0 does not read C, and the workspace is overwritten. */
static void memory(const blas &with)
{
    OK(cudaMemsetAsync(with.workspace, 0, WORKSPACE_BYTES, with.on));
    OK(cudaMemsetAsync(with.c, 0xff, sizeof(float), with.on)); /* NaN */
    CHECK_NEAR(with.product(3, 5, F32), 15, 0);
    CHECK(isnan(with.first<float>(with.workspace)));
}

static void refusals(const blas &with)
{
    static const struct {
        int turn, m, of, by, to;
        bool fits;
    } shapes[] = {{CUBLAS_OP_N, M, M, K, M, true},
                  {CUBLAS_OP_N, M, M - 1, K, M, false},
                  {CUBLAS_OP_N, M, M, K - 1, M, false},
                  {CUBLAS_OP_N, M, M, K, M - 1, false},
                  {CUBLAS_OP_T, M, K, N, M, true},
                  {CUBLAS_OP_T, M, K - 1, N, M, false},
                  {CUBLAS_OP_T, M, K, N - 1, M, false},
                  {CUBLAS_OP_N, -1, M, K, M, false},
                  {7, M, M, K, M, false},
                  {CUBLAS_OP_N, 0, M, K, M, true}};
    for (const auto &each : shapes) {
        CHECK_INT(with.shaped(each.turn, each.m, N, K, each.of, each.by, each.to),
                  each.fits ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE);
    }
    CHECK_INT(with.typed(CUDA_R_32F, CUDA_R_16BF, F32), CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK_INT(with.typed(CUDA_R_16BF, CUDA_R_32F, TF32), CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK_INT(with.typed(CUDA_R_32F, CUDA_R_32F, F16), CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK_INT(cublasSetWorkspace(with.handle, (char *)with.workspace + 16, 16),
              CUBLAS_STATUS_INVALID_VALUE);
    CHECK_INT(cublasSetMathMode(with.handle, (cublasMath_t)7), CUBLAS_STATUS_INVALID_VALUE);
    CHECK_INT(cublasSetStream(NULL, with.on), CUBLAS_STATUS_NOT_INITIALIZED);
    CHECK_TEXT(cublasGetStatusString(CUBLAS_STATUS_NOT_INITIALIZED),
               "the library was not initialized");
    int major;
    FINE(cublasGetProperty(MAJOR_VERSION, &major));
    CHECK_INT(major, CUBLAS_VER_MAJOR);
}

static const float one = 1;
alignas(256) static char host[WORKSPACE_BYTES];

static const fake_case misuse[] = {
    {"cublasGemmEx, A: ",
     [] {
         const blas with;
         with.multiply(1, 1, 1, {&one, 1, CUDA_R_32F}, {with.b, 1, CUDA_R_32F},
                       {with.c, 1, CUDA_R_32F}, F32);
     }},
    {"cublasGemmEx, A: 404 bytes at byte 0 of device memory of 400 bytes",
     [] { blas().shaped(CUBLAS_OP_N, n_elems + 1, 1, 1, n_elems + 1, 1, n_elems + 1); }},
    {"cublasSetWorkspace: ", [] { cublasSetWorkspace(blas().handle, host, sizeof host); }},
    {"cublasGemmEx, workspace: 4096 bytes at byte 0 of freed memory",
     [] {
         const blas with;
         OK(cudaFree(with.workspace));
         with.shaped(CUBLAS_OP_N, M, N, K, M, K, M);
     }},
    {"cublasSetStream took the workspace away",
     [] {
         const blas with;
         FINE(cublasSetStream(with.handle, with.on));
         with.shaped(CUBLAS_OP_N, M, N, K, M, K, M);
     }},
    {"C overlaps A or B",
     [] {
         const blas with;
         with.multiply(M, N, K, {with.a, M, CUDA_R_32F}, {with.b, K, CUDA_R_32F},
                       {with.a + M, M, CUDA_R_32F}, F32);
     }},
    {"not closed at exit: cuBLAS handle (1)",
     [] {
         blas with;
         OK(cudaFree(with.workspace));
     }},
};

int main()
{
    all_end(misuse);
    const blas with;
    tf32(with);
    bf16(with);
    memory(with);
    refusals(with);
    with.close();
    return 0;
}
