#include "report/run.h"

#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/commands/eval.h"
#include "cli/commands/load.h"
#include "view/image.h"
#include "data/validation.h"
#include "model/checkpoint.h"
#include "report/page/page.h"
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

/* The evaluation is for the answers that are noted by the way. */
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

/* ---- the page */

static uint64_t count_of(const struct dt_learned *l, int label, int predicted)
{
    return (uint64_t)l->confusion[(size_t)label * (size_t)l->n_classes + (size_t)predicted];
}

static uint64_t largest_mistake(const struct dt_learned *l)
{
    uint64_t most = 1;
    for (int label = 0; label < l->n_classes; label++) {
        for (int predicted = 0; predicted < l->n_classes; predicted++) {
            most = label != predicted && count_of(l, label, predicted) > most
                       ? count_of(l, label, predicted)
                       : most;
        }
    }
    return most;
}

/* Right answers green, mistakes the redder the more there are. */
static void put_cell(FILE *out, const struct dt_learned *l, int label, int predicted, uint64_t most)
{
    const uint64_t n = count_of(l, label, predicted);
    if (label == predicted) {
        fprintf(out, "<td class=\"right\">%llu", (unsigned long long)n);
    } else if (n == 0) {
        fputs("<td>", out);
    } else {
        fprintf(out, "<td class=\"slip\" style=\"--share:%.0f%%\">%llu",
                10 + 60 * (double)n / (double)most, (unsigned long long)n);
    }
}

static void put_confusion(FILE *out, const struct dt_learned *l)
{
    const uint64_t most = largest_mistake(l);
    fputs(
        "<div class=\"card\"><h3>Confusion</h3><p>Rows: true class; columns: predicted class.</p>\n"
        "<div class=\"wide\"><table class=\"confusion\"><thead><tr><th>true \\ predicted",
        out);
    for (int k = 0; k < l->n_classes; k++) {
        fprintf(out, "<th>%d", k);
    }
    fputs("</thead><tbody>\n", out);
    for (int label = 0; label < l->n_classes; label++) {
        fprintf(out, "<tr><td>%d", label);
        for (int predicted = 0; predicted < l->n_classes; predicted++) {
            put_cell(out, l, label, predicted, most);
        }
        fputc('\n', out);
    }
    fputs("</tbody></table></div></div>\n", out);
}

static void put_share(FILE *out, uint64_t part, uint64_t all)
{
    if (all > 0) {
        fprintf(out, "<td>%.2f %%", 100 * (double)part / (double)all);
    } else {
        fputs("<td>", out);
    }
}

static void put_classes(FILE *out, const struct dt_learned *l)
{
    fputs("<div class=\"card\"><h3>Classes</h3><p>Precision: share of the predictions of a class "
          "that are correct. Recall: share of its samples that were found.</p>\n"
          "<div class=\"wide\"><table "
          "class=\"classes\"><thead><tr><th>class<th>samples<th>precision<th>recall</thead><tbody>"
          "\n",
          out);
    for (int k = 0; k < l->n_classes; k++) {
        uint64_t n_said = 0, n_label = 0;
        for (int other = 0; other < l->n_classes; other++) {
            n_said += count_of(l, other, k);
            n_label += count_of(l, k, other);
        }
        fprintf(out, "<tr><td>%d<td>%llu", k, (unsigned long long)n_label);
        put_share(out, count_of(l, k, k), n_said);
        put_share(out, count_of(l, k, k), n_label);
        fputc('\n', out);
    }
    fputs("</tbody></table></div></div>\n", out);
}

static void put_worst(FILE *out, const struct dt_learned *l)
{
    fprintf(out,
            "<div class=\"card\"><h3>The %d worst test samples</h3><p>Highest loss first: true "
            "class, predicted class, confidence.</p>\n<div class=\"worst\">\n",
            l->n_worst);
    for (int i = 0; i < l->n_worst; i++) {
        const struct dt_answer *a = &l->worst[i];
        fputs("<div>", out);
        if (l->images != NULL) {
            dt_page_image(out, l->shape, l->images + (size_t)i * dt_shape_elems(l->shape));
        }
        fprintf(out, "<b>%d</b>, predicted %d<br><small>%.1f %%, no. %u</small></div>\n", a->label,
                a->predicted, 100 * a->probability, a->id);
    }
    fputs("</div></div>\n", out);
}

/* Zero is grey; each filter by its own largest weight. */
static void put_filter(FILE *out, const struct dt_learned *l, int k)
{
    const struct dt_shape shape = {l->filter_c, l->filter_h, l->filter_w};
    const size_t n = dt_shape_elems(shape);
    const float *w = l->filters + (size_t)k * n;
    uint8_t *pixels = malloc(n);
    double most = 1e-30;
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)w[i]));
    }
    if (pixels == NULL) {
        (void)dt_error(DT_NO_MEMORY, "no memory for an image of a page");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        pixels[i] = (uint8_t)(127.5 + 127.4 * (double)w[i] / most);
    }
    dt_page_image(out, shape, pixels);
    free(pixels);
}

static void put_filters(FILE *out, const struct dt_learned *l)
{
    fputs("<div class=\"card\"><h3>Filters of the first layer</h3><p>White: the most positive "
          "weight, black: the most negative, grey: zero.</p>\n"
          "<div class=\"filters\">\n",
          out);
    for (int k = 0; k < l->n_filters; k++) {
        put_filter(out, l, k);
    }
    fputs("</div></div>\n", out);
}

void dt_run_learned_draw(FILE *out, const struct dt_learned *l)
{
    fputs("<h2 class=\"part\">What it learned</h2>\n", out);
    if (l->why_not[0] != '\0') {
        fputs("<p>Not shown: ", out);
        dt_page_text(out, l->why_not);
        fputs("</p>\n", out);
        return;
    }
    fputs("<div class=\"cards learned\">\n", out);
    if (l->confusion != NULL) {
        put_confusion(out, l);
        put_classes(out, l);
    }
    put_worst(out, l);
    if (l->filters != NULL) {
        put_filters(out, l);
    }
    fputs("</div>\n", out);
}
