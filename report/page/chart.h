/* A chart as SVG: two axes, and lines and dots in their units, in the classes of page.h. */
#ifndef DT_REPORT_PAGE_CHART_H
#define DT_REPORT_PAGE_CHART_H

#include <stdbool.h>
#include <stdio.h>

/* Size of the picture, and place of the plot in it. */
#define DT_CHART_WIDTH 440
#define DT_CHART_HEIGHT 320
#define DT_CHART_LEFT 62
#define DT_CHART_RIGHT 14
#define DT_CHART_TOP 14
#define DT_CHART_BOTTOM 48

struct dt_axis {
    const char *name;
    double low, high;
    bool log; /* low > 0; ticks at powers of ten, or of two where there are few */
};

struct dt_chart {
    FILE *out;
    const char *label; /* for who cannot see it */
    struct dt_axis x, y;
};

/* Where a value is in the picture. */
double dt_chart_x(const struct dt_chart *chart, double value);
double dt_chart_y(const struct dt_chart *chart, double value);

/* 1, 2 or 5 times a power of ten: the least of them that lies at most n_most times in `span`, which
 * is a normal number above 0. */
double dt_chart_tick(double span, int n_most);

void dt_chart_begin(const struct dt_chart *chart);
void dt_chart_end(const struct dt_chart *chart);
/* Draws nothing outside the axes. */
void dt_chart_line(const struct dt_chart *chart, const char *class, int n, const double *x,
                   const double *y);
/* The area between low and high. */
void dt_chart_band(const struct dt_chart *chart, const char *class, int n, const double *x,
                   const double *low, const double *high);
void dt_chart_dot(const struct dt_chart *chart, const char *class, double x, double y);
/* A line from top to bottom at x. */
void dt_chart_mark(const struct dt_chart *chart, const char *class, double x);
/* Beside the point: class "start" on its right, "end" on its left. */
void dt_chart_note(const struct dt_chart *chart, const char *class, double x, double y,
                   const char *text);

#endif
