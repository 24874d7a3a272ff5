/* Work deferred until a later call absorbs it: a batch to gather, a head's forward pass. */
#include "cuda/cuda_block.h"
#include "cuda/cuda_check.h"

enum dt_status dt_cuda_enqueue_waiting(struct dt_cuda *cuda)
{
    const struct dt_cuda_waiting w = cuda->waiting;
    struct dt_cuda_gathered *g = &cuda->gathered;
    if (g->pending) {
        g->pending = g->in_place = false;
        DT_CUDA(dt_gpu_gather(cuda->stream, &g->samples, cuda->batch.rows, g->n, cuda->type, g->x));
    }
    cuda->waiting.n = 0;
    DT_CUDA(dt_gpu_head_forward(cuda->stream, &w.head, w.n, cuda->type, w.x, w.logits, NULL));
    return DT_OK;
}

enum dt_status dt_cuda_settle(struct dt_cuda *cuda)
{
    DT_TRY(dt_cuda_enqueue_waiting(cuda));
    return dt_cuda_join(cuda);
}

void dt_cuda_drop(struct dt_cuda *cuda)
{
    cuda->waiting = (struct dt_cuda_waiting){0};
    cuda->gathered = (struct dt_cuda_gathered){0};
}
