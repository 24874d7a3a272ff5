/* Curves of a run, or of several over each other. */
#include "report/run.h"

#include <math.h>
#include <stdlib.h>

#define LEAST_POINTS 5     /* of a curve of steps alone */
#define SPEED_POINTS 100   /* of the throughput */
#define SPEED_LEAST_S 0.02 /* time of a point: records have milliseconds */

/* Results on the test and the validation samples: plain, EMA of the weights, top 5. */
#define N_RESULTS 3
static const int losses[2][N_RESULTS] = {
    {DT_EPOCH_TEST_LOSS, DT_EPOCH_EMA_TEST_LOSS, -1},
    {DT_EPOCH_VALIDATION_LOSS, DT_EPOCH_EMA_VALIDATION_LOSS, -1}};
static const int accuracies[2][N_RESULTS] = {
    {DT_EPOCH_TEST_ACCURACY, DT_EPOCH_EMA_TEST_ACCURACY, DT_EPOCH_TEST_TOP5},
    {DT_EPOCH_VALIDATION_ACCURACY, DT_EPOCH_EMA_VALIDATION_ACCURACY, DT_EPOCH_VALIDATION_TOP5}};
static const int r2s[2][N_RESULTS] = {{DT_EPOCH_TEST_R2, DT_EPOCH_EMA_TEST_R2, -1},
                                      {DT_EPOCH_VALIDATION_R2, DT_EPOCH_EMA_VALIDATION_R2, -1}};

/* A run's columns for a chart: of the steps, and of the epochs; -1: none. */
struct quantity {
    const char *title, *axis;
    double scale; /* shares are shown in percent */
    unsigned axes;
    int step, epoch;
    const int (*results)[N_RESULTS]; /* of the epochs; or NULL */
};

static const struct quantity quantities[] = {
    {"Loss", "loss", 1, DT_LOG_Y_IF_WIDE, DT_STEP_LOSS, DT_EPOCH_TRAIN_LOSS, losses},
    {"Accuracy", "accuracy, %", 100, 0, DT_STEP_ACCURACY, DT_EPOCH_TRAIN_ACCURACY, accuracies},
    {"R2", "R2", 1, 0, DT_STEP_R2, DT_EPOCH_TRAIN_R2, r2s},
    {"Gradient norm", "L2 norm", 1, DT_LOG_Y_IF_WIDE, DT_STEP_GRAD_NORM, -1, NULL},
    {"Learning rate", "learning rate", 1, 0, DT_STEP_LR, DT_EPOCH_LR, NULL},
    {"Throughput", "samples/s", 1, DT_FROM_ZERO, DT_STEP_IMAGES, DT_EPOCH_IMAGES, NULL},
};
#define N_QUANTITIES (sizeof quantities / sizeof quantities[0])
static const char *const sets[] = {"test", "validation"};
static const char *const result_names[] = {"", "EMA of the weights, ", "top 5, "},
                         *const result_titles[] = {"", " of the EMA of the weights", ", top 5,"};

/* ---- points */

struct points {
    size_t n;
    double *x, *y;
};

static enum dt_status open_points(size_t n, struct points *out)
{
    *out = (struct points){.x = calloc(2 * n + 1, sizeof *out->x)};
    out->y = out->x != NULL ? out->x + n : NULL;
    return out->x != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "no memory for the curves of a run");
}

static void add_point(struct points *p, double x, double y)
{
    if (isfinite(y)) {
        p->x[p->n] = x;
        p->y[p->n++] = y;
    }
}

/* A column of a table over another one. */
static enum dt_status take_column(const struct dt_record_table *table, int x, int y, double scale,
                                  struct points *out)
{
    DT_TRY(open_points(table->n, out));
    for (size_t i = 0; i < table->n; i++) {
        add_point(out, dt_record_cell(table, i, x), scale * dt_record_cell(table, i, y));
    }
    return DT_OK;
}

/* Throughput between recorded steps, of as many as make a point. What lies between two epochs or
 * two starts is no training. */
static enum dt_status take_speed(const struct dt_record *r, struct points *out)
{
    const struct dt_record_table *t = &r->steps, *restarts = &r->restarts;
    const size_t least = t->n / SPEED_POINTS;
    double samples = 0, seconds = 0, before = 0, began = 0, epoch = 0;
    size_t n = 0;
    DT_TRY(open_points(t->n, out));
    for (size_t i = 0, start = 0; i < t->n; i++) {
        const double step = dt_record_cell(t, i, DT_STEP_STEP),
                     at = dt_record_cell(t, i, DT_STEP_SECONDS);
        bool within = i > 0 && dt_record_cell(t, i, DT_STEP_EPOCH) == epoch && at >= began;
        for (; start < restarts->n && step > dt_record_cell(restarts, start, DT_RESTART_STEP);
             start++) {
            within = false;
        }
        const double batch = start < restarts->n ? dt_record_cell(restarts, start, DT_RESTART_BATCH)
                                                 : dt_record_number(r->start, "global_batch");
        within = within && batch > 0;
        samples += within ? (step - before) * batch : 0;
        seconds += within ? at - began : 0;
        n += within;
        if (n >= least && seconds >= SPEED_LEAST_S) {
            add_point(out, step, samples / seconds);
            samples = seconds = 0;
            n = 0;
        }
        before = step;
        began = at;
        epoch = dt_record_cell(t, i, DT_STEP_EPOCH);
    }
    return DT_OK;
}

/* ---- charts */

static int set_of(const struct dt_record *r)
{
    return r->config.data.validation > 0;
}

static bool has_results(const struct quantity *q)
{
    return q->results != NULL;
}

