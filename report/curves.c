/* Curves of a run, or of several over each other. */
#include "report/run.h"

#include <math.h>
#include <stdlib.h>

#define LEAST_POINTS 5     /* of a curve of steps alone */
#define SPEED_POINTS 100   /* of the throughput */
#define SPEED_LEAST_S 0.02 /* time of a point: records have milliseconds */

/* A run's columns for a chart: of the steps, and of the epochs; -1: none. */
struct quantity {
    const char *title, *axis;
    double scale; /* shares are shown in percent */
    unsigned axes;
    int step, epoch;
    int results[2][3]; /* of the test and the validation samples: plain, EMA, top 5 */
};

#define NO_RESULTS     \
    {                  \
        {-1, -1, -1},  \
        {              \
            -1, -1, -1 \
        }              \
    }
static const struct quantity quantities[] = {
    {"Loss",
     "loss",
     1,
     DT_LOG_Y_IF_WIDE,
     DT_STEP_LOSS,
     DT_EPOCH_TRAIN_LOSS,
     {{DT_EPOCH_TEST_LOSS, DT_EPOCH_EMA_TEST_LOSS, -1},
      {DT_EPOCH_VALIDATION_LOSS, DT_EPOCH_EMA_VALIDATION_LOSS, -1}}},
    {"Accuracy",
     "accuracy, %",
     100,
     0,
     DT_STEP_ACCURACY,
     DT_EPOCH_TRAIN_ACCURACY,
     {{DT_EPOCH_TEST_ACCURACY, DT_EPOCH_EMA_TEST_ACCURACY, DT_EPOCH_TEST_TOP5},
      {DT_EPOCH_VALIDATION_ACCURACY, DT_EPOCH_EMA_VALIDATION_ACCURACY, DT_EPOCH_VALIDATION_TOP5}}},
    {"Gradient norm", "L2 norm", 1, DT_LOG_Y_IF_WIDE, DT_STEP_GRAD_NORM, -1, NO_RESULTS},
    {"Learning rate", "learning rate", 1, 0, DT_STEP_LR, DT_EPOCH_LR, NO_RESULTS},
    {"Throughput", "samples/s", 1, DT_FROM_ZERO, DT_STEP_IMAGES, DT_EPOCH_IMAGES, NO_RESULTS},
};
#define N_QUANTITIES (sizeof quantities / sizeof quantities[0])
static const char *const sets[] = {"test", "validation"};
static const char *const result_names[] = {"", "EMA of the weights, ", "top 5, "};

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

static void add_line(struct dt_part *part, const char *name, const struct points *p,
                     enum dt_stroke stroke, int color)
{
    if (p->n > 0) {
        dt_doc_line(
            part,
            &(struct dt_line){
                .name = name, .stroke = stroke, .n = p->n, .x = p->x, .y = p->y, .color = color});
    }
}

/* ---- what a chart has */

static int set_of(const struct dt_record *r)
{
    return r->config.data.validation > 0;
}

/* The accuracy of a regression means nothing. */
static bool means_something(const struct dt_record *r, const struct quantity *q)
{
    return r->config.model.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY || q->step != DT_STEP_ACCURACY;
}

static bool has_results(const struct quantity *q)
{
    return q->results[0][0] >= 0;
}

static enum dt_status take_steps(const struct dt_record *r, const struct quantity *q,
                                 struct points *out)
{
    return q->step == DT_STEP_IMAGES ? take_speed(r, out)
                                     : take_column(&r->steps, DT_STEP_STEP, q->step, q->scale, out);
}

/* A rate that never changes is among the facts of the run. */
static bool is_constant(const struct quantity *q, const struct points *p)
{
    bool same = q->step == DT_STEP_LR;
    for (size_t i = 1; i < p->n && same; i++) {
        same = p->y[i] == p->y[0];
    }
    return same;
}

/* Adds a line of the epochs, over steps or, where there are no steps, over epochs. */
static enum dt_status add_epochs(struct dt_part *part, const char *name, const struct dt_record *r,
                                 int column, double scale, bool by_step, int color)
{
    struct points points = {0};
    DT_TRY(
        take_column(&r->epochs, by_step ? DT_EPOCH_STEP : DT_EPOCH_EPOCH, column, scale, &points));
    add_line(part, name, &points, DT_LINE_AND_DOTS, color);
    free(points.x);
    return DT_OK;
}

/* ---- of a run */

static enum dt_status add_results(struct dt_part *part, const struct dt_record *r,
                                  const struct quantity *q, bool by_step)
{
    char name[64];
    DT_TRY(add_epochs(part, "train, mean of an epoch", r, q->epoch, q->scale, by_step, 3));
    for (int i = 0; i < 3; i++) {
        const int column = q->results[set_of(r)][i];
        snprintf(name, sizeof name, "%s, %safter an epoch", sets[set_of(r)], result_names[i]);
        DT_TRY(column < 0
                   ? DT_OK
                   : add_epochs(part, name, r, column, q->scale, by_step, i == 0 ? 2 : 3 + i));
    }
    return DT_OK;
}

