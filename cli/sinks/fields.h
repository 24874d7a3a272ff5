/* Everything that a run records of itself, in one table: metrics.jsonl, metrics.csv, TensorBoard's
 * scalars, summary.json, the reader of runs (report/record.h) and docs/files.md follow from its
 * rows. A new number is a row here.
 *
 * X(constant, name, value, unit, csv, tag, meaning): `value` is one of struct dt_field_value, of
 * `r`, the event, and of `sinks`; csv: a column of metrics.csv (enum dt_csv); tag: TensorBoard's,
 * "" where TensorBoard does not get it. Fields are written in this order, and behind "type". */
#ifndef DT_CLI_SINKS_FIELDS_H
#define DT_CLI_SINKS_FIELDS_H

#include "cli/sinks/sinks.h"
#include "dist/strategy/facts/facts.h"
#include "view/json_write.h"

// clang-format off

/* A line {"type":"run"}: once per start. */
#define DT_RUN_FIELD_LIST(X)                                                                       \
    X("step", number(r->step), "steps", "done when it started; 0 unless it resumes")               \
    X("last_step", number(r->last_step), "steps", "after which the run is complete")               \
    X("seconds_before", number(sinks->seconds_before), "s", "that earlier starts have taken")      \
    X("config", text(sinks->folder.config->name), "", "name of the configuration")                 \
    X("world_size", number(sinks->folder.world_size), "ranks", "in the job")                       \
    X("global_batch", number(r->global_batch), "samples", "of a step, all ranks together")         \
    X("parameters", number(r->n_parameters), "", "numbers that training learns")                   \
    X("version", text(dt_version), "", "of dtrain")                                                \
    X("commit", text(dt_commit), "", "of the source, or `unknown`")                                \
    X("started", number(sinks->started_s), "s", "time of the start, since 1970 (UTC)")             \
    X("command", text_if(sinks->command), "", "the command line")                                  \
    X("resumed_from", text_if(r->resumed_from), "", "checkpoint file; only of a run that resumes") \
    X("changes", text_if(r->changes), "",                                                          \
      "of the configuration, ranks, batch and rate since that checkpoint; "                        \
      "only if there are some")                                                                    \
    X("workers", number(r->n_workers), "ranks", "that compute gradients")                          \
    X("steps_per_epoch", number(r->steps_per_epoch), "steps", "of this start")                     \
    X("train_samples", number(r->n_train), "samples", "of the training set")                       \
    X("validation_samples", above_0(r->n_validation), "samples",                                   \
      "of the validation set; only with data.validation")                                          \
    X("test_samples", number(r->n_test), "samples", "of the test set")                             \
    X("lr", number(r->lr), "", "largest learning rate, scaled")                                    \
    X("lr_scale", number(r->lr_scale), "", "factor by which the configured rate was scaled")       \
    X("ranks", when(r->ranks != NULL, list(sinks->folder.world_size, put_rank)), "",               \
      "list, a rank each: `host`, `local_rank`, `device`, `threads`, `samples`")                   \
    X("injected", when(r->faults != NULL, list(r->faults->n, put_fault)), "",                      \
      "list: those of `--inject`")                                                                 \
    X("allreduce", text(r->averaging.allreduce), "", "name of the algorithm that adds gradients")  \
    X("messages", sent(&r->averaging.traffic, r->averaging.traffic.messages), "messages",          \
      "of a step, sent by the rank that sends most, predicted")                                    \
    X("bytes_sent", sent(&r->averaging.traffic, r->averaging.traffic.bytes), "bytes",              \
      "of a step, sent by the rank that sends most, predicted")                                    \
    X("messages_between_hosts",                                                                    \
      sent(&r->averaging.traffic, r->averaging.traffic.messages_between), "messages",              \
      "of a step, all ranks together, predicted")                                                  \
    X("bytes_between_hosts", sent(&r->averaging.traffic, r->averaging.traffic.bytes_between),      \
      "bytes", "of a step, all ranks together, predicted")

