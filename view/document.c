#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "view/parts.h"

#define VERDICT_WORD(constant, word, class) [constant] = word,
#define VERDICT_CLASS(constant, word, class) [constant] = class,
const char *const dt_verdict_words[DT_N_VERDICTS] = {DT_VERDICT_LIST(VERDICT_WORD)};
const char *const dt_verdict_classes[DT_N_VERDICTS] = {DT_VERDICT_LIST(VERDICT_CLASS)};

/* ---- memory */

static void *remember(struct dt_doc *doc, void *memory)
{
    doc->failed = doc->failed || memory == NULL;
    return memory;
}

static char *copy(struct dt_doc *doc, const char *text)
{
    return text != NULL ? remember(doc, strdup(text)) : NULL;
}

static double *copy_numbers(struct dt_doc *doc, const double *from, size_t n)
{
    double *to = from != NULL ? remember(doc, calloc(n + 1, sizeof *to)) : NULL;
    if (to != NULL) {
        memcpy(to, from, n * sizeof *to);
    }
    return to;
}

static char **copy_names(struct dt_doc *doc, const char *const *names, size_t n)
{
    char **own = names != NULL ? remember(doc, calloc(n + 1, sizeof *own)) : NULL;
    for (size_t i = 0; own != NULL && i < n; i++) {
        own[i] = copy(doc, names[i]);
    }
    return own;
}

/* Room for one more of `size` bytes in a list of n; it doubles at powers of two. NULL: none. */
static void *grown(struct dt_doc *doc, void *items, size_t n, size_t size)
{
    if ((n & (n - 1)) != 0) {
        return items;
    }
    return remember(doc, realloc(items, (n > 0 ? 2 * n : 1) * size));
}

/* Appends to a list of `doc`; false: no memory, and the list is as it was. */
#define APPEND(doc, list, ...) \
    append((doc), (void **)&(list).items, &(list).n, sizeof *(list).items, &(__VA_ARGS__))

static bool append(struct dt_doc *doc, void **items, size_t *n, size_t size, const void *item)
{
    void *more = grown(doc, *items, *n, size);
    if (more == NULL) {
        return false;
    }
    *items = more;
    memcpy((char *)more + *n * size, item, size);
    ++*n;
    return true;
}

static char *vprint(struct dt_doc *doc, const char *format, va_list args)
{
    char *text = NULL;
    if (vasprintf(&text, format, args) < 0) {
        text = NULL;
    }
    return remember(doc, text);
}

#define PRINT(doc, text, format)                \
    do {                                        \
        va_list args;                           \
        va_start(args, format);                 \
        (text) = vprint((doc), (format), args); \
        va_end(args);                           \
    } while (0)

/* ---- the document */

struct dt_doc *dt_doc_open(const char *command, const char *title, ...)
{
    struct dt_doc *doc = calloc(1, sizeof *doc);
    if (doc != NULL) {
        doc->command = copy(doc, command);
        PRINT(doc, doc->title, title);
    }
    return doc;
}

static void close_column(struct dt_column *column)
{
    free(column->name);
    free(column->unit);
}

static void close_row(struct dt_row *row, size_t n_cells)
{
    for (size_t i = 0; row->cells != NULL && i < n_cells; i++) {
        free((char *)row->cells[i].text);
    }
    free(row->cells);
    close_column(&row->column);
    free(row->hint);
}

static void close_names(char **names, size_t n)
{
    for (size_t i = 0; names != NULL && i < n; i++) {
        free(names[i]);
    }
    free(names);
}

static void close_line(const struct dt_line *line)
{
    free((char *)line->name);
    free((double *)line->x);
    free((double *)line->y);
    free((double *)line->low);
    free((double *)line->high);
}

static void close_part(struct dt_part *p)
{
    for (size_t i = 0; i < p->rows.n; i++) {
        close_row(&p->rows.items[i], p->kind == DT_PART_TABLE ? p->columns.n : 1);
    }
    for (size_t i = 0; i < p->columns.n; i++) {
        close_column(&p->columns.items[i]);
    }
    for (size_t i = 0; i < p->lines.n; i++) {
        close_line(&p->lines.items[i]);
    }
    for (size_t i = 0; i < p->marks.n; i++) {
        free(p->marks.items[i].name);
    }
    for (size_t i = 0; i < p->boxes.n; i++) {
        free(p->boxes.items[i].label);
    }
    close_names(p->lanes.items, p->lanes.n);
    close_names(p->kinds.items, p->kinds.n);
    close_names(p->row_names, p->n_rows);
    close_names(p->column_names, p->n_columns);
    void *const all[] = {
        p->title, p->caption, p->step,        p->text,        p->rows.items,  p->columns.items,
        p->x,     p->y,       p->lines.items, p->marks.items, p->boxes.items, p->values,
        p->odd,   p};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        free(all[i]);
    }
}

