/* The fast CPU backend: dt_cpu_backend implements model/backend.h. Its vector kernels are chosen
 * for the processor at open (isa.h). Activations are (n, H, W, C) inside, and stay so at a flatten,
 * unless the block needs canonical order there (model/block.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "base/transform.h"
#include "cpu/block.h"
#include "cpu/isa.h"

#define CACHE_BYTES \
    ((size_t)1 << 20) /* private to a core: the second level of today's servers has 1 or 2 MB */
#define UPDATE_CHUNK ((size_t)1 << 16) /* floats per work item of an optimizer step */

/* ---- losses: small, so plain loops in double */

/* Adds one sample's loss to `metrics`; dz (n), unless NULL, gets its gradient: softmax(z) -
 * onehot(label). */
static void cross_entropy(int label, int n, const float *z, float *dz, struct dt_metrics *metrics)
{
    DT_ASSERT(label >= 0 && label < n);
    int best = 0;
    for (int i = 1; i < n; i++) {
        if (z[i] > z[best]) {
            best = i;
        }
    }
    const double largest = (double)z[best];
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const double e = exp((double)z[i] - largest);
        sum += e;
        if (dz != NULL) {
            dz[i] = (float)e;
        }
    }
    metrics->loss_sum += log(sum) + largest - (double)z[label];
    metrics->n_correct += best == label;
    if (dz != NULL) {
        const float share = (float)(1.0 / sum);
        for (int i = 0; i < n; i++) {
            dz[i] *= share;
        }
        dz[label] -= 1.0f;
    }
}

/* Gives a share of the label to all classes alike: in its loss and gradient. */
static void smooth_label(int label, int n, double share, const float *z, float *dz,
                         struct dt_metrics *metrics)
{
    DT_ASSERT(share > 0 && share < 1 && dz != NULL);
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)z[label] - (double)z[i];
        dz[i] -= (float)(share / n);
    }
    dz[label] += (float)share;
    metrics->loss_sum += share / n * sum;
}

/* The share that class k has of a label, with its weight. */
static double weighed(const float *weights, int label, int n, double smoothing, int k)
{
    return ((1 - smoothing) * (k == label) + smoothing / n) * (double)weights[k];
}

/* After cross_entropy, before which the losses' sum was `before`. With shares t, whose sum is T,
 * the gradient is T softmax(z) - t, as in PyTorch. */
static void weigh_classes(const float *weights, int label, int n, double smoothing, double before,
                          const float *z, float *dz, struct dt_metrics *metrics)
{
    double total = 0, spread = 0;
    for (int i = 0; i < n; i++) {
        const double t = weighed(weights, label, n, smoothing, i);
        total += t;
        spread += t * ((double)z[label] - (double)z[i]);
    }
    for (int i = 0; i < n; i++) {
        dz[i] = (float)(total * ((double)dz[i] + (i == label)) -
                        weighed(weights, label, n, smoothing, i));
    }
    metrics->loss_sum = before + total * (metrics->loss_sum - before) + spread;
}

/* The same with gradient 2 (z - target) / n, or of absolute errors sign(z - target) / n. */
static void value_error(bool squared, const float *target, int n, const float *z, float *dz,
                        struct dt_metrics *metrics)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        const double error = (double)z[i] - (double)target[i];
        squares += error * error;
        sum += fabs(error);
        if (dz != NULL) {
            dz[i] = (float)(squared ? 2.0 * error / n : ((error > 0) - (error < 0)) / (double)n);
        }
    }
    metrics->loss_sum += (squared ? squares : sum) / n;
    metrics->n_correct += 1 - squares / n;
}

/* ---- subnormal numbers */

/* Makes numbers too small for a normal float count as zero, in this thread and in threads that it
 * starts from then on. A weight whose input is always zero has gradients of zero. Adam's mean of
 * them shrinks by a tenth a step until it is subnormal, and there it stays, rounded up again each
 * time. A thousand steps later this holds for most weights after a blank background, and a
 * processor needs a hundred cycles for each operation on such a number.
 * Returns the thread's previous state, for restore_subnormals. */
