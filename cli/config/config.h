/* The configuration of a run: a JSON file, then --set, then --data and --run; strict in every respect.
 *
 * The keys are listed once, in cli/config/schema.h; the parser, --help-config, --print-config, the JSON Schema for editors and the
 * page in docs/ are all driven by that list. */
#ifndef DT_CLI_CONFIG_CONFIG_H
#define DT_CLI_CONFIG_CONFIG_H

#include <stdio.h>

#include "base/status.h"
#include "data/dataset.h"
#include "dist/strategy/dist_optimizer.h"
#include "model/optimizer.h"
#include "model/schedule.h"

#define DT_DEVICE_LIST(X)     \
    X(DT_DEVICE_AUTO, "auto") \
    X(DT_DEVICE_CPU, "cpu")   \
    X(DT_DEVICE_REF, "ref")   \
    X(DT_DEVICE_CUDA, "cuda")
enum dt_device { DT_DEVICE_LIST(DT_NAMED_ENUM) };

struct dt_config {
    char name[64]; /* the file's name without folder and ".json"; default run folder */

    struct dt_data_spec data; /* shape, n_classes and n_targets are filled in from the model */
    enum dt_sharding sharding;
    bool shuffle;

    struct dt_model_spec model;

    int64_t epochs;
    int64_t max_steps; /* stop after so many steps in all; 0: no limit */
    int64_t seed;
    int64_t batch_per_rank, batch_global; /* exactly one is > 0 */
    int64_t accumulate;                   /* micro-batches per step: the batch is the sum of all */
    struct dt_optimizer_spec optimizer;
    enum dt_lr_scaling lr_scaling;
    double warmup_epochs;
    enum dt_schedule_type schedule;
    double schedule_step_epochs, schedule_gamma, schedule_min_lr;

    struct dt_dist_spec dist;
    double bucket_mb;   /* as configured; dist.bucket_bytes follows from it */
    bool init_per_rank; /* each rank draws initial weights of its own: shows what the broadcast is for */
    double timeout_s;

    int64_t checkpoint_every_epochs, checkpoint_every_steps; /* 0: off */
    int64_t checkpoint_keep;
    double log_every_s;      /* seconds between progress lines where stderr is no terminal */
    int64_t log_every_steps; /* steps between "step" records in metrics.jsonl; 0: none */

    enum dt_device device;
    enum dt_precision precision;
    bool cuda_graph;
    int64_t threads; /* 0: cores / local ranks */
};

/* Reads and checks `path`, then applies the n_sets texts "key.path=value". On any error DT_CONFIG (or what dt_file_read says), or
 * DT_USAGE where a --set is to blame, with `path:line:column` or the key's path in the text, and the nearest valid key where there
 * is one. */
enum dt_status dt_config_load(const char *path, const char *const *sets, int n_sets, struct dt_config *out);

/* The same from text; `name` appears in messages. */
enum dt_status dt_config_parse(const char *name, const char *text, size_t n_bytes, const char *const *sets, int n_sets,
                               struct dt_config *out);
/* A checkpoint's copy, which may have a key that has gone since and decides nothing. */
enum dt_status dt_config_parse_saved(const char *name, const char *text, struct dt_config *out);

char *
dt_config_to_json(const struct dt_config *config); /* resolved: every key, pretty-printed; caller frees; NULL: out of memory */
void dt_config_help(FILE *out);                    /* --help-config: the keys as an aligned table */
void dt_config_markdown(FILE *out);                /* docs/config.md */
void dt_config_schema_json(FILE *out);             /* configs/dtrain.schema.json */

#endif
