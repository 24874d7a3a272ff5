/* Counts as columns, as SVG in the classes of page.h. */
#ifndef DT_REPORT_PAGE_HISTOGRAM_H
#define DT_REPORT_PAGE_HISTOGRAM_H

#include <stdint.h>
#include <stdio.h>

/* A column for each of 0 to n - 1. label: for who cannot see it. */
void dt_histogram_draw(FILE *out, const char *label, int n, const uint64_t *counts);

#endif
