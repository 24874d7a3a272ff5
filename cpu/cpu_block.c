#include "cpu/cpu_block_state.h"

#include <stdlib.h>
#include <string.h>

/* Extents of the padded input: the image itself, or what the windows reach over. */
static void describe_conv(struct dt_block_state *state, int vector)
{
    const struct dt_block *b = &state->block;
    const struct dt_shape in = b->in, out = b->linear_out;
    const int reach_h = (out.h - 1) * b->stride + b->kernel, reach_w = (out.w - 1) * b->stride + b->kernel;
    state->pads = b->pad_before_h > 0 || b->pad_before_w > 0 || reach_h > in.h || reach_w > in.w;
    state->conv = (struct dt_conv){.c = in.c,
                                   .h = state->pads ? dt_max(reach_h, in.h + b->pad_before_h) : in.h,
                                   .w = state->pads ? dt_max(reach_w, in.w + b->pad_before_w) : in.w,
                                   .k = out.c,
                                   .out_h = out.h,
                                   .out_w = out.w,
                                   .kernel = b->kernel,
                                   .stride = b->stride};
    state->turned = (struct dt_conv){.c = out.c,
                                     .h = in.h + b->kernel - 1,
                                     .w = in.w + b->kernel - 1,
                                     .k = in.c,
                                     .out_h = in.h,
                                     .out_w = in.w,
                                     .kernel = b->kernel,
                                     .stride = 1};
    state->winograd = (struct dt_winograd){.c = in.c,
                                           .h = in.h,
                                           .w = in.w,
                                           .top = b->pad_before_h,
                                           .left = b->pad_before_w,
                                           .k = out.c,
                                           .out_h = out.h,
                                           .out_w = out.w};
    state->bf16 = (struct dt_bf16){.conv = state->conv,
                                   .in_h = in.h,
                                   .in_w = in.w,
                                   .top = b->pad_before_h,
                                   .left = b->pad_before_w,
                                   .used = state->cpu->bf16 != NULL && in.c >= DT_BF16_FEWEST};
    if (b->kernel == 3 && b->stride == 1 && !state->bf16.used) {
        dt_winograd_plan(&state->winograd, vector);
    }
    state->n_together = state->winograd.used ? state->winograd.images : 1;
    state->fuses_pool = (state->winograd.used || state->bf16.used) && b->activation == DT_ACTIVATION_RELU &&
                        b->pool == DT_POOL_MAX && b->pool_size == 2 && b->pool_stride == 2;
    state->n_words = (size_t)out.h * (size_t)out.w * dt_survivor_words(out.c);
    state->dx_direct = !state->pads && in.c % vector == 0;
    state->survivors_pooled = b->pool == DT_POOL_MAX && b->pool_size <= b->pool_stride;
    state->masks_only = b->pool == DT_POOL_NONE && b->dropout_rate == 0 && !state->turns &&
                        (b->activation == DT_ACTIVATION_NONE || b->activation == DT_ACTIVATION_RELU);
}

static void describe(struct dt_block_state *state, const struct dt_cpu *cpu, const struct dt_model *model, int index, int capacity)
{
    const struct dt_block *b = &state->block;
    state->block = model->blocks[index];
    state->cpu = cpu;
    state->capacity = capacity;
    state->n_in = dt_shape_elems(b->in);
    state->n_linear = dt_shape_elems(b->linear_out);
    state->n_pooled = dt_shape_elems(b->pool_out);
    state->pooling = (struct dt_pooling){.c = b->linear_out.c,
                                         .h = b->linear_out.h,
                                         .w = b->linear_out.w,
                                         .out_h = b->pool_out.h,
                                         .out_w = b->pool_out.w,
                                         .size = b->pool_size,
                                         .stride = b->pool_stride};
    state->turns = b->canonical && b->pool_out.c > 1 && b->pool_out.h * b->pool_out.w > 1;
    state->dropout_scale = 1.0f / (1.0f - b->dropout_rate);
    if (b->linear != DT_LINEAR_NONE) {
        state->weight_offset = model->params[b->weight].offset;
        state->bias_offset = model->params[b->bias].offset;
        state->n_weights = model->params[b->weight].n_elems;
    }
    if (b->linear == DT_LINEAR_CONV) {
        describe_conv(state, cpu->kernels->vector);
        state->slice = dt_cpu_slice(capacity);
        state->n_slices = dt_threads_count(cpu->threads);
    }
}

