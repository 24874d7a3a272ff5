#include "ops/sweep/results.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "cli/args.h"
#include "cli/config/config.h"
#include "cli/output.h"
#include "cli/text.h"
#include "report/run.h"
#include "train/save/run_dir.h"

#define TABLE "sweep.csv"
#define CELL_SIZE 96
#define MAX_CONFIG_BYTES ((size_t)1 << 20)
#define DIVERGED_FACTOR 10 /* times the loss of the first steps */
#define GAP 2              /* columns between those of the table */

void dt_sweep_folder(const char *dir, const struct dt_sweep_grid *grid, int run,
                     char path[DT_PATH_SIZE])
{
    snprintf(path, DT_PATH_SIZE, "%.*s/%0*d", DT_PATH_SIZE - 8, dir,
             dt_digits((unsigned long long)grid->n_runs), run + 1);
}

/* True if the run's final error says so, or if its loss is far beyond that of the untrained
 * weights. */
static bool has_diverged(const struct dt_record *record)
{
    const double loss = dt_record_result(record).loss;
    const double first =
        record->steps.n > 0 ? dt_record_cell(&record->steps, 0, DT_STEP_LOSS) : (double)NAN;
    return dt_record_number(record->summary, "exit_code") == DT_NON_FINITE ||
           loss > DIVERGED_FACTOR * first;
}

enum dt_status dt_sweep_row_read(const char *dir, const struct dt_sweep_grid *grid, int run,
                                 bool ended, struct dt_sweep_row *out)
{
    char path[DT_PATH_SIZE];
    struct dt_record record;
    *out = (struct dt_sweep_row){.run = run,
                                 .verdict = ended ? "failed" : "not begun",
                                 .result = {NAN, NAN, NAN, NAN},
                                 .validation = {NAN, NAN, NAN, NAN},
                                 .steps = NAN,
                                 .seconds = NAN};
    dt_sweep_folder(dir, grid, run, path);
    const enum dt_status s = dt_record_open(path, &record);
    if (s == DT_NO_MEMORY) {
        return s;
    }
    if (s != DT_OK) {
        dt_error_clear(); /* a run that did not get so far */
        return DT_OK;
    }
    const bool diverged = has_diverged(&record);
    *out = (struct dt_sweep_row){.run = run,
                                 .known = true,
                                 .diverged = diverged,
                                 .verdict = diverged ? "diverged" : dt_run_state_word(record.state),
                                 .result = dt_record_result(&record),
                                 .validation = dt_record_validation(&record),
                                 .steps = dt_record_progress(&record).step,
                                 .seconds = dt_record_seconds(&record)};
    dt_record_close(&record);
    return DT_OK;
}

/* ---- as text */

static const char *value_text(const struct dt_sweep_grid *grid, int run, int axis)
{
    return grid->axes[axis].texts[dt_grid_value(grid, run, axis)] + strlen(grid->axes[axis].key) +
           1;
}

/* The last part of the key if it is unambiguous: "lr" of train.optimizer.lr. */
static const char *short_key(const struct dt_sweep_grid *grid, int axis)
{
    const char *key = grid->axes[axis].key, *dot = strrchr(key, '.');
    const char *last = dot != NULL ? dot + 1 : key;
    for (int a = 0; a < grid->n_axes; a++) {
        const char *other = strrchr(grid->axes[a].key, '.');
        if (a != axis && strcmp(other != NULL ? other + 1 : grid->axes[a].key, last) == 0) {
            return key;
        }
    }
    return last;
}

static bool validates(const struct dt_sweep_row *row)
{
    return isfinite(row->validation.loss);
}

/* What the run is ranked by. */
static const struct dt_record_result *judgement(const struct dt_sweep_row *row)
{
    return validates(row) ? &row->validation : &row->result;
}

