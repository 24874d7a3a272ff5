/* A page: one file with all that it shows, so that it works from a file share. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "view/image.h"
#include "view/page.h"
#include "view/parts.h"
#include "view/render.h"

/* The page may use its own contents alone: a text that gets into it can load and send nothing. */
#define POLICY                                                                              \
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src " \
    "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; "         \
    "form-action 'none'\">\n"

/* ---- texts */

static void put_character(FILE *out, char c)
{
    switch (c) {
    case '&':
        fputs("&amp;", out);
        break;
    case '<':
        fputs("&lt;", out);
        break;
    case '>':
        fputs("&gt;", out);
        break;
    case '"':
        fputs("&quot;", out);
        break;
    default:
        fputc(c, out);
    }
}

static void put_shown(FILE *out, const char *text)
{
    char shown[DT_LINE_SIZE];
    for (const char *c = dt_text_escape(text, shown, sizeof shown); *c != '\0'; c++) {
        put_character(out, *c);
    }
}

/* A text of any length, line by line; `prose`: with lines broken and `code`. */
static void put_lines(FILE *out, const char *text, bool prose)
{
    bool code = false;
    while (*text != '\0') {
        char line[1024], shown[DT_LINE_SIZE];
        size_t n = strcspn(text, "\n");
        n = n < sizeof line ? n : sizeof line - 1;
        while (n + 1 == sizeof line && ((unsigned char)text[n] & 0xc0) == 0x80) {
            n--; /* not within a character */
        }
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        for (const char *c = dt_text_escape(line, shown, sizeof shown); *c != '\0'; c++) {
            if (prose && *c == '`') {
                fputs(code ? "</code>" : "<code>", out);
                code = !code;
            } else {
                put_character(out, *c);
            }
        }
        text += n;
        if (*text == '\n') {
            fputs(prose ? "<br>" : "\n", out);
            text++;
        }
    }
    fputs(code ? "</code>" : "", out);
}

