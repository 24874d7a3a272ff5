/* A run as one screen of a terminal shows it, while it is under way. */
#ifndef DT_REPORT_RUN_SCREEN_H
#define DT_REPORT_RUN_SCREEN_H

#include <stdio.h>

#include "cli/sinks/record.h"
#include "cli/terminal.h"

/* At most `height` lines of less than `width` columns, without any codes for a terminal; of many
 * ranks the first. */
void dt_run_screen_draw(FILE *out, const struct dt_record *record, struct dt_screen screen);

#endif
