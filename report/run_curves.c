#include "report/run.h"

#include <math.h>

#include "report/page/curve.h"

/* The results after an epoch. X(constant, of a run, of several) */
#define RESULT_LIST(X)                                                      \
    X(RESULT, "", "")                                                       \
    X(RESULT_AVERAGE, "EMA of the weights, ", " of the EMA of the weights") \
    X(RESULT_TOP5, "top 5, ", ", top 5,")
#define RESULT_TITLE(constant, name, title) title,
enum result { RESULT_LIST(DT_NAMED_ENUM) N_RESULTS };
static const char *const result_names[] = {RESULT_LIST(DT_ENUM_NAME)};
static const char *const result_titles[] = {RESULT_LIST(RESULT_TITLE)};

/* A run's columns for a figure: one of the steps, and of the epochs; -1: none. */
struct quantity {
    const char *title;
    bool log;
    int steps, epochs, test[N_RESULTS], validation[N_RESULTS];
};

static const struct quantity quantities[] = {
    {"Loss",
     true,
     DT_STEP_LOSS,
     DT_EPOCH_TRAIN_LOSS,
     {DT_EPOCH_TEST_LOSS, DT_EPOCH_EMA_TEST_LOSS, -1},
     {DT_EPOCH_VALIDATION_LOSS, DT_EPOCH_EMA_VALIDATION_LOSS, -1}},
    {"Accuracy",
     false,
     DT_STEP_ACCURACY,
     DT_EPOCH_TRAIN_ACCURACY,
     {DT_EPOCH_TEST_ACCURACY, DT_EPOCH_EMA_TEST_ACCURACY, DT_EPOCH_TEST_TOP5},
     {DT_EPOCH_VALIDATION_ACCURACY, DT_EPOCH_EMA_VALIDATION_ACCURACY, DT_EPOCH_VALIDATION_TOP5}},
    {"Gradient norm", true, DT_STEP_GRAD_NORM, -1, {-1, -1, -1}, {-1, -1, -1}},
    {"Learning rate", false, DT_STEP_LR, DT_EPOCH_LR, {-1, -1, -1}, {-1, -1, -1}},
    {"Throughput, samples a second",
     false,
     DT_STEP_IMAGES,
     DT_EPOCH_IMAGES,
     {-1, -1, -1},
     {-1, -1, -1}},
};

/* `dots`: the table is that of the epochs. */
static void add(struct dt_curves *c, const char *name, const struct dt_record_table *table,
                int column, int color, bool dots)
{
    if (column >= 0 && table->n > 0) {
        c->series[c->n_series++] =
            (struct dt_series){.name = name,
                               .color = color,
                               .dots = dots,
                               .x = table->cells + table->step,
                               .y = table->cells + column,
                               .epochs = dots ? table->cells + DT_EPOCH_EPOCH : NULL,
                               .n = table->n,
                               .stride = table->n_columns};
    }
}

static struct dt_curves begin(const struct quantity *q, const char *title)
{
    return (struct dt_curves){.title = title, .x_name = "step", .log = q->log};
}

static bool validates(const struct dt_record *r)
{
    return r->config.data.validation > 0;
}

static int column_of(const struct dt_record *r, const struct quantity *q, enum result result)
{
    return validates(r) ? q->validation[result] : q->test[result];
}

static bool has(const struct dt_record *r, const struct quantity *q, enum result result)
{
    const int column = column_of(r, q, result);
    return column >= 0 && isfinite(dt_record_last(&r->epochs, column));
}

/* A rate that never changes is among the facts of the run. */
static bool is_constant(const struct dt_record *r, const struct quantity *q)
{
    bool same = q->steps == DT_STEP_LR;
    for (size_t i = 0; i < r->steps.n && same; i++) {
        same = dt_record_cell(&r->steps, i, q->steps) == dt_record_cell(&r->steps, 0, q->steps);
    }
    for (size_t i = 0; i < r->epochs.n && same; i++) {
        same = dt_record_cell(&r->epochs, i, q->epochs) == dt_record_cell(&r->epochs, 0, q->epochs);
    }
    return same;
}

