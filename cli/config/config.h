/* The configuration of a run: a JSON file, then --set, then --data and --run; strict in every
 * respect.
 *
 * The keys are listed once, in cli/config/schema.h: the parser, `help config`, --print-config and
 * `help --json`, from which scripts/make-docs writes the JSON Schema and docs/config.md, use it. */
#ifndef DT_CLI_CONFIG_CONFIG_H
#define DT_CLI_CONFIG_CONFIG_H

#include <stdio.h>

#include "train/config.h"

#define DT_DEFAULT_BATCH 128 /* of a rank, where train.batch says nothing */

/* Reads and checks `path`, then applies the n_sets texts "key.path=value". On any error DT_CONFIG
 * (or what dt_file_read says), or DT_USAGE where a --set is to blame, with `path:line:column` or
 * the key's path in the text, and the nearest valid key where there is one. */
enum dt_status dt_config_load(const char *path, const char *const *sets, int n_sets,
                              struct dt_config *out);

/* The same from text; `name` appears in messages. */
enum dt_status dt_config_parse(const char *name, const char *text, size_t n_bytes,
                               const char *const *sets, int n_sets, struct dt_config *out);
/* Every key, pretty-printed; the caller frees. NULL: out of memory. */
char *dt_config_to_json(const struct dt_config *config);
/* For checkpoints. What it reads may have a key that has gone since and decides nothing. */
extern const struct dt_config_format dt_config_json;

/* Where two written configurations differ, for resuming a run with another one: `compare` of struct
 * dt_config_format (train/config.h); both texts are valid JSON. */
enum dt_status dt_config_compare(const char *before, const char *now, const char *path, char *text,
                                 size_t size);

/* The keys that `about` names (dt_config_names), as an aligned table. */
void dt_config_help(FILE *out, const char *about);

#endif
