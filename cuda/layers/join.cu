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
        y[place_in(p, i)] = (Y)activated(relu, v);
    }
}

/* y: NULL without a ReLU. */
template <typename T, typename Y>
static __global__ void take_kernel(struct piece p, const Y *y, const Y *dy, bool adds, T *dx)
{
    const size_t i = thread_index();
    if (i < p.n_elems) {
        const size_t j = place_in(p, i);
        const float d = y != NULL ? passed(true, (float)y[j], (float)dy[j]) : (float)dy[j];
        add_or_put(adds, d, dx + i);
    }
}

/* ---- launches */

/* Whether each input is as large as the output, and added to it. */
static bool is_sum(const struct dt_layer_call *call)
{
    return call->block == NULL || call->n_x[0] == call->n_elems;
}

static struct piece piece_of(const struct dt_layer_call *call, int k)
{
    const size_t n = (size_t)call->pass->batch->n;
    if (is_sum(call)) {
        return {n * call->n_elems, 1, 1, 0};
    }
    const struct dt_shape out = call->block->linear_out;
    const size_t n_places = (size_t)out.h * (size_t)out.w;
    struct piece p = {n * call->n_x[k], call->n_x[k] / n_places, (size_t)out.c, 0};
    for (int i = 0; i < k; i++) {
        p.begin += call->n_x[i] / n_places;
    }
    return p;
}

template <typename T, typename Y>
static enum dt_status put(struct dt_cuda *cuda, const struct dt_layer_call *call)
{
    const T *b = (const T *)(is_sum(call) ? call->x[1] : NULL);
    for (int k = 0; k < (is_sum(call) ? 1 : DT_MAX_INPUTS) && call->x[k] != NULL; k++) {
        const struct piece p = piece_of(call, k);
        DT_LAYER_LAUNCH(put_kernel, blocks_for(p.n_elems, THREADS), p, (const T *)call->x[k], b,
                        call->relu, (Y *)call->y);
    }
    return DT_OK;
}

template <typename T, typename Y>
static enum dt_status take(struct dt_cuda *cuda, const struct dt_layer_call *call)
{
    const Y *y = (const Y *)(call->relu ? call->y : NULL);
    for (int k = 0; k < DT_MAX_INPUTS && call->x[k] != NULL; k++) {
        const struct piece p = piece_of(call, k);
        const size_t n = call->dx[k] != NULL ? p.n_elems : 0;
        DT_LAYER_LAUNCH(take_kernel, blocks_for(n, THREADS), p, y, (const Y *)call->dy,
                        call->adds_dx[k], (T *)call->dx[k]);
    }
    return DT_OK;
}

DT_CUDA_LAYER(add, NULL, put, take);
DT_CUDA_LAYER(concat, NULL, put, take);
