/* Outputs side by side on the cuda backend: channels of each place, or units of each sample; a
 * thread per element of an input. */
#include "cuda/layers/layer.cuh"

/* An input in the output: rows of n_c numbers in rows of n_y, from `begin` on. */
struct piece {
    size_t n_elems, n_c, n_y, begin;
};

static inline __device__ size_t place_in(const struct piece &p, size_t i)
{
    return i / p.n_c * p.n_y + p.begin + i % p.n_c;
}

template <typename T, typename Y>
static __global__ void put_kernel(struct piece p, const T *x, bool relu, Y *y)
{
    const size_t i = thread_index();
    if (i < p.n_elems) {
        const float v = (float)x[i];
        y[place_in(p, i)] = (Y)(relu && v < 0 ? 0.0f : v); /* written so that NaN stays NaN */
    }
}

/* y: NULL without a ReLU. */
template <typename T, typename Y>
static __global__ void take_kernel(struct piece p, const Y *y, const Y *dy, bool adds, T *dx)
{
    const size_t i = thread_index();
    if (i < p.n_elems) {
        const size_t j = place_in(p, i);
        const float d = y != NULL && !((float)y[j] > 0) ? 0.0f : (float)dy[j];
        dx[i] = (T)(adds ? (float)dx[i] + d : d);
    }
}

static struct piece piece_of(const struct dt_layer_call *call, int k)
{
    const struct dt_shape out = call->block->linear_out;
    const size_t n_places = (size_t)out.h * (size_t)out.w;
    struct piece p = {(size_t)call->pass->batch->n * call->n_x[k], call->n_x[k] / n_places,
                      (size_t)out.c, 0};
    for (int i = 0; i < k; i++) {
        p.begin += call->n_x[i] / n_places;
    }
    return p;
}

template <typename T, typename Y>
static cudaError_t launch(const struct dt_cuda *cuda, const struct dt_layer_call *call)
{
    cudaError_t e = cudaSuccess;
    for (int k = 0; k < DT_MAX_INPUTS && call->x[k] != NULL && e == cudaSuccess; k++) {
        const struct piece p = piece_of(call, k);
        if (p.n_elems > 0) {
            e = DT_LAUNCH(put_kernel, blocks_for(p.n_elems, THREADS), THREADS, 0, cuda->stream, p,
                          (const T *)call->x[k], call->relu, (Y *)call->y);
        }
    }
    return e;
}

template <typename T, typename Y>
static cudaError_t launch_backward(const struct dt_cuda *cuda, const struct dt_layer_call *call)
{
    cudaError_t e = cudaSuccess;
    for (int k = 0; k < DT_MAX_INPUTS && call->x[k] != NULL && e == cudaSuccess; k++) {
        const struct piece p = piece_of(call, k);
        if (p.n_elems > 0 && call->dx[k] != NULL) {
            e = DT_LAUNCH(take_kernel, blocks_for(p.n_elems, THREADS), THREADS, 0, cuda->stream, p,
                          (const Y *)(call->relu ? call->y : NULL), (const Y *)call->dy,
                          call->adds_dx[k], (T *)call->dx[k]);
        }
    }
    return e;
}

DT_CUDA_LAYER(concat, NULL, launch, launch_backward);
