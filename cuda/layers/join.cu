/* Layers of several inputs on the cuda backend: the sum of two outputs, and outputs side by side
 * (channels of each place, or units of each sample). A thread per element of an input. */
#include "cuda/layers/layer.cuh"

/* An input in the output: rows of n_c numbers in rows of n_y, from `begin` on. */
struct piece {
    size_t n_elems, n_c, n_y, begin;
};

static inline __device__ size_t place_in(const struct piece &p, size_t i)
{
    return p.n_c == p.n_y ? i : i / p.n_c * p.n_y + p.begin + i % p.n_c;
}

/* b: what is added; NULL: nothing. */
template <typename T, typename Y>
static __global__ void put_kernel(struct piece p, const T *x, const T *b, bool relu, Y *y)
{
    const size_t i = thread_index();
    if (i < p.n_elems) {
        const float v = b != NULL ? (float)x[i] + (float)b[i] : (float)x[i];
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

template <typename T, typename Y>
static cudaError_t put(const struct dt_cuda *cuda, const struct dt_layer_call *call,
                       const struct piece &p, int k, const T *b)
{
    return p.n_elems == 0
               ? cudaSuccess
               : DT_LAUNCH(put_kernel, blocks_for(p.n_elems, THREADS), THREADS, 0, cuda->stream, p,
                           (const T *)call->x[k], b, call->relu, (Y *)call->y);
}

template <typename T, typename Y>
static cudaError_t take(const struct dt_cuda *cuda, const struct dt_layer_call *call,
                        const struct piece &p, int k)
{
    return p.n_elems == 0 || call->dx[k] == NULL
               ? cudaSuccess
               : DT_LAUNCH(take_kernel, blocks_for(p.n_elems, THREADS), THREADS, 0, cuda->stream, p,
                           (const Y *)(call->relu ? call->y : NULL), (const Y *)call->dy,
                           call->adds_dx[k], (T *)call->dx[k]);
}

/* ---- a sum */

static struct piece whole(const struct dt_layer_call *call)
{
    const struct piece p = {(size_t)call->pass->batch->n * call->n_elems, 1, 1, 0};
    return p;
}

template <typename T, typename Y>
static cudaError_t add_launch(const struct dt_cuda *cuda, const struct dt_layer_call *call)
{
    return put<T, Y>(cuda, call, whole(call), 0, (const T *)call->x[1]);
}

template <typename T, typename Y>
static cudaError_t add_launch_backward(const struct dt_cuda *cuda, const struct dt_layer_call *call)
{
    const cudaError_t e = take<T, Y>(cuda, call, whole(call), 0);
    return e != cudaSuccess ? e : take<T, Y>(cuda, call, whole(call), 1);
}

DT_CUDA_LAYER(add, NULL);

/* ---- side by side */

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
static cudaError_t concat_launch(const struct dt_cuda *cuda, const struct dt_layer_call *call)
{
    cudaError_t e = cudaSuccess;
    for (int k = 0; k < DT_MAX_INPUTS && call->x[k] != NULL && e == cudaSuccess; k++) {
        e = put<T, Y>(cuda, call, piece_of(call, k), k, NULL);
    }
    return e;
}

template <typename T, typename Y>
static cudaError_t concat_launch_backward(const struct dt_cuda *cuda,
                                          const struct dt_layer_call *call)
{
    cudaError_t e = cudaSuccess;
    for (int k = 0; k < DT_MAX_INPUTS && call->x[k] != NULL && e == cudaSuccess; k++) {
        e = take<T, Y>(cuda, call, piece_of(call, k), k);
    }
    return e;
}

DT_CUDA_LAYER(concat, NULL);
