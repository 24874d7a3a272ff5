/* Kernels of blocks against plain loops: over odd shapes, both types, empty and one-element calls,
 * NaN and infinity, with guards around their results, and twice, for the same bits. It calls only
 * the CUDA runtime, so that this file, linked with the real one, tests a GPU. test_kernels_conv.c
 * and test_kernels_step.c have the others. Numbers are small multiples of 1/8, exact in bfloat16
 * too, so that most sums are exact and ties are ties. */
#include "base/rng.h"
#include "base/transform.h"
#include "tests/cuda/numbers.h"

/* ---- gather */

enum source { VALUES, BYTES, TRANSFORMED }; /* bytes that are normalized and augmented, at last */

static void check_gather(struct dt_shape shape, int n, enum source source, enum dt_gpu_type type)
{
    enum { N_SET = 5 };
    snprintf(case_text, sizeof case_text, "gather %d of %dx%dx%d, source %d, type %d", n, shape.c,
             shape.h, shape.w, source, type);
    const size_t n_elems = dt_shape_elems(shape), n_c = (size_t)shape.c, n_w = (size_t)shape.w,
                 n_hw = (size_t)shape.h * n_w, n_x = (size_t)n * n_elems;
    struct dt_pixel_transform t = {.shape = shape,
                                   .n_scaled = shape.c,
                                   .seed = 5,
                                   .n_steps = 3,
                                   .steps = {{.n = 2}, {DT_TRANSFORM_MIRROR, 0}, {.n = 1}}};
    const uint32_t epoch = 3;
    float *values = random_floats(N_SET * n_elems, 40), *x = floats(n_x), *expected = floats(n_x);
    uint8_t *bytes = temporary(N_SET * n_elems);
    uint32_t *rows = temporary((size_t)n * sizeof *rows + 1),
             *ids = temporary((size_t)n * sizeof *ids + 1);
    for (int c = 0; c < shape.c && source == TRANSFORMED; c++) {
        t.scale[c] = 0.25f * (float)(c + 1);
        t.offset[c] = -0.5f * (float)c;
    }
    for (size_t i = 0; i < N_SET * n_elems; i++) {
        bytes[i] =
            (uint8_t)(draw(source == TRANSFORMED ? 16 : 256) * (source == TRANSFORMED ? 8 : 1));
    }
    for (size_t i = 0; i < (size_t)n; i++) {
        rows[i] = draw(N_SET);
        ids[i] = draw(1000);
        const struct dt_pose pose = dt_transform_pose(&t, epoch, ids[i]);
        for (size_t j = 0; j < n_elems; j++) {
            const size_t first = rows[i] * n_elems, from = first + j % n_c * n_hw + j / n_c;
            expected[i * n_elems + j] =
                source == VALUES  ? values[from]
                : source == BYTES ? (float)bytes[from] * 0.25f
                                  : dt_transform_at(&t, &pose, bytes + first, (int)(j % n_c),
                                                    (int)(j / n_c / n_w), (int)(j / n_c % n_w));
        }
    }
    struct device set = source != VALUES ? device_open(bytes, N_SET * n_elems, 0)
                                         : device_open(values, N_SET * n_elems * sizeof(float), 0),
                  how = device_open(&t, sizeof t, 0),
                  order = device_open(rows, (size_t)n * sizeof *rows, 0),
                  numbers = device_open(ids, (size_t)n * sizeof *ids, 0),
                  time = device_open(&epoch, sizeof epoch, 0),
                  to = numbers_open(NULL, n_x, type, 0);
    const struct dt_gpu_samples samples = {.shape = shape,
                                           .pixels = source != VALUES ? set.data : NULL,
                                           .values = source == VALUES ? set.data : NULL,
                                           .scale = source == TRANSFORMED ? 9 : 0.25f,
                                           .transform = source == TRANSFORMED ? how.data : NULL};
    const struct dt_gpu_batch batch = {.rows = order.data, .ids = numbers.data, .epoch = time.data};
    OK(dt_gpu_gather(stream, &samples, &batch, n, type, to.data));
    numbers_close(&to, type, n_x, x);
    near("x", x, expected, n_x, 0);
    DEVICES_CLOSE(&set, &how, &order, &numbers, &time);
    temporaries_end();
}