static uint32_t flush_subnormals(void)
{
#if defined(__SSE2__)
    const uint32_t before = _mm_getcsr();
    _mm_setcsr(before | 0x8000 | 0x0040); /* results, and operands */
    return before;
#elif defined(__aarch64__)
    const uint32_t before = __builtin_aarch64_get_fpcr();
    __builtin_aarch64_set_fpcr(before | (uint32_t)1 << 24);
    return before;
#else
    return 0;
#endif
}

static void restore_subnormals(uint32_t before)
{
#if defined(__SSE2__)
    _mm_setcsr(before);
#elif defined(__aarch64__)
    __builtin_aarch64_set_fpcr(before);
#else
    (void)before;
#endif
}

/* ---- the backend */

struct dt_bound_samples {
    const struct dt_samples *samples;
};

static struct dt_cpu *cpu_of(struct dt_backend *backend)
{
    return (struct dt_cpu *)backend;
}

static enum dt_status cpu_open(const struct dt_backend_options *options, struct dt_backend **out)
{
    DT_ASSERT(options->n_threads >= 1);
    const struct dt_cpu_kernels *kernels;
    const struct dt_bf16_kernels *bf16 = NULL;
    if (options->precision == DT_PRECISION_TF32) {
        return dt_error(DT_UNAVAILABLE,
                        "the cpu backend has no tf32 (use \"precision\": \"f32\", or a GPU)");
    }
    DT_TRY(dt_cpu_isa_choose(&kernels));
    if (options->precision == DT_PRECISION_BF16) {
        DT_TRY(dt_cpu_isa_bf16(kernels, &bf16));
    }
    struct dt_cpu *cpu = calloc(1, sizeof *cpu);
    if (cpu == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening the cpu backend");
    }
    const int n_threads = options->n_threads > 1 ? options->n_threads : 1;
    cpu->subnormals = flush_subnormals(); /* threads inherit the setting */
    cpu->deterministic = options->deterministic;
    const enum dt_status s = dt_threads_open(n_threads, &cpu->threads);
    if (s != DT_OK) {
        restore_subnormals(cpu->subnormals);
        free(cpu);
        return s;
    }
    cpu->kernels = kernels;
    cpu->bf16 = bf16;
    snprintf(cpu->description, sizeof cpu->description, "%s%s, %d thread%s", kernels->isa,
             bf16 != NULL ? " with AMX" : "", n_threads, n_threads == 1 ? "" : "s");
    cpu->base = (struct dt_backend){.ops = &dt_cpu_backend,
                                    .description = cpu->description,
                                    .host_memory = true,
                                    .layers = kernels->layers};
    *out = &cpu->base;
    return DT_OK;
}

static void cpu_close(struct dt_backend *backend)
{
    dt_threads_close(cpu_of(backend)->threads);
    restore_subnormals(cpu_of(backend)->subnormals);
    free(backend);
}

static enum dt_status cpu_alloc(struct dt_backend *backend, size_t n_bytes, void **out)
{
    (void)backend;
    *out = dt_cpu_memory(n_bytes);
    DT_ASSERT((uintptr_t)*out % 64 == 0);
    return *out != NULL
               ? DT_OK
               : dt_error(DT_NO_MEMORY, "out of memory: %zu bytes (use a smaller model or batch)",
                          n_bytes);
}

static void cpu_free(struct dt_backend *backend, void *memory)
{
    (void)backend;
    free(memory);
}

static enum dt_status cpu_copy(struct dt_backend *backend, void *to, const void *from,
                               size_t n_bytes)
{
    (void)backend;
    memcpy(to, from, n_bytes);
    return DT_OK;
}

static enum dt_status cpu_sync(struct dt_backend *backend)
{
    (void)backend; /* every call has finished when it returns */
    return DT_OK;
}

static enum dt_status cpu_samples_open(struct dt_backend *backend, const struct dt_samples *samples,
                                       struct dt_bound_samples **out)
{
    (void)backend;
    *out = malloc(sizeof **out);
    if (*out == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while binding the data set");
    }
    (*out)->samples = samples;
    return DT_OK;
}

static void cpu_samples_close(struct dt_backend *backend, struct dt_bound_samples *bound)
{
    (void)backend;
    free(bound);
}

/* ---- pixels on their path to the network */

/* A stretch of a row of one channel: n pixels that stand `step` floats apart in x. */
struct stretch {
    const uint8_t *from;
    float scale, offset;
    size_t n, step;
};

