/* Activations, dropout, normalization, pixels and the change of layout. Plain loops: the compiler
 * vectorizes them. */
#include "cpu/kernels/kernels.h"

#include <math.h>

#include "base/rng.h"
#include "cpu/kernels/transpose.h"

/* e^x for -87 <= x <= 88, relative error below 2e-7: x = n log 2 + r, and a polynomial for e^r. Its
 * coefficients and those of tanh_vector are Moshier's (Cephes mathematical library, single
 * precision). NaN stays NaN. */
ALWAYS_INLINE vf exp_vector(vf x)
{
    const float round = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    const vf shifted = x * 1.44269504f + round, n = shifted - round;
    const vf r = x - n * 0.693359375f + n * 2.12194440e-4f; /* log 2 in two pieces */
    vf p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const vi scale = ((vi)shifted - (vi)((vf){0} + round) + 127) << 23; /* 2^n */
    return (p * r * r + r + 1.0f) * (vf)scale;
}

/* Each activation also gives its slope at x. */
ALWAYS_INLINE vf tanh_vector(vf x, vf *slope)
{
    const vf magnitude = (vf)((vi)x & INT32_MAX),
             bounded = blend(magnitude > 10.0f, (vf){0} + 10.0f, magnitude);
    const vf z = x * x;
    vf small = z * -5.70498872745e-3f + 2.06390887954e-2f;
    small = small * z - 5.37397155531e-2f;
    small = small * z + 1.33314422036e-1f;
    small = small * z - 3.33332819422e-1f;
    small = small * z * x + x;
    const vf large = 1.0f - 2.0f / (exp_vector(2.0f * bounded) + 1.0f);
    const vf y = blend(magnitude < 0.625f, small, (vf)((vi)large | ((vi)x & INT32_MIN)));
    *slope = 1.0f - y * y;
    return y;
}

ALWAYS_INLINE vf sigmoid_vector(vf x, vf *slope)
{
    vf bounded = blend(x > 87.0f, (vf){0} + 87.0f, x);
    bounded = blend(x < -87.0f, (vf){0} - 87.0f, bounded);
    const vf y = 1.0f / (1.0f + exp_vector(-bounded));
    *slope = y * (1.0f - y);
    return y;
}

ALWAYS_INLINE vf relu_vector(vf x, vf *slope)
{
    *slope = blend(x > 0, (vf){0} + 1.0f, (vf){0});
    return blend(x < 0, (vf){0}, x); /* written so that NaN stays NaN */
}

ALWAYS_INLINE vf leaky_relu_vector(vf x, vf *slope)
{
    *slope = blend(x > 0, (vf){0} + 1.0f, (vf){0} + DT_LEAKY_SLOPE);
    return x * *slope;
}

/* x times the normal distribution's integral up to x. That up to -z is e^(-z^2 / 2) times a
 * polynomial of t = 1 / (1 + 0.3 z): least relative error over 0 <= z <= 13, 1.2e-7. Beyond 13 it
 * is 0 in float. */
ALWAYS_INLINE vf gelu_vector(vf x, vf *slope)
{
    const vf magnitude = (vf)((vi)x & INT32_MAX),
             z = blend(magnitude > 13.0f, (vf){0} + 13.0f, magnitude);
    const vf e = exp_vector(-0.5f * z * z), t = 1.0f / (1.0f + 0.3f * z);
    vf p = t * 3.619486617e-2f - 1.593783466e-1f;
    p = p * t + 2.101184449e-1f;
    p = p * t - 5.716740601e-2f;
    p = p * t + 1.304164730e-1f;
    p = p * t + 9.934711853e-2f;
    p = p * t + 1.208455312e-1f;
    p = p * t + 1.196232626e-1f;
    const vf tail = p * t * e, integral = blend(x < 0, tail, 1.0f - tail);
    const vf bounded = (vf)((vi)z | ((vi)x & INT32_MIN));
    *slope = integral + bounded * e * 0.39894228f; /* and x times the density */
    return blend(x < 0, bounded, x) * integral;
}

/* slope: NULL, or where the slopes go. */
ALWAYS_INLINE void map(size_t n_elems, float *x, float *slope, vf (*const function)(vf, vf *))
{
    vf at;
    size_t i = 0;
    for (; i + VL <= n_elems; i += VL) {
        store(x + i, function(load(x + i), &at));
        if (slope != NULL) {
            store(slope + i, at);
        }
    }
    if (i < n_elems) {
        store_first(x + i, function(load(x + i), &at), (int)(n_elems - i));
        if (slope != NULL) {
            store_first(slope + i, at, (int)(n_elems - i));
        }
    }
}

