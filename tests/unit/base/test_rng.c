/* Random numbers: the generator's published answers, and what is built from it. */
#include "base/permutation.h"
#include "base/rng.h"
#include "tests/lib/check.h"

#include <stdint.h>

/* The known answers of Random123 1.14, file kat_vectors, "philox4x32 10". */
static void test_philox_known_answers(void)
{
    static const struct {
        struct dt_rng4 counter;
        uint32_t key0, key1;
        struct dt_rng4 answer;
    } cases[] = {
        {{{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         0xffffffff,
         0xffffffff,
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         0xa4093822,
         0x299f31d0,
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct dt_rng4 got = dt_philox4x32(cases[i].counter, cases[i].key0, cases[i].key1);
        for (int w = 0; w < 4; w++) {
            CHECK_INT(got.v[w], cases[i].answer.v[w]);
        }
    }
}

/* Every argument must reach the result: change one, and all four words change. */
static void test_words_depend_on_every_argument(void)
{
    const struct dt_rng4 base = dt_rng_words(1, DT_RNG_INIT, 1, 1, 1, 1);
    const struct dt_rng4 other[] = {
        dt_rng_words(2, DT_RNG_INIT, 1, 1, 1, 1),
        dt_rng_words(1 + ((uint64_t)1 << 32), DT_RNG_INIT, 1, 1, 1, 1),
        dt_rng_words(1, DT_RNG_DROPOUT, 1, 1, 1, 1),
        dt_rng_words(1, DT_RNG_INIT, 2, 1, 1, 1),
        dt_rng_words(1, DT_RNG_INIT, 1, 2, 1, 1),
        dt_rng_words(1, DT_RNG_INIT, 1, 1, 2, 1),
        dt_rng_words(1, DT_RNG_INIT, 1, 1, 1, 2),
    };
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++) {
        for (int w = 0; w < 4; w++) {
            CHECK(other[i].v[w] != base.v[w]);
        }
    }
}

static void test_uniform_range_and_moments(void)
{
    CHECK(dt_rng_uniform(0) == 0.0f);
    CHECK(dt_rng_uniform(UINT32_MAX) < 1.0f);
    const int n = 100000;
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        const double u =
            (double)dt_rng_uniform(dt_rng_words(7, DT_RNG_INIT, 0, 0, (uint32_t)i, 0).v[i % 4]);
        sum += u;
        squares += u * u;
    }
    CHECK_NEAR(sum / n, 0.5, 0.005);         /* five standard errors */
    CHECK_NEAR(squares / n, 1.0 / 3, 0.005); /* likewise */
}

/* Bytes, or half-words, that are the numbers of their units: the first so many are dropped. */
static void test_dropout_places(void)
{
    const struct dt_rng4 bytes = {{0x03020100, 0x07060504, 0x0b0a0908, 0x0f0e0d0c}};
    const struct dt_rng4 halves = {{0x00010000, 0x00030002, 0x00050004, 0x00070006}};
    CHECK_INT(dt_dropout_group_units(dt_dropout_threshold(0.25f)), 16);
    CHECK_INT(dt_dropout_group_units(dt_dropout_threshold(255.0f / 256)), 16);
    CHECK_INT(dt_dropout_group_units(dt_dropout_threshold(0.3f)), 8);
    for (uint32_t n = 1; n <= 15; n++) {
        for (uint32_t unit = 0; unit < 48; unit++) {
            CHECK_INT(dt_dropout_keeps(bytes, unit, 256 * n), unit % 16 >= n);
            CHECK_INT(dt_dropout_keeps(halves, unit, n), unit % 8 >= n);
        }
    }
    for (uint32_t unit = 0; unit < 48; unit++) {
        const struct dt_rng4 wide = dt_dropout_words(9, 8, 7, 6, unit, 256),
                             narrow = dt_dropout_words(9, 8, 7, 6, unit, 257);
        const struct dt_rng4 sixteen = dt_rng_words(9, DT_RNG_DROPOUT, 8, 7, 6, unit / 16);
        const struct dt_rng4 eight = dt_rng_words(9, DT_RNG_DROPOUT, 8, 7, 6, unit / 8);
        CHECK(memcmp(&wide, &sixteen, sizeof wide) == 0 &&
              memcmp(&narrow, &eight, sizeof narrow) == 0);
    }
}

/* The share that is dropped is the rate, in every place of a group, whether 8 bits or 16 decide;
 * and a mask is the same however it is asked for. */
static void test_dropout_rates(void)
{
    static const float rates[] = {0.0f, 0.1f, 0.25f, 0.3f, 0.5f, 0.9f, 255.0f / 256};
    for (size_t r = 0; r < sizeof rates / sizeof rates[0]; r++) {
        const uint32_t threshold = dt_dropout_threshold(rates[r]),
                       n_units = dt_dropout_group_units(threshold);
        int kept[16] = {0};
        const int n_groups = 20000;
        for (int g = 0; g < n_groups; g++) {
            const struct dt_rng4 words =
                dt_dropout_words(3, 5, 0, 17, (uint32_t)g * n_units, threshold);
            for (uint32_t u = 0; u < n_units; u++) {
                kept[u] += dt_dropout_keeps(words, u, threshold);
                CHECK_INT(dt_dropout_keeps(words, u, threshold),
                          dt_dropout_keeps(words, u + n_units * (uint32_t)g, threshold));
            }
        }
        for (uint32_t u = 0; u < n_units; u++) {
            const double sigma = sqrt((double)rates[r] * (1.0 - (double)rates[r]) / n_groups);
            CHECK_NEAR((double)kept[u] / n_groups, 1.0 - (double)rates[r], 5.0 * sigma);
        }
    }
}

static void check_bijection(uint64_t seed, uint32_t stream, uint32_t epoch, uint32_t n)
{
    uint8_t *seen = calloc(n, 1);
    CHECK(seen != NULL);
    const struct dt_permutation p = dt_permutation_make(seed, stream, epoch, n);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t x = dt_permutation_at(&p, i);
        CHECK(x < n);
        CHECK_INT(seen[x], 0);
        seen[x] = 1;
    }
    free(seen);
}

