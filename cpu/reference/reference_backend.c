/* The reference backend: plain loops in canonical order with double accumulators, sample by sample
 * and stage by stage, images in C H W order. Tests compare every other backend with it, so its only
 * aim is to be obviously right. Its blocks come first. */
#include "model/backend.h"
#include "model/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct dt_block_state {
    const struct dt_block *block;
    size_t n_weights;
    size_t bias_offset; /* from grad_begin, where the weight is */
    float *padded;      /* a sample's image with the zeros around it */
    double *sums;       /* (padded) of a row of the output, or a sample's input gradient */
    double *grad_sums;  /* (grad_begin .. grad_end) gradient of the batch, laid out as the arena */
    float *linear;      /* (capacity, linear_out): after the bias */
    float *delta;       /* (linear_out) of one sample: activated, reordered, or its gradient */
    uint32_t *winner;   /* (capacity, pool_out): max pool's chosen input, as an index into a
                           sample's linear_out */
};

static size_t at(struct dt_shape s, int c, int h, int w)
{
    return ((size_t)c * (size_t)s.h + (size_t)h) * (size_t)s.w + (size_t)w;
}

/* Channels, rows and columns of a convolution's image with zeros around it: all that windows meet,
 * and what a stride leaves over. Of any other block the image itself. */
static struct dt_shape padded_of(const struct dt_block *b)
{
    const int h = b->pad_before_h + b->in.h, w = b->pad_before_w + b->in.w;
    return (struct dt_shape){b->in.c,
                             h + dt_conv_pad_after(b, b->in.h, b->pad_before_h, b->linear_out.h),
                             w + dt_conv_pad_after(b, b->in.w, b->pad_before_w, b->linear_out.w)};
}

/* The state and all its arrays are one piece of memory. */
static enum dt_status ref_block_open(struct dt_backend *backend, const struct dt_model *model,
                                     int index, int capacity, struct dt_block_state **out)
{
    (void)backend;
    const struct dt_block *block = &model->blocks[index];
    const size_t n = (size_t)capacity, n_padded = dt_shape_elems(padded_of(block)),
                 n_linear = dt_shape_elems(block->linear_out),
                 n_grads = block->grad_end - block->grad_begin,
                 n_kept = n * (n_linear + dt_shape_elems(block->pool_out));
    struct dt_block_state *state = calloc(1, sizeof *state + (n_padded + n_grads) * sizeof(double) +
                                                 (n_linear + n_padded + n_kept) * sizeof(float));
    if (state == NULL) {
        return dt_error(DT_NO_MEMORY,
                        "out of memory while opening block %s (use a smaller model or batch)",
                        block->name);
    }
    state->block = block;
    state->sums = (double *)(state + 1);
    state->grad_sums = state->sums + n_padded;
    state->linear = (float *)(state->grad_sums + n_grads);
    state->delta = state->linear + n * n_linear;
    state->padded = state->delta + n_linear;
    state->winner = (uint32_t *)(state->padded + n_padded);
    if (block->linear != DT_LINEAR_NONE) {
        state->n_weights = model->params[block->weight].n_elems;
        state->bias_offset = model->params[block->bias].offset - block->grad_begin;
    }
    *out = state;
    return DT_OK;
}

static void ref_block_close(struct dt_block_state *state)
{
    free(state);
}

static double activate(enum dt_activation activation, double z)
{
    switch (activation) {
    case DT_ACTIVATION_RELU:
        return z < 0 ? 0.0 : z; /* this way round a NaN stays one */
    case DT_ACTIVATION_TANH:
        return tanh(z);
    case DT_ACTIVATION_SIGMOID:
        return 1.0 / (1.0 + exp(-z));
    case DT_ACTIVATION_LEAKY_RELU:
        return z > 0 ? z : DT_LEAKY_SLOPE * z;
    case DT_ACTIVATION_GELU:
        return z * 0.5 * erfc(-z * M_SQRT1_2);
    case DT_ACTIVATION_NONE:
        break;
    }
    return z;
}

