/* Batch normalization. */
#include "cuda/kernels/kernels.cuh"
#include "cuda/kernels/norm.h"

#define LANES 32                /* neighbouring channels of a block */
#define TEAMS (THREADS / LANES) /* threads that share a channel's rows */
#define MOST_PARTS 256

/* A normalization by value, with its memory: per channel mean, 1 / deviation, and the factors of
 * the backward pass; then two sums for each part. */
struct norm {
    size_t n_rows, n_per_part;
    unsigned n_parts, n_c;
    bool relu, training, adds, accumulate;
    float momentum, epsilon;
    const float *weight, *bias;
    float *running_mean, *running_var, *dweight, *dbias;
    float *mean, *inverse, *per_x, *fixed, *sums, *products;
    double *shared;
};

size_t dt_gpu_norm_floats(int n_c)
{
    return (4 + 2 * MOST_PARTS) * (size_t)n_c;
}

static struct norm norm_of(const struct dt_gpu_norm *n)
{
    const size_t n_c = (size_t)n->n_c, fair = (n->n_rows + MOST_PARTS - 1) / MOST_PARTS,
                 n_per_part = fair > 32 ? fair : 32;
    struct norm norm;
    memset(&norm, 0, sizeof norm);
    norm.n_rows = n->n_rows;
    norm.n_per_part = n_per_part;
    norm.n_parts = (unsigned)((n->n_rows + n_per_part - 1) / n_per_part);
    norm.n_c = (unsigned)n_c;
    norm.relu = n->relu;
    norm.training = n->training;
    norm.adds = n->adds;
    norm.accumulate = n->accumulate;
    norm.momentum = n->momentum;
    norm.epsilon = n->epsilon;
    norm.weight = n->weight;
    norm.bias = n->bias;
    norm.running_mean = n->running_mean;
    norm.running_var = n->running_var;
    norm.dweight = n->dweight;
    norm.dbias = n->dbias;
    norm.mean = n->memory;
    norm.inverse = norm.mean + n_c;
    norm.per_x = norm.inverse + n_c;
    norm.fixed = norm.per_x + n_c;
    norm.sums = norm.fixed + n_c;
    norm.products = norm.sums + MOST_PARTS * n_c;
    norm.shared = n->shared;
    return norm;
}

/* A block: some rows of LANES channels. */
struct piece {
    unsigned c;
    bool there; /* its channel exists */
    size_t begin, end;
};

static inline __device__ struct piece piece_of(const struct norm &norm)
{
    struct piece p;
    p.c = blockIdx.y * LANES + threadIdx.x % LANES;
    p.there = p.c < norm.n_c;
    const size_t first = (size_t)blockIdx.x * norm.n_per_part, last = first + norm.n_per_part;
    p.begin = p.there ? first + threadIdx.x / LANES : 0;
    p.end = !p.there ? 0 : last < norm.n_rows ? last : norm.n_rows;
    return p;
}

template <typename T> static __global__ void measure_kernel(struct norm norm, const T *x)
{
    const struct piece p = piece_of(norm);
    const size_t first = (size_t)blockIdx.x * norm.n_per_part, n_left = norm.n_rows - first,
                 n_here = n_left < norm.n_per_part ? n_left : norm.n_per_part;
    float sum = 0, squares = 0;
    for (size_t row = p.begin; row < p.end; row += TEAMS) {
        sum += (float)x[row * norm.n_c + p.c];
    }
    const float mean = team_sum(sum, LANES) / (float)n_here;
    for (size_t row = p.begin; row < p.end; row += TEAMS) {
        const float d = (float)x[row * norm.n_c + p.c] - mean;
        squares += d * d;
    }
    squares = team_sum(squares, LANES);
    if (p.there && threadIdx.x < LANES) {
        norm.sums[(size_t)blockIdx.x * norm.n_c + p.c] = mean;
        norm.products[(size_t)blockIdx.x * norm.n_c + p.c] = squares;
    }
}

