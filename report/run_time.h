/* Where the time of a run's steps went, rank by rank, and what they sent. */
#ifndef DT_REPORT_RUN_TIME_H
#define DT_REPORT_RUN_TIME_H

#include <stdio.h>

#include "cli/sinks/record.h"

/* Nothing where the files do not say. */
void dt_run_time_draw(FILE *out, const struct dt_record *record);

#endif