/* Derivative at z. */
static double slope(enum dt_activation activation, double z)
{
    const double y = activate(activation, z);
    switch (activation) {
    case DT_ACTIVATION_RELU:
        return y > 0;
    case DT_ACTIVATION_TANH:
        return 1.0 - y * y;
    case DT_ACTIVATION_SIGMOID:
        return y * (1.0 - y);
    case DT_ACTIVATION_LEAKY_RELU:
        return z > 0 ? 1.0 : DT_LEAKY_SLOPE;
    case DT_ACTIVATION_GELU: /* the integral, and z times the density */
        return 0.5 * erfc(-z * M_SQRT1_2) + z * exp(-z * z / 2) * M_2_SQRTPI * M_SQRT1_2 / 2;
    case DT_ACTIVATION_NONE:
        break;
    }
    return 1.0;
}

/* The place of element i of the image in it. */
static size_t padded_at(const struct dt_block *b, size_t i)
{
    const size_t w = (size_t)b->in.w, h = (size_t)b->in.h;
    return at(padded_of(b), (int)(i / (w * h)), b->pad_before_h + (int)(i / w % h),
              b->pad_before_w + (int)(i % w));
}

static int taps_of(const struct dt_block *b)
{
    return b->in.c * b->kernel * b->kernel;
}

/* Where tap i of a filter meets the padded image on its way along row p of the output. */
static size_t met_by(const struct dt_block *b, int i, int p)
{
    const int size = b->kernel;
    return at(padded_of(b), i / (size * size), p * b->stride + i / size % size, i % size);
}

/* sums[i * sums_step] += w * x[i * x_step] */
static void add_row(int n, double w, const float *x, int x_step, double *sums, int sums_step)
{
    for (int i = 0; i < n; i++) {
        sums[i * sums_step] += w * x[i * x_step];
    }
}

/* The innermost loop goes along a row of the output. Every sum still adds in the order of its
 * formula: channel, row and column of the window. */
static void conv_forward(const struct dt_block_state *st, const float *weight, const float *bias,
                         float *y)
{
    const struct dt_block *b = st->block;
    const struct dt_shape out = b->linear_out;
    for (int k = 0; k < out.c; k++, weight += taps_of(b)) {
        for (int p = 0; p < out.h; p++, y += out.w) {
            for (int q = 0; q < out.w; q++) {
                st->sums[q] = bias[k];
            }
            for (int i = 0; i < taps_of(b); i++) {
                add_row(out.w, weight[i], st->padded + met_by(b, i, p), b->stride, st->sums, 1);
            }
            for (int q = 0; q < out.w; q++) {
                y[q] = (float)st->sums[q];
            }
        }
    }
}

/* Adds to the weight sums and to dx, padded (NULL: not wanted), in the order of row and column of
 * the output. Taps go backward, so that an element of dx adds along the row. */
static void conv_backward(const struct dt_block_state *st, const float *weight, const float *dz,
                          double *dw, double *db, double *dx)
{
    const struct dt_block *b = st->block;
    const struct dt_shape out = b->linear_out;
    for (int k = 0; k < out.c; k++, weight += taps_of(b), dw += taps_of(b)) {
        for (int p = 0; p < out.h; p++, dz += out.w) {
            for (int q = 0; q < out.w; q++) {
                db[k] += dz[q];
            }
            for (int i = taps_of(b) - 1; i >= 0; i--) {
                const size_t met = met_by(b, i, p);
                for (int q = 0; q < out.w; q++) {
                    dw[i] += (double)dz[q] * st->padded[met + (size_t)(q * b->stride)];
                }
                if (dx != NULL) {
                    add_row(out.w, weight[i], dz, 1, dx + met, b->stride);
                }
            }
        }
    }
}

static void dense_forward(const struct dt_block *b, const float *weight, const float *bias,
                          const float *x, float *y)
{
    const size_t n_in = dt_shape_elems(b->in);
    for (int k = 0; k < b->linear_out.c; k++, weight += n_in) {
        double sum = bias[k];
        for (size_t i = 0; i < n_in; i++) {
            sum += (double)weight[i] * x[i];
        }
        y[k] = (float)sum;
    }
}

