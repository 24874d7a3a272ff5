/* Normalization of a sample's features on the cpu backend: samples share nothing but the gradients
 * of weight and bias, which are sums over them, a range of features at a time. */
#include <math.h>

#include "cpu/kernels/vector.h"
#include "cpu/layers/parts.h"

#define CHUNK 2048   /* floats that are added in float; chunks are added in double */
#define FEATURES 512 /* of a range */

static size_t n_bytes(const struct dt_block *block, int capacity)
{
    (void)block;
    return 2 * (size_t)capacity * sizeof(float); /* of each sample mean, and 1 / deviation */
}

static size_t samples_per_part(const struct dt_layer_call *call)
{
    return dt_max_size(1, DT_PART / call->n_elems);
}

/* ---- sums over a sample */

/* At most VL numbers, and zeros. */
ALWAYS_INLINE vf load_at_most(const float *p, size_t n)
{
    return n >= VL ? load(p) : blend(first_lanes((int)n), load(p), (vf){0});
}

static double sum_of_lanes(vf v)
{
    double sum = 0;
    for (int i = 0; i < VL; i++) {
        sum += (double)v[i];
    }
    return sum;
}

static double sum(size_t n, const float *x)
{
    double total = 0;
    for (size_t at = 0; at < n; at += CHUNK) {
        const size_t end = dt_min_size(n, at + CHUNK);
        vf s[2] = {{0}};
        for (size_t i = at; i < end; i += 2 * VL) {
            s[0] += load_at_most(x + i, end - i);
            s[1] += i + VL < end ? load_at_most(x + i + VL, end - i - VL) : (vf){0};
        }
        total += sum_of_lanes(s[0] + s[1]);
    }
    return total;
}

/* Of squared distances. */
static double sum_squares(size_t n, const float *x, float mean)
{
    double total = 0;
    for (size_t at = 0; at < n; at += CHUNK) {
        const size_t end = dt_min_size(n, at + CHUNK);
        vf s = {0};
        for (size_t i = at; i < end; i += VL) {
            const vf d = load(x + i) - mean;
            const vf square = d * d;
            s += end - i >= VL ? square : blend(first_lanes((int)(end - i)), square, (vf){0});
        }
        total += sum_of_lanes(s);
    }
    return total;
}

/* ---- forward */

static void normalize(const struct dt_layer_call *call, size_t sample)
{
    const size_t n = call->n_elems;
    const float *x = call->x[0] + sample * n, *weight = call->weight, *bias = call->bias;
    float *y = call->y + sample * n, *kept = (float *)call->memory + 2 * sample;
    const bool relu = call->relu;
    const float mean = (float)(sum(n, x) / (double)n);
    const float inverse =
        (float)(1.0 / sqrt(sum_squares(n, x, mean) / (double)n + call->layer->epsilon));
    kept[0] = mean;
    kept[1] = inverse;
    for (size_t i = 0; i < n; i++) {
        const float v = (x[i] - mean) * inverse * weight[i] + bias[i];
        y[i] = relu && v < 0 ? 0.0f : v; /* written so that NaN stays NaN */
    }
}

static void forward_part(void *context, int part, int thread)
{
    const struct dt_layer_call *call = context;
    const size_t n = samples_per_part(call), begin = (size_t)part * n,
                 end = dt_min_size(begin + n, (size_t)call->pass->batch->n);
    (void)thread;
    for (size_t sample = begin; sample < end; sample++) {
        normalize(call, sample);
    }
}

static enum dt_status forward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    const size_t n = (size_t)call->pass->batch->n;
    dt_parts_run(backend, call->pass, dt_parts_of(n, samples_per_part(call)), forward_part, call);
    return DT_OK;
}

/* ---- backward */

