#include "cli/config/config.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "cli/config/read.h"
#include "data/idx.h"
#include "data/transform.h"
#include "data/validation_split.h"
#include "dist/compression/fixed_point.h"
#include "dist/strategy/roles.h"
#include "dist/strategy/strategy.h"
#include "model/layers/layers.h"

#define GENERATED_TRAIN 6000
#define GENERATED_TEST 1000

/* It is shown, and written to UTF-8 files: no control characters, and no half of a character where
 * it was cut. */
static void make_presentable(char *name, bool was_cut)
{
    size_t n = strlen(name);
    while (was_cut && n > 0 && ((unsigned char)name[n - 1] & 0xC0) == 0x80) {
        name[--n] = '\0';
    }
    if (was_cut && n > 0 && (unsigned char)name[n - 1] >= 0xC0) {
        name[n - 1] = '\0';
    }
    for (; *name != '\0'; name++) {
        *name = (unsigned char)*name < 0x20 || *name == 0x7F ? '_' : *name;
    }
}

/* "configs/mnist.json" -> "mnist": it names the default run folder, so it is never empty and never
 * leads elsewhere. */
static void set_name(const char *path, char *out, size_t n_out)
{
    const char *slash = strrchr(path, '/');
    const char *file = slash == NULL ? path : slash + 1;
    const size_t n = strlen(file);
    const bool has_suffix = n > 5 && strcmp(file + n - 5, ".json") == 0;
    const int n_name = (int)(has_suffix ? n - 5 : n);
    snprintf(out, n_out, "%.*s", n_name, file);
    make_presentable(out, (size_t)n_name >= n_out);
    if (out[0] == '\0' || strcmp(out, ".") == 0 || strcmp(out, "..") == 0) {
        snprintf(out, n_out, "config");
    }
}

#define DATA_ROW(constant, name, row) [constant] = &(row),
static const struct dt_data_reader *const data_rows[] = {DT_DATA_FORMAT_LIST(DATA_ROW)};

/* What follows from more than one key, and from what was given of `root`. */
static void resolve(const cJSON *root, struct dt_config *c)
{
    if (c->batch_per_rank == 0 && c->batch_global == 0) {
        c->batch_per_rank = DT_DEFAULT_BATCH;
    }
    c->data.row = data_rows[c->data.format];
    if (c->data.row->generated) {
        c->data.n_train = c->data.n_train == 0 ? GENERATED_TRAIN : c->data.n_train;
        c->data.n_test = c->data.n_test == 0 ? GENERATED_TEST : c->data.n_test;
    }
    c->data.whole = c->data.row;
    c->data.split_seed = (uint64_t)c->seed;
    c->data.validation += 0.0; /* no -0, which would be shown */
    if (c->data.validation > 0) {
        c->data.row = &dt_validation_data;
        c->plateau.metric =
            c->schedule == DT_SCHEDULE_PLATEAU && dt_json_at(root, "train.schedule.metric") == NULL
                ? DT_VALIDATION_LOSS
                : c->plateau.metric;
    }
    c->data.shape = c->model.input;
    c->data.refuse = dt_idx_refuse;
    c->data.transform = dt_transform_open;
    c->data.augment_seed = (uint64_t)c->seed;
    c->dist.rows = &dt_all_entries;
    c->model.rows = &dt_all_layers;
    c->dist.bucket_bytes = (size_t)(c->bucket_mb * 1048576.0);
}

/* The same leaves at any number of ranks. */
static enum dt_status check_deterministic(const struct dt_config_source *source,
                                          const struct dt_config *c)
{
    static const char key[] = "distributed.deterministic";
    if (c->sharding != DT_SHARDING_GLOBAL) {
        return dt_config_error(source, key,
                               "ranks need the slices of one order (set data.sharding to global)");
    }
    if (c->batch_global == 0) {
        return dt_config_error(source, key,
                               "a batch per rank grows with the ranks (set train.batch.global "
                               "instead)");
    }
    if ((c->batch_global + c->dist.leaf - 1) / c->dist.leaf > DT_FIXED_MOST) {
        return dt_config_error(source, "distributed.leaf",
                               "a batch of %lld has more than %d leaves (make it larger)",
                               (long long)c->batch_global, DT_FIXED_MOST);
    }
    return DT_OK;
}

