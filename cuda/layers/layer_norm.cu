/* Normalization of a sample's features on the cuda backend: a block per sample; gradients of weight
 * and bias by LANES features at a time. */
#include "cuda/layers/layer.cuh"

#define LANES 32                /* neighbouring features of a block */
#define TEAMS (THREADS / LANES) /* threads that share a feature's samples */

/* A call by value. */
struct norm {
    size_t n_elems;
    int n;
    bool relu, adds, accumulate;
    double epsilon;
    const float *weight, *bias;
    float *kept; /* of each sample mean, and 1 / deviation */
    float *dweight, *dbias;
};

static size_t n_bytes(const struct dt_block *block, int capacity)
{
    (void)block;
    return 2 * (size_t)capacity * sizeof(float);
}

static struct norm norm_of(const struct dt_layer_call *call)
{
    struct norm norm;
    memset(&norm, 0, sizeof norm); /* padding, too: launches are compared by their bytes */
    norm.n_elems = call->n_elems;
    norm.n = call->pass->batch->n;
    norm.relu = call->relu;
    norm.adds = call->adds_dx[0];
    norm.accumulate = call->pass->accumulate;
    norm.epsilon = call->layer->epsilon;
    norm.weight = call->weight;
    norm.bias = call->bias;
    norm.kept = (float *)call->memory;
    norm.dweight = call->dweight;
    norm.dbias = call->dbias;
    return norm;
}

/* Two passes over x, so that no difference of large numbers is taken. */
template <typename T, typename Y>
static __global__ void forward_kernel(struct norm norm, const T *x, Y *y)
{
    const size_t begin = (size_t)blockIdx.x * norm.n_elems;
    double sum = 0, squares = 0;
    for (size_t i = threadIdx.x; i < norm.n_elems; i += THREADS) {
        sum += (double)(float)x[begin + i];
    }
    const float mean = (float)(block_sum(sum) / (double)norm.n_elems);
    for (size_t i = threadIdx.x; i < norm.n_elems; i += THREADS) {
        const float d = (float)x[begin + i] - mean;
        squares += (double)(d * d);
    }
    const float inverse =
        (float)(1.0 / sqrt(block_sum(squares) / (double)norm.n_elems + norm.epsilon));
    for (size_t i = threadIdx.x; i < norm.n_elems; i += THREADS) {
        const float v = ((float)x[begin + i] - mean) * inverse * norm.weight[i] + norm.bias[i];
        y[begin + i] = (Y)(norm.relu && v < 0 ? 0.0f : v); /* written so that NaN stays NaN */
    }
    if (threadIdx.x == 0) {
        norm.kept[2 * blockIdx.x] = mean;
        norm.kept[2 * blockIdx.x + 1] = inverse;
    }
}

/* The gradient behind the ReLU. */
template <typename Y>
static inline __device__ float gradient(const struct norm &norm, const Y *y, const Y *dy, size_t i)
{
    return norm.relu && !((float)y[i] > 0) ? 0.0f : (float)dy[i];
}

/* dx = (g - mean of g - x mean of g x) / deviation, where g = weight dy, and x is normalized. */
template <typename T, typename Y>
static __global__ void backward_kernel(struct norm norm, const T *x, const Y *y, const Y *dy, T *dx)
{
    const size_t begin = (size_t)blockIdx.x * norm.n_elems;
    const float mean = norm.kept[2 * blockIdx.x], inverse = norm.kept[2 * blockIdx.x + 1];
    double sum = 0, product = 0;
    for (size_t i = threadIdx.x; i < norm.n_elems; i += THREADS) {
        const float g = gradient(norm, y, dy, begin + i) * norm.weight[i];
        sum += (double)g;
        product += (double)(g * (((float)x[begin + i] - mean) * inverse));
    }
    const float mean_g = (float)(block_sum(sum) / (double)norm.n_elems),
                mean_gx = (float)(block_sum(product) / (double)norm.n_elems);
    for (size_t i = threadIdx.x; i < norm.n_elems; i += THREADS) {
        const float g = gradient(norm, y, dy, begin + i) * norm.weight[i],
                    v = ((float)x[begin + i] - mean) * inverse,
                    d = (g - mean_g - v * mean_gx) * inverse;
        dx[begin + i] = (T)(norm.adds ? (float)dx[begin + i] + d : d);
    }
}

template <typename T, typename Y>
static __global__ void gradients_kernel(struct norm norm, const T *x, const Y *y, const Y *dy)
{
    const size_t i = (size_t)blockIdx.x * LANES + threadIdx.x % LANES;
    const int first = (int)(threadIdx.x / LANES);
    float db = 0, dw = 0;
    for (int sample = first; sample < norm.n && i < norm.n_elems; sample += TEAMS) {
        const size_t at = (size_t)sample * norm.n_elems + i;
        const float d = gradient(norm, y, dy, at);
        db += d;
        dw += d * (((float)x[at] - norm.kept[2 * sample]) * norm.kept[2 * sample + 1]);
    }
    db = team_sum(db, LANES);
    dw = team_sum(dw, LANES);
    if (first == 0 && i < norm.n_elems) {
        norm.dbias[i] = (norm.accumulate ? norm.dbias[i] : 0.0f) + db;
        norm.dweight[i] = (norm.accumulate ? norm.dweight[i] : 0.0f) + dw;
    }
}

template <typename T, typename Y>
static cudaError_t launch(const struct dt_cuda *cuda, const struct dt_layer_call *call)
{
    const struct norm norm = norm_of(call);
    return norm.n == 0 ? cudaSuccess
                       : DT_LAUNCH(forward_kernel, (unsigned)norm.n, THREADS, 0, cuda->stream, norm,
                                   (const T *)call->x[0], (Y *)call->y);
}

template <typename T, typename Y>
static cudaError_t launch_backward(const struct dt_cuda *cuda, const struct dt_layer_call *call)
{
    const struct norm norm = norm_of(call);
    const T *x = (const T *)call->x[0];
    const Y *y = (const Y *)call->y, *dy = (const Y *)call->dy;
    const cudaError_t e = DT_LAUNCH(gradients_kernel, blocks_for(norm.n_elems, LANES), THREADS, 0,
                                    cuda->stream, norm, x, y, dy);
    return e != cudaSuccess || call->dx[0] == NULL || norm.n == 0
               ? e
               : DT_LAUNCH(backward_kernel, (unsigned)norm.n, THREADS, 0, cuda->stream, norm, x, y,
                           dy, (T *)call->dx[0]);
}

DT_CUDA_LAYER(layer_norm, n_bytes, launch, launch_backward);