void dt_doc_close(struct dt_doc *doc)
{
    for (size_t i = 0; doc != NULL && i < doc->parts.n; i++) {
        close_part(doc->parts.items[i]);
    }
    if (doc != NULL) {
        close_names(doc->texts.items, doc->texts.n);
        free(doc->parts.items);
        free(doc->command);
        free(doc->title);
        free(doc->summary);
        free(doc->step);
    }
    free(doc);
}

enum dt_status dt_doc_status(const struct dt_doc *doc)
{
    return doc == NULL || doc->failed ? dt_error(DT_NO_MEMORY, "no memory for the result") : DT_OK;
}

const char *dt_doc_print(struct dt_doc *doc, const char *format, ...)
{
    char *text = NULL;
    if (doc != NULL) {
        PRINT(doc, text, format);
        if (text != NULL && !APPEND(doc, doc->texts, text)) {
            free(text);
            text = NULL;
        }
    }
    return text != NULL ? text : "";
}

void dt_doc_verdict(struct dt_doc *doc, enum dt_verdict verdict, const char *format, ...)
{
    if (doc != NULL) {
        doc->verdict = verdict;
        free(doc->summary);
        PRINT(doc, doc->summary, format);
    }
}

void dt_doc_step(struct dt_doc *doc, const char *name)
{
    if (doc != NULL) {
        free(doc->step);
        doc->step = copy(doc, name);
    }
}

/* ---- parts */

static struct dt_part *add(struct dt_doc *doc, enum dt_part_kind kind, const char *title)
{
    struct dt_part *part = doc != NULL ? remember(doc, calloc(1, sizeof *part)) : NULL;
    if (part == NULL || !APPEND(doc, doc->parts, part)) {
        free(part);
        return NULL;
    }
    part->doc = doc;
    part->kind = kind;
    part->title = copy(doc, title);
    part->step = copy(doc, doc->step);
    return part;
}

void dt_doc_section(struct dt_doc *doc, const char *format, ...)
{
    struct dt_part *part = add(doc, DT_PART_SECTION, NULL);
    if (part != NULL) {
        PRINT(doc, part->text, format);
    }
}

void dt_doc_text(struct dt_doc *doc, const char *format, ...)
{
    struct dt_part *part = add(doc, DT_PART_TEXT, NULL);
    if (part != NULL) {
        PRINT(doc, part->text, format);
    }
}

void dt_doc_code(struct dt_doc *doc, const char *title, const char *text)
{
    struct dt_part *part = add(doc, DT_PART_CODE, title);
    if (part != NULL) {
        part->text = copy(doc, text);
    }
}

struct dt_part *dt_doc_figures(struct dt_doc *doc, const char *title)
{
    return add(doc, DT_PART_FIGURES, title);
}

/* The column of "name:unit:format". */
static struct dt_column read_column(struct dt_doc *doc, char *text)
{
    const char *name = strsep(&text, ":"), *unit = strsep(&text, ":"), *format = text;
    const bool number = format != NULL && format[0] != '\0';
    const bool digits = number && format[0] >= '0' && format[0] <= '9';
    assert(!number || digits || strchr("gBtd%+f", format[0]) != NULL);
    return (struct dt_column){.name = copy(doc, name),
                              .unit = copy(doc, unit != NULL ? unit : ""),
                              .format = (char)(digits   ? 'N'
                                               : number ? format[0]
                                                        : '\0'),
                              .decimals = digits ? format[0] - '0' : 0};
}

struct dt_part *dt_doc_table(struct dt_doc *doc, const char *title, const char *columns)
{
    struct dt_part *part = add(doc, DT_PART_TABLE, title);
    char *all = part != NULL ? copy(doc, columns) : NULL, *rest = all;
    for (char *text; (text = strsep(&rest, "|")) != NULL;) {
        struct dt_column column = read_column(doc, text);
        if (!APPEND(doc, part->columns, column)) {
            close_column(&column);
        }
    }
    free(all);
    return part;
}

