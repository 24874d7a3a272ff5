/* Codecs of gradients and error feedback around them: exact where they must be, as many bytes as
 * the formula says and none beyond, the same bits twice, and nothing that is not finite gets lost.
 */
#include "tests/lib/guarded.h"

#include "dist/compression/error_feedback.h"
#include "tests/lib/codec_of.h"

static const struct dt_compression_spec specs[] = {
    {.type = DT_COMPRESSION_NONE},
    {.type = DT_COMPRESSION_FP16},
    {.type = DT_COMPRESSION_BF16},
    {.type = DT_COMPRESSION_INT8},
    {.type = DT_COMPRESSION_INT8, .rounding = DT_ROUNDING_STOCHASTIC},
    {.type = DT_COMPRESSION_ONEBIT},
    {.type = DT_COMPRESSION_TOPK, .ratio = 0.01},
    {.type = DT_COMPRESSION_TOPK, .ratio = 0.3},
    {.type = DT_COMPRESSION_TOPK, .ratio = 1},
};
static const struct dt_codec_layout layout = {2, {{4, 100, 7}, {710, 20, 60}}};
enum { N_SPECS = sizeof specs / sizeof specs[0], MAX_N = 2000 };
static const size_t sizes[] = {1, 2, 3, 7, 8, 9, 255, 256, 257, 511, 512, 513, 1000, MAX_N};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

static bool same_bits(const void *a, const void *b, size_t n)
{
    return memcmp(a, b, n * sizeof(float)) == 0;
}

/* Encoded and decoded, between guard words. */
static struct buffer sent_of(const struct dt_codec *codec, uint64_t draw_number,
                             const struct buffer *in)
{
    const size_t n_bytes = dt_codec_bytes(codec, 0, in->n);
    struct buffer bytes = buffer_open((n_bytes + 3) / 4), again = buffer_open(bytes.n),
                  out = buffer_open(in->n);
    uint8_t *end = (uint8_t *)bytes.data + n_bytes;
    memset(end, 0x5A, bytes.n * 4 - n_bytes);
    dt_codec_encode(codec, draw_number, in->data, 0, in->n, bytes.data);
    dt_codec_encode(codec, draw_number, in->data, 0, in->n, again.data);
    CHECK(memcmp(bytes.data, again.data, n_bytes) == 0);
    for (; end < (uint8_t *)bytes.data + bytes.n * 4; end++) {
        CHECK_INT(*end, 0x5A);
    }
    dt_codec_decode(codec, bytes.data, 0, in->n, out.data);
    BUFFERS_CLOSE(&bytes, &again);
    for (size_t i = 0; i < GUARD; i++) {
        CHECK(dt_float_bits(out.memory[i]) == GUARD_WORD &&
              dt_float_bits(out.data[out.n + i]) == GUARD_WORD);
    }
    return out;
}

static void test_bytes(void)
{
    static const struct {
        int spec;
        size_t n, n_bytes;
    } golden[] = {{0, 1199882, 4799528},
                  {1, 1199882, 2399764},
                  {2, 3, 6},
                  {3, 1199882, 1199882 + 3 * 4688},
                  {3, 257, 263},
                  {3, 1, 4},
                  {5, 513, 16 + 64 + 4 * 4},
                  {5, 2000, 16 + 88 + 4 * 4 + 24 + 150 + 4 * 9 + 360},
                  {5, 1, 4},
                  {6, 1199882, 8 * 11999},
                  {6, 3, 8},
                  {7, 1000, 2400},
                  {8, 1000, 4000}};
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        const struct dt_codec codec = codec_of(&specs[golden[i].spec], &layout);
        CHECK_INT(dt_codec_bytes(&codec, 0, golden[i].n), golden[i].n_bytes);
    }
    for (int s = 0; s < N_SPECS; s++) {
        const struct dt_codec codec = codec_of(&specs[s], &layout);
        CHECK_INT(dt_codec_bytes(&codec, 0, 0), 0);
        for (size_t n = 1; n <= MAX_N; n++) {
            CHECK(dt_codec_bytes(&codec, 0, n) <= 4 * n);
        }
    }
}

