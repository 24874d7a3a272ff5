/* Kernels for a head: a dense layer with few outputs and only the loss after it. Such a product has
 * too few columns for a library's tiles, and all data of a sample fit into the block that computes
 * its logits. */
#include "cuda/kernels/kernels.cuh"

#define LANES 32               /* threads of a sample, or inputs of a block in backward */
#define ROWS (THREADS / LANES) /* samples at a time */
#define TILE 32                /* samples whose dlogits a block holds */
#define MAX_SLICES 128         /* of the samples in backward: rows of partial sums */
static_assert(DT_CUDA_HEAD_INPUTS / LANES <= N_COUNTS, "each block of inputs counts on its own");

/* ---- forward and loss: a row of threads per sample. K: maximum outputs, so that sums stay in
 * registers */

/* The sample's logits are in z: as cross_entropy_kernel of step.cu. All threads of the block call
 * it. */
static __device__ void cross_entropy(const float *z, double *exponentials, int n_out, int label,
                                     int k, double smoothing, float *dlogits, double *loss,
                                     bool *hit)
{
    int best = 0; /* in every thread, so that a NaN there stays the best, as in a plain loop */
    for (int i = 1; i < n_out; i++) {
        best = z[i] > z[best] ? i : best;
    }
    const double largest = (double)z[best];
    if (k < n_out) {
        exponentials[k] = exp((double)z[k] - largest);
    }
    __syncthreads();
    double sum = 0, spread = 0;
    for (int i = 0; i < n_out; i++) {
        sum += exponentials[i];
        spread += (double)z[label] - (double)z[i];
    }
    if (k < n_out && dlogits != NULL) {
        dlogits[k] = (float)(exponentials[k] / sum - target(smoothing, n_out, k == label));
    }
    *loss = log(sum) + largest - (double)z[label];
    if (dlogits != NULL && smoothing > 0) {
        *loss += smoothing / n_out * spread;
    }
    *hit = best == label;
}

/* Writes the block's losses and hits to its part of the scratch memory, and all blocks' to the
 * metrics. */
static __device__ void add_block(const struct dt_gpu_head &head, bool has_sample, double loss,
                                 bool hit)
{
    double *sums = (double *)(head.to.scratch + N_COUNTS);
    const bool counts = has_sample && threadIdx.x % LANES == 0;
    const double loss_sum = block_sum(counts ? loss : 0.0),
                 n_correct = block_sum(counts && hit ? 1.0 : 0.0);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = loss_sum;
        sums[gridDim.x + blockIdx.x] = n_correct;
    }
    if (is_last(head.to.scratch, gridDim.x)) {
        add_metrics(gridDim.x, sums, head.n, head.metrics);
    }
}

template <typename T, int K>
static __global__ void __launch_bounds__(THREADS) head_forward_kernel(struct dt_gpu_head head)
{
    __shared__ float parts[ROWS][LANES][K + 1], z[ROWS][K];
    __shared__ double exponentials[ROWS][K];
    const int row = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;
    const size_t sample = (size_t)blockIdx.x * ROWS + (size_t)row, n_out = (size_t)head.n_out;
    const bool has_sample = sample < (size_t)head.n, has_output = lane < head.n_out;
    const T *x = (const T *)head.x + sample * (size_t)head.n_in;
    float sum[K] = {};
    for (int i = lane; has_sample && i < head.n_in; i += LANES) {
        const float value = (float)x[i];
        for (int k = 0; k < K; k++) {
            sum[k] += k < head.n_out ? value * head.weight[k * head.n_in + i] : 0.0f;
        }
    }
    for (int k = 0; k < K; k++) {
        parts[row][lane][k] = sum[k];
    }
    __syncthreads();
    if (has_output) {
        float total = 0;
        for (int i = 0; i < LANES; i++) {
            total += parts[row][i][lane];
        }
        z[row][lane] = total + head.bias[lane];
    }
    if (has_output && has_sample) {
        head.logits[sample * n_out + (size_t)lane] = z[row][lane];
    }
    if (head.metrics == NULL) {
        return;
    }
    __syncthreads();
    const int label = has_sample ? head.labels[head.rows[sample]] : 0;
    float *dlogits = head.dlogits != NULL && has_sample ? head.dlogits + sample * n_out : NULL;
    double loss;
    bool hit;
    cross_entropy(z[row], exponentials[row], head.n_out, label, lane, head.smoothing, dlogits,
                  &loss, &hit);
    add_block(head, has_sample, loss, hit);
}

/* ---- backward: a block has LANES inputs and visits a slice of the samples, ROWS at a time; a
 * thread has one input; it keeps the input's weights and their gradients in registers */

static inline __host__ __device__ unsigned head_row_width(int n_out)
{
    return row_width((unsigned)n_out * (LANES + 1)); /* weights of LANES inputs, then the biases */
}