/* Sums of g = weight dy, and of g times x's distance from the mean; dy has passed the ReLU. */
static void sum_gradients(size_t n, const float *x, float mean, const float *weight, const float *y,
                          const float *dy, double sums[2])
{
    for (size_t at = 0; at < n; at += CHUNK) {
        const size_t end = dt_min_size(n, at + CHUNK);
        vf s = {0}, products = {0};
        for (size_t i = at; i < end; i += VL) {
            const vf d = load_at_most(dy + i, end - i);
            const vf g =
                (y != NULL ? only(greater(load(y + i), (vf){0}), d) : d) * load(weight + i);
            const vf distance = load(x + i) - mean;
            const vf whole =
                end - i >= VL ? distance : blend(first_lanes((int)(end - i)), distance, (vf){0});
            s += g;
            products += g * whole;
        }
        sums[0] += sum_of_lanes(s);
        sums[1] += sum_of_lanes(products);
    }
}

/* dx = (g - mean of g - x mean of g x) / deviation, where x is normalized. */
static void pass_back(const struct dt_layer_call *call, size_t sample)
{
    const size_t n = call->n_elems, begin = sample * n;
    const float *x = call->x[0] + begin, *y = call->relu ? call->y + begin : NULL,
                *dy = call->dy + begin, *weight = call->weight,
                *kept = (const float *)call->memory + 2 * sample;
    const float mean = kept[0], inverse = kept[1];
    const bool adds = call->adds_dx[0];
    float *dx = call->dx[0] + begin;
    double sums[2] = {0};
    sum_gradients(n, x, mean, weight, y, dy, sums);
    const float fixed = (float)(-(double)inverse * sums[0] / (double)n),
                per_x = (float)(-pow((double)inverse, 3) * sums[1] / (double)n);
    for (size_t i = 0; i < n; i++) {
        const float d = y != NULL && !(y[i] > 0) ? 0.0f : dy[i];
        const float v = d * weight[i] * inverse + ((x[i] - mean) * per_x + fixed);
        dx[i] = adds ? dx[i] + v : v;
    }
}

static void backward_part(void *context, int part, int thread)
{
    const struct dt_layer_call *call = context;
    const size_t n = samples_per_part(call), begin = (size_t)part * n,
                 end = dt_min_size(begin + n, (size_t)call->pass->batch->n);
    (void)thread;
    for (size_t sample = begin; sample < end; sample++) {
        pass_back(call, sample);
    }
}

/* A range of features, of which a thread adds all samples' gradients. */
static void features_part(void *context, int part, int thread)
{
    const struct dt_layer_call *call = context;
    const size_t begin = (size_t)part * FEATURES, n = dt_min_size(FEATURES, call->n_elems - begin);
    const bool relu = call->relu;
    float dw[FEATURES] = {0}, db[FEATURES] = {0};
    (void)thread;
    for (size_t sample = 0; sample < (size_t)call->pass->batch->n; sample++) {
        const size_t at = sample * call->n_elems + begin;
        const float *x = call->x[0] + at, *y = call->y + at, *dy = call->dy + at,
                    *kept = (const float *)call->memory + 2 * sample;
        const float mean = kept[0], inverse = kept[1];
        for (size_t i = 0; i < n; i++) {
            const float d = relu && !(y[i] > 0) ? 0.0f : dy[i];
            db[i] += d;
            dw[i] += d * ((x[i] - mean) * inverse);
        }
    }
    for (size_t i = 0; i < n; i++) {
        const bool accumulate = call->pass->accumulate;
        call->dbias[begin + i] = (accumulate ? call->dbias[begin + i] : 0.0f) + db[i];
        call->dweight[begin + i] = (accumulate ? call->dweight[begin + i] : 0.0f) + dw[i];
    }
}

static enum dt_status backward(struct dt_backend *backend, const struct dt_layer_call *call)
{
    const size_t n = (size_t)call->pass->batch->n;
    dt_parts_run(backend, call->pass, dt_parts_of(call->n_elems, FEATURES), features_part, call);
    if (call->dx[0] != NULL) {
        dt_parts_run(backend, call->pass, dt_parts_of(n, samples_per_part(call)), backward_part,
                     call);
    }
    return DT_OK;
}

const struct dt_layer_ops DT_KERNEL(layer_norm) = {
    .n_bytes = n_bytes, .forward = forward, .backward = backward};
