#include "report/run.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "cli/text.h"
#include "report/page/page.h"

/* Columns of the results. X(constant, name, width on a terminal) */
#define COLUMN_LIST(X)                      \
    X(COLUMN_STATE, "verdict", 10)          \
    X(COLUMN_ACCURACY, "test accuracy", 17) \
    X(COLUMN_LOSS, "test loss", 11)         \
    X(COLUMN_STEPS, "steps", 9)             \
    X(COLUMN_SPEED, "a second", 10)         \
    X(COLUMN_TIME, "time", 10)              \
    X(COLUMN_RANKS, "ranks", 7)
#define COLUMN(constant, name, width) constant,
#define NAME(constant, name, width) name,
#define WIDTH(constant, name, width) width,
enum column { COLUMN_LIST(COLUMN) N_COLUMNS };
static const char *const column_names[] = {COLUMN_LIST(NAME)};
static const int column_widths[] = {COLUMN_LIST(WIDTH)};

#define CELL_SIZE 40
#define LONG_VALUE 100 /* characters */
#define DIFFERENCE_WIDTH 78
#define PATH_WIDTH 36
struct row {
    char cells[N_COLUMNS][CELL_SIZE];
};

static void put_number(char *cell, int digits, double value)
{
    if (isfinite(value)) {
        snprintf(cell, CELL_SIZE, "%.*g", digits, value);
    }
}

static struct row row_of(const struct dt_record *r)
{
    struct row row = {.cells = {""}};
    const struct dt_record_result result = dt_record_result(r);
    const double seconds = dt_record_seconds(r);
    snprintf(row.cells[COLUMN_STATE], CELL_SIZE, "%s", dt_run_state_word(r->state));
    if (isfinite(result.margin)) {
        snprintf(row.cells[COLUMN_ACCURACY], CELL_SIZE, "%.2f ± %.2f %%", 100 * result.accuracy,
                 100 * result.margin);
    } else {
        put_number(row.cells[COLUMN_ACCURACY], 4, 100 * result.accuracy);
    }
    put_number(row.cells[COLUMN_LOSS], 4, result.loss);
    put_number(row.cells[COLUMN_STEPS], 15, dt_record_progress(r).step);
    put_number(row.cells[COLUMN_SPEED], 15, round(dt_record_last(&r->epochs, DT_EPOCH_IMAGES)));
    if (isfinite(seconds)) {
        dt_duration_text(seconds, row.cells[COLUMN_TIME], CELL_SIZE);
    }
    put_number(row.cells[COLUMN_RANKS], 15, dt_record_number(r->start, "world_size"));
    return row;
}

/* How much of their paths all runs have in common: whole folders. */
static size_t common_folders(const struct dt_record *records, int n)
{
    size_t common = 0;
    for (size_t at = 0; records[0].path[at] != '\0'; at++) {
        for (int i = 1; i < n; i++) {
            if (records[i].path[at] != records[0].path[at]) {
                return common;
            }
        }
        common = records[0].path[at] == '/' ? at + 1 : common;
    }
    return common;
}

/* Of a long path the end. */
void dt_run_name(const struct dt_record *records, int n, int i, char out[DT_RUN_NAME_SIZE])
{
    const char *path = records[i].path + common_folders(records, n);
    const size_t length = strlen(path), most = DT_RUN_NAME_SIZE - 6;
    if (length > most) {
        path += length - most;
        while (((unsigned char)*path & 0xC0) == 0x80) { /* within a character */
            path++;
        }
    }
    snprintf(out, DT_RUN_NAME_SIZE, "%c %s%.*s", 'A' + i, length > most ? "..." : "", (int)most,
             path);
}

/* ---- on the terminal */

struct differences {
    FILE *out;
    int n;       /* runs */
    int n_found; /* so far */
};

/* "32 | 128": all values in a line. Returns how many characters that are. */
static size_t join(int n, const char *const *values, char *line, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < n && used < size; i++) {
        used += (size_t)snprintf(line + used, size - used, "%s%s", i > 0 ? " | " : "",
                                 values[i][0] != '\0' ? values[i] : "-");
    }
    return used;
}

