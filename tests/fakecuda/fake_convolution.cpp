/* Fake cuDNN's engines, and its convolutions: plain loops, summed in double in a fixed order. */
#include "tests/fakecuda/fake_convolution.h"
#include "tests/fakecuda/fake_runtime.h"

namespace fake_cudnn {

namespace {

#define NOTE(name) CUDNN_NUMERICAL_NOTE_##name
#define ENGINE(symbol, number, workspace, ...) \
    const engine symbol = {#symbol, number, workspace, {__VA_ARGS__}}

ENGINE(product, 0, 0, NOTE(STRICT_NAN_PROP));
ENGINE(atomics, 1, 0, NOTE(NONDETERMINISTIC));
ENGINE(half_sums, 2, 0, NOTE(TENSOR_CORE), NOTE(REDUCED_PRECISION_REDUCTION));
ENGINE(greedy, 3, (int64_t)64 << 30, NOTE(STRICT_NAN_PROP));
ENGINE(tensor_cores, 4, 1000, NOTE(TENSOR_CORE));
ENGINE(other_tiles, 4, 3000, NOTE(TENSOR_CORE));
ENGINE(winograd, 5, 5000, NOTE(WINOGRAD), NOTE(WINOGRAD_TILE_4x4));
ENGINE(plain, 6, 77, NOTE(STRICT_NAN_PROP));
ENGINE(slow_tiles, 6, 99, NOTE(STRICT_NAN_PROP));

std::vector<float> read(const tensor &t, const void *memory, bool tf32)
{
    std::vector<float> values(t.n_elems());
    for (size_t i = 0; i < values.size(); i++) {
        values[i] = fake::load(memory, i, t.type == CUDNN_DATA_FLOAT, tf32);
    }
    return values;
}

/* Adds the products of one output place (n, p, q) with one place of the filter (r, s), which lies
 * at (h, w) in x. */
void add_products(const convolution &c, const std::vector<float> values[3], double *out,
                  const size_t at_x, const size_t at_y, int64_t r, int64_t s)
{
    const size_t n_in = (size_t)c.of[X].dims[1];
    for (int64_t k = 0; k < c.of[Y].dims[1]; k++) {
        const size_t y = at_y + (size_t)k, at_filter = c.of[FILTER].at(k, r, s);
        if (c.result == Y) {
            for (size_t i = 0; i < n_in; i++) {
                out[y] += (double)values[X][at_x + i] * values[FILTER][at_filter + i];
            }
            continue;
        }
        const float *in = c.result == X ? &values[FILTER][at_filter] : &values[X][at_x];
        double *sums = out + (c.result == X ? at_x : at_filter);
        for (size_t i = 0; i < n_in; i++) {
            sums[i] += (double)values[Y][y] * in[i];
        }
    }
}

void add_bias_and_relu(const convolution &c, bool keeps_nans, const void *memory,
                       std::vector<double> &out)
{
    const std::vector<float> bias = read(c.of[BIAS], memory, false);
    for (size_t i = 0; i < out.size(); i++) {
        const double sum = out[i] + bias[i % bias.size()];
        out[i] = sum > 0 || (keeps_nans && std::isnan(sum)) ? sum : 0;
    }
}

} // namespace

void run(const convolution &c, const operands &memory, const engine &by)
{
    const tensor &x = c.of[X], &filter = c.of[FILTER], &y = c.of[Y], &result = c.of[c.result];
    std::vector<double> out(result.n_elems());
    std::vector<float> values[3];
    fake::spoil(memory.workspace, (size_t)by.workspace);
    for (const operand o : {X, FILTER, Y}) {
        if (o != c.result) {
            values[o] =
                read(c.of[o], memory.at[o], by.on_tensor_cores() && x.type == CUDNN_DATA_FLOAT);
        }
    }
    for (int64_t n = 0; n < y.dims[0]; n++) {
        for (int64_t p = 0; p < y.dims[2]; p++) {
            for (int64_t q = 0; q < y.dims[3]; q++) {
                for (int64_t r = 0; r < filter.dims[2]; r++) {
                    for (int64_t s = 0; s < filter.dims[3]; s++) {
                        const int64_t h = p * c.strides[0] - c.before[0] + r,
                                      w = q * c.strides[1] - c.before[1] + s;
                        if (h >= 0 && h < x.dims[2] && w >= 0 && w < x.dims[3]) {
                            add_products(c, values, out.data(), x.at(n, h, w), y.at(n, p, q), r, s);
                        }
                    }
                }
            }
        }
    }
    if (c.with_relu) {
        add_bias_and_relu(c, c.keeps_nans && !by.on_tensor_cores(), memory.at[BIAS], out);
    }
    for (size_t i = 0; i < out.size(); i++) {
        fake::store(memory.at[c.result], i, result.type == CUDNN_DATA_FLOAT, (float)out[i]);
    }
}

std::vector<const engine *> engines_of(const convolution &c, cudnnBackendHeurMode_t mode)
{
    for (int o = 0; o < c.n_operands(); o++) {
        if (c.of[o].type != c.of[X].type) {
            return {}; /* a float filter gradient from bfloat16, or a float bias */
        }
    }
    if (c.with_relu && fake_options.no_fusion) {
        return {};
    }
    switch (mode) {
    case CUDNN_HEUR_MODE_A:
        return {&half_sums,   &atomics,  &greedy, &tensor_cores, &other_tiles,
                &other_tiles, &winograd, &plain,  &slow_tiles};
    case CUDNN_HEUR_MODE_B:
        return {&atomics, &plain, &tensor_cores};
    default:
        return {&product};
    }
}

} // namespace fake_cudnn