/* A row of a copy of these cells; NULL: no memory. */
static struct dt_row *add_row(struct dt_part *part, size_t n, const struct dt_cell *cells)
{
    struct dt_row row = {.cells = remember(part->doc, calloc(n, sizeof *cells))};
    for (size_t i = 0; row.cells != NULL && i < n; i++) {
        row.cells[i] = (struct dt_cell){copy(part->doc, cells[i].text), cells[i].number};
    }
    if (row.cells == NULL || !APPEND(part->doc, part->rows, row)) {
        close_row(&row, n);
        return NULL;
    }
    return &part->rows.items[part->rows.n - 1];
}

void dt_doc_add_row(struct dt_part *table, size_t n, const struct dt_cell *cells)
{
    if (table != NULL && !table->doc->failed) {
        assert(table->kind == DT_PART_TABLE && n == table->columns.n);
        add_row(table, n, cells);
    }
}

void dt_doc_figure(struct dt_part *figures, const char *column, struct dt_cell value)
{
    if (figures == NULL || figures->doc->failed) {
        return;
    }
    assert(figures->kind == DT_PART_FIGURES);
    char *text = copy(figures->doc, column);
    struct dt_row *row = text != NULL ? add_row(figures, 1, &value) : NULL;
    if (row != NULL) {
        row->column = read_column(figures->doc, text);
    }
    free(text);
}

void dt_doc_fact(struct dt_part *figures, const char *name, const char *format, ...)
{
    char *text = NULL;
    if (figures != NULL) {
        PRINT(figures->doc, text, format);
    }
    struct dt_row *row = text != NULL ? add_row(figures, 1, &(struct dt_cell){.text = text}) : NULL;
    if (row != NULL) {
        row->column.name = copy(figures->doc, name);
        row->column.unit = copy(figures->doc, "");
    }
    free(text);
}

static struct dt_row *last_row(struct dt_part *part)
{
    return part != NULL && part->rows.n > 0 ? &part->rows.items[part->rows.n - 1] : NULL;
}

void dt_doc_judge(struct dt_part *part, enum dt_verdict verdict, const char *hint, ...)
{
    struct dt_row *row = last_row(part);
    if (row != NULL) {
        row->verdict = verdict;
        free(row->hint);
        PRINT(part->doc, row->hint, hint);
    }
}

void dt_doc_bound(struct dt_part *part, bool at_most, double bound)
{
    struct dt_row *row = last_row(part);
    if (row != NULL) {
        row->bounded = true;
        row->at_most = at_most;
        row->bound = bound;
    }
}

void dt_doc_emphasize(struct dt_part *part)
{
    struct dt_row *row = last_row(part);
    if (row != NULL) {
        row->emphasized = true;
    }
}

struct dt_part *dt_doc_series(struct dt_doc *doc, const char *title, const char *x, const char *y)
{
    struct dt_part *part = add(doc, DT_PART_SERIES, title);
    if (part != NULL) {
        part->x = copy(doc, x);
        part->y = copy(doc, y);
    }
    return part;
}

/* The colour behind that of the last line with a name. */
static int next_color(const struct dt_part *series)
{
    int n = 0;
    for (size_t i = 0; i < series->lines.n; i++) {
        n += series->lines.items[i].name[0] != '\0';
    }
    return n % 8 + 1;
}

void dt_doc_line(struct dt_part *series, const struct dt_line *line)
{
    if (series == NULL) {
        return;
    }
    struct dt_doc *doc = series->doc;
    assert(series->kind == DT_PART_SERIES && (line->low == NULL) == (line->high == NULL));
    struct dt_line own = *line;
    own.name = copy(doc, line->name != NULL ? line->name : "");
    own.x = copy_numbers(doc, line->x, line->n);
    own.y = copy_numbers(doc, line->y, line->n);
    own.low = copy_numbers(doc, line->low, line->n);
    own.high = copy_numbers(doc, line->high, line->n);
    own.color = line->color > 0 ? line->color : next_color(series);
    if (doc->failed || !APPEND(doc, series->lines, own)) {
        close_line(&own);
    }
}

void dt_doc_ticks(struct dt_part *series, size_t n, const char *const *names)
{
    if (series != NULL && series->column_names == NULL) {
        series->column_names = copy_names(series->doc, names, n);
        series->n_columns = series->column_names != NULL ? n : 0;
    }
}

void dt_doc_mark(struct dt_part *series, double x, const char *name)
{
    if (series != NULL) {
        struct dt_mark mark = {x, copy(series->doc, name)};
        if (!APPEND(series->doc, series->marks, mark)) {
            free(mark.name);
        }
    }
}

void dt_doc_axes(struct dt_part *series, unsigned flags)
{
    if (series != NULL) {
        series->axes = flags;
    }
}