static void print_difference(void *context, const char *path, const char *const *values)
{
    struct differences *d = context;
    char line[DIFFERENCE_WIDTH];
    fputs(d->n_found++ == 0 ? "\nwhere the configurations differ, A | B ...\n" : "", stdout);
    if (join(d->n, values, line, sizeof line) < sizeof line - PATH_WIDTH) {
        dt_text_print(stdout, "  %-*s %s", PATH_WIDTH, path, line);
        return;
    }
    dt_text_print(stdout, "  %s", path);
    for (int i = 0; i < d->n; i++) {
        dt_text_print(stdout, "    %c %s", 'A' + i, values[i][0] != '\0' ? values[i] : "-");
    }
}

void dt_run_compare_print(const struct dt_record *records, int n)
{
    for (int i = 0; i < n; i++) {
        dt_text_print(stdout, "%c  %s: %s", 'A' + i, records[i].path, dt_record_name(&records[i]));
    }
    fputs("\n ", stdout);
    for (int c = 0; c < N_COLUMNS; c++) {
        printf("%*s", column_widths[c], column_names[c]);
    }
    for (int i = 0; i < n; i++) {
        const struct row row = row_of(&records[i]);
        printf("\n%c", 'A' + i);
        for (int c = 0; c < N_COLUMNS; c++) { /* the sign is two bytes in a column */
            const bool sign = strstr(row.cells[c], "±") != NULL;
            printf("%*s", column_widths[c] + sign, row.cells[c]);
        }
    }
    fputc('\n', stdout);
    struct differences d = {stdout, n, 0};
    dt_run_differences(records, n, print_difference, &d);
    if (d.n_found == 0) {
        puts("\nthe configurations are equal");
    }
}

/* ---- on the page */

static void put_difference(void *context, const char *path, const char *const *values)
{
    struct differences *d = context;
    d->n_found++;
    fprintf(d->out, "<tr><td>%s", path);
    for (int i = 0; i < d->n; i++) {
        const bool folded = strlen(values[i]) > LONG_VALUE;
        fputs(folded ? "<td><details><summary>shown on demand</summary>" : "<td>", d->out);
        dt_page_text(d->out, values[i]);
        fputs(folded ? "</details>" : "", d->out);
    }
    fputc('\n', d->out);
}

static void put_results(FILE *out, const struct dt_record *records, int n)
{
    fputs("<div class=\"wide\"><table class=\"results\"><thead><tr><th>run", out);
    for (int c = 0; c < N_COLUMNS; c++) {
        fprintf(out, "<th>%s", column_names[c]);
    }
    fputs("</thead><tbody>\n", out);
    for (int i = 0; i < n; i++) {
        const struct row row = row_of(&records[i]);
        fprintf(out, "<tr><td><span class=\"key k%d\">%c ", i, 'A' + i);
        dt_page_text(out, records[i].path);
        fputs("</span>", out);
        for (int c = 0; c < N_COLUMNS; c++) {
            fprintf(out, "<td>%s", row.cells[c]);
        }
        fputc('\n', out);
    }
    fputs("</tbody></table></div>\n", out);
}

void dt_run_compare_draw(FILE *out, const struct dt_record *records, int n)
{
    struct differences d = {out, n, 0};
    fputs("<h2 class=\"part\">Where the configurations differ</h2>\n<div class=\"wide\"><table "
          "class=\"config\"><thead><tr><th>key",
          out);
    for (int i = 0; i < n; i++) {
        char name[DT_RUN_NAME_SIZE];
        dt_run_name(records, n, i, name);
        fprintf(out, "<th><span class=\"key k%d\">", i);
        dt_page_text(out, name);
        fputs("</span>", out);
    }
    fputs("</thead><tbody>\n", out);
    dt_run_differences(records, n, put_difference, &d);
    fprintf(out, "</tbody></table></div>\n%s<h2 class=\"part\">Results</h2>\n",
            d.n_found == 0 ? "<p>Nowhere.</p>\n" : "");
    put_results(out, records, n);
}
