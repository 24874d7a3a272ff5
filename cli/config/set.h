/* --set key.path=value: a change to the JSON tree, before it is checked as a whole. */
#ifndef DT_CLI_CONFIG_SET_H
#define DT_CLI_CONFIG_SET_H

#include <cjson/cJSON.h>

#include "base/status.h"

/* `text` is "train.epochs=1" or "model.layers.1.filters=16"; the value is JSON, or else a string.
 * Missing objects on the way are made; whether the key exists is for the later check to say.
 * DT_USAGE, DT_NO_MEMORY. */
enum dt_status dt_config_set(cJSON *root, const char *text);

#endif
