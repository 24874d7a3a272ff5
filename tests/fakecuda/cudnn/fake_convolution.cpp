/* Fake cuDNN's engines, and its convolutions: plain loops, summed in double in a fixed order. */
#include <string.h>

#include <cmath>

#include "tests/fakecuda/cudnn/fake_convolution.h"
#include "tests/fakecuda/fake.h"
#include "tests/fakecuda/fake_number.h"

namespace fake_cudnn {

namespace {

std::vector<float> read(const tensor &t, const void *memory, bool tf32)
{
    std::vector<float> values(t.n_elems());
    for (size_t i = 0; i < values.size(); i++) {
        const float value = t.type == CUDNN_DATA_FLOAT ? ((const float *)memory)[i]
                                                       : from_bf16(((const uint16_t *)memory)[i]);
        values[i] = tf32 ? to_tf32(value) : value;
    }
    return values;
}

void write(const tensor &t, void *memory, const std::vector<double> &values)
{
    for (size_t i = 0; i < values.size(); i++) {
        if (t.type == CUDNN_DATA_FLOAT) {
            ((float *)memory)[i] = (float)values[i];
        } else {
            ((uint16_t *)memory)[i] = to_bf16((float)values[i]);
        }
    }
}

/* out[i] += factor * in[i], for the channels of one place. */
void add_scaled(double *out, double factor, const float *in, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] += factor * in[i];
    }
}

/* Adds the products of one output place (n, p, q) with one place of the filter (r, s), which lies
 * at (h, w) in x. */
void add_products(const convolution &c, const float *x, const float *filter, const float *y,
                  double *out, const size_t at_x, const size_t at_y, int64_t r, int64_t s)
{
    const int64_t n_in = c.x.dims[1];
    for (int64_t k = 0; k < c.y.dims[1]; k++) {
        const size_t at_filter = c.filter.at(k, r, s);
        switch (c.is) {
        case FORWARD:
            for (int64_t i = 0; i < n_in; i++) {
                out[at_y + (size_t)k] +=
                    (double)x[at_x + (size_t)i] * filter[at_filter + (size_t)i];
            }
            break;
        case INPUT_GRADIENT:
            add_scaled(out + at_x, y[at_y + (size_t)k], filter + at_filter, n_in);
            break;
        case FILTER_GRADIENT:
            add_scaled(out + at_filter, y[at_y + (size_t)k], x + at_x, n_in);
            break;
        }
    }
}

void add_bias_and_relu(const convolution &c, const void *memory, std::vector<double> &out)
{
    const std::vector<float> bias = read(c.bias, memory, false);
    for (size_t i = 0; i < out.size(); i++) {
        const double sum = out[i] + bias[i % bias.size()];
        out[i] = sum > 0 || (c.keeps_nans && std::isnan(sum)) ? sum : 0;
    }
}

const engine atomics = {"atomics", 1, 0, false, false, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}};
const engine half_sums = {
    "half sums",
    2,
    0,
    false,
    false,
    {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}};
const engine greedy = {"greedy", 3,     (int64_t)64 << 30,
                       false,    false, {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}};
const engine tensor_core = {
    "tensor cores", 4, 1000, true, true, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, true};
const engine other_tiles = {"tensor cores, other tiles",        4,   3000, true, true,
                            {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, true};
const engine winograd = {
    "winograd", 5,    5000,
    false,      true, {CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4}};
const engine plain = {"plain", 6, 77, false, true, {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}};
const engine slow_tiles = {
    "plain, other tiles", 6, 99, false, true, {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}};
const engine simple = {
    "implicit product", 0, 0, false, true, {CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}};

} // namespace

void run(const convolution &c, const operands &memory, bool tf32, size_t workspace_bytes)
{
    memset(memory.workspace, 0xff,
           workspace_bytes < 4096 ? workspace_bytes
                                  : 4096); /* no caller may rely on its contents */
    const tensor &result = c.is == FORWARD ? c.y : c.is == INPUT_GRADIENT ? c.x : c.filter;
    std::vector<double> out(result.n_elems());
    std::vector<float> x, filter, y;
    if (c.is != INPUT_GRADIENT) {
        x = read(c.x, memory.x, tf32);
    }
    if (c.is != FILTER_GRADIENT) {
        filter = read(c.filter, memory.filter, tf32);
    }
    if (c.is != FORWARD) {
        y = read(c.y, memory.y, tf32);
    }
    for (int64_t n = 0; n < c.y.dims[0]; n++) {
        for (int64_t p = 0; p < c.y.dims[2]; p++) {
            for (int64_t q = 0; q < c.y.dims[3]; q++) {
                for (int64_t r = 0; r < c.filter.dims[2]; r++) {
                    for (int64_t s = 0; s < c.filter.dims[3]; s++) {
                        const int64_t h = p * c.strides[0] - c.before[0] + r,
                                      w = q * c.strides[1] - c.before[1] + s;
                        if (h >= 0 && h < c.x.dims[2] && w >= 0 && w < c.x.dims[3]) {
                            add_products(c, x.data(), filter.data(), y.data(), out.data(),
                                         c.x.at(n, h, w), c.y.at(n, p, q), r, s);
                        }
                    }
                }
            }
        }
    }
    if (c.with_relu) {
        add_bias_and_relu(c, memory.bias, out);
    }
    write(result,
          c.is == FORWARD          ? memory.y
          : c.is == INPUT_GRADIENT ? memory.x
                                   : memory.filter,
          out);
}

std::vector<const engine *> engines_of(const convolution &c, cudnnBackendHeurMode_t mode)
{
    if (c.x.type != c.y.type || c.x.type != c.filter.type ||
        (c.with_relu && c.x.type != c.bias.type)) {
        return {}; /* a float filter gradient from bfloat16, or a float bias */
    }
    if (c.with_relu && fake_options.no_fusion) {
        return {};
    }
    switch (mode) {
    case CUDNN_HEUR_MODE_A:
        return {&half_sums,   &atomics,  &greedy, &tensor_core, &other_tiles,
                &other_tiles, &winograd, &plain,  &slow_tiles};
    case CUDNN_HEUR_MODE_B:
        return {&atomics, &plain, &tensor_core};
    default:
        return {&simple};
    }
}

} // namespace fake_cudnn
