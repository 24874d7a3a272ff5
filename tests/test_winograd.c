/* The convolution by Winograd's method, kernel by kernel, against sums in double, on every instruction set of this machine and for
 * shapes of every kind, also those for which blocks would not use it: channels and filters that fill no vector, images smaller than
 * a tile, remainders of tiles and pools, padding. Then as a block: what is not finite or too large for the method is left to the
 * direct kernel, image by image. Buffers have guard words on both sides, NaNs that no result may read nor write. */
#include "guarded.h"

#include "cpu/cpu_isa.h"
#include "cpu/cpu_kernels.h"
#include "model/backend.h"

#define N_IMAGES 3

static const struct dt_cpu_kernels *kernels;

static struct buffer buffer_uniform(size_t n, float largest)
{
    struct buffer b = buffer_open(n);
    for (size_t i = 0; i < n; i++) {
        b.data[i] = largest * ((float)draw(1 << 16) / (1 << 15) - 1.0f);
    }
    return b;
}

struct problem {
    struct dt_winograd w;
    struct buffer x, weight, bias, packed, scratch;
    double *z; /* (images, out_h, out_w, k) the exact outputs before ReLU */
    size_t n_x, n_z;
    double scale; /* the largest of them */
};

static double exact(const struct problem *s, size_t image, int p, int q, int k)
{
    const struct dt_winograd *w = &s->w;
    double sum = (double)s->bias.data[k];
    for (int tap = 0; tap < 9; tap++) {
        const int h = p + tap / 3 - w->top, v = q + tap % 3 - w->left;
        for (int c = 0; h >= 0 && h < w->h && v >= 0 && v < w->w && c < w->c; c++) {
            sum +=
                (double)s->x.data[image * s->n_x + (size_t)((h * w->w + v) * w->c + c)] * s->weight.data[(k * w->c + c) * 9 + tap];
        }
    }
    return sum;
}

static void compute_exact(struct problem *s)
{
    const struct dt_winograd *w = &s->w;
    double *z = s->z;
    s->scale = 1;
    for (size_t image = 0; image < N_IMAGES; image++) {
        for (int i = 0; i < w->out_h * w->out_w; i++) {
            for (int k = 0; k < w->k; k++) {
                *z = exact(s, image, i / w->out_w, i % w->out_w, k);
                s->scale = fmax(s->scale, fabs(*z++));
            }
        }
    }
}

/* Leaves the first image as it is, gives the second equal pixels to the right, and makes the last one blank. */
static void blank_parts(struct problem *s)
{
    const size_t n_c = (size_t)s->w.c, n_w = (size_t)s->w.w, n_pixels = (size_t)s->w.h * n_w;
    for (size_t i = n_pixels; i < N_IMAGES * n_pixels; i++) {
        const bool blank = i >= (N_IMAGES - 1) * n_pixels || i % n_w >= n_w / 3;
        for (size_t c = 0; c < n_c && blank; c++) {
            s->x.data[i * n_c + c] = s->x.data[c];
        }
    }
}

static struct problem problem_open(int c, int k, int h, int w, bool same)
{
    const int pad = same ? 1 : 0;
    struct problem s = {
        .w = {.c = c, .h = h, .w = w, .top = pad, .left = pad, .k = k, .out_h = h - 2 + 2 * pad, .out_w = w - 2 + 2 * pad}};
    dt_winograd_plan(&s.w, kernels->vector);
    s.n_x = (size_t)(c * h * w);
    s.n_z = (size_t)(s.w.out_h * s.w.out_w * k);
    s.x = buffer_uniform(N_IMAGES * s.n_x, 1);
    if (draw(4) == 0) {
        blank_parts(&s);
    }
    s.weight = buffer_uniform((size_t)(9 * c * k), sqrtf(2.0f / (float)(3 * c)));
    s.bias = buffer_uniform((size_t)k, 0.5f);
    s.packed = buffer_open(dt_winograd_packed_elems(&s.w));
    s.scratch = buffer_open(dt_winograd_scratch_elems(&s.w));
    s.z = calloc(N_IMAGES * s.n_z, sizeof(double));
    CHECK(s.z != NULL);
    compute_exact(&s);
    kernels->winograd_pack(&s.w, s.weight.data, s.packed.data);
    snprintf(case_text, sizeof case_text, "%s, %dx%dx%d to %d, %s", kernels->isa, c, h, w, k, same ? "same" : "valid");
    return s;
}