static inline __device__ double rows_in(const struct norm &norm, unsigned part)
{
    const size_t left = norm.n_rows - part * norm.n_per_part;
    return (double)(left < norm.n_per_part ? left : norm.n_per_part);
}

static inline __device__ float followed(float running, double momentum, double value)
{
    return (float)((1.0 - momentum) * (double)running + momentum * value);
}

/* The mean of a channel's parts and the squares of distances from it (Chan, Golub and LeVeque
 * 1979). */
static inline __device__ double add_parts(const struct norm &norm, size_t c, double *squares)
{
    double sum = 0;
    for (unsigned p = 0; p < norm.n_parts; p++) {
        sum += rows_in(norm, p) * (double)norm.sums[(size_t)p * norm.n_c + c];
    }
    const double mean = sum / (double)norm.n_rows;
    *squares = 0;
    for (unsigned p = 0; p < norm.n_parts; p++) {
        const double d = (double)norm.sums[(size_t)p * norm.n_c + c] - mean;
        *squares += (double)norm.products[(size_t)p * norm.n_c + c] + rows_in(norm, p) * d * d;
    }
    return mean;
}

/* A thread per channel, as in the next ones. */
static __global__ void moments_kernel(struct norm norm)
{
    const size_t c = thread_index();
    if (c < norm.n_c) {
        double squares;
        norm.shared[2 * c] = add_parts(norm, c, &squares);
        norm.shared[2 * c + 1] = squares / (double)norm.n_rows;
        norm.shared[2 * norm.n_c] = (double)norm.n_rows; /* the same from each thread */
    }
}

/* The running variance is unbiased, the one that normalizes is not, as in PyTorch. One value has
 * no variance, so the running statistics stay as they are. */
static __global__ void statistics_kernel(struct norm norm)
{
    const size_t c = thread_index();
    if (c >= norm.n_c) {
        return;
    }
    const double n = norm.shared != NULL ? norm.shared[2 * norm.n_c] : (double)norm.n_rows;
    double mean = (double)norm.running_mean[c], var = (double)norm.running_var[c];
    if (norm.training && n > 0) {
        double squares;
        if (norm.shared != NULL) {
            mean = norm.shared[2 * c];
            squares = n * norm.shared[2 * c + 1];
        } else {
            mean = add_parts(norm, c, &squares);
        }
        var = squares / n;
        if (n > 1) {
            norm.running_mean[c] = followed(norm.running_mean[c], (double)norm.momentum, mean);
            norm.running_var[c] =
                followed(norm.running_var[c], (double)norm.momentum, squares / (n - 1));
        }
    }
    norm.mean[c] = (float)mean;
    norm.inverse[c] = (float)(1.0 / sqrt(var + (double)norm.epsilon));
}

/* As both passes have it, so that both agree on what a ReLU lets pass. */
static inline __device__ float normalized(const struct norm &norm, unsigned c, float x)
{
    return (x - norm.mean[c]) * (norm.inverse[c] * norm.weight[c]) + norm.bias[c];
}

template <typename T, typename Y>
static __global__ void apply_kernel(struct norm norm, const T *x, Y *y)
{
    const size_t i = thread_index();
    if (i < norm.n_rows * norm.n_c) {
        const float v = normalized(norm, (unsigned)(i % norm.n_c), (float)x[i]);
        y[i] = (Y)(norm.relu && v < 0 ? 0.0f : v); /* written so that NaN stays NaN */
    }
}

template <typename T, typename Y>
static inline __device__ float gradient(const struct norm &norm, unsigned c, T x, Y dy)
{
    return norm.relu && !(normalized(norm, c, (float)x) > 0) ? 0.0f : (float)dy;
}

