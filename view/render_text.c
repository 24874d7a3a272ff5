/* Text: aligned columns, words never broken, a series as a line of blocks, lanes as characters. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "view/parts.h"
#include "view/render.h"

#define PROSE_WIDTH 96 /* longer lines are hard to read */
#define INDENT 2
#define MAX_COLUMNS 32
#define MAX_STEPS 16 /* of a longer sequence only the ends are shown */
#define END_STEPS 3
#define LEAST_PROSE 16 /* columns in which a last cell of text wraps */

struct text {
    FILE *out;
    struct dt_text_view view;
};

/* ---- characters */

/* Columns that a terminal gives to a character. */
static int columns_of(uint32_t c)
{
    const bool joins = (c >= 0x300 && c < 0x370) || (c >= 0x200b && c < 0x2010) ||
                       (c >= 0xfe00 && c < 0xfe10) || (c >= 0x20d0 && c < 0x2100);
    const bool wide = (c >= 0x1100 && c < 0x1160) || (c >= 0x2e80 && c < 0xa4d0) ||
                      (c >= 0xac00 && c < 0xd7a4) || (c >= 0xf900 && c < 0xfb00) ||
                      (c >= 0xfe30 && c < 0xfe70) || (c >= 0xff00 && c < 0xff61) ||
                      (c >= 0x1f300 && c < 0x1fb00) || c >= 0x20000;
    return joins ? 0 : wide ? 2 : 1;
}

/* What stands for our own signs where there is ASCII alone. */
static const char *ascii_of(uint32_t c)
{
    static const struct {
        uint32_t point;
        const char *ascii;
    } signs[] = {{0xd7, "x"},    {0xb5, "u"},   {0xb1, "+-"},    {0xb7, "."},    {0xb0, "deg"},
                 {0x2013, "-"},  {0x2014, "-"}, {0x2026, "..."}, {0x2192, "->"}, {0x2264, "<="},
                 {0x2265, ">="}, {0x2581, "_"}, {0x2582, "."},   {0x2583, ":"},  {0x2584, "-"},
                 {0x2585, "="},  {0x2586, "+"}, {0x2587, "*"},   {0x2588, "#"},  {0x2212, "-"}};
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        if (signs[i].point == c) {
            return signs[i].ascii;
        }
    }
    return NULL;
}

/* Writes `n` bytes of a text, escaped before; or only measures it, where `out` is NULL. Returns its
 * columns. */
static int put_bytes(const struct text *t, FILE *out, const char *text, size_t n)
{
    int columns = 0;
    uint32_t c = 0;
    for (size_t length; n > 0; text += length, n -= length) {
        length = dt_utf8_length(text, n, &c);
        const char *ascii = length > 1 && !t->view.utf8 ? ascii_of(c) : NULL;
        if (length == 0) {
            length = 1;
        }
        columns += ascii != NULL ? (int)strlen(ascii) : columns_of(c);
        if (out != NULL && ascii != NULL) {
            fputs(ascii, out);
        } else if (out != NULL) {
            fwrite(text, 1, length, out);
        }
    }
    return columns;
}

static int put(const struct text *t, const char *text)
{
    char shown[DT_LINE_SIZE];
    dt_text_escape(text, shown, sizeof shown);
    return put_bytes(t, t->out, shown, strlen(shown));
}

static int width_of(const struct text *t, const char *text)
{
    char shown[DT_LINE_SIZE];
    dt_text_escape(text, shown, sizeof shown);
    return put_bytes(t, NULL, shown, strlen(shown));
}

static void pad(const struct text *t, int n)
{
    fprintf(t->out, "%*s", n > 0 ? n : 0, "");
}

static void widen(const struct text *t, int *width, const char *text)
{
    const int n = width_of(t, text);
    *width = n > *width ? n : *width;
}

static void put_padded(const struct text *t, const char *text, int width)
{
    pad(t, width - put(t, text));
}

static void put_bold(const struct text *t, const char *text)
{
    fputs(t->view.color ? "\033[1m" : "", t->out);
    put(t, text);
    fputs(t->view.color ? "\033[0m\n" : "\n", t->out);
}

