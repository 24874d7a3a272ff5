#include "cpu/block_state.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

void *dt_cpu_memory(size_t n_bytes)
{
    const size_t rounded = dt_round_up(n_bytes, 64) + DT_READABLE_PAST_END;
    void *memory = n_bytes < rounded ? dt_memory_alloc(rounded) : NULL;
    if (memory != NULL) {
        memset(memory, 0, rounded);
    }
    return memory;
}

/* Extents of the padded input: the image itself, or the area that the windows cover. */
static void describe_shapes(const struct dt_block *b, struct dt_cpu_conv *conv)
{
    const struct dt_shape in = b->in, out = b->linear_out;
    const int reach_h = (out.h - 1) * b->stride + b->kernel,
              reach_w = (out.w - 1) * b->stride + b->kernel;
    conv->pads = b->pad_before_h > 0 || b->pad_before_w > 0 || reach_h > in.h || reach_w > in.w;
    conv->shape = (struct dt_conv){.c = in.c,
                                   .h = conv->pads ? dt_max(reach_h, in.h + b->pad_before_h) : in.h,
                                   .w = conv->pads ? dt_max(reach_w, in.w + b->pad_before_w) : in.w,
                                   .k = out.c,
                                   .out_h = out.h,
                                   .out_w = out.w,
                                   .kernel = b->kernel,
                                   .stride = b->stride};
    conv->rotated = (struct dt_conv){.c = out.c,
                                     .h = in.h + b->kernel - 1,
                                     .w = in.w + b->kernel - 1,
                                     .k = in.c,
                                     .out_h = in.h,
                                     .out_w = in.w,
                                     .kernel = b->kernel,
                                     .stride = 1};
}

static bool may_winograd(const struct dt_block *b)
{
    return b->kernel >= 3 && b->kernel <= DT_WINOGRAD_MAX_KERNEL && b->stride == 1;
}

/* Chooses the forward kernels: Winograd's or bf16's where one of them is faster. */
static void describe_forward(const struct dt_block *b, bool has_bf16, int vector,
                             struct dt_cpu_conv *conv)
{
    const struct dt_shape in = b->in, out = b->linear_out;
    conv->bf16 = (struct dt_bf16){.conv = conv->shape,
                                  .in_h = in.h,
                                  .in_w = in.w,
                                  .top = b->pad_before_h,
                                  .left = b->pad_before_w,
                                  .used = has_bf16 && in.c >= DT_BF16_FEWEST};
    conv->winograd = (struct dt_winograd){.c = in.c,
                                          .h = in.h,
                                          .w = in.w,
                                          .top = b->pad_before_h,
                                          .left = b->pad_before_w,
                                          .k = out.c,
                                          .out_h = out.h,
                                          .out_w = out.w,
                                          .wider = b->kernel - 3};
    if (may_winograd(b) && !conv->bf16.used) {
        dt_winograd_plan(&conv->winograd, vector);
        conv->winograd.plain = b->activation == DT_ACTIVATION_NONE && b->pool == DT_POOL_NONE;
    }
    conv->n_together = conv->winograd.used ? conv->winograd.images : 1;
    conv->fuses_pool = (conv->winograd.used || conv->bf16.used) &&
                       b->activation == DT_ACTIVATION_RELU && b->pool == DT_POOL_MAX &&
                       b->pool_h == 2 && b->pool_stride == 2;
    conv->n_words = (size_t)out.h * (size_t)out.w * dt_nonzero_words(out.c);
}

/* Winograd's method for the gradients, which neighbouring samples share: so the gradient of the
 * convolution's output must lie where that of the block's output did. */
static void describe_backward(const struct dt_block *b, bool in_place, int vector,
                              struct dt_cpu_conv *conv)
{
    const struct dt_shape in = b->in, out = b->linear_out;
    conv->winograd_gradient.w = conv->winograd;
    conv->winograd_gradient.w.used = false;
    conv->winograd_rotated = (struct dt_winograd){.c = out.c,
                                                  .h = out.h,
                                                  .w = out.w,
                                                  .top = b->kernel - 1 - b->pad_before_h,
                                                  .left = b->kernel - 1 - b->pad_before_w,
                                                  .k = in.c,
                                                  .out_h = in.h,
                                                  .out_w = in.w,
                                                  .wider = b->kernel - 3};
    if (may_winograd(b) && in_place) {
        dt_winograd_plan(&conv->winograd_rotated, vector);
        conv->winograd_rotated.plain = true;
        conv->winograd_rotated.skips_uniform = false;
        if (b->kernel == 3) {
            dt_winograd_plan_gradient(&conv->winograd_gradient, conv->slice, vector);
        }
    }
}