static void problem_close(struct problem *s)
{
    buffer_close(&s->x, "x");
    buffer_close(&s->weight, "weight");
    buffer_close(&s->bias, "bias");
    buffer_close(&s->packed, "packed");
    buffer_close(&s->scratch, "scratch");
    free(s->z);
}

static void check_near(const struct problem *s, const char *what, size_t i, float actual, double expected)
{
    if (!(fabs((double)actual - expected) <= 1e-5 * s->scale)) {
        CHECK_FAIL("%s: %s[%zu] is %.9g, the exact sum %.9g, the largest %.3g", case_text, what, i, (double)actual, expected,
                   s->scale);
    }
}

/* All images together, then one by one, by another number of tiles at a time and blank tiles like all others: the same bits. */
static void check_plain(struct problem *s, bool relu)
{
    struct buffer y = buffer_open(N_IMAGES * s->n_z), again = buffer_open(y.n);
    struct dt_winograd_out out = {.bias = s->bias.data, .relu = relu, .y = y.data};
    kernels->winograd_forward(&s->w, N_IMAGES, s->x.data, s->packed.data, &out, s->scratch.data);
    for (size_t i = 0; i < y.n; i++) {
        check_near(s, "y", i, y.data[i], relu ? fmax(s->z[i], 0) : s->z[i]);
    }
    struct dt_winograd other = s->w;
    other.skips_blank = false;
    other.group = s->w.group > 1 ? 1 + (int)draw((uint32_t)s->w.group) : 1;
    for (size_t image = N_IMAGES; image-- > 0;) {
        out.y = again.data + image * s->n_z;
        kernels->winograd_forward(&other, 1, s->x.data + image * s->n_x, s->packed.data, &out, s->scratch.data);
    }
    CHECK(memcmp(y.data, again.data, y.n * sizeof(float)) == 0);
    buffer_close(&y, "y");
    buffer_close(&again, "y again");
}

/* One pooled output: its value, and that the winner is the first of the window's largest but for rounding. */
static void check_window(const struct problem *s, size_t i, float y, uint16_t winner, float factor)
{
    const size_t k = (size_t)s->w.k, w = (size_t)s->w.out_w, columns = w / 2, n_image = (size_t)(s->w.out_h / 2) * columns * k;
    const size_t image = i / n_image, p = i % n_image / (columns * k), q = i % (columns * k) / k;
    const double *z = s->z + image * s->n_z + (2 * p * w + 2 * q) * k + i % k;
    const double window[4] = {fmax(z[0], 0), fmax(z[k], 0), fmax(z[w * k], 0), fmax(z[(w + 1) * k], 0)};
    const double best = fmax(fmax(window[0], window[1]), fmax(window[2], window[3]));
    check_near(s, "pooled", i, y, best * (double)factor);
    CHECK(winner < 4 && window[winner] >= best - 1e-5 * s->scale);
    CHECK(best > 0 || winner == 0 || window[winner] > 0 || factor == 0 || y > 0);
}

