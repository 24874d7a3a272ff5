/* Where two resolved configurations differ: for resuming a run with another one. */
#ifndef DT_CLI_CONFIG_DIFF_H
#define DT_CLI_CONFIG_DIFF_H

#include <stdbool.h>
#include <stddef.h>

/* Looks below the key `path` ("train.optimizer") of both JSON texts. True when something differs, and then `text` says the first
 * such key and both values: "train.optimizer.type was "adam", now it is "sgd"". A text that is not JSON differs from any other. */
bool dt_config_differs(const char *before, const char *now, const char *path, char *text, size_t size);

#endif
