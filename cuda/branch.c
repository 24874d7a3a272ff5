#include "cuda/cuda_backend.h"

#include "cuda/cuda_check.h"

enum dt_status dt_cuda_urgent_stream(cudaStream_t *out)
{
    int lowest, highest; /* rank numbers, highest first */
    DT_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    DT_CUDA(cudaStreamCreateWithPriority(out, cudaStreamNonBlocking, highest));
    return DT_OK;
}

static enum dt_status open_lane(struct dt_cuda *cuda, struct dt_cuda_lane *lane)
{
    DT_TRY(dt_cuda_alloc(cuda, "cuBLAS's workspace", DT_CUDA_WORKSPACE_BYTES,
                         &lane->cublas_workspace));
    DT_CUBLAS(cublasCreate(&lane->cublas));
    DT_CUBLAS(cublasSetStream(lane->cublas, lane->stream)); /* resets the workspace */
    DT_CUBLAS(cublasSetWorkspace(lane->cublas, lane->cublas_workspace, DT_CUDA_WORKSPACE_BYTES));
    /* Sums in float, also for bf16. */
    DT_CUBLAS(cublasSetMathMode(lane->cublas, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
    dt_alive_show(&cuda->alive);
    DT_CUDNN(cudnnCreate(&lane->cudnn));
    DT_CUDNN(cudnnSetStream(lane->cudnn, lane->stream));
    dt_alive_show(&cuda->alive);
    return DT_OK;
}

enum dt_status dt_cuda_lanes_open(struct dt_cuda *cuda)
{
    struct dt_cuda_branches *b = &cuda->branches;
    DT_TRY(dt_cuda_urgent_stream(&cuda->main.stream));
    cuda->stream = cuda->main.stream;
    cuda->main.workspace = DT_CUDA_SCRATCH_WORKSPACE;
    DT_TRY(open_lane(cuda, &cuda->main));
    if (dt_cuda_without(DT_CUDA_BRANCH)) {
        b->lanes[DT_CUDA_GRADIENTS] = b->lanes[DT_CUDA_UPDATES] = cuda->main;
        return DT_OK;
    }
    for (int i = 0; i < DT_CUDA_N_BRANCHES; i++) {
        DT_CUDA(cudaEventCreateWithFlags(&b->events[i], cudaEventDisableTiming));
        DT_CUDA(cudaStreamCreateWithFlags(&b->lanes[i].stream, cudaStreamNonBlocking));
    }
    b->lanes[DT_CUDA_GRADIENTS].workspace = DT_CUDA_SCRATCH_GRADIENT_WORKSPACE;
    return open_lane(cuda, &b->lanes[DT_CUDA_GRADIENTS]);
}

/* Members not opened are NULL. */
static void close_lane(struct dt_cuda *cuda, struct dt_cuda_lane *lane)
{
    if (lane->cudnn != NULL) {
        cudnnDestroy(lane->cudnn);
    }
    if (lane->cublas != NULL) {
        cublasDestroy(lane->cublas);
    }
    dt_cuda_free(cuda, lane->cublas_workspace);
    if (lane->stream != NULL) {
        cudaStreamDestroy(lane->stream);
    }
}

void dt_cuda_lanes_close(struct dt_cuda *cuda)
{
    struct dt_cuda_branches *b = &cuda->branches;
    for (int i = 0; i < DT_CUDA_N_BRANCHES; i++) {
        if (b->lanes[i].stream != cuda->main.stream) {
            close_lane(cuda, &b->lanes[i]);
        }
        if (b->events[i] != NULL) {
            cudaEventDestroy(b->events[i]);
        }
    }
    close_lane(cuda, &cuda->main);
}

static enum dt_status wait_for(cudaStream_t stream, cudaStream_t other, cudaEvent_t event)
{
    DT_CUDA(cudaEventRecord(event, other));
    DT_CUDA(cudaStreamWaitEvent(stream, event, 0));
    return DT_OK;
}

enum dt_status dt_cuda_fork(struct dt_cuda *cuda, enum dt_cuda_branch branch)
{
    struct dt_cuda_branches *b = &cuda->branches;
    const cudaStream_t stream = b->lanes[branch].stream;
    b->open[branch] = stream != cuda->main.stream;
    if (b->open[branch]) {
        DT_TRY(wait_for(stream, cuda->main.stream, b->events[branch]));
    }
    return branch == DT_CUDA_UPDATES && b->open[DT_CUDA_GRADIENTS]
               ? wait_for(stream, b->lanes[DT_CUDA_GRADIENTS].stream, b->events[DT_CUDA_GRADIENTS])
               : DT_OK;
}

enum dt_status dt_cuda_join(struct dt_cuda *cuda)
{
    struct dt_cuda_branches *b = &cuda->branches;
    for (int i = 0; i < DT_CUDA_N_BRANCHES; i++) {
        if (b->open[i]) {
            b->open[i] = false;
            DT_TRY(wait_for(cuda->main.stream, b->lanes[i].stream, b->events[i]));
        }
    }
    return DT_OK;
}

/* ---- work that waits for a later call to absorb it: a batch to gather, a head's forward pass */

enum dt_status dt_cuda_enqueue_waiting(struct dt_cuda *cuda)
{
    const struct dt_gpu_head head = cuda->waiting;
    struct dt_cuda_gathered *g = &cuda->gathered;
    if (g->pending) {
        g->pending = g->in_place = false;
        DT_CUDA(dt_gpu_gather(cuda->stream, &g->samples, &cuda->batch, g->n, cuda->type, g->x));
    }
    cuda->waiting.n = 0;
    DT_CUDA(dt_gpu_head_forward(cuda->stream, &head));
    return DT_OK;
}

enum dt_status dt_cuda_settle(struct dt_cuda *cuda)
{
    DT_TRY(dt_cuda_enqueue_waiting(cuda));
    return dt_cuda_join(cuda);
}

void dt_cuda_drop(struct dt_cuda *cuda)
{
    cuda->waiting.n = 0;
    cuda->gathered = (struct dt_cuda_gathered){0};
}
