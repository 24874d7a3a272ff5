/* Convolutions of images with blank parts, on every instruction set. Forward, a window of zeros
 * takes a shorter way to the same bits, whatever weights and biases are: the test compares it with
 * the same convolution column by column, which the kernel for wide rows does not serve. The
 * weights' gradient of such images is exact, with infinities and NaN in them too. */
#include "tests/lib/guarded.h"
#include "tests/unit/cpu/modes.h"

static float draw_special(uint32_t one_of)
{
    static const float special[] = {-0.0f, INFINITY, -INFINITY, NAN, 0.0f};
    return draw(one_of) == 0 ? special[draw(5)] : draw_eighths(8);
}

/* Strokes on a ground of zeros, of which a few or half are -0, or all. */
static struct buffer drawing(const struct dt_conv *conv)
{
    struct buffer x = buffer_open((size_t)conv->h * (size_t)conv->w);
    const uint32_t one_of = 1 + draw(3) * draw(30);
    CHECK(x.n > 0);
    for (size_t i = 0; i < x.n; i++) {
        x.data[i] = draw(one_of) == 0 ? -0.0f : 0.0f;
    }
    for (uint32_t stroke = draw(5); stroke > 0; stroke--) {
        const size_t at = draw((uint32_t)x.n), length = draw(12);
        for (size_t i = at; i < x.n && i < at + length; i++) {
            x.data[i] = draw_special(30);
        }
    }
    return x;
}

/* One column after the other. */
static void by_columns(const struct dt_conv *conv, const float *x, const float *packed,
                       const float *bias, bool relu, float *y)
{
    const size_t n_k = (size_t)conv->k;
    struct dt_conv column = *conv;
    struct buffer out = buffer_open((size_t)conv->out_h * n_k);
    column.out_w = 1;
    for (int q = 0; q < conv->out_w; q++) {
        kernels->conv_forward(&column, x + (size_t)(q * conv->stride), packed, bias, relu,
                              out.data);
        for (size_t p = 0; p < (size_t)conv->out_h; p++) {
            memcpy(y + (p * (size_t)conv->out_w + (size_t)q) * n_k, out.data + p * n_k,
                   n_k * sizeof(float));
        }
    }
    buffer_close(&out, "a column");
}

static void check_same(const struct buffer *actual, const struct buffer *expected)
{
    for (size_t i = 0; i < actual->n; i++) {
        const float a = actual->data[i], e = expected->data[i];
        CHECK_MESSAGE((a == e && signbit(a) == signbit(e)) || (isnan(a) && isnan(e)),
                      "%s: element %zu is %a, not %a", case_text, i, (double)a, (double)e);
    }
}

static void check_conv(struct dt_conv conv)
{
    conv.c = 1;
    conv.h = (conv.out_h - 1) * conv.stride + conv.kernel + (int)draw(2);
    conv.w = (conv.out_w - 1) * conv.stride + conv.kernel + (int)draw(2);
    const size_t n_k = (size_t)conv.k, n_y = (size_t)conv.out_h * (size_t)conv.out_w * n_k;
    const bool relu = draw(2) == 0;
    const uint32_t one_of = draw(2) == 0 ? 20 : 1000000; /* special weights, or none */
    struct buffer x = drawing(&conv),
                  weight = buffer_open(n_k * (size_t)conv.kernel * (size_t)conv.kernel),
                  bias = buffer_open(n_k);
    struct buffer packed = buffer_open(dt_conv_packed_forward_elems(&conv, kernels->vector));
    struct buffer actual = buffer_open(n_y), expected = buffer_open(n_y);
    for (size_t i = 0; i < weight.n; i++) {
        const float w = draw_special(one_of);
        weight.data[i] =
            i < weight.n / 2 ? w : fabsf(w); /* only products of one sign keep a bias of -0 */
    }
    for (size_t i = 0; i < n_k; i++) {
        bias.data[i] = draw_special(3);
    }
    snprintf(case_text, sizeof case_text, "%s: %dx%d outputs, kernel %d, stride %d, %d filters",
             kernels->isa, conv.out_h, conv.out_w, conv.kernel, conv.stride, conv.k);
    kernels->conv_pack_forward(&conv, weight.data, packed.data);
    kernels->conv_forward(&conv, x.data, packed.data, bias.data, relu, actual.data);
    by_columns(&conv, x.data, packed.data, bias.data, relu, expected.data);
    check_same(&actual, &expected);
    BUFFERS_CLOSE(&x, &weight, &bias, &packed, &actual, &expected);
}