static void draw_one(FILE *out, const struct dt_record *r, const struct quantity *q)
{
    struct dt_curves c = begin(q, q->title);
    const bool results = q->test[RESULT] >= 0;
    char names[N_RESULTS][64];
    c.marks = r->restarts.cells;
    c.n_marks = r->restarts.n;
    add(&c, results ? "train, a step" : "a step", &r->steps, q->steps, 0, false);
    if (results || r->steps.n == 0) {
        add(&c, results ? "train, mean of an epoch" : "an epoch", &r->epochs, q->epochs, 2, true);
    }
    for (int i = 0; i < N_RESULTS; i++) {
        snprintf(names[i], sizeof names[i], "%s, %safter an epoch",
                 validates(r) ? "validation" : "test", result_names[i]);
        if (i == RESULT || has(r, q, i)) {
            add(&c, names[i], &r->epochs, column_of(r, q, i), i == RESULT ? 1 : 2 + i, true);
        }
    }
    dt_curves_draw(out, &c);
}

static const char *sets_of(const struct dt_record *records, int n)
{
    int n_validate = 0;
    for (int i = 0; i < n; i++) {
        n_validate += validates(&records[i]);
    }
    return n_validate == 0   ? " on the test samples"
           : n_validate == n ? " on the validation samples"
                             : " on the test samples or, where there are some, validation samples";
}

/* The training, by steps where there are any, or else by epochs. */
static void draw_training(FILE *out, const struct dt_record *records, const char *const *names,
                          int n, const struct quantity *q)
{
    char title[128];
    snprintf(title, sizeof title, "%s%s", q->title, q->test[RESULT] >= 0 ? " in training" : "");
    struct dt_curves c = begin(q, title);
    for (int i = 0; i < n; i++) {
        const bool steps = records[i].steps.n > 0;
        add(&c, names[i], steps ? &records[i].steps : &records[i].epochs,
            steps ? q->steps : q->epochs, i, !steps);
    }
    dt_curves_draw(out, &c);
}

/* What some runs alone have, where one has it. */
static void draw_results(FILE *out, const struct dt_record *records, const char *const *names,
                         int n, const struct quantity *q, enum result result)
{
    char title[192];
    snprintf(title, sizeof title, "%s%s%s", q->title, result_titles[result], sets_of(records, n));
    struct dt_curves c = begin(q, title);
    for (int i = 0; i < n; i++) {
        if (result == RESULT || has(&records[i], q, result)) {
            add(&c, names[i], &records[i].epochs, column_of(&records[i], q, result), i, true);
        }
    }
    dt_curves_draw(out, &c);
}

/* The accuracy of a regression is none. */
static bool means_something(const struct dt_record *records, int n, const struct quantity *q)
{
    bool classifies = false;
    for (int i = 0; i < n; i++) {
        classifies = classifies || records[i].config.model.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY;
    }
    return classifies || q->steps != DT_STEP_ACCURACY;
}

void dt_run_curves_draw(FILE *out, const struct dt_record *records, const char *const *names, int n)
{
    fputs("<h2 class=\"part\">Curves</h2>\n<div class=\"cards\">\n", out);
    for (size_t i = 0; i < sizeof quantities / sizeof quantities[0]; i++) {
        const struct quantity *q = &quantities[i];
        if (!means_something(records, n, q) || (n == 1 && is_constant(records, q))) {
            continue;
        }
        if (n == 1) {
            draw_one(out, records, q);
            continue;
        }
        for (int result = 0; q->test[RESULT] >= 0 && result < N_RESULTS; result++) {
            draw_results(out, records, names, n, q, result);
        }
        draw_training(out, records, names, n, q);
    }
    fputs("</div>\n", out);
}
