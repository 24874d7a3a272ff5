/* The document of a run, or of several side by side, and the page that a training writes of it. */
#include "report/run.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/text.h"
#include "cli/cli_text.h"
#include "cli/commands/model_table.h"
#include "cli/sinks/sinks.h"
#include "view/render.h"

#define SHOWN_EPOCHS 12 /* of a text; the table for other programs has all */
#define SHOWN_RANKS 1024
#define MAX_FAULTS 64

static const char *const optimizer_names[] = {DT_OPTIMIZER_LIST(DT_ENUM_NAME)};
static const char *const scaling_names[] = {DT_LR_SCALING_LIST(DT_ENUM_NAME)};
static const char *const schedule_names[] = {DT_SCHEDULE_LIST(DT_ENUM_NAME)};

static bool classifies(const struct dt_record *r)
{
    return r->config.model.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY;
}

static bool validates(const struct dt_record *r)
{
    return r->config.data.validation > 0;
}

/* ---- the headline: state, results, time, speed */

/* "stopped by SIGTERM, with a checkpoint", "failed (exit code 74): disk full" */
static const char *state_text(struct dt_doc *doc, const struct dt_record *r)
{
    const double number = dt_record_number(r->summary, "signal");
    const char *name = number > 0 && number < 65 ? sigabbrev_np((int)number) : NULL,
               *early = dt_record_text(r->summary, "stopped_early");
    switch (r->state) {
    case DT_RUN_STOPPED:
        return dt_doc_print(doc, "stopped by SIG%s, with a checkpoint", name != NULL ? name : "?");
    case DT_RUN_FAILED:
        return dt_doc_print(doc, "failed (exit code %.0f): %.800s",
                            dt_record_number(r->summary, "exit_code"),
                            dt_record_text(r->summary, "error"));
    case DT_RUN_DONE:
        return early[0] != '\0' ? dt_doc_print(doc, "done: stopped early, %.800s", early) : "done";
    case DT_RUN_GOING:
        return "running";
    case DT_RUN_KILLED:
        return "killed (no result was written)";
    }
    return "";
}

static void add_known(struct dt_part *figures, const char *column, double value)
{
    if (isfinite(value)) {
        dt_doc_figure(figures, column, dt_n(value));
    }
}

/* Losses of a regression may be tiny. */
static const char *loss_format(const struct dt_record *r)
{
    return classifies(r) ? "4" : "g";
}

static void add_results(struct dt_doc *doc, struct dt_part *figures, const struct dt_record *r,
                        const char *set, const struct dt_record_result *x)
{
    const double epoch = dt_record_number(r->summary, "tested_epoch");
    const char *weights =
        isfinite(epoch) ? dt_doc_print(doc, ", by the weights of epoch %.0f", epoch) : "";
    add_known(figures, dt_doc_print(doc, "%s accuracy::%%", set), x->accuracy);
    if (isfinite(x->accuracy) && isfinite(x->margin)) {
        dt_doc_judge(figures, DT_NO_VERDICT, "± %.2f %% with 95 %% confidence, %s samples%s",
                     100 * x->margin, dt_count_text(x->n_samples, (char[32]){""}, 32), weights);
    }
    add_known(figures, dt_doc_print(doc, "%s R2::4", set), x->r2);
    add_known(figures, dt_doc_print(doc, "%s top 5::%%", set), x->top5);
    add_known(figures, dt_doc_print(doc, "%s loss::%s", set, loss_format(r)), x->loss);
    if (isfinite(x->loss) && isnan(x->accuracy) && isfinite(epoch)) {
        dt_doc_judge(figures, DT_NO_VERDICT, "%s", weights + 2);
    }
    add_known(figures, dt_doc_print(doc, "%s accuracy, EMA::%%", set), x->ema_accuracy);
    add_known(figures, dt_doc_print(doc, "%s loss, EMA::%s", set, loss_format(r)), x->ema_loss);
}

static double speed_of(const struct dt_record *r)
{
    const double of_epoch = dt_record_last(&r->epochs, DT_EPOCH_IMAGES);
    return isfinite(of_epoch) ? of_epoch : dt_record_last(&r->steps, DT_STEP_IMAGES);
}

