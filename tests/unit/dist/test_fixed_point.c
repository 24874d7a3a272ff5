/* Floats as integers, and integers as digits: exact up to the largest sum there may be, alike
 * whatever adds the digits and in whichever order; and nothing that no sum holds gets by. */
#include <stdbool.h>

#include "base/rng.h"
#include "dist/compression/fixed_point.h"
#include "tests/lib/check.h"

#define N 64
#define MOST_RANKS DT_FIXED_MOST_RANKS
#define UNITS_PER_ONE 0x1p40
#define LARGEST_LEAF ((INT64_C(1) << 51) - (INT64_C(1) << 27)) /* the largest float below 2^11 */

static int64_t parts[MOST_RANKS][N], total[N];
static float digits[MOST_RANKS][4 * N];

static uint64_t random_word(int rank, int i)
{
    const struct dt_rng4 r = dt_rng_words(11, DT_RNG_SYNTHETIC, 0, 0, (uint32_t)rank, (uint32_t)i);
    return (uint64_t)r.v[0] << 32 | r.v[1];
}

/* The sum of n_leaves leaves of a rank: the largest, the least, one whose lower digits are all the
 * largest or the least there are, or any. */
static int64_t part_of(int rank, int i, int n_leaves, int bits)
{
    const int64_t most = n_leaves * LARGEST_LEAF, half = INT64_C(1) << (bits - 1),
                  halves = half + (half << bits) + (bits == 14 ? half << 28 : 0);
    switch (i % 8) {
    case 0:
        return most;
    case 1:
        return -most;
    case 2:
        return n_leaves > 0 ? -halves : 0;
    case 3:
        return n_leaves > 0 ? halves - 1 - (1 << bits) : 0;
    case 4:
        return most == 0 ? 0 : (int64_t)(random_word(rank, i) % 2001) - 1000;
    default:
        return most == 0 ? 0
                         : (int64_t)(random_word(rank, i) % (2 * (uint64_t)most) - (uint64_t)most);
    }
}

/* Adds as a server, a ring or a tree may: from rank `first` on, one after the other, or by pairs.
 */
static void add_all(int n_ranks, int n_digits, int first, bool by_pairs, float *sums)
{
    static float vectors[MOST_RANKS][4 * N];
    for (int r = 0; r < n_ranks; r++) {
        memcpy(vectors[r], digits[(r + first) % n_ranks], sizeof vectors[r]);
    }
    for (int step = 1; step < n_ranks; step = by_pairs ? 2 * step : n_ranks) {
        for (int r = by_pairs ? 0 : 1; r < n_ranks; r += by_pairs ? 2 * step : 1) {
            const int to = by_pairs ? r : 0, from = by_pairs ? r + step : r;
            for (int i = 0; from < n_ranks && i < n_digits * N; i++) {
                vectors[to][i] += vectors[from][i];
                CHECK(fabsf(vectors[to][i]) <= 0x1p24F);
            }
        }
    }
    memcpy(sums, vectors[0], (size_t)n_digits * N * sizeof *sums);
}

static void test_ranks(int n_ranks)
{
    const int n_digits = dt_fixed_n_digits(n_ranks), n_leaves = DT_FIXED_MOST / n_ranks;
    float expected[N], sums[4 * N], got[N];
    memset(total, 0, sizeof total);
    for (int r = 0; r < n_ranks; r++) {
        const int n_mine = n_leaves + (r < DT_FIXED_MOST % n_ranks);
        for (int i = 0; i < N; i++) {
            parts[r][i] = part_of(r, i, n_mine, n_digits == 4 ? 14 : 20);
            total[i] += parts[r][i];
        }
        dt_fixed_split(n_digits, N, parts[r], digits[r]);
    }
    dt_fixed_split(1, N, total, expected);
    for (int way = 0; way < 4; way++) {
        add_all(n_ranks, n_digits, way * n_ranks / 3, way % 2 == 1, sums);
        CHECK_INT(dt_fixed_join(n_digits, N, sums, got), 0);
        CHECK(memcmp(got, expected, sizeof got) == 0);
    }
    CHECK(fabsf(got[0] - (float)((double)total[0] / UNITS_PER_ONE)) == 0);
    CHECK(n_ranks == 1 || memcmp(digits[0], digits[1], sizeof digits[0]) != 0);
}

static void test_rounding(void)
{
    static const struct {
        float x;
        int64_t units;
    } cases[] = {{0, 0},
                 {-0.0F, 0},
                 {1, INT64_C(1) << 40},
                 {0x1p-40F, 1},
                 {-0x1p-40F, -1},
                 {0x1p-41F, 0}, /* halfway, to even */
                 {0x1.8p-40F, 2},
                 {-0x1.8p-40F, -2},
                 {1e-45F, 0},
                 {0x1.FFFFFEp10F, LARGEST_LEAF},
                 {-0x1.FFFFFEp10F, -LARGEST_LEAF}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t sum = 5;
        CHECK_INT(dt_fixed_add(1, &cases[i].x, &sum), 0);
        CHECK_INT(sum, cases[i].units + 5);
    }
}

static void test_wrong(void)
{
    const float x[DT_FIXED_GROUP] = {1, 2048, -2048, INFINITY, -INFINITY, NAN, -NAN, 3e38F, 2047};
    float wrong[3 * DT_FIXED_GROUP] = {[DT_FIXED_GROUP + 3] = NAN}, out[DT_FIXED_GROUP];
    int64_t sums[DT_FIXED_GROUP] = {0};
    CHECK_INT(dt_fixed_add(DT_FIXED_GROUP, x, sums), 7);
    CHECK_INT(dt_fixed_join(3, DT_FIXED_GROUP, wrong, out), 1);
    CHECK(isnan(out[3]) && out[2] == 0);
}

int main(void)
{
    static const int sizes[] = {1, 2, 3, 5, 31, 32, 33, 1000, MOST_RANKS};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        test_ranks(sizes[i]);
    }
    test_rounding();
    test_wrong();
    return 0;
}
