#include "cli/commands/eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/commands/load.h"
#include "cli/commands/model_table.h"
#include "cli/config/config.h"
#include "cli/result.h"
#include "cli/sinks/fields.h"
#include "data/bad_images.h"
#include "data/validation_split.h"
#include "model/layers/layers.h"
#include "model/own_memory.h"
#include "train/evaluate.h"
#include "train/hooks/learned.h"
#include "train/parts.h"
#include "train/rank_checks.h"
#include "train/save/saved.h"
#include "train/trainer.h"

#define EVAL_BATCH 256
#define MOST_CONFUSED 20 /* classes */

enum dt_status dt_trained_weights(const struct dt_trained *from,
                                  const struct dt_checkpoint_file *file,
                                  const struct dt_model *model, float *arena)
{
    if (!from->ema) {
        return dt_checkpoint_get(file, model, arena, 0, NULL);
    }
    if (!dt_checkpoint_has_ema(file, model)) {
        return dt_error(DT_CONFIG,
                        "--ema: %s has no average of the weights (leave --ema out, or train with "
                        "train.ema)",
                        from->file);
    }
    dt_checkpoint_get_ema(file, model, arena);
    return DT_OK;
}

static enum dt_status load_weights(const struct dt_trained *from, struct dt_inference *inference,
                                   const struct dt_checkpoint_file *file)
{
    const size_t n = inference->model.arena_elems;
    float *arena = calloc(n, sizeof *arena);
    if (arena == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the weights");
    }
    enum dt_status s;
    DT_TRY_GOTO(s, dt_trained_weights(from, file, &inference->model, arena), out);
    DT_TRY_GOTO(s, dt_model_reorder(&inference->model, false, arena), out);
    DT_TRY_GOTO(s,
                inference->backend->ops->copy_in(inference->backend, inference->network->params,
                                                 arena, n * sizeof *arena),
                out);
    s = dt_buffers_load(inference->network, file);
out:
    free(arena);
    return s;
}

static enum dt_ground ground_of(const struct dt_checkpoint_file *file)
{
    const bool known = file->config != NULL && file->state.bright_borders != DT_CHECKPOINT_UNKNOWN;
    return known ? dt_ground_of(file->state.bright_borders, file->state.n_train)
                 : DT_GROUND_UNKNOWN;
}

enum dt_status dt_trained_open(const struct dt_trained *from, struct dt_config *config,
                               struct dt_model *model, struct dt_checkpoint_file *file)
{
    if (from->config == NULL) {
        char path[DT_CHECKPOINT_PATH_SIZE];
        DT_TRY(dt_saved_find(from->file, true, path));
        DT_TRY(dt_checkpoint_open(path, file));
        return dt_saved_check(&dt_config_json, path, file, config, model);
    }
    *config = *from->config;
    if (config->data.normalize.of_dataset) {
        return dt_error(DT_CONFIG,
                        "data.normalize: weights alone do not say the training images' mean and "
                        "std (give the numbers, or a checkpoint, which has them)");
    }
    DT_TRY(dt_model_lower(&config->model, model));
    return dt_saved_weights(from->file, model, file);
}

static enum dt_status read_file(const struct dt_trained *from, struct dt_checkpoint_file *file,
                                struct dt_inference *out)
{
    DT_TRY(dt_trained_open(from, &out->config, &out->model, file));
    dt_data_spec_fit(&out->config.data, &out->model);
    out->ground = ground_of(file);
    if (from->config != NULL || file->class_names == NULL) {
        return DT_OK;
    }
    out->class_names = strdup(file->class_names);
    return out->class_names != NULL
               ? DT_OK
               : dt_error(DT_NO_MEMORY, "%s: no memory for the classes' names", from->file);
}

/* The device of the training is only preferred here: the weights fit any device. */
static enum dt_status choose_device(struct dt_world *world, struct dt_inference *out)
{
    struct dt_config *config = &out->config;
    const bool wants_gpu = config->device == DT_DEVICE_CUDA;
    struct dt_config wish = *config;
    wish.device = wants_gpu ? DT_DEVICE_AUTO : config->device;
    wish.precision = DT_PRECISION_F32;
    wish.dist.allreduce = DT_ALLREDUCE_AUTO;
    DT_TRY(dt_device_choose(world, &wish, &out->device));
    if (out->device.module == NULL) {
        config->precision = DT_PRECISION_F32;
    }
    if (out->device.module == NULL && wants_gpu && world->rank == 0) {
        dt_text_print(stderr, "device: cpu, because %s", out->device.why);
    }
    return DT_OK;
}

