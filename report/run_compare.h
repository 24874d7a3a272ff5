/* Runs side by side: results, and where their configurations differ. */
#ifndef DT_REPORT_RUN_COMPARE_H
#define DT_REPORT_RUN_COMPARE_H

#include <stdio.h>

#include "cli/sinks/record.h"

/* "A night": the letter of run number i of n, and its folder without what all have in front. */
#define DT_RUN_NAME_SIZE 48
void dt_run_name(const struct dt_record *records, int n, int i, char out[DT_RUN_NAME_SIZE]);

void dt_run_compare_print(const struct dt_record *records, int n); /* on stdout */
void dt_run_compare_draw(FILE *out, const struct dt_record *records, int n);

#endif
