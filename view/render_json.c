/* JSON: the document in one shape, {"dtrain_document": 1, "command": ..., "parts": [...]}
 * (docs/files.md). */
#include "view/json_write.h"

#include "view/parts.h"
#include "view/render.h"

static void put_text(struct dt_json *j, const char *key, const char *text)
{
    if (text != NULL && text[0] != '\0') {
        dt_json_text(j, key, text);
    }
}

static void put_cell(struct dt_json *j, const char *key, const struct dt_cell *cell)
{
    if (cell->text != NULL) {
        dt_json_text(j, key, cell->text);
    } else {
        dt_json_number(j, key, 0, cell->number);
    }
}

static void put_judgement(struct dt_json *j, const struct dt_row *row)
{
    if (row->bounded) {
        dt_json_number(j, row->at_most ? "at_most" : "at_least", 0, row->bound);
    }
    put_text(j, "verdict", dt_verdict_words[row->verdict]);
    put_text(j, "hint", row->hint);
    if (row->emphasized) {
        dt_json_bool(j, "chosen", true);
    }
}

/* "B" and the other formats that bring a unit hold values in the unit's base. */
static const char *unit_of(const struct dt_column *column)
{
    return column->format == 'B'                            ? "bytes"
           : column->format == 't' || column->format == 'd' ? "s"
           : column->format == '%'                          ? "share"
                                                            : column->unit;
}

static void put_figures(struct dt_json *j, const struct dt_part *p)
{
    dt_json_begin(j, "figures", '{');
    for (size_t i = 0; i < p->rows.n; i++) {
        const struct dt_row *row = &p->rows.items[i];
        dt_json_begin(j, row->column.name, '{');
        put_cell(j, "value", &row->cells[0]);
        put_text(j, "unit", unit_of(&row->column));
        put_judgement(j, row);
        dt_json_end(j, '{');
    }
    dt_json_end(j, '{');
}

static void put_table(struct dt_json *j, const struct dt_part *p)
{
    dt_json_begin(j, "columns", '[');
    for (size_t c = 0; c < p->columns.n; c++) {
        dt_json_begin(j, NULL, '{');
        dt_json_text(j, "name", p->columns.items[c].name);
        put_text(j, "unit", unit_of(&p->columns.items[c]));
        dt_json_end(j, '{');
    }
    dt_json_end(j, '[');
    dt_json_begin(j, "rows", '[');
    for (size_t r = 0; r < p->rows.n; r++) {
        const struct dt_row *row = &p->rows.items[r];
        dt_json_begin(j, NULL, '{');
        for (size_t c = 0; c < p->columns.n; c++) {
            put_cell(j, p->columns.items[c].name, &row->cells[c]);
        }
        put_judgement(j, row);
        dt_json_end(j, '{');
    }
    dt_json_end(j, '[');
}

static void put_numbers(struct dt_json *j, const char *key, const double *values, size_t n)
{
    dt_json_begin(j, key, '[');
    for (size_t i = 0; values != NULL && i < n; i++) {
        dt_json_number(j, NULL, 9, values[i]);
    }
    dt_json_end(j, '[');
}

static void put_names(struct dt_json *j, const char *key, char *const *names, size_t n)
{
    char buffer[DT_CELL_SIZE];
    dt_json_begin(j, key, '[');
    for (size_t i = 0; i < n; i++) {
        dt_json_text(j, NULL, dt_grid_name(names, i, buffer));
    }
    dt_json_end(j, '[');
}

