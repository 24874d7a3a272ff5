/* The result of a command, a document, in all forms that the command line asks for: text on
 * standard output, --html, --json, --csv and --junit FILE. "-" is standard output, and then takes
 * the text's place there. */
#ifndef DT_CLI_RESULT_H
#define DT_CLI_RESULT_H

#include "cli/args.h"
#include "view/document.h"

/* The options of a command whose result is a document, for its row. */
#define DT_RESULT_OPTIONS                                                                       \
    [DT_OPTION_HTML] = {DT_TAKEN}, [DT_OPTION_JSON] = {DT_TAKEN}, [DT_OPTION_CSV] = {DT_TAKEN}, \
    [DT_OPTION_FORCE] = {DT_TAKEN}

/* The end of its usage. */
#define DT_RESULT_USAGE "\n      [--html FILE] [--json FILE] [--csv FILE] [--force]"

/* Whether the files can be written, asked before the work (main asks). DT_CANT_CREATE: a folder
 * that is not there, or an existing file that is no earlier output of the same kind, without
 * --force. */
enum dt_status dt_result_try(const struct dt_args *args);

/* The text alone, as standard output's terminal shows it. */
void dt_result_print(FILE *out, const struct dt_doc *doc);

/* Shows the document; called by one rank. Every form is tried, also after one failed. The first
 * error: DT_IO, DT_CANT_CREATE, DT_NO_MEMORY. */
enum dt_status dt_result_show(const struct dt_args *args, const struct dt_doc *doc);

#endif