/* Against the compiler's own half precision, where it has one: every half, and floats around every
 * half and between two. */
static void test_fp16(void)
{
#ifdef __FLT16_MAX__
    const struct dt_codec codec = codec_of(&specs[1], NULL);
    for (uint32_t bits = 0; bits < 1u << 16; bits++) {
        const uint16_t half = (uint16_t)bits;
        _Float16 expected;
        float both[2], back; /* two, so that encoding makes them less */
        const uint16_t halves[2] = {half, half};
        memcpy(&expected, &half, sizeof half);
        dt_codec_decode(&codec, halves, 0, 2, both);
        back = both[0];
        CHECK(isnan((float)expected) ? isnan(back)
                                     : dt_float_bits(back) == dt_float_bits((float)expected));
        for (int32_t off = -3; off <= 3; off++) {
            const uint32_t middle = off % 2 == 0 ? 0 : 0x1000;
            const float x = dt_float_of_bits(dt_float_bits(back) + middle + (uint32_t)(off / 2)),
                        pair[2] = {x, x};
            const _Float16 wanted = (_Float16)x;
            uint16_t got[2], want;
            dt_codec_encode(&codec, 0, pair, 0, 2, got);
            memcpy(&want, &wanted, sizeof want);
            CHECK(isnan(x) ? (got[0] & 0x7FFF) > 0x7C00 : got[0] == want);
        }
    }
#else
    printf("without fp16: the compiler has none\n");
#endif
}

static void test_bf16(void)
{
    CHECK_INT(dt_bf16_of(1.0f), 0x3F80);
    CHECK_INT(dt_bf16_of(dt_float_of_bits(0x3F808000)), 0x3F80); /* ties to even */
    CHECK_INT(dt_bf16_of(dt_float_of_bits(0x3F818000)), 0x3F82);
    CHECK_INT(dt_bf16_of(dt_float_of_bits(0x3F808001)), 0x3F81);
    CHECK_INT(dt_bf16_of(dt_float_of_bits(0xFF7FFFFF)), 0xFF80); /* beyond the largest */
    CHECK_INT(dt_bf16_of(dt_float_of_bits(0x7F800001)), 0x7FC0); /* a NaN stays one */
    CHECK_INT(dt_bf16_of(-INFINITY), 0xFF80);
    CHECK_INT(dt_bf16_of(-0.0f), 0x8000);
}

/* A summable codec encodes number by number, and the second time without loss. */
static void test_summable(const struct dt_codec *codec, const struct buffer *in,
                          const struct buffer *sent)
{
    uint8_t all[4 * MAX_N], part[4 * MAX_N];
    const size_t half = in->n / 2, width = dt_codec_bytes(codec, 0, in->n) / in->n;
    dt_codec_encode(codec, 0, in->data, 0, in->n, all);
    dt_codec_encode(codec, 0, in->data + half, 0, in->n - half, part);
    CHECK_INT(dt_codec_bytes(codec, 0, in->n - half), width * (in->n - half));
    CHECK(memcmp(all + width * half, part, width * (in->n - half)) == 0);
    struct buffer again = sent_of(codec, 0, sent);
    CHECK(same_bits(again.data, sent->data, in->n));
    buffer_close(&again, "sent again");
}

/* As far from what came in as the codec may be, in units of the largest number. */
static void test_errors(int s, size_t n)
{
    static const double most[N_SPECS] = {0, 0x1p-11, 0x1p-8, 0.51 * 2 / 254, 1.02 * 2 / 254, 1.5,
                                         1, 1,       0};
    const struct dt_codec codec = codec_of(&specs[s], &layout);
    struct buffer in = buffer_random(n, 80, 1), sent = sent_of(&codec, 7, &in);
    for (size_t i = 0; i < n; i++) {
        CHECK_NEAR(sent.data[i], in.data[i], 10 * most[s]);
        CHECK(in.data[i] != 0 || sent.data[i] == 0 || specs[s].type == DT_COMPRESSION_ONEBIT);
    }
    if (codec.ops->summable) {
        test_summable(&codec, &in, &sent);
    }
    BUFFERS_CLOSE(&sent, &in);
}