/* A line {"type":"step"}: of the steps that log.every_steps asks for. */
#define DT_STEP_FIELD_LIST(X)                                                                      \
    X(DT_STEP_STEP, "step", number(r->step), "steps", NO, "", "from 1, over all epochs")           \
    X(DT_STEP_EPOCH, "epoch", number(r->epoch), "epochs", NO, "", "from 1")                        \
    X(DT_STEP_LOSS, "loss", real(dt_metrics_loss(&r->train)), "", NO, "loss/step",                 \
      "mean over the step's samples of all ranks, before the update")                              \
    X(DT_STEP_ACCURACY, "accuracy", real(accuracy_of(sinks, &r->train)), "share of 1", NO,         \
      "accuracy/step", "of the same samples; null without classes")                                \
    X(DT_STEP_LR, "lr", real(r->lr), "", NO, "learning_rate/step", "learning rate of the step")    \
    X(DT_STEP_GRAD_NORM, "grad_norm", real(r->grad_norm), "", NO, "gradient_norm/step",            \
      "L2 norm of the mean gradient, before clipping; null where no rank knows it, and with "      \
      "`log.every_steps: auto` at all but every 16th step")                                        \
    X(DT_STEP_IMAGES, "images_per_s", real(r->images_per_s), "samples/s", NO, "images_per_s/step", \
      "of all ranks, in this epoch so far")                                                        \
    X(DT_STEP_SECONDS, "seconds", seconds(sinks), "s", NO, "", "since this start")

/* A line {"type":"audit"}: of each step, with log.audit. */
#define DT_AUDIT_FIELD_LIST(X)                                                                     \
    X("step", number(r->step), "steps", "from 1, over all epochs")                                 \
    X("epoch", number(r->epoch), "epochs", "from 1")                                               \
    X("world_size", number(sinks->folder.world_size), "ranks", "in the job")                       \
    X("samples", number(r->n_samples), "samples", "that all ranks together used")                  \
    X("hash", hash(r->hash), "", "sum of a hash of the number of each, modulo 2^64, hexadecimal")

