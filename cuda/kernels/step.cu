/* Kernels for the parts of a step outside its blocks: samples, loss, sums, the optimizer, and the
 * counter of recorded steps. */
#include "cuda/kernels/kernels.cuh"

#include "base/transform.h"

/* ---- gather: a thread per element of x; a sample's channels are apart in the data set, but one
 * sample fits into a cache */

/* As the network sees it: channel c of a place. */
static __device__ float transformed(const struct dt_samples &samples,
                                    const struct dt_gpu_batch &batch, size_t sample, unsigned c,
                                    unsigned place)
{
    const struct dt_pixel_transform *t = (const struct dt_pixel_transform *)samples.transform;
    const unsigned n_w = (unsigned)samples.shape.w;
    const struct dt_pose pose = dt_transform_pose(t, *batch.epoch, batch.ids[sample]);
    return dt_transform_at(t, &pose, samples.pixels + batch.rows[sample] * n_elems(samples.shape),
                           (int)c, (int)(place / n_w), (int)(place % n_w));
}

template <typename T, bool TRANSFORMS>
static __global__ void gather_kernel(struct dt_samples samples, struct dt_gpu_batch batch, int n,
                                     unsigned n_elems, void *x)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x, c = i % (unsigned)samples.shape.c,
                   place = i / (unsigned)samples.shape.c;
    for (size_t sample = blockIdx.y; i < n_elems && sample < (size_t)n; sample += gridDim.y) {
        ((T *)x)[sample * n_elems + i] =
            (T)(TRANSFORMS ? transformed(samples, batch, sample, c, place)
                           : stored(samples, batch.rows[sample], c, place));
    }
}

cudaError_t dt_gpu_gather(cudaStream_t stream, const struct dt_samples *samples,
                          const struct dt_gpu_batch *batch, int n, enum dt_gpu_type type, void *x)
{
    const unsigned n_elems = (unsigned)dt_shape_elems(samples->shape);
    const bool transforms = samples->transform != NULL;
    const auto kernel = DT_VERSION(gather_kernel, type, transforms, true, false);
    return DT_LAUNCH(kernel, blocks_for_samples(n_elems, n), threads_for_samples(n_elems), stream,
                     *samples, *batch, n, n_elems, x);
}

/* ---- loss: a block per sample, in double; then one block adds the samples' losses, scratch[0, n),
 * and hits, scratch[n, 2n) */

/* loss = log(sum exp(z)) - target z, after subtracting the largest logit. Its gradient is
 * softmax(z) less target: onehot(label), or with a share of it spread over all classes. */
static __global__ void cross_entropy_kernel(const uint16_t *labels, const uint32_t *rows, int n,
                                            int n_outputs, double smoothing, const float *logits,
                                            float *dlogits, double *scratch)
{
    const size_t sample = blockIdx.x;
    const int label = labels[rows[sample]], first = (int)threadIdx.x, step = (int)blockDim.x;
    const float *z = logits + sample * (size_t)n_outputs;
    int best = 0; /* in every thread, so that a NaN there stays the best, as in a plain loop */
    for (int k = first; k < n_outputs; k += step) {
        best = z[k] > z[best] ? k : best;
    }
    best = block_best(z, best);
    const double largest = (double)z[best];
    double sum = 0;
    for (int k = first; k < n_outputs; k += step) {
        sum += exp((double)z[k] - largest);
    }
    sum = block_sum(sum);
    double spread = 0; /* what the share of the other classes adds */
    for (int k = first; dlogits != NULL && k < n_outputs; k += step) {
        dlogits[sample * (size_t)n_outputs + (size_t)k] =
            (float)(exp((double)z[k] - largest) / sum - target(smoothing, n_outputs, k == label));
        spread += smoothing > 0 ? smoothing / n_outputs * ((double)z[label] - (double)z[k]) : 0.0;
    }
    spread = block_sum(spread);
    if (threadIdx.x == 0) {
        scratch[sample] = log(sum) + largest - (double)z[label] + spread;
        scratch[(size_t)n + sample] = best == label ? 1.0 : 0.0;
    }
}