static enum dt_status check_training(const struct dt_config_source *source,
                                     const struct dt_config *c)
{
    const int64_t batch = c->batch_per_rank > 0 ? c->batch_per_rank : c->batch_global;
    if (c->batch_per_rank > 0 && c->batch_global > 0) {
        return dt_config_error(source, "train.batch",
                               "both per_rank and global are given (keep one)");
    }
    if (c->accumulate > batch) {
        return dt_config_error(source, "train.accumulate",
                               "a batch of %lld has no %lld parts (make it smaller)",
                               (long long)batch, (long long)c->accumulate);
    }
    DT_TRY(c->dist.deterministic ? check_deterministic(source, c) : DT_OK);
    if (c->optimizer.nesterov && c->optimizer.momentum <= 0) {
        return dt_config_error(source, "train.optimizer.nesterov",
                               "needs a momentum (set train.optimizer.momentum, for example 0.9)");
    }
    if (c->ema > 0 && c->dist.mode == DT_SERVER_MODE_ASYNC) {
        return dt_config_error(source, "train.ema",
                               "workers that do not wait for each other have no weights in common "
                               "after a step (set distributed.parameter_server.mode to sync)");
    }
    if (c->class_weights.n != 0 && c->dist.mode == DT_SERVER_MODE_ASYNC) {
        return dt_config_error(source, "train.class_weights",
                               "are divided by their sum over all workers' samples, and these "
                               "workers do not wait for each other (set "
                               "distributed.parameter_server.mode to sync)");
    }
    if (c->schedule == DT_SCHEDULE_ONE_CYCLE && c->warmup_epochs > 0) {
        return dt_config_error(source, "train.warmup_epochs",
                               "one_cycle has a warm-up of its own, of train.schedule.peak of the "
                               "steps (leave train.warmup_epochs out)");
    }
    if (c->schedule_min_lr > c->optimizer.lr) {
        return dt_config_error(source, "train.schedule.min_lr",
                               "%g is above train.optimizer.lr %g (make it smaller)",
                               c->schedule_min_lr, c->optimizer.lr);
    }
    return DT_OK;
}

/* Checks a key that depends on a metric: of the samples that each epoch ends with. */
static enum dt_status check_monitor(const struct dt_config_source *source,
                                    const struct dt_config *c, const char *key,
                                    enum dt_test_metric metric)
{
    const bool validates = c->data.validation > 0;
    if (metric == DT_TEST_NONE) {
        return DT_OK;
    }
    if (dt_metric_is_of_average(metric) && c->ema == 0) {
        return dt_config_error(source, key,
                               "there is no average of the weights (set train.ema, such as 0.999)");
    }
    if (validates && dt_metric_is_of_test(metric)) {
        return dt_config_error(source, key,
                               "with data.validation the test set is for the end alone (take "
                               "validation_loss or validation_accuracy)");
    }
    if (!validates && c->evaluate == DT_EVALUATE_END) {
        return dt_config_error(source, key,
                               "no epoch has a metric when train.evaluate is end (take epochs, or "
                               "hold samples out with data.validation, such as 0.1)");
    }
    if (!validates && !dt_metric_is_of_test(metric)) {
        return dt_config_error(source, key,
                               "there are no validation samples (hold some out with "
                               "data.validation, such as 0.1)");
    }
    if (!dt_metric_is_loss(metric) && c->model.loss != DT_LOSS_SOFTMAX_CROSS_ENTROPY) {
        return dt_config_error(source, key,
                               "mean %s error knows no classes, and so no accuracy (take %s)",
                               c->model.loss == DT_LOSS_MEAN_SQUARED_ERROR ? "squared" : "absolute",
                               validates ? "validation_loss" : "test_loss");
    }
    if (!c->dist.average) {
        return dt_config_error(source, key,
                               "with distributed.average off the test result mixes replicas that "
                               "drift apart (leave it on)");
    }
    return DT_OK;
}

