#include "train/save/saver.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "data/bad_images.h"
#include "dist/strategy/replica_check.h"
#include "train/save/border.h"
#include "train/save/state.h"

/* This rank's part of the images that break a rule. Ranks read shares of the samples, or each of
 * them all; the test samples are read at the end where others validate. */
static double count_flawed(const struct dt_trainer *t)
{
    const bool validates = t->config.data.validation > 0,
               shares = t->config.sharding == DT_SHARDING_SHARD && !validates;
    return (double)t->set.data.n_flawed / (shares ? 1 : t->roles.n_workers) +
           (validates ? 0 : (double)t->evaluator.set.data.n_flawed);
}

static void warn(const struct dt_trainer *t, const struct dt_emitter *emitter, const char *warning)
{
    if (t->world->rank == 0) {
        emitter->emit(emitter->context,
                      &(struct dt_event){.kind = DT_EVENT_WARNING, .warning = warning});
    }
}

/* Of a test set that is not there, and of what is there and not used. */
static enum dt_status warn_of_files(const struct dt_trainer *t, const struct dt_emitter *emitter)
{
    char *text = NULL;
    size_t n_text = 0;
    const size_t n_passed = t->set.data.n_passed;
    const struct dt_bad_images *bad = t->config.data.bad;
    FILE *file = open_memstream(&text, &n_text);
    if (file != NULL && t->config.data.validation > 0 && t->n_test == 0) {
        fprintf(file, "there is no test set: the result is that of the validation samples");
    }
    if (file != NULL && n_passed > 0) {
        fprintf(file, "%s%zu file%s beside the images, such as Thumbs.db, passed over",
                ftell(file) > 0 ? "; " : "", n_passed, n_passed == 1 ? "" : "s");
    }
    if (file != NULL && t->set.data.left_out[0] != '\0') {
        fprintf(file, "%scolumns of text left out: %s", ftell(file) > 0 ? "; " : "",
                t->set.data.left_out);
    }
    if (file != NULL && bad != NULL && bad->told != NULL) {
        fprintf(file, "%s%zu bad images left out (data.skip_bad is %lld): %s",
                ftell(file) > 0 ? "; " : "", bad->n_skipped[0] + bad->n_skipped[1],
                (long long)t->config.data.skip_bad, bad->told);
    }
    if (!dt_text_close(file, &text)) {
        return dt_error(DT_NO_MEMORY, "no memory for the names of images");
    }
    if (text[0] != '\0') {
        warn(t, emitter, text);
    }
    free(text);
    return DT_OK;
}

/* This rank's training samples whose class is in the upper half of the model's. */
static double count_upper_half(const struct dt_samples *samples)
{
    size_t n = 0;
    for (size_t i = 0; samples->labels != NULL && i < samples->n; i++) {
        n += samples->labels[i] >= samples->n_classes / 2;
    }
    return (double)n;
}

/* Counts the training images with a bright border. Warns of images that break a rule, and of a
 * model with more classes than the samples have. */
static enum dt_status inspect_images(struct dt_trainer *t, const struct dt_emitter *emitter)
{
    const struct dt_samples *samples = &t->set.data.samples;
    const bool images = samples->pixels != NULL;
    char warning[160];
    double sums[] = {images ? (double)dt_border_count_bright(samples) : 0, (double)samples->n,
                     count_flawed(t), count_upper_half(samples)};
    DT_TRY(dt_comm_allreduce(t->world->comm, sums, 4, DT_TYPE_F64, DT_REDUCE_SUM,
                             "sum of bright borders"));
    if (sums[2] >= 0.5) {
        snprintf(warning, sizeof warning,
                 "JPEG images that break a rule of the format, such as by extra bytes: %.0f; they "
                 "have all their pixels and are used",
                 sums[2]);
        warn(t, emitter, warning);
    }
    if (sums[3] < 0.5 && samples->n_classes > 2 &&
        samples->n_total >= 10 * (size_t)samples->n_classes) {
        snprintf(warning, sizeof warning,
                 "the model has %d classes, but no training sample has a label from %d on (let the "
                 "last layer have as many units as there are classes)",
                 samples->n_classes, samples->n_classes / 2);
        warn(t, emitter, warning);
    }
    DT_TRY(dt_world_agree(t->world, warn_of_files(t, emitter)));
    t->state.bright_borders = images
                                  ? (uint64_t)(sums[0] * (double)samples->n_total / sums[1] + 0.5)
                                  : DT_CHECKPOINT_UNKNOWN;
    DT_ASSERT(!images || t->state.bright_borders <= t->state.n_train);
    return DT_OK;
}

/* Each worker takes its share of the samples, whichever it has read. */
static enum dt_status hash_samples(struct dt_trainer *t)
{
    const bool takes = !t->roles.whole || t->world->rank == 0;
    t->state.data_hash = takes ? dt_fingerprint(&t->set.data.samples, (uint32_t)t->roles.worker,
                                                (uint32_t)t->roles.n_workers)
                               : 0;
    return dt_comm_allreduce(t->world->comm, &t->state.data_hash, 1, DT_TYPE_U64, DT_REDUCE_SUM,
                             "sum of the training samples' hashes");
}