/* A chart is there from its first line on. */
struct chart {
    struct dt_doc *doc;
    const struct quantity *q;
    const char *title, *x;
    struct dt_part *part; /* or NULL */
};

/* Adds a line of points, which it frees, unless there are too few. */
static void add_line(struct chart *c, const char *name, struct points *p, enum dt_stroke stroke,
                     int color)
{
    const size_t least = stroke == DT_LINE && !has_results(c->q) ? LEAST_POINTS : 1;
    if (p->n >= least) {
        c->part = c->part != NULL ? c->part : dt_doc_series(c->doc, c->title, c->x, c->q->axis);
        dt_doc_axes(c->part, c->q->axes);
        dt_doc_line(
            c->part,
            &(struct dt_line){
                .name = name, .stroke = stroke, .n = p->n, .x = p->x, .y = p->y, .color = color});
    }
    free(p->x);
}

static enum dt_status add_steps(struct chart *c, const char *name, const struct dt_record *r,
                                int color)
{
    struct points points;
    DT_TRY(c->q->step == DT_STEP_IMAGES
               ? take_speed(r, &points)
               : take_column(&r->steps, DT_STEP_STEP, c->q->step, c->q->scale, &points));
    add_line(c, name, &points, DT_LINE, color);
    return DT_OK;
}

/* Over steps or epochs, as the chart is; column -1: none. */
static enum dt_status add_epochs(struct chart *c, const char *name, const struct dt_record *r,
                                 int column, int color)
{
    struct points points;
    if (column >= 0) {
        DT_TRY(take_column(&r->epochs, c->x[0] == 's' ? DT_EPOCH_STEP : DT_EPOCH_EPOCH, column,
                           c->q->scale, &points));
        add_line(c, name, &points, DT_LINE_AND_DOTS, color);
    }
    return DT_OK;
}

/* A rate that never changes is among the facts of the run. */
static bool is_constant(const struct dt_record_table *table, int column)
{
    bool same = true;
    for (size_t i = 1; i < table->n && same; i++) {
        same = dt_record_cell(table, i, column) == dt_record_cell(table, 0, column);
    }
    return same;
}

static enum dt_status add_one(struct dt_doc *doc, const struct dt_record *r,
                              const struct quantity *q)
{
    struct chart c = {doc, q, q->title, "step", NULL};
    DT_TRY(add_steps(&c, has_results(q) ? "train, a step" : "steps", r, 1));
    for (size_t i = 0; c.part != NULL && i < r->restarts.n; i++) {
        dt_doc_mark(c.part, dt_record_cell(&r->restarts, i, DT_RESTART_STEP), "started again");
    }
    c.x = c.part != NULL ? "step" : "epoch";
    if (c.part == NULL || q->step != DT_STEP_LR) {
        DT_TRY(add_epochs(&c, has_results(q) ? "train, mean of an epoch" : "an epoch", r, q->epoch,
                          3));
    }
    for (int i = 0; i < N_RESULTS && has_results(q); i++) {
        char name[64];
        snprintf(name, sizeof name, "%s, %safter an epoch", sets[set_of(r)], result_names[i]);
        DT_TRY(add_epochs(&c, name, r, q->results[set_of(r)][i], i == 0 ? 2 : 3 + i));
    }
    return DT_OK;
}

enum dt_status dt_run_curves_add(struct dt_doc *doc, const struct dt_record *r)
{
    for (size_t i = 0; i < N_QUANTITIES; i++) {
        if (quantities[i].step != DT_STEP_LR || !is_constant(&r->steps, DT_STEP_LR) ||
            !is_constant(&r->epochs, DT_EPOCH_LR)) {
            DT_TRY(add_one(doc, r, &quantities[i]));
        }
    }
    return DT_OK;
}

/* The training, by steps where there are any, or else by epochs. */
static enum dt_status add_training(struct chart *c, const struct dt_record *records,
                                   char names[DT_REPORT_MAX_RUNS][DT_RUN_NAME_SIZE], int n)
{
    for (int i = 0; i < n; i++) {
        if (records[i].steps.n >= LEAST_POINTS && c->q->step != DT_STEP_IMAGES) {
            DT_TRY(add_steps(c, names[i], &records[i], i + 1));
        } else {
            DT_TRY(add_epochs(c, names[i], &records[i], c->q->epoch, i + 1));
        }
    }
    return DT_OK;
}

/* A chart has results on samples of one kind: a loss on test samples and one on validation samples
 * are not to be compared. */
enum dt_status dt_runs_curves_add(struct dt_doc *doc, const struct dt_record *records,
                                  char names[DT_REPORT_MAX_RUNS][DT_RUN_NAME_SIZE], int n)
{
    for (size_t i = 0; i < N_QUANTITIES; i++) {
        const struct quantity *q = &quantities[i];
        char title[96];
        for (int k = 0; k < 2 * N_RESULTS && has_results(q); k++) {
            const int set = k / N_RESULTS, result = k % N_RESULTS;
            snprintf(title, sizeof title, "%s%s on the %s samples", q->title, result_titles[result],
                     sets[set]);
            struct chart c = {doc, q, title, "epoch", NULL};
            for (int run = 0; run < n; run++) {
                DT_TRY(add_epochs(&c, names[run], &records[run], q->results[set][result], run + 1));
            }
        }
        snprintf(title, sizeof title, "%s%s", q->title, has_results(q) ? " in training" : "");
        struct chart c = {doc, q, title, "step", NULL};
        DT_TRY(add_training(&c, records, names, n));
    }
    return DT_OK;
}
