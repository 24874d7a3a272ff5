/* `dtrain sweep`: a training for each combination of values, one after another, or one on each rank
 * at a time: different models in parallel, where `train` has one model on all ranks. */
#include <cjson/cJSON.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli_text.h"
#include "cli/commands/load.h"
#include "cli/config/read.h"
#include "cli/output.h"
#include "cli/result.h"
#include "cli/sinks/sinks.h"
#include "cli/terminal.h"
#include "dist/launch/job.h"
#include "dist/launch/stop.h"
#include "dist/liveness/heartbeat.h"
#include "report/run.h"
#include "train/hooks/hooks.h"
#include "train/rank_checks.h"
#include "train/save/saver.h"
#include "train/trainer.h"
#include "view/render.h"

#define TABLE "sweep.csv"
#define MAX_RUNS 1000
#define MAX_SWEPT 10     /* keys with several values: 2 to the power of 10 is more than MAX_RUNS */
#define MAX_FOLDERS 2000 /* that --resume looks into */
#define DIVERGED_FACTOR 10 /* times the loss of the first steps */

/* A key, and the values that its --set lists. */
struct axis {
    char key[128];
    const char *name; /* the last part of the key where no other key ends alike, such as "lr" */
    int n;
    char **texts; /* "key=value", as for the --set of one run; owned */
};

/* One run, as its folder says. Numbers are NaN where they are unknown. */
struct row {
    int run;
    bool known; /* it has a folder */
    const char *state;
    struct dt_record_result test, validation;
    double steps, seconds;
};

/* A rank's contribution to a heartbeat; every rank receives the sum. From SUM_RUNS on: 1 for each
 * run that has ended. */
enum { SUM_FINISHED, SUM_STOP, SUM_STEPS, SUM_RUNS };

struct sweep {
    struct dt_world *world, alone;
    const struct dt_args *args;
    int n_axes, n_runs;
    struct axis *axes;          /* owned */
    const char **sets;          /* the --set of one run; owned */
    int numbers[MAX_RUNS];      /* of each run's folder */
    struct dt_run_dir folder;   /* of all runs; its path alone */
    int n_threads;              /* per rank, if the configuration does not set it */
    struct dt_config config;    /* of the current run */
    struct dt_sinks sinks;      /* of the current run */
    enum dt_status run_failure; /* of this rank's first run that failed without diverging */
    double mine[SUM_RUNS + MAX_RUNS], sum[SUM_RUNS + MAX_RUNS];
    struct dt_heartbeat heartbeat; /* adds up `mine` of all ranks */
};

static enum dt_status no_memory(void)
{
    return dt_error(DT_NO_MEMORY, "out of memory for the runs of a sweep");
}

/* ---- the grid */

/* The end of a value: a comma outside of JSON's brackets and strings, or the end of the text. */
static const char *value_end(const char *text)
{
    int depth = 0;
    bool in_string = false;
    for (; *text != '\0' && (*text != ',' || depth > 0 || in_string); text++) {
        if (in_string && *text == '\\' && text[1] != '\0') {
            text++;
        } else if (*text == '"') {
            in_string = !in_string;
        } else if (!in_string) {
            depth += *text == '[' || *text == '{';
            depth -= (*text == ']' || *text == '}') && depth > 0;
        }
    }
    return text;
}

static enum dt_status read_axis(const char *set, struct axis *out)
{
    const size_t n_key = strcspn(set, "=");
    if (n_key == 0 || set[n_key] == '\0' || n_key >= sizeof out->key) {
        return dt_error(DT_USAGE, "--set %.200s: not of the form KEY=VALUE,VALUE...", set);
    }
    memcpy(out->key, set, n_key);
    out->name = strrchr(out->key, '.') != NULL ? strrchr(out->key, '.') + 1 : out->key;
    out->texts = calloc(strlen(set), sizeof *out->texts);
    for (const char *value = set + n_key, *end = value; *end != '\0'; out->n++) {
        value = end + 1;
        end = value_end(value);
        if (end == value) {
            return dt_error(DT_USAGE, "--set %.200s: an empty value (write KEY=VALUE,VALUE...)",
                            set);
        }
        if (out->texts == NULL ||
            asprintf(&out->texts[out->n], "%s=%.*s", out->key, (int)(end - value), value) < 0) {
            return no_memory();
        }
    }
    return DT_OK;
}