/* Adds to the weight sums and to dx (NULL: not wanted). */
static void dense_backward(const struct dt_block *b, const float *weight, const float *x,
                           const float *dz, double *dw, double *db, double *dx)
{
    const size_t n_in = dt_shape_elems(b->in);
    for (int k = 0; k < b->linear_out.c; k++, weight += n_in, dw += n_in) {
        const double d = dz[k];
        db[k] += d;
        for (size_t i = 0; i < n_in; i++) {
            dw[i] += d * x[i];
        }
        for (size_t i = 0; dx != NULL && i < n_in; i++) {
            dx[i] += d * weight[i];
        }
    }
}

/* Takes a sample's image for a convolution. */
static void pad(const struct dt_block_state *st, const float *x)
{
    for (size_t i = 0; i < dt_shape_elems(st->block->in); i++) {
        st->padded[padded_at(st->block, i)] = x[i];
    }
}

static void linear_forward(const struct dt_block_state *st, const float *params, const float *x,
                           float *y)
{
    const struct dt_block *b = st->block;
    const float *weight = params + b->grad_begin, *bias = weight + st->bias_offset;
    if (b->linear == DT_LINEAR_CONV) {
        pad(st, x);
        conv_forward(st, weight, bias, y);
    } else if (b->linear == DT_LINEAR_DENSE) {
        dense_forward(b, weight, bias, x, y);
    } else {
        memcpy(y, x, dt_shape_elems(b->in) * sizeof(float));
    }
}

/* The input of window element i of output o. */
static size_t pooled(const struct dt_block *b, size_t o, int i)
{
    const size_t h = (size_t)b->pool_out.h, w = (size_t)b->pool_out.w;
    return at(b->linear_out, (int)(o / (h * w)), (int)(o / w % h) * b->pool_stride + i / b->pool_w,
              (int)(o % w) * b->pool_stride + i % b->pool_w);
}

/* A window holding a NaN gives NaN; of equal values the first in row-major order wins. */
static void pool_forward(const struct dt_block *b, const float *x, float *y, uint32_t *winner)
{
    for (size_t o = 0; o < dt_shape_elems(b->pool_out); o++) {
        size_t best = pooled(b, o, 0);
        double sum = 0;
        for (int k = 0; k < b->pool_h * b->pool_w; k++) {
            const size_t i = pooled(b, o, k);
            sum += x[i];
            best = x[i] > x[best] || (isnan(x[i]) && !isnan(x[best])) ? i : best;
        }
        winner[o] = (uint32_t)best;
        y[o] = b->pool == DT_POOL_MAX ? x[best] : (float)(sum / (b->pool_h * b->pool_w));
    }
}

/* dx is zeroed. */
static void pool_backward(const struct dt_block *b, const float *dy, const uint32_t *winner,
                          float *dx)
{
    const int n = b->pool == DT_POOL_MAX ? 1 : b->pool_h * b->pool_w;
    for (size_t o = 0; o < dt_shape_elems(b->pool_out); o++) {
        for (int i = 0; i < n; i++) {
            dx[b->pool == DT_POOL_MAX ? winner[o] : pooled(b, o, i)] += dy[o] / (float)n;
        }
    }
}

/* The place of element i of an image in H W C order, which a dense layer wants of its inputs and in
 * which dropout counts units. */
static size_t unit_of(struct dt_shape s, size_t i)
{
    const size_t n_places = (size_t)s.h * (size_t)s.w;
    return i % n_places * (size_t)s.c + i / n_places;
}

/* Multiplies a sample by its dropout mask, on the way forward and back alike: kept units grow by 1
 * / (1 - rate). */
