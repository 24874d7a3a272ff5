/* A run as a page, or several side by side: what `dtrain report` writes, and every run at its end.
 * One file, which asks for nothing else; its sections are in run_curves.h and the like. */
#ifndef DT_REPORT_RUN_PAGE_H
#define DT_REPORT_RUN_PAGE_H

#include "cli/sinks/record.h"
#include "cli/sinks/sinks.h"
#include "report/run_learned.h"

#define DT_RUN_PAGE "report.html"
#define DT_REPORT_MAX_RUNS 8 /* beside each other */

/* As `path`, or, where that is NULL, as DT_RUN_PAGE in the folder `dir`. `learned`: of the only
 * run, or NULL: it does not say. Errors as of writing (report/page/page.h); DT_CANT_CREATE: that is
 * no regular file. */
enum dt_status dt_run_page_write(const char *path, const char *dir, const struct dt_record *records,
                                 int n, const struct dt_learned *learned);

/* A sink (cli/sinks/sinks.h): writes the page of a run at its end. */
enum dt_status dt_run_page_take(struct dt_sinks *sinks, const struct dt_event *event);

#endif
