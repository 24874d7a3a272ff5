/* A convolution's plan and memory, and its two passes over the images. It takes an image's gradient
 * back to the convolution's output as nonzeros, and from there to the weights and the input by the
 * cheapest algorithms. */
#include "cpu/block_state.h"

#include <string.h>
#include <unistd.h>

/* ---- plan and memory */

/* Extents of the padded input: the image itself, or the area that the windows cover. */
static void describe_shape(const struct dt_block *b, struct dt_cpu_conv *conv)
{
    const struct dt_shape in = b->in, out = b->linear_out;
    const int below = dt_conv_pad_after(b, in.h, b->pad_before_h, out.h),
              right = dt_conv_pad_after(b, in.w, b->pad_before_w, out.w);
    conv->pads = b->pad_before_h + b->pad_before_w + below + right > 0;
    conv->shape = (struct dt_conv){.c = in.c,
                                   .h = b->pad_before_h + in.h + below,
                                   .w = b->pad_before_w + in.w + right,
                                   .k = out.c,
                                   .out_h = out.h,
                                   .out_w = out.w,
                                   .kernel = b->kernel,
                                   .stride = b->stride};
}

/* Lists the algorithms that fit the block. */
static void plan_gradient(struct dt_block_state *state, const struct dt_conv_gradient *const *all,
                          const struct dt_conv_gradient **out)
{
    for (; *all != NULL; all++) {
        if ((*all)->fits == NULL || (*all)->fits(state)) {
            *out++ = *all;
        }
    }
}

void dt_cpu_conv_describe(struct dt_block_state *state, int slice)
{
    const struct dt_block *b = &state->block;
    struct dt_cpu_conv *conv = &state->conv;
    const struct dt_conv_forward *const *forward = dt_conv_forwards;
    const int vector = state->cpu->kernels->vector;
    describe_shape(b, conv);
    conv->slice = slice;
    conv->n_slices = dt_threads_count(state->cpu->threads);
    conv->n_together = 1;
    conv->n_packed[DT_CONV_DIRECT] = dt_conv_packed_forward_elems(&conv->shape, vector);
    conv->n_packed[DT_CONV_LISTS] = dt_conv_packed_backward_elems(&conv->shape, vector);
    while ((*forward)->fits != NULL && !(*forward)->fits(state)) {
        forward++;
    }
    conv->forward = *forward;
    conv->fuses_pool = conv->forward->pools && dt_conv_pools(b);
    conv->n_words =
        (size_t)b->linear_out.h * (size_t)b->linear_out.w * dt_nonzero_words(b->linear_out.c);
    conv->nonzeros_pooled =
        b->pool == DT_POOL_MAX && b->pool_h <= b->pool_stride && !state->tail.has_slope;
    plan_gradient(state, dt_conv_fused, conv->fused);
    plan_gradient(state, dt_conv_data, conv->dx);
    plan_gradient(state, dt_conv_weights, conv->dw);
}

/* Of x, a band of lists reads a little more than the nearest cache holds, because lists and sums
 * pass through it once. Longer lists have fewer beginnings and ends; sums are the same. The
 * distance between filters' lists is an odd number of cache lines, so that their ends share no set
 * of the cache. */
static void place_lists(struct dt_pieces *pieces, const struct dt_conv *shape,
                        struct dt_conv_lists *lists)
{
    const size_t n_k = (size_t)shape->k, n_rows = (size_t)shape->out_h,
                 line = 64 / sizeof(struct dt_entry);
    const size_t n_bytes = dt_cpu_cache_bytes(_SC_LEVEL1_DCACHE_SIZE, 32000) * 5 / 4,
                 band_rows = n_bytes / ((size_t)shape->w * (size_t)shape->c * sizeof(float));
    lists->band = band_rows > (size_t)shape->kernel
                      ? (int)(band_rows - (size_t)shape->kernel) / shape->stride + 1
                      : 1;
    const size_t n_bands = (n_rows + (size_t)lists->band - 1) / (size_t)lists->band;
    lists->end = dt_piece(pieces, true, n_k, sizeof(struct dt_entry *));
    lists->begin = dt_piece(pieces, true, n_k * n_bands, sizeof(struct dt_entry *));
    lists->stride = (dt_round_up((size_t)shape->out_w * n_rows, line) / line | 1) * line;
    lists->entry = dt_piece(pieces, true, n_k * lists->stride, sizeof *lists->entry);
}