struct dt_part *dt_doc_lanes(struct dt_doc *doc, const char *title, const char *axis)
{
    struct dt_part *part = add(doc, DT_PART_LANES, title);
    if (part != NULL) {
        part->x = copy(doc, axis);
    }
    return part;
}

int dt_doc_lane(struct dt_part *lanes, const char *format, ...)
{
    char *name = NULL;
    if (lanes == NULL) {
        return 0;
    }
    PRINT(lanes->doc, name, format);
    if (!APPEND(lanes->doc, lanes->lanes, name)) {
        free(name);
    }
    return (int)lanes->lanes.n - 1;
}

void dt_doc_extent(struct dt_part *lanes, double end)
{
    if (lanes != NULL) {
        lanes->extent = end;
    }
}

void dt_doc_kind(struct dt_part *lanes, int kind, const char *name)
{
    while (lanes != NULL && lanes->kinds.n <= (size_t)kind) {
        char *none = NULL;
        if (!APPEND(lanes->doc, lanes->kinds, none)) {
            return;
        }
    }
    if (lanes != NULL) {
        free(lanes->kinds.items[kind]);
        lanes->kinds.items[kind] = copy(lanes->doc, name);
    }
}

void dt_doc_box(struct dt_part *lanes, int lane, double begin, double end, int kind,
                const char *label, ...)
{
    if (lanes == NULL) {
        return;
    }
    struct dt_box box = {.lane = lane, .kind = kind, .begin = begin, .end = end};
    assert(lanes->doc->failed || ((size_t)lane < lanes->lanes.n && begin <= end));
    PRINT(lanes->doc, box.label, label);
    if (!APPEND(lanes->doc, lanes->boxes, box)) {
        free(box.label);
    }
}

struct dt_part *dt_doc_grid(struct dt_doc *doc, const char *title, enum dt_grid kind, size_t rows,
                            size_t columns, const double *values)
{
    struct dt_part *part = add(doc, DT_PART_GRID, title);
    if (part != NULL) {
        part->grid = kind;
        part->values = copy_numbers(doc, values, rows * columns);
        part->odd = remember(doc, calloc(rows * columns + 1, sizeof *part->odd));
        if (!doc->failed) {
            part->n_rows = rows;
            part->n_columns = columns;
        }
    }
    return part;
}

void dt_doc_names(struct dt_part *grid, const char *axes, const char *const *rows,
                  const char *const *columns)
{
    if (grid != NULL) {
        assert(grid->row_names == NULL && grid->column_names == NULL && grid->text == NULL);
        grid->text = copy(grid->doc, axes);
        grid->row_names = copy_names(grid->doc, rows, grid->n_rows);
        grid->column_names = copy_names(grid->doc, columns, grid->n_columns);
    }
}

void dt_doc_odd(struct dt_part *grid, size_t row, size_t column)
{
    if (grid != NULL && row < grid->n_rows && column < grid->n_columns) {
        grid->odd[row * grid->n_columns + column] = true;
    }
}

void dt_doc_caption(struct dt_part *part, const char *format, ...)
{
    if (part != NULL) {
        free(part->caption);
        PRINT(part->doc, part->caption, format);
    }
}

void dt_doc_detail(struct dt_part *part)
{
    if (part != NULL) {
        part->detail = true;
    }
}

void dt_doc_main(struct dt_part *table)
{
    if (table != NULL) {
        table->main = true;
    }
}

/* ---- shared by the renderers */

/* "1,234.5" */
static void put_grouped(char *out, size_t size, double value, int decimals)
{
    char plain[400];
    snprintf(plain, sizeof plain, "%.*f", decimals, fabs(value));
    const size_t whole = strcspn(plain, ".");
    const bool zero = strspn(plain, "0.") == strlen(plain);
    size_t n = 0;
    if (value < 0 && !zero) {
        out[n++] = '-';
    }
    for (size_t i = 0; plain[i] != '\0' && n + 2 < size; i++) {
        if (i > 0 && i < whole && (whole - i) % 3 == 0) {
            out[n++] = ',';
        }
        out[n++] = plain[i];
    }
    out[n] = '\0';
}

/* `value` in the largest of the units, each `step` times the one before, in which it is at least
 * 1. */
static void put_scaled(char *out, size_t size, double value, const char *const *units, int n_units,
                       double step)
{
    int unit = 0;
    while (unit + 1 < n_units && fabs(value) >= 0.9995 * step) {
        value /= step;
        unit++;
    }
    const int digits = value == floor(value) && unit == 0 ? 0
                       : fabs(value) >= 99.95             ? 0
                       : fabs(value) >= 9.995             ? 1
                                                          : 2;
    snprintf(out, size, "%.*f %s", digits, value, units[unit]);
}

