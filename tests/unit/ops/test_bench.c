/* The arithmetic of `dtrain bench`: the check of sums finds every kind of wrong one, the fit finds
 * what made the times, options are understood or refused. */
#include "base/clock.h"
#include "ops/bench/bench.h"
#include "ops/measure.h"
#include "tests/lib/check.h"

#define N_ELEMS 10000
#define N_RANKS 4

static float parts[N_RANKS][N_ELEMS], sum[N_ELEMS];

static void add_up(int n_ranks, unsigned round)
{
    memset(sum, 0, sizeof sum);
    for (int rank = 0; rank < n_ranks; rank++) {
        dt_measure_fill(parts[rank], N_ELEMS, rank, round);
        for (size_t i = 0; i < N_ELEMS; i++) {
            sum[i] += parts[rank][i];
        }
    }
}

static void test_right_sums(void)
{
    for (int n_ranks = 1; n_ranks <= N_RANKS; n_ranks++) {
        for (unsigned round = 0; round < 3; round++) {
            add_up(n_ranks, round);
            CHECK_INT(dt_measure_count_wrong(sum, N_ELEMS, n_ranks, round), 0);
        }
    }
    CHECK_INT(dt_measure_count_wrong(sum, 0, N_RANKS, 0), 0);
}

static void test_wrong_sums(void)
{
    static const size_t places[] = {0, 1, 250, 251, 4096, N_ELEMS - 1};
    add_up(N_RANKS, 5);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) { /* one more each time */
        sum[places[i]] = i % 3 == 0 ? NAN : i % 3 == 1 ? sum[places[i]] + 1 : 0;
        CHECK_INT(dt_measure_count_wrong(sum, N_ELEMS, N_RANKS, 5), i + 1);
    }
    add_up(N_RANKS - 1, 5); /* a rank is missing */
    CHECK_INT(dt_measure_count_wrong(sum, N_ELEMS, N_RANKS, 5), N_ELEMS);
    add_up(N_RANKS, 5); /* the sum of the round before */
    CHECK(dt_measure_count_wrong(sum, N_ELEMS, N_RANKS, 6) == N_ELEMS);
    for (size_t shift = 1; shift <= 8192; shift *= 2) { /* pieces of another place */
        CHECK_INT(dt_measure_count_wrong(sum + shift, N_ELEMS - shift, N_RANKS, 5),
                  N_ELEMS - shift);
    }
    for (size_t i = 0; i < N_ELEMS; i++) { /* rank 1's part twice, rank 2's not at all */
        sum[i] = parts[0][i] + 2 * parts[1][i] + parts[3][i];
    }
    CHECK_INT(dt_measure_count_wrong(sum, N_ELEMS, N_RANKS, 5), N_ELEMS);
}

static void test_fit(void)
{
    double n_bytes[20], seconds[20];
    for (int n_ranks = 2; n_ranks <= 8; n_ranks *= 2) {
        for (int i = 0; i < 20; i++) {
            n_bytes[i] = 8.0 * (1 << i);
            seconds[i] = 3e-6 + dt_bench_bus_factor(n_ranks) * n_bytes[i] / 5e9;
        }
        const struct dt_bench_fit exact = dt_bench_fit(n_bytes, seconds, 20, n_ranks);
        CHECK(exact.found);
        CHECK_NEAR(exact.latency_s, 3e-6, 1e-12);
        CHECK_NEAR(exact.bandwidth, 5e9, 1);
        CHECK_NEAR(exact.worst, 0, 1e-9);
        seconds[10] *= 2; /* is noticed, and moves the rest little */
        const struct dt_bench_fit off = dt_bench_fit(n_bytes, seconds, 20, n_ranks);
        CHECK_NEAR(off.worst, 0.5, 0.1);
        CHECK_NEAR(off.latency_s, 3e-6, 0.5e-6);
        CHECK_NEAR(off.bandwidth, 5e9, 0.5e9);
    }
    CHECK(!dt_bench_fit(n_bytes, seconds, 20, 1).found);
    CHECK(!dt_bench_fit(n_bytes, seconds, 1, 2).found);
    CHECK(!dt_bench_fit(n_bytes, seconds, 0, 2).found);
    const double same[] = {8, 8, 8}, falling[] = {3e-6, 2e-6, 1e-6};
    CHECK(!dt_bench_fit(same, seconds, 3, 2).found);
    CHECK(!dt_bench_fit(n_bytes, falling, 3, 2).found);
    CHECK_NEAR(dt_bench_bus_factor(1), 0, 0);
    CHECK_NEAR(dt_bench_bus_factor(2), 1, 0);
    CHECK_NEAR(dt_bench_bus_factor(4), 1.5, 0);
}

