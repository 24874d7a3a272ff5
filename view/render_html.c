/* A page: one file with all that it shows, so that it works from a file share. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "view/chart.h"
#include "view/image.h"
#include "view/parts.h"
#include "view/render.h"

/* The page may use its own contents alone: a text that gets into it can load and send nothing. */
#define POLICY                                                                              \
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src " \
    "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; "         \
    "form-action 'none'\">\n"

/* ---- texts */

/* A text, `code` in its element. */
static void put_prose(FILE *out, const char *text)
{
    char shown[DT_LINE_SIZE];
    bool code = false;
    for (const char *c = dt_text_escape(text, shown, sizeof shown); *c != '\0'; c++) {
        if (*c == '`') {
            fputs(code ? "</code>" : "<code>", out);
            code = !code;
        } else {
            dt_html_put(out, *c);
        }
    }
    fputs(code ? "</code>" : "", out);
}

/* Each line of it as it is. */
static void put_code(FILE *out, const char *text)
{
    fputs("<pre>", out);
    while (*text != '\0') {
        char line[DT_LINE_SIZE];
        const size_t n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        dt_html_text(out, line);
        text += n + (text[n] == '\n');
        fputc('\n', out);
    }
    fputs("</pre>", out);
}

static void put_element(FILE *out, const char *tag, const char *class, const char *text)
{
    fprintf(out, class[0] != '\0' ? "<%s class=\"%s\">" : "<%s>", tag, class);
    put_prose(out, text);
    fprintf(out, "</%s>", tag);
}

static void put_badge(FILE *out, enum dt_verdict verdict)
{
    if (verdict != DT_NO_VERDICT) {
        fprintf(out, "<span class=\"badge %s\">%s</span>", dt_verdict_classes[verdict],
                dt_verdict_words[verdict]);
    }
}

static void put_hint(FILE *out, const struct dt_row *row)
{
    if (dt_row_has_hint(row)) {
        fputc(' ', out);
        put_element(out, "small", "", row->hint);
    }
}

/* ---- figures and tables */

static void put_figures(FILE *out, const struct dt_part *p)
{
    char buffer[DT_CELL_SIZE];
    fputs("<dl class=\"figures\">\n", out);
    for (size_t i = 0; i < p->rows.n; i++) {
        const struct dt_row *row = &p->rows.items[i];
        put_element(out, "dt", "", row->column.name);
        fputs(row->emphasized ? "<dd class=\"this\">" : "<dd>", out);
        put_badge(out, row->verdict);
        dt_html_text(out, dt_cell_text(&row->column, &row->cells[0], buffer));
        if (row->column.unit[0] != '\0' && row->cells[0].text == NULL) {
            fputc(' ', out);
            dt_html_text(out, row->column.unit);
        }
        if (row->bounded) {
            fprintf(out, " <small>at %s %s</small>", row->at_most ? "most" : "least",
                    dt_cell_text(&row->column, &(struct dt_cell){.number = row->bound}, buffer));
        }
        put_hint(out, row);
        fputs("</dd>\n", out);
    }
    fputs("</dl>\n", out);
}

static void put_head(FILE *out, const struct dt_part *p, bool verdicts)
{
    char buffer[DT_CELL_SIZE];
    fputs(verdicts ? "<thead><tr><th class=\"t\"></th>" : "<thead><tr>", out);
    for (size_t c = 0; c < p->columns.n; c++) {
        put_element(out, "th", dt_column_is_text(&p->columns.items[c]) ? "t" : "",
                    dt_column_head(&p->columns.items[c], buffer));
    }
    fputs("</tr></thead><tbody>\n", out);
}

static void put_row(FILE *out, const struct dt_part *p, const struct dt_row *row, bool verdicts)
{
    char buffer[DT_CELL_SIZE];
    fputs(row->emphasized ? "<tr class=\"this\">" : "<tr>", out);
    if (verdicts) {
        fputs("<td class=\"t v\">", out);
        put_badge(out, row->verdict);
        fputs("</td>", out);
    }
    for (size_t c = 0; c < p->columns.n; c++) {
        const struct dt_column *column = &p->columns.items[c];
        const bool last = c + 1 == p->columns.n, text = dt_column_is_text(column);
        fprintf(out, text ? "<td class=\"t%s\">" : "<td%s>", text && last ? " w" : "");
        put_prose(out, dt_cell_text(column, &row->cells[c], buffer));
        if (last) {
            put_hint(out, row);
        }
        fputs("</td>", out);
    }
    fputs("</tr>\n", out);
}

