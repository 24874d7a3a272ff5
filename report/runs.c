/* `dtrain runs`: the runs of a folder, and the newest of them. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/file.h"
#include "base/text.h"
#include "cli/args.h"
#include "report/run.h"
#include "view/json_write.h"

#define MOST_BELOW 3     /* runs/sweep-<config>/<time>/<number> */
#define MOST_RUNS 100000 /* a folder with more is none of runs */

/* ---- finding them */

/* The last of its files to be written; NaN: it is no run's folder. */
static double last_written(const char *folder)
{
    static const char *const files[] = {"config.json", "run.lock", "metrics.jsonl", "summary.json"};
    double newest = (double)NAN;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[DT_PATH_SIZE + 32];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        const bool there = stat(path, &info) == 0 && S_ISREG(info.st_mode);
        if (!there && i == 0) {
            return (double)NAN;
        }
        newest =
            there ? fmax(newest, (double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec)
                  : newest;
    }
    return newest;
}

struct run_entry {
    char path[DT_PATH_SIZE];
    double written; /* when one of its files was written last, since 1970 */
};

struct run_list {
    size_t n;
    struct run_entry *runs;    /* the newest first; owned */
    char denied[DT_PATH_SIZE]; /* a folder that may not be read, or "" */
};

static enum dt_status add(struct run_list *list, const char *path, double written)
{
    if (list->n == MOST_RUNS) {
        return dt_error(DT_USAGE, "runs: %s and %d more (name a folder with fewer)", path,
                        MOST_RUNS);
    }
    if (list->n % 64 == 0) {
        struct run_entry *more = realloc(list->runs, (list->n + 64) * sizeof *more);
        if (more == NULL) {
            return dt_error(DT_NO_MEMORY, "out of memory for the list of runs");
        }
        list->runs = more;
    }
    struct run_entry *entry = &list->runs[list->n++];
    snprintf(entry->path, sizeof entry->path, "%s", path);
    entry->written = written;
    return DT_OK;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Adds `path`, or the runs below it. What cannot be read has none, and is noted. */
static enum dt_status search(struct run_list *list, const char *path, int n_below)
{
    const double written = last_written(path);
    if (!isnan(written)) {
        return add(list, path, written);
    }
    DIR *dir = n_below > 0 ? opendir(path) : NULL;
    enum dt_status s = DT_OK;
    if (n_below > 0 && dir == NULL && errno == EACCES) {
        snprintf(list->denied, sizeof list->denied, "%s", path);
    }
    for (const struct dirent *entry; dir != NULL && s == DT_OK && (entry = readdir(dir)) != NULL;) {
        char below[DT_PATH_SIZE];
        const int n = snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.' && n < DT_PATH_SIZE - 64 && is_folder(below)) {
            s = search(list, below, n_below - 1);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return s;
}

static int compare_newest_first(const void *a, const void *b)
{
    const struct run_entry *x = a, *y = b;
    return x->written != y->written ? (x->written < y->written ? 1 : -1) : strcmp(x->path, y->path);
}

/* DT_NO_INPUT: no such folder, or no run in it. DT_NO_MEMORY. A failed find owes nothing. */
static enum dt_status find_runs(const char *folder, struct run_list *out)
{
    char root[DT_PATH_SIZE];
    size_t n = strnlen(folder, sizeof root - 1);
    while (n > 1 && folder[n - 1] == '/') {
        n--;
    }
    snprintf(root, sizeof root, "%.*s", (int)n, folder);
    *out = (struct run_list){0};
    enum dt_status s = search(out, root, MOST_BELOW);
    if (s == DT_OK && out->n == 0 && out->denied[0] != '\0') {
        s = dt_error(DT_NO_PERMISSION, "%s: permission denied (its owner can let you read it)",
                     out->denied);
    } else if (s == DT_OK && out->n == 0) {
        s = dt_error(DT_NO_INPUT,
                     is_folder(root) ? "%s: no runs in this folder (name one that has some)"
                                     : "%s: no such folder (train first, or name a folder of runs)",
                     root);
    }
    if (s != DT_OK) {
        free(out->runs);
        *out = (struct run_list){0};
        return s;
    }
    qsort(out->runs, out->n, sizeof *out->runs, compare_newest_first);
    return DT_OK;
}

enum dt_status dt_runs_newest(char path[DT_PATH_SIZE])
{
    struct run_list list;
    DT_TRY(find_runs(DT_RUNS_FOLDER, &list));
    memcpy(path, list.runs[0].path, DT_PATH_SIZE);
    free(list.runs);
    return DT_OK;
}

/* ---- listing them */

/* A run's row; numbers that are not known are NaN. */
struct row {
    char path[DT_PATH_SIZE], name[64];
    const char *state;
    double epochs, all_epochs, loss, accuracy, started, written;
};

struct table {
    struct row *rows;
    size_t n;
};

/* A run that cannot be read, or only with more memory than there is, is listed, too: it must not
 * hide the others. */
static void read_row(const struct run_entry *entry, struct row *row)
{
    struct dt_record record;
    const double none = (double)NAN;
    *row = (struct row){.state = "damaged",
                        .epochs = none,
                        .all_epochs = none,
                        .loss = none,
                        .accuracy = none,
                        .started = none,
                        .written = entry->written};
    memcpy(row->path, entry->path, sizeof row->path);
    if (dt_record_open(entry->path, &record) != DT_OK) {
        dt_error_clear();
        return;
    }
    const struct dt_record_result result = dt_record_result(&record);
    snprintf(row->name, sizeof row->name, "%s", dt_record_name(&record));
    row->state = dt_run_state_word(record.state);
    const struct dt_record_progress progress = dt_record_progress(&record);
    row->epochs = progress.epochs;
    row->all_epochs = progress.all_epochs;
    row->loss = result.loss;
    row->accuracy = result.accuracy;
    row->started = record.started;
    dt_record_close(&record);
}

/* Columns of a terminal; a character counts as one. */
static int width_of(const char *text)
{
    int n = 0;
    for (; *text != '\0'; text++) {
        n += (*text & 0xC0) != 0x80;
    }
    return n;
}

/* Nothing in place of what is not known. */
static void print_row(const struct row *row, const char *path, int width)
{
    char epochs[48], loss[32], accuracy[32], written[32] = "";
    struct tm utc;
    const time_t seconds = (time_t)row->written;
    snprintf(epochs, sizeof epochs, "%.0f/%.0f", row->epochs, row->all_epochs);
    snprintf(loss, sizeof loss, "%.4g", row->loss);
    snprintf(accuracy, sizeof accuracy, "%.2f %%", 100 * row->accuracy);
    if (gmtime_r(&seconds, &utc) != NULL) {
        strftime(written, sizeof written, "%Y-%m-%d %H:%M:%S", &utc);
    }
    printf("%s%*s  %-7s %9s%11s%11s  %s\n", path, width - width_of(path), "", row->state,
           isfinite(row->epochs) ? epochs : "", isfinite(row->loss) ? loss : "",
           isfinite(row->accuracy) ? accuracy : "", written);
}

static void print_table(const struct table *t)
{
    char path[4 * DT_PATH_SIZE];
    int width = 3;
    for (size_t i = 0; i < t->n; i++) {
        const int n = width_of(dt_text_escape(t->rows[i].path, path, sizeof path));
        width = n > width ? n : width;
    }
    printf("%-*s  %-7s %9s%11s%11s  %s\n", width, "run", "state", "epochs", "test loss", "accuracy",
           "last written (UTC)");
    for (size_t i = 0; i < t->n; i++) {
        print_row(&t->rows[i], dt_text_escape(t->rows[i].path, path, sizeof path), width);
    }
}

/* A dt_file_put_fn. */
static void put_json(FILE *out, const void *context)
{
    const struct table *t = context;
    struct dt_json json = {.out = out, .in_lines = true};
    dt_json_begin(&json, NULL, '{');
    dt_json_begin(&json, "runs", '[');
    for (size_t i = 0; i < t->n; i++) {
        const struct row *row = &t->rows[i];
        dt_json_begin(&json, NULL, '{');
        dt_json_text(&json, "run", row->path);
        dt_json_text(&json, "config", row->name);
        dt_json_text(&json, "state", row->state);
        dt_json_number(&json, "epochs", 0, row->epochs);
        dt_json_number(&json, "all_epochs", 0, row->all_epochs);
        dt_json_number(&json, "test_loss", 0, row->loss);
        dt_json_number(&json, "test_accuracy", 0, row->accuracy);
        dt_json_number(&json, "started", 0, row->started);
        dt_json_number(&json, "written", 0, row->written);
        dt_json_end(&json, '{');
    }
    dt_json_end(&json, '[');
    dt_json_end(&json, '{');
    fputc('\n', out);
}

static enum dt_status list_runs(const struct dt_args *args)
{
    const char *folder = dt_args_text(args, DT_PATHS);
    struct run_list list;
    DT_TRY(find_runs(folder != NULL ? folder : DT_RUNS_FOLDER, &list));
    struct table t = {.rows = calloc(list.n, sizeof *t.rows), .n = list.n};
    enum dt_status s = t.rows != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "out of memory for a table");
    for (size_t i = 0; s == DT_OK && i < list.n; i++) {
        read_row(&list.runs[i], &t.rows[i]);
    }
    if (s == DT_OK) {
        print_table(&t);
        s = dt_file_print(dt_args_text(args, DT_OPTION_JSON), put_json, &t);
    }
    free(t.rows);
    free(list.runs);
    return s;
}

static enum dt_status check(const struct dt_args *args)
{
    return args->values[DT_PATHS].n <= 1
               ? DT_OK
               : dt_error(DT_USAGE, "runs: one folder at a time (dtrain runs FOLDER)");
}

const struct dt_command dt_command_runs = {
    .word = "runs",
    .meaning = "list runs: state, epochs, result, when",
    .usage = "dtrain runs [FOLDER] [--json FILE]",
    .examples = "  dtrain runs\n"
                "  dtrain runs --json runs.json\n",
    .more = "Lists the runs below `runs/`, or below the folder that is named, newest first. A run "
            "is a folder with a `config.json`, at most three levels down. The result is the last "
            "on the test samples.",
    .options = {[DT_OPTION_JSON] = {DT_TAKEN, "also write the rows to this file"},
                [DT_PATHS] = {DT_TAKEN}},
    .check = check,
    .alone = list_runs,
};