static enum dt_status check_delta(const struct dt_config_source *source, const char *key,
                                  const struct dt_monitor_spec *monitor)
{
    if (monitor->metric != DT_TEST_NONE && !dt_metric_is_loss(monitor->metric) &&
        monitor->min_delta >= 1) {
        return dt_config_error(
            source, key, "an accuracy is at most 1, and cannot improve by %g (one of 100 is 0.01)",
            monitor->min_delta);
    }
    return DT_OK;
}

static enum dt_status check_monitors(const struct dt_config_source *source,
                                     const struct dt_config *c)
{
    DT_TRY(check_monitor(source, c, "train.early_stopping.metric", c->early_stopping.metric));
    DT_TRY(check_monitor(source, c, "checkpoint.best", c->checkpoint_best));
    DT_TRY(check_delta(source, "train.early_stopping.min_delta", &c->early_stopping));
    if (c->schedule != DT_SCHEDULE_PLATEAU) {
        return DT_OK;
    }
    if (c->plateau.metric == DT_TEST_NONE) {
        return dt_config_error(source, "train.schedule.metric",
                               "a plateau is one of a metric (take test_loss or test_accuracy, "
                               "with data.validation validation_loss or validation_accuracy)");
    }
    DT_TRY(check_monitor(source, c, "train.schedule.metric", c->plateau.metric));
    return check_delta(source, "train.schedule.min_delta", &c->plateau);
}

/* Whether the strategy can serve this. */
static enum dt_status check_strategy(const struct dt_config_source *source,
                                     const struct dt_config *c)
{
    const struct dt_strategy_spec spec = {
        .dist = c->dist, .optimizer = c->optimizer, .accumulate = (int)c->accumulate};
    const char *key = NULL;
    char text[512];
    const enum dt_status s = dt_strategy_check(&spec, &key);
    if (s == DT_OK || key == NULL) {
        return s;
    }
    snprintf(text, sizeof text, "%s", dt_error_text());
    dt_error_clear();
    return dt_config_error(source, key, "%s", text);
}

/* Statistics are of a whole batch, `sync` wants all ranks in each pass, and a graph's passes are of
 * all layers at once. */
static enum dt_status check_layers(const struct dt_config_source *source, const struct dt_config *c)
{
    struct dt_roles roles;
    const int n_ranks = 2048; /* enough for any strategy */
    DT_TRY(dt_roles_find(&c->dist, 0, n_ranks, &roles));
    for (int i = 0; i < c->model.n_layers; i++) {
        const struct dt_layer_spec *layer = &c->model.layers[i];
        const char *name = dt_layer_names[layer->type];
        const bool normalizes = layer->type == DT_LAYER_BATCH_NORM;
        if (normalizes && c->dist.deterministic) {
            return dt_config_error(source, "distributed.deterministic",
                                   "model.layers[%d] %s takes statistics over a batch, and its "
                                   "leaves pass one by one (leave one of them out)",
                                   i, name);
        }
        if (normalizes && roles.whole) {
            return dt_config_error(source, "distributed.strategy",
                                   "model.layers[%d] %s takes statistics over the whole batch, "
                                   "and a pipeline cuts it (use allreduce)",
                                   i, name);
        }
        if (layer->sync && roles.n_workers < n_ranks) {
            return dt_config_error(source, "distributed.strategy",
                                   "model.layers[%d] %s with sync adds statistics over all ranks, "
                                   "and servers compute none (use allreduce or central)",
                                   i, name);
        }
        if (layer->sync && !c->dist.average) {
            return dt_config_error(source, "distributed.average",
                                   "model.layers[%d] %s with sync adds statistics over ranks that "
                                   "then step alone (leave one of them out)",
                                   i, name);
        }
        if (roles.whole && (layer->input[0] != '\0' || layer->inputs.n > 0)) {
            return dt_config_error(source, "distributed.strategy",
                                   "model.layers[%d] %s reads a branch, and a pipeline would cut "
                                   "through it (use allreduce)",
                                   i, name);
        }
        if (roles.whole && dt_operation_of(layer->type) != NULL) {
            return dt_config_error(source, "distributed.strategy",
                                   "model.layers[%d] %s is no part of a plain chain, and a "
                                   "pipeline passes through nothing else (use allreduce)",
                                   i, name);
        }
    }
    return DT_OK;
}

