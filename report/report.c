/* `dtrain report`: a run, or several, on the terminal and as a page; `dtrain report`: several on
 * the terminal. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/args.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "dist/ranks/launch/launch.h"
#include "dist/ranks/launch/stop.h"
#include "report/run.h"

#define MAX_EPOCHS 12 /* rows of the table */
#define NAME_WIDTH 14

/* Bytes of the text's words that fit into so many columns, or those of the first. A character
 * counts as a column. */
static size_t fitting(const char *text, int columns)
{
    size_t end = 0;
    int n = 0;
    for (size_t i = 0;; i++) {
        if (text[i] == ' ' || text[i] == '\0') {
            end = n <= columns || end == 0 ? i : end;
            if (n > columns || text[i] == '\0') {
                return end;
            }
        }
        n += (text[i] & 0xC0) != 0x80;
    }
}

/* On a terminal in lines of its width, below each other; else in one, for other programs to read.
 */
static void print_fact(const char *name, const char *text)
{
    char shown[DT_LINE_SIZE];
    const int width = dt_terminal_width(STDOUT_FILENO), least = NAME_WIDTH + 20;
    const int room = width == 0 ? DT_LINE_SIZE : (width > least ? width : least) - NAME_WIDTH - 1;
    const char *rest = dt_text_escape(text, shown, sizeof shown);
    do {
        const size_t n = fitting(rest, room);
        printf("%-*s%.*s\n", NAME_WIDTH, rest == shown ? name : "", (int)n, rest);
        rest += n + (rest[n] == ' ');
    } while (*rest != '\0');
}

static void print_facts(const struct dt_record *r)
{
    static struct dt_facts facts; /* large for a stack */
    dt_facts_find(r, &facts);
    for (int i = 0; i < DT_N_FACTS; i++) {
        if (facts.texts[i][0] != '\0') {
            print_fact(dt_fact_names[i], facts.texts[i]);
        }
    }
}

static void print_number(int width, int digits, double value)
{
    char text[32] = "";
    if (isfinite(value)) {
        snprintf(text, sizeof text, "%.*g", digits, value);
    }
    printf("%*s", width, text);
}

static void print_epoch(const struct dt_record *r, size_t row)
{
    const struct dt_record_table *t = &r->epochs;
    const bool validates = r->config.data.validation > 0;
    print_number(5, 15, dt_record_cell(t, row, DT_EPOCH_EPOCH));
    print_number(9, 15, dt_record_cell(t, row, DT_EPOCH_STEP));
    print_number(12, 4, dt_record_cell(t, row, DT_EPOCH_TRAIN_LOSS));
    print_number(12, 4,
                 dt_record_cell(t, row, validates ? DT_EPOCH_VALIDATION_LOSS : DT_EPOCH_TEST_LOSS));
    print_number(
        12, 4,
        100 * dt_record_cell(t, row,
                             validates ? DT_EPOCH_VALIDATION_ACCURACY : DT_EPOCH_TEST_ACCURACY));
    print_number(12, 3, dt_record_cell(t, row, DT_EPOCH_LR));
    print_number(13, 15, round(dt_record_cell(t, row, DT_EPOCH_IMAGES)));
    fputc('\n', stdout);
}

/* The first, the last, and so many between. */
static void print_epochs(const struct dt_record *r)
{
    const struct dt_record_table *t = &r->epochs;
    const bool validates = r->config.data.validation > 0;
    const size_t n = t->n < MAX_EPOCHS ? t->n : MAX_EPOCHS;
    if (n == 0) {
        return;
    }
    printf("\n%5s%9s%12s%12s%12s%12s%11s/s\n", "epoch", "step", "train loss",
           validates ? "val. loss" : "test loss", validates ? "val. acc. %" : "test acc. %", "lr",
           dt_unit_name(&r->config));
    for (size_t i = 0; i < n; i++) {
        print_epoch(r, n > 1 ? i * (t->n - 1) / (n - 1) : 0);
    }
}

static enum dt_status write_page(const struct dt_args *args, const struct dt_record *records, int n)
{
    const char *const dir = records[0].path, *html = dt_args_text(args, DT_OPTION_HTML);
    struct dt_learned learned = {.why_not = ""};
    const bool one = n == 1;
    DT_TRY(html == NULL ? dt_dir_try(dir) : DT_OK);
    enum dt_status s =
        one ? dt_learned_find(records, dt_args_text(args, DT_OPTION_DATA), &learned) : DT_OK;
    s = s == DT_OK ? dt_run_page_write(html, dir, records, n, one ? &learned : NULL) : s;
    dt_learned_close(&learned);
    if (s == DT_OK) {
        dt_text_print(stderr, "wrote %s%s", html != NULL ? html : dir,
                      html != NULL ? "" : "/" DT_RUN_PAGE);
    }
    return s;
}

