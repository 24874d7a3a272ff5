#include "report/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/config/schema.h"
#include "cli/text.h"
#include "report/page/page.h"

#define VALUE_SIZE 4096

/* ---- the configuration of a run */

/* A key of the configuration, or of its layer number `layer`; key NULL: the whole layer. */
struct leaf {
    const struct dt_key *key;
    int layer; /* -1: none */
};

/* Its value as JSON in a line; "": it has none here. */
static void leaf_text(struct leaf leaf, const struct dt_config *config, char text[VALUE_SIZE])
{
    const struct dt_model_spec *model = &config->model;
    const void *base = config;
    bool shown = leaf.layer < model->n_layers;
    if (leaf.layer >= 0) {
        base = &model->layers[leaf.layer];
    } else {
        shown = dt_key_is_shown(leaf.key, config);
    }
    FILE *out = shown ? fmemopen(memset(text, 0, VALUE_SIZE), VALUE_SIZE - 1, "w") : NULL;
    if (out == NULL) {
        text[0] = '\0';
        (void)(shown ? dt_error(DT_NO_MEMORY, "no memory for the keys of a configuration") : DT_OK);
        return;
    }
    if (leaf.key != NULL) {
        dt_key_print(out, leaf.key, base);
    } else {
        fputc('{', out);
        dt_layer_print(out, base);
        fputc('}', out);
    }
    fclose(out);
}

static bool is_default(const struct dt_key *key, const char *text)
{
    const size_t n = strlen(key->default_text);
    if (key->kind == DT_KEY_INT || key->kind == DT_KEY_REAL) {
        const bool batch = key->offset == offsetof(struct dt_config, batch_per_rank);
        const double usual = batch   ? DT_DEFAULT_BATCH
                             : n > 0 ? strtod(key->default_text, NULL)
                                     : (double)NAN;
        return strtod(text, NULL) == usual;
    }
    return dt_key_is_word(key)
               ? strlen(text) == n + 2 && strncmp(text + 1, key->default_text, n) == 0
               : strcmp(text, key->default_text) == 0;
}

static void put_key(FILE *out, const struct dt_key *key, const char *text)
{
    const bool other = key->default_text != NULL && !is_default(key, text);
    fprintf(out, "<tr%s><td>%s<td>", other ? " class=\"this\"" : "", key->path);
    dt_page_text(out, text);
    fputs("<td>", out);
    dt_page_text(out, !other ? "" : key->default_text[0] != '\0' ? key->default_text : "absent");
    fputc('\n', out);
}

void dt_run_config_draw(FILE *out, const struct dt_record *r)
{
    static char text[VALUE_SIZE];
    const struct dt_key_list list = dt_config_keys();
    fputs("<h2 class=\"part\">Configuration</h2>\n<p>What differs from the defaults stands "
          "out.</p>\n<div class=\"wide\"><table "
          "class=\"config\"><thead><tr><th>key<th>value<th>default</thead><tbody>\n",
          out);
    for (int i = 0; i < list.n; i++) {
        leaf_text((struct leaf){&list.keys[i], -1}, &r->config, text);
        if (text[0] != '\0' &&
            list.keys[i].kind != DT_KEY_LAYERS) { /* those are in the model's table */
            put_key(out, &list.keys[i], text);
        }
    }
    fputs("</tbody></table></div>\n", out);
}

/* ---- where several differ */

struct comparison {
    const struct dt_record *records;
    int n, n_found; /* runs; differences so far */
    FILE *out;
    void (*tell)(const struct comparison *c, const char *path, const char *const *values);
};

static void tell_if_other(struct comparison *c, struct leaf leaf)
{
    static char texts[DT_REPORT_MAX_RUNS][VALUE_SIZE];
    const char *values[DT_REPORT_MAX_RUNS];
    char path[96];
    bool same = true;
    for (int i = 0; i < c->n && i < DT_REPORT_MAX_RUNS; i++) {
        leaf_text(leaf, &c->records[i].config, texts[i]);
        values[i] = texts[i];
        same = same && strcmp(texts[i], texts[0]) == 0;
    }
    if (leaf.layer >= 0) {
        snprintf(path, sizeof path, "model.layers.%d%s%s", leaf.layer, leaf.key != NULL ? "." : "",
                 leaf.key != NULL ? leaf.key->path : "");
    }
    if (!same) {
        c->n_found++;
        c->tell(c, leaf.layer >= 0 ? path : leaf.key->path, values);
    }
}

