/* A heat map of a number for each two of n, as SVG in the classes of page.h. */
#ifndef DT_REPORT_PAGE_HEAT_MAP_H
#define DT_REPORT_PAGE_HEAT_MAP_H

#include <stdbool.h>
#include <stdio.h>

struct dt_heat_map {
    const char *title, *unit; /* plain texts of ours */
    int n;
    const double
        *values; /* n * n; the same of (i, k) and (k, i) is expected; the diagonal does not count */
    const char *(*name)(const void *context, int i); /* of a row and a column; escaped here */
    const void *context;
    bool less;  /* is better: then the largest are the ones to look at */
    double odd; /* worse than so many times the median is marked */
};

/* A figure: the map, its scale, and behind it the numbers: of each two up to 16, else of each row
 * its best, median and worst. */
void dt_heat_map_draw(FILE *out, const struct dt_heat_map *map);

#endif
