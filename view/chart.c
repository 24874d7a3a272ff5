/* A series as a chart: an SVG with two axes, a legend, and the table of its numbers. */
#include "view/chart.h"

#include <math.h>
#include <string.h>

#include "base/text.h"

void dt_html_put(FILE *out, char c)
{
    const char *text = c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&quot;";
    (void)(strchr("&<>\"", c) != NULL ? fputs(text, out) : fputc(c, out));
}

void dt_html_text(FILE *out, const char *text)
{
    char shown[DT_LINE_SIZE];
    for (const char *c = dt_text_escape(text, shown, sizeof shown); *c != '\0'; c++) {
        dt_html_put(out, *c);
    }
}

/* Size of the picture, and place of the plot in it. */

#define WIDTH 452
#define HEIGHT 300
#define LEFT 76
#define RIGHT 26
#define TOP 14
#define BOTTOM 48
#define MAX_POINTS 240 /* of a line; more are thinned */

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

static bool has_bars(const struct dt_part *p)
{
    return p->lines.n > 0 && p->lines.items[0].stroke == DT_BARS;
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
    if (has_bars(c->part)) {
        x->low -= 0.5;
        x->high += 0.5;
    }
    const bool wide = y->high > 20 * y->low && y->high < 1e12 * y->low;
    x->log = (axes & DT_LOG_X) != 0 && x->low > 0;
    y->log = y->low > 0 && ((axes & DT_LOG_Y) != 0 || ((axes & DT_LOG_Y_IF_WIDE) != 0 && wide));
    x->low = !x->log && x->low > 0 && x->low < 0.1 * x->high ? 0 : x->low;
    const bool zero = (axes & DT_FROM_ZERO) != 0 || has_bars(c->part);
    y->low = !y->log && y->low > 0 && (y->low < 0.5 * y->high || zero) ? 0 : y->low;
    widen(x);
    widen(y);
    const double air = y->log ? 0 : 0.03 * (y->high - y->low);
    y->high += air;
    y->low -= y->low != 0 ? air : 0;
    return true;
}