/* The records come first: they may be beyond reading, and then the configuration stays, too. */
static enum dt_status begin(struct dt_folder_saver *f, const struct dt_trainer *t,
                            const struct dt_emitter *emitter)
{
    const struct dt_folder_event folder = {.config = &t->config,
                                           .dir = &f->dir,
                                           .world_size = t->world->size,
                                           .step = t->state.step,
                                           .n_epochs = t->state.epoch,
                                           .resumes = f->resume};
    DT_TRY(emitter->emit(emitter->context,
                         &(struct dt_event){.kind = DT_EVENT_FOLDER, .folder = &folder}));
    DT_TRY(dt_run_dir_write(&f->dir, "config.json", t->written.text));
    dt_run_dir_begin(&f->dir);
    return DT_OK;
}

static enum dt_status begin_folder(struct dt_saver *saver, struct dt_trainer *t,
                                   const struct dt_emitter *emitter)
{
    struct dt_folder_saver *f = (struct dt_folder_saver *)saver;
    return dt_world_agree(t->world, t->world->rank == 0 ? begin(f, t, emitter) : DT_OK);
}

/* The console says it once, before the first step. */
static void tell_lacking(const struct dt_folder_saver *f, const struct dt_trainer *t,
                         const struct dt_emitter *emitter)
{
    char lacking[256], text[DT_PATH_SIZE + 320];
    if (t->world->rank == 0 && dt_file_lacking(lacking, sizeof lacking)) {
        snprintf(text, sizeof text, "%s: the file system has %s", f->dir.path, lacking);
        emitter->emit(emitter->context,
                      &(struct dt_event){.kind = DT_EVENT_WARNING, .warning = text});
    }
}

/* Only rank 0 has read them. With `broadcast` the caller broadcasts, whoever made the weights. */
static enum dt_status take_weights(struct dt_folder_saver *f, struct dt_trainer *t,
                                   const struct dt_emitter *emitter)
{
    if (f->resume) {
        DT_TRY(dt_trainer_restore(t, &f->dir, emitter, f->checkpoint, f->resumed_from, f->changes));
    }
    if (f->resumed_from[0] == '\0' && f->weights != NULL) {
        char text[DT_FIT_TEXT_SIZE];
        DT_TRY(dt_trainer_take_weights(t, f->weights, text));
        if (text[0] != '\0') {
            emitter->emit(emitter->context,
                          &(struct dt_event){.kind = DT_EVENT_WARNING, .warning = text});
        }
        f->saver.weights_from = f->weights;
    }
    const bool read = f->resumed_from[0] != '\0' || f->saver.weights_from != NULL;
    return read && !t->config.dist.broadcast ? dt_strategy_broadcast(t->strategy) : DT_OK;
}

static enum dt_status open_folder(struct dt_saver *saver, struct dt_trainer *t,
                                  const struct dt_emitter *emitter)
{
    struct dt_folder_saver *f = (struct dt_folder_saver *)saver;
    f->dir.lock = -1;
    f->resumed_from[0] = f->saved[0] = f->best[0] = f->changes[0] = '\0';
    saver->resumed_from = f->resumed_from;
    saver->changes = f->changes;
    saver->checkpoint = f->saved;
    saver->best = f->best;
    DT_TRY(dt_run_dir_open(t->world, f->run_dir, t->config.name, f->resume, &f->dir));
    DT_TRY(inspect_images(t, emitter));
    DT_TRY(hash_samples(t));
    tell_lacking(f, t, emitter);
    DT_TRY(take_weights(f, t, emitter));
    if (t->config.checkpoint_best != DT_TEST_NONE && t->state.best_epoch > 0) {
        (void)dt_checkpoint_best_path(f->dir.checkpoints, f->best);
    }
    return DT_OK;
}

static enum dt_status save(struct dt_saver *saver, struct dt_trainer *t, bool best)
{
    struct dt_folder_saver *f = (struct dt_folder_saver *)saver;
    DT_TRY(dt_strategy_share_weights(t->strategy));
    DT_TRY(dt_strategy_collect_state(t->strategy));
    if (t->config.dist.check_every > 0 && dt_replicas_are_equal(&t->config.dist)) {
        DT_TRY(dt_replicas_compare(t)); /* rank 0 speaks for all only if all are equal */
    }
    DT_ASSERT(f->dir.path[0] != '\0');
    return dt_trainer_save(t, &f->dir, best, best ? f->best : f->saved);
}

/* Rank 0 knows whether there is one. */
static enum dt_status take_best(struct dt_saver *saver, struct dt_trainer *t, bool *taken)
{
    *taken = t->world->rank == 0 && t->state.best_epoch > 0 && saver->best[0] != '\0';
    DT_TRY(dt_comm_broadcast(t->world->comm, taken, sizeof *taken, 0,
                             "broadcast of whether there is a best checkpoint"));
    return *taken ? dt_trainer_take_best(t, saver->best) : DT_OK;
}

static void close_folder(struct dt_saver *saver)
{
    dt_run_dir_close(&((struct dt_folder_saver *)saver)->dir);
}

const struct dt_saver_ops dt_folder_saver_ops = {.open = open_folder,
                                                 .begin = begin_folder,
                                                 .save = save,
                                                 .take_best = take_best,
                                                 .close = close_folder};
