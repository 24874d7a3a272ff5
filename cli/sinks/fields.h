/* The records of a run: metrics.jsonl, metrics.csv, TensorBoard's scalars and summary.json.
 * The fields of a step and of an epoch are the rows of two lists, from which the columns of
 * metrics.csv, the tags of TensorBoard, the reader of runs (report/record.h) and the tables of
 * docs/files.md follow; a new number is a row here and a line in fields.c. The fields of the other
 * records are written by dt_run_put and its like, and docs/files.md has them by hand.
 *
 * X(constant, name, unit, csv, tag, meaning): csv: a column of metrics.csv (enum dt_csv); tag:
 * TensorBoard's, "" where TensorBoard does not get it. Fields are written in this order, after
 * "type". */
#ifndef DT_CLI_SINKS_FIELDS_H
#define DT_CLI_SINKS_FIELDS_H

#include "cli/sinks/sinks.h"
#include "dist/strategy/summary/summary.h"
#include "view/json_write.h"

// clang-format off

/* A line {"type":"step"}: of the steps that log.every_steps asks for. */
#define DT_STEP_FIELD_LIST(X)                                                                      \
    X(DT_STEP_STEP, "step", "steps", NO, "", "from 1, over all epochs")                            \
    X(DT_STEP_EPOCH, "epoch", "epochs", NO, "", "from 1")                                          \
    X(DT_STEP_LOSS, "loss", "", NO, "loss/step",                                                   \
      "mean over the step's samples of all ranks, before the update")                              \
    X(DT_STEP_ACCURACY, "accuracy", "share of 1", NO, "accuracy/step",                             \
      "of the same samples; null without classes")                                                 \
    X(DT_STEP_R2, "r2", "", NO, "r2/step", "R2 of the same samples; only of normalized targets")   \
    X(DT_STEP_LR, "lr", "", NO, "learning_rate/step", "learning rate of the step")                 \
    X(DT_STEP_GRAD_NORM, "grad_norm", "", NO, "gradient_norm/step",                                \
      "L2 norm of the averaged gradient, before clipping; null if no rank knows it; with "         \
      "`log.every_steps: auto` at every 16th step only")                                           \
    X(DT_STEP_IMAGES, "images_per_s", "samples/s", NO, "images_per_s/step",                        \
      "of all ranks, in this epoch so far")                                                        \
    X(DT_STEP_SECONDS, "seconds", "s", NO, "", "since this start")

/* A line {"type":"epoch"}, and a row of metrics.csv: of each whole epoch. */
#define DT_EPOCH_FIELD_LIST(X)                                                                     \
    X(DT_EPOCH_EPOCH, "epoch", "epochs", YES, "", "from 1")                                        \
    X(DT_EPOCH_STEP, "step", "steps", YES, "", "completed at its end")                             \
    X(DT_EPOCH_TRAIN_LOSS, "train_loss", "", YES, "loss/train",                                    \
      "mean over the epoch's samples, each before its step's update")                              \
    X(DT_EPOCH_TRAIN_ACCURACY, "train_accuracy", "share of 1", YES, "accuracy/train",              \
      "of the same samples; null without classes")                                                 \
    X(DT_EPOCH_TRAIN_R2, "train_r2", "", R2, "r2/train",                                           \
      "share of the variance of the targets that is predicted: R2; only of normalized targets")    \
    X(DT_EPOCH_VALIDATION_LOSS, "validation_loss", "", VALIDATED, "loss/validation",               \
      "mean over the validation samples, at the epoch's end; only with data.validation")           \
    X(DT_EPOCH_VALIDATION_ACCURACY, "validation_accuracy", "share of 1", VALIDATED,                \
      "accuracy/validation", "of the validation samples; null without classes")                    \
    X(DT_EPOCH_VALIDATION_R2, "validation_r2", "", R2, "r2/validation",                            \
      "of the validation samples")                                                                 \
    X(DT_EPOCH_TEST_LOSS, "test_loss", "", TESTED, "loss/test",                                    \
      "mean over the test samples, at the epoch's end; without data.validation")                   \
    X(DT_EPOCH_TEST_ACCURACY, "test_accuracy", "share of 1", TESTED, "accuracy/test",              \
      "of the test samples; null without classes")                                                 \
    X(DT_EPOCH_TEST_R2, "test_r2", "", R2, "r2/test", "of the test samples")                       \
    X(DT_EPOCH_VALIDATION_TOP5, "validation_top5_accuracy", "share of 1", NO,                      \
      "accuracy/top5_validation", "as test_top5_accuracy, of the validation samples")              \
    X(DT_EPOCH_TEST_TOP5, "test_top5_accuracy", "share of 1", NO, "accuracy/top5",                 \
      "share of test samples whose class is among the top five; only with more than 10 classes")   \
    X(DT_EPOCH_EMA_VALIDATION_LOSS, "ema_validation_loss", "", NO, "loss/ema_validation",          \
      "as validation_loss, of the average of the weights; only with `train.ema`")                  \
    X(DT_EPOCH_EMA_VALIDATION_ACCURACY, "ema_validation_accuracy", "share of 1", NO,               \
      "accuracy/ema_validation", "likewise")                                                       \
    X(DT_EPOCH_EMA_VALIDATION_R2, "ema_validation_r2", "", NO, "r2/ema_validation", "likewise")    \
    X(DT_EPOCH_EMA_TEST_LOSS, "ema_test_loss", "", NO, "loss/ema",                                 \
      "as test_loss, of the average of the weights; only with `train.ema`")                        \
    X(DT_EPOCH_EMA_TEST_ACCURACY, "ema_test_accuracy", "share of 1", NO, "accuracy/ema",           \
      "likewise")                                                                                  \
    X(DT_EPOCH_EMA_TEST_R2, "ema_test_r2", "", NO, "r2/ema", "likewise")                           \
    X(DT_EPOCH_IMAGES, "images_per_s", "samples/s", YES, "images_per_s/epoch",                     \
      "of all ranks; null if this start took no step of the epoch")                                \
    X(DT_EPOCH_LR, "lr", "", YES, "learning_rate/epoch", "at the epoch's end")                     \
    X(DT_EPOCH_WORLD_SIZE, "world_size", "ranks", YES, "", "in the job")                           \
    X(DT_EPOCH_ALLREDUCE, "allreduce", "", NO, "", "name of the algorithm that adds gradients")    \
    X(DT_EPOCH_MESSAGES, "messages", "messages", NO, "",                                           \
      "per step, of the rank that sends most, counted since the start; null: not counted")         \
    X(DT_EPOCH_BYTES_SENT, "bytes_sent", "bytes", NO, "",                                          \
      "per step, of the rank that sends most, counted since the start; null: not counted")         \
    X(DT_EPOCH_MESSAGES_BETWEEN, "messages_between_hosts", "messages", NO, "",                     \
      "per step, over all ranks, counted since the start; null: not counted")                      \
    X(DT_EPOCH_BYTES_BETWEEN, "bytes_between_hosts", "bytes", NO, "",                              \
      "per step, over all ranks, counted since the start; null: not counted")                      \
    X(DT_EPOCH_STALENESS, "staleness", "gradients", NO, "",                                        \
      "list: number of gradients that were 0, 1, 2, ... steps old; only with an asynchronous "     \
      "server")                                                                                    \
    X(DT_EPOCH_PHASES, "rank0_ms_per_step", "ms", NO, "",                                          \
      "mean step time of rank 0 since the start, by phase: `data`, `forward`, `backward`, "        \
      "`communication`, `update`, `gpu`")                                                          \
    X(DT_EPOCH_SECONDS, "seconds", "s", NO, "", "since this start")