static enum dt_status read_axes(struct sweep *w)
{
    const struct dt_values *sets = &w->args->values[DT_OPTION_SET];
    w->axes = calloc((size_t)sets->n + 1, sizeof *w->axes);
    w->sets = calloc((size_t)sets->n + 1, sizeof *w->sets);
    w->n_runs = 1;
    for (int i = 0; i < sets->n && w->axes != NULL && w->sets != NULL; i++) {
        struct axis *axis = &w->axes[w->n_axes++];
        DT_TRY(read_axis(sets->texts[i], axis));
        for (int k = 0; k < i; k++) {
            struct axis *other = &w->axes[k];
            if (strcmp(other->key, axis->key) == 0) {
                return dt_error(DT_USAGE,
                                "--set %s is given twice (list its values in one: %s=A,B)",
                                axis->key, axis->key);
            }
            if (strcmp(other->name, axis->name) == 0) {
                other->name = other->key;
                axis->name = axis->key;
            }
        }
        if (axis->n > MAX_RUNS / w->n_runs) {
            return dt_error(DT_USAGE, "more than %d runs (list fewer values)", MAX_RUNS);
        }
        w->n_runs *= axis->n;
    }
    return w->axes == NULL || w->sets == NULL ? no_memory()
           : w->n_runs == 1
               ? dt_error(DT_USAGE, "nothing to sweep (list the values of a key: --set KEY=A,B)")
               : DT_OK;
}

/* The text of an axis in run `run`: the last axis changes fastest. */
static const char *set_of(const struct sweep *w, int run, int axis)
{
    for (int a = w->n_axes - 1; a > axis; a--) {
        run /= w->axes[a].n;
    }
    return w->axes[axis].texts[run % w->axes[axis].n];
}

static const char *value_of(const struct sweep *w, int run, int axis)
{
    return set_of(w, run, axis) + strlen(w->axes[axis].key) + 1;
}

static enum dt_status load(struct sweep *w, int run)
{
    for (int a = 0; a < w->n_axes; a++) {
        w->sets[a] = set_of(w, run, a);
    }
    DT_TRY(dt_config_load(dt_args_text(w->args, DT_OPTION_CONFIG), w->sets, w->n_axes, &w->config));
    w->config.threads = w->config.threads == 0 ? w->n_threads : w->config.threads;
    return dt_load_data_dir(&w->config.data, dt_args_text(w->args, DT_OPTION_DATA));
}

/* ---- folders */

static void folder_of(const struct sweep *w, int number, char path[DT_PATH_SIZE])
{
    snprintf(path, DT_PATH_SIZE, "%.*s/%d", DT_PATH_SIZE - 8, w->folder.path, number);
}

static bool is_swept(const struct sweep *w, const char *key)
{
    bool swept = false;
    for (int a = 0; a < w->n_axes; a++) {
        swept = swept || (w->axes[a].n > 1 && strcmp(w->axes[a].key, key) == 0);
    }
    return swept;
}

/* What a run is known by, as text that the caller frees: its values of all keys that affect a
 * result, and of the swept keys. The folder of the data counts only if it is swept: it may have
 * moved. */
static enum dt_status identity_of(const struct sweep *w, const struct dt_config *config, char **out)
{
    static const char *const parts[] = {"train", "model", "data", "precision"};
    char *text = dt_config_to_json(config);
    cJSON *tree = text != NULL ? cJSON_Parse(text) : NULL, *known = cJSON_CreateArray();
    if (!is_swept(w, "data.dir")) {
        cJSON_DeleteItemFromObject(cJSON_GetObjectItem(tree, "data"), "dir");
    }
    for (int i = 0; i < 4 + w->n_axes; i++) {
        const char *part = i < 4 ? parts[i] : w->axes[i - 4].key;
        const cJSON *value = i < 4 || is_swept(w, part) ? dt_json_at(tree, part) : NULL;
        cJSON_AddItemToArray(known,
                             value != NULL ? cJSON_Duplicate(value, true) : cJSON_CreateNull());
    }
    *out = tree != NULL ? cJSON_PrintUnformatted(known) : NULL;
    cJSON_Delete(known);
    cJSON_Delete(tree);
    free(text);
    return *out != NULL ? DT_OK : no_memory();
}