/* A line {"type":"epoch"}, and a row of metrics.csv: of each whole epoch. */
#define DT_EPOCH_FIELD_LIST(X)                                                                     \
    X(DT_EPOCH_EPOCH, "epoch", number(r->epoch), "epochs", YES, "", "from 1")                      \
    X(DT_EPOCH_STEP, "step", number(r->step), "steps", YES, "", "done at its end")                 \
    X(DT_EPOCH_TRAIN_LOSS, "train_loss", real(dt_metrics_loss(&r->train)), "", YES, "loss/train",  \
      "mean over the epoch's samples, each before its step's update")                              \
    X(DT_EPOCH_TRAIN_ACCURACY, "train_accuracy", real(accuracy_of(sinks, &r->train)),              \
      "share of 1", YES, "accuracy/train", "of the same samples; null without classes")            \
    X(DT_EPOCH_VALIDATION_LOSS, "validation_loss",                                                 \
      when(is_validated(r), real(dt_metrics_loss(&r->validation))), "", VALIDATED,                 \
      "loss/validation",                                                                           \
      "mean over the validation samples, at the epoch's end; only with data.validation")           \
    X(DT_EPOCH_VALIDATION_ACCURACY, "validation_accuracy",                                         \
      when(is_validated(r), real(accuracy_of(sinks, &r->validation))), "share of 1", VALIDATED,    \
      "accuracy/validation", "of the validation samples; null without classes")                    \
    X(DT_EPOCH_TEST_LOSS, "test_loss", when(!is_validated(r), real(dt_metrics_loss(&r->test))),    \
      "", TESTED, "loss/test",                                                                     \
      "mean over the test samples, at the epoch's end; without data.validation")                   \
    X(DT_EPOCH_TEST_ACCURACY, "test_accuracy",                                                     \
      when(!is_validated(r), real(accuracy_of(sinks, &r->test))), "share of 1", TESTED,            \
      "accuracy/test", "of the test samples; null without classes")                                \
    X(DT_EPOCH_VALIDATION_TOP5, "validation_top5_accuracy",                                        \
      when(is_validated(r) && dt_learned_has_top5(r->learned),                                     \
           real(r->learned->n_top5 / r->validation.n_samples)), "share of 1", NO,                  \
      "accuracy/top5_validation", "as test_top5_accuracy, of the validation samples")              \
    X(DT_EPOCH_TEST_TOP5, "test_top5_accuracy",                                                    \
      when(!is_validated(r) && dt_learned_has_top5(r->learned),                                    \
           real(r->learned->n_top5 / r->test.n_samples)), "share of 1", NO, "accuracy/top5",       \
      "of the test samples, whose class is among the five likeliest; only of more than 10 classes")\
    X(DT_EPOCH_EMA_VALIDATION_LOSS, "ema_validation_loss",                                         \
      when(is_validated(r) && is_averaged(&r->averaged), real(dt_metrics_loss(&r->averaged))), "", \
      NO, "loss/ema_validation",                                                                   \
      "as validation_loss, of the average of the weights; only with `train.ema`")                  \
    X(DT_EPOCH_EMA_VALIDATION_ACCURACY, "ema_validation_accuracy",                                 \
      when(is_validated(r) && is_averaged(&r->averaged), real(accuracy_of(sinks, &r->averaged))),  \
      "share of 1", NO, "accuracy/ema_validation", "likewise")                                     \
    X(DT_EPOCH_EMA_TEST_LOSS, "ema_test_loss",                                                     \
      when(!is_validated(r) && is_averaged(&r->averaged), real(dt_metrics_loss(&r->averaged))), "",\
      NO, "loss/ema", "as test_loss, of the average of the weights; only with `train.ema`")        \
    X(DT_EPOCH_EMA_TEST_ACCURACY, "ema_test_accuracy",                                             \
      when(!is_validated(r) && is_averaged(&r->averaged), real(accuracy_of(sinks, &r->averaged))), \
      "share of 1", NO, "accuracy/ema", "likewise")                                                \
    X(DT_EPOCH_IMAGES, "images_per_s", real(r->images_per_s), "samples/s", YES,                    \
      "images_per_s/epoch", "of all ranks; null if this start took no step of the epoch")          \
    X(DT_EPOCH_LR, "lr", real(r->lr), "", YES, "learning_rate/epoch", "at the epoch's end")        \
    X(DT_EPOCH_WORLD_SIZE, "world_size", number(sinks->folder.world_size), "ranks", YES, "",       \
      "in the job")                                                                                \
    X(DT_EPOCH_ALLREDUCE, "allreduce", text(r->allreduce), "", NO, "",                             \
      "name of the algorithm that adds gradients")                                                 \
    X(DT_EPOCH_MESSAGES, "messages", sent(&r->traffic, r->traffic.messages), "messages", NO, "",   \
      "of a step, sent by the rank that sends most, counted since the start; null: not counted")   \
    X(DT_EPOCH_BYTES_SENT, "bytes_sent", sent(&r->traffic, r->traffic.bytes), "bytes", NO, "",     \
      "of a step, sent by the rank that sends most, counted since the start; null: not counted")   \
    X(DT_EPOCH_MESSAGES_BETWEEN, "messages_between_hosts",                                         \
      sent(&r->traffic, r->traffic.messages_between), "messages", NO, "",                          \
      "of a step, all ranks together, counted since the start; null: not counted")                 \
    X(DT_EPOCH_BYTES_BETWEEN, "bytes_between_hosts",                                               \
      sent(&r->traffic, r->traffic.bytes_between), "bytes", NO, "",                                \
      "of a step, all ranks together, counted since the start; null: not counted")                 \
    X(DT_EPOCH_STALENESS, "staleness",                                                             \
      when(dt_staleness_n_bins(&r->staleness) > 0,                                                 \
           list(dt_staleness_n_bins(&r->staleness), put_staleness)), "gradients", NO, "",          \
      "list: how many were 0, 1, 2, ... steps old; only of parameter servers that do not wait")    \
    X(DT_EPOCH_PHASES, "rank0_ms_per_step", when(has_phases(r), object(put_epoch_phases)), "ms",   \
      NO, "",                                                                                      \
      "rank 0's time of a step since the start, by phase: `data`, `forward`, `backward`, "         \
      "`communication`, `update`, `gpu`")                                                          \
    X(DT_EPOCH_SECONDS, "seconds", seconds(sinks), "s", NO, "", "since this start")

