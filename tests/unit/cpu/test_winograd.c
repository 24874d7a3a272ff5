/* The convolution by Winograd's method, kernel by kernel, against sums in double, on every
 * instruction set of this machine and for shapes of every kind, also those for which blocks would
 * not use it: channels and filters that fill no vector, images smaller than a tile, remainders of
 * tiles and pools, padding. test_winograd_blank.c has parts of equal pixels, test_winograd_block.c
 * whole blocks. */
#include "tests/unit/cpu/winograd_problem.h"

static void check_shapes(void)
{
    static const int channels[] = {1, 3, 5, 16, 27, 40}, filters[] = {1, 5, 16, 27, 64, 70},
                     sides[] = {3, 4, 5, 6, 7, 8, 11, 14};
    for (int i = 0; i < 6 * 6 * 8; i += EVERY(5)) {
        const int h = sides[i % 8], w = sides[draw(8)];
        struct problem s = problem_open(channels[i / 48], filters[i / 8 % 6], h, w, draw(2) == 1);
        check_plain(&s, draw(2) == 1);
        check_pooled(&s, draw(2) == 1);
        problem_close(&s);
    }
    for (int i = 1; i <= 2; i++) { /* "same" alone allows images this small */
        struct problem s = problem_open(9, 20, i, 3 - i, true);
        check_plain(&s, true);
        check_pooled(&s, true);
        problem_close(&s);
    }
}

/* The error as a whole, where single outputs may differ more: a few times that of a direct sum. */
static void check_accuracy(void)
{
    struct problem s = problem_open(32, 64, 26, 26, false);
    struct buffer y = buffer_open(N_IMAGES * s.n_z);
    const struct dt_conv_outputs out = {.bias = s.bias.data, .y = y.data};
    double error = 0, norm = 0;
    kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out, s.scratch.data);
    for (size_t i = 0; i < y.n; i++) {
        error += ((double)y.data[i] - s.z[i]) * ((double)y.data[i] - s.z[i]);
        norm += s.z[i] * s.z[i];
    }
    CHECK_NEAR(0.0, sqrt(error / norm), 1.2e-6);
    buffer_close(&y, "y");
    problem_close(&s);
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
    CHECK_INT(
        kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out, s.scratch.data),
        0);
    for (size_t i = 0; i < s.x.n; i++) {
        const float before = s.x.data[i];
        s.x.data[i] = odd[i % 4];
        out.pool = i % 5 == 0 &&
                   i % (11 * 9 * 9) < 10 * 8 * 9; /* away from the rows that a pool leaves out */
        CHECK_INT(kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out,
                                            s.scratch.data),
                  1 << i / s.n_x);
        s.x.data[i] = before;
    }
    out.pool = false;
    for (size_t i = 0; i < s.weight.n; i++) {
        const float before = s.weight.data[i];
        s.weight.data[i] = odd[i % 3];
        kernels->winograd_pack(&s.w, s.weight.data, s.packed.data);
        CHECK_INT(kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out,
                                            s.scratch.data),
                  7);
        s.weight.data[i] = before;
    }
    kernels->winograd_pack(&s.w, s.weight.data, s.packed.data);
    for (size_t i = 0; i < s.bias.n; i++) {
        const float before = s.bias.data[i];
        s.bias.data[i] = odd[i % 3];
        CHECK_INT(kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out,
                                            s.scratch.data),
                  7);
        s.bias.data[i] = before;
    }
    buffer_close(&y, "y");
    problem_close(&s);
}

static void check_all(void)
{
    check_shapes();
    check_accuracy();
    check_report(false);
    check_report(true);
}

int main(void)
{
    on_every_isa(check_all);
    return 0;
}
