/* Normalization on the cuda backend: batch_norm of each channel over all rows (an image's places,
 * or samples), layer_norm of each sample over its features. Sums over rows are by LANES
 * neighbouring columns; of batch_norm in up to MOST_PARTS parts, in float, which are then added in
 * double, in order. */
#include "cuda/layers/layer.cuh"

#define LANES 32                /* neighbouring columns of a block */
#define TEAMS (THREADS / LANES) /* threads that share a column's rows */
#define MOST_PARTS 256
#define LEAST_ROWS 32 /* of a part */

/* A call by value, with its memory. */
struct norm {
    struct dt_layer_call call; /* without its structs, which the host has; of those: */
    bool training, accumulate;
    float momentum;
    double epsilon;
    size_t n_rows, n_c, n_per_part;
    unsigned n_parts;
    float *mean, *inverse; /* of the deviation: (n_c), or (n_rows) of layer_norm */
    /* Of batch_norm: factors of the backward pass (n_c), two sums for each part (n_parts, n_c), and
     * (n_c, 2) with the number of rows, which ranks add; NULL: these rows alone count. */
    float *per_x, *fixed, *sums, *products;
    double *shared;
};

static size_t batch_bytes(const struct dt_block *block, int)
{
    const size_t n_c = (size_t)block->in.c;
    return (2 * n_c + 1) * sizeof(double) + (4 + 2 * MOST_PARTS) * n_c * sizeof(float);
}

static size_t layer_bytes(const struct dt_block *, int capacity)
{
    return 2 * (size_t)capacity * sizeof(float);
}

static struct norm norm_of(const struct dt_layer_call *call)
{
    const size_t n = (size_t)call->pass->batch->n;
    struct norm norm = {};
    norm.call = *call;
    norm.call.layer = NULL;
    norm.call.block = NULL;
    norm.call.pass = NULL;
    norm.call.ranks = NULL;
    norm.training = call->pass->training;
    norm.accumulate = call->pass->accumulate;
    norm.epsilon = call->layer->epsilon;
    norm.n_rows = norm.n_per_part = n;
    norm.n_parts = 1;
    norm.n_c = call->n_elems;
    norm.mean = (float *)call->memory;
    norm.inverse = norm.mean + n;
    return norm;
}

static struct norm batch_norm_of(const struct dt_layer_call *call)
{
    struct norm norm = norm_of(call);
    const size_t n_c = (size_t)call->block->in.c;
    double *shared = (double *)call->memory;
    norm.n_rows *= (size_t)call->block->in.h * (size_t)call->block->in.w;
    const size_t fair = (norm.n_rows + MOST_PARTS - 1) / MOST_PARTS;
    norm.n_per_part = fair > LEAST_ROWS ? fair : LEAST_ROWS;
    norm.n_parts = blocks_for(norm.n_rows, (unsigned)norm.n_per_part);
    norm.n_c = n_c;
    norm.momentum = (float)call->layer->momentum;
    norm.epsilon = (double)(float)call->layer->epsilon;
    norm.mean = (float *)(shared + 2 * n_c + 1);
    norm.inverse = norm.mean + n_c;
    norm.per_x = norm.inverse + n_c;
    norm.fixed = norm.per_x + n_c;
    norm.sums = norm.fixed + n_c;
    norm.products = norm.sums + MOST_PARTS * n_c;
    norm.shared = call->ranks != NULL ? shared : NULL;
    return norm;
}

/* ---- sums over rows: a block has LANES columns of a part */

struct piece {
    size_t c, begin, end, n_rows; /* the thread's rows; of the part */
    bool tells;                   /* one of the column's threads */
};

static inline __device__ size_t rows_in(const struct norm &norm, unsigned part)
{
    const size_t left = norm.n_rows - part * norm.n_per_part;
    return left < norm.n_per_part ? left : norm.n_per_part;
}

static inline __device__ struct piece piece_of(const struct norm &norm)
{
    const size_t first = blockIdx.y * norm.n_per_part, n = rows_in(norm, blockIdx.y),
                 c = (size_t)blockIdx.x * LANES + threadIdx.x % LANES;
    const struct piece p = {c, first + threadIdx.x / LANES, c < norm.n_c ? first + n : 0, n,
                            c < norm.n_c && threadIdx.x < LANES};
    return p;
}