void dt_cpu_conv_place_scratch(const struct dt_block_state *state, struct dt_pieces *pieces,
                               struct dt_cpu_scratch *scratch)
{
    const struct dt_cpu_conv *conv = &state->conv;
    const struct dt_conv *shape = &conv->shape;
    const size_t n_places = (size_t)shape->h * (size_t)shape->w,
                 n_images = (size_t)conv->n_together;
    const bool drops = conv->fuses_pool && state->block.dropout_rate > 0;
    const size_t channels = dt_conv_channels(shape, state->cpu->kernels->vector);
    scratch->padded = dt_piece(pieces, conv->pads, n_places * (size_t)shape->c, sizeof(float));
    scratch->dx = dt_piece(pieces, conv->pads || channels > (size_t)shape->c, n_places * channels,
                           sizeof(float));
    scratch->bf16 =
        dt_piece(pieces, conv->bf16.used, dt_bf16_padded_elems(&conv->bf16), sizeof(uint16_t));
    scratch->work = dt_piece(pieces, conv->n_work > 0, conv->n_work, sizeof(float));
    scratch->mask = dt_piece(pieces, drops, n_images * state->n_pooled, sizeof(uint8_t));
    scratch->winner = dt_piece(pieces, conv->fuses_pool, state->n_pooled, sizeof(uint16_t));
    place_lists(pieces, shape, &scratch->lists);
    scratch->nonzeros.bitmask =
        dt_piece(pieces, !conv->fuses_pool, conv->n_words, sizeof(uint64_t));
    scratch->nonzeros.row_at = dt_piece(pieces, true, (size_t)shape->out_h, sizeof(uint32_t));
    scratch->nonzeros.column_at = dt_piece(pieces, true, (size_t)shape->out_w, sizeof(uint32_t));
}

static struct dt_conv_sums place_sums(struct dt_pieces *pieces, const struct dt_cpu_conv *conv,
                                      int vector)
{
    const size_t n_sparse = dt_conv_packed_backward_elems(&conv->shape, vector);
    struct dt_conv_sums sums = {0};
    sums.sparse = dt_piece(pieces, true, n_sparse, sizeof(float));
    sums.dense = dt_piece(pieces, true, dt_conv_dense_elems(&conv->shape, vector), sizeof(float));
    sums.bias = dt_piece(pieces, true, dt_conv_filters(&conv->shape, vector), sizeof(float));
    return sums;
}

void dt_cpu_conv_place(struct dt_block_state *state, struct dt_pieces *pieces)
{
    struct dt_cpu_conv *conv = &state->conv;
    const int vector = state->cpu->kernels->vector;
    for (int i = 0; i < DT_CONV_N_PACKED; i++) {
        conv->packed[i] = dt_piece(pieces, conv->n_packed[i] > 0, conv->n_packed[i], sizeof(float));
    }
    conv->no_bias = dt_piece(pieces, conv->winograd_dx.used, (size_t)conv->shape.c, sizeof(float));
    conv->bitmask = dt_piece(pieces, conv->fuses_pool, (size_t)state->capacity * conv->n_words,
                             sizeof(uint64_t));
    conv->total = place_sums(pieces, conv, vector);
    conv->sums = dt_piece(pieces, true, (size_t)conv->n_slices, sizeof *conv->sums);
    for (int s = 0; s < conv->n_slices; s++) {
        const struct dt_conv_sums sums = place_sums(pieces, conv, vector);
        if (conv->sums != NULL) {
            conv->sums[s] = sums;
        }
    }
}

/* Tells where the values of each position's nonzeros lie: in the pooled gradient or in the
 * convolution's own. */
void dt_cpu_conv_open(struct dt_block_state *state)
{
    const struct dt_conv *shape = &state->conv.shape;
    const struct dt_pooling *pool = &state->tail.pooling;
    const bool pooled = state->conv.nonzeros_pooled;
    const int step = pooled ? pool->stride : 1, n_columns = pooled ? pool->out_w : shape->out_w;
    for (int t = 0; t < dt_threads_count(state->cpu->threads); t++) {
        const struct dt_nonzeros *nonzeros = &state->scratch[t].nonzeros;
        for (int i = 0; i < shape->out_h; i++) {
            nonzeros->row_at[i] = (uint32_t)(i / step * n_columns * shape->k);
        }
        for (int i = 0; i < shape->out_w; i++) {
            nonzeros->column_at[i] = (uint32_t)(i / step * shape->k);
        }
    }
}

/* ---- forward */

/* Neighbouring samples through convolution, ReLU, pool, dropout and flatten at once. Returns a bit
 * for each that is not finite. */