static void put_series(struct dt_json *j, const struct dt_part *p)
{
    dt_json_text(j, "x", p->x);
    dt_json_text(j, "y", p->y);
    if (p->n_columns > 0) {
        put_names(j, "ticks", p->column_names, p->n_columns);
    }
    dt_json_begin(j, "lines", '[');
    for (size_t i = 0; i < p->lines.n; i++) {
        const struct dt_line *line = &p->lines.items[i];
        dt_json_begin(j, NULL, '{');
        dt_json_text(j, "name", line->name);
        put_numbers(j, "x", line->x, line->n);
        put_numbers(j, "y", line->y, line->n);
        if (line->low != NULL) {
            put_numbers(j, "low", line->low, line->n);
            put_numbers(j, "high", line->high, line->n);
        }
        dt_json_end(j, '{');
    }
    dt_json_end(j, '[');
    dt_json_begin(j, "marks", '[');
    for (size_t i = 0; i < p->marks.n; i++) {
        dt_json_begin(j, NULL, '{');
        dt_json_number(j, "x", 0, p->marks.items[i].x);
        dt_json_text(j, "name", p->marks.items[i].name);
        dt_json_end(j, '{');
    }
    dt_json_end(j, '[');
}

static void put_lanes(struct dt_json *j, const struct dt_part *p)
{
    dt_json_text(j, "axis", p->x);
    put_names(j, "lanes", p->lanes.items, p->lanes.n);
    put_names(j, "kinds", p->kinds.items, p->kinds.n);
    dt_json_begin(j, "boxes", '[');
    for (size_t i = 0; i < p->boxes.n; i++) {
        const struct dt_box *box = &p->boxes.items[i];
        dt_json_begin(j, NULL, '{');
        dt_json_number(j, "lane", 0, box->lane);
        dt_json_number(j, "begin", 9, box->begin);
        dt_json_number(j, "end", 9, box->end);
        dt_json_number(j, "kind", 0, box->kind);
        put_text(j, "label", box->label);
        dt_json_end(j, '{');
    }
    dt_json_end(j, '[');
}

static void put_grid(struct dt_json *j, const struct dt_part *p)
{
    put_text(j, "axes", p->text);
    put_names(j, "rows", p->row_names, p->n_rows);
    put_names(j, "columns", p->column_names, p->n_columns);
    dt_json_begin(j, "values", '[');
    for (size_t r = 0; r < p->n_rows; r++) {
        put_numbers(j, NULL, p->values + r * p->n_columns, p->n_columns);
    }
    dt_json_end(j, '[');
}

static void put_part(struct dt_json *j, const struct dt_part *p)
{
    static const char *const types[] = {"section", "text",   "code",  "figures",
                                        "table",   "series", "lanes", "grid"};
    dt_json_begin(j, NULL, '{');
    dt_json_text(j, "type", types[p->kind]);
    put_text(j, "title", p->title);
    put_text(j, "caption", p->caption);
    put_text(j, "step", p->step);
    switch (p->kind) {
    case DT_PART_SECTION:
    case DT_PART_TEXT:
    case DT_PART_CODE:
        dt_json_text(j, "text", p->text);
        break;
    case DT_PART_FIGURES:
        put_figures(j, p);
        break;
    case DT_PART_TABLE:
        put_table(j, p);
        break;
    case DT_PART_SERIES:
        put_series(j, p);
        break;
    case DT_PART_LANES:
        put_lanes(j, p);
        break;
    case DT_PART_GRID:
        put_grid(j, p);
        break;
    }
    dt_json_end(j, '{');
}

void dt_view_json(FILE *out, const struct dt_doc *doc)
{
    struct dt_json j = {.out = out};
    dt_json_begin(&j, NULL, '{');
    dt_json_number(&j, "dtrain_document", 0, DT_DOCUMENT_VERSION);
    dt_json_text(&j, "command", doc->command);
    dt_json_text(&j, "title", doc->title);
    put_text(&j, "verdict", dt_verdict_words[doc->verdict]);
    put_text(&j, "summary", doc->summary);
    dt_json_begin(&j, "parts", '[');
    for (size_t i = 0; i < doc->parts.n; i++) {
        fputc('\n', out);
        put_part(&j, doc->parts.items[i]);
    }
    dt_json_end(&j, '[');
    dt_json_end(&j, '{');
    fputc('\n', out);
}