static void put_element(FILE *out, const char *tag, const char *class, const char *text)
{
    fprintf(out, class[0] != '\0' ? "<%s class=\"%s\">" : "<%s>", tag, class);
    put_lines(out, text, true);
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
    if (row->hint != NULL && row->hint[0] != '\0') {
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
        put_shown(out, dt_cell_text(&row->column, &row->cells[0], buffer));
        if (row->column.unit[0] != '\0' && row->cells[0].text == NULL) {
            fputc(' ', out);
            put_shown(out, row->column.unit);
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
        put_lines(out, dt_cell_text(column, &row->cells[c], buffer), true);
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

/* ---- series: size of the picture, and place of the plot in it */

#define WIDTH 440
#define HEIGHT 300
#define LEFT 62
#define RIGHT 14
#define TOP 14
#define BOTTOM 48
#define MAX_POINTS 240 /* of a line; more are thinned */
#define MAX_TICKS 6

struct axis {
    double low, high;
    bool log;
};

struct chart {
    FILE *out;
    const struct dt_part *part;
    struct axis x, y;
};

/* A point, or several where there are more than MAX_POINTS. */
struct point {
    double x, y, low, high;
    size_t n;
};

static double share(const struct axis *axis, double value)
{
    return axis->log ? log(value / axis->low) / log(axis->high / axis->low)
                     : (value - axis->low) / (axis->high - axis->low);
}

static double at_x(const struct chart *c, double x)
{
    return LEFT + fmin(1, fmax(0, share(&c->x, x))) * (WIDTH - LEFT - RIGHT);
}

static double at_y(const struct chart *c, double y)
{
    const double at = c->y.log && y <= 0 ? 0 : fmin(1, fmax(0, share(&c->y, y)));
    return HEIGHT - BOTTOM - at * (HEIGHT - TOP - BOTTOM);
}

static void add_point(struct point *p, double x, double y, double low, double high)
{
    const double part = 1.0 / (double)++p->n;
    p->low = p->n == 1 ? low : fmin(p->low, low);
    p->high = p->n == 1 ? high : fmax(p->high, high);
    p->x += (x - p->x) * part;
    p->y += (y - p->y) * part;
}

/* Parts of the axis x, each with its mean, its least and its largest value. */
static size_t thin(const struct dt_line *line, struct point points[MAX_POINTS])
{
    size_t n = 0, last = 0;
    const double first = line->n > 0 ? line->x[0] : 0,
                 span = line->n > 0 ? line->x[line->n - 1] - first : 0;
    for (size_t i = 0; i < line->n; i++) {
        const double at = span > 0 ? (line->x[i] - first) / span * (MAX_POINTS - 1) : 0;
        const size_t part = line->n <= MAX_POINTS ? i : (size_t)fmax(0, at);
        if (!isfinite(line->y[i]) || !isfinite(line->x[i])) {
            continue;
        }
        if (n == 0 || (part != last && n < MAX_POINTS)) {
            points[n++] = (struct point){.n = 0};
        }
        last = part;
        add_point(&points[n - 1], line->x[i], line->y[i],
                  line->low != NULL ? line->low[i] : line->y[i],
                  line->high != NULL ? line->high[i] : line->y[i]);
    }
    return n;
}

/* A span of nothing is no axis. */
static void widen(struct axis *axis)
{
    const double size = fmax(fabs(axis->low), fabs(axis->high)), air = size > 1e-30 ? size / 4 : 1;
    if (axis->high - axis->low < 1e-6 * size || size <= 1e-30) {
        axis->low -= axis->log ? 0 : air;
        axis->high += air;
    }
}

static bool find_axes(struct chart *c)
{
    const unsigned axes = c->part->axes;
    struct axis *x = &c->x, *y = &c->y;
    *x = *y = (struct axis){.low = INFINITY, .high = -INFINITY};
    for (size_t k = 0; k < c->part->lines.n; k++) {
        struct point points[MAX_POINTS];
        const size_t n = thin(&c->part->lines.items[k], points);
        for (size_t i = 0; i < n; i++) {
            x->low = fmin(x->low, points[i].x);
            x->high = fmax(x->high, points[i].x);
            y->low = fmin(y->low, points[i].low);
            y->high = fmax(y->high, points[i].high);
        }
    }
    if (x->low > x->high) {
        return false;
    }
    const bool wide = y->high > 20 * y->low && y->high < 1e12 * y->low;
    x->log = (axes & DT_LOG_X) != 0 && x->low > 0;
    y->log = y->low > 0 && ((axes & DT_LOG_Y) != 0 || ((axes & DT_LOG_Y_IF_WIDE) != 0 && wide));
    x->low = !x->log && x->low > 0 && x->low < 0.1 * x->high ? 0 : x->low;
    y->low = !y->log && y->low > 0 && (y->low < 0.5 * y->high || (axes & DT_FROM_ZERO) != 0)
                 ? 0
                 : y->low;
    widen(x);
    widen(y);
    const double air = y->log ? 0 : 0.03 * (y->high - y->low);
    y->high += air;
    y->low -= y->low != 0 ? air : 0;
    return true;
}

/* 1, 2 or 5 times a power of ten: the least of them that lies at most MAX_TICKS times in `span`. */
static double tick_step(double span)
{
    double step = pow(10, floor(log10(span / MAX_TICKS)));
    for (int i = 0; i < 3 && span / step > MAX_TICKS; i++) {
        step *= i == 1 ? 2.5 : 2;
    }
    return step;
}

static void put_tick(const struct chart *c, bool vertical, double value)
{
    char text[DT_CELL_SIZE];
    dt_view_number(value, text);
    if (vertical) {
        const double y = at_y(c, value);
        fprintf(c->out,
                "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"end\" x=\"%d\" "
                "y=\"%.1f\">%s</text>\n",
                LEFT, y, WIDTH - RIGHT, LEFT - 6, y + 4, text);
    } else {
        const double x = at_x(c, value);
        fprintf(c->out,
                "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" "
                "y=\"%d\">%s</text>\n",
                x, TOP, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 18, text);
    }
}

static void put_ticks(const struct chart *c, const struct axis *axis, bool vertical)
{
    const double factor = axis->high / axis->low > 200 ? 10 : 2,
                 step = axis->log ? 0 : tick_step(axis->high - axis->low);
    const double first = axis->log ? pow(factor, ceil(log(axis->low) / log(factor) - 1e-9))
                                   : ceil(axis->low / step - 1e-9) * step;
    for (int i = 0; i < 20; i++) {
        const double value = axis->log ? first * pow(factor, i) : first + i * step;
        if (!(value <= axis->high * (1 + 1e-9) + (axis->log ? 0 : 1e-9 * step))) {
            break;
        }
        put_tick(c, vertical, fabs(value) < 1e-9 * step ? 0 : value);
    }
}

static void put_band(const struct chart *c, int color, const struct point *points, size_t n)
{
    fprintf(c->out, "<path class=\"band d%d\" d=\"", color);
    for (size_t i = 0; i < 2 * n; i++) {
        const struct point *p = &points[i < n ? i : 2 * n - 1 - i];
        fprintf(c->out, "%c%.1f %.1f", i == 0 ? 'M' : 'L', at_x(c, p->x),
                at_y(c, i < n ? p->low : p->high));
    }
    fputs("z\"/>\n", c->out);
}

static void put_bars(const struct chart *c, size_t line, const struct point *points, size_t n)
{
    const size_t lines = c->part->lines.n;
    const double step = (WIDTH - LEFT - RIGHT) / (double)(n > 0 ? n : 1), all = 0.8 * step,
                 width = all / (double)lines;
    for (size_t i = 0; i < n; i++) {
        const double y = at_y(c, points[i].y), x = at_x(c, points[i].x) - all / 2;
        fprintf(c->out,
                "<rect class=\"d%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                "height=\"%.1f\"/>\n",
                c->part->lines.items[line].color, x + (double)line * width, y, 0.9 * width,
                HEIGHT - BOTTOM - y);
    }
}

static void put_line(const struct chart *c, size_t k)
{
    const struct dt_line *line = &c->part->lines.items[k];
    struct point points[MAX_POINTS];
    const size_t n = thin(line, points);
    const bool banded = line->low != NULL || line->n > MAX_POINTS,
               dots = line->stroke == DT_DOTS || line->stroke == DT_LINE_AND_DOTS || n == 1;
    if (line->stroke == DT_BARS) {
        put_bars(c, k, points, n);
        return;
    }
    if (banded) {
        put_band(c, line->color, points, n);
    }
    if (line->stroke != DT_DOTS) {
        fprintf(c->out, "<path class=\"s%d%s\" d=\"", line->color,
                line->stroke == DT_DASHES ? " dashes" : "");
        for (size_t i = 0; i < n; i++) {
            fprintf(c->out, "%c%.1f %.1f", i == 0 ? 'M' : 'L', at_x(c, points[i].x),
                    at_y(c, points[i].y));
        }
        fputs("\"/>\n", c->out);
    }
    for (size_t i = 0; dots && i < n; i++) {
        fprintf(c->out, "<circle class=\"d%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n", line->color,
                at_x(c, points[i].x), at_y(c, points[i].y));
    }
}

static void put_marks(const struct chart *c)
{
    double last = 0;
    for (size_t i = 0; i < c->part->marks.n; i++) {
        const double x = at_x(c, c->part->marks.items[i].x);
        if (x >= last + 1) { /* a reader can tell it from the one before */
            fprintf(c->out, "<path class=\"mark\" d=\"M%.1f %dV%d\"><title>", x, TOP,
                    HEIGHT - BOTTOM);
            put_shown(c->out, c->part->marks.items[i].name);
            fputs("</title></path>\n", c->out);
            last = x;
        }
    }
}

static void put_plot(const struct chart *c)
{
    fprintf(c->out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    put_shown(c->out, c->part->title != NULL ? c->part->title : c->part->y);
    fputs("\">\n", c->out);
    put_ticks(c, &c->x, false);
    put_ticks(c, &c->y, true);
    put_marks(c);
    for (size_t k = 0; k < c->part->lines.n; k++) {
        put_line(c, k);
    }
    fprintf(c->out, "<text x=\"%d\" y=\"%d\">", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8);
    put_shown(c->out, c->part->x);
    fprintf(c->out, "</text><text transform=\"translate(15 %d) rotate(-90)\">",
            (TOP + HEIGHT - BOTTOM) / 2);
    put_shown(c->out, c->part->y);
    fputs("</text></svg>\n", c->out);
}

static void put_legend(const struct chart *c)
{
    const struct dt_part *p = c->part;
    fputs("<p class=\"legend\">", c->out);
    for (size_t k = 0; k < p->lines.n; k++) {
        fprintf(c->out, "<span class=\"key k%d%s\">", p->lines.items[k].color,
                p->lines.items[k].stroke == DT_DASHES ? " dashes" : "");
        put_shown(c->out, p->lines.items[k].name);
        fputs("</span> ", c->out);
    }
    if (p->marks.n > 0) {
        fputs("<span class=\"key mark\">", c->out);
        put_shown(c->out, p->marks.items[0].name);
        fputs("</span>", c->out);
    }
    fputs("</p>\n", c->out);
}

/* The table behind a line: what a pointer over the chart shows, too (page.js). */
static void put_numbers(const struct chart *c, const struct dt_line *line)
{
    struct point points[MAX_POINTS];
    const size_t n = thin(line, points);
    const bool banded = line->low != NULL || line->n > MAX_POINTS;
    fputs("<table><caption>", c->out);
    put_shown(c->out, line->name);
    fputs("</caption><thead><tr><th>", c->out);
    put_shown(c->out, c->part->x);
    fputs("</th><th>", c->out);
    put_shown(c->out, c->part->y);
    fputs(banded ? "</th><th>least</th><th>most</th></tr></thead><tbody>\n"
                 : "</th></tr></thead><tbody>\n",
          c->out);
    for (size_t i = 0; i < n; i++) {
        const struct point *p = &points[i];
        fprintf(c->out, "<tr><td>%.10g<td>%.6g", p->x, p->y);
        if (banded && p->low < p->high) {
            fprintf(c->out, "<td>%.6g<td>%.6g", p->low, p->high);
        }
        fputs("\n", c->out);
    }
    fputs("</tbody></table>\n", c->out);
}

static void put_series(FILE *out, const struct dt_part *p)
{
    struct chart c = {.out = out, .part = p};
    if (!find_axes(&c)) {
        fputs("<p>No points.</p>\n", out);
        return;
    }
    put_legend(&c);
    fprintf(out, "<div class=\"plot\" data-x=\"%.15g %.15g %d\" data-place=\"%d %d %d %d\">\n",
            c.x.low, c.x.high, c.x.log, LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM);
    put_plot(&c);
    fputs("</div><p class=\"hover\" aria-hidden=\"true\">&nbsp;</p>\n<details><summary>Numbers"
          "</summary><div class=\"wide\">\n",
          out);
    for (size_t k = 0; k < p->lines.n; k++) {
        put_numbers(&c, &p->lines.items[k]);
    }
    fputs("</div></details>\n", out);
}

/* ---- lanes */

#define LANES_WIDTH 960
#define LANE_HEIGHT 28
#define CHARACTER 6.7 /* width of a label's character */
#define NARROW 10     /* a box that is less wide has no label */

static void put_box(FILE *out, const struct dt_box *box, double left, double scale)
{
    const double x = left + box->begin * scale, width = (box->end - box->begin) * scale,
                 y = box->lane * LANE_HEIGHT;
    const double label = CHARACTER * (double)strlen(box->label);
    fprintf(out, "<g><title>");
    put_shown(out, box->label);
    fprintf(out,
            " (%.4g to %.4g)</title><rect class=\"box d%d\" x=\"%.1f\" y=\"%.1f\" "
            "width=\"%.1f\" height=\"%d\" rx=\"2\"/>",
            box->begin, box->end, box->kind % 8 + 1, x, y + 3, fmax(0.6, width - 1),
            LANE_HEIGHT - 6);
    if (width > NARROW && label <= width) {
        fprintf(out, "<text class=\"on\" x=\"%.1f\" y=\"%.1f\">", x + width / 2,
                y + LANE_HEIGHT / 2.0 + 4);
        put_shown(out, box->label);
        fputs("</text>", out);
    }
    fputs("</g>\n", out);
}

static void put_lane_axis(FILE *out, double left, double scale, double end, int y)
{
    const double step = end > 0 ? tick_step(end) : 1;
    char text[DT_CELL_SIZE];
    for (int i = 0; i * step <= end * (1 + 1e-9) && i <= 2 * MAX_TICKS; i++) {
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
            put_shown(out, p->kinds.items[k]);
            fputs("</span> ", out);
        }
    }
    fputs("</p>\n", out);
}

static void put_lanes(FILE *out, const struct dt_part *p)
{
    double end = 0;
    size_t names = 0;
    for (size_t i = 0; i < p->boxes.n; i++) {
        end = fmax(end, p->boxes.items[i].end);
    }
    for (size_t i = 0; i < p->lanes.n; i++) {
        const size_t n = strlen(p->lanes.items[i]);
        names = n > names ? n : names;
    }
    const double left = 12 + 7.6 * (double)(names < 32 ? names : 32),
                 scale = (LANES_WIDTH - left - 20) / (end > 0 ? end : 1);
    const int bottom = (int)p->lanes.n * LANE_HEIGHT;
    put_kinds(out, p);
    fprintf(out,
            "<div class=\"wide\"><svg class=\"lanes\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-label=\"",
            LANES_WIDTH, bottom + 40);
    put_shown(out, p->title != NULL ? p->title : p->x);
    fputs("\">\n", out);
    put_lane_axis(out, left, scale, end, bottom);
    for (size_t i = 0; i < p->lanes.n; i++) {
        fprintf(out, "<text class=\"start name\" x=\"2\" y=\"%.1f\">",
                (double)i * LANE_HEIGHT + LANE_HEIGHT / 2.0 + 4);
        put_shown(out, p->lanes.items[i]);
        fputs("</text>\n", out);
    }
    for (size_t i = 0; i < p->boxes.n; i++) {
        put_box(out, &p->boxes.items[i], left, scale);
    }
    fprintf(out, "<text x=\"%.1f\" y=\"%d\">", (left + LANES_WIDTH) / 2, bottom + 34);
    put_shown(out, p->x);
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
    if (pixels != NULL && n > 0) {
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
        const char *bar = strchr(p->text, '|');
        fprintf(out,
                "<p class=\"axes\">rows: %.*s; columns: ", bar != NULL ? (int)(bar - p->text) : 0,
                p->text);
        put_shown(out, bar != NULL ? bar + 1 : p->text);
        fputs("</p>", out);
    }
    fputs("<div class=\"wide\"><table class=\"shades\">", out);
    put_grid_head(out, p);
    for (size_t r = 0; r < p->n_rows; r++) {
        fputs("<tr>", out);
        put_element(out, "th", "t", dt_grid_name(p->row_names, r, buffer));
        for (size_t c = 0; c < p->n_columns; c++) {
            const double value = p->values[r * p->n_columns + c];
            const bool right = p->grid == DT_GRID_COUNTS && r == c;
            fprintf(out, "<td class=\"%s%s\" style=\"--share:%.0f%%\" title=\"%.6g\">",
                    right ? "right" : "shade", p->odd[r * p->n_columns + c] ? " odd" : "",
                    most > 0 && isfinite(value) ? 75 * fmin(1, fabs(value) / most) : 0, value);
            fprintf(out, !isfinite(value) ? "–</td>" : numbers ? "%.4g</td>" : "</td>", value);
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
        fputs("<pre>", out);
        put_lines(out, p->text, false);
        fputs("</pre>", out);
        break;
    case DT_PART_FIGURES:
        put_figures(out, p);
        break;
    case DT_PART_TABLE:
        put_table(out, p);
        break;
    case DT_PART_SERIES:
        put_series(out, p);
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
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n" DT_PAGE_GENERATOR
          "\n" POLICY "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<title>",
          out);
    put_shown(out, doc->title);
    fprintf(out, "</title>\n<style>\n%s</style></head>\n<body>\n<h1>", dt_view_css);
    put_shown(out, doc->title);
    fputs("</h1>\n", out);
    if (doc->summary != NULL) {
        fprintf(out, "<p class=\"verdict %s\">", dt_verdict_classes[doc->verdict]);
        put_lines(out, doc->summary, true);
        fputs("</p>\n", out);
    }
    put_parts(out, doc);
    fprintf(out, "<script>\n%s</script>\n</body></html>\n", dt_view_js);
}