static uint32_t images_to_pool(const struct dt_cpu_job *job, int first, int n, int thread)
{
    struct dt_block_state *state = job->state;
    const struct dt_block *b = &state->block;
    const size_t n_pooled = state->n_pooled;
    const bool drops = b->dropout_rate > 0 && job->pass->training;
    float *y = job->y_out + (size_t)first * n_pooled,
          *pooled = state->tail.reorders ? state->scratch[thread].pooled : y;
    uint8_t *mask = state->scratch[thread].mask;
    uint64_t *bitmask = state->conv.bitmask + dt_cpu_kept(job->pass, first, state->conv.n_words);
    const struct dt_conv_outputs out = {.bias = job->params + state->bias_offset,
                                        .relu = true,
                                        .pool = true,
                                        .y = pooled,
                                        .next = state->tail.reorders ? y : y + (size_t)n * n_pooled,
                                        .bitmask = job->pass->training ? bitmask : NULL,
                                        .mask = drops ? mask : NULL,
                                        .scale = state->tail.dropout_scale};
    for (int i = 0; drops && i < n; i++) {
        dt_cpu_draw_mask(job, first + i, mask + (size_t)i * n_pooled);
    }
    const uint32_t not_finite = state->conv.forward->run(job, first, n, thread, &out);
    for (size_t i = 0; state->tail.reorders && i < (size_t)n; i++) {
        dt_cpu_reorder(job, pooled + i * n_pooled, y + i * n_pooled);
    }
    return not_finite;
}

static uint32_t images_to_linear(const struct dt_cpu_job *job,
                                 const struct dt_conv_forward *forward, int first, int n,
                                 int thread)
{
    struct dt_block_state *state = job->state;
    const bool relu = state->block.activation == DT_ACTIVATION_RELU;
    const struct dt_conv_outputs out = {.bias = job->params + state->bias_offset,
                                        .relu = relu,
                                        .y = dt_cpu_linear_output(job, first, thread)};
    const uint32_t not_finite = forward->run(job, first, n, thread, &out);
    for (int i = 0; i < n; i++) {
        dt_cpu_tail_forward(job, first + i, thread, out.y + (size_t)i * state->n_linear, relu);
    }
    return not_finite;
}

/* Processes a few neighbouring samples, and repeats those that are not finite. */
static void images_item(void *context, int item, int thread)
{
    const struct dt_cpu_job *job = context;
    const struct dt_cpu_conv *conv = &job->state->conv;
    const int first = item * conv->n_together, n = dt_min(job->n - first, conv->n_together);
    const uint32_t not_finite = conv->fuses_pool
                                    ? images_to_pool(job, first, n, thread)
                                    : images_to_linear(job, conv->forward, first, n, thread);
    for (int i = 0; i < n; i++) {
        if (not_finite >> i & 1) {
            images_to_linear(job, conv->forward->repeat, first + i, 1, thread);
        }
    }
    dt_cpu_poll(job->pass, thread);
}

void dt_cpu_conv_forward(struct dt_cpu_job *job)
{
    struct dt_block_state *state = job->state;
    if (job->pass->first == 0) {
        state->conv.forward->pack(state, job->params + state->weight_offset);
    }
    dt_threads_run(state->cpu->threads, dt_cut_count(job->n, state->conv.n_together), images_item,
                   job);
}

/* ---- backward */

/* Returns the cheapest algorithm; where costs are equal, the last. */
static const struct dt_conv_gradient *cheapest(const struct dt_block_state *state,
                                               const struct dt_conv_gradient *const *of,
                                               size_t n_nonzeros)
{
    const struct dt_conv_gradient *best = *of;
    for (double least = best->cost(state, n_nonzeros); *++of != NULL;) {
        const double cost = (*of)->cost(state, n_nonzeros);
        best = cost <= least ? *of : best;
        least = cost <= least ? cost : least;
    }
    return best;
}

/* Computes both gradients of a sample, each by the cheapest algorithm. Returns true if one of them
 * goes together with its neighbours': then both wait, and *dx and *dw compute them. */
static bool conv_sample(const struct dt_cpu_job *job, int sample, struct dt_conv_sums *sums,
                        int thread, const struct dt_conv_gradient **dx,
                        const struct dt_conv_gradient **dw)
{
    struct dt_block_state *state = job->state;
    struct dt_conv_image image = {.sample = sample,
                                  .dy = job->dy + (size_t)sample * state->n_pooled};
    if (job->dx == NULL && state->conv.fused[0] != NULL) {
        const bool relu = state->block.activation == DT_ACTIVATION_RELU;
        image.y = relu ? job->y + (size_t)sample * state->n_pooled : NULL;
        state->conv.fused[0]->run(job, &image, 1, thread, sums);
        return false;
    }
    image.dy = dt_cpu_tail_backward(job, sample, thread);
    const size_t n_nonzeros = dt_cpu_conv_find_nonzeros(job, &image, thread);
    const struct dt_conv_gradient *data = cheapest(state, state->conv.dx, n_nonzeros),
                                  *weights = cheapest(state, state->conv.dw, n_nonzeros);
    if (data->together || weights->together) {
        *dx = data;
        *dw = weights;
        return true;
    }
    image.wants_lists = weights->reads_lists;
    if (job->dx != NULL) {
        data->run(job, &image, 1, thread, sums);
    }
    weights->run(job, &image, 1, thread, sums);
    return false;
}