/* Gives a folder's number to the run that began there, if there is one. */
static enum dt_status look_into(struct sweep *w, int number, char *const *identities, int *last)
{
    char path[DT_PATH_SIZE], *identity = NULL;
    struct dt_record record;
    struct stat info;
    folder_of(w, number, path);
    if (lstat(path, &info) != 0) {
        return DT_OK;
    }
    *last = number;
    if (S_ISLNK(info.st_mode)) {
        return dt_error(DT_CANT_CREATE,
                        "%s: is a symbolic link (remove it, or choose another --run)", path);
    }
    if (dt_record_open(path, &record) != DT_OK) {
        dt_error_clear();
        return DT_OK;
    }
    const enum dt_status s = identity_of(w, &record.config, &identity);
    dt_record_close(&record);
    for (int run = 0; run < w->n_runs && s == DT_OK; run++) {
        if (w->numbers[run] == 0 && strcmp(identities[run], identity) == 0) {
            w->numbers[run] = number;
            break;
        }
    }
    free(identity);
    return s;
}

/* Runs without a folder get the numbers behind the last folder. */
static enum dt_status number_folders(struct sweep *w)
{
    char *identities[MAX_RUNS] = {0};
    enum dt_status s = DT_OK;
    int last = 0;
    for (int run = 0; run < w->n_runs && s == DT_OK; run++) {
        s = load(w, run);
        s = s == DT_OK ? identity_of(w, &w->config, &identities[run]) : s;
    }
    for (int number = 1; number <= MAX_FOLDERS && s == DT_OK; number++) {
        s = look_into(w, number, identities, &last);
    }
    for (int run = 0; run < w->n_runs; run++) {
        w->numbers[run] = w->numbers[run] > 0 ? w->numbers[run] : ++last;
        free(identities[run]);
    }
    return s;
}

static bool is_result(const char *name)
{
    return strcmp(name, TABLE) == 0 || strcmp(name, DT_RUN_PAGE) == 0;
}

/* Rank 0 makes the sweep's folder. */
static enum dt_status choose_folder(struct sweep *w)
{
    char name[DT_PATH_SIZE];
    const char *wanted = dt_args_text(w->args, DT_OPTION_RUN);
    if (wanted == NULL) {
        snprintf(name, sizeof name, "sweep-%.200s", w->config.name);
        DT_TRY(dt_run_dir_default(name, w->folder.path));
    } else {
        DT_TRY(dt_run_dir_check(wanted));
        snprintf(w->folder.path, sizeof w->folder.path, "%s", wanted);
    }
    if (wanted != NULL && !dt_args_has(w->args, DT_OPTION_RESUME) &&
        access(w->folder.path, F_OK) == 0) {
        return dt_error(DT_CANT_CREATE,
                        "%s: is already there (add --resume, or choose another --run)",
                        w->folder.path);
    }
    DT_TRY(number_folders(w));
    DT_TRY(dt_dir_create(w->folder.path));
    DT_TRY(dt_run_dir_check_file(w->folder.path, TABLE));
    DT_TRY(dt_run_dir_check_file(w->folder.path, DT_RUN_PAGE));
    dt_dir_sweep(w->folder.path, is_result);
    return dt_dir_try(w->folder.path);
}

/* ---- results */

/* Whether the run's error says so, or its loss is far beyond that of the untrained weights. */
static bool has_diverged(const struct dt_record *record)
{
    const double first =
        record->steps.n > 0 ? dt_record_cell(&record->steps, 0, DT_STEP_LOSS) : (double)NAN;
    return dt_record_number(record->summary, "exit_code") == DT_NON_FINITE ||
           dt_record_result(record).loss > DIVERGED_FACTOR * first;
}