static void add_progress(struct dt_part *figures, const struct dt_record *r)
{
    const struct dt_record_progress at = dt_record_progress(r);
    const double batch = dt_record_number(r->start, "global_batch"),
                 now = dt_record_last(&r->steps, DT_STEP_IMAGES),
                 left = (at.all - at.step) * batch / (isfinite(now) ? now : speed_of(r));
    if (isfinite(at.step) && at.all > 0 && isfinite(at.per_epoch)) {
        dt_doc_fact(figures, "progress", "epoch %.0f of %.0f, step %.0f of %.0f (%.0f an epoch)",
                    at.epoch, at.all_epochs, at.step, at.all, at.per_epoch);
        if (r->state == DT_RUN_GOING) {
            dt_doc_figure(figures, "complete::%", dt_n(at.step / at.all));
            add_known(figures, "time left::d", left);
        }
    } else if (isfinite(at.step)) {
        dt_doc_fact(figures, "progress", "%.0f steps", at.step);
    }
}

static void add_headline(struct dt_doc *doc, const struct dt_record *r)
{
    const struct dt_record_result test = dt_record_result(r), validation = dt_record_validation(r);
    const bool bad =
        r->state == DT_RUN_STOPPED || r->state == DT_RUN_FAILED || r->state == DT_RUN_KILLED;
    struct dt_part *figures = dt_doc_figures(doc, "Result");
    if (bad) {
        dt_doc_verdict(doc, r->state == DT_RUN_FAILED ? DT_VERDICT_FAIL : DT_VERDICT_WARN, "%s",
                       state_text(doc, r));
    }
    dt_doc_fact(figures, "state", "%s", bad ? dt_run_state_word(r->state) : state_text(doc, r));
    add_results(doc, figures, r, "test", &test);
    add_results(doc, figures, r, "validation", &validation);
    add_progress(figures, r);
    add_known(figures, "time::d", dt_record_seconds(r));
    if (isfinite(dt_record_seconds(r)) && r->n_starts > 1) {
        dt_doc_judge(figures, DT_NO_VERDICT, "over %zu starts", r->n_starts);
    }
    add_known(figures, dt_doc_print(doc, "speed:%s/s:0", dt_unit_name(&r->config)), speed_of(r));
}

/* ---- facts */

static void add_text(struct dt_part *figures, const char *name, const char *text)
{
    if (text[0] != '\0') {
        dt_doc_fact(figures, name, "%.1000s", text);
    }
}

/* Ranks, their hosts, and what the first of them computes with. */
static void add_ranks(struct dt_part *figures, const struct dt_record *r)
{
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(r->start, "ranks"),
                *first = cJSON_GetArrayItem(ranks, 0);
    const double n = dt_record_number(r->start, "world_size");
    int n_hosts = 0, n_other = 0;
    for (const cJSON *rank = first; rank != NULL; rank = rank->next) {
        n_hosts += dt_record_number(rank, "local_rank") == 0;
        n_other += strcmp(dt_record_text(rank, "device"), dt_record_text(first, "device")) != 0;
    }
    add_known(figures, "ranks::0", n);
    if (isfinite(n) && n_hosts > 0) {
        dt_doc_judge(figures, DT_NO_VERDICT, "on %d host%s", n_hosts, n_hosts == 1 ? "" : "s");
    }
    if (dt_record_text(first, "device")[0] != '\0') {
        dt_doc_fact(figures, "device", "%.100s%s", dt_record_text(first, "device"),
                    n_other > 0 ? ", and others" : "");
    }
}

static void add_training(struct dt_part *figures, const struct dt_record *r)
{
    const struct dt_config *c = &r->config;
    const double batch = dt_record_number(r->start, "global_batch"),
                 lr = dt_record_number(r->start, "lr"),
                 scale = dt_record_number(r->start, "lr_scale"),
                 workers = dt_record_number(r->start, "workers");
    add_known(figures, "batch:samples:0", batch);
    if (isfinite(batch) && c->batch_per_rank > 0 && isfinite(workers)) {
        dt_doc_judge(figures, DT_NO_VERDICT, "%lld × %.0f", (long long)c->batch_per_rank, workers);
    }
    add_known(figures, "learning rate::g", isfinite(lr) ? lr : c->optimizer.lr);
    if (isfinite(lr) && isfinite(scale) && scale != 1) {
        dt_doc_judge(figures, DT_NO_VERDICT, "%g × %g (%s), %s, %s", c->optimizer.lr, scale,
                     scaling_names[c->lr_scaling], schedule_names[c->schedule],
                     optimizer_names[c->optimizer.type]);
    } else {
        dt_doc_judge(figures, DT_NO_VERDICT, "%s, %s", schedule_names[c->schedule],
                     optimizer_names[c->optimizer.type]);
    }
    add_text(figures, "gradients", dt_record_text(r->start, "allreduce"));
    add_known(figures, "memory of a rank, at most::B",
              dt_record_number(r->summary, "host_memory_peak_bytes"));
    add_known(figures, "memory of its GPU, at most::B",
              dt_record_number(r->summary, "gpu_memory_peak_bytes"));
}