static void test_not_finite(int s, size_t n, float bad)
{
    const struct dt_codec codec = codec_of(&specs[s], &layout);
    for (size_t at = 0; at < n; at += 1 + n / 5) {
        struct buffer in = buffer_random(n, 80, 1);
        in.data[at] = bad;
        struct buffer sent = sent_of(&codec, 1, &in);
        CHECK(!isfinite(sent.data[at]));
        BUFFERS_CLOSE(&sent, &in);
    }
}

/* Over 20 steps, what was sent and what is left are what came in, exactly: of numbers so alike, a
 * float holds all that is left. */
static void test_feedback(int s, size_t n)
{
    enum { N_BEFORE = 3 };
    struct dt_compression_spec spec = specs[s];
    struct dt_error_feedback feedback;
    struct buffer bytes = buffer_open(n);
    double in[MAX_N] = {0}, sent[MAX_N] = {0};
    spec.error_feedback = true;
    const struct dt_codec codec = codec_of(&spec, &layout);
    CHECK_OK(dt_error_feedback_open(&codec, 1, N_BEFORE + n, &feedback));
    for (int step = 0; step < 20; step++) {
        struct buffer values = buffer_random(n, 80 + step, 0);
        for (size_t i = 0; i < n; i++) {
            values.data[i] += values.data[i] < 0 ? -4 : 4;
            in[i] += (double)values.data[i];
        }
        dt_error_feedback_encode(&feedback, dt_error_feedback_draw(&feedback), N_BEFORE,
                                 N_BEFORE + n, values.data, bytes.data);
        for (size_t i = 0; i < n; i++) {
            sent[i] += (double)values.data[i];
        }
        buffer_close(&values, "values");
    }
    for (size_t i = 0; i < n && spec.type != DT_COMPRESSION_NONE; i++) {
        CHECK_MESSAGE(sent[i] + (double)feedback.left[N_BEFORE + i] == in[i],
                      "%s, %zu numbers: sent %.17g and left %.17g are not %.17g",
                      dt_compression_names[spec.type], n, sent[i],
                      (double)feedback.left[N_BEFORE + i], in[i]);
    }
    dt_error_feedback_close(&feedback);
    buffer_close(&bytes, "bytes");
}

/* Off: the codec alone, whatever came before. */
static void test_no_feedback(int s)
{
    struct dt_error_feedback feedback;
    const struct dt_codec codec = codec_of(&specs[s], &layout);
    uint8_t bytes[4 * 64];
    CHECK_OK(dt_error_feedback_open(&codec, 0, 64, &feedback));
    CHECK(feedback.left == NULL);
    for (int step = 0; step < 3; step++) {
        struct buffer values = buffer_random(64, 80, 1),
                      expected = sent_of(&feedback.codec, feedback.draw, &values);
        dt_error_feedback_encode(&feedback, dt_error_feedback_draw(&feedback), 0, 64, values.data,
                                 bytes);
        CHECK(same_bits(values.data, expected.data, 64));
        BUFFERS_CLOSE(&values, &expected);
    }
    dt_error_feedback_close(&feedback);
}

static void test_topk(void)
{
    enum { N = 10 };
    const struct dt_compression_spec four = {.type = DT_COMPRESSION_TOPK, .ratio = 0.4};
    const struct dt_codec codec = codec_of(&four, NULL), all = codec_of(&specs[8], NULL);
    const float in[N] = {1, -3, 2, 2, -2, 0.5f, NAN, 2, -0.0f, 0},
                expected[N] = {0, -3, 2, 2, 0, 0, NAN, 0, 0, 0};
    float out[N];
    uint8_t bytes[4 * N];
    CHECK_INT(dt_codec_bytes(&codec, 0, N), 32);
    dt_codec_encode(&codec, 0, in, 0, N, bytes);
    dt_codec_decode(&codec, bytes, 0, N, out);
    for (int i = 0; i < N; i++) {
        CHECK(isnan(expected[i]) ? isnan(out[i]) : out[i] == expected[i]);
    }
    dt_codec_encode(&all, 0, in, 0, N, bytes);
    dt_codec_decode(&all, bytes, 0, N, out);
    CHECK(same_bits(out, in, N)); /* -0 and NaN, too */
}

