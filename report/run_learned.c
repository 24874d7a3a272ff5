/* What the model of a run learned: its confusion, worst samples and filters. */
#include "report/run.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "cli/commands/eval.h"
#include "cli/commands/load.h"
#include "cli/commands/model_table.h"
#include "data/validation_split.h"
#include "train/evaluate.h"
#include "train/save/saved.h"
#include "train/trainer.h"

#define BATCH 256
#define MOST_GENERATED 100000 /* test samples, and values of them all: */
#define MOST_VALUES ((size_t)1 << 28)

/* ---- finding out */

/* Of the weights that were tested: the best ones, or the newest. */
static enum dt_status find_checkpoint(const struct dt_record *r, char path[DT_CHECKPOINT_PATH_SIZE])
{
    char dir[DT_PATH_SIZE + 16];
    uint64_t *steps = NULL;
    size_t n = 0;
    if (isfinite(dt_record_number(r->summary, "tested_epoch"))) {
        return dt_saved_find(r->path, true, path);
    }
    snprintf(dir, sizeof dir, "%s/checkpoints", r->path);
    DT_TRY(dt_checkpoint_list(dir, &steps, &n));
    const enum dt_status s = n > 0 ? dt_checkpoint_path(dir, steps[0], path)
                                   : dt_error(DT_NO_INPUT, "there is no checkpoint");
    free(steps);
    return s;
}

/* The evaluation is for the answers that are noted during it. */
static enum dt_status evaluate(struct dt_evaluator *evaluator, struct dt_learned *out)
{
    struct dt_metrics test;
    DT_TRY(dt_learned_open(evaluator, out));
    return out->why_not[0] == '\0' ? dt_evaluator_run(evaluator, &test)
                                   : dt_error(DT_CONFIG, "%s", out->why_not);
}

/* The run may be a stranger's: its checkpoint must neither name a folder whose images then lie in
 * the stranger's page, nor cost much more than its bytes. */
static enum dt_status check_data(const struct dt_record *r, const char *checkpoint,
                                 const struct dt_data_spec *spec)
{
    struct stat run, saved;
    const uid_t user = geteuid();
    const size_t n_values = dt_shape_elems(spec->shape);
    if (!spec->whole->generated) {
        return stat(r->path, &run) == 0 && stat(checkpoint, &saved) == 0 && run.st_uid == user &&
                       saved.st_uid == user
                   ? DT_OK
                   : dt_error(DT_NO_PERMISSION,
                              "the run is another user's, and its data folder is read only if you "
                              "name it (add --data %.200s)",
                              spec->dir);
    }
    return spec->n_test <= MOST_GENERATED && n_values <= MOST_VALUES / (spec->n_test + 1)
               ? DT_OK
               : dt_error(DT_USAGE,
                          "the run generates %zu test samples of %zu values, a report at most %d "
                          "(dtrain eval tests them all)",
                          spec->n_test, n_values, MOST_GENERATED);
}

static enum dt_status find(const struct dt_record *r, const char *data, struct dt_learned *out)
{
    struct dt_world alone = {.size = 1, .local_size = 1};
    struct dt_inference inference = {0};
    struct dt_evaluator evaluator = {0};
    char path[DT_CHECKPOINT_PATH_SIZE];
    const struct dt_trained from = {.file = path};
    enum dt_status s;
    DT_TRY(find_checkpoint(r, path));
    DT_TRY(dt_comm_open_self(&alone.comm));
    DT_TRY_GOTO(s, dt_inference_open(&alone, &from, 1, BATCH, &inference), out);
    struct dt_data_spec spec = dt_validation_none(&inference.config.data);
    DT_TRY_GOTO(s, data != NULL ? dt_load_data_dir(&spec, data) : check_data(r, path, &spec), out);
    DT_TRY_GOTO(s, dt_inference_evaluator(&alone, path, &inference, &spec, &evaluator), out);
    s = evaluate(&evaluator, out);
    if (s != DT_OK) {
        dt_learned_close(out);
    }
    dt_evaluator_close(&evaluator);
out:
    dt_inference_close(&inference);
    dt_comm_close(alone.comm);
    return s;
}

enum dt_status dt_learned_find(const struct dt_record *r, const char *data, struct dt_learned *out)
{
    *out = (struct dt_learned){.why_not = ""};
    const enum dt_status s = find(r, data, out);
    if (s == DT_OK || s == DT_NO_MEMORY || data != NULL) {
        return s;
    }
    snprintf(out->why_not, sizeof out->why_not, "%s", dt_error_text());
    if (s != DT_CONFIG) { /* a model without classes is no news */
        dt_text_print(stderr, "what the model learned is not shown: %s", out->why_not);
    }
    dt_error_clear();
    return DT_OK;
}

/* ---- its parts */