static void test_gather(void)
{
    static const struct dt_shape shapes[] = {{1, 1, 1}, {1, 28, 28}, {3, 5, 7}, {17, 1, 1}};
    for (int i = 0; i < 4; i++) {
        for (int pixels = 0; pixels < 2; pixels++) {
            check_gather(shapes[i], 0, pixels ? BYTES : VALUES, DT_GPU_F32);
            check_gather(shapes[i], 1, pixels ? BYTES : VALUES, DT_GPU_BF16);
            check_gather(shapes[i], 7, pixels ? BYTES : VALUES, DT_GPU_F32);
        }
    }
    check_gather(shapes[0], 70001, BYTES, DT_GPU_F32); /* more samples than a grid has rows */
    check_gather(shapes[0], 70001, TRANSFORMED, DT_GPU_F32);
    check_gather(shapes[1], 7, TRANSFORMED, DT_GPU_F32);
    check_gather(shapes[2], 7, TRANSFORMED, DT_GPU_F32);
    check_gather(shapes[2], 7, TRANSFORMED, DT_GPU_BF16);
}

/* ---- tail */

struct tail_case {
    struct dt_gpu_tail tail;
    int n;
    enum dt_gpu_type type, y_type;
    bool with_bias, in_place, with_db, accumulate;
    bool keeps;           /* winners, so that backward reads neither z nor the bias */
    size_t shift;         /* bytes by which z misses its alignment */
    float *z, *bias, *dy; /* N H W C; dy in the case's order */
    const uint32_t *ids;
    uint32_t epoch;
};

static size_t hwc(struct dt_shape s, int h, int w, int c)
{
    return ((size_t)h * (size_t)s.w + (size_t)w) * (size_t)s.c + (size_t)c;
}

static double mask(const struct tail_case *k, uint32_t id, size_t unit)
{
    const struct dt_gpu_tail *t = &k->tail;
    if (t->dropout_rate == 0) {
        return 1;
    }
    const uint32_t threshold = dt_dropout_threshold(t->dropout_rate);
    const struct dt_rng4 words =
        dt_dropout_words(t->seed, t->dropout_stream, k->epoch, id, (uint32_t)unit, threshold);
    return dt_dropout_keeps(words, (uint32_t)unit, threshold) ? 1 / (1 - (double)t->dropout_rate)
                                                              : 0;
}

