/* What the ranks did when, in the steps of a run's trace.json (cli/sinks/timeline.c): lanes, and
 * what they say. */
#ifndef DT_REPORT_RUN_TIMELINE_H
#define DT_REPORT_RUN_TIMELINE_H

#include <stdio.h>

#include "report/trace.h"

/* Nothing without spans. */
void dt_run_timeline_draw(FILE *out, const struct dt_trace_record *trace);

#endif