static void describe_conv(struct dt_block_state *state, int slice)
{
    const struct dt_block *b = &state->block;
    const int vector = state->cpu->kernels->vector;
    struct dt_cpu_conv *conv = &state->conv;
    describe_shapes(b, conv);
    describe_forward(b, state->cpu->bf16 != NULL, vector, conv);
    conv->dx_direct = !conv->pads && dt_conv_channels(&conv->shape, vector) == (size_t)b->in.c;
    conv->nonzeros_pooled =
        b->pool == DT_POOL_MAX && b->pool_h <= b->pool_stride && !state->tail.has_slope;
    conv->masks_only = b->pool == DT_POOL_NONE && b->dropout_rate == 0 && !state->tail.reorders &&
                       (b->activation == DT_ACTIVATION_NONE || b->activation == DT_ACTIVATION_RELU);
    conv->slice = slice;
    conv->n_slices = dt_threads_count(state->cpu->threads);
    describe_backward(b, b->pool == DT_POOL_NONE && !state->tail.reorders, vector, conv);
}

static void describe_tail(const struct dt_block *b, struct dt_cpu_tail *tail)
{
    tail->pooling = (struct dt_pooling){.c = b->linear_out.c,
                                        .h = b->linear_out.h,
                                        .w = b->linear_out.w,
                                        .out_h = b->pool_out.h,
                                        .out_w = b->pool_out.w,
                                        .size_h = b->pool_h,
                                        .size_w = b->pool_w,
                                        .stride = b->pool_stride};
    tail->reorders = b->canonical && b->pool_out.c > 1 && b->pool_out.h * b->pool_out.w > 1;
    tail->has_slope = b->activation == DT_ACTIVATION_GELU ||
                      (b->pool == DT_POOL_AVG && b->activation != DT_ACTIVATION_NONE);
    tail->dropout_scale = 1.0f / (1.0f - b->dropout_rate);
}

static size_t cache_bytes(int level, size_t otherwise)
{
    const long n = sysconf(level);
    return n > 0 ? (size_t)n : otherwise;
}

static void describe(struct dt_block_state *state, const struct dt_cpu *cpu,
                     const struct dt_model *model, int index, int capacity)
{
    const struct dt_block *b = &state->block;
    state->block = model->blocks[index];
    state->cpu = cpu;
    state->capacity = capacity;
    state->n_in = dt_shape_elems(b->in);
    state->n_linear = dt_shape_elems(b->linear_out);
    state->n_pooled = dt_shape_elems(b->pool_out);
    describe_tail(b, &state->tail);
    if (b->linear != DT_LINEAR_NONE) {
        state->weight_offset = model->params[b->weight].offset;
        state->bias_offset = model->params[b->bias].offset;
        state->n_weights = model->params[b->weight].n_elems;
    }
    state->dense.past =
        state->n_in * sizeof(float) % 64 == 0 &&
        state->n_weights * sizeof(float) > cache_bytes(_SC_LEVEL2_CACHE_SIZE, 1 << 20);
    if (b->linear == DT_LINEAR_CONV) {
        describe_conv(state, dt_cpu_slice(cpu, capacity));
    }
}

/* A dense layer has finished with a few columns of x before it writes those of dx, and a fused
 * convolution needs only the bitmask of its output. */
bool dt_cpu_block_dx_over_x(const struct dt_cpu *cpu, const struct dt_model *model, int index,
                            int capacity)
{
    DT_ASSERT(index >= 1 && index < model->n_blocks);
    struct dt_block_state below = {0};
    describe(&below, cpu, model, index - 1, capacity);
    return model->blocks[index].linear == DT_LINEAR_DENSE && below.conv.fuses_pool;
}

/* A block has one allocation, which `place` divides: it runs twice, first to measure and then to
 * assign pointers. */
struct pieces {
    char *memory;   /* NULL: measuring */
    size_t n_bytes; /* so far */
    bool too_large;
};

/* n elements of `size` bytes, aligned to a cache line, plus the margin that kernels read. NULL in a
 * block that does not need them. */