static void result_text(const struct dt_sweep_row *row, char *text, size_t n_text)
{
    const struct dt_record_result *result = judgement(row);
    const char *set = validates(row) ? "validation" : "test";
    char loss[32];
    dt_loss_text(result->loss, loss, sizeof loss);
    if (isnan(result->loss)) {
        snprintf(text, n_text, "%s", "");
    } else if (isnan(result->accuracy)) {
        snprintf(text, n_text, "%s loss %s", set, loss);
    } else {
        snprintf(text, n_text, "%s accuracy %.2f %%, %s loss %s", set, 100 * result->accuracy, set,
                 loss);
    }
}

void dt_sweep_row_print(const struct dt_sweep_grid *grid, const struct dt_sweep_row *row,
                        int n_done)
{
    char line[DT_LINE_SIZE], result[96];
    size_t n = 0;
    result_text(row, result, sizeof result);
    line[0] = '\0';
    for (int a = 0; a < grid->n_axes && n < sizeof line; a++) {
        if (grid->axes[a].n > 1) {
            n += (size_t)snprintf(line + n, sizeof line - n, " %s=%s", short_key(grid, a),
                                  value_text(grid, row->run, a));
        }
    }
    dt_text_print(stderr, "%*d/%d  run %d%s: %s%s%s", dt_digits((unsigned long long)grid->n_runs),
                  n_done, grid->n_runs, row->run + 1, line, row->verdict,
                  result[0] != '\0' ? ", " : "", result);
}

/* ---- the table */

static const char *share_text(double value, char *text, size_t size)
{
    snprintf(text, size, "%.2f %%", 100 * value);
    return text;
}

/* Columns after those of the axes and the verdict. */
static const struct {
    const char *name, *csv_name;
    size_t offset; /* of a double in struct dt_sweep_row; NaN: none */
    const char *(*text)(double value, char *text, size_t size);
} columns[] = {
    {"validation accuracy", "validation_accuracy",
     offsetof(struct dt_sweep_row, validation.accuracy), share_text},
    {"validation loss", "validation_loss", offsetof(struct dt_sweep_row, validation.loss),
     dt_loss_text},
    {"test accuracy", "test_accuracy", offsetof(struct dt_sweep_row, result.accuracy), share_text},
    {"test loss", "test_loss", offsetof(struct dt_sweep_row, result.loss), dt_loss_text},
    {"steps", "steps", offsetof(struct dt_sweep_row, steps), dt_count_text},
    {"time", "seconds", offsetof(struct dt_sweep_row, seconds), dt_duration_text}};
#define N_COLUMNS (sizeof columns / sizeof columns[0])
#define N_VALIDATION 2 /* the first, which are left out where no run validates */
static const char verdict_name[] = "  verdict";

struct table {
    const struct dt_sweep_grid *grid;
    const struct dt_sweep_row *rows;
};

static size_t first_column(const struct table *table)
{
    for (int i = 0; i < table->grid->n_runs; i++) {
        if (validates(&table->rows[i])) {
            return 0;
        }
    }
    return N_VALIDATION;
}

static double value_of(const struct dt_sweep_row *row, size_t column)
{
    double value;
    memcpy(&value, (const char *)row + columns[column].offset, sizeof value);
    return value;
}

/* The width of its name or its widest value. */
static int axis_width(const struct dt_sweep_grid *grid, int axis)
{
    size_t width = strlen(short_key(grid, axis));
    for (int i = 0; i < grid->axes[axis].n; i++) {
        const size_t n = strlen(grid->axes[axis].texts[i]) - strlen(grid->axes[axis].key) - 1;
        width = n > width ? n : width;
    }
    return (int)(width < CELL_SIZE ? width : CELL_SIZE - 1);
}

/* The number of the run and the values of the axes; NULL: their names. */
static void print_axes(const struct dt_sweep_grid *grid, const struct dt_sweep_row *row)
{
    char text[CELL_SIZE] = "run";
    if (row != NULL) {
        snprintf(text, sizeof text, "%d", row->run + 1);
    }
    printf("%*s", dt_digits((unsigned long long)grid->n_runs) + GAP, text);
    for (int a = 0; a < grid->n_axes; a++) {
        if (grid->axes[a].n > 1) {
            printf("%*s%-*s", GAP, "", axis_width(grid, a),
                   row == NULL ? short_key(grid, a)
                               : dt_text_escape(value_text(grid, row->run, a), text, sizeof text));
        }
    }
}

