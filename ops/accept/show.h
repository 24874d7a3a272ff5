/* The rows as they come, on stdout. On a terminal each is first there as what is under way, and
 * fills in when it is done, with a mark for each host, in colours unless NO_COLOR says otherwise,
 * and wrapped to its width; elsewhere each is one line. */
#ifndef DT_OPS_ACCEPT_SHOW_H
#define DT_OPS_ACCEPT_SHOW_H

#include "ops/accept/outcome.h"

/* Rank 0 calls them. */
void dt_accept_show_begin(const struct dt_acceptance *a);
void dt_accept_show_running(const struct dt_acceptance *a, int check);
void dt_accept_show_row(const struct dt_acceptance *a, const struct dt_accept_outcome *outcome,
                        int check);
void dt_accept_show_break(void); /* nothing more comes: an error does */
void dt_accept_show_end(const struct dt_accept_outcome *outcome);

/* Text in lines of at most `width` characters, the first of which begins at `column`, where all
 * others do, too. */
void dt_accept_wrap(FILE *out, const char *text, int column, int width);

#endif