/* Room for rows: without a terminal a row is a line, for other programs to read. */
static int room(const struct text *t)
{
    return t->view.width > 0 ? t->view.width : DT_LINE_SIZE;
}

/* Room for pictures. */
static int columns_for(const struct text *t)
{
    return t->view.width > 0 ? t->view.width : 80;
}

/* Writes a text, without its backticks, from column `at` on, where the line is already; further
 * lines begin at `indent`. */
static void wrap(const struct text *t, const char *text, int at, int indent, int width)
{
    char shown[DT_LINE_SIZE], *rest = shown;
    size_t n = 0;
    dt_text_escape(text, shown, sizeof shown);
    for (const char *c = shown; *c != '\0'; c++) {
        shown[n] = *c;
        n += *c != '`';
    }
    shown[n] = '\0';
    for (char *word; (word = strsep(&rest, " ")) != NULL;) {
        const int columns = put_bytes(t, NULL, word, strlen(word));
        if (word != shown && at + 1 + columns > width) {
            fputc('\n', t->out);
            pad(t, indent);
            at = indent;
        } else if (word != shown) {
            fputc(' ', t->out);
            at++;
        }
        at += put_bytes(t, t->out, word, strlen(word));
    }
    fputc('\n', t->out);
}

void dt_view_wrap(FILE *out, struct dt_text_view view, const char *text, int at, int indent)
{
    const struct text t = {out, view};
    wrap(&t, text, at, indent, room(&t));
}

static void put_prose(const struct text *t, const char *text)
{
    const int width = columns_for(t);
    wrap(t, text, 0, 0, width < PROSE_WIDTH ? width : PROSE_WIDTH);
}

/* ---- verdicts */

static void put_verdict(const struct text *t, enum dt_verdict verdict, int width)
{
    static const int colors[DT_N_VERDICTS] = {[DT_VERDICT_PASS] = 32,
                                              [DT_VERDICT_FAIL] = 31,
                                              [DT_VERDICT_WARN] = 33,
                                              [DT_VERDICT_MEASURED] = 36,
                                              [DT_VERDICT_SKIPPED] = 36};
    const char *word = dt_verdict_words[verdict];
    if (t->view.color && colors[verdict] != 0) {
        fprintf(t->out, "\033[%dm%s\033[0m", colors[verdict], word);
    } else {
        fputs(word, t->out);
    }
    pad(t, width - (int)strlen(word));
}

static int verdict_width(const struct dt_part *p)
{
    size_t width = 0;
    for (size_t i = 0; i < p->rows.n; i++) {
        const size_t n = strlen(dt_verdict_words[p->rows.items[i].verdict]);
        width = n > width ? n : width;
    }
    return width > 0 ? (int)width + 2 : 0;
}

static void put_hint(const struct text *t, const struct dt_row *row, int indent)
{
    if (dt_row_has_hint(row)) {
        pad(t, indent);
        wrap(t, row->hint, indent, indent, room(t));
    }
}

/* ---- figures and tables */

/* "1.5 ms (at most 2)", "98.31 % (± 0.25 %)": the hint of a figure without a verdict stands beside
 * the figure. */
static void figure_text(const struct dt_row *row, char text[DT_LINE_SIZE])
{
    char value[DT_CELL_SIZE], bound[DT_CELL_SIZE] = "";
    const bool beside = row->verdict == DT_NO_VERDICT && dt_row_has_hint(row);
    const char *bound_text =
        row->bounded ? dt_cell_text(&row->column, &(struct dt_cell){.number = row->bound}, bound)
                     : "";
    const char *unit = row->cells[0].text == NULL ? row->column.unit : "";
    snprintf(text, DT_LINE_SIZE, "%s%s%s%s%s%s%s%s%s",
             dt_cell_text(&row->column, &row->cells[0], value), unit[0] != '\0' ? " " : "", unit,
             !row->bounded  ? ""
             : row->at_most ? " (at most "
                            : " (at least ",
             bound_text, row->bounded ? ")" : "", beside ? " (" : "", beside ? row->hint : "",
             beside ? ")" : "");
}

