/* Streams beside the main one, for work whose results nobody needs before the step ends: gradients
 * of weights run beside the backward pass, updates beside both. Each stream has its own library
 * handles, because workspaces must not be shared by concurrent calls. The contract of
 * model/backend.h stays: work takes effect in the order of the calls. A call that starts work on a
 * branch forks it, and every other backend call joins the open branches. In a recorded graph forks
 * and joins cost nothing: they are edges. */
#ifndef DT_CUDA_BRANCH_H
#define DT_CUDA_BRANCH_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "base/status.h"

struct dt_cuda;

/* A stream and the library handles that enqueue on it. */
struct dt_cuda_lane {
    cudaStream_t stream;
    cublasHandle_t cublas;
    cudnnHandle_t cudnn;
    void *cublas_workspace;
};

enum dt_cuda_branch {
    DT_CUDA_GRADIENTS, /* of weights and biases */
    DT_CUDA_UPDATES,   /* optimizer steps; they call no library */
    DT_CUDA_N_BRANCHES
};

struct dt_cuda_branches {
    struct dt_cuda_lane lanes[DT_CUDA_N_BRANCHES];
    cudaEvent_t events[DT_CUDA_N_BRANCHES];
    bool open[DT_CUDA_N_BRANCHES]; /* has work that the main stream does not wait for yet */
};

/* The highest priority: for work that the rest of a step waits for. */
enum dt_status dt_cuda_urgent_stream(cudaStream_t *out);

/* lane->stream must exist already. The second also closes a zeroed or half-open lane. */
enum dt_status dt_cuda_lane_open(struct dt_cuda *cuda, struct dt_cuda_lane *lane);
void dt_cuda_lane_close(struct dt_cuda *cuda, struct dt_cuda_lane *lane);
enum dt_status dt_cuda_branches_open(struct dt_cuda *cuda);
void dt_cuda_branches_close(struct dt_cuda *cuda);

/* Work enqueued on the branch from now on runs after everything on the main stream so far. */
enum dt_status dt_cuda_fork(struct dt_cuda *cuda, enum dt_cuda_branch branch);
/* New work on `branch` runs after everything on `other` so far. */
enum dt_status dt_cuda_follow(struct dt_cuda *cuda, enum dt_cuda_branch branch,
                              enum dt_cuda_branch other);
/* Work enqueued on the main stream from now on runs after everything enqueued so far, also on the
 * branches. */
enum dt_status dt_cuda_join(struct dt_cuda *cuda);

#endif