/* One sample, forward and backward: y and dz from z and dy; adds to db. */
static void plain_tail(const struct tail_case *k, uint32_t id, const float *z, const float *dy,
                       float *y, float *dz, double *db)
{
    const struct dt_gpu_tail *t = &k->tail;
    const struct dt_shape in = t->linear, out = t->pooled;
    const size_t n_in = dt_shape_elems(in);
    const int width = t->pool == DT_POOL_NONE ? 1 : t->pool_w,
              size = t->pool == DT_POOL_NONE ? 1 : t->pool_h * t->pool_w,
              stride = t->pool == DT_POOL_NONE ? 1 : t->pool_stride;
    double *b = temporary(n_in * sizeof *b), *a = temporary(n_in * sizeof *a),
           *delta = temporary(n_in * sizeof *delta);
    for (size_t i = 0; i < n_in; i++) {
        b[i] = (double)z[i] + (k->with_bias ? (double)k->bias[i % (size_t)in.c] : 0);
        a[i] = activated(t->activation, b[i]);
    }
    for (int c = 0; c < out.c; c++) {
        for (int p = 0; p < out.h; p++) {
            for (int q = 0; q < out.w; q++) {
                const size_t canonical =
                    ((size_t)c * (size_t)out.h + (size_t)p) * (size_t)out.w + (size_t)q;
                const size_t unit = hwc(out, p, q, c), o = t->flatten ? canonical : unit;
                const double keep = mask(k, id, unit), d = (double)dy[o] * keep;
                size_t best = hwc(in, p * stride, q * stride, c);
                double sum = 0;
                for (int i = 0; i < size; i++) {
                    const size_t at = hwc(in, p * stride + i / width, q * stride + i % width, c);
                    sum += a[at];
                    best = a[at] > a[best] || (isnan(a[at]) && !isnan(a[best])) ? at : best;
                    delta[at] += t->pool == DT_POOL_AVG ? d / size : 0;
                }
                delta[best] += t->pool == DT_POOL_AVG ? 0 : d;
                y[o] = (float)((t->pool == DT_POOL_AVG ? sum / size : a[best]) * keep);
            }
        }
    }
    for (size_t i = 0; i < n_in; i++) {
        const double gradient = delta[i] * derivative(t->activation, b[i], a[i]);
        dz[i] = (float)gradient;
        db[i % (size_t)in.c] += gradient;
    }
}

/* y and dz (n samples each) and db from the kernels. */
static void run_tail(const struct tail_case *k, float *y, float *dz, float *db)
{
    struct dt_gpu_tail tail = k->tail, *t = &tail;
    struct device epoch = device_open(&k->epoch, sizeof k->epoch, 0);
    tail.epoch = epoch.data;
    const size_t n = (size_t)k->n, n_in = n * dt_shape_elems(t->linear),
                 n_out = n * dt_shape_elems(t->pooled);
    struct device z = numbers_open(k->z, n_in, k->type, k->shift),
                  to_dz = numbers_open(NULL, n_in, k->type, 0);
    struct device bias = numbers_open(k->bias, (size_t)t->linear.c, DT_GPU_F32, 0);
    struct device dy = numbers_open(k->dy, n_out, k->y_type, 0),
                  to_y = numbers_open(NULL, n_out, k->y_type, 0);
    struct device ids = device_open(k->ids, n * sizeof *k->ids, 0),
                  to_db = numbers_open(db, (size_t)t->linear.c, DT_GPU_F32, 0);
    struct device scratch = scratch_open(dt_gpu_tail_scratch(t));
    const struct dt_gpu_gradients to = {.bias = k->with_db ? to_db.data : NULL,
                                        .accumulate = k->accumulate,
                                        .scratch = scratch.data};
    const float *b = k->with_bias ? bias.data : NULL;
    struct device winners = device_open(NULL, n_out, 0);
    t->winners = k->keeps ? winners.data : NULL;
    for (int backward = k->keeps ? 0 : 1, i = 0; i < 2; i++, backward = 1 - backward) {
        if (backward == 1) {
            OK(dt_gpu_tail_backward(stream, t, ids.data, k->n, k->type, k->keeps ? NULL : z.data,
                                    k->keeps ? NULL : b, k->y_type, dy.data, to_dz.data, &to));
        } else {
            OK(dt_gpu_tail_forward(stream, t, ids.data, k->n, k->type, z.data, b, k->y_type,
                                   k->in_place ? z.data : to_y.data));
        }
    }
    numbers_close(k->in_place ? &z : &to_y, k->y_type, n_out, y);
    numbers_close(&to_dz, k->type, n_in, dz);
    device_close(&to_db, db);
    scratch_close(&scratch);
    device_close(k->in_place ? &to_y : &z, NULL);
    DEVICES_CLOSE(&dy, &bias, &epoch, &winners, &ids);
}