static void print_row(const struct table *table, const struct dt_sweep_row *row)
{
    char text[CELL_SIZE];
    print_axes(table->grid, row);
    printf("%*s", GAP + (int)strlen(verdict_name), row->verdict);
    for (size_t c = first_column(table); c < N_COLUMNS; c++) {
        const double value = value_of(row, c);
        printf("%*s", GAP + (int)strlen(columns[c].name),
               isfinite(value) ? columns[c].text(value, text, sizeof text) : "");
    }
    fputc('\n', stdout);
}

static void print_head(const struct table *table)
{
    print_axes(table->grid, NULL);
    printf("%*s%s", GAP, "", verdict_name);
    for (size_t c = first_column(table); c < N_COLUMNS; c++) {
        printf("%*s%s", GAP, "", columns[c].name);
    }
    fputc('\n', stdout);
}

static double worth(const struct dt_sweep_row *row)
{
    const struct dt_record_result *result = judgement(row);
    const double worth = isfinite(result->accuracy) ? result->accuracy : -result->loss;
    return row->known && !row->diverged && isfinite(worth) ? worth : -1e300;
}

/* For qsort: the best first, those without a result last. */
static int is_better(const void *a, const void *b)
{
    const struct dt_sweep_row *x = a, *y = b;
    const double first = worth(x), second = worth(y);
    return first != second ? (first < second) - (first > second) : x->run - y->run;
}

/* ---- the files */

static void put_csv_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        fputs(*text == '"' ? "\"" : "", out);
        fputc(*text, out);
    }
    fputc('"', out);
}

/* A dt_file_put_fn. */
static void put_csv(FILE *out, const void *context)
{
    const struct dt_sweep_grid *grid = ((const struct table *)context)->grid;
    const struct dt_sweep_row *rows = ((const struct table *)context)->rows;
    fputs("run", out);
    for (int a = 0; a < grid->n_axes; a++) {
        fputc(',', out);
        put_csv_text(out, grid->axes[a].key);
    }
    fputs(",verdict", out);
    for (size_t c = first_column(context); c < N_COLUMNS; c++) {
        fprintf(out, ",%s", columns[c].csv_name);
    }
    fputc('\n', out);
    for (int i = 0; i < grid->n_runs; i++) {
        fprintf(out, "%d", i + 1);
        for (int a = 0; a < grid->n_axes; a++) {
            fputc(',', out);
            put_csv_text(out, value_text(grid, i, a));
        }
        fprintf(out, ",%s", rows[i].verdict);
        for (size_t c = first_column(context); c < N_COLUMNS; c++) {
            const double value = value_of(&rows[i], c);
            fprintf(out, isfinite(value) ? ",%.9g" : ",nan", value);
        }
        fputc('\n', out);
    }
}

static enum dt_status write_csv(const char *dir, const struct dt_sweep_grid *grid,
                                const struct dt_sweep_row *rows)
{
    char *text = NULL;
    size_t n = 0;
    DT_TRY(dt_run_dir_check_file(dir, TABLE));
    DT_TRY(dt_file_collect(TABLE, put_csv, &(struct table){grid, rows}, &text, &n));
    const enum dt_status s = dt_file_write_atomic(dir, TABLE, &(struct dt_file_part){text, n}, 1);
    free(text);
    if (s == DT_OK) {
        dt_text_print(stderr, "wrote %s/" TABLE, dir);
    }
    return s;
}