/* A dense layer is done with a few columns of x before it writes those of dx, and survivors' bits say all that a fused convolution
 * wants to know of its output. */
bool dt_cpu_block_dx_over_x(const struct dt_cpu *cpu, const struct dt_model *model, int index, int capacity)
{
    struct dt_block_state below = {0};
    describe(&below, cpu, model, index - 1, capacity);
    return model->blocks[index].linear == DT_LINEAR_DENSE && below.fuses_pool;
}

/* n elements of `size` bytes, or NULL in a block that does not want them. `ok` turns false when memory runs out. */
static void *memory_if(bool wanted, size_t n, size_t size, bool *ok)
{
    void *memory = NULL;
    size_t n_bytes;
    if (wanted) {
        memory = __builtin_mul_overflow(n, size, &n_bytes) ? NULL : dt_cpu_memory(n_bytes);
        *ok = *ok && memory != NULL;
    }
    return memory;
}

#define BAND_BYTES 40000 /* of x: what a band of lists sees */

/* Survivors and their lists. Filters' lists are an odd number of cache lines apart, so that their ends share no set of the cache.
 */
static bool alloc_lists(const struct dt_block_state *state, struct dt_cpu_scratch *scratch)
{
    const struct dt_conv *conv = &state->conv;
    const size_t n_k = (size_t)conv->k, n_w = (size_t)conv->out_w, n_h = (size_t)conv->out_h, line = 64 / sizeof(struct dt_entry);
    const size_t band_rows = BAND_BYTES / ((size_t)conv->w * (size_t)conv->c * sizeof(float));
    struct dt_conv_lists *lists = &scratch->lists;
    bool ok = true;
    lists->band = band_rows > (size_t)conv->kernel ? (int)(band_rows - (size_t)conv->kernel) / conv->stride + 1 : 1;
    lists->end = memory_if(true, n_k, sizeof(struct dt_entry *), &ok);
    lists->begin = memory_if(true, n_k * ((n_h + (size_t)lists->band - 1) / (size_t)lists->band), sizeof(struct dt_entry *), &ok);
    lists->stride = (dt_round_up(n_w * n_h, line) / line | 1) * line;
    lists->entry = memory_if(true, n_k * lists->stride, sizeof *lists->entry, &ok);
    scratch->survivors.word = memory_if(!state->fuses_pool, state->n_words, sizeof(uint64_t), &ok);
    scratch->survivors.row_at = memory_if(true, n_h, sizeof(uint32_t), &ok);
    scratch->survivors.column_at = memory_if(true, n_w, sizeof(uint32_t), &ok);
    return ok;
}

/* Where the values of each position's survivors are, in the pooled gradient or in the convolution's own. */
static void place_survivors(const struct dt_block_state *state, struct dt_survivors *survivors)
{
    const struct dt_conv *conv = &state->conv;
    const struct dt_pooling *pool = &state->pooling;
    const int step = state->survivors_pooled ? pool->stride : 1, n_columns = state->survivors_pooled ? pool->out_w : conv->out_w;
    for (int i = 0; i < conv->out_h; i++) {
        survivors->row_at[i] = (uint32_t)(i / step * n_columns * conv->k);
    }
    for (int i = 0; i < conv->out_w; i++) {
        survivors->column_at[i] = (uint32_t)(i / step * conv->k);
    }
}

/* For a matrix (k, m). */
static void alloc_sparse(bool wanted, size_t k, size_t m, struct dt_sparse *sparse, bool *ok)
{
    const size_t n_blocks = (k + DT_DENSE_DEPTH - 1) / DT_DENSE_DEPTH;
    sparse->begin = memory_if(wanted, n_blocks * m + 1, sizeof *sparse->begin, ok);
    sparse->next = memory_if(wanted, m, sizeof *sparse->next, ok);
    sparse->entry = memory_if(wanted, k * m + 1, sizeof *sparse->entry, ok);
}