/* value(row, index, sums) adds to N sums over the column's rows, which all of its threads get. */
template <int N, typename Value>
static inline __device__ void column_sums(const struct norm &norm, const struct piece &p,
                                          float *sums, Value value)
{
    for (size_t row = p.begin; row < p.end; row += TEAMS) {
        value(row, row * norm.n_c + p.c, sums);
    }
    for (int i = 0; i < N; i++) {
        sums[i] = team_sum(sums[i], LANES);
    }
}

static inline __device__ void keep_part(const struct norm &norm, const struct piece &p, float sum,
                                        float product)
{
    if (p.tells) {
        norm.sums[(size_t)blockIdx.y * norm.n_c + p.c] = sum;
        norm.products[(size_t)blockIdx.y * norm.n_c + p.c] = product;
    }
}

static inline __device__ void add_gradients(const struct norm &norm, size_t c, float db, float dw)
{
    norm.call.dbias[c] = (norm.accumulate ? norm.call.dbias[c] : 0.0f) + db;
    norm.call.dweight[c] = (norm.accumulate ? norm.call.dweight[c] : 0.0f) + dw;
}

/* ---- batch_norm: statistics of each channel */

template <typename T> static __global__ void measure_kernel(struct norm norm, const T *x)
{
    const struct piece p = piece_of(norm);
    float mean = 0, squares = 0;
    column_sums<1>(norm, p, &mean, [&](size_t, size_t i, float *sum) { *sum += (float)x[i]; });
    mean /= (float)p.n_rows;
    column_sums<1>(norm, p, &squares, [&](size_t, size_t i, float *sum) {
        *sum += ((float)x[i] - mean) * ((float)x[i] - mean);
    });
    keep_part(norm, p, mean, squares);
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
        sum += (double)rows_in(norm, p) * (double)norm.sums[(size_t)p * norm.n_c + c];
    }
    const double mean = sum / (double)norm.n_rows;
    *squares = 0;
    for (unsigned p = 0; p < norm.n_parts; p++) {
        const double d = (double)norm.sums[(size_t)p * norm.n_c + c] - mean;
        *squares +=
            (double)norm.products[(size_t)p * norm.n_c + c] + (double)rows_in(norm, p) * d * d;
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
    double mean = (double)norm.call.running[0][c], var = (double)norm.call.running[1][c];
    if (norm.training && n > 0) {
        double squares = norm.shared != NULL ? n * norm.shared[2 * c + 1] : 0;
        mean = norm.shared != NULL ? norm.shared[2 * c] : add_parts(norm, c, &squares);
        var = squares / n;
        if (n > 1) {
            norm.call.running[0][c] =
                followed(norm.call.running[0][c], (double)norm.momentum, mean);
            norm.call.running[1][c] =
                followed(norm.call.running[1][c], (double)norm.momentum, squares / (n - 1));
        }
    }
    norm.mean[c] = (float)mean;
    norm.inverse[c] = (float)(1.0 / sqrt(var + norm.epsilon));
}

/* As both passes have it, so that both agree on what a ReLU lets pass. */
static inline __device__ float normalized(const struct norm &norm, size_t c, float x)
{
    return (x - norm.mean[c]) * (norm.inverse[c] * norm.call.weight[c]) + norm.call.bias[c];
}

template <typename T, typename Y>
static __global__ void batch_kernel(struct norm norm, const T *x, Y *y)
{
    const size_t i = thread_index();
    if (i < norm.n_rows * norm.n_c) {
        y[i] = (Y)activated(norm.call.relu, normalized(norm, i % norm.n_c, (float)x[i]));
    }
}

template <typename T, typename Y>
static inline __device__ float batch_gradient(const struct norm &norm, size_t c, T x, Y dy)
{
    return passed(norm.call.relu, normalized(norm, c, (float)x), (float)dy);
}

template <typename T, typename Y>
static __global__ void batch_sum_kernel(struct norm norm, const T *x, const Y *dy)
{
    const struct piece p = piece_of(norm);
    float sums[2] = {};
    column_sums<2>(norm, p, sums, [&](size_t, size_t i, float *sum) {
        const float d = batch_gradient(norm, p.c, x[i], dy[i]);
        sum[0] += d;
        sum[1] += d * ((float)x[i] - norm.mean[p.c]);
    });
    keep_part(norm, p, sums[0], sums[1]);
}

