/* `dtrain report`: a run, or several, on the terminal and as a page; `dtrain compare`: several on
 * the terminal. */
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "cli/args.h"
#include "report/run.h"

static enum dt_status write_page(const struct dt_args *args, const struct dt_record *records)
{
    const struct dt_values *paths = &args->values[DT_PATHS];
    const char *const dir = records[0].path;
    struct dt_learned learned = {.why_not = ""};
    const bool one = paths->n == 1;
    DT_TRY(dt_args_text(args, DT_OPTION_HTML) == NULL ? dt_dir_try(dir) : DT_OK);
    enum dt_status s =
        one ? dt_learned_find(records, dt_args_text(args, DT_OPTION_DATA), &learned) : DT_OK;
    s = s == DT_OK ? dt_run_page_write(dt_args_text(args, DT_OPTION_HTML), dir, records, paths->n,
                                       one ? &learned : NULL)
                   : s;
    dt_learned_close(&learned);
    if (s == DT_OK) {
        dt_text_print(
            stderr, "wrote %s%s",
            dt_args_text(args, DT_OPTION_HTML) != NULL ? dt_args_text(args, DT_OPTION_HTML) : dir,
            dt_args_text(args, DT_OPTION_HTML) != NULL ? "" : "/" DT_RUN_PAGE);
    }
    return s;
}

static enum dt_status report(const struct dt_args *args, struct dt_record *records)
{
    const struct dt_values *paths = &args->values[DT_PATHS];
    for (int i = 0; i < paths->n; i++) {
        DT_TRY(dt_record_open(paths->texts[i], &records[i]));
    }
    if (paths->n == 1) {
        dt_run_text_print(&records[0]);
    } else {
        dt_run_compare_print(records, paths->n);
    }
    const enum dt_status s =
        dt_error_text()[0] == '\0' ? DT_OK : DT_NO_MEMORY; /* there was none for a part */
    return s == DT_OK && dt_command_takes(args->command, DT_OPTION_HTML) ? write_page(args, records)
                                                                         : s;
}

/* From the runs' folders alone, whatever state they are in (cli/sinks/record.h). */
static enum dt_status run(const struct dt_args *args)
{
    const struct dt_values *paths = &args->values[DT_PATHS];
    struct dt_record *records = calloc((size_t)paths->n, sizeof *records);
    if (records == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the records of a run");
    }
    const enum dt_status s = report(args, records);
    for (int i = 0; i < paths->n; i++) {
        dt_record_close(&records[i]);
    }
    free(records);
    return s;
}

static enum dt_status check(const struct dt_args *args)
{
    const int n = args->values[DT_PATHS].n;
    if (n > DT_REPORT_MAX_RUNS) {
        return dt_error(DT_USAGE, "%d runs, at most %d fit beside each other (name fewer)", n,
                        DT_REPORT_MAX_RUNS);
    }
    return DT_OK;
}

static enum dt_status check_report(const struct dt_args *args)
{
    const int n = args->values[DT_PATHS].n;
    if (n < 1) {
        return dt_error(DT_USAGE, "report: the folder of a run is required (dtrain report RUN)");
    }
    DT_TRY(check(args));
    if (n > 1 && !dt_args_has(args, DT_OPTION_HTML)) {
        return dt_error(DT_USAGE, "report: a page of several runs needs a name (add --html FILE)");
    }
    return DT_OK;
}

static enum dt_status check_compare(const struct dt_args *args)
{
    if (args->values[DT_PATHS].n < 2) {
        return dt_error(DT_USAGE,
                        "compare: the folders of two runs are required (dtrain compare RUN RUN)");
    }
    return check(args);
}

const struct dt_command dt_command_report = {
    .word = "report",
    .meaning = "a page about a run, or about several side by side",
    .usage = "dtrain report RUN... [--html FILE] [--data DIR]",
    .examples = "  dtrain report runs/night\n",
    .more = "Shows a run in a screen of text, and writes a page about it from its folder alone: "
            "verdict and result, curves, where the time went, the model and the configuration, "
            "and the numbers behind all that; from the newest checkpoint and the test data what "
            "the model learned: confusion, precision and recall of each class, the worst test "
            "samples, filters of the first layer. The run may have ended, be under way, or have "
            "been killed. The page is one file that asks for nothing else. Of several runs it "
            "shows the curves over each other, and needs `--html`.",
    .options = {[DT_OPTION_DATA] =
                    {DT_TAKEN,
                     "folder of the test images, for the part about what the model learned"},
                [DT_OPTION_HTML] = {DT_TAKEN, "the page's file; default report.html in the run's "
                                              "folder, required for several runs"},
                [DT_PATHS] = {DT_TAKEN}},
    .check = check_report,
    .alone = run,
};

const struct dt_command dt_command_compare = {
    .word = "compare",
    .meaning = "results of runs, and where their configurations differ",
    .usage = "dtrain compare RUN RUN...",
    .examples = "  dtrain compare runs/night runs/day\n",
    .options = {[DT_PATHS] = {DT_TAKEN}},
    .check = check_compare,
    .alone = run,
};