double dt_chart_step(double span)
{
    double step = pow(10, floor(log10(span / DT_CHART_TICKS)));
    for (int i = 0; i < 3 && span / step > DT_CHART_TICKS; i++) {
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

static void put_named_tick(const struct chart *c, size_t i)
{
    fprintf(c->out, "<text x=\"%.1f\" y=\"%d\">", at_x(c, (double)i), HEIGHT - BOTTOM + 18);
    dt_html_text(c->out, c->part->column_names[i]);
    fputs("</text>\n", c->out);
}

static void put_ticks(const struct chart *c, const struct axis *axis, bool vertical)
{
    const double factor = axis->high / axis->low > (vertical ? 200 : 1100) ? 10 : 2,
                 step = axis->log ? 0 : dt_chart_step(axis->high - axis->low);
    const double first = axis->log ? pow(factor, ceil(log(axis->low) / log(factor) - 1e-9))
                                   : ceil(axis->low / step - 1e-9) * step;
    for (size_t i = 0; !vertical && i < c->part->n_columns; i++) {
        put_named_tick(c, i);
    }
    for (int i = 0; i < 20 && (vertical || c->part->n_columns == 0); i++) {
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

/* Upright, from the least to the most. */
static void put_error(const struct chart *c, double x, const struct point *p)
{
    fprintf(c->out, "<path class=\"error\" d=\"M%.1f %.1fV%.1fm-4 0h8M%.1f %.1fh8\"/>\n", x,
            at_y(c, p->low), at_y(c, p->high), x - 4, at_y(c, p->low));
}

static void put_bars(const struct chart *c, size_t line, const struct point *points, size_t n)
{
    const size_t lines = c->part->lines.n;
    const double step = at_x(c, 1) - at_x(c, 0), all = 0.8 * step, width = all / (double)lines;
    for (size_t i = 0; i < n; i++) {
        const double y = at_y(c, points[i].y), x = at_x(c, points[i].x) - all / 2;
        fprintf(c->out,
                "<rect class=\"d%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                "height=\"%.1f\"/>\n",
                c->part->lines.items[line].color, x + (double)line * width, y, 0.9 * width,
                HEIGHT - BOTTOM - y);
        if (c->part->lines.items[line].low != NULL) {
            put_error(c, x + ((double)line + 0.45) * width, &points[i]);
        }
    }
}

static void put_path(const struct chart *c, const struct dt_line *line, const struct point *points,
                     size_t n)
{
    if (line->name[0] == '\0') {
        fputs("<path class=\"back\" d=\"", c->out);
    } else {
        fprintf(c->out, "<path class=\"s%d%s\" d=\"", line->color,
                line->stroke == DT_DASHES ? " dashes" : "");
    }
    for (size_t i = 0; i < n; i++) {
        fprintf(c->out, "%c%.1f %.1f", i == 0 ? 'M' : 'L', at_x(c, points[i].x),
                at_y(c, points[i].y));
    }
    fputs("\"/>\n", c->out);
}

/* One path, of lines without length whose round ends are the dots: a quarter of circles' bytes. */
static void put_dots(const struct chart *c, int color, const struct point *points, size_t n)
{
    fprintf(c->out, "<path class=\"s%d dots\" d=\"", color);
    for (size_t i = 0; i < n; i++) {
        fprintf(c->out, "M%.1f %.1fh0", at_x(c, points[i].x), at_y(c, points[i].y));
    }
    fputs("\"/>\n", c->out);
}

static void put_line(const struct chart *c, size_t k)
{
    const struct dt_line *line = &c->part->lines.items[k];
    struct point points[MAX_POINTS];
    const size_t n = thin(line, points);
    const bool dotted = line->stroke == DT_DOTS || line->stroke == DT_LINE_AND_DOTS,
               banded = line->low != NULL || line->n > MAX_POINTS;
    if (line->stroke == DT_BARS) {
        put_bars(c, k, points, n);
        return;
    }
    if (banded && !dotted) {
        put_band(c, line->color, points, n);
    }
    if (line->stroke != DT_DOTS) {
        put_path(c, line, points, n);
    }
    for (size_t i = 0; banded && (dotted || n == 1) && i < n; i++) {
        put_error(c, at_x(c, points[i].x), &points[i]);
    }
    if (dotted || n == 1) {
        put_dots(c, line->color, points, n);
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
            dt_html_text(c->out, c->part->marks.items[i].name);
            fputs("</title></path>\n", c->out);
            last = x;
        }
    }
}

static void put_plot(const struct chart *c)
{
    fprintf(c->out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    dt_html_text(c->out, c->part->title != NULL ? c->part->title : c->part->y);
    fputs("\">\n", c->out);
    put_ticks(c, &c->x, false);
    put_ticks(c, &c->y, true);
    put_marks(c);
    for (size_t k = 0; k < c->part->lines.n; k++) {
        put_line(c, k);
    }
    fprintf(c->out, "<text x=\"%d\" y=\"%d\">", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8);
    dt_html_text(c->out, c->part->x);
    fprintf(c->out, "</text><text transform=\"translate(15 %d) rotate(-90)\">",
            (TOP + HEIGHT - BOTTOM) / 2);
    dt_html_text(c->out, c->part->y);
    fputs("</text></svg>\n", c->out);
}

static void put_legend(const struct chart *c)
{
    const struct dt_part *p = c->part;
    fputs("<p class=\"legend\">", c->out);
    for (size_t k = 0; k < p->lines.n; k++) {
        if (p->lines.items[k].name[0] == '\0') {
            continue;
        }
        fprintf(c->out, "<span class=\"key k%d%s\">", p->lines.items[k].color,
                p->lines.items[k].stroke == DT_DASHES ? " dashes" : "");
        dt_html_text(c->out, p->lines.items[k].name);
        fputs("</span> ", c->out);
    }
    if (p->marks.n > 0) {
        fputs("<span class=\"key mark\">", c->out);
        dt_html_text(c->out, p->marks.items[0].name);
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
    dt_html_text(c->out, line->name);
    fputs("</caption><thead><tr><th>", c->out);
    dt_html_text(c->out, c->part->x);
    fputs("</th><th>", c->out);
    dt_html_text(c->out, c->part->y);
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

void dt_chart_put(FILE *out, const struct dt_part *p)
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
        if (p->lines.items[k].name[0] != '\0') {
            put_numbers(&c, &p->lines.items[k]);
        }
    }
    fputs("</div></details>\n", out);
}