static enum dt_status report(const struct dt_args *args, const struct dt_values *paths,
                             struct dt_record *records)
{
    for (int i = 0; i < paths->n; i++) {
        DT_TRY(dt_record_open(paths->texts[i], &records[i]));
    }
    if (paths->n == 1) {
        print_fact("run", records[0].path);
        print_facts(&records[0]);
        print_epochs(&records[0]);
        dt_run_flight_print(stdout, &records[0]);
    } else {
        dt_run_compare_print(records, paths->n);
    }
    const enum dt_status s =
        dt_error_text()[0] == '\0' ? DT_OK : DT_NO_MEMORY; /* there was none for a part */
    return s == DT_OK && (paths->n == 1 || dt_args_has(args, DT_OPTION_HTML))
               ? write_page(args, records, paths->n)
               : s;
}

/* From the runs' folders alone, whatever state they are in (report/record.h). */
static enum dt_status run(const struct dt_args *args)
{
    char newest[DT_PATH_SIZE];
    const char *only = newest;
    const struct dt_values one = {.texts = &only, .n = 1}, *paths = &args->values[DT_PATHS];
    if (dt_args_has(args, DT_OPTION_FOLLOW)) {
        return dt_watch(args);
    }
    dt_stop_at_once(dt_launch_leave);
    if (paths->n == 0) {
        DT_TRY(dt_runs_newest(newest));
        paths = &one;
    }
    struct dt_record *records = calloc((size_t)paths->n, sizeof *records);
    if (records == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the records of a run");
    }
    const enum dt_status s = report(args, paths, records);
    for (int i = 0; i < paths->n; i++) {
        dt_record_close(&records[i]);
    }
    free(records);
    return s;
}

static enum dt_status check(const struct dt_args *args)
{
    const int n = args->values[DT_PATHS].n;
    if (dt_args_has(args, DT_OPTION_FOLLOW) && (n > 1 || dt_args_has(args, DT_OPTION_HTML))) {
        return dt_error(DT_USAGE,
                        "report: --follow shows one run, without --html (leave the others "
                        "out)");
    }
    if (n > DT_REPORT_MAX_RUNS) {
        return dt_error(DT_USAGE, "%d runs, at most %d fit beside each other (name fewer)", n,
                        DT_REPORT_MAX_RUNS);
    }
    return DT_OK;
}

const struct dt_command dt_command_report = {
    .word = "report",
    .meaning = "show a run, or compare several; --follow: live",
    .usage = "dtrain report [RUN]... [--follow] [--html FILE] [--data DIR]",
    .examples = "  dtrain report\n"
                "  dtrain report runs/night\n"
                "  dtrain report runs/night runs/day\n"
                "  dtrain report --follow\n",
    .more =
        "Without a name it takes the newest run below `runs/`. Shows a run in a screen of text, "
        "and writes a page about it from its folder alone: "
        "verdict and result, curves, where the time went, the model and the configuration, "
        "and the numbers behind all that; from the newest checkpoint and the test data what "
        "the model learned: confusion, precision and recall of each class, the worst test "
        "samples, filters of the first layer; of another user's run only with `--data`. The run "
        "may have ended, be under way, or have "
        "been killed. The page is one file that asks for nothing else. Of several runs it "
        "prints results and where their configurations differ; with `--html` it writes a page with "
        "their curves over each other. `--follow` draws one screen again every second until the "
        "run is over; `q` leaves, and the last screen stays. Where stdout is no terminal it prints "
        "one screen.",
    .options = {[DT_OPTION_DATA] =
                    {DT_TAKEN,
                     "folder of the test images, for the part about what the model learned"},
                [DT_OPTION_HTML] = {DT_TAKEN, "the page's file; default report.html in the run's "
                                              "folder; of several runs none"},
                [DT_OPTION_FOLLOW] = {DT_TAKEN},
                [DT_PATHS] = {DT_TAKEN}},
    .ending = DT_SAVES,
    .check = check,
    .alone = run,
};
