/* The manual pages. All of it follows from the tables of commands, options (cli/options.h), keys
 * (cli/config/schema.h) and exit codes (base/status.h), and from cli/prose.h. */
#ifndef DT_CLI_MANUAL_MANUAL_H
#define DT_CLI_MANUAL_MANUAL_H

#include <stdbool.h>
#include <stdio.h>

void dt_manual_program(FILE *out); /* dtrain(1) */
void dt_manual_config(FILE *out);  /* dtrain-config(5) */

/* ---- text as scdoc reads it, which makes manual pages of it (scdoc.c) */

/* Title and name; `about`: what it is, in a line. */
void dt_scdoc_head(FILE *out, const char *name, int section, const char *about);

/* Prose, where `code` stands between backticks and a newline begins a paragraph; `indented`: as the
 * text of an item. `sentence`: it becomes one, with a capital and a full stop, if it is none. */
void dt_scdoc_text(FILE *out, bool indented, const char *text, bool sentence);

/* The name of an item, in bold, or, where `variable`, underlined; a value stands for itself, or is
 * a word in capitals. */
void dt_scdoc_name(FILE *out, const char *name, bool variable);

/* Lines as they are, such as commands; the last one may lack its end. */
void dt_scdoc_literal(FILE *out, const char *lines);

#endif
