/* From the JSON tree to struct dt_config, by the schema: every key known, given once, of the right
 * type and within its range. */
#ifndef DT_CLI_CONFIG_READ_H
#define DT_CLI_CONFIG_READ_H

#include <cjson/cJSON.h>

#include "cli/config/config.h"
#include "cli/config/schema.h"

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

/* The value as error messages quote it: `string "ten"`, `1.5`, `a list`; long texts are cut. */
#define DT_FOUND_SIZE 96
void dt_json_found(const cJSON *item, char out[DT_FOUND_SIZE]);

/* --set key.path=value: a change to the tree, before it is checked as a whole. `text` is
 * "train.epochs=1" or "model.layers.1.filters=16"; the value is JSON, or else a string. Missing
 * objects on the way are made; whether the key exists is for the later check to say. DT_USAGE,
 * DT_NO_MEMORY. */
enum dt_status dt_config_set(cJSON *root, const char *text);

/* ---- an object: that its keys are known, and how messages name them (object.c) */

#define DT_CONFIG_PATH_SIZE 160

/* An object being read: its keys have paths relative to it, `prefix` is its own ("" or
 * "model.layers[2]."). */
struct dt_config_object {
    const struct dt_config_source *source;
    const char *prefix;
    struct dt_key_list list;
    const char *owner; /* "conv2d" or NULL: whose keys these are */
};

/* The path of a key of the object, for messages; returns `out`. */
const char *dt_config_object_path(const struct dt_config_object *o, const char *path,
                                  char out[DT_CONFIG_PATH_SIZE]);

/* Every member of the JSON object is known and given once, groups being objects. DT_CONFIG. */
enum dt_status dt_config_object_check(const struct dt_config_object *o, const cJSON *item);

#endif
