/* The manual pages. All of it follows from the tables of commands, options (cli/options.h), keys
 * (cli/config/schema.h) and exit codes (base/status.h), and from cli/prose.h. */
#ifndef DT_CLI_MANUAL_MANUAL_H
#define DT_CLI_MANUAL_MANUAL_H

#include <stdio.h>

void dt_manual_program(FILE *out); /* dtrain(1) */
void dt_manual_config(FILE *out);  /* dtrain-config(5) */
void dt_manual_fields(FILE *out);  /* docs/files.md, with its tables of fields written again */

#endif
