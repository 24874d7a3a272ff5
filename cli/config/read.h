/* From the JSON tree to struct dt_config, by the schema: every key known, given once, of the right
 * type and within its range. */
#ifndef DT_CLI_CONFIG_READ_H
#define DT_CLI_CONFIG_READ_H

#include <cjson/cJSON.h>

#include "cli/config/config.h"
#include "cli/config/schema.h"

#define DT_CONFIG_PATH_SIZE 160

/* The files of a configuration: each extends the one behind it. */
#define DT_CONFIG_MOST_FILES 8
struct dt_config_files {
    int n;
    struct {
        char name[DT_PATH_SIZE];
        cJSON *tree;
    } files[DT_CONFIG_MOST_FILES];
};

/* Where values came from, for messages. */
struct dt_config_source {
    const struct dt_config_files *files;
    const char *const *sets;
    int n_sets;
    const char *prefix; /* of all paths: "", or "model.layers[2]." of a layer's keys */
};

/* Fills `out` (zeroed by the caller), defaults included. DT_CONFIG. */
enum dt_status dt_config_read(const struct dt_config_source *source, const cJSON *root,
                              struct dt_config *out);

/* DT_CONFIG with "FILE or --set: PATH: TEXT": the first file that has something at the path,
 * or else the first. */
enum dt_status dt_config_error(const struct dt_config_source *source, const char *path,
                               const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The value at a path such as "train.epochs", or NULL; the tree itself at "". */
const cJSON *dt_json_at(const cJSON *tree, const char *path);

/* The value as error messages quote it: `string "ten"`, `1.5`, `a list`; long texts are cut. */
#define DT_FOUND_SIZE 96
void dt_json_found(const cJSON *item, char out[DT_FOUND_SIZE]);

/* Of two keys that exclude each other the later wins: takes the other one out of `object`, which is
 * to get the key `name`; `with`: an object that may give both, or NULL. */
void dt_config_displace(cJSON *object, const char *name, const cJSON *with);

/* --set key.path=value: a change to the tree, before it is checked as a whole. `text` is
 * "train.epochs=1", "model.layers.1.filters=16" or "model.layers[1].filters=16"; the value is JSON,
 * or else a string. Missing objects on the way are made; whether the key exists is for the later
 * check to say. DT_USAGE, DT_NO_MEMORY. */
enum dt_status dt_config_set(cJSON *root, const char *text);

/* Reads the text of a file as the next one, behind those that it is to complete; `base` becomes the
 * path of the file that it extends, or "". `saved`: as dtrain wrote it, without comments.
 * DT_CONFIG, DT_NO_MEMORY. */
enum dt_status dt_config_files_add(struct dt_config_files *files, const char *name,
                                   const char *text, size_t n_bytes, bool saved,
                                   char base[DT_PATH_SIZE]);

/* What they are together, with every --set, checked. Members of an object are merged, the first
 * file's win, and null removes what files behind say (JSON Merge Patch, RFC 7386, but that a null
 * which removes nothing is a wrong value). DT_CONFIG, DT_USAGE, DT_NO_MEMORY. */
enum dt_status dt_config_files_read(const struct dt_config_files *files, const char *const *sets,
                                    int n_sets, struct dt_config *out);
void dt_config_files_close(struct dt_config_files *files);

/* The same from one tree, which it changes. */
enum dt_status dt_config_build(const struct dt_config_source *source, cJSON *root,
                               struct dt_config *out);

#endif