static void dropout(const struct dt_block *b, const struct dt_pass *pass, int sample, float *x)
{
    const uint32_t threshold = dt_dropout_threshold(b->dropout_rate);
    const float scale = 1.0f / (1.0f - b->dropout_rate);
    for (size_t i = 0; i < dt_shape_elems(b->pool_out); i++) {
        const uint32_t unit = (uint32_t)unit_of(b->pool_out, i);
        const struct dt_rng4 words =
            dt_dropout_words(pass->seed, b->dropout_stream, pass->batch->epoch,
                             pass->batch->ids[sample], unit, threshold);
        x[i] *= dt_dropout_keeps(words, unit, threshold) ? scale : 0.0f;
    }
}

/* One sample at the flatten, forward to H W C or back. */
static void reorder(const struct dt_block_state *st, bool forward, float *x)
{
    const struct dt_block *b = st->block;
    const size_t n = b->flatten && !b->canonical ? dt_shape_elems(b->pool_out) : 0;
    for (size_t i = 0; i < n; i++) {
        const size_t unit = unit_of(b->pool_out, i);
        st->delta[forward ? unit : i] = x[forward ? i : unit];
    }
    memcpy(x, st->delta, n * sizeof(float));
}

static enum dt_status ref_block_forward(struct dt_block_state *st, const float *params,
                                        const float *x, float *y, const struct dt_pass *pass)
{
    const struct dt_block *b = st->block;
    const size_t n_linear = dt_shape_elems(b->linear_out), n_out = dt_shape_elems(b->out);
    for (int i = 0; i < pass->batch->n; i++) {
        const size_t n = (size_t)i;
        const size_t kept = (size_t)pass->first + n; /* where the block remembers this sample */
        float *linear = st->linear + kept * n_linear;
        linear_forward(st, params, x + n * dt_shape_elems(b->in), linear);
        float *activated = b->pool == DT_POOL_NONE ? y + n * n_out : st->delta;
        for (size_t j = 0; j < n_linear; j++) {
            activated[j] = (float)activate(b->activation, linear[j]);
        }
        if (b->pool != DT_POOL_NONE) {
            pool_forward(b, activated, y + n * n_out, st->winner + kept * n_out);
        }
        if (b->dropout_rate > 0 && pass->training) {
            dropout(b, pass, i, y + n * n_out);
        }
        reorder(st, true, y + n * n_out);
        if (pass->poll != NULL) {
            pass->poll(pass->context);
        }
    }
    return DT_OK;
}

/* One sample's gradient from the block's output to its linear operation's, in st->delta. */
static void unwind(struct dt_block_state *st, int sample, float *dy, const struct dt_pass *pass)
{
    const struct dt_block *b = st->block;
    const size_t n_linear = dt_shape_elems(b->linear_out);
    const size_t kept = (size_t)pass->first + (size_t)sample;
    const float *linear = st->linear + kept * n_linear;
    reorder(st, false, dy);
    if (b->dropout_rate > 0) {
        dropout(b, pass, sample, dy);
    }
    if (b->pool != DT_POOL_NONE) {
        memset(st->delta, 0, n_linear * sizeof(float));
        pool_backward(b, dy, st->winner + kept * dt_shape_elems(b->out), st->delta);
    } else {
        memcpy(st->delta, dy, n_linear * sizeof(float));
    }
    for (size_t i = 0; i < n_linear; i++) {
        st->delta[i] = (float)(st->delta[i] * slope(b->activation, linear[i]));
    }
}

static void linear_backward(struct dt_block_state *st, const float *params, const float *x,
                            float *dx)
{
    const struct dt_block *b = st->block;
    const float *weight = params + b->grad_begin;
    double *dw = st->grad_sums, *db = dw + st->bias_offset;
    double *sums =
        dx != NULL ? memset(st->sums, 0, dt_shape_elems(padded_of(b)) * sizeof *sums) : NULL;
    if (b->linear == DT_LINEAR_CONV) {
        pad(st, x);
        conv_backward(st, weight, st->delta, dw, db, sums);
    } else if (b->linear == DT_LINEAR_DENSE) {
        dense_backward(b, weight, x, st->delta, dw, db, sums);
    }
    for (size_t i = 0; dx != NULL && i < dt_shape_elems(b->in); i++) {
        dx[i] = b->linear == DT_LINEAR_NONE ? st->delta[i] : (float)sums[padded_at(b, i)];
    }
}