/* The weights' gradient (taps, filters) and the bias's, term by term; of eighths the sums are
 * exact. */
static void gradient_of(const struct dt_conv *conv, const float *x, const float *dy, const float *y,
                        size_t filters, float *dw, float *db)
{
    for (int at = 0; at < conv->out_h * conv->out_w; at++) {
        const float *window =
            x + at / conv->out_w * conv->stride * conv->w + at % conv->out_w * conv->stride;
        for (int k = 0; k < conv->k; k++) {
            const float g = y[at * conv->k + k] > 0 ? dy[at * conv->k + k] : 0.0f;
            db[k] += g;
            for (int tap = 0; tap < conv->kernel * conv->kernel; tap++) {
                dw[(size_t)tap * filters + (size_t)k] +=
                    window[tap / conv->kernel * conv->w + tap % conv->kernel] * g;
            }
        }
    }
}

static void check_gradient(struct dt_conv conv)
{
    conv.c = 1;
    conv.h = (conv.out_h - 1) * conv.stride + conv.kernel;
    conv.w = (conv.out_w - 1) * conv.stride + conv.kernel;
    const size_t n_y = (size_t)conv.out_h * (size_t)conv.out_w * (size_t)conv.k,
                 filters = dt_conv_filters(&conv, kernels->vector);
    struct buffer x = drawing(&conv), y = buffer_random(n_y, 8, 0), dy = buffer_random(n_y, 8, 0);
    struct buffer dw = buffer_open(dt_conv_dense_elems(&conv, kernels->vector)),
                  db = buffer_open(filters);
    struct buffer expected_dw = buffer_open(dw.n), expected_db = buffer_open(db.n);
    CHECK(n_y > 0);
    dy.data[draw((uint32_t)n_y)] = draw_special(2);
    snprintf(case_text, sizeof case_text,
             "%s: gradient of %dx%d outputs, kernel %d, stride %d, %d filters", kernels->isa,
             conv.out_h, conv.out_w, conv.kernel, conv.stride, conv.k);
    gradient_of(&conv, x.data, dy.data, y.data, filters, expected_dw.data, expected_db.data);
    kernels->conv_weights_dense(&conv, x.data, dy.data, y.data, dw.data, db.data);
    for (size_t i = 0; i < dw.n; i++) { /* beyond the filters is nothing that anybody asks for */
        dw.data[i] = i % filters < (size_t)conv.k ? dw.data[i] + 0.0f : 0;
    }
    check_same(&dw, &expected_dw);
    for (size_t i = (size_t)conv.k; i < filters; i++) {
        db.data[i] = 0;
    }
    check_same(&db, &expected_db);
    BUFFERS_CLOSE(&x, &y, &dy, &dw, &db, &expected_dw, &expected_db);
}

static void check_all(void)
{
    static const int filters[] = {4, 8, 10, 16, 32, 48}, sides[] = {3, 5};
    for (int round = 0; round < 1000; round++) {
        const int out_w =
            1 + (int)draw(round % 4 == 0 ? 150 : 30); /* wider than a word of bits too */
        const struct dt_conv conv = {.out_h = 1 + (int)draw(6),
                                     .out_w = out_w,
                                     .k = filters[draw(6)],
                                     .kernel = sides[draw(2)],
                                     .stride = 1 + (int)draw(6)};
        check_conv(conv);
        check_gradient(conv);
    }
}

int main(void)
{
    on_every_isa(check_all);
    return 0;
}