/* Once without slopes, so that the loop has no branch and computes none. */
#define MAP(function) \
    (slope == NULL ? map(n_elems, x, NULL, function) : map(n_elems, x, slope, function))

void DT_KERNEL(activate)(enum dt_activation activation, size_t n_elems, float *x, float *slope)
{
    switch (activation) {
    case DT_ACTIVATION_RELU:
        MAP(relu_vector);
        break;
    case DT_ACTIVATION_TANH:
        MAP(tanh_vector);
        break;
    case DT_ACTIVATION_SIGMOID:
        MAP(sigmoid_vector);
        break;
    case DT_ACTIVATION_LEAKY_RELU:
        MAP(leaky_relu_vector);
        break;
    case DT_ACTIVATION_GELU:
        MAP(gelu_vector);
        break;
    case DT_ACTIVATION_NONE:
        break;
    }
}

void DT_KERNEL(activate_backward)(enum dt_activation activation, size_t n_elems, const float *y,
                                  float y_scale, float *dy)
{
    switch (activation) {
    case DT_ACTIVATION_RELU:
        for (size_t i = 0; i < n_elems; i++) {
            dy[i] = y[i] > 0 ? dy[i] : 0.0f;
        }
        break;
    case DT_ACTIVATION_TANH:
        for (size_t i = 0; i < n_elems; i++) {
            const float a = y[i] * y_scale;
            dy[i] *= 1.0f - a * a;
        }
        break;
    case DT_ACTIVATION_SIGMOID:
        for (size_t i = 0; i < n_elems; i++) {
            const float a = y[i] * y_scale;
            dy[i] *= a * (1.0f - a);
        }
        break;
    case DT_ACTIVATION_LEAKY_RELU:
        for (size_t i = 0; i < n_elems; i++) {
            dy[i] *= y[i] > 0 ? 1.0f : DT_LEAKY_SLOPE;
        }
        break;
    case DT_ACTIVATION_GELU: /* takes most results twice */
    case DT_ACTIVATION_NONE:
        break;
    }
}

void DT_KERNEL(multiply)(size_t n_elems, const float *by, float *x)
{
    for (size_t i = 0; i < n_elems; i++) {
        x[i] *= by[i];
    }
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "dropout_mask reads the low half of a word first");

enum { GROUPS = VL / 2 }; /* concurrent calls of the generator */

typedef uint8_t vb __attribute__((vector_size(4 * VL)));

#define ROUNDS 10

/* base/rng.h's dt_rng_words for GROUPS neighbouring groups: the low halves of c[j]'s lanes are
 * their words j. Intermediate values in the high halves do not enter the products. */
ALWAYS_INLINE void rng_words(const struct dt_dropout_key *key, uint64_t round_keys[ROUNDS][2],
                             vu64 group, vu64 c[4])
{
    c[0] = group;
    c[1] = (vu64){0} + key->sample;
    c[2] = (vu64){0} + key->epoch;
    c[3] = (vu64){0} + ((uint32_t)DT_RNG_DROPOUT << 24 | (key->stream & 0xFFFFFFu));
    UNROLLED(round, ROUNDS) {
        const vu64 product0 = (vu64)multiply_even((vu)c[0], 0xD2511F53u),
                   product1 = (vu64)multiply_even((vu)c[2], 0xCD9E8D57u);
        c[0] = product1 >> 32 ^ c[1] ^ round_keys[round][0];
        c[1] = product1;
        c[2] = product0 >> 32 ^ c[3] ^ round_keys[round][1];
        c[3] = product0;
    }
}

/* Four bytes, 1 or 0, from the half-words of two words, in the low halves; a random number below
 * the threshold gives a negative difference. */
ALWAYS_INLINE vu64 mask_halves(vu64 a, vu64 b, uint32_t threshold)
{
    const vu words = (vu)((a & 0xFFFFFFFFu) | b << 32);
    const vu dropped =
        ((words & 0xFFFFu) - threshold) >> 31 | ((words >> 16) - threshold) >> 31 << 8;
    return (((vu64)dropped | (vu64)dropped >> 16) & 0xFFFFFFFFu) ^ 0x01010101u;
}