/* Without the gap between weights and bias. */
static void store_sums(const double *sums, size_t n, float *grads, bool accumulate)
{
    for (size_t i = 0; i < n; i++) {
        grads[i] = (float)((accumulate ? (double)grads[i] : 0.0) + sums[i]);
    }
}

static enum dt_status ref_block_backward(struct dt_block_state *st, const float *params,
                                         float *grads, const float *x, const float *y, float *dy,
                                         float *dx, const struct dt_pass *pass)
{
    (void)y;
    const struct dt_block *b = st->block;
    const size_t n_in = dt_shape_elems(b->in), n_out = dt_shape_elems(b->out),
                 n_grads = b->grad_end - b->grad_begin;
    memset(st->grad_sums, 0, n_grads * sizeof(double));
    for (int i = 0; i < pass->batch->n; i++) {
        const size_t n = (size_t)i;
        unwind(st, i, dy + n * n_out, pass);
        linear_backward(st, params, x + n * n_in, dx != NULL ? dx + n * n_in : NULL);
        if (pass->poll != NULL) {
            pass->poll(pass->context);
        }
    }
    if (b->linear != DT_LINEAR_NONE) {
        float *mine = grads + b->grad_begin;
        store_sums(st->grad_sums, st->n_weights, mine, pass->accumulate);
        store_sums(st->grad_sums + st->bias_offset, (size_t)b->linear_out.c, mine + st->bias_offset,
                   pass->accumulate);
    }
    return DT_OK;
}

/* ---- the backend */

struct ref_backend {
    struct dt_backend base;
    struct dt_metrics metrics;
};

static struct ref_backend *ref_of(struct dt_backend *backend)
{
    return (struct ref_backend *)backend;
}

static enum dt_status ref_open(const struct dt_backend_options *options, struct dt_backend **out)
{
    if (options->precision != DT_PRECISION_F32) {
        return dt_error(
            DT_UNAVAILABLE,
            "the ref backend computes in f32 alone (use \"precision\": \"f32\", or a GPU)");
    }
    struct ref_backend *ref = calloc(1, sizeof *ref);
    if (ref == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory while opening the reference backend");
    }
    ref->base.ops = &dt_ref_backend;
    ref->base.description = "reference, plain loops, 1 thread";
    ref->base.host_memory = true;
    *out = &ref->base;
    return DT_OK;
}

static void ref_close(struct dt_backend *backend)
{
    free(backend);
}

static enum dt_status ref_alloc(struct dt_backend *backend, size_t n_bytes, void **out)
{
    (void)backend;
    const size_t rounded = (n_bytes + 63) / 64 * 64 + 256;
    *out = aligned_alloc(64, rounded);
    if (*out == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory: %zu bytes (use a smaller model or batch)",
                        n_bytes);
    }
    memset(*out, 0, rounded);
    return DT_OK;
}

static void ref_free(struct dt_backend *backend, void *memory)
{
    (void)backend;
    free(memory);
}

static enum dt_status ref_copy(struct dt_backend *backend, void *to, const void *from,
                               size_t n_bytes)
{
    (void)backend;
    memcpy(to, from, n_bytes);
    return DT_OK;
}

static enum dt_status ref_sync(struct dt_backend *backend)
{
    (void)backend;
    return DT_OK;
}

/* It reads the samples where they are: what stands for them is their own address. */
static enum dt_status ref_samples_open(struct dt_backend *backend, const struct dt_samples *samples,
                                       struct dt_bound_samples **out)
{
    (void)backend;
    *out = (struct dt_bound_samples *)samples;
    return DT_OK;
}

static void ref_samples_close(struct dt_backend *backend, struct dt_bound_samples *bound)
{
    (void)backend;
    (void)bound;
}

