/* Kernels of the first convolution against plain loops, as in test_kernels.c: images of bytes, of
 * floats, and already gathered ones; over odd shapes, both types, and twice, for the same bits. */
#include "tests/cuda/numbers.h"

enum source { BYTES, FLOATS, GATHERED };
#define SCALE 0.125f

struct conv_case {
    struct dt_gpu_first_conv conv; /* without pointers */
    int n;
    enum source source;
    enum dt_gpu_type type;
    bool activated, with_db,
        accumulate; /* activated: with bias and activation, forward and backward */
    bool keeps;     /* signs, so that backward does not read y */
    uint8_t *bytes; /* of N_SET images, C H W */
    uint32_t *rows;
    float *values, *x; /* values: of the set; x: the batch, C H W */
    float *weight, *bias, *dy, *before;
};

#define N_SET 7

static size_t n_in(const struct conv_case *k)
{
    return dt_shape_elems(k->conv.in);
}

static size_t n_out(const struct conv_case *k)
{
    return (size_t)k->n * dt_shape_elems(k->conv.out);
}

static size_t n_taps(const struct conv_case *k)
{
    return (size_t)(k->conv.in.c * k->conv.kernel * k->conv.kernel);
}

static size_t n_parameters(const struct conv_case *k)
{
    return (size_t)k->conv.out.c * (n_taps(k) + 1);
}

/* The input under a filter's tap at a place; zero outside. */
static double under(const struct conv_case *k, size_t sample, size_t place, size_t tap)
{
    const struct dt_gpu_first_conv *c = &k->conv;
    const int size = c->kernel, t = (int)tap, p = (int)place / c->out.w, q = (int)place % c->out.w;
    const int h = p * c->stride - c->pad_h + t / size % size,
              w = q * c->stride - c->pad_w + t % size;
    const bool inside = h >= 0 && h < c->in.h && w >= 0 && w < c->in.w;
    return inside ? (double)k->x[sample * n_in(k) +
                                 (size_t)((t / (size * size) * c->in.h + h) * c->in.w + w)]
                  : 0;
}

/* y, rounded to the type, and the gradients of weights and biases. */
static void plain_conv(const struct conv_case *k, float *y, float *gradients)
{
    const size_t n_channels = (size_t)k->conv.out.c,
                 n_places = (size_t)(k->conv.out.h * k->conv.out.w);
    double *sums = temporary(n_parameters(k) * sizeof *sums);
    for (size_t i = 0; i < n_out(k); i++) {
        const size_t c = i % n_channels, place = i / n_channels % n_places,
                     sample = i / n_channels / n_places;
        double z = k->activated ? (double)k->bias[c] : 0;
        for (size_t tap = 0; tap < n_taps(k); tap++) {
            z += under(k, sample, place, tap) * (double)k->weight[c * n_taps(k) + tap];
        }
        y[i] = (float)(k->activated ? activated(k->conv.activation, z) : z);
        y[i] = k->type == DT_GPU_BF16 ? from_bf16(to_bf16(y[i])) : y[i];
        const double dz =
            (double)k->dy[i] * (k->activated ? derivative(k->conv.activation, z, (double)y[i]) : 1);
        for (size_t tap = 0; tap < n_taps(k); tap++) {
            sums[c * n_taps(k) + tap] += dz * under(k, sample, place, tap);
        }
        sums[n_channels * n_taps(k) + c] += dz;
    }
    for (size_t i = 0; i < n_parameters(k); i++) {
        const bool written = k->n > 0 && (k->with_db || i < n_channels * n_taps(k));
        gradients[i] =
            (k->accumulate || !written ? k->before[i] : 0) + (written ? (float)sums[i] : 0);
    }
}

