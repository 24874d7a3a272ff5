/* A figure of curves over steps: a chart with up to eight series, a legend, and behind it a table
 * of the same numbers, which is also what a pointer over the chart shows (page.js). More
 * points than fit are thinned: parts of the axis, each with its mean, and its least and largest
 * value as a band and in the table. */
#ifndef DT_REPORT_PAGE_CURVE_H
#define DT_REPORT_PAGE_CURVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define DT_CURVE_MAX_SERIES 8
#define DT_CURVE_MAX_POINTS 240 /* of a series; more are thinned */

struct dt_series {
    const char *name; /* for legend and table; escaped here */
    int color;        /* 0 to 7 */
    bool dots;
    const double *x,
        *y; /* n of each, `stride` apart; x grows; a y that is not finite is left out */
    const double *epochs; /* likewise, which of them each point ends; or NULL */
    size_t n, stride;
};

struct dt_curves {
    const char *title, *x_name;
    bool log; /* where all that is drawn is positive and spans more than a factor of 20 */
    int n_series;
    struct dt_series series[DT_CURVE_MAX_SERIES];
    const double *marks; /* where the run was started again */
    size_t n_marks;
};

/* Nothing where no series has a point. */
void dt_curves_draw(FILE *out, const struct dt_curves *curves);

#endif
