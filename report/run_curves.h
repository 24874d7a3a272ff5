/* The curves of a run's page, or of several runs, each in a colour of its own. */
#ifndef DT_REPORT_RUN_CURVES_H
#define DT_REPORT_RUN_CURVES_H

#include <stdio.h>

#include "cli/sinks/record.h"

/* Cards; `names` are those of the runs, where there are several. At most DT_CURVE_MAX_SERIES runs.
 */
void dt_run_curves_draw(FILE *out, const struct dt_record *records, const char *const *names,
                        int n);

#endif