static __global__ void value_error_kernel(bool squared, const float *targets, const uint32_t *rows,
                                          int n, int n_outputs, const float *logits, float *dlogits,
                                          double *scratch)
{
    const size_t sample = blockIdx.x;
    const float *z = logits + sample * (size_t)n_outputs,
                *target = targets + rows[sample] * (size_t)n_outputs;
    double sum = 0, squares = 0;
    for (int k = (int)threadIdx.x; k < n_outputs; k += (int)blockDim.x) {
        const double error = (double)z[k] - (double)target[k],
                     slope = squared ? 2.0 * error : (error > 0) - (error < 0);
        sum += squared ? error * error : fabs(error);
        squares += error * error;
        if (dlogits != NULL) {
            dlogits[sample * (size_t)n_outputs + (size_t)k] = (float)(slope / n_outputs);
        }
    }
    sum = block_sum(sum);
    squares = block_sum(squares);
    if (threadIdx.x == 0) {
        scratch[sample] = sum / n_outputs;
        scratch[(size_t)n + sample] = 1 - squares / n_outputs;
    }
}

static __global__ void add_metrics_kernel(int n, const double *scratch, struct dt_metrics *metrics)
{
    add_metrics((size_t)n, scratch, n, metrics);
}

cudaError_t dt_gpu_loss(cudaStream_t stream, const struct dt_model_spec *spec,
                        const struct dt_samples *samples, const uint32_t *rows, int n,
                        int n_outputs, const float *logits, float *dlogits, double *scratch,
                        struct dt_metrics *metrics)
{
    if (n == 0) {
        return cudaSuccess;
    }
    const unsigned blocks = (unsigned)n, threads = n_outputs <= 32 ? 32 : THREADS;
    const cudaError_t launched =
        spec->loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY
            ? DT_LAUNCH(cross_entropy_kernel, blocks, threads, stream, samples->labels, rows, n,
                        n_outputs, spec->label_smoothing, logits, dlogits, scratch)
            : DT_LAUNCH(value_error_kernel, blocks, threads, stream,
                        spec->loss == DT_LOSS_MEAN_SQUARED_ERROR, samples->targets, rows, n,
                        n_outputs, logits, dlogits, scratch);
    return launched != cudaSuccess
               ? launched
               : DT_LAUNCH(add_metrics_kernel, 1, THREADS, stream, n, scratch, metrics);
}

/* ---- sum of squares: one sum per block, as many blocks as the scratch has room for, then one
 * block adds those */

template <bool SQUARES, typename T>
static __global__ void sum_kernel(size_t n, const T *x, double *sums)
{
    double sum = 0;
    for (size_t i = thread_index(); i < n; i += (size_t)gridDim.x * blockDim.x) {
        const double value = (double)x[i];
        sum += SQUARES ? value * value : value;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
    }
}

cudaError_t dt_gpu_sum_squares(cudaStream_t stream, size_t n_elems, const float *x, double *scratch,
                               double *out)
{
    /* Fewer elements than 16 do not pay for a thread. */
    const unsigned wanted = blocks_for(n_elems, 16 * THREADS),
                   blocks = wanted < DT_GPU_SUM_SCRATCH ? wanted : DT_GPU_SUM_SCRATCH;
    const auto squares = sum_kernel<true, float>;
    const auto sums = sum_kernel<false, double>;
    const cudaError_t launched = DT_LAUNCH(squares, blocks, THREADS, stream, n_elems, x, scratch);
    return launched != cudaSuccess ? launched
                                   : DT_LAUNCH(sums, 1, THREADS, stream, blocks, scratch, out);
}

/* ---- weights in the order and type of the libraries: a thread per element, in the order of the
 * arena */

template <typename T>
static __global__ void repack_kernel(size_t n, struct dt_gpu_filter filter, enum dt_gpu_repack how,
                                     float *elems, void *packed)
{
    const size_t i = thread_index();
    if (i < n) {
        T *at = (T *)packed + packed_index(filter, (uint32_t)i);
        if (how == DT_GPU_PACK) {
            *at = (T)elems[i];
        } else {
            add_or_put(how == DT_GPU_UNPACK_ADD, (float)*at, elems + i);
        }
    }
}

