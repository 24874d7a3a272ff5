/* `dtrain predict` for models of tables. */
#ifndef DT_CLI_COMMANDS_PREDICT_TABLE_H
#define DT_CLI_COMMANDS_PREDICT_TABLE_H

#include "cli/commands/eval.h"
#include "view/document.h"

/* Adds a table to the document: for each row of the CSV file `path`, from 1, its class or its
 * targets in their own units. The file has the columns of data.features; others are ignored.
 * DT_BAD_DATA, DT_NO_INPUT; DT_CONFIG: a model whose scales are not known;
 * DT_NON_FINITE. */
enum dt_status dt_predict_table(const struct dt_inference *inference, const char *path,
                                struct dt_doc *doc);

#endif