static void check_pooled(struct problem *s, bool drops)
{
    const size_t n = N_IMAGES * (size_t)(s->w.out_h / 2) * (size_t)(s->w.out_w / 2) * (size_t)s->w.k;
    struct buffer y = buffer_open(n), eval_y = buffer_open(n), winner = buffer_open(n / 2 + 1), keep = buffer_open(n / 4 + 1);
    uint16_t *winners = (uint16_t *)winner.data;
    uint8_t *kept = (uint8_t *)keep.data;
    for (size_t i = 0; i < n; i++) {
        kept[i] = draw(4) != 0;
    }
    struct dt_winograd_out out = {.bias = s->bias.data,
                                  .relu = true,
                                  .pool = true,
                                  .y = y.data,
                                  .winner = winners,
                                  .keep = drops ? kept : NULL,
                                  .scale = 1.25f};
    kernels->winograd_forward(&s->w, N_IMAGES, s->x.data, s->packed.data, &out, s->scratch.data);
    for (size_t i = 0; i < n; i++) {
        check_window(s, i, y.data[i], winners[i], drops ? (kept[i] ? 1.25f : 0.0f) : 1.0f);
    }
    out.y = eval_y.data; /* as in evaluation */
    out.winner = NULL;
    out.keep = NULL;
    kernels->winograd_forward(&s->w, N_IMAGES, s->x.data, s->packed.data, &out, s->scratch.data);
    for (size_t i = 0; i < n; i++) {
        CHECK(y.data[i] == eval_y.data[i] * (drops ? (kept[i] ? 1.25f : 0.0f) : 1.0f));
    }
    buffer_close(&y, "pooled");
    buffer_close(&eval_y, "pooled in evaluation");
    buffer_close(&winner, "winner");
    buffer_close(&keep, "keep");
}

static void check_shapes(void)
{
    static const int channels[] = {1, 3, 5, 16, 27, 40}, filters[] = {1, 5, 16, 27, 64, 70}, sides[] = {3, 4, 5, 6, 7, 8, 11, 14};
    for (int i = 0; i < 6 * 6 * 8; i++) {
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
    const struct dt_winograd_out out = {.bias = s.bias.data, .y = y.data};
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

/* Where all pixels are equal, so are all outputs, exactly, and the first of a window wins. */
static void check_blank(void)
{
    struct problem s = problem_open(11, 19, 14, 14, false);
    const size_t n = N_IMAGES * 36 * 19;
    struct buffer y = buffer_open(N_IMAGES * s.n_z), pooled = buffer_open(n), winner = buffer_open(n / 2 + 1);
    uint16_t *winners = (uint16_t *)winner.data;
    for (size_t i = 11; i < s.x.n; i++) {
        s.x.data[i] = s.x.data[i % 11];
    }
    memset(winners, 1, n * sizeof *winners);
    struct dt_winograd_out out = {.bias = s.bias.data, .y = y.data};
    kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out, s.scratch.data);
    for (size_t i = 19; i < y.n; i++) {
        CHECK(y.data[i] == y.data[i % 19]);
    }
    out = (struct dt_winograd_out){.bias = s.bias.data, .relu = true, .pool = true, .y = pooled.data, .winner = winners};
    kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out, s.scratch.data);
    for (size_t i = 0; i < n; i++) {
        CHECK(winners[i] == 0 && pooled.data[i] == fmaxf(y.data[i % 19], 0));
    }
    buffer_close(&y, "y");
    buffer_close(&pooled, "pooled");
    buffer_close(&winner, "winner");
    problem_close(&s);
}

/* What is not finite, or becomes so on the way, is reported for the image it is in, and for no other, wherever it is. */
static void check_report(void)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f};
    struct problem s = problem_open(9, 20, 11, 9, true);
    struct buffer y = buffer_open(N_IMAGES * s.n_z);
    struct dt_winograd_out out = {.bias = s.bias.data, .relu = true, .y = y.data};
    CHECK_INT(kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out, s.scratch.data), 0);
    for (size_t i = 0; i < s.x.n; i++) {
        const float before = s.x.data[i];
        s.x.data[i] = odd[i % 4];
        out.pool = i % 5 == 0 && i % (11 * 9 * 9) < 10 * 8 * 9; /* away from the rows that a pool leaves out */
        CHECK_INT(kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out, s.scratch.data), 1 << i / s.n_x);
        s.x.data[i] = before;
    }
    out.pool = false;
    for (size_t i = 0; i < s.weight.n; i++) {
        const float before = s.weight.data[i];
        s.weight.data[i] = odd[i % 3];
        kernels->winograd_pack(&s.w, s.weight.data, s.packed.data);
        CHECK_INT(kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out, s.scratch.data), 7);
        s.weight.data[i] = before;
    }
    kernels->winograd_pack(&s.w, s.weight.data, s.packed.data);
    for (size_t i = 0; i < s.bias.n; i++) {
        const float before = s.bias.data[i];
        s.bias.data[i] = odd[i % 3];
        CHECK_INT(kernels->winograd_forward(&s.w, N_IMAGES, s.x.data, s.packed.data, &out, s.scratch.data), 7);
        s.bias.data[i] = before;
    }
    buffer_close(&y, "y");
    problem_close(&s);
}