static void put_table(FILE *out, const struct dt_part *p)
{
    const bool verdicts = dt_part_has_verdicts(p);
    fputs("<div class=\"wide\"><table>", out);
    put_head(out, p, verdicts);
    for (size_t r = 0; r < p->rows.n; r++) {
        put_row(out, p, &p->rows.items[r], verdicts);
    }
    fputs("</tbody></table></div>\n", out);
}

/* ---- lanes */

#define LANES_WIDTH 960
#define PHONE_WIDTH                                                              \
    620 /* of lanes that a phone shows without scrolling, in letters of page.css \
         */
#define LANE_HEIGHT 28
#define CHARACTER 6.7        /* width of a label's character */
#define PHONE_CHARACTER 10.4 /* on a phone */
#define NARROW 8             /* a box that is less wide has no label */

static void put_box(FILE *out, const struct dt_box *box, double left, double scale)
{
    const double x = left + box->begin * scale, width = (box->end - box->begin) * scale,
                 y = box->lane * LANE_HEIGHT, label = CHARACTER * (double)strlen(box->label);
    fprintf(out, "<g><title>");
    dt_html_text(out, box->label);
    fprintf(out,
            " (%.4g to %.4g)</title><rect class=\"box d%d\" x=\"%.1f\" y=\"%.1f\" "
            "width=\"%.1f\" height=\"%d\" rx=\"2\"/>",
            box->begin, box->end, box->kind % 8 + 1, x, y + 3, fmax(0.6, width - 1),
            LANE_HEIGHT - 6);
    if (width > NARROW && label <= width) {
        fprintf(out, "<text class=\"on\" x=\"%.1f\" y=\"%.1f\">", x + width / 2,
                y + LANE_HEIGHT / 2.0 + 4);
        dt_html_text(out, box->label);
        fputs("</text>", out);
    }
    fputs("</g>\n", out);
}

static void put_lane_axis(FILE *out, double left, double scale, double end, int y)
{
    const double step = end > DT_CHART_TICKS || end < 1 ? dt_chart_step(end > 0 ? end : 1) : 1;
    char text[DT_CELL_SIZE];
    for (int i = 0; i * step <= end * (1 + 1e-9) && i <= 2 * DT_CHART_TICKS; i++) {
        const double x = left + i * step * scale;
        fprintf(out, "<path class=\"grid\" d=\"M%.1f 0V%d\"/><text x=\"%.1f\" y=\"%d\">%s</text>\n",
                x, y, x, y + 16, dt_view_number(i * step, text));
    }
}

static void put_kinds(FILE *out, const struct dt_part *p)
{
    fputs("<p class=\"legend\">", out);
    for (size_t k = 0; k < p->kinds.n; k++) {
        if (p->kinds.items[k] != NULL) {
            fprintf(out, "<span class=\"key k%zu\">", k % 8 + 1);
            dt_html_text(out, p->kinds.items[k]);
            fputs("</span> ", out);
        }
    }
    fputs("</p>\n", out);
}

/* Whether every label fits its box on a phone, where the lanes begin at `left`. */
static bool fits_phone(const struct dt_part *p, double end, double left)
{
    const double character = PHONE_CHARACTER / (PHONE_WIDTH - left - 20) * end;
    size_t i = 0;
    while (i < p->boxes.n && character * (double)strlen(p->boxes.items[i].label) <=
                                 p->boxes.items[i].end - p->boxes.items[i].begin) {
        i++;
    }
    return i == p->boxes.n;
}