/* dx = dy scale + (x - mean) per_x + fixed */
static inline __device__ void prepare_dx(const struct norm &norm, size_t c, double n, double sum,
                                         double product)
{
    const double inverse = (double)norm.inverse[c], scale = inverse * (double)norm.call.weight[c];
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

/* Adds the parts. */
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
    add_gradients(norm, c, (float)sum, (float)(product * (double)norm.inverse[c]));
    if (norm.shared != NULL) {
        norm.shared[2 * c] = sum;
        norm.shared[2 * c + 1] = product;
    } else {
        prepare_dx(norm, c, (double)norm.n_rows, sum, product);
    }
}

template <typename T, typename Y>
static __global__ void batch_backward_kernel(struct norm norm, const T *x, const Y *dy, T *dx)
{
    const size_t i = thread_index();
    if (i < norm.n_rows * norm.n_c) {
        const size_t c = i % norm.n_c;
        const float d =
            batch_gradient(norm, c, x[i], dy[i]) * (norm.inverse[c] * norm.call.weight[c]) +
            (((float)x[i] - norm.mean[c]) * norm.per_x[c] + norm.fixed[c]);
        add_or_put(norm.call.adds_dx[0], d, dx + i);
    }
}

/* Launches by columns of parts, with a thread per channel, and with a thread per element. */
#define PIECES(kernel, ...) \
    DT_LAYER_LAUNCH(kernel, dim3(blocks_for(norm.n_c, LANES), norm.n_parts), norm, ##__VA_ARGS__)
#define CHANNELS(kernel) DT_LAYER_LAUNCH(kernel, blocks_for(norm.n_c, THREADS), norm)
#define ELEMENTS(kernel, ...) \
    DT_LAYER_LAUNCH(kernel, blocks_for(norm.n_rows *norm.n_c, THREADS), norm, __VA_ARGS__)

/* By way of host memory. Sums of gradients by NCCL go on meanwhile, in a stream of their own. */
static enum dt_status join(struct dt_cuda *cuda, const struct dt_layer_call *call,
                           enum dt_status (*add)(const struct dt_layer_call *call, double *values))
{
    struct dt_backend *backend = &cuda->base;
    double *values = call->ranks->values;
    const size_t n_bytes = (2 * (size_t)call->block->in.c + 1) * sizeof *values;
    DT_TRY(backend->ops->copy_out(backend, values, call->memory, n_bytes));
    DT_TRY(add(call, values));
    return backend->ops->copy_in(backend, call->memory, values, n_bytes);
}

template <typename T, typename Y>
static enum dt_status batch_launch(struct dt_cuda *cuda, const struct dt_layer_call *call)
{
    const struct norm norm = batch_norm_of(call);
    if (norm.training) {
        PIECES(measure_kernel, (const T *)call->x[0]);
    }
    if (norm.shared != NULL) {
        CHANNELS(moments_kernel);
        DT_TRY(join(cuda, call, dt_moments_join));
    }
    CHANNELS(statistics_kernel);
    ELEMENTS(batch_kernel, (const T *)call->x[0], (Y *)call->y);
    return DT_OK;
}

template <typename T, typename Y>
static enum dt_status batch_launch_backward(struct dt_cuda *cuda, const struct dt_layer_call *call)
{
    const struct norm norm = batch_norm_of(call);
    const T *x = (const T *)call->x[0];
    const Y *dy = (const Y *)call->dy;
    PIECES(batch_sum_kernel, x, dy);
    CHANNELS(gradients_kernel);
    if (norm.shared != NULL) {
        DT_TRY(join(cuda, call, dt_sums_join));
        CHANNELS(shared_dx_kernel);
    }
    if (call->dx[0] != NULL) {
        ELEMENTS(batch_backward_kernel, x, dy, (T *)call->dx[0]);
    }
    return DT_OK;
}

DT_CUDA_LAYER(batch_norm, batch_bytes, batch_launch, batch_launch_backward);

/* ---- layer_norm: a block per sample */

/* Likewise value(index, sums) over the block's sample, in double. */
template <int N, typename Value>
static inline __device__ void row_sums(const struct norm &norm, double *sums, Value value)
{
    for (size_t i = threadIdx.x; i < norm.n_c; i += THREADS) {
        value(i, sums);
    }
    for (int i = 0; i < N; i++) {
        sums[i] = block_sum(sums[i]);
    }
}

/* Two passes over x, so that no difference of large numbers is taken. */
template <typename T, typename Y>
static __global__ void layer_kernel(struct norm norm, const T *x_, Y *y_)
{
    const T *x = x_ + (size_t)blockIdx.x * norm.n_c;
    Y *y = y_ + (size_t)blockIdx.x * norm.n_c;
    double sum = 0, squares = 0;
    row_sums<1>(norm, &sum, [&](size_t i, double *to) { *to += (double)(float)x[i]; });
    const float mean = (float)(sum / (double)norm.n_c);
    row_sums<1>(norm, &squares, [&](size_t i, double *to) {
        *to += (double)(((float)x[i] - mean) * ((float)x[i] - mean));
    });
    const float inverse = (float)(1.0 / sqrt(squares / (double)norm.n_c + norm.epsilon));
    for (size_t i = threadIdx.x; i < norm.n_c; i += THREADS) {
        const float v = ((float)x[i] - mean) * inverse * norm.call.weight[i] + norm.call.bias[i];
        y[i] = (Y)activated(norm.call.relu, v);
    }
    if (threadIdx.x == 0) {
        norm.mean[blockIdx.x] = mean;
        norm.inverse[blockIdx.x] = inverse;
    }
}

/* dx = (g - mean of g - x mean of g x) / deviation, where g = weight dy, and x is normalized. */
template <typename T, typename Y>
static __global__ void layer_backward_kernel(struct norm norm, const T *x_, const Y *y_,
                                             const Y *dy_, T *dx_)
{
    const size_t begin = (size_t)blockIdx.x * norm.n_c;
    const T *x = x_ + begin;
    const Y *y = y_ + begin, *dy = dy_ + begin;
    T *dx = dx_ + begin;
    const float mean = norm.mean[blockIdx.x], inverse = norm.inverse[blockIdx.x];
    const auto g = [&](size_t i) {
        return passed(norm.call.relu, (float)y[i], (float)dy[i]) * norm.call.weight[i];
    };
    const auto v = [&](size_t i) { return ((float)x[i] - mean) * inverse; };
    double sums[2] = {};
    row_sums<2>(norm, sums, [&](size_t i, double *sum) {
        sum[0] += (double)g(i);
        sum[1] += (double)(g(i) * v(i));
    });
    const float mean_g = (float)(sums[0] / (double)norm.n_c),
                mean_gx = (float)(sums[1] / (double)norm.n_c);
    for (size_t i = threadIdx.x; i < norm.n_c; i += THREADS) {
        add_or_put(norm.call.adds_dx[0], (g(i) - mean_g - v(i) * mean_gx) * inverse, dx + i);
    }
}

template <typename T, typename Y>
static __global__ void layer_sum_kernel(struct norm norm, const T *x, const Y *y, const Y *dy)
{
    const struct piece p = piece_of(norm);
    float sums[2] = {};
    column_sums<2>(norm, p, sums, [&](size_t row, size_t i, float *sum) {
        const float d = passed(norm.call.relu, (float)y[i], (float)dy[i]);
        sum[0] += d;
        sum[1] += d * (((float)x[i] - norm.mean[row]) * norm.inverse[row]);
    });
    if (p.tells) {
        add_gradients(norm, p.c, sums[0], sums[1]);
    }
}

template <typename T, typename Y>
static enum dt_status layer_launch(struct dt_cuda *cuda, const struct dt_layer_call *call)
{
    const struct norm norm = norm_of(call);
    DT_LAYER_LAUNCH(layer_kernel, (unsigned)norm.n_rows, norm, (const T *)call->x[0], (Y *)call->y);
    return DT_OK;
}

template <typename T, typename Y>
static enum dt_status layer_launch_backward(struct dt_cuda *cuda, const struct dt_layer_call *call)
{
    const struct norm norm = norm_of(call);
    const T *x = (const T *)call->x[0];
    const Y *y = (const Y *)call->y, *dy = (const Y *)call->dy;
    PIECES(layer_sum_kernel, x, y, dy);
    if (call->dx[0] != NULL) {
        DT_LAYER_LAUNCH(layer_backward_kernel, (unsigned)norm.n_rows, norm, x, y, dy,
                        (T *)call->dx[0]);
    }
    return DT_OK;
}

DT_CUDA_LAYER(layer_norm, layer_bytes, layer_launch, layer_launch_backward);