static void *piece(struct pieces *pieces, bool wanted, size_t n, size_t size)
{
    const size_t at = pieces->n_bytes;
    size_t n_bytes;
    if (!wanted || pieces->too_large) {
        return NULL;
    }
    if (__builtin_mul_overflow(n, size, &n_bytes) || n_bytes > SIZE_MAX / 4 || at > SIZE_MAX / 4) {
        pieces->too_large = true;
        return NULL;
    }
    pieces->n_bytes = at + dt_round_up(n_bytes, 64) + DT_READABLE_PAST_END;
    DT_ASSERT(at % 64 == 0 && pieces->n_bytes % 64 == 0);
    return pieces->memory != NULL ? pieces->memory + at : NULL;
}

/* Of x, read by one band of lists: a little more than the nearest cache holds, because lists and
 * sums pass through it once. Longer lists have fewer beginnings and ends; sums are the same. */
static size_t band_bytes(void)
{
    return cache_bytes(_SC_LEVEL1_DCACHE_SIZE, 32000) * 5 / 4;
}

/* The distance between filters' lists is an odd number of cache lines, so that their ends share no
 * set of the cache. */
static void place_lists(struct pieces *pieces, const struct dt_conv *shape,
                        struct dt_conv_lists *lists)
{
    const size_t n_k = (size_t)shape->k, n_rows = (size_t)shape->out_h,
                 line = 64 / sizeof(struct dt_entry);
    const size_t band_rows = band_bytes() / ((size_t)shape->w * (size_t)shape->c * sizeof(float));
    lists->band = band_rows > (size_t)shape->kernel
                      ? (int)(band_rows - (size_t)shape->kernel) / shape->stride + 1
                      : 1;
    const size_t n_bands = (n_rows + (size_t)lists->band - 1) / (size_t)lists->band;
    lists->end = piece(pieces, true, n_k, sizeof(struct dt_entry *));
    lists->begin = piece(pieces, true, n_k * n_bands, sizeof(struct dt_entry *));
    lists->stride = (dt_round_up((size_t)shape->out_w * n_rows, line) / line | 1) * line;
    lists->entry = piece(pieces, true, n_k * lists->stride, sizeof *lists->entry);
}

/* Of scratch, which all of a block's uses of Winograd's method share. */
static size_t winograd_elems(const struct dt_cpu_conv *conv)
{
    size_t n = conv->winograd.used ? dt_winograd_scratch_elems(&conv->winograd) : 0;
    if (conv->winograd_rotated.used) {
        n = dt_max_size(n, dt_winograd_scratch_elems(&conv->winograd_rotated));
    }
    if (conv->winograd_gradient.w.used) {
        n = dt_max_size(n, dt_winograd_gradient_scratch_elems(&conv->winograd_gradient));
    }
    return n;
}

static void place_conv_scratch(struct pieces *pieces, const struct dt_block_state *state,
                               struct dt_cpu_scratch *scratch)
{
    const struct dt_cpu_conv *conv = &state->conv;
    const struct dt_conv *shape = &conv->shape, *rotated = &conv->rotated;
    const size_t n_places = (size_t)shape->h * (size_t)shape->w,
                 n_images = (size_t)conv->n_together;
    const size_t n_framed = (size_t)rotated->h * (size_t)rotated->w * (size_t)rotated->c;
    const bool drops = conv->fuses_pool && state->block.dropout_rate > 0;
    const size_t n_winograd = winograd_elems(conv);
    scratch->padded = piece(pieces, conv->pads, n_places * (size_t)shape->c, sizeof(float));
    scratch->dx =
        piece(pieces, !conv->dx_direct,
              n_places * dt_conv_channels(shape, state->cpu->kernels->vector), sizeof(float));
    scratch->framed = piece(pieces, shape->stride == 1, n_framed, sizeof(float));
    scratch->bf16 =
        piece(pieces, conv->bf16.used, dt_bf16_padded_elems(&conv->bf16), sizeof(uint16_t));
    scratch->winograd = piece(pieces, n_winograd > 0, n_winograd, sizeof(float));
    scratch->mask = piece(pieces, drops, n_images * state->n_pooled, sizeof(uint8_t));
    scratch->winner = piece(pieces, conv->fuses_pool, state->n_pooled, sizeof(uint16_t));
    place_lists(pieces, shape, &scratch->lists);
    scratch->nonzeros.bitmask = piece(pieces, !conv->fuses_pool, conv->n_words, sizeof(uint64_t));
    scratch->nonzeros.row_at = piece(pieces, true, (size_t)shape->out_h, sizeof(uint32_t));
    scratch->nonzeros.column_at = piece(pieces, true, (size_t)shape->out_w, sizeof(uint32_t));
}