/* "10:30" */
static enum dt_status read_trace(const struct dt_config_source *source, struct dt_config *c)
{
    unsigned long long first, last;
    int end = 0;
    if (c->trace_steps[0] == '\0') {
        return DT_OK;
    }
    const bool starts = c->trace_steps[0] >= '1' && c->trace_steps[0] <= '9';
    if (!starts || sscanf(c->trace_steps, "%9llu:%9llu%n", &first, &last, &end) != 2 ||
        c->trace_steps[end] != '\0' || last < first) {
        return dt_config_error(
            source, "trace.steps",
            "expected first:last, from 1 to 999999999, got \"%s\" (such as \"10:30\")",
            c->trace_steps);
    }
    c->trace_first = first;
    c->trace_last = last;
    return DT_OK;
}

static enum dt_status check_validation(const struct dt_config_source *source,
                                       const struct dt_config *c)
{
    const double validation = c->data.validation;
    return validation < 1 || (validation > 1 && validation == floor(validation))
               ? DT_OK
               : dt_config_error(
                     source, "data.validation",
                     "%g is neither a share below 1 nor a whole number of samples from 2 on",
                     validation);
}

/* The block with weights and this name; -1: there is none. */
static int find_block(const struct dt_model *model, const char *name)
{
    int b = model->n_blocks - 1;
    for (; b >= 0 && (model->blocks[b].grad_end == model->blocks[b].grad_begin ||
                      strcmp(model->blocks[b].name, name) != 0);
         b--) {
    }
    return b;
}

/* Marks the layers of train.freeze. What is wrong with the model itself is said later. */
static enum dt_status freeze(const struct dt_config_source *source, struct dt_config *c)
{
    static struct dt_model model;
    struct dt_name_list all = {.n = 0};
    bool trains = false;
    if (c->freeze.n == 0) {
        return DT_OK; /* an error that is on its way keeps its text */
    }
    if (dt_model_lower(&c->model, &model) != DT_OK) {
        dt_error_clear();
        return DT_OK;
    }
    for (const struct dt_block *b = model.blocks; b < model.blocks + model.n_blocks; b++) {
        if (b->grad_end > b->grad_begin) {
            dt_name_list_add(&all, b->name, strlen(b->name));
            trains = trains || dt_texts_find(&c->freeze, b->name) < 0;
        }
    }
    for (int i = 0; i < c->freeze.n; i++) {
        const char *name = dt_texts_at(&c->freeze, i);
        const int b = find_block(&model, name);
        if (b < 0) {
            return dt_config_error(source, "train.freeze",
                                   "no layer '%s' has weights (there are %s)", name, all.text);
        }
        for (int k = model.blocks[b].first_layer;
             k < (b + 1 < model.n_blocks ? model.blocks[b + 1].first_layer : c->model.n_layers);
             k++) {
            c->model.layers[k].frozen = true;
        }
    }
    return trains ? DT_OK
                  : dt_config_error(source, "train.freeze",
                                    "nothing is left to train (leave out one of %s)", all.text);
}

enum dt_status dt_config_build(const struct dt_config_source *source, cJSON *root,
                               struct dt_config *out)
{
    memset(out, 0, sizeof *out);
    set_name(source->files->files[0].name, out->name, sizeof out->name);
    for (int i = 0; i < source->n_sets; i++) {
        DT_TRY(dt_config_set(root, source->sets[i]));
    }
    DT_TRY(dt_config_read(source, root, out));
    resolve(root, out);
    DT_TRY(freeze(source, out));
    DT_TRY(read_trace(source, out));
    DT_TRY(check_validation(source, out));
    DT_TRY(check_strategy(source, out));
    DT_TRY(check_monitors(source, out));
    DT_TRY(check_layers(source, out));
    return check_training(source, out);
}