static void put_lanes(FILE *out, const struct dt_part *p)
{
    const double end = dt_lanes_extent(p);
    const bool axis = p->x[0] != '\0';
    double names = 0;
    for (size_t i = 0; i < p->lanes.n; i++) {
        names = fmax(names, (double)strlen(p->lanes.items[i]));
    }
    names = fmin(names, 32);
    const bool phone = p->extent == 0 && fits_phone(p, end, 12 + PHONE_CHARACTER * names);
    const int width = phone ? PHONE_WIDTH : LANES_WIDTH, bottom = (int)p->lanes.n * LANE_HEIGHT;
    const double left = 12 + (phone ? PHONE_CHARACTER : 7.6) * names,
                 scale = (width - left - 20) / (end > 0 ? end : 1);
    put_kinds(out, p);
    fprintf(out,
            "<div class=\"wide\"><svg class=\"lanes%s\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-label=\"",
            phone ? " few" : "", width, axis ? bottom + 40 : bottom);
    dt_html_text(out, p->title != NULL ? p->title : p->x);
    fputs("\">\n", out);
    if (axis) {
        put_lane_axis(out, left, scale, end, bottom);
    }
    for (size_t i = 0; i < p->lanes.n; i++) {
        fprintf(out, "<text class=\"start name\" x=\"2\" y=\"%.1f\">",
                (double)i * LANE_HEIGHT + LANE_HEIGHT / 2.0 + 4);
        dt_html_text(out, p->lanes.items[i]);
        fputs("</text>\n", out);
    }
    for (size_t i = 0; i < p->boxes.n; i++) {
        put_box(out, &p->boxes.items[i], left, scale);
    }
    fprintf(out, "<text x=\"%.1f\" y=\"%d\">", (left + width) / 2, bottom + 34);
    dt_html_text(out, p->x);
    fputs("</text></svg></div>\n", out);
}

/* ---- grids */

static void put_pixels(FILE *out, const struct dt_part *p)
{
    const bool colors = p->grid == DT_GRID_COLORS;
    const size_t channels = colors ? 3 : 1, n = p->n_rows * p->n_columns;
    uint8_t *pixels = malloc(n * channels + 1);
    for (size_t i = 0; pixels != NULL && i < n * channels; i++) {
        const double value = fmin(0xffffff, fmax(0, p->values[i / channels]));
        pixels[i] =
            colors ? (uint8_t)((uint32_t)value >> (16 - 8 * (i % 3))) : (uint8_t)fmin(255, value);
    }
    if (pixels == NULL) {
        (void)dt_error(DT_NO_MEMORY, "no memory for an image of a page");
    } else if (n > 0) {
        dt_image_put(out, (int)p->n_columns, (int)p->n_rows, (int)channels, pixels);
    }
    free(pixels);
}

static void put_grid_head(FILE *out, const struct dt_part *p)
{
    char buffer[DT_CELL_SIZE];
    fputs("<thead><tr><th class=\"t\"></th>", out);
    for (size_t c = 0; c < p->n_columns; c++) {
        put_element(out, "th", "", dt_grid_name(p->column_names, c, buffer));
    }
    fputs("</tr></thead><tbody>\n", out);
}

/* A cell; `shade`: its percentage of colour. Most cells of a large confusion are plain. */
static void put_grid_cell(FILE *out, const struct dt_part *p, size_t i, double shade, bool numbers)
{
    const bool right = p->grid == DT_GRID_COUNTS && i / p->n_columns == i % p->n_columns;
    const double value = p->values[i];
    char shown[32] = "–";
    if (isfinite(value)) {
        snprintf(shown, sizeof shown, "%.4g", value);
    }
    if (right || p->odd[i]) {
        fprintf(out, "<td class=\"%s%s\"", right ? "right" : "shade", p->odd[i] ? " odd" : "");
    } else {
        fputs(shade > 0 ? "<td class=\"shade\"" : "<td", out);
    }
    if (shade > 0 && !right) {
        fprintf(out, " style=\"--share:%.0f%%\"", shade);
    }
    fprintf(out, numbers ? ">%s" : " title=\"%s\">", shown);
}