/* Grey images have no gaps between pixels: a loop that the compiler vectorizes. */
static void put_forward(const struct stretch *s, float *x)
{
    if (s->step == 1) {
        for (size_t i = 0; i < s->n; i++) {
            x[i] = (float)s->from[i] * s->scale + s->offset;
        }
        return;
    }
    for (size_t i = 0; i < s->n; i++) {
        x[i * s->step] = (float)s->from[i] * s->scale + s->offset;
    }
}

/* From right to left; `from` is the last pixel. */
static void put_mirrored(const struct stretch *s, float *x)
{
    for (size_t i = 0; i < s->n; i++) {
        x[i * s->step] = (float)*(s->from - i) * s->scale + s->offset;
    }
}

static void put_black(size_t n, size_t step, float value, float *x)
{
    for (size_t i = 0; i < n; i++) {
        x[i * step] = value;
    }
}

/* Row y of a channel, `plane` its pixels. */
static void put_row(const struct dt_pixel_transform *t, const struct dt_pose *p,
                    const uint8_t *plane, int y, struct stretch s, float *x)
{
    const size_t w = (size_t)t->shape.w, left = (size_t)p->left, end = (size_t)p->end;
    if (y < p->top || y >= p->bottom || p->left >= p->end) {
        put_black(w, s.step, s.offset, x);
        return;
    }
    put_black(left, s.step, s.offset, x);
    DT_ASSERT(p->left >= 0 && p->end <= t->shape.w && y + p->down >= 0 && y + p->down < t->shape.h);
    s.from = plane + (size_t)(y + p->down) * w +
             (size_t)(p->mirrored ? p->right - p->left : p->right + p->left);
    s.n = end - left;
    (p->mirrored ? put_mirrored : put_forward)(&s, x + left * s.step);
    put_black(w - end, s.step, s.offset, x + end * s.step);
}

/* As the transform's `apply` (base/transform.h), but x is (H, W, C). The same bits. */
static void transform_image(const struct dt_transform *transform, const uint8_t *pixels,
                            uint32_t epoch, uint32_t id, float *x)
{
    const struct dt_pixel_transform *t = (const struct dt_pixel_transform *)transform;
    if (t->by_pixel) {
        dt_transform_pixels(t, pixels, epoch, id, 1, (size_t)t->shape.c, x);
        return;
    }
    const struct dt_pose pose = dt_transform_pose(t, epoch, id);
    const size_t n_c = (size_t)t->shape.c, n_h = (size_t)t->shape.h, n_w = (size_t)t->shape.w;
    for (size_t c = 0; c < n_c; c++) {
        const int k = dt_transform_channel(t, (int)c);
        const struct stretch s = {.scale = t->scale[k], .offset = t->offset[k], .step = n_c};
        for (size_t y = 0; y < n_h; y++) {
            put_row(t, &pose, pixels + c * n_h * n_w, (int)y, s, x + y * n_w * n_c + c);
        }
    }
}

/* Copies one sample, C H W to H W C: the same order if there is one channel or one pixel. */
static void gather_sample(const struct dt_cpu_kernels *kernels, const struct dt_samples *samples,
                          const struct dt_batch *batch, int i, float *x)
{
    DT_ASSERT(batch->rows[i] < samples->n);
    const size_t row = batch->rows[i];
    const size_t n_c = (size_t)samples->shape.c,
                 n_hw = (size_t)samples->shape.h * (size_t)samples->shape.w;
    const size_t from = row * n_c * n_hw;
    if (samples->transform != NULL) {
        transform_image(samples->transform, samples->pixels + from, batch->epoch, batch->ids[i], x);
        return;
    }
    if (samples->pixels != NULL && (n_c == 1 || n_hw == 1)) {
        kernels->scale_pixels(n_c * n_hw, samples->pixels + from, samples->scale, x);
        return;
    }
    for (size_t c = 0; c < n_c; c++) {
        for (size_t j = 0; j < n_hw; j++) {
            x[j * n_c + c] = samples->pixels != NULL
                                 ? (float)samples->pixels[from + c * n_hw + j] * samples->scale
                                 : samples->values[from + c * n_hw + j];
        }
    }
}

/* Samples are drawn at random, so no processor can predict the next: they are prefetched, so many
 * ahead. */
#define GATHER_AHEAD 2
#define LABELS_AHEAD 8

