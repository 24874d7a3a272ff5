/* The convolution by Winograd's method, kernel by kernel, against sums in double, on every
 * instruction set of this machine and for shapes of every kind. test_winograd_blank.c has parts of
 * equal pixels, test_winograd_block.c whole blocks. */
#include "tests/unit/cpu/winograd_problem.h"

static void check_shape(int c, int k, int h, int w, bool same)
{
    struct problem s = problem_open(c, k, h, w, same);
    check_plain(&s, draw(2) == 1);
    check_pooled(&s, draw(2) == 1);
    problem_close(&s);
}

/* The error as a whole, where single outputs may differ more: a few times that of a direct sum. */
static void check_accuracy(void)
{
    struct problem s = problem_open(32, 64, 26, 26, false);
    struct buffer y = buffer_open(N_IMAGES * s.n_z);
    const struct dt_conv_outputs out = {.bias = s.bias.data, .y = y.data};
    double error = 0, norm = 0;
    forward(&s, &out);
    for (size_t i = 0; i < y.n; i++) {
        error += ((double)y.data[i] - s.z[i]) * ((double)y.data[i] - s.z[i]);
        norm += s.z[i] * s.z[i];
    }
    CHECK_NEAR(0.0, sqrt(error / norm), wider > 0 ? 2e-6 : 1.2e-6);
    BUFFERS_CLOSE(&y);
    problem_close(&s);
}

/* Which images are reported while this number is in the place of another. */
static int reported(const struct problem *s, const struct dt_conv_outputs *out, float *at,
                    float number)
{
    const float before = *at;
    *at = number;
    kernels->winograd_pack(&s->w, s->weight.data, s->packed.data);
    const int images = forward(s, out);
    *at = before;
    return images;
}

/* A number that is not finite, or becomes so on the way, is reported for its image, and for no
 * other, wherever it is. */
static void check_report(bool blank)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f}, pixel[9] = {0, 1, -0.5f};
    struct problem s = problem_open(9, 20, 11, 9, true);
    for (size_t image = 0; image < N_IMAGES && blank; image++) {
        paint(&s, image, 0, 0, 11, 9, pixel);
    }
    struct buffer y = buffer_open(N_IMAGES * s.n_z);
    struct dt_conv_outputs out = {.bias = s.bias.data, .relu = true, .y = y.data};
    CHECK_INT(forward(&s, &out), 0);
    for (size_t i = 0; i < s.x.n; i += EVERY(7)) {
        out.pool = i % 5 == 0 &&
                   i % (11 * 9 * 9) < 10 * 8 * 9; /* away from the rows that a pool leaves out */
        CHECK_INT(reported(&s, &out, &s.x.data[i], odd[i % 4]), 1 << i / s.n_x);
    }
    out.pool = false;
    for (size_t i = 0; i < s.weight.n; i += EVERY(7)) {
        CHECK_INT(reported(&s, &out, &s.weight.data[i], odd[i % 3]), 7);
    }
    for (size_t i = 0; i < s.bias.n; i++) {
        CHECK_INT(reported(&s, &out, &s.bias.data[i], odd[i % 3]), 7);
    }
    BUFFERS_CLOSE(&y);
    problem_close(&s);
}

static void check_all(void)
{
    for (wider = 0; wider <= 2; wider += EVERY(2)) {
        on_shapes(check_shape);
        check_accuracy();
        check_report(false);
        check_report(true);
    }
}

int main(void)
{
    on_every_isa(check_all);
    return 0;
}