template <typename T, typename Y>
static __global__ void sum_kernel(struct norm norm, const T *x, const Y *dy)
{
    const struct piece p = piece_of(norm);
    float sum = 0, product = 0;
    for (size_t row = p.begin; row < p.end; row += TEAMS) {
        const size_t i = row * norm.n_c + p.c;
        const float d = gradient(norm, p.c, x[i], dy[i]);
        sum += d;
        product += d * ((float)x[i] - norm.mean[p.c]);
    }
    sum = team_sum(sum, LANES);
    product = team_sum(product, LANES);
    if (p.there && threadIdx.x < LANES) {
        norm.sums[(size_t)blockIdx.x * norm.n_c + p.c] = sum;
        norm.products[(size_t)blockIdx.x * norm.n_c + p.c] = product;
    }
}

/* dx = dy scale + (x - mean) per_x + fixed */
static inline __device__ void prepare_dx(const struct norm &norm, size_t c, double n, double sum,
                                         double product)
{
    const double inverse = (double)norm.inverse[c], scale = inverse * (double)norm.weight[c];
    norm.per_x[c] = (float)(-scale * inverse * inverse * product / n);
    norm.fixed[c] = (float)(-scale * sum / n);
}

static __global__ void shared_dx_kernel(struct norm norm)
{
    const size_t c = thread_index();
    if (c < norm.n_c) {
        prepare_dx(norm, c, norm.shared[2 * norm.n_c], norm.shared[2 * c], norm.shared[2 * c + 1]);
    }
}

/* A thread per channel adds the parts. */
static __global__ void gradients_kernel(struct norm norm)
{
    const size_t c = thread_index();
    if (c >= norm.n_c) {
        return;
    }
    double sum = 0, product = 0;
    for (unsigned p = 0; p < norm.n_parts; p++) {
        sum += (double)norm.sums[(size_t)p * norm.n_c + c];
        product += (double)norm.products[(size_t)p * norm.n_c + c];
    }
    norm.dbias[c] = (norm.accumulate ? norm.dbias[c] : 0.0f) + (float)sum;
    norm.dweight[c] =
        (norm.accumulate ? norm.dweight[c] : 0.0f) + (float)(product * (double)norm.inverse[c]);
    if (norm.shared != NULL) {
        norm.shared[2 * c] = sum;
        norm.shared[2 * c + 1] = product;
    } else {
        prepare_dx(norm, c, (double)norm.n_rows, sum, product);
    }
}

template <typename T, typename Y>
static __global__ void backward_kernel(struct norm norm, const T *x, const Y *dy, T *dx)
{
    const size_t i = thread_index();
    if (i < norm.n_rows * norm.n_c) {
        const unsigned c = (unsigned)(i % norm.n_c);
        const float d = gradient(norm, c, x[i], dy[i]) * (norm.inverse[c] * norm.weight[c]) +
                        (((float)x[i] - norm.mean[c]) * norm.per_x[c] + norm.fixed[c]);
        dx[i] = (T)(norm.adds ? (float)dx[i] + d : d);
    }
}

static dim3 pieces_of(const struct norm *norm)
{
    return dim3(norm->n_parts, (norm->n_c + LANES - 1) / LANES);
}

static unsigned blocks_of(const struct norm *norm)
{
    return blocks_for(norm->n_rows * norm->n_c, THREADS);
}

template <typename T>
static cudaError_t measure(cudaStream_t stream, const struct norm &norm, const T *x)
{
    return norm.n_rows == 0
               ? cudaSuccess
               : DT_LAUNCH(measure_kernel, pieces_of(&norm), THREADS, 0, stream, norm, x);
}

cudaError_t dt_gpu_norm_measure(cudaStream_t stream, const struct dt_gpu_norm *n,
                                enum dt_gpu_type type, const void *x)
{
    const struct norm norm = norm_of(n);
    const cudaError_t e = type == DT_GPU_F32 ? measure(stream, norm, (const float *)x)
                                             : measure(stream, norm, (const bf16 *)x);
    return e != cudaSuccess
               ? e
               : DT_LAUNCH(moments_kernel, blocks_for(norm.n_c, THREADS), THREADS, 0, stream, norm);
}