/* summary.json: how the run ended, whatever the status. */
#define DT_END_FIELD_LIST(X)                                                                       \
    X("exit_code", number(event->status), "", "of the program: `dtrain help` lists them")          \
    X("outcome", text(status_meaning(event->status)), "", "the exit code in words")                \
    X("error", text_if(dt_error_text()), "", "only of a run that failed")                          \
    X("epochs", number(r->epochs), "epochs", "whole ones, done")                                   \
    X("steps", number(r->steps), "steps", "done, over all starts")                                 \
    X("signal", when(r->signal != 0, number(r->signal)), "", "that stopped it, its number")        \
    X("test_loss", when(is_tested(r), number(dt_metrics_loss(&r->test))), "",                      \
      "mean over the test samples, of the last weights or those of `tested_epoch`")                \
    X("test_accuracy", when(is_tested(r) && dt_sinks_classify(sinks),                              \
                            number(dt_metrics_accuracy(&r->test))), "share of 1",                  \
      "of the test samples")                                                                       \
    X("tested_epoch", above_0(r->tested_epoch), "epochs",                                          \
      "whose weights, the best, the test and validation results are of; only with data.validation")\
    X("validation_loss", when(was_validated(r), number(dt_metrics_loss(&r->validation))), "",      \
      "mean over the validation samples")                                                          \
    X("validation_accuracy", when(was_validated(r) && dt_sinks_classify(sinks),                    \
                                  number(dt_metrics_accuracy(&r->validation))), "share of 1",      \
      "of the validation samples")                                                                 \
    X("validation_top5_accuracy", when(was_validated(r) && dt_learned_has_top5(r->learned),        \
                                       number(r->validation_top5 / r->validation.n_samples)),      \
      "share of 1", "as test_top5_accuracy, of the validation samples")                            \
    X("test_top5_accuracy", when(is_tested(r) && dt_learned_has_top5(r->learned),                  \
                                 number(r->learned->n_top5 / r->test.n_samples)), "share of 1",    \
      "of the test samples, whose class is among the five likeliest; only of more than 10 classes")\
    X("ema_validation_loss", when(is_averaged(&r->averaged_validation),                            \
                                  number(dt_metrics_loss(&r->averaged_validation))), "",           \
      "as validation_loss, of the average of the weights; only with `train.ema`")                  \
    X("ema_validation_accuracy",                                                                   \
      when(is_averaged(&r->averaged_validation) && dt_sinks_classify(sinks),                       \
           number(dt_metrics_accuracy(&r->averaged_validation))), "share of 1", "likewise")        \
    X("ema_test_loss", when(is_averaged(&r->averaged), number(dt_metrics_loss(&r->averaged))), "", \
      "as test_loss, of the average of the weights; only with `train.ema`")                        \
    X("ema_test_accuracy", when(is_averaged(&r->averaged) && dt_sinks_classify(sinks),             \
                                number(dt_metrics_accuracy(&r->averaged))), "share of 1",          \
      "likewise")                                                                                  \
    X("lines", when(r->lines != NULL, list(sinks->folder.world_size, put_fitted)), "",             \
      "list, a rank each: `slope` and `intercept`; only of the format `linear`")                   \
    X("weights_xxh3", text_if(r->weights), "",                                                     \
      "hash of the last weights (XXH3-128): equal for equal bits, at any number of ranks")         \
    X("stopped_early", when(r->stopped_early, text(stopping_text(r))), "", "only then: why")       \
    X("best_checkpoint", when(r->best.epoch > 0, text(r->best_checkpoint)), "",                    \
      "file of the best epoch")                                                                    \
    X("best_metric", when(r->best.epoch > 0, text(dt_metric_name(r->best.metric))), "",            \
      "by which it is the best")                                                                   \
    X("best_value", when(r->best.epoch > 0, number(r->best.best)), "", "of that metric")           \
    X("best_epoch", when(r->best.epoch > 0, number(r->best.epoch)), "epochs", "from 1")            \
    X("world_size", number(sinks->folder.world_size), "ranks", "in the job")                       \
    X("seconds", number(r->seconds), "s", "of this start, without what came before training")      \
    X("rank0_ms_per_step", when(r->n_timed_steps > 0, object(put_end_phases)), "ms",               \
      "rank 0's time of a step since the start, by phase")                                         \
    X("ranks_ms_per_step",                                                                         \
      when(r->n_timed_steps > 0 && r->ranks != NULL,                                               \
           list(sinks->folder.world_size, put_rank_phases)), "ms",                                 \
      "list: the same of each rank")                                                               \
    X("messages_per_step", when(r->traffic.known, number(r->traffic.messages)), "messages",        \
      "sent by the rank that sends most, counted")                                                 \
    X("bytes_sent_per_step", when(r->traffic.known, number(r->traffic.bytes)), "bytes",            \
      "sent by the rank that sends most, counted")                                                 \
    X("messages_between_hosts_per_step",                                                           \
      when(r->traffic.known, number(r->traffic.messages_between)), "messages",                     \
      "all ranks together, counted")                                                               \
    X("bytes_between_hosts_per_step", when(r->traffic.known, number(r->traffic.bytes_between)),    \
      "bytes", "all ranks together, counted")                                                      \
    X("allreduce", text(r->allreduce), "", "name of the algorithm that adds gradients")            \
    X("staleness_mean", when(dt_staleness_n_bins(&r->staleness) > 0,                               \
                             number(dt_staleness_mean(&r->staleness))), "steps",                   \
      "age of gradients; only of parameter servers that do not wait")                              \
    X("staleness_most", when(dt_staleness_n_bins(&r->staleness) > 0,                               \
                             number(dt_staleness_n_bins(&r->staleness) - 1)), "steps",             \
      "likewise, of the oldest")                                                                   \
    X("host_memory_peak_bytes", above_0(r->memory.host_peak), "bytes",                             \
      "resident, of the rank that had most")                                                       \
    X("gpu_memory_peak_bytes", when(r->memory.gpu_all > 0, number(r->memory.gpu_peak)), "bytes",   \
      "that dtrain allocated, of the GPU where it was most")                                       \
    X("gpu_memory_free_bytes", when(r->memory.gpu_all > 0, number(r->memory.gpu_free)), "bytes",   \
      "at the end, of the GPU with the least")                                                     \
    X("gpu_memory_bytes", above_0(r->memory.gpu_all), "bytes", "of the smallest GPU")              \
    X("checkpoint", text(r->checkpoint), "", "the last one's file, or empty")                      \
    X("started", number(sinks->started_s), "s", "as in metrics.jsonl, of the start that ended")    \
    X("version", text(dt_version), "", "of dtrain")