/* `ended`: the run has been tried, so without a folder it failed. DT_NO_MEMORY. */
static enum dt_status read_row(const struct sweep *w, int run, bool ended, struct row *out)
{
    const struct dt_record_result none = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    char path[DT_PATH_SIZE];
    struct dt_record record;
    *out = (struct row){run, false, ended ? "failed" : "not begun", none, none, NAN, NAN};
    folder_of(w, w->numbers[run], path);
    const enum dt_status s = dt_record_open(path, &record);
    if (s == DT_OK) {
        *out = (struct row){run,
                            true,
                            has_diverged(&record) ? "diverged" : dt_run_state_word(record.state),
                            dt_record_result(&record),
                            dt_record_validation(&record),
                            dt_record_progress(&record).step,
                            dt_record_seconds(&record)};
        dt_record_close(&record);
    } else if (s != DT_NO_MEMORY) {
        dt_error_clear();
        return DT_OK;
    }
    return s;
}

static bool validates(const struct row *row)
{
    return isfinite(row->validation.loss);
}

/* The result by which runs are compared. */
static const struct dt_record_result *result_of(const struct row *row)
{
    return validates(row) ? &row->validation : &row->test;
}

static double worth(const struct row *row)
{
    const struct dt_record_result *result = result_of(row);
    const double worth = isfinite(result->accuracy) ? result->accuracy : -result->loss;
    return row->known && strcmp(row->state, "diverged") != 0 && isfinite(worth) ? worth : -1e300;
}

/* For qsort: the best run first, runs without a result last. */
static int compare(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    const double first = worth(x), second = worth(y);
    return first != second ? (first < second) - (first > second) : x->run - y->run;
}

static struct dt_doc *document_of(const struct sweep *w, const struct row *rows)
{
    struct dt_doc *doc = dt_doc_open("sweep", "%d runs in %s", w->n_runs, w->folder.path);
    const char *columns = "run::+";
    bool validated = false;
    for (int a = 0; a < w->n_axes; a++) {
        columns = w->axes[a].n > 1 ? dt_doc_print(doc, "%s|%s", columns, w->axes[a].name) : columns;
    }
    for (int i = 0; i < w->n_runs; i++) {
        validated = validated || validates(&rows[i]);
    }
    columns = dt_doc_print(doc, "%s|state%s|test accuracy::%%|test loss::g|steps::0|time::d",
                           columns, validated ? "|validation accuracy::%|validation loss::g" : "");
    struct dt_part *table = dt_doc_table(doc, "Runs", columns);
    for (const struct row *row = rows; row < rows + w->n_runs; row++) {
        struct dt_cell cells[MAX_SWEPT + 8];
        size_t n = 0;
        cells[n++] = dt_n(w->numbers[row->run]);
        for (int a = 0; a < w->n_axes; a++) {
            if (w->axes[a].n > 1) {
                cells[n++] = dt_t(value_of(w, row->run, a));
            }
        }
        cells[n++] = dt_t(row->state);
        if (validated) {
            cells[n++] = dt_n(row->validation.accuracy);
            cells[n++] = dt_n(row->validation.loss);
        }
        cells[n++] = dt_n(row->test.accuracy);
        cells[n++] = dt_n(row->test.loss);
        cells[n++] = dt_n(row->steps);
        cells[n++] = dt_n(row->seconds);
        dt_doc_add_row(table, n, cells);
    }
    if (!validated) {
        dt_doc_text(doc, "Warning: the test samples choose the run whose result they measure (hold "
                         "samples out with data.validation, such as 0.1).");
    }
    return doc;
}

/* A dt_file_put_fn. */
static void put_csv(FILE *out, const void *doc)
{
    dt_view_csv(out, doc);
}

/* A page about the best runs, as many as fit side by side. */
static enum dt_status write_page(const struct sweep *w, const struct row *rows)
{
    char path[DT_PATH_SIZE];
    struct dt_record *records = calloc(DT_REPORT_MAX_RUNS, sizeof *records);
    struct dt_doc *doc = NULL;
    int n = 0;
    enum dt_status s = records != NULL ? DT_OK : no_memory();
    for (int i = 0; i < w->n_runs && n < DT_REPORT_MAX_RUNS && s == DT_OK; i++) {
        if (rows[i].known) {
            folder_of(w, w->numbers[rows[i].run], path);
            s = dt_record_open(path, &records[n]);
            n += s == DT_OK;
        }
    }
    if (s == DT_OK && n > 0) {
        s = dt_runs_document(records, n, &doc);
        s = s == DT_OK ? dt_run_page_write(w->folder.path, doc) : s;
        dt_doc_close(doc);
    }
    if (s == DT_OK && n > 0) {
        dt_text_print(stderr, "wrote %s/" DT_RUN_PAGE " about the best %d", w->folder.path, n);
    }
    while (n > 0) {
        dt_record_close(&records[--n]);
    }
    free(records);
    return s;
}