/* Sums of multiples of 1/8 are exact too, except after tanh, sigmoid and dropout. */
static void check_db(const struct tail_case *k, const float *actual, const float *before,
                     const double *sums)
{
    const size_t n_c = (size_t)k->tail.linear.c;
    float *expected = floats(n_c);
    for (size_t c = 0; c < n_c; c++) {
        const bool written = k->with_db && k->n > 0;
        expected[c] = written ? (k->accumulate ? before[c] : 0) + (float)sums[c] : before[c];
    }
    near("db", actual, expected, n_c, 1e-4);
}

static void check_tail(const struct tail_case *k)
{
    const struct dt_gpu_tail *t = &k->tail;
    const size_t n = (size_t)k->n, n_in = dt_shape_elems(t->linear),
                 n_out = dt_shape_elems(t->pooled), n_c = (size_t)t->linear.c;
    float *y = floats(n * n_out), *dz = floats(n * n_in), *again_y = floats(n * n_out),
          *again_dz = floats(n * n_in);
    float *expected_y = floats(n * n_out), *expected_dz = floats(n * n_in);
    float *before = random_floats(n_c, 16), *db = floats(n_c), *again_db = floats(n_c);
    double *sums = temporary(n_c * sizeof *sums);
    for (size_t i = 0; i < n; i++) {
        plain_tail(k, k->ids[i], k->z + i * n_in, k->dy + i * n_out, expected_y + i * n_out,
                   expected_dz + i * n_in, sums);
    }
    memcpy(db, before, n_c * sizeof *db);
    memcpy(again_db, before, n_c * sizeof *db);
    run_tail(k, y, dz, db);
    run_tail(k, again_y, again_dz, again_db);
    near("y", y, expected_y, n * n_out, k->y_type == DT_GPU_F32 ? 1e-5 : 1.0 / 256);
    near("dz", dz, expected_dz, n * n_in, k->type == DT_GPU_F32 ? 1e-5 : 1.0 / 256);
    check_db(k, db, before, sums);
    same_bits("y", y, again_y, n * n_out);
    same_bits("dz", dz, again_dz, n * n_in);
    same_bits("db", db, again_db, n_c);
}

static struct { /* kinds of random cases that occurred */
    int wide, narrow, overlapping, gaps, remainders, flattened, dropped, in_place, strange, kept,
        oblong;
} seen;

static void draw_pool(struct dt_gpu_tail *t)
{
    static const struct {
        enum dt_pool pool;
        int size, stride;
    } pools[] = {{DT_POOL_NONE, 0, 0}, {DT_POOL_NONE, 0, 0}, {DT_POOL_MAX, 2, 2},
                 {DT_POOL_MAX, 2, 2},  {DT_POOL_AVG, 2, 2},  {DT_POOL_MAX, 3, 2},
                 {DT_POOL_AVG, 3, 1},  {DT_POOL_MAX, 2, 3},  {DT_POOL_AVG, 1, 2},
                 {DT_POOL_MAX, 3, 1},  {DT_POOL_MAX, 3, 3},  {DT_POOL_AVG, 2, 5},
                 {DT_POOL_MAX, 2, 9},  {DT_POOL_AVG, 0, 0}}; /* the last: of the whole image */
    const uint32_t i = draw(sizeof pools / sizeof pools[0]);
    const bool whole = pools[i].size == 0;
    const int h = whole ? t->linear.h : pools[i].size, w = whole ? t->linear.w : pools[i].size,
              stride = whole ? (h > w ? h : w) : pools[i].stride;
    t->pooled = t->linear;
    if (pools[i].pool == DT_POOL_NONE || t->linear.h < h || t->linear.w < w) {
        return;
    }
    t->pool = pools[i].pool;
    t->pool_h = h;
    t->pool_w = w;
    t->pool_stride = stride;
    t->pooled.h = (t->linear.h - h) / stride + 1;
    t->pooled.w = (t->linear.w - w) / stride + 1;
    seen.overlapping += stride < h;
    seen.gaps += stride > h && stride > w;
    seen.remainders += (t->linear.h - h) % stride > 0;
    seen.oblong += h != w;
}

