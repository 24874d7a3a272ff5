/* Commands, options and keys as the completions of all shells need them. */
#ifndef DT_CLI_MANUAL_WORDS_H
#define DT_CLI_MANUAL_WORDS_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/config/schema.h"
#include "cli/options.h"

#define N_WORDS ((int)DT_COMMAND_VERSION) /* the commands that have a word come first */

/* What an option's value may be; `option` is of dt_options. */
enum source { SOURCE_NOTHING, SOURCE_FILE, SOURCE_FOLDER, SOURCE_KEY, SOURCE_NAMES };
enum source dt_words_source(const struct dt_option *option);

/* The names of a SOURCE_NAMES, with a space between them. */
void dt_words_names(FILE *out, const struct dt_option *option);

/* The values of a key whose values have names, with a space between them. */
bool dt_words_has_values(const struct dt_key *key);
void dt_words_values(FILE *out, const struct dt_key *key);

/* The first word of command i, "bench" or "eval"; false where the command before begins with the
 * same. */
#define WORD_SIZE 32
bool dt_words_first(int i, char out[WORD_SIZE]);

/* The second word of command i, or NULL. */
const char *dt_words_second(int i);

/* A file of this folder, which has what needs no generator. */
void dt_words_logic(FILE *out, const char *name);

#endif