static void ask_for_sample(const struct dt_samples *samples, size_t row, size_t n_elems)
{
    const size_t n_bytes = samples->pixels != NULL ? n_elems : n_elems * sizeof *samples->values;
    const char *sample =
        samples->pixels != NULL ? (const char *)samples->pixels : (const char *)samples->values;
    for (size_t at = 0; at < n_bytes; at += 64) {
        __builtin_prefetch(sample + row * n_bytes + at);
    }
}

static enum dt_status cpu_gather(struct dt_backend *backend, struct dt_bound_samples *bound,
                                 const struct dt_batch *batch, float *x)
{
    const struct dt_cpu_kernels *kernels = cpu_of(backend)->kernels;
    const size_t n_elems = dt_shape_elems(bound->samples->shape);
    for (int i = 0; i < batch->n; i++) {
        if (i + GATHER_AHEAD < batch->n) {
            ask_for_sample(bound->samples, batch->rows[i + GATHER_AHEAD], n_elems);
        }
        gather_sample(kernels, bound->samples, batch, i, x + (size_t)i * n_elems);
    }
    return DT_OK;
}

/* Per thread as many images as its core's private cache holds of the largest block's input and
 * output and their gradients. Rounded to whole slices, so that gradients are the same sums whatever
 * the chunks. */
static int chunk_of(const struct dt_cpu *cpu, const struct dt_model *model, int capacity)
{
    const size_t slice = (size_t)dt_cpu_slice(cpu, capacity);
    size_t largest = 1;
    for (int b = 0; b < model->n_spatial; b++) {
        const size_t n = dt_shape_elems(model->blocks[b].in) + dt_shape_elems(model->blocks[b].out);
        largest = n > largest ? n : largest;
    }
    const size_t n_fit = CACHE_BYTES / (2 * largest * sizeof(float)) / slice;
    const size_t chunk = (n_fit > 0 ? n_fit : 1) * slice * (size_t)dt_threads_count(cpu->threads);
    DT_ASSERT(slice >= 1 && chunk % slice == 0);
    return chunk < (size_t)capacity ? (int)chunk : capacity;
}

/* The first block's output is often the largest of all, and recomputing a convolution of few
 * channels costs almost nothing. */
static struct dt_network_plan cpu_plan(const struct dt_backend *backend,
                                       const struct dt_model *model, int capacity)
{
    const struct dt_cpu *cpu = (const struct dt_cpu *)backend;
    const struct dt_block *blocks = model->blocks;
    struct dt_network_plan plan = {.chunk = chunk_of(cpu, model, capacity)};
    const bool cheap =
        model->n_spatial > 1 && 16 * dt_block_flops(&blocks[0]) < dt_block_flops(&blocks[1]);
    plan.n_recomputed = cheap && plan.chunk < capacity ? 1 : 0;
    for (int b = 1; b < model->n_blocks; b++) {
        plan.dx_over_x[b] = dt_cpu_block_dx_over_x(cpu, model, b, capacity);
    }
    DT_ASSERT(plan.n_recomputed == 0 || plan.n_recomputed < model->n_spatial);
    return plan;
}

static enum dt_status cpu_loss(struct dt_backend *backend, const struct dt_model_spec *spec,
                               struct dt_bound_samples *bound, const struct dt_batch *batch,
                               int n_outputs, const float *logits, float *dlogits)
{
    struct dt_metrics *metrics = &cpu_of(backend)->metrics;
    const struct dt_samples *samples = bound->samples;
    for (int i = 0; i < batch->n; i++) {
        const size_t row = batch->rows[i], at = (size_t)i * (size_t)n_outputs;
        DT_ASSERT(row < samples->n);
        if (i + LABELS_AHEAD < batch->n && samples->labels != NULL) {
            __builtin_prefetch(&samples->labels[batch->rows[i + LABELS_AHEAD]]);
        }
        float *dz = dlogits != NULL ? dlogits + at : NULL;
        const double before = metrics->loss_sum;
        switch (spec->loss) {
        case DT_LOSS_SOFTMAX_CROSS_ENTROPY:
            cross_entropy(samples->labels[row], n_outputs, logits + at, dz, metrics);
            if (dz != NULL && batch->class_weights != NULL) {
                weigh_classes(batch->class_weights, samples->labels[row], n_outputs,
                              spec->label_smoothing, before, logits + at, dz, metrics);
            } else if (dz != NULL && spec->label_smoothing > 0) {
                smooth_label(samples->labels[row], n_outputs, spec->label_smoothing, logits + at,
                             dz, metrics);
            }
            break;
        case DT_LOSS_MEAN_SQUARED_ERROR:
        case DT_LOSS_MEAN_ABSOLUTE_ERROR:
            value_error(spec->loss == DT_LOSS_MEAN_SQUARED_ERROR,
                        samples->targets + row * (size_t)n_outputs, n_outputs, logits + at, dz,
                        metrics);
            break;
        }
    }
    metrics->n_samples += batch->n;
    return DT_OK;
}

