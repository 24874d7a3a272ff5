/* The host's current work as NVTX ranges for a profiler: `nsys profile --trace=cuda,nvtx dtrain
 * ...` shows a range for each block forward and backward, with the kernels that it launched below.
 * Without a profiler, a range costs a pointer check; without the toolkit's header, nothing. Begin
 * and end nest, and belong to the thread. */
#ifndef DT_CUDA_RANGE_H
#define DT_CUDA_RANGE_H

#if defined __has_include
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define DT_HAS_NVTX 1
#endif
#endif

#ifdef DT_HAS_NVTX
#define DT_NVTX_TEXT ", NVTX 3" /* for dt_cuda_versions */
#else
#define DT_NVTX_TEXT ""
#endif

static inline void dt_range_begin(const char *name) /* need not outlive the call */
{
#ifdef DT_HAS_NVTX
    nvtxRangePushA(name);
#else
    (void)name;
#endif
}

static inline void dt_range_end(void)
{
#ifdef DT_HAS_NVTX
    nvtxRangePop();
#endif
}

#endif