static void test_median(void)
{
    double odd[] = {5, 1, 3}, even[] = {4, 1, 3, 2}, one[] = {7};
    CHECK_NEAR(dt_measure_median(odd, 3), 3, 0);
    CHECK_NEAR(dt_measure_median(even, 4), 2.5, 0);
    CHECK_NEAR(dt_measure_median(one, 1), 7, 0);
}

/* A field of struct dt_args. */
#define GIVEN(option, text) .values[DT_OPTION_##option] = {(const char *[]){text}, 1}

static void test_options(void)
{
    struct dt_bench_options o;
    struct dt_args args = {0};
    CHECK_OK(dt_bench_options_read(&args, &o));
    CHECK(o.min_bytes == 8 && o.max_bytes == 32 << 20 && o.factor == 2 && o.n_iters == 20 &&
          o.n_warmup == 5 && o.n_checks == 1);
    args = (struct dt_args){GIVEN(MIN_BYTES, "4k"), GIVEN(MAX_BYTES, "1G"), GIVEN(FACTOR, "1024"),
                            GIVEN(ITERS, "1"),      GIVEN(WARMUP, "0"),     GIVEN(CHECK, "0")};
    CHECK_OK(dt_bench_options_read(&args, &o));
    CHECK(o.min_bytes == 4096 && o.max_bytes == 1 << 30 && o.factor == 1024 && o.n_iters == 1 &&
          o.n_warmup == 0 && o.n_checks == 0);
    CHECK(!o.delayed);
    args = (struct dt_args){GIVEN(LATENCY, "12.5")};
    CHECK_OK(dt_bench_options_read(&args, &o));
    CHECK(o.delayed && o.delay.latency_s == 12.5e-6 && o.delay.bandwidth > 1e30);
    args = (struct dt_args){GIVEN(BANDWIDTH, "1.25")};
    CHECK_OK(dt_bench_options_read(&args, &o));
    CHECK(o.delayed && o.delay.latency_s == 0 && o.delay.bandwidth == 1.25e9 &&
          o.delay.clock_s == dt_clock_s);
    const struct {
        struct dt_args args;
        const char *text;
    } bad[] = {
        {{GIVEN(LATENCY, "-1")}, "--latency: expected a number 0..1e+06, got '-1'"},
        {{GIVEN(LATENCY, "1us")}, "--latency: expected a number 0..1e+06, got '1us'"},
        {{GIVEN(LATENCY, "nan")}, "--latency: expected a number"},
        {{GIVEN(BANDWIDTH, "0")}, "--bandwidth: expected a number 1e-06..1e+06, got '0'"},
        {{GIVEN(MIN_BYTES, "3")}, "--minbytes: expected bytes 4..1073741824, got '3'"},
        {{GIVEN(MIN_BYTES, "2G")}, "--minbytes: expected bytes"},
        {{GIVEN(MIN_BYTES, "18446744073709551617")}, "--minbytes: expected bytes"},
        {{GIVEN(MIN_BYTES, "17179869184G")}, "--minbytes: expected bytes"},
        {{GIVEN(MIN_BYTES, "1KB")}, "--minbytes: expected bytes"},
        {{GIVEN(MIN_BYTES, "1T")}, "--minbytes: expected bytes"},
        {{GIVEN(MIN_BYTES, "K")}, "--minbytes: expected bytes"},
        {{GIVEN(MIN_BYTES, " 8")}, "--minbytes: expected bytes"},
        {{GIVEN(MIN_BYTES, "+8")}, "--minbytes: expected bytes"},
        {{GIVEN(MAX_BYTES, "-8")}, "--maxbytes: expected bytes"},
        {{GIVEN(MIN_BYTES, "64"), GIVEN(MAX_BYTES, "32")}, "--minbytes 64 is above --maxbytes 32"},
        {{GIVEN(MIN_BYTES, "64M")}, "--minbytes 67108864 is above --maxbytes 33554432"},
        {{GIVEN(FACTOR, "1")}, "--stepfactor: expected a whole number 2..1024, got '1'"},
        {{GIVEN(FACTOR, "2K")}, "--stepfactor: expected a whole number"},
        {{GIVEN(FACTOR, "1.5")}, "--stepfactor: expected a whole number"},
        {{GIVEN(ITERS, "0")}, "--iters: expected a whole number 1..1000000, got '0'"},
        {{GIVEN(WARMUP, "many")}, "--warmup_iters: expected a whole number 0..1000000, got 'many'"},
        {{GIVEN(CHECK, "1001")}, "--check: expected a whole number 0..1000, got '1001'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_FAILS(dt_bench_options_read(&bad[i].args, &o), DT_USAGE, bad[i].text);
    }
}

int main(void)
{
    test_right_sums();
    test_wrong_sums();
    test_fit();
    test_median();
    test_options();
    return 0;
}
