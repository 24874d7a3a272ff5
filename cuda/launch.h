/* How the kernels are launched: DT_LAUNCH(kernel, blocks, threads, shared_bytes, stream,
 * arguments...) is an expression of type cudaError_t. A test build, which compiles the same files
 * as C++ for the CPU, brings a DT_LAUNCH of its own. */
#ifndef DT_CUDA_LAUNCH_H
#define DT_CUDA_LAUNCH_H

/* Before a loop over an array that has to be in registers. */
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
