/* Prints the rows to stdout. On a terminal each row appears when its check starts, and is completed
 * when it ends, with a mark for each host, in colours unless NO_COLOR is set, and wrapped to the
 * terminal's width; elsewhere each is one line. */
#ifndef DT_OPS_ACCEPT_SHOW_H
#define DT_OPS_ACCEPT_SHOW_H

#include "ops/accept/outcome.h"

/* Rank 0 calls them. */
void dt_accept_show_begin(const struct dt_acceptance *a);
void dt_accept_show_running(const struct dt_acceptance *a, int check);
void dt_accept_show_row(const struct dt_acceptance *a, int check);
void dt_accept_show_break(void); /* an error ends the output */
void dt_accept_show_end(const struct dt_acceptance *a);

/* Prints text in lines of at most `width` characters; the first continues at `column`, where all
 * others begin. */
void dt_accept_wrap(FILE *out, const char *text, int column, int width);

#endif
