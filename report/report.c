/* `dtrain report`: a run, or several side by side; with --follow a run while it is under way, from
 * its folder alone, so that it works from any host that sees the folder. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/result.h"
#include "cli/terminal.h"
#include "dist/launch/launch.h"
#include "dist/launch/stop.h"
#include "report/run.h"

#define LEAST_INTERVAL_S 1.0
#define SHARE_OF_TIME 10 /* reading a long run's records takes at most one part in so many */

/* ---- following */

/* The terminal of stdin, from which q is read as soon as it is typed. */
struct keys {
    bool open;
    struct termios before;
};

static void open_keys(struct keys *keys)
{
    keys->open = tcgetattr(STDIN_FILENO, &keys->before) == 0;
    struct termios now = keys->before;
    now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    if (keys->open) {
        tcsetattr(STDIN_FILENO, TCSANOW, &now);
    }
}

static void close_keys(struct keys *keys)
{
    if (keys->open) {
        tcsetattr(STDIN_FILENO, TCSAFLUSH, &keys->before);
    }
    keys->open = false;
}

/* Waits, and says whether somebody wants to leave. */
static bool wants_to_leave(struct keys *keys, double seconds)
{
    struct pollfd file = {.fd = keys->open ? STDIN_FILENO : -1, .events = POLLIN};
    char key = '\0';
    if (!dt_stop_requested() && poll(&file, 1, (int)(1e3 * seconds)) > 0 &&
        read(STDIN_FILENO, &key, 1) <= 0) {
        close_keys(keys); /* it is gone */
    }
    return key == 'q' || key == 'Q' || dt_stop_requested();
}

/* The first lines of a text, over the screen before; in a terminal's last line no line may end. */
static void put_over(const char *text, int height)
{
    fputs(DT_TERMINAL_HOME, stdout);
    for (int n = 1; *text != '\0' && n < height; text++) {
        fputs(*text == '\n' ? DT_TERMINAL_REST : "", stdout);
        fputc(*text, stdout);
        n += *text == '\n';
    }
    fputs(DT_TERMINAL_BELOW, stdout);
    fflush(stdout);
}

static enum dt_status write_page(const char *dir, const struct dt_doc *doc)
{
    DT_TRY(dt_dir_try(dir));
    return dt_run_page_write(dir, doc);
}

/* The text of a run under way, the caller's to be freed; NULL: it is over. `page`: whether it can
 * be written, too; the folder may be another user's. */
static enum dt_status draw(const char *folder, char **text, bool *page)
{
    struct dt_record record;
    struct dt_doc *doc = NULL;
    size_t n = 0;
    DT_TRY(dt_record_open(folder, &record));
    enum dt_status s = DT_OK;
    if (record.state == DT_RUN_GOING) {
        s = dt_run_document(&record, NULL, &doc);
        FILE *out = s == DT_OK ? open_memstream(text, &n) : NULL;
        if (out != NULL) {
            dt_result_print(out, doc);
        }
        const bool whole = dt_text_close(out, text);
        s = s == DT_OK && !whole ? dt_error(DT_NO_MEMORY, "no memory for a screen") : s;
    }
    if (s == DT_OK && doc != NULL && *page && write_page(record.path, doc) != DT_OK) {
        *page = false;
        dt_error_clear();
    }
    dt_doc_close(doc);
    dt_record_close(&record);
    return s;
}

/* Draws a run once a second, on a screen of its own, which the terminal forgets. `left`: the user
 * did not wait for its end; the last screen stays. */
static enum dt_status follow(const char *folder, bool *left)
{
    struct keys keys = {.open = false};
    enum dt_status s = DT_OK;
    char *text = NULL, *next = NULL;
    bool page = true;
    dt_stop_install();
    open_keys(&keys);
    fputs(DT_TERMINAL_OPEN, stdout);
    while (s == DT_OK && !*left && ferror(stdout) == 0) {
        const double begin = dt_clock_s();
        s = draw(folder, &next, &page);
        if (s != DT_OK || next == NULL) {
            break;
        }
        free(text);
        text = next;
        next = NULL;
        put_over(text, dt_terminal_height(STDOUT_FILENO));
        const double wait_s = SHARE_OF_TIME * (dt_clock_s() - begin);
        *left = wants_to_leave(&keys, wait_s > LEAST_INTERVAL_S ? wait_s : LEAST_INTERVAL_S);
    }
    fputs(DT_TERMINAL_CLOSE, stdout);
    close_keys(&keys);
    if (*left && text != NULL) {
        fputs(text, stdout);
    }
    free(text);
    return s;
}

