/* What people read of a run (a row of cli/sinks/sinks.h): banner, roster, progress, epochs, where
 * the time went, the result. Log on stderr, result on stdout. */
#ifndef DT_CLI_SINKS_CONSOLE_H
#define DT_CLI_SINKS_CONSOLE_H

#include "model/backend.h"

/* The line that stdout ends with: "test accuracy 98.31 % (9831/10000) after 1 epoch". `after` may
 * be "". */
void dt_report_result(const struct dt_metrics *test, bool classifies, const char *after);

#endif