/* ---- a block, with an image among others that is not for this method */

enum { BATCH = 5, POISONED = 2 };

static struct buffer block_forward(const struct dt_backend_ops *ops, const struct dt_model *model, const struct buffer *params,
                                   const struct buffer *x)
{
    static const uint32_t ids[BATCH] = {4, 9, 2, 70000, 1};
    const struct dt_batch batch = {.n = BATCH, .rows = ids, .ids = ids};
    const struct dt_pass pass = {.batch = &batch, .training = true, .seed = 3};
    const struct dt_block *b = &model->blocks[0];
    const struct dt_backend_options options = {.n_threads = 1};
    struct buffer in = ops == &dt_cpu_backend ? turned(x, b->in, true) : copy_of(x),
                  y = buffer_open(BATCH * dt_shape_elems(b->out));
    struct dt_backend *backend;
    struct dt_block_state *state;
    CHECK_INT(ops->open(&options, &backend), DT_OK);
    CHECK_INT(ops->block_open(backend, model, 0, BATCH, &state), DT_OK);
    CHECK_INT(ops->block_forward(state, params->data, in.data, y.data, &pass), DT_OK);
    ops->block_close(state);
    ops->close(backend);
    buffer_close(&in, "x");
    return y;
}

static void check_poisoned(void)
{
    static const float poison[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f};
    static struct dt_model model;
    struct dt_model_spec spec = {
        .input = {20, 10, 11},
        .n_layers = 4,
        .layers = {{.type = DT_LAYER_CONV2D, .size = 24, .kernel = 3, .stride = 1, .activation = DT_ACTIVATION_RELU},
                   {.type = DT_LAYER_MAX_POOL2D, .size = 2, .stride = 2},
                   {.type = DT_LAYER_DROPOUT, .rate = 0.25},
                   {.type = DT_LAYER_FLATTEN}}};
    struct dt_winograd w = {.c = 20, .h = 10, .w = 11, .k = 24, .out_h = 8, .out_w = 9};
    dt_winograd_plan(&w, kernels->vector);
    CHECK(w.used); /* or this checks nothing */
    CHECK_INT(dt_model_lower(&spec, &model), DT_OK);
    const size_t n_x = 20 * 10 * 11, n_y = 24 * 4 * 4;
    struct buffer params = buffer_uniform(model.arena_elems, 0.1f), x = buffer_uniform(BATCH * n_x, 1);
    struct buffer clean = block_forward(&dt_cpu_backend, &model, &params, &x);
    for (size_t i = 0; i < 5 * 4; i++) {
        float *at = &x.data[POISONED * n_x + draw((uint32_t)n_x)], before = *at;
        *at = poison[i % 5];
        struct buffer expected = block_forward(&dt_ref_backend, &model, &params, &x);
        struct buffer actual = block_forward(&dt_cpu_backend, &model, &params, &x);
        for (size_t j = 0; j < actual.n; j++) {
            const float a = actual.data[j], e = expected.data[j];
            CHECK(j / n_y == POISONED ? a == e || (isnan(a) && isnan(e)) || fabsf(a - e) <= 1e-5f * (1 + fabsf(e))
                                      : a == clean.data[j]);
        }
        *at = before;
        buffer_close(&expected, "y");
        buffer_close(&actual, "y");
    }
    buffer_close(&params, "params");
    buffer_close(&x, "x");
    buffer_close(&clean, "y");
}

int main(void)
{
    const char *isas[DT_CPU_MAX_ISAS];
    const int n_isas = dt_cpu_isa_list(isas);
    for (int i = 0; i < n_isas; i++) {
        setenv("DTRAIN_ISA", isas[i], 1);
        CHECK_INT(dt_cpu_isa_choose(&kernels), DT_OK);
        check_shapes();
        check_accuracy();
        check_blank();
        check_report();
        check_poisoned();
    }
    return 0;
}