static void check_random_tail(void)
{
    static const int channels[] = {1, 3, 8, 10, 16, 24, 40}, sizes[] = {1, 2, 5, 6, 7, 9},
                     numbers[] = {0, 1, 3, 5};
    static const uint32_t ids[] = {7, 70000, 3, 12345678, 1};
    struct tail_case k = {.n = numbers[draw(4)],
                          .type = draw(2) == 0 ? DT_GPU_F32 : DT_GPU_BF16,
                          .y_type = draw(2) == 0 ? DT_GPU_F32 : DT_GPU_BF16,
                          .with_bias = draw(4) > 0,
                          .with_db = draw(4) > 0,
                          .accumulate = draw(2) == 0,
                          .ids = ids};
    struct dt_gpu_tail *t = &k.tail;
    t->linear = (struct dt_shape){channels[draw(7)], sizes[draw(6)], sizes[draw(6)]};
    t->activation = (enum dt_activation)draw(N_ACTIVATIONS);
    draw_pool(t);
    t->dropout_rate = draw(2) == 0   ? 0
                      : draw(2) == 0 ? 0.25f
                                     : 0.3f; /* 8 bits of a group of 16 units, or 16 of 8 */
    t->dropout_stream = draw(5);
    t->seed = 0x123456789abcdefu;
    k.epoch = draw(3);
    t->flatten = draw(2) == 1;
    const bool in_order = !t->flatten || t->linear.c == 1 || t->linear.h * t->linear.w == 1;
    k.in_place = t->pool == DT_POOL_NONE && in_order && k.type == k.y_type && draw(2) == 0;
    k.keeps = t->pool == DT_POOL_MAX &&
              (t->activation == DT_ACTIVATION_RELU || t->activation == DT_ACTIVATION_NONE);
    k.shift = draw(5) == 0 ? type_bytes(k.type) : 0;
    const size_t n_in = (size_t)k.n * dt_shape_elems(t->linear),
                 n_out = (size_t)k.n * dt_shape_elems(t->pooled);
    k.z = random_floats(n_in, 24);
    k.bias = random_floats((size_t)t->linear.c, 8);
    k.dy = random_floats(n_out, 16);
    const bool strange = draw(4) == 0;
    if (strange) {
        add_strange(k.z, n_in);
        add_strange(k.dy, n_out);
    }
    snprintf(
        case_text, sizeof case_text,
        "tail of %d, type %d to %d, %dx%dx%d, activation %d, pool %d of %dx%d by %d, dropout %g, "
        "flatten %d, bias %d, shift %zu, in place %d, strange %d, winners kept %d",
        k.n, k.type, k.y_type, t->linear.c, t->linear.h, t->linear.w, t->activation, t->pool,
        t->pool_h, t->pool_w, t->pool_stride, (double)t->dropout_rate, t->flatten, k.with_bias,
        k.shift, k.in_place, strange, k.keeps);
    check_tail(&k);
    if (k.keeps) { /* must equal the results without stored winners */
        k.keeps = false;
        check_tail(&k);
        seen.kept++;
    }
    const bool wide = t->linear.c % 8 == 0 && k.shift == 0;
    seen.wide += wide;
    seen.narrow += !wide;
    seen.flattened += !in_order;
    seen.dropped += t->dropout_rate > 0;
    seen.in_place += k.in_place;
    seen.strange += strange;
    temporaries_end();
}

static void test_tail(void)
{
    for (int i = 0; i < 400; i++) {
        check_random_tail();
    }
    CHECK(seen.wide > 9 && seen.narrow > 9 && seen.overlapping > 9 && seen.gaps > 9 &&
          seen.remainders > 9 && seen.oblong > 9);
    CHECK(seen.flattened > 9 && seen.dropped > 9 && seen.in_place > 9 && seen.strange > 9 &&
          seen.kept > 9);
}