static bool alloc_scratch(const struct dt_block_state *state, struct dt_cpu_scratch *scratch)
{
    const struct dt_block *b = &state->block;
    const struct dt_conv *conv = &state->conv;
    const bool is_conv = b->linear == DT_LINEAR_CONV;
    const size_t n_images = b->linear == DT_LINEAR_CONV ? (size_t)state->n_together : 1;
    const int vector = state->cpu->kernels->vector;
    const size_t n_places = (size_t)conv->h * (size_t)conv->w, n_padded = n_places * (size_t)conv->c;
    bool ok = true;
    scratch->padded = memory_if(state->pads, n_padded, sizeof(float), &ok);
    scratch->linear = memory_if(b->pool != DT_POOL_NONE, n_images * state->n_linear, sizeof(float), &ok);
    scratch->pooled = memory_if(state->turns, n_images * state->n_pooled, sizeof(float), &ok);
    scratch->dx = memory_if(is_conv && !state->dx_direct, n_places * dt_conv_channels(conv, vector), sizeof(float), &ok);
    const struct dt_conv *turned = &state->turned;
    const size_t n_framed = (size_t)turned->h * (size_t)turned->w * (size_t)turned->c;
    scratch->framed = memory_if(is_conv && b->stride == 1, n_framed, sizeof(float), &ok);
    scratch->bf16 = memory_if(state->bf16.used, dt_bf16_padded_elems(&state->bf16), sizeof(uint16_t), &ok);
    scratch->winograd = memory_if(state->winograd.used, dt_winograd_scratch_elems(&state->winograd), sizeof(float), &ok);
    const bool drops = state->fuses_pool && b->dropout_rate > 0;
    scratch->keep = memory_if(drops, n_images * state->n_pooled, sizeof(uint8_t), &ok);
    scratch->winner = memory_if(state->fuses_pool, state->n_pooled, sizeof(uint16_t), &ok);
    scratch->dense = memory_if(b->linear == DT_LINEAR_DENSE, DT_DENSE_SCRATCH, sizeof(float), &ok);
    if (is_conv) {
        ok = ok && alloc_lists(state, scratch);
        if (ok) {
            place_survivors(state, &scratch->survivors);
        }
    }
    return ok;
}

static bool alloc_sums(const struct dt_conv *conv, int vector, struct dt_conv_sums *sums)
{
    bool ok = true;
    sums->sparse = memory_if(true, dt_conv_packed_backward_elems(conv, vector), sizeof(float), &ok);
    sums->dense = memory_if(true, dt_conv_dense_elems(conv, vector), sizeof(float), &ok);
    sums->bias = memory_if(true, dt_conv_filters(conv, vector), sizeof(float), &ok);
    return ok;
}

static bool alloc_slices(struct dt_block_state *state, int vector)
{
    bool ok = alloc_sums(&state->conv, vector, &state->total);
    state->sums = calloc((size_t)state->n_slices, sizeof *state->sums);
    ok = ok && state->sums != NULL;
    for (int s = 0; ok && s < state->n_slices; s++) {
        ok = alloc_sums(&state->conv, vector, &state->sums[s]);
    }
    return ok;
}

static bool alloc_state(struct dt_block_state *state)
{
    const struct dt_block *b = &state->block;
    const bool is_conv = b->linear == DT_LINEAR_CONV;
    const int vector = state->cpu->kernels->vector;
    const size_t n = (size_t)state->capacity, n_backward = is_conv ? dt_conv_packed_backward_elems(&state->conv, vector) : 0;
    const size_t n_forward = is_conv ? dt_conv_packed_forward_elems(&state->conv, vector) : 0;
    bool ok = !is_conv || alloc_slices(state, vector);
    state->packed_forward = memory_if(is_conv, n_forward, sizeof(float), &ok);
    state->packed_winograd = memory_if(state->winograd.used, dt_winograd_packed_elems(&state->winograd), sizeof(float), &ok);
    state->packed_bf16 = memory_if(state->bf16.used, dt_bf16_packed_elems(&state->bf16), sizeof(uint16_t), &ok);
    state->packed_backward = memory_if(is_conv, n_backward, sizeof(float), &ok);
    const bool turns_back = is_conv && b->stride == 1;
    const size_t n_turned = is_conv ? dt_conv_packed_forward_elems(&state->turned, vector) : 0;
    state->turned_weight = memory_if(turns_back, state->n_weights, sizeof(float), &ok);
    state->turned_packed = memory_if(turns_back, n_turned, sizeof(float), &ok);
    state->turned_bias = memory_if(turns_back, (size_t)b->in.c, sizeof(float), &ok);
    alloc_sparse(b->linear == DT_LINEAR_DENSE, n, state->n_linear, &state->by_unit, &ok);
    alloc_sparse(b->linear == DT_LINEAR_DENSE, state->n_linear, n, &state->by_sample, &ok);
    state->winner = memory_if(b->pool == DT_POOL_MAX && !state->fuses_pool, n * state->n_pooled, sizeof(uint16_t), &ok);
    state->word = memory_if(state->fuses_pool, n * state->n_words, sizeof(uint64_t), &ok);
    state->activated =
        memory_if(b->pool == DT_POOL_AVG && b->activation != DT_ACTIVATION_NONE, n * state->n_linear, sizeof(float), &ok);
    state->keep = memory_if(b->dropout_rate > 0 && !state->fuses_pool, n * state->n_pooled, sizeof(uint8_t), &ok);
    state->scratch = calloc((size_t)dt_threads_count(state->cpu->threads), sizeof *state->scratch);
    ok = ok && state->scratch != NULL;
    for (int t = 0; ok && t < dt_threads_count(state->cpu->threads); t++) {
        ok = alloc_scratch(state, &state->scratch[t]);
    }
    return ok;
}