static enum dt_status open_network(const struct dt_world *world, const struct dt_trained *from,
                                   const struct dt_checkpoint_file *file, int n_threads,
                                   int capacity, struct dt_inference *out)
{
    const struct dt_backend_options options = {
        .n_threads = out->config.threads > 0 ? (int)out->config.threads : n_threads,
        .local_rank = world->local_rank,
        .precision = out->config.precision,
        .deterministic = true, /* one pass over the images is too short for trials of kernels */
        .limit_s = world->comm != NULL ? dt_comm_timeout_s(world->comm) : 0};
    DT_TRY(out->device.backend->open(&options, &out->backend));
    DT_TRY(dt_network_open_alone(&out->model, out->backend, capacity, &out->network));
    return load_weights(from, out, file);
}

enum dt_status dt_inference_open(struct dt_world *world, const struct dt_trained *from,
                                 int n_threads, int capacity, struct dt_inference *out)
{
    struct dt_checkpoint_file file = {0};
    *out = (struct dt_inference){0};
    enum dt_status s;
    DT_TRY_GOTO(s, dt_world_agree(world, read_file(from, &file, out)), out);
    if (file.prefix[0] != '\0' && world->rank == 0) {
        dt_text_print(stderr, "%s: names without '%s'", from->file, file.prefix);
    }
    DT_TRY_GOTO(s, choose_device(world, out), out);
    s = dt_world_agree(world, open_network(world, from, &file, n_threads, capacity, out));
out:
    dt_checkpoint_close(&file);
    if (s != DT_OK) {
        dt_inference_close(out);
    }
    return s;
}

void dt_inference_close(struct dt_inference *inference)
{
    dt_network_close(inference->network);
    if (inference->backend != NULL) {
        inference->backend->ops->close(inference->backend);
    }
    free(inference->class_names);
    *inference = (struct dt_inference){0};
}

enum dt_status dt_inference_evaluator(struct dt_world *world, const char *file,
                                      const struct dt_inference *inference,
                                      const struct dt_data_spec *spec, struct dt_evaluator *out)
{
    DT_TRY(dt_evaluator_open_all(world, spec, inference->network, out));
    const enum dt_status s = dt_world_agree(
        world, dt_saved_same_classes(file, inference->class_names, out->set.data.class_names));
    if (s != DT_OK) {
        dt_evaluator_close(out);
    }
    return s;
}

static enum dt_status open_evaluator(struct dt_world *world, const struct dt_trained *from,
                                     const char *data, struct dt_inference *inference,
                                     struct dt_evaluator *evaluator)
{
    struct dt_data_spec spec = dt_validation_none(&inference->config.data);
    DT_TRY(dt_world_agree(world, dt_load_data_dir(&spec, data)));
    enum dt_status s = dt_world_agree(world, dt_bad_images_open(&spec));
    s = s == DT_OK ? dt_inference_evaluator(world, from->file, inference, &spec, evaluator) : s;
    if (spec.bad != NULL && spec.bad->told != NULL && world->rank == 0) {
        dt_text_print(stderr, "bad images left out: %s", spec.bad->told);
    }
    dt_bad_images_close(&spec);
    return s;
}

/* The loss of finite, but large weights may not be finite. */
static enum dt_status check_loss(const char *file, double loss)
{
    if (isfinite(loss)) {
        return DT_OK;
    }
    return dt_error_agreed(
        dt_error(DT_NON_FINITE,
                 "%s: the test loss is %s (its training diverged: take an earlier checkpoint)",
                 file, isnan(loss) ? "not a number" : "infinite"));
}

static enum dt_status show(const struct dt_args *args, const struct dt_metrics *test,
                           const struct dt_learned *learned, const struct dt_config *config)
{
    char text[160];
    struct dt_doc *doc = dt_doc_open("eval", "Test result");
    struct dt_part *figures = dt_doc_figures(doc, "Result");
    dt_doc_figure(figures, "test loss::4", dt_n(dt_metrics_loss(test)));
    if (config->model.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY) {
        dt_doc_figure(figures, "test accuracy::%", dt_n(dt_metrics_accuracy(test)));
    } else if (dt_config_has_r2(config)) {
        dt_doc_figure(figures, "test R2::4", dt_n(dt_metrics_accuracy(test)));
    }
    if (dt_learned_has_top5(learned)) {
        dt_doc_figure(figures, "test top-5 accuracy::%",
                      dt_n(learned->answers.n_top5 / test->n_samples));
    }
    dt_doc_figure(figures, "samples::0", dt_n(test->n_samples));
    if (learned->confusion != NULL && learned->n_classes <= MOST_CONFUSED) {
        dt_confusion_add(doc, learned);
    }
    dt_result_text("test", test, config, "", text, sizeof text);
    dt_doc_verdict(doc, DT_NO_VERDICT, "%s", text);
    const enum dt_status s = dt_result_show(args, doc);
    dt_doc_close(doc);
    return s;
}