/* Rows of many samples or many channels, with relu. */
static void check_large_tail(int n, int channels, struct tail_case k)
{
    const size_t n_c = (size_t)channels, n_all = (size_t)n * n_c;
    uint32_t *ids = temporary((size_t)n * sizeof *ids);
    for (uint32_t i = 0; i < (uint32_t)n; i++) {
        ids[i] = i * 3;
    }
    k.n = n;
    k.tail.linear = k.tail.pooled = (struct dt_shape){channels, 1, 1};
    k.tail.activation = DT_ACTIVATION_RELU;
    k.with_bias = k.with_db = true;
    k.ids = ids;
    k.bias = random_floats(n_c, 8);
    k.z = random_floats(n_all, 24);
    k.dy = random_floats(n_all, 16);
    snprintf(case_text, sizeof case_text, "tail of %d, %d channels", n, channels);
    check_tail(&k);
    temporaries_end();
}

static void test_large_tails(void)
{
    const struct tail_case plain = {.n = 0}, accumulating = {.accumulate = true},
                           flattened = {.tail = {.flatten = true}},
                           dropped = {.y_type = DT_GPU_BF16,
                                      .tail = {.dropout_rate = 0.5f, .seed = 5}};
    check_large_tail(70001, 1, dropped); /* more samples than a grid has rows */
    check_large_tail(5, 257, plain);     /* enough channels to fill a row of blocks, */
    check_large_tail(5, 2056, accumulating);
    check_large_tail(5, 70000, flattened); /* or to leave room for a few rows of sums only */
}

/* ---- weights */

static void check_weight(int k, int c, int kernel, enum dt_gpu_type type, bool accumulate)
{
    snprintf(case_text, sizeof case_text, "weight %dx%dx%dx%d, type %d, accumulate %d", k, c,
             kernel, kernel, type, accumulate);
    const size_t n_c = (size_t)c, n_taps = (size_t)(kernel * kernel), n = (size_t)k * n_c * n_taps;
    float *canonical = random_floats(n, 16), *packed = floats(n), *expected = floats(n),
          *before = random_floats(n, 16);
    for (size_t i = 0; i < n; i++) {
        const size_t tap = i % n_taps, channel = i / n_taps % n_c, filter = i / n_taps / n_c;
        expected[(filter * n_taps + tap) * n_c + channel] = canonical[i];
    }
    struct device from = numbers_open(canonical, n, DT_GPU_F32, 0),
                  to = numbers_open(NULL, n, type, 0);
    OK(dt_gpu_pack_weight(stream, k, c, kernel, from.data, type, to.data));
    device_close(&from, NULL);
    numbers_close(&to, type, n, packed);
    near("packed", packed, expected, n, 0);

    from = numbers_open(expected, n, type, 0);
    to = numbers_open(before, n, DT_GPU_F32, 0);
    OK(dt_gpu_unpack_gradient(stream, k, c, kernel, type, from.data, accumulate, to.data));
    device_close(&from, NULL);
    numbers_close(&to, DT_GPU_F32, n, packed);
    for (size_t i = 0; i < n; i++) {
        canonical[i] += accumulate ? before[i] : 0;
    }
    near("dw", packed, canonical, n, 0);
    temporaries_end();
}

static void test_weights(void)
{
    static const int shapes[][3] = {{1, 1, 1},    {3, 5, 3}, {8, 16, 1},
                                    {10, 130, 1}, {4, 3, 5}, {7, 1, 2}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            check_weight(shapes[i][0], shapes[i][1], shapes[i][2], DT_GPU_F32, accumulate);
            check_weight(shapes[i][0], shapes[i][1], shapes[i][2], DT_GPU_BF16, accumulate);
        }
    }
}

int main(void)
{
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    test_gather();
    test_tail();
    test_large_tails();
    test_weights();
    OK(cudaStreamDestroy(stream));
    return 0;
}
