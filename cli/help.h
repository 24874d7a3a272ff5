/* Text in columns, for --help and --help-config. */
#ifndef DT_CLI_HELP_H
#define DT_CLI_HELP_H

#include <stdio.h>

/* The words of `text` from `column` on, where the line is already, in 80 columns; further lines
 * begin at `column`, and the last one is ended. Backticks are left out. */
void dt_help_wrap(FILE *out, int column, const char *text);

#endif
