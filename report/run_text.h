/* A run in a screen of text. */
#ifndef DT_REPORT_RUN_TEXT_H
#define DT_REPORT_RUN_TEXT_H

#include "cli/sinks/record.h"

/* On stdout: what there is to say first, and the epochs, thinned to a dozen. */
void dt_run_text_print(const struct dt_record *record);

#endif
