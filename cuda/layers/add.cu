/* The sum of two outputs on the cuda backend: a thread per element. */
#include "cuda/layers/layer.cuh"

template <typename T, typename Y>
static __global__ void add_kernel(size_t n, const T *a, const T *b, bool relu, Y *y)
{
    const size_t i = thread_index();
    if (i < n) {
        const float sum = (float)a[i] + (float)b[i];
        y[i] = (Y)(relu && sum < 0 ? 0.0f : sum); /* written so that NaN stays NaN */
    }
}

/* y: NULL without a ReLU. */
template <typename T, typename Y>
static __global__ void add_backward_kernel(size_t n, const Y *y, const Y *dy, bool adds, T *dx)
{
    const size_t i = thread_index();
    if (i < n) {
        const float d = y != NULL && !((float)y[i] > 0) ? 0.0f : (float)dy[i];
        dx[i] = (T)(adds ? (float)dx[i] + d : d);
    }
}

static size_t count(const struct dt_layer_call *call)
{
    return (size_t)call->pass->batch->n * call->n_elems;
}

template <typename T, typename Y>
static cudaError_t launch(const struct dt_cuda *cuda, const struct dt_layer_call *call)
{
    const size_t n = count(call);
    return n == 0
               ? cudaSuccess
               : DT_LAUNCH(add_kernel, blocks_for(n, THREADS), THREADS, 0, cuda->stream, n,
                           (const T *)call->x[0], (const T *)call->x[1], call->relu, (Y *)call->y);
}

template <typename T, typename Y>
static cudaError_t launch_backward(const struct dt_cuda *cuda, const struct dt_layer_call *call)
{
    const size_t n = count(call);
    cudaError_t e = cudaSuccess;
    for (int k = 0; k < 2 && n > 0 && e == cudaSuccess; k++) {
        if (call->dx[k] != NULL) {
            e = DT_LAUNCH(add_backward_kernel, blocks_for(n, THREADS), THREADS, 0, cuda->stream, n,
                          (const Y *)(call->relu ? call->y : NULL), (const Y *)call->dy,
                          call->adds_dx[k], (T *)call->dx[k]);
        }
    }
    return e;
}

DT_CUDA_LAYER(add, NULL, launch, launch_backward);