/* The masks of eight units of each group. */
ALWAYS_INLINE void mask_eight(const vu64 words[4], uint32_t threshold, uint8_t *mask)
{
    const vu64 kept = mask_halves(words[0], words[1], threshold) |
                      mask_halves(words[2], words[3], threshold) << 32;
    memcpy(mask, &kept, sizeof kept);
}

/* The masks of sixteen units, if single bytes suffice. The words of a group are first put side by
 * side. */
ALWAYS_INLINE void mask_sixteen(const vu64 words[4], uint32_t threshold, uint8_t *mask)
{
    const vf even = (vf)((words[0] & 0xFFFFFFFFu) | words[2] << 32),
             odd = (vf)((words[1] & 0xFFFFFFFFu) | words[3] << 32);
    const uint8_t last =
        (uint8_t)(threshold / 256 - 1); /* the threshold in bytes: 255 for a threshold of 65536 */
    const vb low = (vb)((vb)interleave_low(even, odd) > last) & 1,
             high = (vb)((vb)interleave_high(even, odd) > last) & 1;
    memcpy(mask, &low, sizeof low);
    memcpy(mask + sizeof low, &high, sizeof high);
}

void DT_KERNEL(dropout_mask)(const struct dt_dropout_key *key, size_t n_units, uint8_t *mask)
{
    const vu64 lane = (vu64)lane_numbers() >> 33; /* 0, 1, 2, ...: half of the odd lanes' numbers */
    const uint32_t group_units = dt_dropout_group_units(key->threshold);
    const size_t n_at_once = (size_t)GROUPS * group_units;
    uint64_t round_keys[ROUNDS][2];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        round_keys[round][0] = (uint32_t)key->seed + round * 0x9E3779B9u;
        round_keys[round][1] = (uint32_t)(key->seed >> 32) + round * 0xBB67AE85u;
    }
    for (size_t begin = 0; begin < n_units; begin += n_at_once) {
        const bool whole = n_units - begin >= n_at_once;
        uint8_t last[GROUPS * 16], *to = whole ? mask + begin : last;
        vu64 words[4];
        rng_words(key, round_keys, lane + (uint32_t)(begin / group_units), words);
        if (group_units == 16) {
            mask_sixteen(words, key->threshold, to);
        } else {
            mask_eight(words, key->threshold, to);
        }
        if (!whole) {
            memcpy(mask + begin, last, n_units - begin);
        }
    }
}

void DT_KERNEL(dropout)(size_t n_units, const uint8_t *mask, float scale, float *x)
{
    for (size_t i = 0; i < n_units; i++) {
        x[i] *= mask[i] ? scale : 0.0f;
    }
}

void DT_KERNEL(scale_pixels)(size_t n_elems, const uint8_t *restrict pixels, float scale,
                             float *restrict x)
{
    for (size_t i = 0; i < n_elems; i++) {
        x[i] = (float)pixels[i] * scale;
    }
}

void DT_KERNEL(transpose)(size_t n_rows, size_t n_cols, float scale, const float *from, float *to)
{
    const size_t whole_rows = n_rows / 4 * 4, whole_cols = n_cols / VL * VL;
    for (size_t col = 0; col < whole_cols; col += VL) {
        for (size_t row = 0; row < whole_rows; row += 4) {
            vf rows[4];
            UNROLL
            for (size_t i = 0; i < 4; i++) {
                const float *at = from + (row + i) * n_cols + col;
                rows[i] = scale * load(at);
            }
            transpose_four_rows(rows, to + col * n_rows + row, n_rows);
        }
    }
    for (size_t row = 0; row < n_rows; row++) {
        for (size_t col = row < whole_rows ? whole_cols : 0; col < n_cols; col++) {
            to[col * n_rows + row] = scale * from[row * n_cols + col];
        }
    }
}

/* ---- normalization of rows of channels: an image's places, or samples */

