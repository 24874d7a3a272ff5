/* The drawings that pages share, as SVG in the classes of page.css: rows of boxes (lanes of time,
 * cells of a grid), bars, and columns of counts. */
#ifndef DT_REPORT_PAGE_DRAWING_H
#define DT_REPORT_PAGE_DRAWING_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Rows with names at the left, and boxes in them; the axis goes from 0 to `end`. */
struct dt_lanes {
    FILE *out;
    const char *label;        /* for readers who cannot see it */
    const char *class, *unit; /* of the picture; of an axis at the top; each may be NULL */
    int n_rows;
    double width, left, right; /* of the picture, of names and of texts beside the boxes */
    double row;                /* height */
    double end;
};

struct dt_box {
    const char *class;
    double begin, end; /* on the axis */
    const char *text;  /* in the box, where it fits; or NULL */
    const char *hint;  /* for a pointer; or NULL */
};

void dt_lanes_begin(const struct dt_lanes *lanes);
void dt_lanes_name(const struct dt_lanes *lanes, int row, const char *name);
void dt_lanes_box(const struct dt_lanes *lanes, int row, const struct dt_box *box);
void dt_lanes_note(const struct dt_lanes *lanes, int row, double at, const char *text);
void dt_lanes_end(const struct dt_lanes *lanes);

/* A row each: name, bar, and the value as text. `most` is as wide as the picture. */
struct dt_bar {
    const char *name, *class, *text;
    double value;
};
void dt_bars_draw(FILE *out, const char *label, double left, double most, int n,
                  const struct dt_bar *bars);

/* A column for each of 0 to n - 1. */
void dt_histogram_draw(FILE *out, const char *label, int n, const uint64_t *counts);

#endif