static enum dt_status ref_gather(struct dt_backend *backend, struct dt_bound_samples *bound,
                                 const struct dt_batch *batch, float *x)
{
    (void)backend;
    const struct dt_samples *samples = (const struct dt_samples *)bound;
    const size_t n_elems = dt_shape_elems(samples->shape);
    for (int i = 0; i < batch->n; i++) {
        const size_t from = batch->rows[i] * n_elems;
        const struct dt_transform *t = samples->transform;
        if (t != NULL) {
            t->apply(t, samples->pixels + from, batch->epoch, batch->ids[i], x);
        }
        for (size_t j = 0; t == NULL && j < n_elems; j++) {
            x[j] = samples->pixels != NULL ? (float)samples->pixels[from + j] * samples->scale
                                           : samples->values[from + j];
        }
        x += n_elems;
    }
    return DT_OK;
}

/* loss = log(sum exp(z)) - target z, with the largest logit taken out first; its gradient is
 * softmax(z) - target, which is onehot(label), or with s of it spread over all classes. With
 * weights of classes, targets count as much. */
static void cross_entropy(int label, int n, double s, const float *weights, const float *z,
                          float *dz, struct dt_metrics *metrics)
{
    int best = 0;
    for (int k = 1; k < n; k++) {
        best = z[k] > z[best] ? k : best;
    }
    double sum = 0;
    for (int k = 0; k < n; k++) {
        sum += exp((double)z[k] - (double)z[best]);
    }
    metrics->n_correct += best == label;
    if (dz != NULL && weights != NULL) {
        double total = 0;
        for (int k = 0; k < n; k++) {
            const double t = ((1 - s) * (k == label) + s / n) * (double)weights[k];
            total += t;
            metrics->loss_sum += t * (log(sum) + (double)z[best] - (double)z[k]);
        }
        for (int k = 0; k < n; k++) {
            dz[k] = (float)(total * exp((double)z[k] - (double)z[best]) / sum -
                            ((1 - s) * (k == label) + s / n) * (double)weights[k]);
        }
        return;
    }
    metrics->loss_sum += log(sum) + (double)z[best] - (double)z[label];
    for (int k = 0; dz != NULL && k < n; k++) {
        const double target = (1 - s) * (k == label) + s / n;
        dz[k] = (float)(exp((double)z[k] - (double)z[best]) / sum - target);
        metrics->loss_sum += s > 0 ? s / n * ((double)z[label] - (double)z[k]) : 0;
    }
}

static void value_error(bool squared, const float *target, int n, const float *z, float *dz,
                        struct dt_metrics *metrics)
{
    metrics->n_correct += 1;
    for (int k = 0; k < n; k++) {
        const double error = (double)z[k] - (double)target[k];
        metrics->loss_sum += (squared ? error * error : fabs(error)) / n;
        metrics->n_correct -= error * error / n;
        if (dz != NULL) {
            dz[k] = (float)(squared ? 2.0 * error / n : ((error > 0) - (error < 0)) / (double)n);
        }
    }
}

static enum dt_status ref_loss(struct dt_backend *backend, const struct dt_model_spec *spec,
                               struct dt_bound_samples *bound, const struct dt_batch *batch,
                               int n_outputs, const float *logits, float *dlogits)
{
    struct dt_metrics *metrics = &ref_of(backend)->metrics;
    const struct dt_samples *samples = (const struct dt_samples *)bound;
    for (int i = 0; i < batch->n; i++) {
        const size_t row = batch->rows[i];
        const float *z = logits + (size_t)i * (size_t)n_outputs;
        float *dz = dlogits != NULL ? dlogits + (size_t)i * (size_t)n_outputs : NULL;
        if (spec->loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY) {
            cross_entropy(samples->labels[row], n_outputs, spec->label_smoothing,
                          batch->class_weights, z, dz, metrics);
        } else {
            value_error(spec->loss == DT_LOSS_MEAN_SQUARED_ERROR,
                        samples->targets + row * (size_t)n_outputs, n_outputs, z, dz, metrics);
        }
    }
    metrics->n_samples += batch->n;
    return DT_OK;
}

