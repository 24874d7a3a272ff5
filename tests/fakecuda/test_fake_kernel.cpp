/* Fake CUDA's kernels: barriers, shared memory, arguments and limits are CUDA's, and a mistake that
 * breaks a GPU program ends the process with a line. The kernels here are those of a file compiled
 * with fake_kernel.h. */
#include "tests/fakecuda/fake_kernel.h"

#include "tests/fakecuda/trace.h"

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

struct nested {
    int n;
    const float *numbers;
};

static void nested_kernel(struct nested)
{
}

/* Also in the second block, after the first has written. */
static void unwritten_shared_memory_is_nan()
{
    const stream stream;
    const floats x;
    float found[2];
    OK(DT_LAUNCH(unwritten_kernel, 2, 1, 0, stream, x.it));
    OK(cudaMemcpyAsync(found, x, sizeof found, cudaMemcpyDeviceToHost, stream));
    CHECK(isnan(found[0]) && isnan(found[1]));
}

static void limits()
{
    static const struct {
        dim3 blocks, threads;
        size_t n_shared;
        bool fits;
    } launches[] = {{0, 32, 0, false},
                    {dim3(1, 65536), 32, 0, false},
                    {1, 0, 0, false},
                    {1, dim3(32, 33), 0, false},
                    {1, 32, 48 * 1024 + 1, false},
                    {dim3(1, 65535), 1, 48 * 1024, true},
                    {1, 1024, 0, true}};
    const stream stream;
    const unsigned none = 0;
    for (const auto &each : launches) {
        CHECK_INT(DT_LAUNCH(leaving_kernel, each.blocks, each.threads, each.n_shared, stream, none),
                  each.fits ? cudaSuccess : cudaErrorInvalidConfiguration);
    }
    OK(cudaStreamSynchronize(stream));
}

static const fake_case misuse[] = {
    {"3 of 4 threads wait at the barrier in line",
     [] {
         const stream stream;
         const unsigned n_stay = 3;
         OK(DT_LAUNCH(leaving_kernel, 1, 4, 0, stream, n_stay));
         cudaStreamSynchronize(stream);
     }},
    {"threads of one block wait at different barriers",
     [] {
         const stream stream;
         OK(fake_launch("apart", 1, 4, 0, stream, parting_kernel));
         cudaStreamSynchronize(stream);
     }},
    {"an argument of a kernel points to the host's memory",
     [] {
         float *const here = (float *)malloc(1000);
         OK(DT_LAUNCH(unwritten_kernel, 1, 1, 0, new_stream(), here));
     }},
    {"an argument of a kernel points to the host's memory",
     [] {
         static const float here[4] = {};
         const stream stream;
         const struct nested fine = {4, device_floats()}, wrong = {4, here};
         OK(DT_LAUNCH(nested_kernel, 1, 1, 0, stream, fine));
         OK(DT_LAUNCH(nested_kernel, 1, 1, 0, stream, wrong));
     }},
};

static const fake_case rules[] = {
    {"unwritten shared memory is NaN", unwritten_shared_memory_is_nan},
    {"limits", limits},
};

int main()
{
    all_end(misuse);
    all_work(rules);
    return 0;
}