static void add_confusion(struct dt_doc *doc, const struct dt_learned *l)
{
    const size_t n = (size_t)l->n_classes;
    dt_confusion_add(doc, l);
    struct dt_part *table = dt_doc_table(doc, "Classes", "class|samples::0|precision::%|recall::%");
    dt_doc_caption(table, "Precision: share of the predictions of a class that are correct. "
                          "Recall: share of its samples that were found.");
    for (size_t k = 0; k < n; k++) {
        const double right = l->confusion[k * n + k];
        double predicted = 0, samples = 0;
        for (size_t other = 0; other < n; other++) {
            predicted += l->confusion[other * n + k];
            samples += l->confusion[k * n + other];
        }
        dt_doc_row(table, dt_t(dt_class_text(doc, l->class_names, (int)k)), dt_n(samples),
                   dt_n(right / predicted), dt_n(right / samples));
    }
    dt_doc_detail(table);
}

/* A picture of one channel or three; `values` has room for its pixels. */
static struct dt_part *add_picture(struct dt_doc *doc, const char *title, struct dt_shape shape,
                                   const uint8_t *pixels, double *values)
{
    const size_t n = (size_t)shape.h * (size_t)shape.w;
    for (size_t i = 0; i < n; i++) {
        values[i] = shape.c == 3 ? 65536.0 * pixels[i] + 256.0 * pixels[n + i] + pixels[2 * n + i]
                                 : pixels[i];
    }
    return dt_doc_grid(doc, title, shape.c == 3 ? DT_GRID_COLORS : DT_GRID_PIXELS, (size_t)shape.h,
                       (size_t)shape.w, values);
}

static void add_worst(struct dt_doc *doc, const struct dt_learned *l, double *values)
{
    struct dt_part *table = dt_doc_table(
        doc, "Worst test samples", "sample::+|true class|predicted class|confidence::%|loss::4");
    for (int i = 0; i < l->n_worst; i++) {
        const struct dt_answer *a = &l->worst[i];
        dt_doc_row(table, dt_n(a->id), dt_t(dt_class_text(doc, l->class_names, a->label)),
                   dt_t(dt_class_text(doc, l->class_names, a->predicted)), dt_n(a->probability),
                   dt_n(a->loss));
    }
    dt_doc_detail(table);
    if (l->images != NULL && l->n_worst > 0) {
        dt_doc_text(doc,
                    "The %d worst test samples, highest loss first: true class → predicted class, "
                    "confidence, number of the sample.",
                    l->n_worst);
    }
    for (int i = 0; i < l->n_worst && l->images != NULL; i++) {
        const struct dt_answer *a = &l->worst[i];
        const char *title =
            dt_doc_print(doc, "%s → %s", dt_class_text(doc, l->class_names, a->label),
                         dt_class_text(doc, l->class_names, a->predicted));
        struct dt_part *picture = add_picture(
            doc, title, l->shape, l->images + (size_t)i * dt_shape_elems(l->shape), values);
        dt_doc_caption(picture, "%.1f %% · %u", 100 * a->probability, a->id);
    }
}

/* Zero is grey; each filter by its own largest weight. */
static void add_filters(struct dt_doc *doc, const struct dt_learned *l, uint8_t *pixels,
                        double *values)
{
    const struct dt_shape shape = {l->filter_c, l->filter_h, l->filter_w};
    const size_t n = dt_shape_elems(shape);
    dt_doc_text(doc, "Filters of the first layer: white is the most positive weight, black the "
                     "most negative, grey zero.");
    for (int k = 0; k < l->n_filters; k++) {
        const float *w = l->filters + (size_t)k * n;
        double most = 1e-30;
        for (size_t i = 0; i < n; i++) {
            most = fmax(most, fabs((double)w[i]));
        }
        for (size_t i = 0; i < n; i++) {
            pixels[i] = (uint8_t)(127.5 + 127.4 * (double)w[i] / most);
        }
        add_picture(doc, dt_doc_print(doc, "filter %d", k), shape, pixels, values);
    }
}

enum dt_status dt_run_learned_add(struct dt_doc *doc, const struct dt_learned *l)
{
    const size_t n_image = dt_shape_elems(l->shape),
                 n_filter = (size_t)l->filter_c * (size_t)l->filter_h * (size_t)l->filter_w,
                 n = n_image > n_filter ? n_image : n_filter;
    dt_doc_section(doc, "What it learned");
    if (l->why_not[0] != '\0') {
        dt_doc_text(doc, "Not shown: %s", l->why_not);
        return DT_OK;
    }
    double *values = calloc(n + 1, sizeof *values + 1);
    if (values == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the pictures of a run");
    }
    if (l->confusion != NULL) {
        add_confusion(doc, l);
    }
    add_worst(doc, l, values);
    if (l->filters != NULL) {
        add_filters(doc, l, (uint8_t *)(values + n + 1), values);
    }
    free(values);
    return DT_OK;
}
