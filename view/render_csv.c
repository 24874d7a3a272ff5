/* CSV (RFC 4180): the main table; without a table the figures as rows, or the series. */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "view/json_write.h"
#include "view/parts.h"
#include "view/render.h"

/* In quotes where it needs them. A text that a spreadsheet would compute gets an apostrophe. */
static void put_text(FILE *out, const char *text)
{
    const bool quotes = strpbrk(text, ",\"\r\n") != NULL;
    fputs(quotes ? "\"" : "", out);
    fputs(text[0] != '\0' && strchr("=+-@\t", text[0]) != NULL ? "'" : "", out);
    for (; *text != '\0'; text++) {
        fputs(*text == '"' ? "\"" : "", out);
        fputc(*text, out);
    }
    fputs(quotes ? "\"" : "", out);
}

static void put_number(FILE *out, double value)
{
    if (isfinite(value)) {
        dt_json_digits(out, 0, value);
    }
}

static void put_cell(FILE *out, const struct dt_cell *cell)
{
    if (cell->text != NULL) {
        put_text(out, cell->text);
    } else {
        put_number(out, cell->number);
    }
}

static void put_table(FILE *out, const struct dt_part *p)
{
    const bool verdicts = dt_part_has_verdicts(p), hints = dt_part_has_hints(p);
    char buffer[DT_CELL_SIZE];
    for (size_t c = 0; c < p->columns.n; c++) {
        fputs(c > 0 ? "," : "", out);
        put_text(out, dt_column_head(&p->columns.items[c], buffer));
    }
    fprintf(out, "%s%s\r\n", verdicts ? ",verdict" : "", hints ? ",hint" : "");
    for (size_t r = 0; r < p->rows.n; r++) {
        const struct dt_row *row = &p->rows.items[r];
        for (size_t c = 0; c < p->columns.n; c++) {
            fputs(c > 0 ? "," : "", out);
            put_cell(out, &row->cells[c]);
        }
        if (verdicts) {
            fprintf(out, ",%s", dt_verdict_words[row->verdict]);
        }
        if (hints) {
            fputc(',', out);
            put_text(out, row->hint != NULL ? row->hint : "");
        }
        fputs("\r\n", out);
    }
}

static void put_figures(FILE *out, const struct dt_part *p)
{
    for (size_t i = 0; i < p->rows.n; i++) {
        const struct dt_row *row = &p->rows.items[i];
        put_text(out, row->column.name);
        fputc(',', out);
        put_cell(out, &row->cells[0]);
        fputc(',', out);
        put_text(out, row->column.unit);
        fputs("\r\n", out);
    }
}

static void put_series(FILE *out, const struct dt_part *p)
{
    for (size_t k = 0; k < p->lines.n; k++) {
        const struct dt_line *line = &p->lines.items[k];
        for (size_t i = 0; i < line->n; i++) {
            put_text(out, line->name);
            fputc(',', out);
            put_number(out, line->x[i]);
            fputc(',', out);
            put_number(out, line->y[i]);
            fputs("\r\n", out);
        }
    }
}

static bool has(const struct dt_doc *doc, enum dt_part_kind kind)
{
    bool found = false;
    for (size_t i = 0; i < doc->parts.n; i++) {
        found = found || doc->parts.items[i]->kind == kind;
    }
    return found;
}

void dt_view_csv(FILE *out, const struct dt_doc *doc)
{
    const struct dt_part *table = dt_doc_main_table(doc);
    if (table != NULL) {
        put_table(out, table);
        return;
    }
    const bool figures = has(doc, DT_PART_FIGURES);
    fputs(figures ? "name,value,unit\r\n" : "series,x,y\r\n", out);
    for (size_t i = 0; i < doc->parts.n; i++) {
        const struct dt_part *part = doc->parts.items[i];
        if (figures && part->kind == DT_PART_FIGURES) {
            put_figures(out, part);
        } else if (!figures && part->kind == DT_PART_SERIES) {
            put_series(out, part);
        }
    }
}
