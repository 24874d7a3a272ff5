/* A run in a screen of text. */
#ifndef DT_CLI_REPORT_RUN_TEXT_H
#define DT_CLI_REPORT_RUN_TEXT_H

#include "cli/report/record.h"

/* On stdout: what there is to say first, and the epochs, thinned to a dozen. */
void dt_run_text_print(const struct dt_record *record);

#endif
