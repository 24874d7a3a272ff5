/* Fake CUDA's kernels: barriers, shared memory, arguments and limits are CUDA's, and a mistake that
 * breaks a GPU program ends the process with a line. The kernels here are those of a file compiled
 * with fake_kernel.h. */
#include "tests/fakecuda/fake_kernel.h"

#include "tests/cuda/case.h"

#define OK(call) CHECK_INT(call, cudaSuccess)

static cudaStream_t stream;

static __global__ void index_kernel(unsigned *seen)
{
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    seen[block * blockDim.x * blockDim.y * blockDim.z + thread]++;
}

/* Each thread passes its neighbour its number, round after round; without the barriers the
 * neighbour would read another round's. */
static __global__ void ring_kernel(float *sums, int n_rounds)
{
    __shared__ float told[64];
    const unsigned i = threadIdx.x, n = blockDim.x;
    float sum = 0;
    for (int round = 0; round < n_rounds; round++) {
        told[i] = (float)(i + (unsigned)round);
        __syncthreads();
        sum += told[(i + 1) % n];
        __syncthreads();
    }
    sums[blockIdx.x * n + threadIdx.x] = sum;
}

static __global__ void unwritten_kernel(float *x)
{
    __shared__ float shared[4];
    x[blockIdx.x] = shared[threadIdx.x];
    shared[threadIdx.x] = 1;
}

static __global__ void leaving_kernel(unsigned n_stay)
{
    if (threadIdx.x < n_stay) {
        __syncthreads();
    }
}

static __global__ void parting_kernel()
{
    if (threadIdx.x % 2 == 0) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}

static void *device(size_t n_bytes)
{
    void *memory;
    OK(cudaMalloc(&memory, n_bytes));
    OK(cudaMemsetAsync(memory, 0, n_bytes, stream));
    return memory;
}

static void fetch(void *to, void *from, size_t n_bytes)
{
    OK(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaFree(from));
}

/* Runs every thread of every block, once. */
static void test_indices()
{
    const dim3 blocks(2, 2, 3), threads(4, 4, 3);
    enum { N = 12 * 48 };
    unsigned *seen = (unsigned *)device(N * sizeof(unsigned)), host[N];
    OK(DT_LAUNCH(index_kernel, blocks, threads, 0, stream, seen));
    fetch(host, seen, sizeof host);
    for (int i = 0; i < N; i++) {
        CHECK_INT(host[i], 1);
    }
}

static void test_barriers()
{
    enum { BLOCKS = 3, THREADS = 64, ROUNDS = 5 };
    float *sums = (float *)device(BLOCKS * THREADS * sizeof(float)), host[BLOCKS * THREADS];
    int n_rounds = ROUNDS;
    for (int again = 0; again < 2; again++) { /* forwards and backwards */
        OK(DT_LAUNCH(ring_kernel, BLOCKS, THREADS, 0, stream, sums, n_rounds));
    }
    n_rounds = 1; /* arguments are copied at the launch, which has not run yet */
    fetch(host, sums, sizeof host);
    for (int i = 0; i < BLOCKS * THREADS; i++) {
        CHECK_NEAR(host[i], ROUNDS * ((i + 1) % THREADS) + ROUNDS * (ROUNDS - 1) / 2, 0);
    }
}

/* Also detected in the second block, after the first has written. */
static void test_unwritten()
{
    float *x = (float *)device(2 * sizeof(float)), host[2];
    OK(DT_LAUNCH(unwritten_kernel, 2, 1, 0, stream, x));
    fetch(host, x, sizeof host);
    CHECK(isnan(host[0]) && isnan(host[1]));
}

static void test_limits()
{
    const unsigned none = 0;
    CHECK_INT(DT_LAUNCH(leaving_kernel, 0, 32, 0, stream, none), cudaErrorInvalidConfiguration);
    CHECK_INT(DT_LAUNCH(leaving_kernel, dim3(1, 65536), 32, 0, stream, none),
              cudaErrorInvalidConfiguration);
    CHECK_INT(DT_LAUNCH(leaving_kernel, 1, 0, 0, stream, none), cudaErrorInvalidConfiguration);
    CHECK_INT(DT_LAUNCH(leaving_kernel, 1, dim3(32, 33), 0, stream, none),
              cudaErrorInvalidConfiguration);
    CHECK_INT(DT_LAUNCH(leaving_kernel, 1, 32, 48 * 1024 + 1, stream, none),
              cudaErrorInvalidConfiguration);
    OK(DT_LAUNCH(leaving_kernel, dim3(1, 65535), 1, 48 * 1024, stream, none));
    OK(DT_LAUNCH(leaving_kernel, 1, 1024, 0, stream, none));
    OK(cudaStreamSynchronize(stream));
}

static void leave_before_barrier()
{
    const unsigned n_stay = 3;
    OK(DT_LAUNCH(leaving_kernel, 1, 4, 0, stream, n_stay));
    cudaStreamSynchronize(stream);
}

static void wait_apart()
{
    OK(fake_launch("wait_apart", 1, 4, 0, stream, parting_kernel));
    cudaStreamSynchronize(stream);
}

static void pointer_to_the_host()
{
    unsigned *const here = (unsigned *)malloc(1000);
    OK(DT_LAUNCH(index_kernel, 1, 1, 0, stream, here));
}

struct nested {
    int n;
    const float *numbers;
};

static void nested_kernel(struct nested)
{
}

static void pointer_to_the_host_in_a_struct()
{
    static const float here[4] = {};
    const struct nested fine = {4, (const float *)device(16)}, wrong = {4, here};
    OK(DT_LAUNCH(nested_kernel, 1, 1, 0, stream, fine));
    OK(DT_LAUNCH(nested_kernel, 1, 1, 0, stream, wrong));
}

int main()
{
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    test_indices();
    test_barriers();
    test_unwritten();
    test_limits();
    ENDS(leave_before_barrier, "3 of 4 threads wait at the barrier in line");
    ENDS(pointer_to_the_host, "an argument of a kernel points to the host's memory");
    ENDS(pointer_to_the_host_in_a_struct, "an argument of a kernel points to the host's memory");
    ENDS(wait_apart, "threads of one block wait at different barriers");
    OK(cudaStreamDestroy(stream));
    return 0;
}
