/* `dtrain runs`: the runs of a folder, and the newest of them. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/file.h"
#include "cli/result.h"
#include "report/run.h"

#define MOST_BELOW 3     /* runs/sweep-<config>/<time>/<number> */
#define MOST_RUNS 100000 /* a folder with more is none of runs */

struct run_entry {
    char path[DT_PATH_SIZE];
    double written; /* when one of its files was written last, since 1970 */
};

struct run_list {
    size_t n;
    struct run_entry *runs;    /* the newest first; owned */
    char denied[DT_PATH_SIZE]; /* a folder that may not be read, or "" */
};

/* The last time that one of its files was written; NaN: it is no run's folder. */
static double last_written(const char *folder)
{
    static const char *const files[] = {"config.json", "run.lock", "metrics.jsonl", "summary.json"};
    double newest = (double)NAN;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[DT_PATH_SIZE + 32];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        const bool there = stat(path, &info) == 0 && S_ISREG(info.st_mode);
        if (there) {
            newest =
                fmax(newest, (double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec);
        } else if (i == 0) {
            return (double)NAN;
        }
    }
    return newest;
}

static enum dt_status add(struct run_list *list, const char *path, double written)
{
    if (list->n == MOST_RUNS) {
        return dt_error(DT_USAGE, "runs: %s and %d more (name a folder with fewer)", path,
                        MOST_RUNS);
    }
    struct run_entry *more = realloc(list->runs, (list->n + 1) * sizeof *more);
    if (more == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the list of runs");
    }
    list->runs = more;
    more[list->n].written = written;
    snprintf(more[list->n++].path, DT_PATH_SIZE, "%s", path);
    return DT_OK;
}

/* Adds `path`, or the runs below it. A folder that cannot be read has none, and is noted. */
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
        if (entry->d_name[0] != '.' && n < DT_PATH_SIZE - 64) {
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

/* DT_NO_INPUT: no such folder, or no run in it. DT_NO_MEMORY. The caller frees out->runs, also
 * after an error. */
static enum dt_status find_runs(const char *folder, struct run_list *out)
{
    char root[DT_PATH_SIZE];
    struct stat info;
    size_t n = strnlen(folder, sizeof root - 1);
    while (n > 1 && folder[n - 1] == '/') {
        n--;
    }
    snprintf(root, sizeof root, "%.*s", (int)n, folder);
    DT_TRY(search(out, root, MOST_BELOW));
    if (out->n == 0 && out->denied[0] != '\0') {
        return dt_error(DT_NO_PERMISSION, "%s: permission denied (its owner can let you read it)",
                        out->denied);
    }
    if (out->n == 0 && stat(root, &info) == 0 && S_ISDIR(info.st_mode)) {
        return dt_error(DT_NO_INPUT, "%s: no runs in this folder (name a folder with runs)", root);
    }
    if (out->n == 0) {
        return dt_error(DT_NO_INPUT, "%s: no such folder (train first, or name a folder of runs)",
                        root);
    }
    qsort(out->runs, out->n, sizeof *out->runs, compare_newest_first);
    return DT_OK;
}

enum dt_status dt_runs_newest(char path[DT_PATH_SIZE])
{
    struct run_list list = {0};
    const enum dt_status s = find_runs(DT_RUNS_FOLDER, &list);
    if (s == DT_OK) {
        memcpy(path, list.runs[0].path, DT_PATH_SIZE);
    }
    free(list.runs);
    return s;
}

bool dt_run_date(double seconds, char text[DT_DATE_SIZE])
{
    const bool known = seconds >= 0 && seconds < 1e11;
    const time_t time = known ? (time_t)seconds : 0;
    struct tm utc;
    text[0] = '\0';
    return known && strftime(text, DT_DATE_SIZE, "%Y-%m-%d %H:%M:%S", gmtime_r(&time, &utc)) > 0;
}

/* A run that cannot be read, or only with more memory than there is, is listed, too: it must not
 * hide the others. */
static void add_row(struct dt_part *table, const struct run_entry *entry)
{
    struct dt_record r;
    char written[DT_DATE_SIZE];
    dt_run_date(entry->written, written);
    if (dt_record_open(entry->path, &r) != DT_OK) {
        const struct dt_cell none = dt_n((double)NAN);
        dt_doc_row(table, dt_t(entry->path), dt_t("damaged"), none, none, none, none, dt_t(written),
                   dt_t(""), dt_t(dt_error_text()));
        dt_error_clear();
        return;
    }
    const struct dt_record_result result = dt_record_result(&r);
    const struct dt_record_progress progress = dt_record_progress(&r);
    dt_doc_row(table, dt_t(r.path), dt_t(dt_run_state_word(r.state)), dt_n(progress.epochs),
               dt_n(progress.all_epochs), dt_n(result.loss), dt_n(result.accuracy), dt_t(written),
               dt_t(dt_record_name(&r)),
               dt_t(r.state == DT_RUN_KILLED ? "no result was written" : ""));
    dt_record_close(&r);
}

static enum dt_status list_runs(const struct dt_args *args)
{
    const char *folder =
        dt_args_has(args, DT_PATHS) ? dt_args_text(args, DT_PATHS) : DT_RUNS_FOLDER;
    struct run_list list = {0};
    if (args->values[DT_PATHS].n > 1) {
        return dt_error(DT_USAGE, "runs: one folder at a time (dtrain runs FOLDER)");
    }
    enum dt_status s = find_runs(folder, &list);
    if (s == DT_OK) {
        struct dt_doc *doc = dt_doc_open("runs", "Runs in %s", folder);
        struct dt_part *table =
            dt_doc_table(doc, "Runs",
                         "run|state|epochs::0|planned::0|test loss::g|test accuracy::%|"
                         "written (UTC)|config|note");
        for (size_t i = 0; i < list.n; i++) {
            add_row(table, &list.runs[i]);
        }
        s = dt_result_show(args, doc);
        dt_doc_close(doc);
    }
    free(list.runs);
    return s;
}

const struct dt_command dt_command_runs = {
    .word = "runs",
    .meaning = "list runs: state, epochs, result, when",
    .usage = "dtrain runs [FOLDER]" DT_RESULT_USAGE,
    .examples = "  dtrain runs\n"
                "  dtrain runs --json runs.json\n",
    .more = "Lists the runs below `runs/`, or below the folder that is named, newest first. A run "
            "is a folder with a `config.json`, at most three levels down. The result is the last "
            "on the test samples.",
    .options = {DT_RESULT_OPTIONS, [DT_PATHS] = {DT_TAKEN}},
    .alone = list_runs,
};
