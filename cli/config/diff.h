/* Where two resolved configurations differ: for resuming a run with another one. */
#ifndef DT_CLI_CONFIG_DIFF_H
#define DT_CLI_CONFIG_DIFF_H

#include <stddef.h>

#include "base/status.h"

/* Looks below the key `path` ("train.optimizer") of both texts, which are valid JSON. `text` is "" when nothing differs, else it
 * says the first such key and both values: "train.optimizer.type was "adam", now it is "sgd"". DT_NO_MEMORY. */
enum dt_status dt_config_compare(const char *before, const char *now, const char *path, char *text, size_t size);

#endif
