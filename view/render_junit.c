/* JUnit's XML, which test runners read: a suite, its figures as properties, and each judged row as
 * a test case. */
#include <math.h>
#include <string.h>

#include "view/chart.h"
#include "view/render.h"

/* The name of a judged row: its first text. */
static const char *name_of(const struct dt_part *p, const struct dt_row *row)
{
    if (p->kind == DT_PART_FIGURES) {
        return row->column.name;
    }
    for (size_t c = 0; c < p->columns.n; c++) {
        if (row->cells[c].text != NULL) {
            return row->cells[c].text;
        }
    }
    return "row";
}

/* What it says: its last text that is not its name. */
static const char *text_of(const struct dt_part *p, const struct dt_row *row)
{
    for (size_t c = p->columns.n; p->kind == DT_PART_TABLE && c-- > 0;) {
        if (row->cells[c].text != NULL && row->cells[c].text != name_of(p, row)) {
            return row->cells[c].text;
        }
    }
    return "";
}

static double seconds_of(const struct dt_part *p, const struct dt_row *row)
{
    for (size_t c = 0; p->kind == DT_PART_TABLE && c < p->columns.n; c++) {
        const struct dt_column *column = &p->columns.items[c];
        if (strcmp(column->name, "time") == 0 && row->cells[c].text == NULL &&
            isfinite(row->cells[c].number)) {
            return row->cells[c].number;
        }
    }
    return 0;
}

static void put_case(FILE *out, const struct dt_doc *doc, const struct dt_part *p,
                     const struct dt_row *row)
{
    static const struct {
        const char *begin, *end;
    } elements[DT_N_VERDICTS] = {[DT_VERDICT_PASS] = {"<system-out>", "</system-out>"},
                                 [DT_VERDICT_WARN] = {"<system-out>warning: ", "</system-out>"},
                                 [DT_VERDICT_FAIL] = {"<failure message=\"", "\"/>"},
                                 [DT_VERDICT_MEASURED] = {"<skipped message=\"measured: ", "\"/>"},
                                 [DT_VERDICT_SKIPPED] = {"<skipped message=\"", "\"/>"}};
    const char *text = text_of(p, row), *hint = row->hint != NULL ? row->hint : "";
    fputs("  <testcase classname=\"dtrain.", out);
    dt_html_text(out, doc->command);
    fputs("\" name=\"", out);
    dt_html_text(out, name_of(p, row));
    fprintf(out, "\" time=\"%.3f\">%s", seconds_of(p, row), elements[row->verdict].begin);
    dt_html_text(out, text);
    fputs(text[0] != '\0' && hint[0] != '\0' ? " (" : "", out);
    dt_html_text(out, hint);
    fprintf(out, "%s%s</testcase>\n", text[0] != '\0' && hint[0] != '\0' ? ")" : "",
            elements[row->verdict].end);
}

static void put_property(FILE *out, const struct dt_row *row)
{
    char buffer[DT_CELL_SIZE];
    fputs("    <property name=\"", out);
    dt_html_text(out, row->column.name);
    fputs("\" value=\"", out);
    dt_html_text(out, dt_cell_text(&row->column, &row->cells[0], buffer));
    fputs("\"/>\n", out);
}

typedef void (*row_fn)(FILE *out, const struct dt_doc *doc, const struct dt_part *p,
                       const struct dt_row *row);

static void put_figure(FILE *out, const struct dt_doc *doc, const struct dt_part *p,
                       const struct dt_row *row)
{
    (void)doc;
    if (p->kind == DT_PART_FIGURES && row->verdict == DT_NO_VERDICT) {
        put_property(out, row);
    }
}

/* A figure "date" as the suite's: in UTC, without its "Z". */
static void put_timestamp(FILE *out, const struct dt_doc *doc, const struct dt_part *p,
                          const struct dt_row *row)
{
    (void)doc;
    if (p->kind == DT_PART_FIGURES && strcmp(row->column.name, "date") == 0 &&
        row->cells[0].text != NULL) {
        fputs(" timestamp=\"", out);
        char text[20];
        snprintf(text, sizeof text, "%s", row->cells[0].text);
        dt_html_text(out, text);
        fputc('"', out);
    }
}

static void put_judged(FILE *out, const struct dt_doc *doc, const struct dt_part *p,
                       const struct dt_row *row)
{
    if (row->verdict != DT_NO_VERDICT) {
        put_case(out, doc, p, row);
    }
}

static void each_row(FILE *out, const struct dt_doc *doc, row_fn put)
{
    for (size_t i = 0; i < doc->parts.n; i++) {
        const struct dt_part *p = doc->parts.items[i];
        for (size_t r = 0; r < p->rows.n; r++) {
            put(out, doc, p, &p->rows.items[r]);
        }
    }
}

void dt_view_junit(FILE *out, const struct dt_doc *doc)
{
    int counts[DT_N_VERDICTS] = {0}, n = 0;
    for (size_t i = 0; i < doc->parts.n; i++) {
        const struct dt_part *p = doc->parts.items[i];
        for (size_t r = 0; r < p->rows.n; r++) {
            counts[p->rows.items[r].verdict]++;
            n += p->rows.items[r].verdict != DT_NO_VERDICT;
        }
    }
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" DT_JUNIT_MARK, out);
    dt_html_text(out, doc->command);
    fprintf(out, "\" tests=\"%d\" failures=\"%d\" skipped=\"%d\"", n, counts[DT_VERDICT_FAIL],
            counts[DT_VERDICT_MEASURED] + counts[DT_VERDICT_SKIPPED]);
    each_row(out, doc, put_timestamp);
    fputs(">\n  <properties>\n", out);
    each_row(out, doc, put_figure);
    fputs("  </properties>\n", out);
    each_row(out, doc, put_judged);
    fputs("</testsuite>\n", out);
}