static void add_faults(struct dt_doc *doc, struct dt_part *figures, const struct dt_record *r)
{
    const cJSON *fault =
        cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(r->start, "injected"), 0);
    const char *all = "";
    for (int i = 0; fault != NULL && i < MAX_FAULTS; fault = fault->next, i++) {
        const char *one = cJSON_GetStringValue(fault);
        all = dt_doc_print(doc, "%.800s%s%.100s", all, i > 0 ? "; " : "", one != NULL ? one : "?");
    }
    add_text(figures, "injected", all);
}

/* Shares of 1 as percentages. */
static void add_best(struct dt_part *figures, const struct dt_record *r)
{
    const char *path = dt_record_text(r->summary, "best_checkpoint"),
               *metric = dt_record_text(r->summary, "best_metric");
    const double value = dt_record_number(r->summary, "best_value"),
                 epoch = dt_record_number(r->summary, "best_epoch");
    const bool share = strstr(metric, "accuracy") != NULL;
    if (path[0] != '\0' && isfinite(value) && isfinite(epoch)) {
        dt_doc_fact(figures, "best",
                    share ? "%.800s (%.40s %.2f %%, epoch %.0f)"
                          : "%.800s (%.40s %.4g, epoch %.0f)",
                    path, metric, share ? 100 * value : value, epoch);
    }
}

static void add_start(struct dt_part *figures, const struct dt_record *r)
{
    const char *version = dt_record_text(r->start, "version"),
               *commit = dt_record_text(r->start, "commit");
    char date[DT_DATE_SIZE];
    if (dt_run_date(r->started, date)) {
        dt_doc_fact(figures, "started", "%s UTC", date);
    }
    add_text(figures, "command", dt_record_text(r->start, "command"));
    add_text(figures, "resumed from", dt_record_text(r->start, "resumed_from"));
    add_text(figures, "checkpoint", dt_record_text(r->summary, "checkpoint"));
    add_best(figures, r);
    if (version[0] != '\0') {
        dt_doc_fact(figures, "program", "dtrain %.40s%s%.60s", version,
                    commit[0] != '\0' ? ", commit " : "", commit);
    }
}

static void tell_left_out(struct dt_doc *doc, const struct dt_record *r)
{
    char path[DT_PATH_SIZE + 16];
    struct stat info;
    snprintf(path, sizeof path, "%s/trace.json", r->path);
    if (r->n_strange > 0) {
        dt_doc_text(doc, "%zu line%s of metrics.jsonl %s no record, and left out.", r->n_strange,
                    r->n_strange == 1 ? "" : "s", r->n_strange == 1 ? "is" : "are");
    }
    if (stat(path, &info) == 0 && info.st_size > (off_t)DT_RECORD_FILE_BYTES) {
        dt_doc_text(doc, "trace.json is larger than 8 MiB, and not shown here.");
    }
}

static void add_facts(struct dt_doc *doc, const struct dt_record *r)
{
    struct dt_part *figures = dt_doc_figures(doc, "Training");
    add_ranks(figures, r);
    add_training(figures, r);
    add_faults(doc, figures, r);
    add_start(figures, r);
    tell_left_out(doc, r);
}

/* ---- tables */

