#include "cpu/reference/reference_block.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/dropout.h"

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
    const int h = (b->linear_out.h - 1) * b->stride + b->kernel,
              w = (b->linear_out.w - 1) * b->stride + b->kernel;
    return (struct dt_shape){b->in.c, dt_max(h, b->pad_before_h + b->in.h),
                             dt_max(w, b->pad_before_w + b->in.w)};
}

/* The state and all its arrays are one piece of memory. */
enum dt_status dt_ref_block_open(struct dt_backend *backend, const struct dt_model *model,
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

void dt_ref_block_close(struct dt_block_state *state)
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
    switch (b->linear) {
    case DT_LINEAR_CONV:
        pad(st, x);
        conv_forward(st, weight, bias, y);
        break;
    case DT_LINEAR_DENSE:
        dense_forward(b, weight, bias, x, y);
        break;
    case DT_LINEAR_NONE:
        memcpy(y, x, dt_shape_elems(b->in) * sizeof(float));
        break;
    }
}

/* A window holding a NaN gives NaN; of equal values the first in row-major order wins. */
static void pool_forward(const struct dt_block *b, const float *x, float *y, uint32_t *winner)
{
    for (int c = 0; c < b->pool_out.c; c++) {
        for (int p = 0; p < b->pool_out.h; p++) {
            for (int q = 0; q < b->pool_out.w; q++) {
                size_t best = at(b->linear_out, c, p * b->pool_stride, q * b->pool_stride);
                double sum = 0;
                for (int r = 0; r < b->pool_h; r++) {
                    for (int s = 0; s < b->pool_w; s++) {
                        const size_t i =
                            at(b->linear_out, c, p * b->pool_stride + r, q * b->pool_stride + s);
                        sum += x[i];
                        best = x[i] > x[best] || (isnan(x[i]) && !isnan(x[best])) ? i : best;
                    }
                }
                const size_t o = at(b->pool_out, c, p, q);
                winner[o] = (uint32_t)best;
                y[o] = b->pool == DT_POOL_MAX ? x[best] : (float)(sum / (b->pool_h * b->pool_w));
            }
        }
    }
}

/* dx is zeroed. */
static void pool_backward(const struct dt_block *b, const float *dy, const uint32_t *winner,
                          float *dx)
{
    for (int c = 0; c < b->pool_out.c; c++) {
        for (int p = 0; p < b->pool_out.h; p++) {
            for (int q = 0; q < b->pool_out.w; q++) {
                const size_t o = at(b->pool_out, c, p, q);
                if (b->pool == DT_POOL_MAX) {
                    dx[winner[o]] += dy[o];
                    continue;
                }
                for (int r = 0; r < b->pool_h; r++) {
                    for (int s = 0; s < b->pool_w; s++) {
                        dx[at(b->linear_out, c, p * b->pool_stride + r, q * b->pool_stride + s)] +=
                            dy[o] / (float)(b->pool_h * b->pool_w);
                    }
                }
            }
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

enum dt_status dt_ref_block_forward(struct dt_block_state *st, const float *params, const float *x,
                                    float *y, const struct dt_pass *pass)
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
    const size_t n_in = dt_shape_elems(b->in), n_padded = dt_shape_elems(padded_of(b));
    const float *weight = params + b->grad_begin;
    double *dw = st->grad_sums, *db = dw + st->bias_offset;
    double *dx_sums = dx != NULL ? memset(st->sums, 0, n_padded * sizeof(double)) : NULL;
    switch (b->linear) {
    case DT_LINEAR_CONV:
        pad(st, x);
        conv_backward(st, weight, st->delta, dw, db, dx_sums);
        break;
    case DT_LINEAR_DENSE:
        dense_backward(b, weight, x, st->delta, dw, db, dx_sums);
        break;
    case DT_LINEAR_NONE:
        for (size_t i = 0; dx != NULL && i < n_in; i++) {
            dx_sums[i] = st->delta[i];
        }
        break;
    }
    for (size_t i = 0; dx != NULL && i < n_in; i++) {
        dx[i] = (float)dx_sums[padded_at(b, i)];
    }
}

static void store_sums(const double *sums, size_t n, float *grads, bool accumulate)
{
    for (size_t i = 0; i < n; i++) {
        grads[i] = (float)((accumulate ? (double)grads[i] : 0.0) + sums[i]);
    }
}

enum dt_status dt_ref_block_backward(struct dt_block_state *st, const float *params, float *grads,
                                     const float *x, const float *y, float *dy, float *dx,
                                     const struct dt_pass *pass)
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