/* The sent numbers are right on average; the draws are a function of their index. */
static void test_stochastic(void)
{
    enum { N = 64, N_DRAWS = 4000 };
    const struct dt_codec codec = codec_of(&specs[4], NULL);
    struct buffer in = buffer_random(N, 80, 1);
    double mean[N] = {0};
    int n_unlike = 0;
    for (int d = 0; d < N_DRAWS; d++) {
        struct buffer sent = sent_of(&codec, (uint64_t)d, &in);
        for (int i = 0; i < N; i++) {
            mean[i] += (double)sent.data[i] / N_DRAWS;
            n_unlike += d == 1 && (double)sent.data[i] != mean[i] * N_DRAWS / 2;
        }
        buffer_close(&sent, "sent");
    }
    CHECK(n_unlike > 0);
    for (int i = 0; i < N; i++) {
        CHECK_NEAR(mean[i], in.data[i], 0.0025); /* 5 sigma of a step of 0.08 */
    }
    buffer_close(&in, "in");
}

/* A column's means are its own; of 40 rows 4 columns share theirs. What is no matrix is sent as it
 * is, and a range may begin and end within one. */
static void test_onebit(void)
{
    enum { WIDE = 128 * 3, FLAT = 40 * 8, N = 5 + WIDE + FLAT + 5, CUT = 7 };
    const struct dt_codec_layout two = {2, {{5, 128, 3}, {5 + WIDE, 40, 8}}};
    const struct dt_codec codec = codec_of(&specs[5], &two);
    float in[N], out[N], part[N];
    uint8_t bytes[4 * N];
    for (int i = 0; i < N; i++) {
        const bool is_wide = i >= 5 && i < 5 + WIDE,
                   is_flat = !is_wide && i >= 5 && i < 5 + WIDE + FLAT;
        const float size = is_wide   ? (float)(1 << (i - 5) % 3)
                           : is_flat ? (float)(1 << (i - 5 - WIDE) % 8 / 4)
                                     : (float)i / 3;
        in[i] = i / 3 % 2 == 0 ? size : -2 * size;
    }
    dt_codec_encode(&codec, 0, in, 0, N, bytes);
    dt_codec_decode(&codec, bytes, 0, N, out);
    CHECK(same_bits(in, out, N));
    in[5 + 3] += 64; /* the mean of 64 */
    dt_codec_encode(&codec, 0, in, 0, N, bytes);
    dt_codec_decode(&codec, bytes, 0, N, out);
    for (int i = 5; i < 5 + WIDE; i++) {
        const bool shares = (i - 5) % 3 == 0 && (in[i] < 0) == (in[5 + 3] < 0);
        CHECK(i == 5 + 3 || (out[i] != in[i]) == shares);
    }
    dt_codec_encode(&codec, 0, in + CUT, CUT, N - 2 * CUT, bytes);
    dt_codec_decode(&codec, bytes, CUT, N - 2 * CUT, part);
    CHECK(same_bits(part, out + CUT, N - 2 * CUT));
}

int main(void)
{
    test_bytes();
    test_fp16();
    test_bf16();
    for (int s = 0; s < N_SPECS; s++) {
        for (int k = 0; k < N_SIZES; k++) {
            test_errors(s, sizes[k]);
            test_not_finite(s, sizes[k], NAN);
            test_not_finite(s, sizes[k], INFINITY);
            test_not_finite(s, sizes[k], -INFINITY);
            test_feedback(s, sizes[k]);
        }
        test_no_feedback(s);
    }
    test_topk();
    test_stochastic();
    test_onebit();
    return 0;
}
