/* Streams beside the main one, for work that nothing waits for until the step ends: gradients of
 * weights beside the backward pass, updates beside both. Each has handles of its own for the
 * libraries, whose workspaces must not be shared by what runs at once.
 *
 * The contract of model/backend.h stays: work happens in the order of the calls. A call that begins
 * something on a branch forks it, and every other call of the backend joins what is open. In a
 * recorded graph forks and joins cost nothing: they are edges. */
#ifndef DT_CUDA_BRANCH_H
#define DT_CUDA_BRANCH_H

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "base/status.h"

struct dt_cuda;

/* A stream, and what libraries need there; their handles belong to it. */
struct dt_cuda_lane {
    cudaStream_t stream;
    cublasHandle_t cublas;
    cudnnHandle_t cudnn;
    void *cublas_workspace;
};

enum dt_cuda_branch {
    DT_CUDA_GRADIENTS, /* of weights and biases */
    DT_CUDA_UPDATES,   /* optimizer steps; no library is called there */
    DT_CUDA_N_BRANCHES
};

struct dt_cuda_branches {
    struct dt_cuda_lane lanes[DT_CUDA_N_BRANCHES];
    cudaEvent_t events[DT_CUDA_N_BRANCHES];
    bool open[DT_CUDA_N_BRANCHES]; /* has work that the main stream does not wait for yet */
};

/* lane->stream is there already. */
enum dt_status dt_cuda_lane_open(struct dt_cuda *cuda, struct dt_cuda_lane *lane);
void dt_cuda_lane_close(struct dt_cuda *cuda,
                        struct dt_cuda_lane *lane); /* zeroed, or opened in part, is fine */

enum dt_status dt_cuda_branches_open(struct dt_cuda *cuda);
void dt_cuda_branches_close(struct dt_cuda *cuda);

/* What is enqueued on the branch from now on comes after all that the main stream has so far. */
enum dt_status dt_cuda_fork(struct dt_cuda *cuda, enum dt_cuda_branch branch);
/* `branch` comes after all that `other` has so far. */
enum dt_status dt_cuda_follow(struct dt_cuda *cuda, enum dt_cuda_branch branch,
                              enum dt_cuda_branch other);
/* What is enqueued on the main stream from now on comes after all that was asked for so far, on the
 * branches too. */
enum dt_status dt_cuda_join(struct dt_cuda *cuda);

#endif
