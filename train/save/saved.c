#include "train/save/saved.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arithmetic.h"
#include "base/file.h"
#include "base/text.h"
#include "data/shard.h"
#include "data/validation_split.h"

#define MAX_EPOCHS 1000000      /* train.epochs */
#define NAME_SHOWN ((size_t)32) /* bytes of a class's name in a message */
#define MAX_RANKS (1LL << 20)   /* more than anyone has, and quick to count */

/* Bounds of saved numbers; long double holds uint64_t as well as double. */
struct bound {
    const char *name;
    long double value, low, high;
};

uint64_t dt_saved_steps_per_epoch(const struct dt_config *c, const struct dt_checkpoint_state *s)
{
    if (s->world_size < 1 || s->world_size > MAX_RANKS || s->global_batch < s->world_size) {
        return 0;
    }
    const struct dt_shard shard = {.mode = c->sharding,
                                   .n_total = s->n_train,
                                   .global_batch = s->global_batch,
                                   .size = (int)s->world_size};
    return dt_shard_steps_per_epoch(&shard);
}

/* Generated training samples, without those that are held out. */
static uint64_t n_generated(const struct dt_config *c)
{
    size_t n_held = 0;
    const bool validates = c->data.validation > 0;
    if (validates && dt_validation_count(c->data.validation, c->data.n_train, &n_held) != DT_OK) {
        dt_error_clear(); /* then no number is right */
        return 0;
    }
    return c->data.n_train - n_held;
}

static void bound_text(long double value, char text[32])
{
    snprintf(text, 32, value == floorl(value) && fabsl(value) < 1e20L ? "%.0Lf" : "%.9Lg", value);
}

static enum dt_status check_bound(const char *path, const struct bound *b)
{
    char value[32], low[32], high[32];
    if (b->value >= b->low && b->value <= b->high) {
        return DT_OK;
    }
    bound_text(b->value, value);
    bound_text(b->low, low);
    bound_text(b->high, high);
    return dt_error(DT_BAD_DATA,
                    "%s: its counters contradict each other: %s is %s, expected %s%s%s (use "
                    "another checkpoint)",
                    path, b->name, value, low, b->low < b->high ? " to " : "",
                    b->low < b->high ? high : "");
}

/* The order matters: a bound is worked out from what the rows before have checked. */
static enum dt_status check_counters(const char *path, const struct dt_config *c,
                                     const struct dt_checkpoint_state *s)
{
    const long double n_ranks = s->world_size, batch = s->global_batch, n_train = s->n_train,
                      step_in_epoch = s->step_in_epoch;
    const long double epoch = s->epoch, n_steps = s->step, n_samples = s->n_samples;
    const long double right_batch =
        c->batch_global > 0 ? c->batch_global : c->batch_per_rank * n_ranks;
    const bool generated = dt_validation_none(&c->data).row->generated,
               may_exceed = c->sharding == DT_SHARDING_REPLICATE,
               resized = c->sharding == DT_SHARDING_GLOBAL &&
                         step_in_epoch > 0; /* perhaps: the batch within this epoch */
    const struct bound bounds[] = {
        {"seed", s->seed, c->seed, c->seed},
        {"world_size", n_ranks, 1, c->batch_global > 0 ? c->batch_global : MAX_RANKS},
        {"global_batch", batch, right_batch, right_batch},
        {"n_train", n_train,
         generated    ? n_generated(c)
         : may_exceed ? 1
                      : batch,
         generated ? n_generated(c) : UINT32_MAX},
        {"data_crc", s->data_crc, 0, UINT32_MAX},
        {"bright_borders", s->bright_borders == DT_CHECKPOINT_UNKNOWN ? 0 : s->bright_borders, 0,
         n_train},
        {"epoch", epoch, 0, MAX_EPOCHS},
        {"compression_draws", s->compression_draws, 0,
         (1ULL << 40) - 1}, /* dist/compression/error_feedback.h */
        {"step_in_epoch", step_in_epoch, 0, dt_saved_steps_per_epoch(c, s)},
        {"n_samples", n_samples, step_in_epoch,
         (step_in_epoch + resized) * batch}, /* a step has 1 to `batch` samples */
        {"step", n_steps, epoch + (resized ? 1 : step_in_epoch),
         epoch * n_train +
             (resized ? n_samples : step_in_epoch)}, /* an epoch: 1 to n_train steps */
        {"optimizer_steps", s->optimizer_steps, n_steps, n_steps},
        {"n_correct", s->n_correct,
         c->model.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY ? 0 : -n_samples * FLT_MAX, n_samples},
        {"loss_sum", s->loss_sum, -n_samples,
         n_samples * FLT_MAX}, /* rounding may take a loss a hair below 0 */
        {"stop_epoch", s->stop_epoch, 0, epoch},
        {"stop_value", s->stop_value, -1, FLT_MAX},
        {"plateau_epoch", s->plateau_epoch, 0, epoch},
        {"plateau_value", s->plateau_value, -1, FLT_MAX},
        {"best_epoch", s->best_epoch, 0, epoch},
        {"best_value", s->best_value, -1, FLT_MAX},
        {"lr_reduced_epoch", s->lr_reduced_epoch, 0, epoch},
        {"lr_reductions", s->lr_reductions, 0, s->lr_reduced_epoch},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        DT_TRY(check_bound(path, &bounds[i]));
    }
    return DT_OK;
}