void DT_KERNEL(norm_measure)(size_t n_rows, int n_c, const float *x, float *mean, float *squares)
{
    const size_t step = (size_t)n_c;
    for (int c = 0; c < n_c; c += VL) {
        vf sum[2] = {{0}}, square[2] = {{0}};
        const float *p = x + c;
        size_t row = 0;
        for (; row + 2 <= n_rows; row += 2) {
            sum[0] += load(p + row * step);
            sum[1] += load(p + (row + 1) * step);
        }
        sum[0] += row < n_rows ? load(p + row * step) : (vf){0};
        const vf m = (sum[0] + sum[1]) * (1.0f / (float)n_rows);
        for (row = 0; row + 2 <= n_rows; row += 2) {
            const vf a = load(p + row * step) - m, b = load(p + (row + 1) * step) - m;
            square[0] += a * a;
            square[1] += b * b;
        }
        const vf a = row < n_rows ? load(p + row * step) - m : (vf){0};
        store_lanes(mean + c, m, n_c - c);
        store_lanes(squares + c, square[0] + square[1] + a * a, n_c - c);
    }
}

ALWAYS_INLINE vf positive_part(vf x)
{
    vf slope;
    return relu_vector(x, &slope);
}

/* One vector of channels. */
struct lanes {
    vf mean, scale, bias;
};

ALWAYS_INLINE struct lanes lanes_of(const struct dt_norm *n, int c)
{
    return (struct lanes){load(n->mean + c), load(n->scale + c), load(n->bias + c)};
}

ALWAYS_INLINE void apply(const struct dt_norm *n, const bool relu)
{
    const size_t step = (size_t)n->n_c;
    for (int c = 0; c < n->n_c; c += VL) {
        const struct lanes l = lanes_of(n, c);
        for (size_t row = 0; row < n->n_rows; row++) {
            const size_t at = row * step + (size_t)c;
            const vf y = (load(n->x + at) - l.mean) * l.scale + l.bias;
            store_lanes(n->y + at, relu ? positive_part(y) : y, n->n_c - c);
        }
    }
}

void DT_KERNEL(norm_apply)(const struct dt_norm *n)
{
    if (n->relu) {
        apply(n, true);
    } else {
        apply(n, false);
    }
}

/* dy behind a ReLU, which let pass what the operations of norm_apply make positive; *x becomes its
 * distance from the mean. */
ALWAYS_INLINE vf gradient(const struct dt_norm *n, size_t at, struct lanes l, const bool relu,
                          vf *x)
{
    const vf dy = load(n->dy + at);
    *x = load(n->x + at) - l.mean;
    return relu ? only(greater(*x * l.scale + l.bias, (vf){0}), dy) : dy;
}

ALWAYS_INLINE void sum(const struct dt_norm *n, const bool relu, float *sums, float *products)
{
    const size_t step = (size_t)n->n_c;
    for (int c = 0; c < n->n_c; c += VL) {
        const struct lanes l = lanes_of(n, c);
        vf s[2] = {{0}}, p[2] = {{0}}, x;
        size_t row = 0, at = (size_t)c;
        for (; row + 2 <= n->n_rows; row += 2, at += 2 * step) {
            UNROLLED(i, 2) {
                const vf dy = gradient(n, at + (size_t)i * step, l, relu, &x);
                s[i] += dy;
                p[i] += dy * x;
            }
        }
        if (row < n->n_rows) {
            const vf dy = gradient(n, at, l, relu, &x);
            s[0] += dy;
            p[0] += dy * x;
        }
        store_lanes(sums + c, s[0] + s[1], n->n_c - c);
        store_lanes(products + c, p[0] + p[1], n->n_c - c);
    }
}

void DT_KERNEL(norm_sum)(const struct dt_norm *n, float *sums, float *products)
{
    if (n->relu) {
        sum(n, true, sums, products);
    } else {
        sum(n, false, sums, products);
    }
}

ALWAYS_INLINE void pass_back(const struct dt_norm *n, const bool relu, const bool adds)
{
    const size_t step = (size_t)n->n_c;
    for (int c = 0; c < n->n_c; c += VL) {
        const struct lanes l = lanes_of(n, c);
        const vf per_x = load(n->per_x + c), fixed = load(n->fixed + c);
        for (size_t row = 0; row < n->n_rows; row++) {
            const size_t at = row * step + (size_t)c;
            vf x;
            const vf dy = gradient(n, at, l, relu, &x), dx = dy * l.scale + (x * per_x + fixed);
            store_lanes(n->dx + at, adds ? dx + load(n->dx + at) : dx, n->n_c - c);
        }
    }
}

void DT_KERNEL(norm_backward)(const struct dt_norm *n)
{
    if (n->adds) { /* where an output has several readers */
        n->relu ? pass_back(n, true, true) : pass_back(n, false, true);
    } else {
        n->relu ? pass_back(n, true, false) : pass_back(n, false, false);
    }
}
