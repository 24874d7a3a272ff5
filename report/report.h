/* `dtrain report`: a run, or several, on the terminal and as a page; `dtrain compare`: several on
 * the terminal. */
#ifndef DT_REPORT_REPORT_H
#define DT_REPORT_REPORT_H

#include "cli/args.h"

/* From the runs' folders alone, whatever state they are in (cli/sinks/record.h). */
enum dt_status dt_report(const struct dt_args *args);

#endif