// clang-format on

enum dt_step_field { DT_STEP_FIELD_LIST(DT_NAMED_ENUM) DT_N_STEP_FIELDS };
enum dt_epoch_field { DT_EPOCH_FIELD_LIST(DT_NAMED_ENUM) DT_N_EPOCH_FIELDS };

extern const char *const dt_phase_names[]; /* of enum dt_phase */
extern const char dt_commit[]; /* as `git describe --always --dirty` has it, or "unknown" */

double dt_metrics_loss(const struct dt_metrics *m);     /* mean; NaN of nothing */
double dt_metrics_accuracy(const struct dt_metrics *m); /* share of 1 */

/* Bins up to the last that is not empty; 0: nothing was counted. */
int dt_staleness_n_bins(const struct dt_staleness *staleness);
double dt_staleness_mean(const struct dt_staleness *staleness);
/* "staleness of gradients, in steps: mean 1.9, most 5" and a row for each, with a bar. */
void dt_staleness_print(FILE *out, const struct dt_staleness *staleness);

/* Whether it is a column of metrics.csv; tested, validated: only without, with data.validation. */
enum dt_csv { DT_CSV_NO, DT_CSV_YES, DT_CSV_TESTED, DT_CSV_VALIDATED };

struct dt_field {
    const char *name, *unit, *tag, *meaning;
    enum dt_csv csv;
};

/* An object, or number `i` of a list, where `key` is NULL; r: the event, as the rows have it. */
typedef void (*dt_field_part_fn)(struct dt_json *json, const char *key, const void *r, int i);

/* The value of a field: a number, a text, a list, or an object; none of them: it is left out. */
struct dt_field_value {
    bool is_number, is_list;
    int digits; /* as dt_json_number has it */
    double number;
    const char *text;
    dt_field_part_fn put; /* the object, or one of `n` in the list */
    int n;
};

#define DT_MAX_FIELDS 44 /* of one kind of record */

/* A kind of record. */
struct dt_fields {
    const struct dt_field *rows;
    int n;
    /* Those of an event of this kind; what they point to stays as long as the event. */
    void (*read)(const struct dt_sinks *sinks, const struct dt_event *event,
                 struct dt_field_value values[DT_MAX_FIELDS]);
};
extern const struct dt_fields dt_run_fields, dt_step_fields, dt_audit_fields, dt_epoch_fields,
    dt_end_fields;

/* The event's fields, as members of an object. */
void dt_fields_put(struct dt_json *json, const struct dt_fields *fields,
                   const struct dt_sinks *sinks, const struct dt_event *event);

#endif
