/* Text for mdoc(7), the language of manual pages. */
#ifndef DT_CLI_MANUAL_MDOC_H
#define DT_CLI_MANUAL_MDOC_H

#include <stdbool.h>
#include <stdio.h>

/* The lines up to the first section's. */
void dt_mdoc_head(FILE *out, const char *name, int section, const char *what);

/* Prose as lines of at most 80 bytes, each sentence on its own as mdoc wants it; `code` is set in
 * bold, and a newline begins a paragraph. `sentence`: the first letter becomes a capital and a full
 * stop ends it where there is none. */
void dt_mdoc_text(FILE *out, const char *text, bool sentence);

/* An item of a list that hangs: a command with what it takes; words that begin with a capital stand
 * for values. */
void dt_mdoc_usage(FILE *out, const char *usage);

/* Lines as they are, such as commands. */
void dt_mdoc_literal(FILE *out, const char *lines);

/* The value of an option or key in an item: "FILE", "auto|yes|no". With a space before it. */
void dt_mdoc_value(FILE *out, const char *value);

#endif
