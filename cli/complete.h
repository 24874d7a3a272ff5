/* What the TAB key offers: `dtrain __complete WORDS...`, which the stubs in packaging/completions
 * ask. */
#ifndef DT_CLI_COMPLETE_H
#define DT_CLI_COMPLETE_H

#include "cli/args.h"

/* `words`: what is typed behind the program's name; the last one is under the cursor, and may be
 * empty. Prints what it may become, a line each, with a tab and its meaning; or ":file" or
 * ":folder" alone, where the shell knows the names. */
void dt_complete(FILE *out, const struct dt_program *program, int n_words, char *const *words);

#endif