cudaError_t dt_gpu_repack(cudaStream_t stream, const struct dt_gpu_filter *filter,
                          enum dt_gpu_repack how, float *elems, enum dt_gpu_type type, void *packed)
{
    const size_t n = dt_gpu_filter_elems(filter);
    const auto kernel = type == DT_GPU_F32 ? repack_kernel<float> : repack_kernel<bf16>;
    return DT_LAUNCH(kernel, blocks_for(n, THREADS), THREADS, stream, n, *filter, how, elems,
                     packed);
}

/* ---- optimizers: one pass over the arena, V elements per thread, the rest one by one */

/* Calls visit(pack, v, its index in the packed copies) for the elements i + v of packed weights. */
template <int V, typename Visit>
static __device__ void visit_packed(const struct dt_gpu_packs &packs, size_t i, Visit visit)
{
    for (int p = 0; p < packs.n; p++) {
        const struct dt_gpu_pack &pack = packs.at[p];
        const struct dt_gpu_filter &f = pack.filter;
        const size_t n = (size_t)f.k * (uint32_t)f.c * (uint32_t)(f.kernel * f.kernel);
        for (int v = 0; v < V; v++) {
            const size_t j = i + v - pack.begin;
            if (i + v >= pack.begin && j < n) {
                visit(pack, v, packed_index(f, (uint32_t)j));
            }
        }
    }
}

/* g: gradients; `moving` is all zeros without a velocity. */
template <int V>
static __device__ void sgd(const struct dt_update &u, bool has_velocity, float *w, float *g,
                           float *moving)
{
    for (int v = 0; v < V; v++) {
        g[v] = g[v] * u.grad_scale + u.weight_decay * w[v];
        moving[v] = u.momentum * moving[v] + g[v];
        w[v] -= u.lr * (!has_velocity ? g[v]
                        : u.nesterov  ? g[v] + u.momentum * moving[v]
                                      : moving[v]);
    }
}

/* m, s: mean and mean square of gradients. */
template <int V>
static __device__ void adam(const struct dt_update &u, float *w, float *g, float *m, float *s)
{
    const float step = u.lr / u.bias_correction1, root = 1.0f / sqrtf(u.bias_correction2);
    for (int v = 0; v < V; v++) {
        const float decay = u.weight_decay * w[v];
        g[v] = g[v] * u.grad_scale + (u.type == DT_OPTIMIZER_ADAM ? decay : 0.0f);
        w[v] -= u.type == DT_OPTIMIZER_ADAMW ? u.lr * decay : 0.0f;
        m[v] = m[v] - u.one_minus_beta1 * m[v] + u.one_minus_beta1 * g[v];
        s[v] = s[v] - u.one_minus_beta2 * s[v] + u.one_minus_beta2 * g[v] * g[v];
        w[v] -= step * m[v] / (sqrtf(s[v]) * root + u.epsilon);
    }
}

template <typename T, int V>
static __device__ void update(const struct dt_update &u, const struct dt_gpu_packs &packs, size_t i,
                              float *params, const float *grads, float *state1, float *state2)
{
    float w[V], g[V], s1[V] = {}, s2[V] = {};
    load<V>(params + i, w);
    load<V>(grads + i, g);
    visit_packed<V>(packs, i, [&](const struct dt_gpu_pack &pack, int v, size_t at) {
        g[v] = pack.gradient != NULL ? (float)((const T *)pack.gradient)[at] : g[v];
    });
    load_if<V>(state1, i, s1);
    load_if<V>(state2, i, s2);
    if (u.type == DT_OPTIMIZER_SGD) {
        sgd<V>(u, state1 != NULL, w, g, s1);
    } else {
        adam<V>(u, w, g, s1, s2);
    }
    store<V>(w, params + i);
    visit_packed<V>(packs, i, [&](const struct dt_gpu_pack &pack, int v, size_t at) {
        ((T *)pack.weight)[at] = (T)w[v];
    });
    if (state1 != NULL) {
        store<V>(s1, state1 + i);
    }
    if (state2 != NULL) {
        store<V>(s2, state2 + i);
    }
}

