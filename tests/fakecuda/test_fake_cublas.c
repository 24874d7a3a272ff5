/* Fake cuBLAS multiplies as cuBLAS does, and refuses the same mistakes. */
#include <cublas_v2.h>
#include <stdbool.h>

#include "base/rng.h"
#include "tests/cuda/case.h"
#include "tests/fakecuda/fake.h"

#define OK(call) CHECK_INT(call, CUBLAS_STATUS_SUCCESS)
#define CUDA_OK(call) CHECK_INT(call, cudaSuccess)

enum { M = 5, N = 4, K = 7, STRIDE = 9, MAX_ELEMS = STRIDE * STRIDE, WORKSPACE_BYTES = 4096 };

static cudaStream_t stream;
static cublasHandle_t handle;
static float *device_a, *device_b, *device_c;
static void *workspace;
static const float one = 1, zero = 0;

static void *device_memory(size_t n_bytes)
{
    void *memory;
    CUDA_OK(cudaMalloc(&memory, n_bytes));
    return memory;
}

static void open_all(void)
{
    CUDA_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cublasCreate(&handle));
    OK(cublasSetStream(handle, stream));
    workspace = device_memory(WORKSPACE_BYTES);
    OK(cublasSetWorkspace(handle, workspace, WORKSPACE_BYTES));
    device_a = device_memory(MAX_ELEMS * sizeof(float));
    device_b = device_memory(MAX_ELEMS * sizeof(float));
    device_c = device_memory(MAX_ELEMS * sizeof(float));
}

static void close_all(void)
{
    CUDA_OK(cudaFree(device_a));
    CUDA_OK(cudaFree(device_b));
    CUDA_OK(cudaFree(device_c));
    CUDA_OK(cudaFree(workspace));
    OK(cublasDestroy(handle));
    CUDA_OK(cudaStreamDestroy(stream));
}

static void put(void *device, const void *host, size_t n_bytes)
{
    CUDA_OK(cudaMemcpyAsync(device, host, n_bytes, cudaMemcpyHostToDevice, stream));
}

static void get(void *host, const void *device, size_t n_bytes)
{
    CUDA_OK(cudaMemcpyAsync(host, device, n_bytes, cudaMemcpyDeviceToHost, stream));
}

static void fill(float *x, uint32_t which)
{
    for (uint32_t i = 0; i < MAX_ELEMS; i++) {
        x[i] = dt_rng_uniform(dt_rng_words(1, DT_RNG_SYNTHETIC, which, 0, i, 0).v[0]) - 0.5f;
    }
}

/* Element (row, col) of a column-major matrix with stride STRIDE. */
static float element(const float *x, bool turned, int row, int col)
{
    return turned ? x[row * STRIDE + col] : x[col * STRIDE + row];
}

static void test_float(bool turn_a, bool turn_b)
{
    float a[MAX_ELEMS], b[MAX_ELEMS], before[MAX_ELEMS], c[MAX_ELEMS];
    fill(a, 0);
    fill(b, 1);
    fill(before, 2);
    put(device_a, a, sizeof a);
    put(device_b, b, sizeof b);
    put(device_c, before, sizeof before);
    const float alpha = 2, beta = 0.5f;
    OK(cublasGemmEx(handle, turn_a ? CUBLAS_OP_T : CUBLAS_OP_N, turn_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                    M, N, K, &alpha, device_a, CUDA_R_32F, STRIDE, device_b, CUDA_R_32F, STRIDE,
                    &beta, device_c, CUDA_R_32F, STRIDE, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    get(c, device_c, sizeof c);
    for (int col = 0; col < STRIDE; col++) {
        for (int row = 0; row < STRIDE; row++) {
            double expected = before[col * STRIDE + row];
            if (row < M && col < N) {
                expected *= beta;
                for (int l = 0; l < K; l++) {
                    expected +=
                        alpha * (double)element(a, turn_a, row, l) * element(b, turn_b, l, col);
                }
            }
            CHECK_NEAR(c[col * STRIDE + row], expected, 1e-6);
        }
    }
}

/* c = a * b, one number each. */
static float product(float a, float b, cublasComputeType_t compute)
{
    put(device_a, &a, sizeof a);
    put(device_b, &b, sizeof b);
    OK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, device_a, CUDA_R_32F, 1,
                    device_b, CUDA_R_32F, 1, &zero, device_c, CUDA_R_32F, 1, compute,
                    CUBLAS_GEMM_DEFAULT));
    float c;
    get(&c, device_c, sizeof c);
    return c;
}