static enum dt_status ref_metrics_take(struct dt_backend *backend, struct dt_metrics *out)
{
    *out = ref_of(backend)->metrics;
    ref_of(backend)->metrics = (struct dt_metrics){0};
    return DT_OK;
}

static enum dt_status ref_sum_squares(struct dt_backend *backend, size_t n_elems, const float *x,
                                      double *out)
{
    (void)backend;
    *out = 0;
    for (size_t i = 0; i < n_elems; i++) {
        *out += (double)x[i] * (double)x[i];
    }
    return DT_OK;
}

static void sgd_step(const struct dt_update *u, size_t n_elems, float *params, const float *grads,
                     float *velocity)
{
    for (size_t i = 0; i < n_elems; i++) {
        double g = (double)grads[i] * u->grad_scale + (double)u->weight_decay * params[i];
        if (velocity != NULL) {
            const double v = (double)u->momentum * velocity[i] + g;
            velocity[i] = (float)v;
            g = u->nesterov ? g + (double)u->momentum * v : v;
        }
        params[i] = (float)(params[i] - (double)u->lr * g);
    }
}

static void adam_step(const struct dt_update *u, size_t n_elems, float *params, const float *grads,
                      float *mean, float *square)
{
    const bool decoupled = u->type == DT_OPTIMIZER_ADAMW;
    for (size_t i = 0; i < n_elems; i++) {
        double w = params[i];
        double g = (double)grads[i] * u->grad_scale;
        if (decoupled) {
            w -= (double)u->lr * u->weight_decay * w;
        } else {
            g += (double)u->weight_decay * w;
        }
        const double m =
            (1.0 - (double)u->one_minus_beta1) * mean[i] + (double)u->one_minus_beta1 * g;
        const double v =
            (1.0 - (double)u->one_minus_beta2) * square[i] + (double)u->one_minus_beta2 * g * g;
        mean[i] = (float)m;
        square[i] = (float)v;
        params[i] = (float)(w - (double)u->lr * (m / u->bias_correction1) /
                                    (sqrt(v / u->bias_correction2) + u->epsilon));
    }
}

static enum dt_status ref_optimizer_step(struct dt_backend *backend, const struct dt_update *update,
                                         size_t n_elems, float *params, const float *grads,
                                         float *state1, float *state2)
{
    struct dt_update clipped = *update;
    if (!dt_update_is_elementwise(update)) {
        double squares;
        DT_TRY(ref_sum_squares(backend, n_elems, grads, &squares));
        clipped.grad_scale = dt_update_clipped_scale(update, squares);
    }
    if (update->type == DT_OPTIMIZER_SGD) {
        sgd_step(&clipped, n_elems, params, grads, state1);
    } else {
        adam_step(&clipped, n_elems, params, grads, state1, state2);
    }
    return DT_OK;
}

/* Few at a time, so that every test of a network goes through chunks. */
static struct dt_network_plan ref_plan(const struct dt_backend *backend,
                                       const struct dt_model *model, int capacity)
{
    (void)backend;
    (void)model;
    return (struct dt_network_plan){.chunk = capacity < 2 ? 1 : 2};
}

const struct dt_backend_ops dt_ref_backend = {
    .name = "ref",
    .open = ref_open,
    .close = ref_close,
    .alloc = ref_alloc,
    .free = ref_free,
    .copy_in = ref_copy,
    .copy_out = ref_copy,
    .sync = ref_sync,
    .samples_open = ref_samples_open,
    .samples_close = ref_samples_close,
    .gather = ref_gather,
    .plan = ref_plan,
    .block_open = ref_block_open,
    .block_close = ref_block_close,
    .block_forward = ref_block_forward,
    .block_backward = ref_block_backward,
    .loss = ref_loss,
    .metrics_take = ref_metrics_take,
    .optimizer_step = ref_optimizer_step,
    .sum_squares = ref_sum_squares,
};