static void add_epoch(struct dt_part *table, const struct dt_record *r, size_t row)
{
    static const enum dt_epoch_field sets[2][3] = {
        {DT_EPOCH_TEST_LOSS, DT_EPOCH_TEST_ACCURACY, DT_EPOCH_TEST_R2},
        {DT_EPOCH_VALIDATION_LOSS, DT_EPOCH_VALIDATION_ACCURACY, DT_EPOCH_VALIDATION_R2}};
    const struct dt_record_table *t = &r->epochs;
    const enum dt_epoch_field *set = sets[validates(r)];
    dt_doc_row(table, dt_n(dt_record_cell(t, row, DT_EPOCH_EPOCH)),
               dt_n(dt_record_cell(t, row, DT_EPOCH_STEP)),
               dt_n(dt_record_cell(t, row, DT_EPOCH_TRAIN_LOSS)),
               dt_n(dt_record_cell(t, row, (int)set[0])),
               dt_n(dt_record_cell(t, row, (int)set[classifies(r) ? 1 : 2])),
               dt_n(dt_record_cell(t, row, DT_EPOCH_LR)),
               dt_n(dt_record_cell(t, row, DT_EPOCH_IMAGES)));
}

/* The first `n`, evenly chosen, and the last. */
static struct dt_part *add_some_epochs(struct dt_doc *doc, const struct dt_record *r,
                                       const char *title, size_t n)
{
    const char *set = validates(r) ? "val." : "test", *format = loss_format(r);
    struct dt_part *table = dt_doc_table(
        doc, title,
        dt_doc_print(doc, "epoch::+|step::0|train loss::%s|%s loss::%s|%s %s|lr::g|%s/s::0", format,
                     set, format, set, classifies(r) ? "accuracy::%" : "R2::4",
                     dt_unit_name(&r->config)));
    for (size_t i = 0; i < n; i++) {
        add_epoch(table, r, n > 1 ? i * (r->epochs.n - 1) / (n - 1) : 0);
    }
    return table;
}

static void add_epochs(struct dt_doc *doc, const struct dt_record *r)
{
    const size_t n = r->epochs.n;
    if (n > SHOWN_EPOCHS) {
        dt_doc_caption(add_some_epochs(doc, r, "Some epochs", SHOWN_EPOCHS), "%d of %zu.",
                       SHOWN_EPOCHS, n);
    }
    if (n > 0) {
        struct dt_part *all = add_some_epochs(doc, r, "Epochs", n);
        dt_doc_main(all);
        if (n > SHOWN_EPOCHS) {
            dt_doc_detail(all);
        }
    }
}

static void add_roster(struct dt_doc *doc, const struct dt_record *r)
{
    const cJSON *rank = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(r->start, "ranks"), 0);
    if (rank == NULL) {
        return;
    }
    struct dt_part *table = dt_doc_table(doc, "Ranks", "rank::+|threads::0|samples::0|host|device");
    dt_doc_detail(table);
    for (int i = 0; rank != NULL && i < SHOWN_RANKS; rank = rank->next, i++) {
        dt_doc_row(table, dt_n(i), dt_n(dt_record_number(rank, "threads")),
                   dt_n(dt_record_number(rank, "samples")), dt_t(dt_record_text(rank, "host")),
                   dt_t(dt_record_text(rank, "device")));
    }
}

/* ---- the model, and how it was trained */

static void tell_steps(struct dt_doc *doc, const struct dt_record *r)
{
    const struct dt_config *c = &r->config;
    const double batch = dt_record_number(r->start, "global_batch"),
                 workers = dt_record_number(r->start, "workers"),
                 per_epoch = dt_record_number(r->start, "steps_per_epoch"),
                 n = dt_record_number(r->start, "train_samples");
    if (!(batch > 0 && workers > 0 && per_epoch > 0 && n > 0)) {
        return;
    }
    const char *shares =
        c->batch_per_rank > 0
            ? dt_doc_print(doc, "A step takes %lld samples on each rank, %.0f on %.0f rank%s",
                           (long long)c->batch_per_rank, batch, workers, workers == 1 ? "" : "s")
            : dt_doc_print(doc, "A step takes %.0f samples at any number of ranks, here %.0f",
                           batch, workers);
    dt_doc_text(doc, "%s. 1 epoch = %.0f steps (%s samples), %lld in all = %.0f steps%s.", shares,
                per_epoch, dt_count_text(n, (char[32]){""}, 32), (long long)c->epochs,
                per_epoch * (double)c->epochs, r->n_starts > 1 ? " at this number of ranks" : "");
}