static struct dt_name_list list_classes(const char *names)
{
    struct dt_name_list list = {.n = 0};
    for (size_t n = 0;; names += n + 1) {
        n = strcspn(names, "/");
        dt_name_list_add(&list, names, dt_min_size(n, NAME_SHOWN));
        if (names[n] == '\0') {
            return list;
        }
    }
}

static enum dt_status check_classes(const char *path, const char *names, int n_outputs)
{
    const int n = names != NULL ? list_classes(names).n : n_outputs;
    return n == n_outputs ? DT_OK
                          : dt_error(DT_BAD_DATA,
                                     "%s: it names %d classes, its model has %d outputs (use "
                                     "another checkpoint)",
                                     path, n, n_outputs);
}

enum dt_status dt_saved_same_classes(const char *path, const char *saved, const char *now)
{
    size_t at = 0, begin = 0;
    int number = 0;
    if (saved == NULL || now == NULL || strcmp(saved, now) == 0) {
        return DT_OK;
    }
    for (; saved[at] == now[at]; at++) {
        number += saved[at] == '/';
        begin = saved[at] == '/' ? at + 1 : begin;
    }
    DT_ASSERT(begin <= at);
    const int n_saved = (int)dt_min_size(strcspn(saved + begin, "/"), NAME_SHOWN),
              n_now = (int)dt_min_size(strcspn(now + begin, "/"), NAME_SHOWN);
    return dt_error(DT_BAD_DATA,
                    "%s: class %d was '%.*s', now it is '%.*s'; trained with the classes %s, the "
                    "data have %s (use data with the same classes)",
                    path, number, n_saved, saved + begin, n_now, now + begin,
                    list_classes(saved).text, list_classes(now).text);
}

/* A wrong configuration in a user's file is an error; in a checkpoint it is damage. */
static enum dt_status as_damage(enum dt_status status)
{
    return status == DT_CONFIG ? DT_BAD_DATA : status;
}

enum dt_status dt_saved_check(const struct dt_config_format *format, const char *path,
                              const struct dt_checkpoint_file *file, struct dt_config *config,
                              struct dt_model *model)
{
    char before[DT_CHECKPOINT_PATH_SIZE + 32];
    enum dt_status s = format->read("its configuration", file->config, config);
    if (s == DT_OK) {
        s = dt_model_lower(&config->model, model);
    }
    if (s != DT_OK) {
        snprintf(before, sizeof before, "%s: ", path);
        return dt_error_around(as_damage(s), before, "");
    }
    DT_TRY(as_damage(dt_checkpoint_check(file, model, dt_optimizer_n_states(&config->optimizer))));
    DT_TRY(check_classes(path, file->class_names, model->n_outputs));
    return check_counters(path, config, &file->state);
}

