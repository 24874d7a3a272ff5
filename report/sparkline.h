/* A curve in one line of text. */
#ifndef DT_REPORT_SPARKLINE_H
#define DT_REPORT_SPARKLINE_H

#include <stdbool.h>
#include <stddef.h>

#define DT_SPARKLINE_CELLS 400

/* What is drawn: `n` numbers, each `stride` behind the one before; NaN and infinities are left out.
 */
struct dt_sparkline {
    const double *values;
    size_t n, stride;
    bool log;  /* heights by the logarithm, where all numbers are above 0 */
    bool utf8; /* eighths of a block, else eight characters from '.' to '#' */
};

/* At most `width` columns, a column for each number or the mean of several; its height is between
 * the least and the largest mean. `text` has room for DT_SPARKLINE_CELLS characters of three bytes,
 * and an end. */
void dt_sparkline_text(const struct dt_sparkline *line, int width, char *text, size_t n_text);

#endif
