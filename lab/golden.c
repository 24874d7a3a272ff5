#include "lab/golden.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "cli/output.h"
#include "cli/result.h"

/* Writes the name of the first number that differs, and how it differs. */
static void check(struct dt_golden *golden, bool holds, const char *wrong, const char *what,
                  va_list values)
{
    golden->n++;
    if (!golden->differs && !holds) {
        char name[sizeof golden->difference];
        golden->differs = true;
        vsnprintf(name, sizeof name, what, values);
        snprintf(golden->difference, sizeof golden->difference, "%.120s: %s", name, wrong);
    }
}

void dt_golden_number(struct dt_golden *golden, double actual, double expected, double tolerance,
                      const char *what, ...)
{
    char wrong[64];
    va_list values;
    va_start(values, what);
    snprintf(wrong, sizeof wrong, "got %.9g, expected %.9g", actual, expected);
    check(golden, fabs(actual - expected) <= tolerance, wrong, what, values);
    va_end(values);
}

void dt_golden_figure(struct dt_golden *golden, bool holds, const char *what, ...)
{
    va_list values;
    va_start(values, what);
    check(golden, holds, "does not hold", what, values);
    va_end(values);
}

enum dt_status dt_golden_show(const struct dt_golden *golden, const struct dt_args *args,
                              struct dt_doc *doc)
{
    if (golden->differs) {
        dt_doc_verdict(doc, DT_VERDICT_FAIL, "FAIL: %s", golden->difference);
    } else {
        dt_doc_verdict(doc, DT_VERDICT_PASS, "PASS: all %d reference values reproduced", golden->n);
    }
    const enum dt_status shown = dt_result_show(args, doc);
    dt_doc_close(doc);
    return dt_golden_status(golden, shown);
}

enum dt_status dt_golden_status(const struct dt_golden *golden, enum dt_status shown)
{
    if (!golden->differs) {
        return shown;
    }
    dt_output_failed(shown);
    return dt_error(DT_FAILED, "%s", golden->difference);
}
