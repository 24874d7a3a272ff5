/* Which host falls behind the others. */
#include <math.h>

#include "ops/accept/accept.h"
#include "tests/lib/check.h"

#define N 8

/* Two ranks on each of four hosts. */
static struct dt_rank_probe ranks[N] = {{.host = "a"}, {.host = "a"}, {.host = "b"}, {.host = "b"},
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

/* Two hosts, of which one has a slow rank: nothing to compare with, with a baseline a verdict; and
 * the tolerance is a share of it. */
static void test_baseline(void)
{
    enum { LINK = DT_ACCEPT_FIGURE_LINK_LATENCY, MEMORY = DT_ACCEPT_FIGURE_MEMORY };
    const double values[4] = {57.1, 48.3, 50, 51}, none = (double)NAN;
    struct dt_world world = {.size = 4};
    struct dt_accept_cell cells[4] = {{.failed = false}};
    struct dt_acceptance a = {.world = &world,
                              .ranks = ranks,
                              .cells = cells,
                              .tolerance = 0.1,
                              .figures = {none, 2.2, none, none},
                              .baseline = {none, 2, none, none}};
    static const struct {
        double then, tolerance;
        enum dt_verdict verdict;
    } cases[] = {{(double)NAN, 0.1, DT_VERDICT_MEASURED},
                 {50, 0.1, DT_VERDICT_PASS},
                 {56.6, 0.1, DT_VERDICT_PASS},
                 {56.8, 0.1, DT_VERDICT_FAIL},
                 {56.8, 0.2, DT_VERDICT_PASS},
                 {51.1, 0, DT_VERDICT_FAIL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dt_finding row = {.text = ""};
        dt_accept_compare(&a, MEMORY, values, false, &row);
        CHECK_INT(row.verdict, DT_VERDICT_MEASURED);
        CHECK_TEXT(a.alone, "2 hosts");
        CHECK_TEXT(row.text, "48.3 to 57.1 GB/s a rank");
        CHECK_NEAR(a.figures[MEMORY], 51, 0);
        a.baseline[MEMORY] = cases[i].then;
        a.tolerance = cases[i].tolerance;
        dt_accept_baseline_apply(&a, DT_ACCEPT_memory, &row);
        CHECK_INT(row.verdict, cases[i].verdict);
    }
    struct dt_finding late = {.verdict = DT_VERDICT_MEASURED};
    a.tolerance = 0.05;
    dt_accept_baseline_apply(&a, DT_ACCEPT_links, &late);
    CHECK_INT(late.verdict, DT_VERDICT_FAIL);
    CHECK_NEAR(dt_accept_bound(&a, LINK), 2.1, 1e-9);
}

int main(void)
{
    test_alike();
    test_one_behind();
    test_just_enough();
    test_two_hosts();
    test_rank_behind();
    test_baseline();
    return 0;
}