static struct dt_cpu_scratch place_scratch(struct pieces *pieces,
                                           const struct dt_block_state *state)
{
    const struct dt_block *b = &state->block;
    const size_t n_images = b->linear == DT_LINEAR_CONV ? (size_t)state->conv.n_together : 1;
    struct dt_cpu_scratch scratch = {0};
    scratch.linear =
        piece(pieces, b->pool != DT_POOL_NONE, n_images * state->n_linear, sizeof(float));
    scratch.pooled = piece(pieces, state->tail.reorders, n_images * state->n_pooled, sizeof(float));
    scratch.dense = piece(pieces, b->linear == DT_LINEAR_DENSE, DT_DENSE_SCRATCH, sizeof(float));
    if (b->linear == DT_LINEAR_CONV) {
        place_conv_scratch(pieces, state, &scratch);
    }
    return scratch;
}

static struct dt_conv_sums place_sums(struct pieces *pieces, const struct dt_cpu_conv *conv,
                                      int vector)
{
    const size_t n_sparse = dt_conv_packed_backward_elems(&conv->shape, vector);
    struct dt_conv_sums sums = {0};
    sums.sparse = piece(pieces, true, n_sparse, sizeof(float));
    sums.dense = piece(pieces, true, dt_conv_dense_elems(&conv->shape, vector), sizeof(float));
    sums.bias = piece(pieces, true, dt_conv_filters(&conv->shape, vector), sizeof(float));
    return sums;
}

static void place_conv(struct pieces *pieces, struct dt_block_state *state)
{
    struct dt_cpu_conv *conv = &state->conv;
    const struct dt_conv *shape = &conv->shape, *rotated = &conv->rotated;
    const int vector = state->cpu->kernels->vector;
    const bool rotates = shape->stride == 1;
    conv->packed_forward =
        piece(pieces, true, dt_conv_packed_forward_elems(shape, vector), sizeof(float));
    conv->packed_backward =
        piece(pieces, true, dt_conv_packed_backward_elems(shape, vector), sizeof(float));
    conv->packed_winograd = piece(pieces, conv->winograd.used,
                                  dt_winograd_packed_elems(&conv->winograd), sizeof(float));
    conv->packed_bf16 =
        piece(pieces, conv->bf16.used, dt_bf16_packed_elems(&conv->bf16), sizeof(uint16_t));
    conv->rotated_weight = piece(pieces, rotates, state->n_weights, sizeof(float));
    conv->rotated_packed =
        piece(pieces, rotates, dt_conv_packed_forward_elems(rotated, vector), sizeof(float));
    conv->rotated_bias = piece(pieces, rotates, (size_t)rotated->k, sizeof(float));
    conv->packed_rotated = piece(pieces, conv->winograd_rotated.used,
                                 dt_winograd_packed_elems(&conv->winograd_rotated), sizeof(float));
    conv->bitmask =
        piece(pieces, conv->fuses_pool, (size_t)state->capacity * conv->n_words, sizeof(uint64_t));
    conv->total = place_sums(pieces, conv, vector);
    conv->sums = piece(pieces, true, (size_t)conv->n_slices, sizeof *conv->sums);
    for (int s = 0; s < conv->n_slices; s++) {
        const struct dt_conv_sums sums = place_sums(pieces, conv, vector);
        if (conv->sums != NULL) {
            conv->sums[s] = sums;
        }
    }
}

/* For a matrix (k, m). */
static void place_sparse(struct pieces *pieces, size_t k, size_t m, struct dt_sparse *sparse)
{
    const size_t n_blocks = (k + DT_DENSE_DEPTH - 1) / DT_DENSE_DEPTH;
    sparse->begin = piece(pieces, true, n_blocks * m + 1, sizeof *sparse->begin);
    sparse->entry = piece(pieces, true, k * m + DT_MAX_VECTOR, sizeof *sparse->entry);
}

static void place_tail(struct pieces *pieces, struct dt_block_state *state)
{
    const struct dt_block *b = &state->block;
    const size_t n = (size_t)state->capacity;
    const bool fused = state->conv.fuses_pool;
    struct dt_cpu_tail *tail = &state->tail;
    tail->winner =
        piece(pieces, b->pool == DT_POOL_MAX && !fused, n * state->n_pooled, sizeof(uint16_t));
    tail->slope = piece(pieces, tail->has_slope, n * state->n_linear, sizeof(float));
    tail->mask = piece(pieces, b->dropout_rate > 0 && !fused, n * state->n_pooled, sizeof(uint8_t));
}

