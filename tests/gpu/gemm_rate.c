/* Measures this GPU's operations per second in a large matrix product: the peak, if no datasheet is
 * known. usage: gemm_rate [N]: C = A B of N x N (8192), random numbers between -1 and 1, because
 * zeros take less power and so run faster. Prints a line for each type, "bf16 787.3 (780.1 to
 * 790.2)" in TFLOP/s: median, lowest and highest of some rounds; exits with 1 if C is wrong, with
 * 77 without a GPU. */
#include "base/clock.h"
#include "cuda/cuda_check.h"
#include "tests/cuda/on_gpu.h"

enum { N_ROUNDS = 5, N_PRODUCTS = 20, N_WARM_UP = 5, N_CHECKED = 16 };

struct type {
    const char *name;
    bool is_bf16;
    cublasComputeType_t compute;
    double tolerance;
};

static const struct type types[] = {{"f32", false, CUBLAS_COMPUTE_32F_PEDANTIC, 1e-5},
                                    {"tf32", false, CUBLAS_COMPUTE_32F_FAST_TF32, 1e-3},
                                    {"bf16", true, CUBLAS_COMPUTE_32F, 1e-2}};

static struct dt_shape square(int n)
{
    return (struct dt_shape){n * n, 1, 1};
}

static struct buffer random_matrix(int n)
{
    struct buffer b = buffer_uniform((size_t)n * (size_t)n, 1);
    for (size_t i = 0; i < b.n; i++) {
        b.data[i] = from_bf16(to_bf16(b.data[i]));
    }
    return b;
}

/* Checks some elements of C, including the last. */
static void check_product(const struct type *type, struct dt_backend *backend,
                          const struct buffer *a, const struct buffer *b, const void *device, int n)
{
    struct buffer c = from_gpu(backend, device, square(n), 1, type->is_bf16);
    for (int k = 1; k <= N_CHECKED; k++) {
        const size_t row = (size_t)n * (size_t)k / N_CHECKED - 1, col = (size_t)n - 1 - row / 2,
                     i = col * (size_t)n + row;
        double expected = 0;
        for (size_t l = 0; l < (size_t)n; l++) {
            expected += (double)a->data[l * (size_t)n + row] * (double)b->data[col * (size_t)n + l];
        }
        CHECK_NEAR(c.data[i], expected, type->tolerance * sqrt(n));
    }
    BUFFERS_CLOSE(&c);
}

static int ascending(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* seconds: (N_ROUNDS) of one product each, ascending. */
static void time_products(const struct type *type, cublasHandle_t cublas, cudaStream_t stream,
                          void *const matrices[3], int n, double *seconds)
{
    const float one = 1, zero = 0;
    const cudaDataType data = type->is_bf16 ? CUDA_R_16BF : CUDA_R_32F;
    for (int round = -1; round < N_ROUNDS; round++) { /* the first round warms up */
        const double start_s = dt_clock_s();
        const int n_products = round < 0 ? N_WARM_UP : N_PRODUCTS;
        for (int i = 0; i < n_products; i++) {
            CHECK_INT(cublasGemmEx(cublas, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, matrices[0],
                                   data, n, matrices[1], data, n, &zero, matrices[2], data, n,
                                   type->compute, CUBLAS_GEMM_DEFAULT),
                      CUBLAS_STATUS_SUCCESS);
        }
        CHECK_INT(cudaStreamSynchronize(stream), cudaSuccess);
        seconds[round < 0 ? 0 : round] = (dt_clock_s() - start_s) / n_products;
    }
    qsort(seconds, N_ROUNDS, sizeof seconds[0], ascending);
}

int main(int argc, char **argv)
{
    const int n = argc > 1 ? atoi(argv[1]) : 8192;
    CHECK(n >= N_CHECKED && n % 8 == 0);
    struct dt_backend *backend = open_gpu(&modes[0]);
    const cudaStream_t stream = ((struct dt_cuda *)backend)->stream;
    cublasHandle_t cublas;
    CHECK_INT(cublasCreate(&cublas), CUBLAS_STATUS_SUCCESS);
    CHECK_INT(cublasSetStream(cublas, stream), CUBLAS_STATUS_SUCCESS);
    struct buffer a = random_matrix(n), b = random_matrix(n);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        const struct buffer nothing = {0};
        float *a_device = to_gpu(backend, &a, square(n), 1, types[t].is_bf16),
              *b_device = to_gpu(backend, &b, square(n), 1, types[t].is_bf16),
              *c = to_gpu(backend, &nothing, square(n), 1, types[t].is_bf16);
        double seconds[N_ROUNDS];
        time_products(&types[t], cublas, stream, (void *[]){a_device, b_device, c}, n, seconds);
        check_product(&types[t], backend, &a, &b, c, n);
        const double tera = 2.0 * n * n * n * 1e-12;
        printf("%s %.1f (%.1f to %.1f)\n", types[t].name, tera / seconds[N_ROUNDS / 2],
               tera / seconds[N_ROUNDS - 1], tera / seconds[0]);
        fflush(stdout);
        backend->ops->free(backend, a_device);
        backend->ops->free(backend, b_device);
        backend->ops->free(backend, c);
    }
    BUFFERS_CLOSE(&a, &b);
    CHECK_INT(cublasDestroy(cublas), CUBLAS_STATUS_SUCCESS);
    backend->ops->close(backend);
    return 0;
}
