/* From the JSON tree to struct dt_config, by the schema: every key known, given once, of the right
 * type and within its range. */
#ifndef DT_CLI_CONFIG_READ_H
#define DT_CLI_CONFIG_READ_H

#include <cjson/cJSON.h>

#include "cli/config/config.h"

/* Where values came from, for messages. */
struct dt_config_source {
    const char *name; /* the file */
    const char *const *sets;
    int n_sets;
};

/* Fills `out` (zeroed by the caller), defaults included. DT_CONFIG. */
enum dt_status dt_config_read(const struct dt_config_source *source, const cJSON *root,
                              struct dt_config *out);

/* DT_CONFIG with "<file or --set>: <path>: <text>". */
enum dt_status dt_config_error(const struct dt_config_source *source, const char *path,
                               const char *format, ...) __attribute__((format(printf, 3, 4)));

/* What a message says was found: `string "ten"`, `1.5`, `a list`; long texts are cut. */
#define DT_FOUND_SIZE 96
void dt_json_found(const cJSON *item, char out[DT_FOUND_SIZE]);

/* --set key.path=value: a change to the tree, before it is checked as a whole. `text` is
 * "train.epochs=1" or "model.layers.1.filters=16"; the value is JSON, or else a string. Missing
 * objects on the way are made; whether the key exists is for the later check to say. DT_USAGE,
 * DT_NO_MEMORY. */
enum dt_status dt_config_set(cJSON *root, const char *text);

#endif