static void tell_layer(struct comparison *c, int layer)
{
    const struct dt_model_spec *first = &c->records[0].config.model;
    bool alike = true;
    for (int i = 0; i < c->n; i++) {
        const struct dt_model_spec *model = &c->records[i].config.model;
        alike = alike && layer < model->n_layers && layer < first->n_layers &&
                model->layers[layer].type == first->layers[layer].type;
    }
    if (!alike) {
        tell_if_other(c, (struct leaf){NULL, layer});
        return;
    }
    const struct dt_key_list list = dt_layer_keys(first->layers[layer].type);
    for (int k = 0; k < list.n; k++) {
        tell_if_other(c, (struct leaf){&list.keys[k], layer});
    }
}

static void find_differences(struct comparison *c)
{
    const struct dt_key_list list = dt_config_keys();
    for (int k = 0; k < list.n; k++) {
        for (int layer = 0; list.keys[k].kind == DT_KEY_LAYERS && layer < DT_MAX_LAYERS; layer++) {
            tell_layer(c, layer);
        }
        if (list.keys[k].kind != DT_KEY_LAYERS) {
            tell_if_other(c, (struct leaf){&list.keys[k], -1});
        }
    }
}

/* ---- their results */

/* Columns of the results. X(constant, name, width on a terminal) */
#define COLUMN_LIST(X)                      \
    X(COLUMN_STATE, "verdict", 10)          \
    X(COLUMN_ACCURACY, "test accuracy", 17) \
    X(COLUMN_TOP5, "top 5", 10)             \
    X(COLUMN_LOSS, "test loss", 11)         \
    X(COLUMN_AVERAGE, "EMA", 10)            \
    X(COLUMN_VALIDATION, "validation", 12)  \
    X(COLUMN_STEPS, "steps", 9)             \
    X(COLUMN_SPEED, "a second", 10)         \
    X(COLUMN_TIME, "time", 10)              \
    X(COLUMN_RANKS, "ranks", 7)
#define COLUMN(constant, name, width) constant,
#define WIDTH(constant, name, width) width,
enum column { COLUMN_LIST(COLUMN) N_COLUMNS };
static const char *const column_names[] = {COLUMN_LIST(DT_ENUM_NAME)};
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

/* A share of 1, or else a loss. */
static void put_share(char *cell, double share, double loss)
{
    if (isfinite(share)) {
        snprintf(cell, CELL_SIZE, "%.2f %%", 100 * share);
    } else {
        put_number(cell, 4, loss);
    }
}

static struct row row_of(const struct dt_record *r)
{
    struct row row = {.cells = {""}};
    const struct dt_record_result result = dt_record_result(r),
                                  validation = dt_record_validation(r);
    const double seconds = dt_record_seconds(r);
    snprintf(row.cells[COLUMN_STATE], CELL_SIZE, "%s", dt_run_state_word(r->state));
    if (isfinite(result.margin)) {
        snprintf(row.cells[COLUMN_ACCURACY], CELL_SIZE, "%.2f ± %.2f %%", 100 * result.accuracy,
                 100 * result.margin);
    } else {
        put_number(row.cells[COLUMN_ACCURACY], 4, 100 * result.accuracy);
    }
    put_number(row.cells[COLUMN_LOSS], 4, result.loss);
    put_share(row.cells[COLUMN_TOP5], result.top5, (double)NAN);
    put_share(row.cells[COLUMN_AVERAGE], result.ema_accuracy, result.ema_loss);
    put_share(row.cells[COLUMN_VALIDATION], validation.accuracy, validation.loss);
    put_number(row.cells[COLUMN_STEPS], 15, dt_record_progress(r).step);
    put_number(row.cells[COLUMN_SPEED], 15, round(dt_record_last(&r->epochs, DT_EPOCH_IMAGES)));
    if (isfinite(seconds)) {
        dt_duration_text(seconds, row.cells[COLUMN_TIME], CELL_SIZE);
    }
    put_number(row.cells[COLUMN_RANKS], 15, dt_record_number(r->start, "world_size"));
    return row;
}

