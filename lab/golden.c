#include "lab/golden.h"

#include <math.h>
#include <stdio.h>

#include "cli/output.h"

void dt_golden_number(struct dt_golden *golden, const char *what, double actual, double expected,
                      double tolerance)
{
    golden->n++;
    if (!golden->differs && !(fabs(actual - expected) <= tolerance)) {
        golden->differs = true;
        snprintf(golden->verdict, sizeof golden->verdict, "%s: got %.9g, expected %.9g", what,
                 actual, expected);
    }
}

void dt_golden_fact(struct dt_golden *golden, const char *what, bool holds)
{
    golden->n++;
    if (!golden->differs && !holds) {
        golden->differs = true;
        snprintf(golden->verdict, sizeof golden->verdict, "%s: does not hold", what);
    }
}

void dt_golden_end(struct dt_golden *golden)
{
    if (!golden->differs) {
        snprintf(golden->verdict, sizeof golden->verdict, "PASS: all %d golden numbers came out",
                 golden->n);
    }
}

enum dt_status dt_golden_status(const struct dt_golden *golden, enum dt_status written)
{
    if (!golden->differs) {
        return written;
    }
    dt_output_failed(written);
    return dt_error(DT_FAILED, "%s", golden->verdict);
}

enum dt_status dt_golden_page(const struct dt_golden *golden, const struct dt_args *args,
                              const struct dt_page *page)
{
    return dt_golden_status(golden, dt_page_write(dt_args_text(args, DT_OPTION_HTML), page));
}