static void test_tf32(void)
{
    const float fine = 1.0f + 0x1p-10f + 0x1p-11f + 0x1p-20f, cut = 1.0f + 0x1p-10f;
    CHECK_NEAR(product(fine, 1, CUBLAS_COMPUTE_32F), fine, 0);
    CHECK_NEAR(product(fine, 1, CUBLAS_COMPUTE_32F_FAST_TF32), cut, 0);
    CHECK_NEAR(product(1, fine, CUBLAS_COMPUTE_32F_FAST_TF32), cut, 0);
    CHECK_NEAR(product(-fine, 1, CUBLAS_COMPUTE_32F_FAST_TF32), -cut, 0);
    CHECK(isinf(product(INFINITY, 1, CUBLAS_COMPUTE_32F_FAST_TF32)));
    CHECK(isnan(product(NAN, 1, CUBLAS_COMPUTE_32F_FAST_TF32)));
    OK(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH));
    CHECK_NEAR(product(fine, 1, CUBLAS_COMPUTE_32F), cut, 0);
    CHECK_NEAR(product(fine, 1, CUBLAS_COMPUTE_32F_PEDANTIC), fine, 0);
    OK(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH));
}

static void test_bf16(void)
{
    const uint16_t a[] = {0x3f80, 0x3f81}, b[] = {0x3f80, 0x3b80}; /* 1, 1 + 2^-7; 1, 2^-8 */
    put(device_a, a, sizeof a);
    put(device_b, b, sizeof b);
    for (int half = 0; half < 2; half++) {
        OK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 2, &one, device_a, CUDA_R_16BF, 1,
                        device_b, CUDA_R_16BF, 2, &zero, device_c, half ? CUDA_R_16BF : CUDA_R_32F,
                        1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
        uint32_t c = 0;
        get(&c, device_c, half ? sizeof(uint16_t) : sizeof(float));
        CHECK_INT(c, half ? 0x3f81 : 0x3f808100); /* 1 + 2^-8 + 2^-15 */
    }
}

static void test_beta_zero_does_not_read(void)
{
    CUDA_OK(cudaMemsetAsync(device_c, 0xff, sizeof(float), stream));
    CHECK_NEAR(product(3, 5, CUBLAS_COMPUTE_32F), 15, 0);
}

static void test_workspace_is_used(void)
{
    float first = 0;
    put(workspace, &first, sizeof first);
    product(3, 5, CUBLAS_COMPUTE_32F);
    get(&first, workspace, sizeof first);
    CHECK(isnan(first));
}

static void test_no_inner_dimension(void)
{
    const float beta = 3, c = 2;
    put(device_c, &c, sizeof c);
    OK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 0, &one, device_a, CUDA_R_32F, 1,
                    device_b, CUDA_R_32F, 1, &beta, device_c, CUDA_R_32F, 1, CUBLAS_COMPUTE_32F,
                    CUBLAS_GEMM_DEFAULT));
    float result;
    get(&result, device_c, sizeof result);
    CHECK_NEAR(result, 6, 0);
}