static enum dt_status add_one(struct dt_doc *doc, const struct dt_record *r,
                              const struct quantity *q)
{
    struct points steps = {0};
    enum dt_status s;
    DT_TRY_GOTO(s, take_steps(r, q, &steps), out);
    const bool by_step = steps.n >= (has_results(q) ? 1 : LEAST_POINTS),
               epochs = q->epoch >= 0 && r->epochs.n > 0;
    if ((!by_step && !epochs) || (is_constant(q, &steps) && steps.n > 0)) {
        goto out;
    }
    struct dt_part *part = dt_doc_series(doc, q->title, by_step ? "step" : "epoch", q->axis);
    dt_doc_axes(part, q->axes);
    for (size_t i = 0; by_step && i < r->restarts.n; i++) {
        dt_doc_mark(part, dt_record_cell(&r->restarts, i, DT_RESTART_STEP), "started again");
    }
    if (by_step) {
        add_line(part, has_results(q) ? "train, a step" : "steps", &steps, DT_LINE, 1);
    }
    if (has_results(q)) {
        s = add_results(part, r, q, by_step);
    } else if (epochs && (q->step == DT_STEP_IMAGES || !by_step)) {
        s = add_epochs(part, "an epoch", r, q->epoch, q->scale, by_step, 3);
    }
out:
    free(steps.x);
    return s;
}

enum dt_status dt_run_curves_add(struct dt_doc *doc, const struct dt_record *r)
{
    for (size_t i = 0; i < N_QUANTITIES && (r->steps.n > 0 || r->epochs.n > 0); i++) {
        if (means_something(r, &quantities[i])) {
            DT_TRY(add_one(doc, r, &quantities[i]));
        }
    }
    return DT_OK;
}

/* ---- of several */

/* A result of the runs that have it on samples of one kind: a loss on test samples and one on
 * validation samples are not to be compared. */
static enum dt_status add_compared(struct dt_doc *doc, const struct dt_record *records,
                                   char names[DT_REPORT_MAX_RUNS][DT_RUN_NAME_SIZE], int n,
                                   const struct quantity *q, int set, int result)
{
    const int column = q->results[set][result];
    struct dt_part *part = NULL;
    char title[96];
    snprintf(title, sizeof title, "%s%s on the %s samples", q->title,
             result == 0   ? ""
             : result == 1 ? " of the EMA of the weights"
                           : ", top 5,",
             sets[set]);
    for (int i = 0; i < n && column >= 0; i++) {
        const struct dt_record *r = &records[i];
        if (set_of(r) == set && means_something(r, q) &&
            isfinite(dt_record_last(&r->epochs, column))) {
            part = part != NULL ? part : dt_doc_series(doc, title, "epoch", q->axis);
            DT_TRY(add_epochs(part, names[i], r, column, q->scale, false, i + 1));
        }
    }
    dt_doc_axes(part, q->axes);
    return DT_OK;
}

/* The training, by steps where there are any, or else by epochs. */
static enum dt_status add_training(struct dt_doc *doc, const struct dt_record *records,
                                   char names[DT_REPORT_MAX_RUNS][DT_RUN_NAME_SIZE], int n,
                                   const struct quantity *q)
{
    struct dt_part *part = NULL;
    enum dt_status s = DT_OK;
    char title[64];
    snprintf(title, sizeof title, "%s%s", q->title, has_results(q) ? " in training" : "");
    for (int i = 0; i < n && s == DT_OK; i++) {
        struct points points = {0};
        if (means_something(&records[i], q)) {
            s = take_steps(&records[i], q, &points);
        }
        const bool steps = points.n >= LEAST_POINTS, epochs = !steps && q->epoch >= 0 &&
                                                              means_something(&records[i], q) &&
                                                              records[i].epochs.n > 0;
        part = part == NULL && s == DT_OK && (steps || epochs)
                   ? dt_doc_series(doc, title, "step", q->axis)
                   : part;
        if (s == DT_OK && steps) {
            add_line(part, names[i], &points, DT_LINE, i + 1);
        } else if (s == DT_OK && epochs) {
            s = add_epochs(part, names[i], &records[i], q->epoch, q->scale, true, i + 1);
        }
        free(points.x);
    }
    dt_doc_axes(part, q->axes);
    return s;
}

enum dt_status dt_runs_curves_add(struct dt_doc *doc, const struct dt_record *records,
                                  char names[DT_REPORT_MAX_RUNS][DT_RUN_NAME_SIZE], int n)
{
    for (size_t i = 0; i < N_QUANTITIES; i++) {
        const struct quantity *q = &quantities[i];
        for (int set = 0; set < 2; set++) {
            for (int result = 0; result < 3; result++) {
                DT_TRY(add_compared(doc, records, names, n, q, set, result));
            }
        }
        DT_TRY(add_training(doc, records, names, n, q));
    }
    return DT_OK;
}
