/* Fake CUDA: the CUDA runtime, cuBLAS, cuDNN and NCCL on the CPU, with exactly the calls that cuda/
 * makes; never installed. Tests link the unchanged sources of cuda/ with it instead of the
 * libraries. It is stricter than a GPU: work on a stream runs as late as the rules allow, device
 * memory has guards around it and only enqueued work may touch it, and a call that the real library
 * refuses (wrong state, a host pointer, waiting during a capture) fails here too or ends the test
 * with a line that says why.
 *
 * This header is for tests, in C; fake_runtime.h has what the parts share:
 *
 *   fake_runtime.cpp      a test's options, errors, devices
 *   fake_memory.cpp       memory, copies
 *   fake_streams.cpp      streams, events
 *   fake_graphs.cpp       recorded graphs
 *   fake_kernel.h         kernels compiled as C++, block by block
 *   fake_cublas.cpp       matrix products
 *   fake_cudnn.cpp        convolutions by operation graphs
 *   fake_convolution.cpp  the engines that compute them
 *   fake_nccl.cpp         collectives between processes of a test */
#ifndef DT_TESTS_FAKECUDA_FAKE_H
#define DT_TESTS_FAKECUDA_FAKE_H

#include <cuda_runtime_api.h>

#define FAKE_N_ENGINES 8 /* of cuDNN, numbered from 0 (fake_convolution.cpp) */

/* What differs from a healthy GPU; all 0: nothing. Also read from the environment, in capitals
 * behind FAKE_ (fake_runtime.cpp). */
#define FAKE_FAULT_LIST(X)                                                                   \
    X(driver_version)       /* reported by cudaDriverGetVersion; 0: as new as the runtime */ \
    X(load_ms)              /* the time that the module takes to load */                     \
    X(device_bytes)         /* memory of each GPU; 0: 1 GiB */                               \
    X(lost_writes)          /* 1: what kernels write to pinned memory does not arrive */     \
    X(fail_malloc_at)       /* the n-th cudaMalloc fails with out of memory */               \
    X(fail_launch_at)       /* the n-th enqueued work item fails with a sticky error */      \
    X(fail_code)            /* that error, of cudaError_t; 0: an illegal address */          \
    X(hang_launch_at)       /* the n-th enqueued work item never ends */                     \
    X(no_fusion)            /* cuDNN: no engine for more than a convolution */               \
    X(n_refused_plans)      /* cuDNN: the first n execution plans cannot be finalized */     \
    X(engine_load_ms)       /* cuDNN: host time for each run, before the GPU has work */     \
    X(fused_ms)             /* cuDNN: of a run with bias and relu, beside its engine's */    \
    X(failing_engines)      /* cuDNN: a bit for each engine that fails when run, */          \
    X(endless_engines)      /* that never ends, */                                           \
    X(unrecordable_engines) /* or that does what a capture forbids */                        \
    /* NCCL, on this rank, of communicators opened while they are set: */                    \
    X(nccl_init_fails)      /* the start fails, */                                           \
    X(nccl_init_hangs)      /* or never ends */                                              \
    X(nccl_abort_hangs)     /* ncclCommAbort never returns */                                \
    X(nccl_finalize_hangs)  /* the ranks never agree on the end */                           \
    X(nccl_error_at)        /* a peer is lost in the n-th collective, from 1 */              \
    X(nccl_error_code)      /* the error then, of ncclResult_t; 0: ncclRemoteError */        \
    X(nccl_hang_at)         /* the n-th collective never ends */                             \
    X(nccl_launch_hangs_at) /* the n-th collective of a recorded graph never gets into it */

#define FAKE_FIELD(name) long name;
struct fake_options {
    FAKE_FAULT_LIST(FAKE_FIELD)
    long devices; /* 0 means 1; -1: no driver; -2: a driver, but no device */
    /* By cuDNN's engine: extra duration of a run, on the clock of cudaEventElapsedTime. */
    long engine_ms[FAKE_N_ENGINES];
};

#ifdef __cplusplus
extern "C" {
#endif

extern struct fake_options fake_options;

/* False where tests/gpu links the same test with the real libraries: then options and counts are
 * meaningless. */
extern const int fake_is_linked;

/* Register resources: a process that succeeds but leaves one open fails, with a line. `what`:
 * "cuBLAS handle". The runtime's own are counted already. */
void fake_opened(const char *what);
void fake_closed(const char *what);

/* Counts since the start, for tests: of enqueued work, waits of the host, allocations, and cuDNN's
 * descriptors. */
struct fake_counts {
    long n_enqueued, n_host_waits, n_mallocs, n_live_bytes, n_descriptors;
};
struct fake_counts fake_counts(void);

#ifdef __cplusplus
}
#endif

#endif