/* m x n x k from matrices in device_a and device_b, transposed or not, with these strides. */
static cublasStatus_t shaped(cublasOperation_t turn, int m, int n, int k, int a_stride,
                             int b_stride, int c_stride)
{
    return cublasGemmEx(handle, turn, turn, m, n, k, &one, device_a, CUDA_R_32F, a_stride, device_b,
                        CUDA_R_32F, b_stride, &zero, device_c, CUDA_R_32F, c_stride,
                        CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

static cublasStatus_t typed(cudaDataType in, cudaDataType out, cublasComputeType_t compute)
{
    return cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, device_a, in, 1, device_b,
                        in, 1, &zero, device_c, out, 1, compute, CUBLAS_GEMM_DEFAULT);
}

static void test_refusals(void)
{
    OK(shaped(CUBLAS_OP_N, M, N, K, M, K, M));
    CHECK_INT(shaped(CUBLAS_OP_N, M, N, K, M - 1, K, M), CUBLAS_STATUS_INVALID_VALUE);
    CHECK_INT(shaped(CUBLAS_OP_N, M, N, K, M, K - 1, M), CUBLAS_STATUS_INVALID_VALUE);
    CHECK_INT(shaped(CUBLAS_OP_N, M, N, K, M, K, M - 1), CUBLAS_STATUS_INVALID_VALUE);
    OK(shaped(CUBLAS_OP_T, M, N, K, K, N, M));
    CHECK_INT(shaped(CUBLAS_OP_T, M, N, K, K - 1, N, M), CUBLAS_STATUS_INVALID_VALUE);
    CHECK_INT(shaped(CUBLAS_OP_T, M, N, K, K, N - 1, M), CUBLAS_STATUS_INVALID_VALUE);
    CHECK_INT(shaped(CUBLAS_OP_N, -1, N, K, M, K, M), CUBLAS_STATUS_INVALID_VALUE);
    CHECK_INT(shaped((cublasOperation_t)7, M, N, K, M, K, M), CUBLAS_STATUS_INVALID_VALUE);
    OK(shaped(CUBLAS_OP_N, 0, N, K, M, K, M));

    CHECK_INT(typed(CUDA_R_32F, CUDA_R_16BF, CUBLAS_COMPUTE_32F), CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK_INT(typed(CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32),
              CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK_INT(typed(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_16F), CUBLAS_STATUS_NOT_SUPPORTED);

    CHECK_INT(cublasSetWorkspace(handle, (char *)workspace + 16, 16), CUBLAS_STATUS_INVALID_VALUE);
    CHECK_INT(cublasSetMathMode(handle, (cublasMath_t)7), CUBLAS_STATUS_INVALID_VALUE);
    cublasHandle_t unopened = NULL;
    CHECK_INT(cublasSetStream(unopened, stream), CUBLAS_STATUS_NOT_INITIALIZED);
    CHECK_TEXT(cublasGetStatusString(CUBLAS_STATUS_NOT_INITIALIZED),
               "the library was not initialized");
    int major;
    OK(cublasGetProperty(MAJOR_VERSION, &major));
    CHECK_INT(major, CUBLAS_VER_MAJOR);
}

static void host_matrix(void)
{
    open_all();
    float a = 1;
    cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, &a, CUDA_R_32F, 1, device_b,
                 CUDA_R_32F, 1, &zero, device_c, CUDA_R_32F, 1, CUBLAS_COMPUTE_32F,
                 CUBLAS_GEMM_DEFAULT);
}

static void short_matrix(void)
{
    open_all();
    shaped(CUBLAS_OP_N, MAX_ELEMS + 1, 1, 1, MAX_ELEMS + 1, 1, MAX_ELEMS + 1);
}

static void host_workspace(void)
{
    open_all();
    static _Alignas(256) char host[WORKSPACE_BYTES];
    cublasSetWorkspace(handle, host, sizeof host);
}

static void freed_workspace(void)
{
    open_all();
    CUDA_OK(cudaFree(workspace));
    shaped(CUBLAS_OP_N, M, N, K, M, K, M);
}

static void lost_workspace(void)
{
    open_all();
    OK(cublasSetStream(handle, stream));
    shaped(CUBLAS_OP_N, M, N, K, M, K, M);
}

static void in_place(void)
{
    open_all();
    device_c = device_a + M;
    shaped(CUBLAS_OP_N, M, N, K, M, K, M);
}

static void no_stream(void)
{
    open_all();
    OK(cublasDestroy(handle));
    OK(cublasCreate(&handle));
    shaped(CUBLAS_OP_N, M, N, K, M, K, M);
}

static void leaks_the_handle(void)
{
    open_all();
    const cublasHandle_t kept = handle;
    OK(cublasCreate(&handle));
    close_all();
    handle = kept;
}

int main(void)
{
    ENDS(host_matrix, "cublasGemmEx, A: ");
    ENDS(short_matrix, "cublasGemmEx, A: 328 bytes at byte 0 of device memory of 324 bytes");
    ENDS(host_workspace, "cublasSetWorkspace: ");
    ENDS(freed_workspace, "cublasGemmEx, workspace: 4096 bytes at byte 0 of freed memory");
    ENDS(lost_workspace, "cublasSetStream took the workspace away");
    ENDS(in_place, "C overlaps A or B");
    ENDS(no_stream, "cublasGemmEx on the default stream");
    ENDS(leaks_the_handle, "not closed at exit: cuBLAS handle (1)");

    open_all();
    for (int turns = 0; turns < 4; turns++) {
        test_float(turns & 1, turns & 2);
    }
    test_tf32();
    test_bf16();
    test_beta_zero_does_not_read();
    test_workspace_is_used();
    test_no_inner_dimension();
    test_refusals();
    close_all();
    return 0;
}
