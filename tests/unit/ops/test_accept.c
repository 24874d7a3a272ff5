/* Which host falls behind the others. */
#include <math.h>

#include "ops/accept/outcome.h"
#include "tests/lib/temporary.h"

#define N 8

/* Two ranks on each of four hosts. */
static struct dt_rank_facts ranks[N] = {{.host = "a"}, {.host = "a"}, {.host = "b"}, {.host = "b"},
                                        {.host = "c"}, {.host = "c"}, {.host = "d"}, {.host = "d"}};

static void test_alike(void)
{
    const double values[N] = {10, 9, 10, 11,
                              7,  7, 3,  9}; /* of host d one rank was in the way of the other */
    const struct dt_behind b = dt_accept_behind(values, ranks, N, false);
    CHECK(b.host == NULL);
    CHECK_INT(b.n_compared, 4);
    CHECK_NEAR(b.share, 0.7, 1e-9);
    CHECK_NEAR(b.median, 10, 0);
}

static void test_one_behind(void)
{
    const double values[N] = {10, 9, 10, 11, 6.1, 6, 10, 9};
    const struct dt_behind b = dt_accept_behind(values, ranks, N, false);
    CHECK_TEXT(b.host, "c");
    CHECK_NEAR(b.share, 0.61, 1e-9);
}

static void test_just_enough(void)
{
    const double values[N] = {10, 9, 10, 11, 6.3, 6, 10, 9};
    CHECK(dt_accept_behind(values, ranks, N, false).host == NULL);
}

/* Between two, either may be the odd one. */
static void test_two_hosts(void)
{
    const double values[4] = {10, 10, 1, 1};
    CHECK(dt_accept_behind(values, ranks, 4, false).host == NULL);
    CHECK(dt_accept_behind((double[]){10, 10, 1, 1, 10}, ranks, 5, false).host == ranks[2].host);
}

/* The slow one of two on a host. */
static void test_rank_behind(void)
{
    const double values[N] = {10, 9, 10, 11, 10, 6, 10, 9};
    const struct dt_behind b = dt_accept_behind(values, ranks, N, true);
    CHECK_TEXT(b.host, "c");
    CHECK_INT(b.rank, 5);
    CHECK_NEAR(b.share, 0.6, 1e-9);
}

/* Two hosts, of which one has a slow rank: compared with nothing that is a measurement, with a
 * baseline a verdict. */
static void test_measured(void)
{
    const double values[4] = {57.1, 48.3, 50, 51};
    struct dt_world world = {.size = 4};
    struct dt_accept_cell cells[4] = {{.failed = false}};
    struct dt_acceptance a = {.world = &world, .ranks = ranks, .cells = cells};
    struct dt_accept_row row = {.text = ""};
    static struct dt_accept_baseline baseline;
    dt_accept_compare(
        &a,
        &(struct dt_accept_measured){.values = values, .unit = "GB/s", .figure = "bandwidth_gbs"},
        &row);
    CHECK_INT(row.verdict, DT_ACCEPT_MEASURED);
    CHECK_TEXT(row.alone, "2 hosts");
    CHECK_TEXT(row.text, "48.3 to 57.1 GB/s a rank");
    baseline.values[0][0] = (double)NAN;
    dt_accept_baseline_apply(&baseline, 0, &row);
    CHECK_INT(row.verdict, DT_ACCEPT_MEASURED);
    baseline.values[0][0] = 50;
    dt_accept_baseline_apply(&baseline, 0, &row);
    CHECK_INT(row.verdict, DT_ACCEPT_PASS);
    baseline.values[0][0] = 100;
    dt_accept_baseline_apply(&baseline, 0, &row);
    CHECK_INT(row.verdict, DT_ACCEPT_FAIL);
}

static void test_sum(void)
{
    char text[96];
    struct dt_acceptance a = {.n_done = 11, .counts = {[DT_ACCEPT_PASS] = 11}};
    dt_accept_sum_text(&a, text, sizeof text);
    CHECK_TEXT(text, "11 of 11 passed");
    a = (struct dt_acceptance){.n_done = 11,
                               .counts = {[DT_ACCEPT_FAIL] = 1,
                                          [DT_ACCEPT_PASS] = 7,
                                          [DT_ACCEPT_MEASURED] = 2,
                                          [DT_ACCEPT_SKIPPED] = 1}};
    dt_accept_sum_text(&a, text, sizeof text);
    CHECK_TEXT(text, "7 of 11 passed, 1 failed, 2 measured, 1 skipped");
}

static void test_wrap(void)
{
    dt_accept_wrap(print_begin(), "one two three four fifteenletters six", 4, 14);
    CHECK_TEXT(print_end(), "one two\n    three four\n    fifteenletters\n    six\n");
}

int main(void)
{
    test_wrap();
    test_measured();
    test_sum();
    test_alike();
    test_one_behind();
    test_just_enough();
    test_two_hosts();
    test_rank_behind();
    return 0;
}
