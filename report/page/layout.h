/* The parts of a page: cards with a picture each, and tables. */
#ifndef DT_REPORT_PAGE_LAYOUT_H
#define DT_REPORT_PAGE_LAYOUT_H

#include <stdio.h>

/* A title, and below it a text; both are HTML. What follows belongs to the card
 * until its end. */
void dt_card_begin(FILE *out, const char *title, const char *text, ...)
    __attribute__((format(printf, 3, 4)));
void dt_card_end(FILE *out);

/* Columns and cells are HTML, with '|' between them: "rank|bytes", "%d|%s". A
 * row has at most 500 bytes. */
void dt_table_begin(FILE *out, const char *columns);
void dt_table_row(FILE *out, const char *cells, ...) __attribute__((format(printf, 2, 3)));
void dt_table_end(FILE *out);

#endif
