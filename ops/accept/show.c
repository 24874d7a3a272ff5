#include "ops/accept/outcome.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/terminal.h"

#define NAME_WIDTH 10 /* of a check */
#define HEAD_WIDTH 31 /* "MEASURED  checkpoint   12.3 s  " */
#define WORD_WIDTH 8  /* of a verdict */
#define NOTE_COLUMN 10
#define LEAST_TEXT 30 /* columns; with fewer the text gets its own lines */
#define MOST_MARKS 48 /* hosts */

static bool has_colors(void)
{
    const char *none = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return (none == NULL || none[0] == '\0') &&
           (terminal == NULL || strcmp(terminal, "dumb") != 0) &&
           dt_terminal_width(STDOUT_FILENO) > 0;
}

/* Number of marks in a row: none if there is one host, or no room. */
static int count_marks(const struct dt_acceptance *a, int width)
{
    const int n = dt_facts_count_hosts(a->ranks, a->world->size);
    return n > 1 && n <= MOST_MARKS && HEAD_WIDTH + n + 2 < width ? n : 0;
}

/* Prints text in the verdict's colour, if colours are on. */
static void put_coloured(enum dt_accept_verdict verdict, const char *text)
{
    const bool colours = has_colors();
    printf(colours ? "\033[%s" : "", dt_accept_verdicts[verdict].colour);
    printf(colours ? "m%s\033[0m" : "%s", text);
}

/* Prints a mark for each host, a dot while the check runs. */
static void put_marks(const struct dt_acceptance *a, int check)
{
    const struct dt_screen screen = dt_terminal_screen(STDOUT_FILENO);
    for (int r = 0; r < a->world->size; r++) {
        if (!dt_facts_is_first(a->ranks, r)) {
            continue;
        }
        if (check >= a->n_done) {
            putchar('.');
            continue;
        }
        const enum dt_accept_verdict verdict = dt_accept_host_verdict(a, check, r);
        put_coloured(verdict, screen.utf8 ? dt_accept_verdicts[verdict].mark
                                          : dt_accept_verdicts[verdict].ascii);
    }
    fputs("  ", stdout);
}

void dt_accept_show_begin(const struct dt_acceptance *a)
{
    const int size = a->world->size, n_hosts = a->world->comm->n_hosts;
    printf("dtrain accept: %d rank%s on %d host%s\n", size, size == 1 ? "" : "s", n_hosts,
           n_hosts == 1 ? "" : "s");
    fflush(stdout);
}

void dt_accept_show_running(const struct dt_acceptance *a, int check)
{
    const int width = dt_terminal_width(STDOUT_FILENO);
    if (width == 0 || width <= HEAD_WIDTH) {
        return;
    }
    printf("%-*s  %-*s           ", WORD_WIDTH, "....", NAME_WIDTH, dt_accept_checks[check].name);
    if (count_marks(a, width) > 0) {
        put_marks(a, check);
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

static void show_on_terminal(const struct dt_acceptance *a, int i, int width)
{
    const struct dt_accept_row *row = &a->rows[i];
    const int n_marks = count_marks(a, width);
    int column = HEAD_WIDTH + (n_marks > 0 ? n_marks + 2 : 0);
    char text[2 * sizeof row->text];
    fputs("\r\033[K", stdout);
    put_coloured(row->verdict, dt_accept_verdicts[row->verdict].word);
    printf("%*s  %-*s  %5.1f s  ", WORD_WIDTH - (int)strlen(dt_accept_verdicts[row->verdict].word),
           "", NAME_WIDTH, dt_accept_checks[i].name, a->seconds[i]);
    if (n_marks > 0) {
        put_marks(a, i);
    }
    if (width - column < LEAST_TEXT) {
        column = NOTE_COLUMN;
        printf("\n%*s", column, "");
    }
    dt_accept_wrap(stdout, dt_text_escape(row->text, text, sizeof text), column, width);
}

/* Prints them below the doctor's row, each in one line if there is no terminal. */
static void show_warnings(const struct dt_acceptance *a, int width)
{
    char text[DT_ACCEPT_WARNING_SIZE], shown[2 * DT_ACCEPT_WARNING_SIZE];
    for (int i = 0; dt_accept_next_warning(a, &i, text);) {
        printf("%*swarning: ", NOTE_COLUMN, "");
        dt_accept_wrap(stdout, dt_text_escape(text, shown, sizeof shown), NOTE_COLUMN + 9,
                       width > 0 ? width : INT_MAX);
    }
}

void dt_accept_show_row(const struct dt_acceptance *a, int check)
{
    const struct dt_accept_row *row = &a->rows[check];
    const int width = dt_terminal_width(STDOUT_FILENO);
    if (width > 0) {
        show_on_terminal(a, check, width);
    } else {
        dt_text_print(stdout, "%-*s  %-*s  %5.1f s  %s", WORD_WIDTH,
                      dt_accept_verdicts[row->verdict].word, NAME_WIDTH,
                      dt_accept_checks[check].name, a->seconds[check], row->text);
    }
    if (check == DT_ACCEPT_NUMBER_doctor) {
        show_warnings(a, width);
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

void dt_accept_show_end(const struct dt_acceptance *a)
{
    char text[96];
    dt_accept_sum_text(a, text, sizeof text);
    puts(text);
    fflush(stdout);
}