static void tell_rate(struct dt_doc *doc, const struct dt_record *r)
{
    static const char *const by[] = {"", "number of ranks (one batch each)",
                                     "square root of the number of ranks"};
    const struct dt_config *c = &r->config;
    const double lr = dt_record_number(r->start, "lr"),
                 scale = dt_record_number(r->start, "lr_scale");
    const double from = c->warmup_from >= 0 ? c->warmup_from * lr : c->optimizer.lr;
    const char *warmup =
        c->warmup_epochs > 0 && from < lr
            ? dt_doc_print(doc, " In the first %g epoch%s it rises from %g to that.",
                           c->warmup_epochs, c->warmup_epochs == 1 ? "" : "s", from)
            : "";
    if (isfinite(lr) && isfinite(scale) && scale != 1) {
        dt_doc_text(doc, "The rate is scaled by the %s: %g × %g = %g (`train.lr_scaling`).%s",
                    by[c->lr_scaling], c->optimizer.lr, scale, lr, warmup);
    } else if (isfinite(lr)) {
        dt_doc_text(doc, "The learning rate is %g, not scaled.%s", lr, warmup);
    }
}

static void tell_flops(struct dt_doc *doc, const struct dt_record *r, double flops)
{
    const double speed = dt_record_last(&r->epochs, DT_EPOCH_IMAGES);
    char count[32];
    const char *rate =
        isfinite(speed)
            ? dt_doc_print(doc,
                           "; at the last epoch's speed these are %.3g GFLOP/s, all ranks together",
                           3e-9 * flops * speed)
            : "";
    dt_doc_text(doc,
                "A sample takes %s operations forward, and about three times as many in a step of "
                "training%s (dense count; work on zeros is skipped).",
                dt_count_text(flops, count, sizeof count), rate);
}

static void add_blocks(struct dt_doc *doc, const struct dt_record *r, const struct dt_model *model)
{
    dt_doc_section(doc, "Model");
    const double flops = dt_model_table(doc, model);
    tell_steps(doc, r);
    tell_rate(doc, r);
    tell_flops(doc, r, flops);
}

/* A configuration of another version may not fit: then the model is left out. */
static enum dt_status add_model(struct dt_doc *doc, const struct dt_record *r)
{
    const bool waiting = dt_error_text()[0] != '\0'; /* the error that ended the run */
    struct dt_model *model = malloc(sizeof *model);
    if (model == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for a model");
    }
    enum dt_status s = dt_model_lower(&r->config.model, model);
    if (s == DT_OK) {
        add_blocks(doc, r, model);
    } else if (s != DT_NO_MEMORY) {
        s = DT_OK;
        if (!waiting) {
            dt_error_clear();
        }
    }
    free(model);
    return s;
}

/* ---- the whole */

enum dt_status dt_run_document(const struct dt_record *r, const struct dt_learned *learned,
                               struct dt_doc **out)
{
    struct dt_doc *doc = *out = dt_doc_open("report", "%s: %s, %s", r->path, dt_record_name(r),
                                            dt_run_state_word(r->state));
    const bool live = r->state == DT_RUN_GOING; /* a screen has room for the first parts alone */
    add_headline(doc, r);
    DT_TRY(dt_run_flight_add(doc, r));
    if (!live) {
        add_facts(doc, r);
    }
    if (r->steps.n > 0 || r->epochs.n > 0) {
        dt_doc_section(doc, "Curves");
    }
    DT_TRY(dt_run_curves_add(doc, r));
    add_epochs(doc, r);
    DT_TRY(dt_run_time_add(doc, r));
    DT_TRY(dt_run_timeline_add(doc, r));
    if (live) {
        add_facts(doc, r);
    }
    add_roster(doc, r);
    if (learned != NULL) {
        DT_TRY(dt_run_learned_add(doc, learned));
    } else if (!live) {
        dt_doc_text(doc, "`dtrain report` adds what the model learned by its last checkpoint: "
                         "confusion, the worst test samples, filters.");
    }
    DT_TRY(add_model(doc, r));
    DT_TRY(dt_run_config_add(doc, r));
    return dt_doc_status(doc);
}

/* Columns of the results; an optional one is left out where no run has a value. */
static const struct {
    const char *column;
    bool optional;
} columns[] = {{"test accuracy::%", false}, {"± (95 %)::%", false}, {"top 5::%", true},
               {"test loss::4", false},     {"EMA::%", true},       {"val. accuracy::%", true},
               {"val. loss::4", true},      {"steps::0", false},    {"samples/s::0", false},
               {"time::d", false},          {"ranks::0", false}};
#define N_COLUMNS (sizeof columns / sizeof columns[0])