enum dt_status dt_cpu_block_open(struct dt_backend *backend, const struct dt_model *model, int index, int capacity,
                                 struct dt_block_state **out)
{
    struct dt_cpu *cpu = (struct dt_cpu *)backend;
    const struct dt_block *b = &model->blocks[index];
    if (b->pool == DT_POOL_MAX && b->pool_size > 255) {
        return dt_error(DT_CONFIG, "model.layers: block %s has a max pool of size %d (the cpu backend's largest is 255)", b->name,
                        b->pool_size);
    }
    struct dt_block_state *state = calloc(1, sizeof *state);
    if (state == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening block %s", b->name);
    }
    describe(state, cpu, model, index, capacity);
    if (!alloc_state(state)) {
        dt_cpu_block_close(state);
        return dt_error(DT_NO_MEMORY, "out of memory while opening block %s (use a smaller model or batch)", b->name);
    }
    *out = state;
    return DT_OK;
}

static void free_scratch(struct dt_cpu_scratch *scratch)
{
    free(scratch->padded);
    free(scratch->linear);
    free(scratch->pooled);
    free(scratch->dx);
    free(scratch->framed);
    free(scratch->winograd);
    free(scratch->keep);
    free(scratch->winner);
    free(scratch->bf16);
    free(scratch->dense);
    free(scratch->lists.begin);
    free(scratch->lists.end);
    free(scratch->lists.entry);
    free(scratch->survivors.word);
    free(scratch->survivors.row_at);
    free(scratch->survivors.column_at);
}

static void free_sums(struct dt_conv_sums *sums)
{
    free(sums->sparse);
    free(sums->dense);
    free(sums->bias);
}

void dt_cpu_block_close(struct dt_block_state *state)
{
    for (int s = 0; state->sums != NULL && s < state->n_slices; s++) {
        free_sums(&state->sums[s]);
    }
    free(state->sums);
    free_sums(&state->total);
    for (int t = 0; state->scratch != NULL && t < dt_threads_count(state->cpu->threads); t++) {
        free_scratch(&state->scratch[t]);
    }
    free(state->scratch);
    free(state->packed_forward);
    free(state->packed_winograd);
    free(state->packed_bf16);
    free(state->packed_backward);
    free(state->turned_weight);
    free(state->turned_packed);
    free(state->turned_bias);
    free(state->by_unit.begin);
    free(state->by_unit.next);
    free(state->by_unit.entry);
    free(state->by_sample.begin);
    free(state->by_sample.next);
    free(state->by_sample.entry);
    free(state->winner);
    free(state->word);
    free(state->activated);
    free(state->keep);
    free(state);
}

void dt_cpu_frame(struct dt_shape image, const float *from, int to_w, int top, int left, float *to)
{
    const size_t n_c = (size_t)image.c, row = (size_t)image.w * n_c, to_row = (size_t)to_w * n_c;
    to += (size_t)top * to_row + (size_t)left * n_c;
    for (int h = 0; h < image.h; h++) {
        memcpy(to + (size_t)h * to_row, from + (size_t)h * row, row * sizeof(float));
    }
}

const float *dt_cpu_conv_input(const struct dt_block_state *state, const float *x, struct dt_cpu_scratch *scratch)
{
    const struct dt_block *b = &state->block;
    if (!state->pads) {
        return x;
    }
    dt_cpu_frame(b->in, x, state->conv.w, b->pad_before_h, b->pad_before_w, scratch->padded); /* the zeros around stay */
    return scratch->padded;
}
