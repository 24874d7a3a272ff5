/* Kernel launches: DT_LAUNCH(kernel, blocks, threads, shared_bytes, stream, arguments...) is an
 * expression of type cudaError_t. A test build compiles the same files as C++ for the CPU and
 * defines its own DT_LAUNCH. */
#ifndef DT_CUDA_LAUNCH_H
#define DT_CUDA_LAUNCH_H

/* Put it before a loop over an array that must stay in registers. */
#ifdef __CUDACC__
#define DT_UNROLL _Pragma("unroll")
#else
#define DT_UNROLL
#endif

#ifndef DT_LAUNCH
#define DT_LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...) \
    (kernel<<<(blocks), (threads), (shared_bytes), (stream)>>>(__VA_ARGS__), cudaGetLastError())
#endif

#endif
