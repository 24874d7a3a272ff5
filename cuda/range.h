/* The host's current work as NVTX ranges for a profiler: `nsys profile --trace=cuda,nvtx dtrain
 * ...` shows a range for each block forward and backward, with the kernels that it launched below.
 * Without a profiler, a range costs a pointer check; without the toolkit's header, nothing. Begin
 * and end nest, and belong to the thread. */
#ifndef DT_CUDA_RANGE_H
#define DT_CUDA_RANGE_H

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define DT_NVTX_TEXT ", NVTX 3"                     /* for dt_cuda_versions */
#define dt_range_begin(name) nvtxRangePushA((name)) /* the name need not outlive the call */
#define dt_range_end() nvtxRangePop()
#else
#define DT_NVTX_TEXT ""
#define dt_range_begin(name) ((void)(name))
#define dt_range_end() ((void)0)
#endif

#endif
