/* What lets g++ compile cuda/kernels_*.cu, unchanged, as C++ for the CPU:
 *
 *   g++ -std=c++17 -x c++ -include tests/fakecuda/fake_kernel.h cuda/kernels_tail.cu
 *
 * A launch enqueues a closure that runs block by block. Within a block one thread runs until it ends or comes to a barrier, then
 * the next: a missing barrier shows in the numbers, and so does a read of shared memory that nobody has written, since that begins
 * as NaN. Every other launch goes through its blocks and threads from the last to the first. Arguments are copied at the launch.
 *
 * There are no shuffles and no dynamic shared memory, because no kernel uses them. */
#ifndef DT_TESTS_FAKECUDA_FAKE_KERNEL_H
#define DT_TESTS_FAKECUDA_FAKE_KERNEL_H

/* Before CUDA's headers, which then leave it alone. */
#define __shared__ static __attribute__((section("fake_shared")))

#include "tests/fakecuda/fake.h"

#include <cmath>

#define __launch_bounds__(...)
#define __syncthreads() fake_barrier(__LINE__)

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

void fake_barrier(int line);

/* Blocks run one after the other, so that what one has written the next can read. */
static inline void __threadfence()
{
}

static inline unsigned atomicInc(unsigned *count, unsigned last)
{
    const unsigned before = *count;
    *count = before >= last ? 0 : before + 1;
    return before;
}

/* cudaErrorInvalidConfiguration where no GPU could run it; `thread` is what each thread does. */
cudaError_t fake_launch(const char *name, dim3 blocks, dim3 threads, size_t shared_bytes, cudaStream_t stream,
                        std::function<void()> thread);

template <typename Kernel, typename... Arguments> std::function<void()> fake_bind(Kernel kernel, Arguments... arguments)
{
    return [=] { kernel(arguments...); };
}

#define DT_LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...)    \
    fake_launch(__func__, (blocks), (threads), (shared_bytes), (stream), \
                fake_bind([=](auto... arguments) { kernel(arguments...); }, __VA_ARGS__))

#endif
