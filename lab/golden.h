/* Reference values: results of a lesson that are known from elsewhere (a textbook's example, a
 * formula). A lesson checks them at its end. */
#ifndef DT_LAB_GOLDEN_H
#define DT_LAB_GOLDEN_H

#include "cli/args.h"
#include "view/document.h"

struct dt_golden {
    int n; /* number of checks so far */
    bool differs;
    char difference[200]; /* the first */
};

/* Checks that |actual - expected| <= tolerance; NaN never passes. `what`, a format, names the
 * number for people: "the loss of rank %d". */
void dt_golden_number(struct dt_golden *golden, double actual, double expected, double tolerance,
                      const char *what, ...) __attribute__((format(printf, 5, 6)));
void dt_golden_figure(struct dt_golden *golden, bool holds, const char *what,
                      ...) /* "both ranks have the same weights" */
    __attribute__((format(printf, 3, 4)));

/* Ends a lesson: sets the document's verdict, shows the document in all forms that `args` asks for,
 * and closes it. DT_FAILED, whose error text is the first difference; else what dt_result_show
 * returns. One rank calls it. */
enum dt_status dt_golden_show(const struct dt_golden *golden, const struct dt_args *args,
                              struct dt_doc *doc);

/* DT_FAILED with the first difference as the error's text; else `shown`. For ranks that show
 * nothing. */
enum dt_status dt_golden_status(const struct dt_golden *golden, enum dt_status shown);

#endif
