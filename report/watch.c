/* `dtrain report --follow [RUN]`: a run while it is under way, from its folder alone, so that it
 * works from any host that sees the folder. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/args.h"
#include "cli/terminal.h"
#include "dist/ranks/launch/stop.h"
#include "report/run.h"

#define LEAST_INTERVAL_S 1.0
#define SHARE_OF_TIME \
    10 /* of a long run's records: reading them takes at most one part in so many */
#define LINES_OF_A_FILE 1000

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

/* The text of a screen, written over the one before. */
static void put_over(const char *text)
{
    fputs("\033[H", stdout);
    for (; *text != '\0'; text++) {
        fputs(*text == '\n' ? "\033[K" : "", stdout);
        fputc(*text, stdout);
    }
    fputs("\033[J", stdout);
    fflush(stdout);
}

/* `text`: the caller's, to be freed. */
static enum dt_status draw(const char *folder, struct dt_screen screen, char **text, bool *is_over)
{
    struct dt_record record;
    size_t n = 0;
    *text = NULL;
    DT_TRY(dt_record_open(folder, &record));
    FILE *out = open_memstream(text, &n);
    if (out != NULL) {
        dt_run_screen_draw(out, &record, screen);
    }
    const bool whole = dt_text_close(out, text);
    *is_over = record.state != DT_RUN_GOING;
    dt_record_close(&record);
    return whole ? DT_OK : dt_error(DT_NO_MEMORY, "no memory for a screen");
}

/* On a screen of its own, which the terminal forgets. */
static enum dt_status follow(const char *folder, char **text)
{
    struct keys keys = {.open = false};
    enum dt_status s = DT_OK;
    bool leaves = false;
    open_keys(&keys);
    fputs("\033[?1049h\033[?25l", stdout);
    while (s == DT_OK && !leaves && ferror(stdout) == 0) {
        const double begin = dt_clock_s();
        free(*text);
        *text = NULL;
        const struct dt_screen screen = dt_terminal_screen(STDOUT_FILENO);
        s = draw(folder, screen, text, &leaves);
        if (s == DT_OK && !leaves) {
            put_over(*text);
            const double read_s = dt_clock_s() - begin, interval_s = SHARE_OF_TIME * read_s;
            leaves = wants_to_leave(&keys,
                                    interval_s > LEAST_INTERVAL_S ? interval_s : LEAST_INTERVAL_S);
        }
    }
    fputs("\033[?25h\033[?1049l", stdout);
    close_keys(&keys);
    return s;
}

enum dt_status dt_watch(const struct dt_args *args)
{
    const char *folder = dt_args_text(args, DT_PATHS);
    char newest[DT_PATH_SIZE];
    if (folder == NULL) {
        DT_TRY(dt_runs_newest(newest));
        dt_text_print(stderr, "run  %s", newest);
        folder = newest;
    }
    const bool terminal = dt_terminal_width(STDOUT_FILENO) > 0;
    struct dt_screen screen = dt_terminal_screen(STDOUT_FILENO);
    char *text = NULL;
    bool is_over = false;
    dt_stop_install();
    screen.height = LINES_OF_A_FILE;
    enum dt_status s = draw(folder, screen, &text, &is_over);
    if (s == DT_OK && terminal && !is_over) {
        s = follow(folder, &text);
    }
    if (s == DT_OK) {
        fputs(text, stdout);
    }
    free(text);
    return s;
}
