#include "report/run.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "report/facts.h"

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

static void print_epoch(const struct dt_record_table *t, size_t row)
{
    print_number(5, 15, dt_record_cell(t, row, DT_EPOCH_EPOCH));
    print_number(9, 15, dt_record_cell(t, row, DT_EPOCH_STEP));
    print_number(12, 4, dt_record_cell(t, row, DT_EPOCH_TRAIN_LOSS));
    print_number(12, 4, dt_record_cell(t, row, DT_EPOCH_TEST_LOSS));
    print_number(12, 4, 100 * dt_record_cell(t, row, DT_EPOCH_TEST_ACCURACY));
    print_number(12, 3, dt_record_cell(t, row, DT_EPOCH_LR));
    print_number(13, 15, round(dt_record_cell(t, row, DT_EPOCH_IMAGES)));
    fputc('\n', stdout);
}

/* The first, the last, and so many between. */
static void print_epochs(const struct dt_record *r)
{
    const struct dt_record_table *t = &r->epochs;
    const size_t n = t->n < MAX_EPOCHS ? t->n : MAX_EPOCHS;
    if (n == 0) {
        return;
    }
    printf("\n%5s%9s%12s%12s%12s%12s%11s/s\n", "epoch", "step", "train loss", "test loss",
           "test acc. %", "lr", dt_unit_name(&r->config));
    for (size_t i = 0; i < n; i++) {
        print_epoch(t, n > 1 ? i * (t->n - 1) / (n - 1) : 0);
    }
}

void dt_run_text_print(const struct dt_record *r)
{
    print_fact("run", r->path);
    print_facts(r);
    print_epochs(r);
}