/* What few runs have is left out where none has it. */
static bool is_shown(const struct dt_record *records, int n, int column)
{
    if (column != COLUMN_TOP5 && column != COLUMN_AVERAGE && column != COLUMN_VALIDATION) {
        return true;
    }
    for (int i = 0; i < n; i++) {
        if (row_of(&records[i]).cells[column][0] != '\0') {
            return true;
        }
    }
    return false;
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

/* A long path is cut at its beginning. */
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

static void print_difference(const struct comparison *c, const char *path,
                             const char *const *values)
{
    char line[DIFFERENCE_WIDTH];
    fputs(c->n_found == 1 ? "\nwhere the configurations differ, A | B ...\n" : "", stdout);
    if (join(c->n, values, line, sizeof line) < sizeof line - PATH_WIDTH) {
        dt_text_print(stdout, "  %-*s %s", PATH_WIDTH, path, line);
        return;
    }
    dt_text_print(stdout, "  %s", path);
    for (int i = 0; i < c->n; i++) {
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
        if (is_shown(records, n, c)) {
            printf("%*s", column_widths[c], column_names[c]);
        }
    }
    for (int i = 0; i < n; i++) {
        const struct row row = row_of(&records[i]);
        printf("\n%c", 'A' + i);
        for (int c = 0; c < N_COLUMNS; c++) { /* the sign is two bytes in a column */
            const bool sign = strstr(row.cells[c], "±") != NULL;
            if (is_shown(records, n, c)) {
                printf("%*s", column_widths[c] + sign, row.cells[c]);
            }
        }
    }
    fputc('\n', stdout);
    struct comparison d = {.records = records, .n = n, .tell = print_difference};
    find_differences(&d);
    if (d.n_found == 0) {
        puts("\nthe configurations are equal");
    }
}

/* ---- on the page */

static void put_difference(const struct comparison *c, const char *path, const char *const *values)
{
    fprintf(c->out, "<tr><td>%s", path);
    for (int i = 0; i < c->n; i++) {
        const bool folded = strlen(values[i]) > LONG_VALUE;
        fputs(folded ? "<td><details><summary>shown on demand</summary>" : "<td>", c->out);
        dt_page_text(c->out, values[i]);
        fputs(folded ? "</details>" : "", c->out);
    }
    fputc('\n', c->out);
}

static void put_results(FILE *out, const struct dt_record *records, int n)
{
    fputs("<div class=\"wide\"><table class=\"results\"><thead><tr><th>run", out);
    for (int c = 0; c < N_COLUMNS; c++) {
        if (is_shown(records, n, c)) {
            fprintf(out, "<th>%s", column_names[c]);
        }
    }
    fputs("</thead><tbody>\n", out);
    for (int i = 0; i < n; i++) {
        const struct row row = row_of(&records[i]);
        fprintf(out, "<tr><td><span class=\"key k%d\">%c ", i, 'A' + i);
        dt_page_text(out, records[i].path);
        fputs("</span>", out);
        for (int c = 0; c < N_COLUMNS; c++) {
            if (is_shown(records, n, c)) {
                fprintf(out, "<td>%s", row.cells[c]);
            }
        }
        fputc('\n', out);
    }
    fputs("</tbody></table></div>\n", out);
}

void dt_run_compare_draw(FILE *out, const struct dt_record *records, int n)
{
    struct comparison d = {.records = records, .n = n, .out = out, .tell = put_difference};
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
    find_differences(&d);
    fprintf(out, "</tbody></table></div>\n%s<h2 class=\"part\">Results</h2>\n",
            d.n_found == 0 ? "<p>Nowhere.</p>\n" : "");
    put_results(out, records, n);
}
