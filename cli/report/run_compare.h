/* Runs side by side: results, and where their configurations differ. */
#ifndef DT_CLI_REPORT_RUN_COMPARE_H
#define DT_CLI_REPORT_RUN_COMPARE_H

#include <stdio.h>

#include "cli/report/record.h"

void dt_run_compare_print(const struct dt_record *records, int n); /* on stdout */
void dt_run_compare_draw(FILE *out, const struct dt_record *records, int n);

#endif