/* Both gradients of n neighbouring samples. */
static void run_together(const struct dt_cpu_job *job, int first, int n, struct dt_conv_sums *sums,
                         int thread, const struct dt_conv_gradient *dx,
                         const struct dt_conv_gradient *dw)
{
    const size_t n_linear = job->state->n_linear;
    for (int i = first, step = dw->together ? n : 1; i < first + n; i += step) {
        dw->run(job, &(struct dt_conv_image){.sample = i, .dy = job->dy + (size_t)i * n_linear},
                step, thread, sums);
    }
    if (job->dx != NULL) {
        dx->run(job, &(struct dt_conv_image){.sample = first}, n, thread, sums);
    }
}

static void clear_sums(const struct dt_block_state *state, struct dt_conv_sums *sums)
{
    memset(sums->bias, 0,
           dt_conv_filters(&state->conv.shape, state->cpu->kernels->vector) * sizeof(float));
    sums->sparse_used = sums->dense_used = false;
}

static void conv_slice(void *context, int slice, int thread)
{
    const struct dt_cpu_job *job = context;
    struct dt_block_state *state = job->state;
    struct dt_conv_sums *sums = &state->conv.sums[slice];
    const int begin = job->begin + slice * state->conv.slice,
              end = dt_min(begin + state->conv.slice, job->n);
    clear_sums(state, sums);
    const struct dt_conv_gradient *dx = NULL, *dw = NULL; /* of samples that wait */
    int n_left = 0; /* samples before this one, whose gradients wait for others */
    for (int sample = begin; sample < end; sample++) {
        const bool leaves = conv_sample(job, sample, sums, thread, &dx, &dw);
        n_left += leaves;
        if (n_left > 0 && (!leaves || sample + 1 == end)) {
            run_together(job, sample + leaves - n_left, n_left, sums, thread, dx, dw);
            n_left = 0;
        }
        dt_cpu_poll(job->pass, thread);
    }
}

static void add_elems(size_t n, const float *from, float *to)
{
    for (size_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

static void add_sums(const struct dt_block_state *state, const struct dt_conv_sums *from,
                     struct dt_conv_sums *to)
{
    const struct dt_conv *conv = &state->conv.shape;
    const int vector = state->cpu->kernels->vector;
    const size_t n_sparse = dt_conv_packed_backward_elems(conv, vector),
                 n_dense = dt_conv_dense_elems(conv, vector);
    if (from->sparse_used) {
        add_elems(n_sparse, from->sparse,
                  dt_conv_begin_sum(to->sparse, n_sparse, &to->sparse_used));
    }
    if (from->dense_used) {
        add_elems(n_dense, from->dense, dt_conv_begin_sum(to->dense, n_dense, &to->dense_used));
    }
    add_elems(dt_conv_filters(conv, vector), from->bias, to->bias);
}

/* Adds the sums to grads, in the arena's order. */
static void unpack_sums(const struct dt_block_state *state, const struct dt_conv_sums *sums,
                        float *grads)
{
    const struct dt_cpu_kernels *kernels = state->cpu->kernels;
    if (sums->sparse_used) {
        kernels->conv_unpack_gradient(&state->conv.shape, sums->sparse,
                                      grads + state->weight_offset);
    }
    if (sums->dense_used) {
        kernels->conv_unpack_dense(&state->conv.shape, sums->dense, grads + state->weight_offset);
    }
    add_elems((size_t)state->conv.shape.k, sums->bias, grads + state->bias_offset);
}

void dt_cpu_conv_backward(struct dt_cpu_job *job)
{
    struct dt_block_state *state = job->state;
    const struct dt_pass *pass = job->pass;
    if (pass->first == 0) {
        for (int i = 0; job->dx != NULL && state->conv.dx[i] != NULL; i++) {
            state->conv.dx[i]->pack(state, job->params + state->weight_offset);
        }
        clear_sums(state, &state->conv.total);
    }
    for (job->begin = 0; job->begin < job->n;
         job->begin += state->conv.n_slices * state->conv.slice) {
        const int n_slices =
            dt_min(dt_cut_count(job->n - job->begin, state->conv.slice), state->conv.n_slices);
        dt_threads_run(state->cpu->threads, n_slices, conv_slice, job);
        for (int s = 0; s < n_slices; s++) {
            add_sums(state, &state->conv.sums[s], &state->conv.total);
        }
    }
    if (!pass->more) {
        unpack_sums(state, &state->conv.total, job->grads);
        clear_sums(state, &state->conv.total);
    }
}
