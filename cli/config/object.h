/* An object of a configuration: that its keys are known, and how messages name them. */
#ifndef DT_CLI_CONFIG_OBJECT_H
#define DT_CLI_CONFIG_OBJECT_H

#include "cli/config/read.h"
#include "cli/config/schema.h"

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