static void put_figures(const struct text *t, const struct dt_part *p)
{
    const int verdicts = verdict_width(p);
    int names = 0;
    for (size_t i = 0; i < p->rows.n; i++) {
        widen(t, &names, p->rows.items[i].column.name);
    }
    for (size_t i = 0; i < p->rows.n; i++) {
        const struct dt_row *row = &p->rows.items[i];
        const int indent = verdicts + names + 2;
        char text[DT_LINE_SIZE];
        figure_text(row, text);
        if (verdicts > 0) {
            put_verdict(t, row->verdict, verdicts);
        }
        put_padded(t, row->column.name, names + 2);
        wrap(t, text, indent, indent, room(t));
        if (row->verdict != DT_NO_VERDICT) {
            put_hint(t, row, indent);
        }
    }
}

struct table {
    const struct dt_part *part;
    int widths[MAX_COLUMNS];
    int verdicts; /* width of the column of verdicts; 0: there is none */
    size_t n;     /* columns shown */
};

/* Leaves out the last columns that a terminal has no room for; a last column of texts wraps. */
static void leave_out(const struct text *t, struct table *table)
{
    int width = INDENT + table->verdicts;
    for (size_t c = 0; c < table->n; c++) {
        const bool wraps =
            c + 1 == table->part->columns.n && dt_column_is_text(&table->part->columns.items[c]);
        width += wraps && table->widths[c] > LEAST_PROSE ? LEAST_PROSE : table->widths[c];
        if (c > 0 && width > room(t)) {
            table->n = c;
        }
        width += 2;
    }
}

static void measure(const struct text *t, struct table *table)
{
    const struct dt_part *p = table->part;
    char buffer[DT_CELL_SIZE];
    table->verdicts = verdict_width(p);
    table->n = p->columns.n < MAX_COLUMNS ? p->columns.n : MAX_COLUMNS;
    for (size_t c = 0; c < table->n; c++) {
        const struct dt_column *column = &p->columns.items[c];
        widen(t, &table->widths[c], dt_column_head(column, buffer));
        for (size_t r = 0; r < p->rows.n; r++) {
            widen(t, &table->widths[c], dt_cell_text(column, &p->rows.items[r].cells[c], buffer));
        }
    }
    leave_out(t, table);
}

static bool is_empty(const struct dt_cell *cell)
{
    return cell->text != NULL && cell->text[0] == '\0';
}

/* A line of a table; row NULL: its head. The last column of texts wraps. */
static void put_line(const struct text *t, const struct table *table, const struct dt_row *row)
{
    const struct dt_part *p = table->part;
    char buffer[DT_CELL_SIZE];
    int at = INDENT;
    fputs(row != NULL && row->emphasized ? "* " : "  ", t->out);
    if (table->verdicts > 0) {
        put_verdict(t, row != NULL ? row->verdict : DT_NO_VERDICT, table->verdicts);
        at += table->verdicts;
    }
    size_t n = table->n;
    while (row != NULL && n > 1 && is_empty(&row->cells[n - 1])) {
        n--; /* no blanks at the end of a line */
    }
    for (size_t c = 0; c < n; c++) {
        const struct dt_column *column = &p->columns.items[c];
        const char *text = row != NULL ? dt_cell_text(column, &row->cells[c], buffer)
                                       : dt_column_head(column, buffer);
        const int gap = table->widths[c] - width_of(t, text);
        const bool left = dt_column_is_text(column), last = c + 1 == n;
        if (left && last) {
            wrap(t, text, at, at, room(t));
        } else {
            pad(t, left ? 0 : gap);
            put(t, text);
            pad(t, left ? gap : 0);
            fputs(last ? "\n" : "  ", t->out);
        }
        at += table->widths[c] + 2;
    }
    if (row != NULL) {
        put_hint(t, row, INDENT + table->verdicts);
    }
}

static void put_table(const struct text *t, const struct dt_part *p)
{
    struct table table = {.part = p};
    measure(t, &table);
    put_line(t, &table, NULL);
    for (size_t r = 0; r < p->rows.n; r++) {
        put_line(t, &table, &p->rows.items[r]);
    }
    if (table.n < p->columns.n) {
        pad(t, INDENT);
        fprintf(t->out, "columns left out: %zu (see a wider terminal, or --csv)\n",
                p->columns.n - table.n);
    }
}

