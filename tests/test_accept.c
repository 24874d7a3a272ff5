/* Which host falls behind the others. */
#include "check.h"
#include "cli/commands/accept/show.h"

#define N 8

/* Two ranks on each of four hosts. */
static char hosts[N][DT_HOST_SIZE] = {"a", "a", "b", "b", "c", "c", "d", "d"};

static void test_alike(void)
{
    const double values[N] = {10, 9, 10, 11, 7, 7, 3, 9}; /* of host d one rank was in the way of the other */
    const struct dt_behind b = dt_accept_behind(values, hosts, N, false);
    CHECK(b.host == NULL);
    CHECK_NEAR(b.share, 0.7, 1e-9);
    CHECK_NEAR(b.median, 10, 0);
}

static void test_one_behind(void)
{
    const double values[N] = {10, 9, 10, 11, 6.1, 6, 10, 9};
    const struct dt_behind b = dt_accept_behind(values, hosts, N, false);
    CHECK_TEXT(b.host, "c");
    CHECK_NEAR(b.share, 0.61, 1e-9);
}

static void test_just_enough(void)
{
    const double values[N] = {10, 9, 10, 11, 6.3, 6, 10, 9};
    CHECK(dt_accept_behind(values, hosts, N, false).host == NULL);
}

/* Of two, either may be the odd one. */
static void test_two_hosts(void)
{
    const double values[4] = {10, 10, 1, 1};
    CHECK(dt_accept_behind(values, hosts, 4, false).host == NULL);
    CHECK(dt_accept_behind((double[]){10, 10, 1, 1, 10}, hosts, 5, false).host == hosts[2]);
}

/* The slow one of two on a host. */
static void test_rank_behind(void)
{
    const double values[N] = {10, 9, 10, 11, 10, 6, 10, 9};
    const struct dt_behind b = dt_accept_behind(values, hosts, N, true);
    CHECK_TEXT(b.host, "c");
    CHECK_INT(b.rank, 5);
    CHECK_NEAR(b.share, 0.6, 1e-9);
}

static void test_wrap(void)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    CHECK(out != NULL);
    dt_accept_wrap(out, "one two three four fifteenletters six", 4, 14);
    fclose(out);
    CHECK_TEXT(text, "one two\n    three four\n    fifteenletters\n    six\n");
    free(text);
}

int main(void)
{
    test_wrap();
    test_alike();
    test_one_behind();
    test_just_enough();
    test_two_hosts();
    test_rank_behind();
    return 0;
}
