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
        char name[sizeof golden->verdict];
        golden->differs = true;
        vsnprintf(name, sizeof name, what, values);
        snprintf(golden->verdict, sizeof golden->verdict, "%.120s: %s", name, wrong);
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

void dt_golden_fact(struct dt_golden *golden, bool holds, const char *what, ...)
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
        dt_doc_verdict(doc, DT_VERDICT_FAIL, "FAIL: %s", golden->verdict);
    } else {
        dt_doc_verdict(doc, DT_VERDICT_PASS, "PASS: all %d reference values reproduced", golden->n);
    }
    const enum dt_status shown = dt_result_show(args, doc);
    dt_doc_close(doc);
    return dt_golden_status(golden, shown);
}

void dt_golden_end(struct dt_golden *golden)
{
    if (!golden->differs) {
        snprintf(golden->verdict, sizeof golden->verdict,
                 "PASS: all %d reference values reproduced", golden->n);
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

/* A page's body and the verdict below it. */
struct told {
    const struct dt_golden *golden;
    dt_page_fn body;
    const void *context;
};

/* A dt_page_fn. */
static void put_told(FILE *out, const void *context)
{
    const struct told *told = context;
    told->body(out, told->context);
    fprintf(out, "<p class=\"verdict\">%s</p>\n", told->golden->verdict);
}

enum dt_status dt_golden_tell(struct dt_golden *golden, const struct dt_args *args,
                              const char *title, dt_page_fn body, const void *context)
{
    const struct told told = {golden, body, context};
    const struct dt_page page = {.title = title, .body = put_told, .context = &told};
    dt_golden_end(golden);
    puts(golden->verdict);
    return dt_golden_status(golden, dt_page_write(dt_args_text(args, DT_OPTION_HTML), &page));
}