// clang-format on

enum dt_step_field { DT_STEP_FIELD_LIST(DT_NAMED_ENUM) DT_N_STEP_FIELDS };
enum dt_epoch_field { DT_EPOCH_FIELD_LIST(DT_NAMED_ENUM) DT_N_EPOCH_FIELDS };
enum { DT_MAX_FIELDS = DT_N_EPOCH_FIELDS }; /* of a step or an epoch */

extern const char *const dt_phase_names[]; /* of enum dt_phase */
extern const char dt_commit[]; /* as `git describe --always --dirty` has it, or "unknown" */

double dt_metrics_loss(const struct dt_metrics *m);     /* mean; NaN of nothing */
double dt_metrics_accuracy(const struct dt_metrics *m); /* share of 1 */

/* Bins up to the last that is not empty; 0: nothing was counted. */
int dt_staleness_n_bins(const struct dt_staleness *staleness);
double dt_staleness_mean(const struct dt_staleness *staleness);
/* "staleness of gradients, in steps: mean 1.9, most 5" and a row for each, with a bar. */
void dt_staleness_print(FILE *out, const struct dt_staleness *staleness);

/* Whether it is a column of metrics.csv; tested, validated: only without, with data.validation; R2:
 * only with normalized targets. */
enum dt_csv { DT_CSV_NO, DT_CSV_YES, DT_CSV_TESTED, DT_CSV_VALIDATED, DT_CSV_R2 };

struct dt_field {
    const char *name, *unit, *tag, *meaning;
    enum dt_csv csv;
};

/* A number, a text, a list or an object; a field without any of these is left out. */
struct dt_field_value {
    bool is_number;
    int digits; /* as dt_json_number has it */
    double number;
    const char *text;
    void (*put)(struct dt_json *json, const char *name, const struct dt_event *event);
};

/* A kind of record. */
struct dt_fields {
    const struct dt_field *rows;
    int n;
    /* The values of an event of this kind, which are zero at first. */
    void (*read)(const struct dt_sinks *sinks, const struct dt_event *event,
                 struct dt_field_value values[DT_MAX_FIELDS]);
};
extern const struct dt_fields dt_step_fields, dt_epoch_fields;

/* The values may point into the event. */
void dt_fields_read(const struct dt_fields *fields, const struct dt_sinks *sinks,
                    const struct dt_event *event, struct dt_field_value values[DT_MAX_FIELDS]);

/* An event's fields, as members of an object. */
typedef void (*dt_record_put_fn)(struct dt_json *json, const struct dt_sinks *sinks,
                                 const struct dt_event *event);
void dt_step_put(struct dt_json *json, const struct dt_sinks *sinks, const struct dt_event *event);
void dt_epoch_put(struct dt_json *json, const struct dt_sinks *sinks, const struct dt_event *event);
void dt_run_put(struct dt_json *json, const struct dt_sinks *sinks, const struct dt_event *event);
void dt_audit_put(struct dt_json *json, const struct dt_sinks *sinks, const struct dt_event *event);
void dt_end_put(struct dt_json *json, const struct dt_sinks *sinks, const struct dt_event *event);

#endif