/* ---- series */

static void put_blocks(const struct text *t, const struct dt_line *line, bool log_y, int columns)
{
    static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    double low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < line->n; i++) {
        const double y = log_y ? log(line->y[i]) : line->y[i];
        low = isfinite(y) ? fmin(low, y) : low;
        high = isfinite(y) ? fmax(high, y) : high;
    }
    const size_t n = line->n < (size_t)columns ? line->n : (size_t)columns;
    for (size_t i = 0; i < n; i++) {
        const size_t at = n > 1 ? i * (line->n - 1) / (n - 1) : 0;
        const double y = log_y ? log(line->y[at]) : line->y[at];
        const double share = high > low ? (y - low) / (high - low) : 0;
        put(t, isfinite(y) ? blocks[(int)(7.99 * share)] : " ");
    }
    pad(t, columns - (int)n);
}

static void put_series(const struct text *t, const struct dt_part *p)
{
    int names = 0;
    char first[DT_CELL_SIZE], last[DT_CELL_SIZE];
    for (size_t i = 0; i < p->lines.n; i++) {
        widen(t, &names, p->lines.items[i].name);
    }
    const int left = columns_for(t) - names - 30, columns = left > 60 ? 60 : left > 10 ? left : 10;
    for (size_t i = 0; i < p->lines.n; i++) {
        const struct dt_line *line = &p->lines.items[i];
        if (line->n == 0 || line->name[0] == '\0') {
            continue;
        }
        pad(t, INDENT);
        put_padded(t, line->name, names + 2);
        put_blocks(t, line, (p->axes & DT_LOG_Y) != 0, columns);
        pad(t, 2);
        dt_view_number(line->y[0], first);
        dt_view_number(line->y[line->n - 1], last);
        fputs(first, t->out);
        put(t, " → ");
        fprintf(t->out, "%s\n", last);
    }
    pad(t, INDENT + names + 2);
    put(t, p->y);
    fputs(" over ", t->out);
    put(t, p->x);
    fputc('\n', t->out);
}

/* ---- lanes */

/* Columns of a unit of the axis, so that each box has room for its label and a gap, or for a short
 * label alone; 0: boxes do not begin and end at whole numbers, or do not fit. */
static int unit_width(const struct text *t, const struct dt_part *p, double end, int columns)
{
    int width = 1, tight = 1, longest = 0;
    for (size_t i = 0; i < p->boxes.n; i++) {
        const struct dt_box *box = &p->boxes.items[i];
        const double span = box->end - box->begin;
        if (box->begin != floor(box->begin) || span != floor(span) || span < 1) {
            return 0;
        }
        const int label = width_of(t, box->label), wanted = (int)ceil((label + 1) / span),
                  least = (int)ceil(label / span);
        width = wanted > width ? wanted : width;
        tight = least > tight ? least : tight;
        longest = label > longest ? label : longest;
    }
    if (width * end <= columns) {
        return width;
    }
    return longest <= 2 && tight * end <= columns ? tight : 0;
}

static const struct dt_box *box_at(const struct dt_part *p, size_t lane, double at)
{
    const struct dt_box *found = NULL;
    for (size_t i = 0; i < p->boxes.n; i++) {
        const struct dt_box *box = &p->boxes.items[i];
        if ((size_t)box->lane == lane && box->begin <= at && at < box->end) {
            found = box; /* the last one lies above the others */
        }
    }
    return found;
}

static void put_labels(const struct text *t, const struct dt_part *p, size_t lane, int end,
                       int unit)
{
    int gap = 0;
    for (int at = 0; at < end;) {
        const struct dt_box *box = box_at(p, lane, at + 0.5);
        const int span = box != NULL ? (int)fmax(1, box->end - at) : 1;
        pad(t, gap);
        gap = span * unit - put(t, box != NULL ? box->label : "·");
        at += span;
    }
}

/* The letter of a box's kind: the first of its name. */
static char letter_of(const struct dt_part *p, const struct dt_box *box)
{
    const char *name = box == NULL ? "."
                       : (size_t)box->kind < p->kinds.n && p->kinds.items[box->kind] != NULL
                           ? p->kinds.items[box->kind]
                           : box->label;
    return name[0] > ' ' && name[0] <= '~' ? name[0] : '#';
}

