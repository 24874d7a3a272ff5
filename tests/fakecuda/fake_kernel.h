/* Lets g++ compile the unchanged kernels of cuda/kernels/ as C++ for the CPU:
 *
 *   g++ -std=c++17 -x c++ -include tests/fakecuda/fake_kernel.h cuda/kernels/tail.cu
 *
 * A launch enqueues a closure that runs block by block. Within a block one thread runs until it
 * ends or reaches a barrier, then the next: so a missing barrier changes the numbers, and so does a
 * read of uninitialised shared memory, which begins as NaN. Every other launch runs its blocks and
 * threads from the last to the first. Arguments are copied at the launch, and none may point to
 * unpinned host memory. There are no shuffles and no dynamic shared memory, because no kernel uses
 * them. */
#ifndef DT_TESTS_FAKECUDA_FAKE_KERNEL_H
#define DT_TESTS_FAKECUDA_FAKE_KERNEL_H

/* Defined before CUDA's headers, which then do not define them. */
#define __shared__ static __attribute__((section("fake_shared")))

#include <cuda_runtime_api.h>

#include <cmath>
#include <functional>
#include <type_traits>

#define __launch_bounds__(...)
#define __syncthreads() fake_barrier(__LINE__)

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

void fake_barrier(int line);

/* Blocks run one after the other, so each sees the writes of those before. */
static inline void __threadfence()
{
}

static inline unsigned atomicInc(unsigned *count, unsigned last)
{
    const unsigned before = *count;
    *count = before >= last ? 0 : before + 1;
    return before;
}

/* cudaErrorInvalidConfiguration if no GPU could run it; `thread` is the work of each thread. */
cudaError_t fake_launch(const char *name, dim3 blocks, dim3 threads, cudaStream_t stream,
                        std::function<void()> thread);

/* Ends the process if a kernel's argument contains a host address, which a GPU cannot read. */
void fake_check_argument(const void *argument, size_t n_bytes);

/* Padding between members holds old bytes; if the compiler cannot clear it, structs are not
 * checked. */
template <typename Argument> void fake_check_argument(Argument &argument)
{
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&argument);
    fake_check_argument(&argument, sizeof argument);
#else
    if (std::is_pointer<Argument>::value) {
        fake_check_argument(&argument, sizeof argument);
    }
#endif
}

template <typename Kernel, typename... Arguments>
std::function<void()> fake_bind(Kernel kernel, Arguments... arguments)
{
    (fake_check_argument(arguments), ...);
    return [=] { kernel(arguments...); };
}

#define DT_LAUNCH(kernel, blocks, threads, stream, ...)         \
    (is_empty(blocks)                                           \
         ? cudaSuccess                                          \
         : fake_launch(__func__, (blocks), (threads), (stream), \
                       fake_bind([=](auto... arguments) { kernel(arguments...); }, __VA_ARGS__)))

#endif