/* About the best runs, as many as fit side by side. */
static enum dt_status write_page(const char *dir, const struct dt_sweep_grid *grid,
                                 const struct dt_sweep_row *rows)
{
    char path[DT_PATH_SIZE + 32];
    struct dt_record *records = calloc(DT_REPORT_MAX_RUNS, sizeof *records);
    struct dt_doc *doc = NULL;
    int n = 0;
    enum dt_status s =
        records != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "out of memory for the page of a sweep");
    for (int i = 0; i < grid->n_runs && n < DT_REPORT_MAX_RUNS && s == DT_OK; i++) {
        if (rows[i].known) {
            dt_sweep_folder(dir, grid, rows[i].run, path);
            s = dt_record_open(path, &records[n]);
            n += s == DT_OK;
        }
    }
    if (s == DT_OK && n > 0) {
        s = dt_runs_document(records, n, &doc);
        s = s == DT_OK ? dt_run_page_write(dir, doc) : s;
        dt_doc_close(doc);
    }
    for (int i = 0; i < n; i++) {
        dt_record_close(&records[i]);
    }
    free(records);
    if (s == DT_OK && n > 0) {
        dt_text_print(stderr, "wrote %s/" DT_RUN_PAGE " about the best %d", dir, n);
    }
    return s;
}

enum dt_status dt_sweep_config_read(const char *dir, const struct dt_sweep_grid *grid, int run,
                                    char **out)
{
    char folder[DT_PATH_SIZE], path[DT_PATH_SIZE + 16];
    struct dt_config *config = malloc(sizeof *config);
    uint8_t *text = NULL;
    size_t n;
    *out = NULL;
    dt_sweep_folder(dir, grid, run, folder);
    snprintf(path, sizeof path, "%s/config.json", folder);
    enum dt_status s = config != NULL
                           ? dt_file_read(path, MAX_CONFIG_BYTES, &text, &n)
                           : dt_error(DT_NO_MEMORY, "out of memory for the runs of a sweep");
    if (s == DT_NO_INPUT) { /* not started */
        dt_error_clear();
        s = DT_OK;
    } else if (s == DT_OK) {
        s = dt_config_json.read(path, (const char *)text, config);
        *out = s == DT_OK ? dt_config_to_json(config) : NULL;
        s = s == DT_OK && *out == NULL
                ? dt_error(DT_NO_MEMORY, "out of memory for the runs of a sweep")
                : s;
    }
    free(text);
    free(config);
    return s;
}

static bool is_result(const char *name)
{
    return strcmp(name, TABLE) == 0 || strcmp(name, DT_RUN_PAGE) == 0;
}

enum dt_status dt_sweep_results_try(const char *dir)
{
    DT_TRY(dt_dir_create(dir));
    DT_TRY(dt_run_dir_check_file(dir, TABLE));
    DT_TRY(dt_run_dir_check_file(dir, DT_RUN_PAGE));
    dt_dir_sweep(dir, is_result);
    return dt_dir_try(dir);
}

enum dt_status dt_sweep_results(const char *dir, const struct dt_sweep_grid *grid,
                                const double *ended)
{
    struct dt_sweep_row *rows = calloc((size_t)grid->n_runs, sizeof *rows);
    if (rows == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the table of a sweep");
    }
    enum dt_status s = DT_OK;
    for (int i = 0; i < grid->n_runs && s == DT_OK; i++) {
        s = dt_sweep_row_read(dir, grid, i, ended[i] > 0, &rows[i]);
    }
    if (s != DT_OK) {
        free(rows);
        return s;
    }
    const struct table table = {grid, rows};
    const bool no_table = dt_output_failed(write_csv(dir, grid, rows));
    qsort(rows, (size_t)grid->n_runs, sizeof *rows, is_better);
    print_head(&table);
    for (int i = 0; i < grid->n_runs; i++) {
        print_row(&table, &rows[i]);
    }
    fflush(stdout);
    s = write_page(dir, grid, rows);
    free(rows);
    return s == DT_OK && no_table
               ? dt_error(DT_IO, "%s: the table was not written (see the message above)", dir)
               : s;
}