static bool is_there(const char *path)
{
    bool there = false;
    if (dt_file_exists(path, &there) != DT_OK) {
        dt_error_clear(); /* whoever opens it finds the same */
    }
    return there;
}

enum choice { BEST_OR_NEWEST, NEWEST, BEST };

/* "RUN:best", "RUN:last", unless a file has this very name; *n: the bytes of the run's folder. */
static enum choice read_choice(const char *path, bool best, int *n)
{
    static const struct {
        const char *suffix;
        enum choice choice;
    } rows[] = {{":best", BEST}, {":last", NEWEST}};
    *n = (int)strnlen(path, DT_CHECKPOINT_PATH_SIZE - 64);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const int n_suffix = (int)strlen(rows[i].suffix), before = *n - n_suffix;
        if (before > 0 && strcmp(path + before, rows[i].suffix) == 0 && !is_there(path)) {
            *n = before;
            return rows[i].choice;
        }
    }
    return best ? BEST_OR_NEWEST : NEWEST;
}

static enum dt_status find_newest(const char *folder, char out[DT_CHECKPOINT_PATH_SIZE])
{
    uint64_t *steps = NULL;
    size_t n_steps = 0;
    DT_TRY(dt_checkpoint_list(folder, &steps, &n_steps));
    const enum dt_status s = n_steps > 0 ? dt_checkpoint_path(folder, steps[0], out) : DT_OK;
    free(steps);
    return s;
}

/* "RUN:newest" */
static enum dt_status check_word(const char *path)
{
    char folder[DT_CHECKPOINT_PATH_SIZE];
    const char *colon = strrchr(path, ':');
    const int n = colon != NULL ? (int)dt_min_size((size_t)(colon - path), sizeof folder / 2) : 0;
    snprintf(folder, sizeof folder, "%.*s/checkpoints", n, path);
    return n > 0 && is_there(folder) && !is_there(path)
               ? dt_error(DT_NO_INPUT, "%s: of a run's checkpoints, take %.*s:best or %.*s:last",
                          path, n, path, n, path)
               : DT_OK;
}

enum dt_status dt_saved_find(const char *path, bool best, char out[DT_CHECKPOINT_PATH_SIZE])
{
    char folder[DT_CHECKPOINT_PATH_SIZE], kept[DT_CHECKPOINT_PATH_SIZE];
    int n = 0;
    const enum choice choice = read_choice(path, best, &n);
    snprintf(out, DT_CHECKPOINT_PATH_SIZE, "%.*s", n, path);
    snprintf(folder, sizeof folder, "%.*s/checkpoints", n, path);
    if (!is_there(folder)) {
        return check_word(path);
    }
    DT_TRY(dt_checkpoint_best_path(folder, kept));
    if (choice != NEWEST && is_there(kept)) {
        snprintf(out, DT_CHECKPOINT_PATH_SIZE, "%s", kept);
        return DT_OK;
    }
    if (choice == BEST) {
        return dt_error(DT_NO_INPUT,
                        "%s: the run keeps no best checkpoint (take %s:last; checkpoint.best keeps "
                        "one)",
                        path, out);
    }
    return find_newest(folder, out);
}

enum dt_status dt_saved_weights(const char *path, const struct dt_model *model,
                                struct dt_checkpoint_file *out)
{
    DT_TRY(dt_weights_open(path, out));
    dt_weights_name(out, model);
    const enum dt_status s = as_damage(dt_checkpoint_check(out, model, 0));
    if (s != DT_OK) {
        dt_checkpoint_close(out);
    }
    DT_ASSERT((s == DT_OK) == (out->content != NULL));
    return s;
}
