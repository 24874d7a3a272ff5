/* Reference values: results of a lesson that are known from elsewhere (a textbook's example, a
 * formula). A lesson checks them at its end. */
#ifndef DT_LAB_GOLDEN_H
#define DT_LAB_GOLDEN_H

#include "cli/args.h"
#include "report/page/page.h"
#include "view/document.h"

struct dt_golden {
    int n; /* number of checks so far */
    bool differs;
    char verdict[200]; /* the first difference; without one, after dt_golden_end, the checks' number
                        */
};

/* Checks that |actual - expected| <= tolerance; NaN never passes. `what`, a format, names the
 * number for people: "the loss of rank %d". */
void dt_golden_number(struct dt_golden *golden, double actual, double expected, double tolerance,
                      const char *what, ...) __attribute__((format(printf, 5, 6)));
void dt_golden_fact(struct dt_golden *golden, bool holds, const char *what,
                    ...) /* "both ranks have the same weights" */
    __attribute__((format(printf, 3, 4)));

/* Ends a lesson: sets the document's verdict, shows the document in all forms that `args` asks for,
 * and closes it. DT_FAILED, whose error text is the first difference; else what dt_result_show
 * returns. One rank calls it. */
enum dt_status dt_golden_show(const struct dt_golden *golden, const struct dt_args *args,
                              struct dt_doc *doc);

/* ---- lessons that are no document yet */

/* Writes `verdict`: "PASS: ...", or the difference. */
void dt_golden_end(struct dt_golden *golden);
/* DT_FAILED with the verdict as the error's text; else `written`, the status of writing the
 * page. */
enum dt_status dt_golden_status(const struct dt_golden *golden, enum dt_status written);
/* Ends a lesson after its checks and its text: prints the verdict, and writes a page of this title
 * and body, with the verdict below, to the --html FILE of `args`, if there is one. DT_FAILED as
 * above. */
enum dt_status dt_golden_tell(struct dt_golden *golden, const struct dt_args *args,
                              const char *title, dt_page_fn body, const void *context);

#endif