/* Shows the result, and writes it into the sweep's folder. Every file is tried; the first error
 * counts. */
static enum dt_status show(const struct sweep *w)
{
    struct row *rows = calloc((size_t)w->n_runs, sizeof *rows);
    enum dt_status s = rows != NULL ? DT_OK : no_memory();
    for (int i = 0; i < w->n_runs && s == DT_OK; i++) {
        s = read_row(w, i, w->sum[SUM_RUNS + i] > 0, &rows[i]);
    }
    if (s == DT_OK) {
        qsort(rows, (size_t)w->n_runs, sizeof *rows, compare);
        struct dt_doc *doc = document_of(w, rows);
        const bool no_table = dt_output_failed(dt_output_write(&w->folder, TABLE, put_csv, doc));
        const bool no_result = dt_output_failed(dt_result_show(w->args, doc));
        fflush(stdout);
        dt_doc_close(doc);
        s = write_page(w, rows);
        if (s == DT_OK && (no_table || no_result)) {
            s = dt_error(DT_IO, "%s: the table was not written (see the message above)",
                         w->folder.path);
        }
    }
    free(rows);
    return s;
}

/* ---- progress on stderr */

/* By the rank that has trained it. */
static void print_row(const struct sweep *w, int run)
{
    char line[DT_LINE_SIZE] = "";
    struct row row;
    if (read_row(w, run, true, &row) != DT_OK) {
        dt_error_clear(); /* out of memory: the table at the end has it, or reports it */
        return;
    }
    const struct dt_record_result *result = result_of(&row);
    for (int a = 0; a < w->n_axes; a++) {
        const size_t n = strlen(line);
        if (w->axes[a].n > 1) {
            snprintf(line + n, sizeof line - n, " %s=%s", w->axes[a].name, value_of(w, run, a));
        }
    }
    const bool classifies = isfinite(result->accuracy);
    dt_text_print(stderr, "run %d%s: %s, %s %s %.4g", w->numbers[run], line, row.state,
                  validates(&row) ? "validation" : "test", classifies ? "accuracy" : "loss",
                  classifies ? result->accuracy : result->loss);
}

/* A dt_heartbeat.take. Passes on a stop signal that reached only another rank. */
static void take_sums(void *context)
{
    struct sweep *w = context;
    double n_ended = 0;
    for (int i = 0; i < w->n_runs; i++) {
        n_ended += w->sum[SUM_RUNS + i];
    }
    if (w->world->rank == 0) {
        dt_terminal_live("%.0f of %d runs, %.0f steps", n_ended, w->n_runs, w->sum[SUM_STEPS]);
    }
    if (w->sum[SUM_STOP] > 0 && !dt_stop_requested()) {
        raise(SIGTERM);
    }
    w->mine[SUM_STOP] = dt_stop_requested();
}

/* ---- a run */

/* A dt_emitter.emit. When a rank shows no sign of life, the run is saved and stops. */
static enum dt_status on_event(void *context, struct dt_event *event)
{
    struct sweep *w = context;
    w->mine[SUM_STEPS] += event->kind == DT_EVENT_STEP;
    if (dt_heartbeat_look(&w->heartbeat) != DT_OK && !dt_stop_requested()) {
        raise(SIGTERM);
    }
    return dt_sinks_emit(&w->sinks, event);
}

/* A run that stops calls its error agreed; of the sweep's ranks only this one has it. */
static enum dt_status stall_of_this_rank(void)
{
    char text[DT_ERROR_TEXT_SIZE];
    snprintf(text, sizeof text, "%s", dt_error_text());
    dt_error_clear();
    return dt_error(DT_STALLED, "%s", text);
}

