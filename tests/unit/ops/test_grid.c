/* The combinations of a sweep: each once, the last key changing first, values parted as JSON has
 * them. */
#include <string.h>

#include "ops/sweep/grid.h"
#include "tests/lib/check.h"

static void test_combinations(void)
{
    static const char *const sets[] = {"a=1,2", "b.c=x", "d=[1,2],{\"e\":\"},]\\\",\"},\"f,g\""};
    static const char *const expected[6][3] = {{"a=1", "b.c=x", "d=[1,2]"},
                                               {"a=1", "b.c=x", "d={\"e\":\"},]\\\",\"}"},
                                               {"a=1", "b.c=x", "d=\"f,g\""},
                                               {"a=2", "b.c=x", "d=[1,2]"},
                                               {"a=2", "b.c=x", "d={\"e\":\"},]\\\",\"}"},
                                               {"a=2", "b.c=x", "d=\"f,g\""}};
    struct dt_sweep_grid grid;
    CHECK_OK(dt_grid_open(sets, 3, &grid));
    CHECK_INT(grid.n_runs, 6);
    for (int run = 0; run < 6; run++) {
        const char *found[3];
        dt_grid_sets(&grid, run, found);
        for (int i = 0; i < 3; i++) {
            CHECK_TEXT(found[i], expected[run][i]);
        }
    }
    dt_grid_close(&grid);
}

static void test_nothing(void)
{
    struct dt_sweep_grid grid;
    CHECK_OK(dt_grid_open(NULL, 0, &grid));
    CHECK_INT(grid.n_runs, 1);
    dt_grid_close(&grid);
}

static void refuse(const char *set, const char *text)
{
    struct dt_sweep_grid grid;
    CHECK_INT(dt_grid_open(&set, 1, &grid), DT_USAGE);
    CHECK(strstr(dt_error_text(), text) != NULL);
    dt_error_clear();
}

int main(void)
{
    test_combinations();
    test_nothing();
    refuse("a", "not of the form");
    refuse("=1", "not of the form");
    refuse("a=", "an empty value");
    refuse("a=1,", "an empty value");
    return 0;
}