static enum dt_status cpu_metrics_take(struct dt_backend *backend, struct dt_metrics *out)
{
    *out = cpu_of(backend)->metrics;
    DT_ASSERT(!(out->n_correct > out->n_samples));
    cpu_of(backend)->metrics = (struct dt_metrics){0};
    return DT_OK;
}

static double sum_squares(const struct dt_cpu *cpu, const float *x, size_t n_elems)
{
    double total = 0;
    for (size_t begin = 0; begin < n_elems; begin += DT_SUM_CHUNK) {
        const size_t n = n_elems - begin < DT_SUM_CHUNK ? n_elems - begin : DT_SUM_CHUNK;
        total += cpu->kernels->sum_squares(n, x + begin);
    }
    return total;
}

static enum dt_status cpu_sum_squares(struct dt_backend *backend, size_t n_elems, const float *x,
                                      double *out)
{
    *out = sum_squares(cpu_of(backend), x, n_elems);
    return DT_OK;
}

struct update_work {
    const struct dt_cpu_kernels *kernels;
    const struct dt_update *update;
    size_t n_elems;
    float *params;
    const float *grads;
    float *state1, *state2;
};

static void update_chunk(void *context, int item, int thread)
{
    (void)thread;
    const struct update_work *work = context;
    const size_t at = (size_t)item * UPDATE_CHUNK, left = work->n_elems - at,
                 n = left < UPDATE_CHUNK ? left : UPDATE_CHUNK;
    DT_ASSERT(at < work->n_elems);
    switch (work->update->type) {
    case DT_OPTIMIZER_SGD:
        work->kernels->sgd(work->update, n, work->params + at, work->grads + at,
                           work->state1 != NULL ? work->state1 + at : NULL);
        break;
    case DT_OPTIMIZER_ADAM:
    case DT_OPTIMIZER_ADAMW:
        work->kernels->adam(work->update, n, work->params + at, work->grads + at, work->state1 + at,
                            work->state2 + at);
        break;
    }
}

static enum dt_status cpu_optimizer_step(struct dt_backend *backend, const struct dt_update *update,
                                         size_t n_elems, float *params, const float *grads,
                                         float *state1, float *state2)
{
    DT_ASSERT(update->clip_norm >= 0);
    DT_ASSERT(update->type == DT_OPTIMIZER_SGD || (state1 != NULL && state2 != NULL));
    struct dt_cpu *cpu = cpu_of(backend);
    struct dt_update clipped = *update;
    if (!dt_update_is_elementwise(update)) {
        clipped.grad_scale = dt_update_clipped_scale(update, sum_squares(cpu, grads, n_elems));
    }
    struct update_work work = {cpu->kernels, &clipped, n_elems, params, grads, state1, state2};
    dt_threads_run(cpu->threads, (int)((n_elems + UPDATE_CHUNK - 1) / UPDATE_CHUNK), update_chunk,
                   &work);
    return DT_OK;
}

const struct dt_backend_ops dt_cpu_backend = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy_in = cpu_copy,
    .copy_out = cpu_copy,
    .sync = cpu_sync,
    .samples_open = cpu_samples_open,
    .samples_close = cpu_samples_close,
    .gather = cpu_gather,
    .plan = cpu_plan,
    .block_open = dt_cpu_block_open,
    .block_close = dt_cpu_block_close,
    .block_forward = dt_cpu_block_forward,
    .block_backward = dt_cpu_block_backward,
    .loss = cpu_loss,
    .metrics_take = cpu_metrics_take,
    .optimizer_step = cpu_optimizer_step,
    .sum_squares = cpu_sum_squares,
};