template <typename T, int V>
static __global__ void
optimizer_kernel(const struct dt_update *u, const __grid_constant__ struct dt_gpu_packs packs,
                 size_t n, float *params, const float *grads, float *state1, float *state2)
{
    size_t i = thread_index() * V;
    if (i + V <= n) {
        update<T, V>(*u, packs, i, params, grads, state1, state2);
        return;
    }
    for (; i < n; i++) {
        update<T, 1>(*u, packs, i, params, grads, state1, state2);
    }
}

cudaError_t dt_gpu_optimizer_step(cudaStream_t stream, const struct dt_update *update,
                                  size_t n_elems, float *params, const float *grads, float *state1,
                                  float *state2, const struct dt_gpu_packs *packs)
{
    const bool wide = aligned(params) && aligned(grads) && aligned(state1) && aligned(state2);
    const unsigned blocks = blocks_for(n_elems, (wide ? 4 : 1) * THREADS);
    const auto kernel = DT_VERSION(optimizer_kernel, packs->type, wide, 4, 1);
    return DT_LAUNCH(kernel, blocks, THREADS, stream, update, *packs, n_elems, params, grads,
                     state1, state2);
}

/* ---- clipping */

static __global__ void clip_kernel(const double *sum_squares, struct dt_update *update)
{
    update->grad_scale = dt_update_clipped_scale(update, *sum_squares);
}

cudaError_t dt_gpu_clip(cudaStream_t stream, const double *sum_squares, struct dt_update *update)
{
    return DT_LAUNCH(clip_kernel, 1, 1, stream, sum_squares, update);
}

/* ---- steps */

/* Finding a row may take many rounds of the permutation: so one kernel draws all rows, before the
 * steps that use them. */
static __global__ void draw_kernel(struct dt_gpu_steps *steps, int n_steps, struct dt_gpu_rows rows,
                                   struct dt_gpu_step *step)
{
    const struct dt_step_input *input = &steps->inputs[blockIdx.y];
    const size_t i = thread_index();
    if (i < input->draw.n) {
        const uint32_t row = dt_draw_row(&input->draw, (uint32_t)i);
        rows.all[blockIdx.y * (size_t)rows.capacity + i] = row;
        if (blockIdx.y == 0) {
            rows.rows[i] = row;
            rows.ids[i] = dt_draw_id(&input->draw, row);
        }
    }
    if (blockIdx.y == 0 && i == 0) {
        steps->n = n_steps;
        steps->now = 0;
        *step = {input->draw.order.epoch, input->update};
    }
}

cudaError_t dt_gpu_steps_begin(cudaStream_t stream, struct dt_gpu_steps *steps, int n_steps,
                               const struct dt_gpu_rows *rows, struct dt_gpu_step *step)
{
    /* Small blocks, so that more of the GPU draws. */
    const dim3 blocks(blocks_for((size_t)rows->capacity, 32), (unsigned)n_steps);
    return DT_LAUNCH(draw_kernel, blocks, 32, stream, steps, n_steps, *rows, step);
}

static __global__ void step_end_kernel(struct dt_gpu_steps *steps, struct dt_gpu_rows rows,
                                       struct dt_gpu_step *step, struct dt_metrics *running,
                                       volatile int *n_done)
{
    const int next = steps->now + 1;
    if (next < steps->n) {
        const struct dt_step_input *input = &steps->inputs[next];
        const uint32_t *drawn = rows.all + next * (size_t)rows.capacity;
        for (uint32_t i = threadIdx.x; i < input->draw.n; i += blockDim.x) {
            rows.rows[i] = drawn[i];
            rows.ids[i] = dt_draw_id(&input->draw, drawn[i]);
        }
        if (threadIdx.x == 0) {
            *step = {input->draw.order.epoch, input->update};
        }
    }
    __syncthreads(); /* all threads have read the step's number */
    if (threadIdx.x == 0) {
        steps->metrics[next - 1] = *running;
        *running = {};
        steps->now = next;
        *n_done = next;
    }
}

cudaError_t dt_gpu_step_end(cudaStream_t stream, struct dt_gpu_steps *steps,
                            const struct dt_gpu_rows *rows, struct dt_gpu_step *step,
                            struct dt_metrics *running, volatile int *n_done)
{
    return DT_LAUNCH(step_end_kernel, 1, THREADS, stream, steps, *rows, step, running, n_done);
}