template <typename T, typename Y>
static cudaError_t forward(cudaStream_t stream, const struct norm norm, const T *x, Y *y)
{
    cudaError_t e = cudaSuccess;
    if (norm.training && norm.shared == NULL) {
        e = measure(stream, norm, x);
    }
    if (e == cudaSuccess) {
        e = DT_LAUNCH(statistics_kernel, blocks_for(norm.n_c, THREADS), THREADS, 0, stream, norm);
    }
    return e != cudaSuccess || norm.n_rows == 0
               ? e
               : DT_LAUNCH(apply_kernel, blocks_of(&norm), THREADS, 0, stream, norm, x, y);
}

cudaError_t dt_gpu_norm_forward(cudaStream_t stream, const struct dt_gpu_norm *n,
                                enum dt_gpu_type type, const void *x, enum dt_gpu_type y_type,
                                void *y)
{
    const struct norm norm = norm_of(n);
    if (type == DT_GPU_F32) {
        return forward(stream, norm, (const float *)x, (float *)y);
    }
    return y_type == DT_GPU_F32 ? forward(stream, norm, (const bf16 *)x, (float *)y)
                                : forward(stream, norm, (const bf16 *)x, (bf16 *)y);
}

template <typename T, typename Y>
static cudaError_t sum(cudaStream_t stream, const struct norm &norm, const T *x, const Y *dy)
{
    cudaError_t e = cudaSuccess;
    if (norm.n_rows > 0) {
        e = DT_LAUNCH(sum_kernel, pieces_of(&norm), THREADS, 0, stream, norm, x, dy);
    }
    return e != cudaSuccess ? e
                            : DT_LAUNCH(gradients_kernel, blocks_for(norm.n_c, THREADS), THREADS, 0,
                                        stream, norm);
}

cudaError_t dt_gpu_norm_sum(cudaStream_t stream, const struct dt_gpu_norm *n, enum dt_gpu_type type,
                            const void *x, enum dt_gpu_type dy_type, const void *dy)
{
    const struct norm norm = norm_of(n);
    if (type == DT_GPU_F32) {
        return sum(stream, norm, (const float *)x, (const float *)dy);
    }
    return dy_type == DT_GPU_F32 ? sum(stream, norm, (const bf16 *)x, (const float *)dy)
                                 : sum(stream, norm, (const bf16 *)x, (const bf16 *)dy);
}

template <typename T, typename Y>
static cudaError_t backward(cudaStream_t stream, const struct norm norm, const T *x, const Y *dy,
                            T *dx)
{
    const cudaError_t e =
        norm.shared == NULL
            ? sum(stream, norm, x, dy)
            : DT_LAUNCH(shared_dx_kernel, blocks_for(norm.n_c, THREADS), THREADS, 0, stream, norm);
    return e != cudaSuccess || dx == NULL || norm.n_rows == 0
               ? e
               : DT_LAUNCH(backward_kernel, blocks_of(&norm), THREADS, 0, stream, norm, x, dy, dx);
}

cudaError_t dt_gpu_norm_backward(cudaStream_t stream, const struct dt_gpu_norm *n,
                                 enum dt_gpu_type type, const void *x, enum dt_gpu_type dy_type,
                                 const void *dy, void *dx)
{
    const struct norm norm = norm_of(n);
    if (type == DT_GPU_F32) {
        return backward(stream, norm, (const float *)x, (const float *)dy, (float *)dx);
    }
    return dy_type == DT_GPU_F32
               ? backward(stream, norm, (const bf16 *)x, (const float *)dy, (bf16 *)dx)
               : backward(stream, norm, (const bf16 *)x, (const bf16 *)dy, (bf16 *)dx);
}