static void test_permutation_is_a_bijection(void)
{
    for (uint32_t n = 1; n <= 300; n++) {
        check_bijection(n, n % 5, n % 7, n);
    }
    static const uint32_t sizes[] = {1023,  1024,  1025,  4095,  4096,  4097,  10000,
                                     15000, 60000, 65535, 65536, 65537, 262145};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        check_bijection(1, 0, 3, sizes[i]);
    }
    const struct dt_permutation largest = dt_permutation_make(9, 0, 0, (uint32_t)1 << 31);
    CHECK(dt_permutation_at(&largest, ((uint32_t)1 << 31) - 1) < (uint32_t)1 << 31);
}

/* Over many epochs each index goes to each place about equally often: chi-square over n cells, n -
 * 1 degrees of freedom, whose standard deviation is sqrt(2 (n - 1)). The seeds are fixed, so this
 * cannot fail by chance. Small n once failed: see half_bits. */
static void test_permutation_is_even(void)
{
    static const uint32_t sizes[] = {2, 3, 10, 37, 65, 100, 256, 257, 1000};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const uint32_t n = sizes[s], n_each = 200;
        for (uint32_t index = 0; index < n; index += (n + 2) / 3) {
            double counts[1000] = {0}, chi_square = 0;
            for (uint32_t epoch = 0; epoch < n_each * n; epoch++) {
                const struct dt_permutation p = dt_permutation_make(42, 0, epoch, n);
                counts[dt_permutation_at(&p, index)]++;
            }
            for (uint32_t x = 0; x < n; x++) {
                const double difference = counts[x] - (double)n_each;
                chi_square += difference * difference / (double)n_each;
                CHECK_NEAR(counts[x] / (double)n_each, 1.0, 0.5);
            }
            CHECK(fabs(chi_square - (n - 1)) <= 5.0 * sqrt(2.0 * (n - 1)));
        }
    }
}

/* Neighbours must not stay neighbours, and epochs, streams and seeds must differ. */
static void test_permutation_mixes(void)
{
    const uint32_t n = 10000;
    const struct dt_permutation p = dt_permutation_make(1, 0, 0, n);
    const struct dt_permutation others[] = {dt_permutation_make(1, 0, 1, n),
                                            dt_permutation_make(1, 1, 0, n),
                                            dt_permutation_make(2, 0, 0, n)};
    int n_close = 0, n_same[3] = {0};
    for (uint32_t i = 0; i + 1 < n; i++) {
        const int64_t distance =
            (int64_t)dt_permutation_at(&p, i + 1) - (int64_t)dt_permutation_at(&p, i);
        n_close += distance >= -10 && distance <= 10;
        for (int k = 0; k < 3; k++) {
            n_same[k] += dt_permutation_at(&others[k], i) == dt_permutation_at(&p, i);
        }
    }
    CHECK(n_close < 40); /* 20 expected */
    for (int k = 0; k < 3; k++) {
        CHECK(n_same[k] < 10); /* 1 expected */
    }
}

/* Two samples side by side are expected to be so in 2 (n - 1) / n places of an epoch. Of a sum over
 * many epochs the standard deviation is about its root: this many epochs show four rounds at 5 to 9
 * of them. */
static void test_neighbours_part(void)
{
    static const struct {
        uint32_t n, n_epochs;
    } cases[] = {{256, 400}, {1000, 300}, {4096, 120}, {16384, 40}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const uint32_t n = cases[c].n, n_epochs = cases[c].n_epochs;
        const double expected = 2.0 * (n - 1) / n * n_epochs;
        int n_together = 0;
        for (uint32_t epoch = 0; epoch < n_epochs; epoch++) {
            const struct dt_permutation p = dt_permutation_make(1, 0, epoch, n);
            uint32_t before = dt_permutation_at(&p, 0);
            for (uint32_t i = 1; i < n; i++) {
                const uint32_t here = dt_permutation_at(&p, i);
                n_together += here == before + 1 || here + 1 == before;
                before = here;
            }
        }
        CHECK_NEAR(n_together, expected, 3 * sqrt(expected));
    }
}

int main(void)
{
    test_philox_known_answers();
    test_words_depend_on_every_argument();
    test_uniform_range_and_moments();
    test_dropout_places();
    test_dropout_rates();
    test_permutation_is_a_bijection();
    test_permutation_is_even();
    test_permutation_mixes();
    test_neighbours_part();
    return 0;
}
