#include "cli/commands/accept/show.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/report/terminal.h"

#define NAME_WIDTH 10 /* of a check */
#define HEAD_WIDTH 27 /* "PASS  checkpoint   12.3 s  " */
#define LEAST_TEXT 30 /* columns, or it gets lines of its own */
#define MOST_MARKS 48 /* hosts */

static bool has_colors(void)
{
    const char *none = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return (none == NULL || none[0] == '\0') && (terminal == NULL || strcmp(terminal, "dumb") != 0) &&
           dt_terminal_width(STDOUT_FILENO) > 0;
}

static bool is_first_of_host(const struct dt_acceptance *a, int rank)
{
    int r = 0;
    while (strcmp(a->hosts[r], a->hosts[rank]) != 0) {
        r++;
    }
    return r == rank;
}

static int count_hosts(const struct dt_acceptance *a)
{
    int n = 0;
    for (int r = 0; r < a->world->size; r++) {
        n += is_first_of_host(a, r);
    }
    return n;
}

/* How many marks a row has: none where there is one host, or no room. */
static int count_marks(const struct dt_acceptance *a, int width)
{
    const int n = count_hosts(a);
    return n > 1 && n <= MOST_MARKS && HEAD_WIDTH + n + 2 < width ? n : 0;
}

static bool host_failed(const struct dt_acceptance *a, const struct dt_accept_cell *cells, int first)
{
    bool failed = false;
    for (int r = first; r < a->world->size; r++) {
        failed = failed || (cells[r].failed && strcmp(a->hosts[r], a->hosts[first]) == 0);
    }
    return failed;
}

/* cells: NULL: not known yet. */
static void put_marks(const struct dt_acceptance *a, const struct dt_accept_cell *cells, const struct dt_screen *screen)
{
    const bool colors = has_colors();
    for (int r = 0; r < a->world->size; r++) {
        if (!is_first_of_host(a, r)) {
            continue;
        }
        const bool failed = cells != NULL && host_failed(a, cells, r);
        const char *mark = cells == NULL ? "." : failed ? (screen->utf8 ? "✗" : "x") : screen->utf8 ? "✓" : "+";
        printf("%s%s%s", colors && cells != NULL ? (failed ? "\033[31m" : "\033[32m") : "", mark,
               colors && cells != NULL ? "\033[0m" : "");
    }
    fputs("  ", stdout);
}

void dt_accept_show_begin(const struct dt_acceptance *a)
{
    const int size = a->world->size, n_hosts = a->world->comm->n_hosts;
    printf("dtrain accept: %d rank%s on %d host%s\n", size, size == 1 ? "" : "s", n_hosts, n_hosts == 1 ? "" : "s");
    fflush(stdout);
}

void dt_accept_show_running(const struct dt_acceptance *a, int check)
{
    const int width = dt_terminal_width(STDOUT_FILENO);
    const struct dt_screen screen = dt_terminal_screen(STDOUT_FILENO);
    if (width == 0 || width <= HEAD_WIDTH) {
        return;
    }
    printf("....  %-*s           ", NAME_WIDTH, dt_accept_names[check]);
    if (count_marks(a, width) > 0) {
        put_marks(a, NULL, &screen);
    }
    fflush(stdout);
}

void dt_accept_wrap(FILE *out, const char *text, int column, int width)
{
    for (int at = column; *text != '\0';) {
        const int n = (int)strcspn(text, " ");
        if (at > column && at + 1 + n > width) {
            fprintf(out, "\n%*s", column, "");
            at = column;
        }
        at += fprintf(out, "%s%.*s", at > column ? " " : "", n, text);
        text += n + (text[n] == ' ');
    }
    fputc('\n', out);
}

static void show_on_terminal(const struct dt_acceptance *a, const struct dt_accept_outcome *outcome, int i, int width)
{
    const struct dt_accept_row *row = &outcome->rows[i];
    const struct dt_screen screen = dt_terminal_screen(STDOUT_FILENO);
    const int n_marks = count_marks(a, width);
    int column = HEAD_WIDTH + (n_marks > 0 ? n_marks + 2 : 0);
    char text[2 * sizeof row->text];
    const char *color = !has_colors() ? "" : row->passed ? "\033[32m" : "\033[1;31m";
    printf("\r\033[K%s%s%s  %-*s  %5.1f s  ", color, row->passed ? "PASS" : "FAIL", color[0] != '\0' ? "\033[0m" : "", NAME_WIDTH,
           dt_accept_names[i], outcome->seconds[i]);
    if (n_marks > 0) {
        put_marks(a, outcome->cells + i * a->world->size, &screen);
    }
    if (width - column < LEAST_TEXT) {
        column = 6;
        printf("\n%*s", column, "");
    }
    dt_accept_wrap(stdout, dt_text_escape(row->text, text, sizeof text), column, width);
}

void dt_accept_show_row(const struct dt_acceptance *a, const struct dt_accept_outcome *outcome, int check)
{
    const struct dt_accept_row *row = &outcome->rows[check];
    const int width = dt_terminal_width(STDOUT_FILENO);
    if (width > 0) {
        show_on_terminal(a, outcome, check, width);
    } else {
        dt_text_print(stdout, "%s  %-*s  %5.1f s  %s", row->passed ? "PASS" : "FAIL", NAME_WIDTH, dt_accept_names[check],
                      outcome->seconds[check], row->text);
    }
    fflush(stdout);
}

void dt_accept_show_break(void)
{
    if (dt_terminal_width(STDOUT_FILENO) > 0) {
        fputs("\r\033[K", stdout);
        fflush(stdout);
    }
}

void dt_accept_show_end(const struct dt_accept_outcome *outcome)
{
    printf("%d of %d passed\n", outcome->n_done - outcome->n_failed, outcome->n_done);
    fflush(stdout);
}