/* The fewest digits that name this float and no other. */
static void put_float(char *out, size_t size, double value)
{
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(out, size, "%.*g", digits, value);
        if (strtof(out, NULL) == (float)value) {
            return;
        }
    }
}

static void put_duration(char *out, size_t size, double seconds)
{
    const long long s = llround(fmax(0, fmin(seconds, 1e15)));
    if (s < 3600) {
        snprintf(out, size, "%lld:%02lld", s / 60, s % 60);
    } else {
        snprintf(out, size, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    }
}

const char *dt_view_number(double value, char buffer[DT_CELL_SIZE])
{
    const double size = fabs(value);
    if (size >= 1000 && size < 1e7) {
        put_grouped(buffer, DT_CELL_SIZE, value, 0);
    } else {
        snprintf(buffer, DT_CELL_SIZE, "%.4g", value);
    }
    return buffer;
}

const char *dt_cell_text(const struct dt_column *column, const struct dt_cell *cell,
                         char buffer[DT_CELL_SIZE])
{
    static const char *const bytes[] = {"B", "kB", "MB", "GB", "TB", "PB"}, *const times[] = {
                                                                                "ns", "µs", "ms",
                                                                                "s"};
    const double value = cell->number;
    if (cell->text != NULL) {
        return cell->text;
    }
    if (!isfinite(value)) {
        return "–";
    }
    switch (column->format) {
    case 'N':
        put_grouped(buffer, DT_CELL_SIZE, value, column->decimals);
        break;
    case 'B':
        put_scaled(buffer, DT_CELL_SIZE, value, bytes, 6, 1000);
        break;
    case 't':
        put_scaled(buffer, DT_CELL_SIZE, value * 1e9, times, 4, 1000);
        break;
    case 'd':
        put_duration(buffer, DT_CELL_SIZE, value);
        break;
    case '%':
        snprintf(buffer, DT_CELL_SIZE, "%.2f %%", 100 * value);
        break;
    case 'f':
        put_float(buffer, DT_CELL_SIZE, value);
        break;
    case '+':
        snprintf(buffer, DT_CELL_SIZE, "%.0f", value);
        break;
    default:
        return dt_view_number(value, buffer);
    }
    return buffer;
}

const char *dt_column_head(const struct dt_column *column, char buffer[DT_CELL_SIZE])
{
    const char *unit = column->unit != NULL ? column->unit : "";
    snprintf(buffer, DT_CELL_SIZE, unit[0] != '\0' ? "%s, %s" : "%s", column->name, unit);
    return buffer;
}

double dt_lanes_extent(const struct dt_part *lanes)
{
    double end = lanes->extent;
    for (size_t i = 0; i < lanes->boxes.n; i++) {
        end = fmax(end, lanes->boxes.items[i].end);
    }
    return end;
}

const char *dt_grid_name(char *const *names, size_t i, char buffer[DT_CELL_SIZE])
{
    if (names != NULL && names[i] != NULL) {
        return names[i];
    }
    snprintf(buffer, DT_CELL_SIZE, "%zu", i);
    return buffer;
}

const char *dt_grid_axes(const struct dt_part *grid, char buffer[DT_CELL_SIZE])
{
    const int rows = (int)strcspn(grid->text, "|");
    const char *columns = grid->text[rows] == '|' ? grid->text + rows + 1 : grid->text;
    snprintf(buffer, DT_CELL_SIZE, "rows: %.*s; columns: %s", rows, grid->text, columns);
    return buffer;
}

bool dt_part_has_verdicts(const struct dt_part *part)
{
    bool has = false;
    for (size_t i = 0; i < part->rows.n; i++) {
        has = has || part->rows.items[i].verdict != DT_NO_VERDICT;
    }
    return has;
}

bool dt_part_has_hints(const struct dt_part *part)
{
    bool has = false;
    for (size_t i = 0; i < part->rows.n; i++) {
        has = has || dt_row_has_hint(&part->rows.items[i]);
    }
    return has;
}

const struct dt_part *dt_doc_main_table(const struct dt_doc *doc)
{
    const struct dt_part *first = NULL;
    for (size_t i = 0; i < doc->parts.n; i++) {
        const struct dt_part *part = doc->parts.items[i];
        if (part->kind == DT_PART_TABLE && part->main) {
            return part;
        }
        first = first == NULL && part->kind == DT_PART_TABLE ? part : first;
    }
    return first;
}