static enum dt_status measure(struct dt_world *world, const struct dt_trained *from,
                              const struct dt_args *args, struct dt_inference *inference,
                              struct dt_evaluator *evaluator, struct dt_learned *learned)
{
    const bool classifies = inference->config.model.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY;
    struct dt_metrics test = {0};
    DT_TRY(open_evaluator(world, from, dt_args_text(args, DT_OPTION_DATA), inference, evaluator));
    if (classifies) {
        DT_TRY(dt_world_agree(world, dt_learned_open(evaluator, learned)));
    }
    DT_TRY(dt_evaluator_run(evaluator, &test));
    DT_TRY(check_loss(from->file, dt_metrics_loss(&test)));
    return dt_world_agree(world, world->rank == 0 ? show(args, &test, learned, &inference->config)
                                                  : DT_OK);
}

enum dt_status dt_trained_check(const struct dt_args *args, int n_least, const char *more)
{
    const char *word = args->command->word;
    const bool bare = dt_args_has(args, DT_OPTION_WEIGHTS);
    const int n = args->values[DT_PATHS].n - !bare;
    if (n < 0 || (n_least > 0 && n < n_least)) {
        return dt_error(DT_USAGE,
                        "%s: %s is required (dtrain %s RUN%s, RUN being the folder of a "
                        "run; or %s --config FILE --weights FILE)",
                        word, n < 0 ? "RUN" : more + 1, word, more, word);
    }
    if (n_least == 0 && n > 0) {
        return dt_error(DT_USAGE, "%s: '%.60s' is one word too many (dtrain %s %s)", word,
                        dt_args_text(args, DT_PATHS), word,
                        bare ? "--config FILE --weights FILE" : "RUN");
    }
    if (bare && !dt_args_has(args, DT_OPTION_CONFIG)) {
        return dt_error(DT_USAGE,
                        "%s: --weights FILE needs --config FILE, which describes the model", word);
    }
    if (!bare && (dt_args_has(args, DT_OPTION_CONFIG) || dt_args_has(args, DT_OPTION_SET))) {
        return dt_error(
            DT_USAGE,
            "%s: --config and --set go with --weights (a checkpoint carries its configuration)",
            word);
    }
    return DT_OK;
}

struct dt_values dt_trained_words(const struct dt_args *args)
{
    const struct dt_values *v = &args->values[DT_PATHS];
    const int n_before = dt_args_has(args, DT_OPTION_WEIGHTS) ? 0 : 1;
    return (struct dt_values){v->texts + n_before, v->n - n_before};
}

enum dt_status dt_trained_find(struct dt_world *world, const struct dt_args *args,
                               struct dt_config *config, struct dt_trained *out)
{
    *out = (struct dt_trained){.file = dt_args_text(args, DT_OPTION_WEIGHTS),
                               .ema = dt_args_has(args, DT_OPTION_EMA)};
    if (out->file == NULL) {
        out->file = args->values[DT_PATHS].texts[0];
        return DT_OK;
    }
    out->config = config;
    return dt_world_agree(world, dt_load_config(args, config));
}

static enum dt_status check(const struct dt_args *args)
{
    return dt_trained_check(args, 0, "");
}

static enum dt_status run(struct dt_world *world, const struct dt_args *args)
{
    struct dt_config config;
    struct dt_trained from;
    struct dt_inference inference = {0};
    struct dt_evaluator evaluator = {0};
    struct dt_learned learned = {.n_classes = 0};
    int n_threads = 1;
    DT_TRY(dt_trained_find(world, args, &config, &from));
    DT_TRY(dt_ranks_threads(world, 0, &n_threads));
    DT_TRY(dt_inference_open(world, &from, n_threads, EVAL_BATCH, &inference));
    const enum dt_status s = measure(world, &from, args, &inference, &evaluator, &learned);
    dt_learned_close(&learned);
    if (evaluator.network != NULL) {
        dt_evaluator_close(&evaluator);
    }
    dt_inference_close(&inference);
    return s;
}

const struct dt_command dt_command_eval = {
    .word = "eval",
    .meaning = "measure a run on the test samples",
    .usage = "dtrain eval (RUN | --config FILE --weights FILE) [--ema] [--data DIR]\n"
             "      [--set KEY.PATH=VALUE]..." DT_RESULT_USAGE,
    .examples = "  dtrain eval runs/night\n"
                "  dtrain eval runs/night:last\n"
                "  dtrain eval runs/night/checkpoints/step-000000001416.safetensors\n",
    .more = DT_RUN_WORD " All ranks share the test samples.",
    .options = {DT_TRAINED_OPTIONS,
                [DT_OPTION_DATA] =
                    {DT_TAKEN, "folder of the test images, in place of the checkpoint's data.dir"},
                DT_RESULT_OPTIONS},
    .check = check,
    .needs_no_ranks = true,
    .together = run,
};