/* ---- the command */

static enum dt_status show_one(const struct dt_args *args, const struct dt_record *r)
{
    struct dt_learned learned = {.why_not = ""};
    struct dt_doc *doc = NULL;
    enum dt_status s = dt_learned_find(r, dt_args_text(args, DT_OPTION_DATA), &learned);
    s = s == DT_OK ? dt_run_document(r, &learned, &doc) : s;
    s = s == DT_OK ? dt_result_show(args, doc) : s;
    if (s == DT_OK && !dt_args_has(args, DT_OPTION_HTML)) {
        s = write_page(r->path, doc);
        if (s == DT_OK) {
            dt_text_print(stderr, "wrote %s/" DT_RUN_PAGE, r->path);
        }
    }
    dt_doc_close(doc);
    dt_learned_close(&learned);
    return s;
}

static enum dt_status show(const struct dt_args *args, const struct dt_values *paths,
                           struct dt_record *records)
{
    struct dt_doc *doc = NULL;
    for (int i = 0; i < paths->n; i++) {
        DT_TRY(dt_record_open(paths->texts[i], &records[i]));
    }
    if (paths->n == 1) {
        return show_one(args, records);
    }
    enum dt_status s = dt_runs_document(records, paths->n, &doc);
    s = s == DT_OK ? dt_result_show(args, doc) : s;
    dt_doc_close(doc);
    return s;
}

/* From the runs' folders alone, whatever state they are in (report/record.h). */
static enum dt_status run(const struct dt_args *args)
{
    char newest[DT_PATH_SIZE];
    const char *only = newest;
    const struct dt_values one = {.texts = &only, .n = 1}, *paths = &args->values[DT_PATHS];
    bool left = false;
    if (paths->n == 0) {
        DT_TRY(dt_runs_newest(newest));
        paths = &one;
    }
    if (dt_args_has(args, DT_OPTION_FOLLOW) && dt_terminal_width(STDOUT_FILENO) > 0) {
        DT_TRY(follow(paths->texts[0], &left));
    } else {
        dt_stop_at_once(dt_launch_leave);
    }
    if (left) {
        return DT_OK;
    }
    struct dt_record *records = calloc((size_t)paths->n, sizeof *records);
    if (records == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the records of a run");
    }
    const enum dt_status s = show(args, paths, records);
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
    return n > 1 && dt_args_has(args, DT_OPTION_FOLLOW)
               ? dt_error(DT_USAGE, "report: --follow shows one run (name one)")
               : DT_OK;
}

const struct dt_command dt_command_report = {
    .word = "report",
    .meaning = "show a run, or compare several; --follow: live",
    .usage = "dtrain report [RUN]... [--follow] [--data DIR]" DT_RESULT_USAGE,
    .examples = "  dtrain report\n"
                "  dtrain report runs/night --follow\n"
                "  dtrain report runs/night runs/day --html both.html\n",
    .more =
        "Without a name it takes the newest run below `runs/`. It reads the run's folder alone; "
        "the run may have ended, be under way, or have been killed. It shows the result, "
        "curves, where the time went, the model and the configuration; and, from the newest "
        "checkpoint and the test data, what the model learned: confusion, precision and recall "
        "of each class, the worst test samples, filters of the first layer. Data of another "
        "user's run are read only with `--data`. A page of one run is written by default: "
        "report.html in its folder. Of several runs it shows the results, the keys of their "
        "configurations that differ, and the curves over each other. `--follow` prints a run "
        "under way once a second, as much as fits the terminal, and rewrites its page, until "
        "the run ends; `q` leaves.",
    .options = {DT_RESULT_OPTIONS,
                [DT_OPTION_DATA] =
                    {DT_TAKEN,
                     "folder of the test images, for the part about what the model learned"},
                [DT_OPTION_FOLLOW] = {DT_TAKEN}, [DT_PATHS] = {DT_TAKEN}},
    .ending = DT_SAVES,
    .check = check,
    .alone = run,
};