static struct device open_input(const struct conv_case *k, struct dt_gpu_first_conv *conv,
                                const uint32_t *rows)
{
    const struct dt_shape s = conv->in;
    const size_t n_hw = (size_t)s.h * (size_t)s.w, n_c = (size_t)s.c, n = (size_t)k->n * n_in(k);
    conv->samples = (struct dt_gpu_samples){.shape = s, .scale = SCALE};
    conv->rows = rows;
    if (k->source == BYTES) {
        struct device d = device_open(k->bytes, N_SET * n_in(k), 0);
        conv->samples.pixels = d.data;
        return d;
    }
    if (k->source == FLOATS) {
        struct device d = numbers_open(k->values, N_SET * n_in(k), DT_GPU_F32, 0);
        conv->samples.values = d.data;
        return d;
    }
    float *hwc = floats(n);
    for (size_t i = 0; i < n; i++) {
        const size_t j = i % n_in(k);
        hwc[i] = k->x[i - j + j % n_c * n_hw + j / n_c];
    }
    struct device d = numbers_open(hwc, n, k->type, 0);
    conv->x = d.data;
    return d;
}

static void run_conv(const struct conv_case *k, float *y, float *gradients)
{
    struct dt_gpu_first_conv conv = k->conv;
    const size_t n_channels = (size_t)conv.out.c, n_weights = n_channels * n_taps(k);
    struct device rows = device_open(k->rows, (size_t)k->n * sizeof *k->rows, 0),
                  input = open_input(k, &conv, rows.data);
    struct device weight = numbers_open(k->weight, n_weights, DT_GPU_F32, 0),
                  bias = numbers_open(k->bias, n_channels, DT_GPU_F32, 0);
    struct device dy = numbers_open(k->dy, n_out(k), k->type, 0),
                  to_y = numbers_open(NULL, n_out(k), k->type, 0);
    struct device to = numbers_open(k->before, n_parameters(k), DT_GPU_F32, 0),
                  scratch = scratch_open(dt_gpu_first_conv_scratch(&conv));
    const struct dt_gpu_gradients into = {to.data, k->with_db ? (float *)to.data + n_weights : NULL,
                                          k->accumulate, scratch.data};
    struct device signs = device_open(NULL, n_out(k) / 8, 0);
    conv.activation = k->activated ? conv.activation : DT_ACTIVATION_NONE;
    conv.signs = k->keeps ? signs.data : NULL;
    OK(dt_gpu_first_conv_forward(stream, &conv, k->n, k->type, weight.data,
                                 k->activated ? bias.data : NULL, to_y.data));
    OK(dt_gpu_first_conv_gradient(stream, &conv, k->n, k->type,
                                  k->activated && !k->keeps ? to_y.data : NULL, dy.data, &into));
    numbers_close(&to_y, k->type, n_out(k), y);
    device_close(&to, gradients);
    scratch_close(&scratch);
    DEVICES_CLOSE(&signs, &rows, &input, &weight, &bias, &dy);
}

static void check_conv(const struct conv_case *k)
{
    const size_t n_p = n_parameters(k);
    float *y = floats(n_out(k)), *again_y = floats(n_out(k)), *expected_y = floats(n_out(k));
    float *gradients = floats(n_p), *again = floats(n_p), *expected = floats(n_p);
    plain_conv(k, expected_y, expected);
    run_conv(k, y, gradients);
    run_conv(k, again_y, again);
    near("y", y, expected_y, n_out(k), k->type == DT_GPU_F32 ? 1e-5 : 1.0 / 256);
    near("gradients", gradients, expected, n_p, k->type == DT_GPU_F32 ? 2e-4 : 1e-2);
    same_bits("y", y, again_y, n_out(k));
    same_bits("gradients", gradients, again, n_p);
}