static void put_letters(const struct text *t, const struct dt_part *p, size_t lane, double end,
                        int columns)
{
    for (int i = 0; i < columns; i++) {
        fputc(letter_of(p, box_at(p, lane, end * (i + 0.5) / columns)), t->out);
    }
}

/* `letters`: of the kinds; else each box shows its label. */
static void put_key(const struct text *t, const struct dt_part *p, int indent, double end,
                    bool letters)
{
    char text[DT_LINE_SIZE] = "", buffer[DT_CELL_SIZE];
    if (p->x[0] != '\0') {
        snprintf(text, sizeof text, "0 to %s: %s", dt_view_number(end, buffer), p->x);
    }
    for (size_t k = 0; letters && k < p->kinds.n; k++) {
        const size_t n = strlen(text);
        if (p->kinds.items[k] != NULL) {
            snprintf(text + n, sizeof text - n, "%s%s", n > 0 ? "; " : "", p->kinds.items[k]);
        }
    }
    if (text[0] != '\0') {
        pad(t, indent);
        wrap(t, text, indent, indent, room(t));
    }
}

static void put_lanes(const struct text *t, const struct dt_part *p)
{
    const double end = dt_lanes_extent(p);
    double own = 0; /* with labels each picture has a scale of its own */
    int names = 0;
    for (size_t i = 0; i < p->boxes.n; i++) {
        own = fmax(own, p->boxes.items[i].end);
    }
    for (size_t i = 0; i < p->lanes.n; i++) {
        widen(t, &names, p->lanes.items[i]);
    }
    const int left = columns_for(t) - names - 2 * INDENT, columns = left > 20 ? left : 20,
              unit = unit_width(t, p, own, columns);
    for (size_t i = 0; i < p->lanes.n; i++) {
        pad(t, INDENT);
        put_padded(t, p->lanes.items[i], names + 2);
        if (unit > 0) {
            put_labels(t, p, i, (int)own, unit);
        } else {
            put_letters(t, p, i, end, columns);
        }
        fputc('\n', t->out);
    }
    put_key(t, p, INDENT + names + 2, unit > 0 ? own : end, unit == 0);
}

/* ---- grids */

static void put_grid(const struct text *t, const struct dt_part *p)
{
    char buffer[DT_CELL_SIZE];
    int names = 0, cell = 1;
    for (size_t r = 0; r < p->n_rows; r++) {
        widen(t, &names, dt_grid_name(p->row_names, r, buffer));
    }
    for (size_t i = 0; i < p->n_rows * p->n_columns; i++) {
        const int n = snprintf(NULL, 0, "%.4g", p->values[i]);
        cell = n > cell ? n : cell;
    }
    for (size_t c = 0; c < p->n_columns; c++) {
        const int n = width_of(t, dt_grid_name(p->column_names, c, buffer));
        cell = n > cell && n <= 10 ? n : cell;
    }
    if (INDENT + names + (int)p->n_columns * (cell + 1) > room(t)) {
        fprintf(t->out, "  %zu x %zu numbers: wider than the terminal (--html, --json)\n",
                p->n_rows, p->n_columns);
        return;
    }
    for (size_t r = 0; r <= p->n_rows; r++) {
        pad(t, INDENT);
        put_padded(t, r > 0 ? dt_grid_name(p->row_names, r - 1, buffer) : "", names);
        for (size_t c = 0; c < p->n_columns; c++) {
            char text[32] = "-";
            const double value = r > 0 ? p->values[(r - 1) * p->n_columns + c] : 0;
            if (r == 0) {
                snprintf(text, sizeof text, "%.*s", cell, dt_grid_name(p->column_names, c, buffer));
            } else if (isfinite(value)) {
                snprintf(text, sizeof text, "%.4g", value);
            }
            pad(t, cell + 1 - width_of(t, text));
            put(t, text);
        }
        fputc('\n', t->out);
    }
    if (p->text != NULL) {
        pad(t, INDENT);
        put(t, dt_grid_axes(p, buffer));
        fputc('\n', t->out);
    }
}