/* A run that fails becomes a row of the table. */
static enum dt_status train(struct sweep *w, int run)
{
    char path[DT_PATH_SIZE];
    folder_of(w, w->numbers[run], path);
    w->sinks = (struct dt_sinks){
        .command = w->args->line, .silent = true, .reader = w->args->program->reader};
    struct dt_folder_saver saver = {.saver = {.ops = &dt_folder_saver_ops},
                                    .run_dir = path,
                                    .resume = dt_args_has(w->args, DT_OPTION_RESUME)};
    const struct dt_train_options options = {.format = &dt_config_json,
                                             .parts = &dt_all_parts,
                                             .saver = &saver.saver,
                                             .hooks = {dt_hooks_open, NULL}};
    enum dt_status s = load(w, run);
    if (s == DT_OK) {
        s = dt_train(&w->alone, &w->config, &options, &(struct dt_emitter){on_event, w});
        dt_sinks_close(&w->sinks);
    }
    if (dt_heartbeat_look(&w->heartbeat) != DT_OK) {
        return stall_of_this_rank();
    }
    if (s == DT_STOPPED || s == DT_STALLED) {
        return s;
    }
    dt_terminal_live(NULL);
    if (s == DT_OK) {
        print_row(w, run);
    } else {
        dt_text_print(stderr, "dtrain: run %d: %s", w->numbers[run], dt_error_text());
        dt_error_clear();
        w->run_failure = w->run_failure == DT_OK && s != DT_NON_FINITE ? s : w->run_failure;
    }
    w->mine[SUM_RUNS + run] = 1;
    return dt_heartbeat_look(&w->heartbeat);
}

static enum dt_status train_mine(struct sweep *w)
{
    enum dt_status s = DT_OK;
    for (int run = w->world->rank; run < w->n_runs && s == DT_OK && !dt_stop_requested();
         run += w->world->size) {
        dt_comm_phase(w->world->comm, "a run of a sweep");
        s = train(w, run);
    }
    return s == DT_STOPPED ? DT_OK : s; /* the next heartbeat informs the others */
}

/* ---- the whole sweep */

/* Checks every configuration before the first run. */
static enum dt_status check_all(struct sweep *w)
{
    DT_TRY(read_axes(w));
    w->heartbeat = (struct dt_heartbeat){.comm = w->world->comm,
                                         .name = "a sign of life of the sweep",
                                         .n = SUM_RUNS + (size_t)w->n_runs,
                                         .mine = w->mine,
                                         .sum = w->sum,
                                         .take = take_sums,
                                         .context = w};
    for (int run = 0; run < w->n_runs; run++) {
        DT_TRY(load(w, run));
    }
    return DT_OK;
}

static enum dt_status prepare(struct sweep *w)
{
    struct dt_world *world = w->world;
    DT_TRY(dt_world_agree(world, check_all(w)));
    DT_TRY(dt_ranks_same(world, "command line", w->args->line));
    DT_TRY(dt_world_set_timeout(world, w->config.timeout_s));
    DT_TRY(dt_ranks_threads(world, 0, &w->n_threads));
    DT_TRY(dt_world_agree(world, world->rank == 0 ? choose_folder(w) : DT_OK));
    DT_TRY(dt_comm_broadcast(world->comm, w->folder.path, sizeof w->folder.path, 0,
                             "name of the sweep's folder"));
    DT_TRY(dt_comm_broadcast(world->comm, w->numbers, (size_t)w->n_runs * sizeof *w->numbers, 0,
                             "numbers of the runs"));
    if (world->rank == 0) {
        dt_text_print(stderr, "%d runs in %s, %s", w->n_runs, w->folder.path,
                      world->size == 1 ? "one after another" : "one on each rank at a time");
    }
    return dt_world_agree(world, dt_world_open_alone(world, &w->alone));
}