static void read_columns(const struct dt_record *r, double out[N_COLUMNS])
{
    const struct dt_record_result test = dt_record_result(r), validation = dt_record_validation(r);
    const double values[] = {test.accuracy,
                             test.margin,
                             test.top5,
                             test.loss,
                             test.ema_accuracy,
                             validation.accuracy,
                             validation.loss,
                             dt_record_progress(r).step,
                             speed_of(r),
                             dt_record_seconds(r),
                             dt_record_number(r->start, "world_size")};
    _Static_assert(sizeof values == N_COLUMNS * sizeof *values, "a value for each column");
    memcpy(out, values, sizeof values);
}

static void add_compared(struct dt_doc *doc, const struct dt_record *records,
                         char names[DT_REPORT_MAX_RUNS][DT_RUN_NAME_SIZE], int n)
{
    double values[DT_REPORT_MAX_RUNS][N_COLUMNS];
    bool shown[N_COLUMNS];
    const char *head = "run|state";
    struct dt_part *runs = dt_doc_figures(doc, "Runs");
    for (int i = 0; i < n; i++) {
        dt_doc_fact(runs, (char[]){(char)('A' + i), '\0'}, "%s: %s", records[i].path,
                    dt_record_name(&records[i]));
        read_columns(&records[i], values[i]);
    }
    for (size_t c = 0; c < N_COLUMNS; c++) {
        shown[c] = !columns[c].optional;
        for (int i = 0; i < n; i++) {
            shown[c] = shown[c] || isfinite(values[i][c]);
        }
        head = shown[c] ? dt_doc_print(doc, "%s|%s", head, columns[c].column) : head;
    }
    struct dt_part *table = dt_doc_table(doc, "Results", head);
    dt_doc_main(table);
    for (int i = 0; i < n; i++) {
        struct dt_cell cells[N_COLUMNS + 2] = {dt_t(names[i]),
                                               dt_t(dt_run_state_word(records[i].state))};
        size_t n_cells = 2;
        for (size_t c = 0; c < N_COLUMNS; c++) {
            cells[n_cells] = dt_n(values[i][c]);
            n_cells += shown[c];
        }
        dt_doc_add_row(table, n_cells, cells);
    }
}

enum dt_status dt_runs_document(const struct dt_record *records, int n, struct dt_doc **out)
{
    char names[DT_REPORT_MAX_RUNS][DT_RUN_NAME_SIZE];
    struct dt_doc *doc = *out = dt_doc_open("report", "%d runs", n);
    DT_TRY(dt_run_names(records, n, names));
    add_compared(doc, records, names, n);
    DT_TRY(dt_run_differences_add(doc, records, n));
    dt_doc_section(doc, "Curves");
    DT_TRY(dt_runs_curves_add(doc, records, names, n));
    return dt_doc_status(doc);
}

/* ---- the page */

/* A dt_file_put_fn. */
static void put_page(FILE *out, const void *doc)
{
    dt_view_html(out, doc);
}

enum dt_status dt_run_page_write(const char *dir, const struct dt_doc *doc)
{
    char *text = NULL;
    size_t n = 0;
    DT_TRY(dt_run_dir_check_file(dir, DT_RUN_PAGE));
    DT_TRY(dt_file_collect(DT_RUN_PAGE, put_page, doc, &text, &n));
    const enum dt_status s =
        dt_file_write_atomic(dir, DT_RUN_PAGE, &(struct dt_file_part){text, n}, 1);
    free(text);
    return s;
}

static enum dt_status take(struct dt_sinks *sinks, const struct dt_event *event)
{
    const bool ended = event->kind == DT_EVENT_END, failed = event->kind == DT_EVENT_FAULT;
    struct dt_record record;
    struct dt_doc *doc;
    if ((!ended && !failed) || !sinks->folder.config->report) {
        return DT_OK;
    }
    DT_TRY(dt_record_open(sinks->folder.dir->path, &record));
    enum dt_status s = dt_run_document(&record, ended ? event->end->learned : NULL, &doc);
    s = s == DT_OK ? dt_run_page_write(record.path, doc) : s;
    dt_doc_close(doc);
    dt_record_close(&record);
    if (s == DT_OK && ended && !sinks->silent) {
        dt_text_print(stderr, "report %s/" DT_RUN_PAGE, sinks->folder.dir->path);
    }
    return s;
}

const struct dt_run_reader dt_run_reader = {.seconds = dt_record_seconds_of, .take = take};
