/* batch_norm on the cuda backend. */
#include "cuda/kernels/norm.h"
#include "cuda/cuda_block.h"
#include "cuda/cuda_check.h"
#include "model/layers/layers.h"

/* Of struct dt_gpu_norm. */
static size_t n_shared(const struct dt_block *block)
{
    return 2 * (size_t)block->in.c + 1;
}

static size_t n_bytes(const struct dt_block *block, int capacity)
{
    (void)capacity;
    return dt_gpu_norm_floats(block->in.c) * sizeof(float) + n_shared(block) * sizeof(double);
}

static struct dt_gpu_norm norm_of(const struct dt_layer_call *call)
{
    const struct dt_block *b = call->block;
    double *shared = call->memory; /* first, where doubles may lie */
    return (struct dt_gpu_norm){.n_rows = (size_t)call->pass->batch->n * (size_t)b->in.h *
                                          (size_t)b->in.w,
                                .n_c = b->in.c,
                                .relu = call->relu,
                                .training = call->pass->training,
                                .adds = call->adds_dx[0],
                                .accumulate = call->pass->accumulate,
                                .momentum = (float)call->layer->momentum,
                                .epsilon = (float)call->layer->epsilon,
                                .weight = call->weight,
                                .bias = call->bias,
                                .running_mean = call->running[0],
                                .running_var = call->running[1],
                                .memory = (float *)(shared + n_shared(b)),
                                .shared = call->ranks != NULL ? shared : NULL,
                                .dweight = call->dweight,
                                .dbias = call->dbias};
}

static enum dt_gpu_type y_type(const struct dt_cuda *cuda, const struct dt_layer_call *call)
{
    return call->last ? DT_GPU_F32 : cuda->type;
}

/* By way of host memory. Sums of gradients by NCCL go on meanwhile, in a stream of their own. */
static enum dt_status join(struct dt_backend *backend, const struct dt_layer_call *call,
                           enum dt_status (*add)(const struct dt_layer_call *call, double *values))
{
    double *values = call->ranks->values;
    const size_t n_bytes = n_shared(call->block) * sizeof *values;
    DT_TRY(backend->ops->copy_out(backend, values, call->memory, n_bytes));
    DT_TRY(add(call, values));
    return backend->ops->copy_in(backend, call->memory, values, n_bytes);
}

static enum dt_status forward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    struct dt_cuda *cuda = (struct dt_cuda *)backend;
    const struct dt_gpu_norm norm = norm_of(call);
    DT_TRY(dt_cuda_settle(cuda));
    if (norm.shared != NULL) {
        DT_CUDA(dt_gpu_norm_measure(cuda->stream, &norm, cuda->type, call->x[0]));
        DT_TRY(join(backend, call, dt_moments_join));
    }
    DT_CUDA(dt_gpu_norm_forward(cuda->stream, &norm, cuda->type, call->x[0], y_type(cuda, call),
                                call->y));
    return DT_OK;
}

static enum dt_status backward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    struct dt_cuda *cuda = (struct dt_cuda *)backend;
    const struct dt_gpu_norm norm = norm_of(call);
    DT_TRY(dt_cuda_enqueue_waiting(cuda));
    if (norm.shared != NULL) {
        DT_CUDA(dt_gpu_norm_sum(cuda->stream, &norm, cuda->type, call->x[0], y_type(cuda, call),
                                call->dy));
        DT_TRY(join(backend, call, dt_sums_join));
    }
    DT_CUDA(dt_gpu_norm_backward(cuda->stream, &norm, cuda->type, call->x[0], y_type(cuda, call),
                                 call->dy, call->dx[0]));
    return DT_OK;
}

const struct dt_layer_ops dt_cuda_batch_norm = {
    .n_bytes = n_bytes, .forward = forward, .backward = backward};