/* ---- the whole */

static void put_code(const struct text *t, const char *code)
{
    for (const char *line = code; *line != '\0';) {
        const int n = (int)strcspn(line, "\n");
        char text[DT_LINE_SIZE];
        snprintf(text, sizeof text, "%.*s", n, line);
        pad(t, 2 * INDENT);
        put(t, text);
        fputc('\n', t->out);
        line += n + (line[n] == '\n');
    }
}

static void put_part(const struct text *t, const struct dt_part *p)
{
    if (p->title != NULL) {
        put_bold(t, p->title);
    }
    if (p->caption != NULL) {
        put_prose(t, p->caption);
    }
    switch (p->kind) {
    case DT_PART_SECTION:
        put_bold(t, p->text);
        break;
    case DT_PART_TEXT:
        put_prose(t, p->text);
        break;
    case DT_PART_CODE:
        put_code(t, p->text);
        break;
    case DT_PART_FIGURES:
        put_figures(t, p);
        break;
    case DT_PART_TABLE:
        put_table(t, p);
        break;
    case DT_PART_SERIES:
        put_series(t, p);
        break;
    case DT_PART_LANES:
        put_lanes(t, p);
        break;
    case DT_PART_GRID:
        put_grid(t, p);
        break;
    }
}

static bool is_picture(const struct dt_part *p)
{
    return p->kind == DT_PART_GRID && p->grid >= DT_GRID_PIXELS;
}

/* No pictures, and no paragraph that belongs to the picture behind it. */
static bool shows(const struct dt_doc *doc, size_t i)
{
    const struct dt_part *p = doc->parts.items[i];
    const bool before = i + 1 < doc->parts.n && is_picture(doc->parts.items[i + 1]);
    return !p->detail && !is_picture(p) && !(p->kind == DT_PART_TEXT && before);
}

static bool begins_step(const struct dt_doc *doc, size_t i)
{
    const char *step = doc->parts.items[i]->step,
               *before = i > 0 ? doc->parts.items[i - 1]->step : NULL;
    return step != NULL && (before == NULL || strcmp(step, before) != 0);
}

/* The number of the step that begins at part `i`, from 0, in a sequence of *n. */
static size_t number_of_step(const struct dt_doc *doc, size_t i, size_t *n)
{
    size_t first = i, number = 0;
    while (first > 0 && doc->parts.items[first - 1]->step != NULL) {
        first--;
    }
    *n = 0;
    for (size_t k = first; k < doc->parts.n && doc->parts.items[k]->step != NULL; k++) {
        number += k < i && begins_step(doc, k);
        *n += begins_step(doc, k);
    }
    return number;
}

/* Writes the head of the step that begins at part `i`; returns whether the text has the step. */
static bool put_step(const struct text *t, const struct dt_doc *doc, size_t i)
{
    size_t n, number = number_of_step(doc, i, &n);
    if (n <= MAX_STEPS || number < END_STEPS || number >= n - END_STEPS) {
        fputc('\n', t->out);
        put_bold(t, doc->parts.items[i]->step);
        return true;
    }
    if (number == END_STEPS) {
        fprintf(t->out, "\n... %zu more steps (--html and --json have them)\n", n - 2 * END_STEPS);
    }
    return false;
}

void dt_view_text(FILE *out, const struct dt_doc *doc, struct dt_text_view view)
{
    const struct text t = {out, view};
    bool shown = true, headed = false;
    put_bold(&t, doc->title);
    for (size_t i = 0; i < doc->parts.n; i++) {
        const struct dt_part *p = doc->parts.items[i];
        if (begins_step(doc, i)) {
            shown = headed = put_step(&t, doc, i);
        }
        shown = shown || p->step == NULL;
        if (shown && shows(doc, i)) {
            fputs(headed ? "" : "\n", out);
            put_part(&t, p);
            headed = false;
        }
    }
    if (doc->summary != NULL) {
        fputs(view.color ? "\n\033[1m" : "\n", out);
        wrap(&t, doc->summary, 0, 0, room(&t));
        fputs(view.color ? "\033[0m" : "", out);
    }
}