static void draw_case(struct conv_case *k)
{
    const struct dt_gpu_first_conv *c = &k->conv;
    k->bytes = temporary(N_SET * n_in(k));
    k->rows = temporary((size_t)k->n * sizeof *k->rows + 1);
    for (size_t i = 0; i < N_SET * n_in(k); i++) {
        k->bytes[i] = (uint8_t)draw(24);
    }
    k->values = random_floats(N_SET * n_in(k), 16);
    k->x = floats((size_t)k->n * n_in(k));
    for (size_t i = 0; i < (size_t)k->n; i++) {
        k->rows[i] = draw(N_SET);
        for (size_t j = 0; j < n_in(k); j++) {
            const size_t at = k->rows[i] * n_in(k) + j;
            k->x[i * n_in(k) + j] =
                k->source == BYTES ? (float)k->bytes[at] * SCALE : k->values[at];
        }
    }
    k->weight = random_floats((size_t)c->out.c * n_taps(k), 4);
    k->bias = random_floats((size_t)c->out.c, 8);
    k->dy = random_floats(n_out(k), 4);
    k->before = random_floats(n_parameters(k), 8);
}

static int n_kept;

/* Pads as model/lower.c does. */
static void check_shape(int n, struct dt_shape in, int filters, int kernel, int stride, bool same)
{
    struct conv_case k = {
        .n = n, .source = (enum source)draw(3), .type = draw(2) == 0 ? DT_GPU_F32 : DT_GPU_BF16};
    k.activated = draw(3) > 0;
    k.with_db = draw(3) > 0;
    k.accumulate = draw(2) == 0;
    struct dt_gpu_first_conv *c = &k.conv;
    *c = (struct dt_gpu_first_conv){
        .in = in,
        .kernel = kernel,
        .stride = stride,
        .activation = (enum dt_activation)draw(N_ACTIVATIONS - 1)}; /* without gelu, the last */
    c->out = (struct dt_shape){filters, (in.h - kernel) / stride + 1, (in.w - kernel) / stride + 1};
    if (same) {
        c->out =
            (struct dt_shape){filters, (in.h + stride - 1) / stride, (in.w + stride - 1) / stride};
        const int h = (c->out.h - 1) * stride + kernel - in.h,
                  w = (c->out.w - 1) * stride + kernel - in.w;
        c->pad_h = h > 0 ? h / 2 : 0;
        c->pad_w = w > 0 ? w / 2 : 0;
    }
    snprintf(case_text, sizeof case_text,
             "%d of %dx%dx%d to %d, kernel %d, stride %d, same %d, source %d, type %d, activation "
             "%d %d, bias %d, accumulate %d",
             n, in.c, in.h, in.w, filters, kernel, stride, same, k.source, k.type, k.activated,
             c->activation, k.with_db, k.accumulate);
    draw_case(&k);
    check_conv(&k);
    k.keeps = k.activated && c->activation == DT_ACTIVATION_RELU && filters % 8 == 0;
    if (k.keeps) {
        check_conv(&k);
        n_kept++;
    }
    temporaries_end();
}

int main(void)
{
    static const int numbers[] = {0, 1, 3, 5}, filters[] = {1, 6, 8, 10, 32},
                     kernels[] = {1, 2, 3, 5};
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < 70; i++) {
        const int kernel = kernels[draw(4)];
        const struct dt_shape in = {1 + (int)draw(4), kernel + (int)draw(9), kernel + (int)draw(9)};
        const int n_filters = filters[draw(5)];
        if (n_filters * in.c * kernel * kernel <= DT_CUDA_FIRST_CONV_WEIGHTS) {
            check_shape(numbers[draw(4)], in, n_filters, kernel, 1 + (int)draw(3), draw(2) == 0);
        }
    }
    check_shape(2, (struct dt_shape){1, 28, 28}, 32, 3, 1,
                false); /* more places than a block handles at once */
    check_shape(1, (struct dt_shape){3, 32, 32}, 64, 3, 1, true);
    check_shape(1060, (struct dt_shape){1, 3, 2}, 8, 2, 1,
                true); /* more images than blocks, forward and backward */
    OK(cudaStreamDestroy(stream));
    CHECK(n_kept > 3);
    return 0;
}