static enum dt_status run_all(struct sweep *w)
{
    dt_comm_meanwhile(w->alone.comm, dt_heartbeat_show, &w->heartbeat);
    DT_TRY(dt_heartbeat_start(&w->heartbeat));
    DT_TRY(train_mine(w)); /* a rank that fails here leaves alone, and the others stop with it */
    dt_comm_phase(w->world->comm, "the end of a sweep");
    DT_TRY(dt_heartbeat_finish(&w->heartbeat));
    dt_terminal_live(NULL);
    DT_TRY(dt_world_agree(w->world, w->world->rank == 0 ? show(w) : DT_OK));
    if (dt_stop_requested()) {
        return dt_error_agreed(DT_STOPPED);
    }
    if (w->run_failure != DT_OK) {
        dt_error(w->run_failure,
                 "a run of the sweep failed (mend what its error says, and add --resume)");
    }
    return dt_world_agree(w->world, w->run_failure);
}

/* Every rank calls it. Rank r trains runs r, r + size, ..., each in its own world and its own
 * folder within the sweep's. A run that fails is a row of the table, and the others continue; then
 * the first failure's status is returned, except for a diverged training: that is a result.
 * DT_USAGE, errors of loading a configuration; DT_CANT_CREATE: the folder exists and --resume is
 * missing; DT_STOPPED: after a signal, with checkpoints; DT_STALLED: a rank gives no sign of life.
 */
static enum dt_status sweep(struct dt_world *world, const struct dt_args *args)
{
    struct sweep *w;
    DT_TRY(dt_world_alloc(world, 1, sizeof *w, "a sweep", (void **)&w));
    w->world = world;
    w->args = args;
    enum dt_status s = prepare(w);
    s = s == DT_OK ? run_all(w) : s;
    dt_world_close(&w->alone);
    for (int a = 0; a < w->n_axes; a++) {
        for (int i = 0; i < w->axes[a].n; i++) {
            free(w->axes[a].texts[i]);
        }
        free(w->axes[a].texts);
    }
    free(w->axes);
    free(w->sets);
    free(w);
    return s;
}

static enum dt_status check(const struct dt_args *args)
{
    const char *checkpoint = dt_args_text(args, DT_OPTION_RESUME);
    DT_TRY(dt_load_check_resume(args));
    return checkpoint == NULL
               ? DT_OK
               : dt_error(DT_USAGE, "sweep: --resume is for all runs of --run (leave out '=%s')",
                          checkpoint);
}

const struct dt_command dt_command_sweep = {
    .word = "sweep",
    .meaning = "a training for each combination of values",
    .usage = "mpirun -np 4 dtrain sweep --config FILE [--data DIR] [--run DIR] [--resume]\n"
             "      [--epochs N,N...] [--batch N,N...] [--lr X,X...]\n"
             "      [--set KEY.PATH=VALUE,VALUE...]..." DT_RESULT_USAGE,
    .examples = "  mpirun -np 2 dtrain sweep --config configs/mnist-mlp.json \\\n"
                "      --set train.optimizer.lr=0.01,0.001 --set model.layers.1.units=64,256\n",
    .more = "Commas separate the values of a key, outside of JSON's brackets and strings. Each "
            "run has a numbered folder in the sweep's (default runs/sweep-<config name>/<UTC "
            "time>); under `mpirun` each rank trains every n-th run alone, with its share of the "
            "cores and its GPU. A failed run is a row of the table, and the others continue; a "
            "diverged one is a result. `--resume` takes up the runs that the folder has, which it "
            "knows by their values, and trains those that are new. The folder gets the table as "
            "`sweep.csv`, and `report.html` about the best runs.",
    .options =
        {DT_RESULT_OPTIONS, [DT_OPTION_CONFIG] = {DT_REQUIRED}, [DT_OPTION_DATA] = {DT_TAKEN},
         [DT_OPTION_RUN] = {DT_TAKEN,
                            "folder for all runs; default runs/sweep-<config name>/<UTC time>"},
         [DT_OPTION_RESUME] = {DT_TAKEN, "resume the unfinished runs in --run; no value"},
         [DT_OPTION_EPOCHS] = {DT_TAKEN}, [DT_OPTION_BATCH] = {DT_TAKEN},
         [DT_OPTION_LR] = {DT_TAKEN},
         [DT_OPTION_SET] = {DT_TAKEN, "values of a key, combined with those of the others; "
                                      "may be given many times"}},
    .ending = DT_SAVES,
    .check = check,
    .together = sweep,
};