static void place(struct pieces *pieces, struct dt_block_state *state)
{
    const size_t n = (size_t)state->capacity;
    const int n_threads = dt_threads_count(state->cpu->threads);
    switch (state->block.linear) {
    case DT_LINEAR_CONV:
        place_conv(pieces, state);
        break;
    case DT_LINEAR_DENSE:
        place_sparse(pieces, n, state->n_linear, &state->dense.by_unit);
        place_sparse(pieces, state->n_linear, n, &state->dense.by_sample);
        break;
    case DT_LINEAR_NONE:
        break;
    }
    place_tail(pieces, state);
    state->scratch = piece(pieces, true, (size_t)n_threads, sizeof *state->scratch);
    for (int t = 0; t < n_threads; t++) {
        const struct dt_cpu_scratch scratch = place_scratch(pieces, state);
        if (state->scratch != NULL) {
            state->scratch[t] = scratch;
        }
    }
}

/* Tells where the values of each position's nonzeros lie: in the pooled gradient or in the
 * convolution's own. */
static void fill_nonzeros(const struct dt_block_state *state, struct dt_nonzeros *nonzeros)
{
    const struct dt_conv *shape = &state->conv.shape;
    const struct dt_pooling *pool = &state->tail.pooling;
    const bool pooled = state->conv.nonzeros_pooled;
    const int step = pooled ? pool->stride : 1, n_columns = pooled ? pool->out_w : shape->out_w;
    for (int i = 0; i < shape->out_h; i++) {
        nonzeros->row_at[i] = (uint32_t)(i / step * n_columns * shape->k);
    }
    for (int i = 0; i < shape->out_w; i++) {
        nonzeros->column_at[i] = (uint32_t)(i / step * shape->k);
    }
}

static bool alloc_state(struct dt_block_state *state)
{
    struct pieces pieces = {0};
    place(&pieces, state);
    state->memory = pieces.too_large ? NULL : dt_cpu_memory(pieces.n_bytes);
    if (state->memory == NULL) {
        return false;
    }
    pieces = (struct pieces){.memory = state->memory};
    place(&pieces, state);
    for (int t = 0;
         state->block.linear == DT_LINEAR_CONV && t < dt_threads_count(state->cpu->threads); t++) {
        fill_nonzeros(state, &state->scratch[t].nonzeros);
    }
    return true;
}

enum dt_status dt_cpu_block_open(struct dt_backend *backend, const struct dt_model *model,
                                 int index, int capacity, struct dt_block_state **out)
{
    DT_ASSERT(index >= 0 && index < model->n_blocks && capacity >= 1);
    struct dt_cpu *cpu = (struct dt_cpu *)backend;
    const struct dt_block *b = &model->blocks[index];
    if (b->pool == DT_POOL_MAX && b->pool_h > 255) {
        return dt_error(
            DT_CONFIG,
            "model.layers: block %s has a max pool of size %d (the cpu backend's largest is 255)",
            b->name, b->pool_h);
    }
    struct dt_block_state *state = calloc(1, sizeof *state);
    if (state == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening block %s", b->name);
    }
    describe(state, cpu, model, index, capacity);
    if (!alloc_state(state)) {
        dt_cpu_block_close(state);
        return dt_error(DT_NO_MEMORY,
                        "out of memory while opening block %s (use a smaller model or batch)",
                        b->name);
    }
    *out = state;
    return DT_OK;
}

void dt_cpu_block_close(struct dt_block_state *state)
{
    free(state->memory);
    free(state);
}

void dt_cpu_frame(struct dt_shape image, const float *from, int to_w, int top, int left, float *to)
{
    DT_ASSERT(top >= 0 && left >= 0 && left + image.w <= to_w);
    const size_t n_c = (size_t)image.c, row = (size_t)image.w * n_c, to_row = (size_t)to_w * n_c;
    to += (size_t)top * to_row + (size_t)left * n_c;
    for (int h = 0; h < image.h; h++) {
        memcpy(to + (size_t)h * to_row, from + (size_t)h * row, row * sizeof(float));
    }
}

const float *dt_cpu_conv_input(const struct dt_block_state *state, const float *x,
                               struct dt_cpu_scratch *scratch)
{
    const struct dt_block *b = &state->block;
    if (!state->conv.pads) {
        return x;
    }
    dt_cpu_frame(b->in, x, state->conv.shape.w, b->pad_before_h, b->pad_before_w,
                 scratch->padded); /* the zeros of the frame stay */
    return scratch->padded;
}
