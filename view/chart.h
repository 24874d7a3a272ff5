/* What pages share: escaped text, and a series as a chart. */
#ifndef DT_VIEW_CHART_H
#define DT_VIEW_CHART_H

#include <stdio.h>

#include "view/parts.h"

#define DT_CHART_TICKS 6 /* of an axis, at most */

void dt_html_put(FILE *out, char c); /* a character, escaped for HTML, XML and attributes */
/* A text of at most DT_LINE_SIZE bytes: what is not printable is escaped (base/text.h), and each
 * character as above. */
void dt_html_text(FILE *out, const char *text);

/* 1, 2 or 5 times a power of ten: the least of them that lies at most DT_CHART_TICKS times in
 * `span`, which is above 0. */
double dt_chart_step(double span);

void dt_chart_put(FILE *out, const struct dt_part *p); /* a series */

#endif