static void put_grid(FILE *out, const struct dt_part *p)
{
    char buffer[DT_CELL_SIZE];
    double most = 0;
    const size_t n = p->n_rows * p->n_columns;
    const bool numbers = p->grid == DT_GRID_COUNTS || p->n_columns <= 16;
    for (size_t i = 0; i < n; i++) {
        const bool right = p->grid == DT_GRID_COUNTS && i / p->n_columns == i % p->n_columns;
        most = isfinite(p->values[i]) && !right ? fmax(most, fabs(p->values[i])) : most;
    }
    if (p->text != NULL) {
        char axes[DT_CELL_SIZE];
        put_element(out, "p", "axes", dt_grid_axes(p, axes));
    }
    fputs("<div class=\"wide\"><table class=\"shades\">", out);
    put_grid_head(out, p);
    for (size_t r = 0; r < p->n_rows; r++) {
        fputs("<tr>", out);
        put_element(out, "th", "t", dt_grid_name(p->row_names, r, buffer));
        for (size_t c = 0; c < p->n_columns; c++) {
            const size_t i = r * p->n_columns + c;
            const double value = isfinite(p->values[i]) ? fabs(p->values[i]) : 0;
            put_grid_cell(out, p, i, most > 0 ? 75 * fmin(1, value / most) : 0, numbers);
        }
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

/* ---- the whole */

static void put_content(FILE *out, const struct dt_part *p)
{
    switch (p->kind) {
    case DT_PART_SECTION:
        put_element(out, "h2", "", p->text);
        break;
    case DT_PART_TEXT:
        put_element(out, "p", "", p->text);
        break;
    case DT_PART_CODE:
        put_code(out, p->text);
        break;
    case DT_PART_FIGURES:
        put_figures(out, p);
        break;
    case DT_PART_TABLE:
        put_table(out, p);
        break;
    case DT_PART_SERIES:
        dt_chart_put(out, p);
        break;
    case DT_PART_LANES:
        put_lanes(out, p);
        break;
    case DT_PART_GRID:
        if (p->grid >= DT_GRID_PIXELS) {
            put_pixels(out, p);
        } else {
            put_grid(out, p);
        }
        break;
    }
}

static void put_caption(FILE *out, const struct dt_part *p)
{
    if (p->caption != NULL) {
        put_element(out, "p", "caption", p->caption);
    }
}

/* The group in which parts stand beside each other; NULL: below. */
static const char *group_of(const struct dt_part *p)
{
    return p->detail                                              ? NULL
           : p->kind == DT_PART_SERIES                            ? "cards"
           : p->kind == DT_PART_GRID && p->grid >= DT_GRID_PIXELS ? "pictures"
                                                                  : NULL;
}

static void put_part(FILE *out, const struct dt_part *p)
{
    const char *title = p->title != NULL ? p->title : "";
    if (p->kind == DT_PART_SECTION || (p->kind == DT_PART_TEXT && !p->detail)) {
        put_content(out, p);
        fputc('\n', out);
        return;
    }
    if (p->detail) {
        fputs("<details class=\"card\">", out);
        put_element(out, "summary", "", title[0] != '\0' ? title : "Details");
        put_caption(out, p);
        put_content(out, p);
        fputs("</details>\n", out);
        return;
    }
    fprintf(out, "<figure class=\"%s\">",
            group_of(p) != NULL && group_of(p)[0] == 'p' ? "picture" : "card");
    if (title[0] != '\0') {
        put_element(out, "h3", "", title);
    }
    put_caption(out, p);
    put_content(out, p);
    fputs("</figure>\n", out);
}

static bool same(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static void put_parts(FILE *out, const struct dt_doc *doc)
{
    const char *step = NULL, *group = NULL;
    for (size_t i = 0; i < doc->parts.n; i++) {
        const struct dt_part *p = doc->parts.items[i];
        const bool steps = !same(step, p->step);
        if (group != NULL && (steps || !same(group, group_of(p)))) {
            fputs("</div>\n", out);
            group = NULL;
        }
        if (steps) {
            fputs(step != NULL ? "</section>\n" : "", out);
            step = p->step;
            if (step != NULL) {
                fputs("<section class=\"step\">", out);
                put_element(out, "h2", "", step);
            }
        }
        if (group == NULL && group_of(p) != NULL) {
            group = group_of(p);
            fprintf(out, "<div class=\"%s\">\n", group);
        }
        put_part(out, p);
    }
    fputs(group != NULL ? "</div>\n" : "", out);
    fputs(step != NULL ? "</section>\n" : "", out);
}

void dt_view_html(FILE *out, const struct dt_doc *doc)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n" DT_HTML_MARK
          "\n" POLICY "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<title>",
          out);
    dt_html_text(out, doc->title);
    fprintf(out, "</title>\n<style>\n%s</style></head>\n<body>\n<h1>", dt_view_css);
    dt_html_text(out, doc->title);
    fputs("</h1>\n", out);
    if (doc->summary != NULL) {
        fprintf(out, "<p class=\"verdict %s\">", dt_verdict_classes[doc->verdict]);
        put_prose(out, doc->summary);
        fputs("</p>\n", out);
    }
    put_parts(out, doc);
    fprintf(out, "<script>\n%s</script>\n</body></html>\n", dt_view_js);
}