template <int K>
static __device__ void add_gradients(const struct dt_gpu_head &head, const float *dw, float db)
{
    const struct dt_gpu_gradients &to = head.to;
    __shared__ float sums[ROWS][K][LANES];
    const unsigned n_out = (unsigned)head.n_out, width = head_row_width(head.n_out),
                   row = threadIdx.x / LANES;
    float *rows = to.scratch + N_COUNTS + (size_t)blockIdx.x * gridDim.y * width,
          *mine = rows + (size_t)blockIdx.y * width;
    for (int k = 0; k < K; k++) {
        sums[row][k][threadIdx.x % LANES] = dw[k];
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < n_out * LANES; i += THREADS) {
        float total = 0;
        for (int r = 0; r < ROWS; r++) {
            total += sums[r][i / LANES][i % LANES];
        }
        mine[i] = total;
    }
    if (threadIdx.x < n_out) {
        mine[n_out * LANES + threadIdx.x] = db;
    }
    const auto place = [&](unsigned c) {
        const unsigned k = c / LANES, i = blockIdx.x * LANES + c % LANES, b = c - n_out * LANES;
        const bool is_weight = k < n_out && i < (unsigned)head.n_in,
                   is_bias = k >= n_out && b < n_out && blockIdx.x == 0;
        return is_weight ? to.weight + (size_t)k * head.n_in + i : is_bias ? to.bias + b : NULL;
    };
    add_rows(to.scratch + blockIdx.x, gridDim.y, rows, gridDim.y, width, to.accumulate, place);
}

template <typename T, int K>
static __global__ void __launch_bounds__(THREADS, 2) head_backward_kernel(struct dt_gpu_head head)
{
    __shared__ float dz[TILE][K];
    const int n_in = head.n_in, n_out = head.n_out,
              i = (int)(blockIdx.x * LANES + threadIdx.x % LANES);
    const bool has_input = i < n_in;
    const T *x = (const T *)head.x;
    T *dx = (T *)head.dx;
    float w[K], dw[K] = {}, db = 0;
    for (int k = 0; k < K; k++) {
        w[k] = has_input && k < n_out ? head.weight[k * n_in + i] : 0.0f;
    }
    for (size_t first = (size_t)blockIdx.y * TILE; first < (size_t)head.n;
         first += (size_t)gridDim.y * TILE) {
        const size_t left = (size_t)head.n - first, n_samples = left < TILE ? left : TILE;
        __syncthreads(); /* the last tile has been read */
        for (unsigned j = threadIdx.x; j < TILE * K; j += THREADS) {
            const size_t s = j / K, k = j % K;
            dz[s][k] = s < n_samples && k < (size_t)n_out
                           ? head.dlogits[(first + s) * (size_t)n_out + k]
                           : 0.0f;
        }
        __syncthreads();
        for (size_t s = threadIdx.x / LANES; has_input && s < n_samples; s += ROWS) {
            const size_t at = (first + s) * (size_t)n_in + (size_t)i;
            const float value = (float)x[at];
            float sum = 0;
            for (int k = 0; k < K; k++) {
                dw[k] += dz[s][k] * value;
                sum += dz[s][k] * w[k];
            }
            if (dx != NULL) {
                dx[at] = (T)sum;
            }
        }
        for (size_t s = 0; threadIdx.x < (unsigned)n_out && s < n_samples; s++) {
            db += dz[s][threadIdx.x];
        }
    }
    add_gradients<K>(head, dw, db);
}

/* ---- launches: sums of 16 outputs, or of all that a head may have */

static_assert(DT_CUDA_HEAD_OUTPUTS <= LANES, "a thread per output");
#define VERSION(kernel) DT_VERSION(kernel, head->type, head->n_out > 16, DT_CUDA_HEAD_OUTPUTS, 16)

static unsigned slices_of(int n)
{
    const unsigned tiles = blocks_for((size_t)n, TILE);
    return tiles < MAX_SLICES ? tiles : MAX_SLICES;
}

size_t dt_gpu_head_scratch(int n_in, int n_out, int n)
{
    const size_t forward = blocks_for((size_t)n, ROWS) * 2 * sizeof(double) / sizeof(float);
    const size_t backward =
        (size_t)blocks_for((size_t)n_in, LANES) * slices_of(n) * head_row_width(n_out);
    return N_COUNTS + (forward > backward ? forward : backward);
}

cudaError_t dt_gpu_head_forward(cudaStream_t stream, const struct dt_gpu_head *head)
{
    const auto kernel = VERSION(head_forward_kernel);
    return DT_LAUNCH(kernel, blocks_for((size_t)head->n, ROWS), THREADS, stream, *head);
}

cudaError_t dt_gpu_head_backward(cudaStream_t stream, const struct dt_gpu_head *head)
{
    const dim3 blocks(blocks_for((size_t)head->n_in, LANES), slices_of(head->n));
    const auto kernel = VERSION(head_backward_kernel);
    return DT_LAUNCH(kernel, blocks, THREADS, stream, *head);
}
