#include "report/page/curve.h"

#include <math.h>

#include "report/page/chart.h"
#include "report/page/page.h"

/* A part of the axis: a point, or several where there are more than DT_CURVE_MAX_POINTS. */
struct part {
    double first, last, x; /* of the axis: ends, and mean */
    double mean, low, high;
    double epoch; /* of the last point */
    size_t n;
};

/* ---- thinning */

static double x_of(const struct dt_series *s, size_t i)
{
    return s->x[i * s->stride];
}

static double y_of(const struct dt_series *s, size_t i)
{
    return s->y[i * s->stride];
}

static void add_point(struct part *part, double x, double y)
{
    const double share = 1.0 / (double)++part->n;
    part->first = part->n == 1 ? x : part->first;
    part->last = x;
    part->low = part->n == 1 ? y : fmin(part->low, y);
    part->high = part->n == 1 ? y : fmax(part->high, y);
    part->x += (x - part->x) * share;
    part->mean += (y - part->mean) * share;
}

static size_t thin(const struct dt_series *s, struct part parts[DT_CURVE_MAX_POINTS])
{
    size_t n = 0, part_of_last = 0;
    const bool exact = s->n <= DT_CURVE_MAX_POINTS;
    const double first = s->n > 0 ? x_of(s, 0) : 0, span = s->n > 0 ? x_of(s, s->n - 1) - first : 0;
    for (size_t i = 0; i < s->n; i++) {
        const double at = span > 0 ? (x_of(s, i) - first) / span * DT_CURVE_MAX_POINTS : 0;
        const size_t part = exact                          ? i
                            : at < DT_CURVE_MAX_POINTS - 1 ? (size_t)at
                                                           : DT_CURVE_MAX_POINTS - 1;
        if (!isfinite(y_of(s, i))) {
            continue;
        }
        if (n == 0 || part != part_of_last) {
            parts[n++] = (struct part){.n = 0};
        }
        part_of_last = part;
        add_point(&parts[n - 1], x_of(s, i), y_of(s, i));
        parts[n - 1].epoch = s->epochs != NULL ? s->epochs[i * s->stride] : (double)NAN;
    }
    return n;
}

/* ---- the axes */

/* A figure while it is drawn, its points thinned. */
struct figure {
    FILE *out;
    const struct dt_curves *curves;
    struct dt_chart chart;
    struct part parts[DT_CURVE_MAX_SERIES][DT_CURVE_MAX_POINTS];
    size_t n_parts[DT_CURVE_MAX_SERIES];
};

/* A span of nothing is no axis. */
static void widen(struct dt_axis *axis)
{
    const double size = fmax(fabs(axis->low), fabs(axis->high)), air = size > 1e-30 ? size / 4 : 1;
    if (axis->high - axis->low < 1e-6 * size || size <= 1e-30) {
        axis->low -= axis->log ? 0 : air;
        axis->high += air;
    }
}

static void find_axes(struct figure *f)
{
    struct dt_axis *x = &f->chart.x, *y = &f->chart.y;
    x->low = y->low = INFINITY;
    x->high = y->high = -INFINITY;
    for (int s = 0; s < f->curves->n_series; s++) {
        for (size_t i = 0; i < f->n_parts[s]; i++) {
            const struct part *p = &f->parts[s][i];
            x->low = fmin(x->low, p->first);
            x->high = fmax(x->high, p->last);
            y->low = fmin(y->low, p->low);
            y->high = fmax(y->high, p->high);
        }
    }
    x->low = x->low < 0.1 * x->high ? fmin(x->low, 0) : x->low;
    y->log = f->curves->log && y->low > 0 && y->high > 20 * y->low && y->high < 1e12 * y->low;
    y->low = !y->log && y->low > 0 && y->low < 0.5 * y->high ? 0 : y->low;
    widen(x);
    widen(y);
    const double air = y->log ? 0 : 0.03 * (y->high - y->low);
    y->high += air;
    y->low -= y->low != 0 ? air : 0;
}

/* ---- the picture */

static void draw_band(const struct figure *f, int s)
{
    const struct part *p = f->parts[s];
    const size_t n = f->n_parts[s];
    fprintf(f->out, "<path class=\"band d%d\" clip-path=\"url(#plot)\" d=\"",
            f->curves->series[s].color);
    for (size_t i = 0; i < n; i++) {
        fprintf(f->out, "%c%.1f %.1f", i == 0 ? 'M' : 'L', dt_chart_x(&f->chart, p[i].x),
                dt_chart_y(&f->chart, p[i].high));
    }
    for (size_t i = n; i-- > 0;) {
        fprintf(f->out, "L%.1f %.1f", dt_chart_x(&f->chart, p[i].x),
                dt_chart_y(&f->chart, p[i].low));
    }
    fputs("z\"/>\n", f->out);
}

static void draw_series(const struct figure *f, int s)
{
    double x[DT_CURVE_MAX_POINTS], y[DT_CURVE_MAX_POINTS];
    const struct dt_series *series = &f->curves->series[s];
    char line[8], dot[8];
    for (size_t i = 0; i < f->n_parts[s]; i++) {
        x[i] = f->parts[s][i].x;
        y[i] = f->parts[s][i].mean;
    }
    if (series->n > DT_CURVE_MAX_POINTS) {
        draw_band(f, s);
    }
    snprintf(line, sizeof line, "s%d", series->color);
    snprintf(dot, sizeof dot, "d%d", series->color);
    dt_chart_line(&f->chart, line, (int)f->n_parts[s], x, y);
    for (size_t i = 0;
         i < f->n_parts[s] && (series->dots ? f->n_parts[s] <= 60 : f->n_parts[s] == 1); i++) {
        dt_chart_dot(&f->chart, dot, x[i], y[i]);
    }
}

/* Those that a reader can tell apart. */
static void draw_marks(const struct figure *f)
{
    double last = 0;
    for (size_t i = 0; i < f->curves->n_marks; i++) {
        const double x = dt_chart_x(&f->chart, f->curves->marks[i]);
        if (x >= last + 1 && x <= DT_CHART_WIDTH) {
            dt_chart_mark(&f->chart, "restart", f->curves->marks[i]);
            last = x;
        }
    }
}

static void draw(const struct figure *f)
{
    dt_chart_begin(&f->chart);
    draw_marks(f);
    for (int s = 0; s < f->curves->n_series; s++) {
        draw_series(f, s);
    }
    dt_chart_end(&f->chart);
}

static void put_legend(const struct figure *f)
{
    fputs("<p class=\"legend\">", f->out);
    for (int s = 0; s < f->curves->n_series; s++) {
        if (f->n_parts[s] > 0) {
            fprintf(f->out, "<span class=\"key k%d\">", f->curves->series[s].color);
            dt_page_text(f->out, f->curves->series[s].name);
            fputs("</span> ", f->out);
        }
    }
    if (f->curves->n_marks > 0) {
        fputs("<span class=\"key kr\">started again</span>", f->out);
    }
    fputs("</p>\n", f->out);
}

/* ---- the table behind it */

static void put_part(FILE *out, const struct part *p, bool thinned)
{
    if (!thinned) {
        fprintf(out,
                isfinite(p->epoch) ? "<tr><td>%.15g<td>%.6g<td>%.15g\n" : "<tr><td>%.15g<td>%.6g\n",
                p->last, p->mean, p->epoch);
    } else {
        fprintf(out, "<tr><td>%.15g<td>%.6g<td>%.6g<td>%.6g<td>%zu\n", p->last, p->mean, p->low,
                p->high, p->n);
    }
}

static void put_series_table(const struct figure *f, int s)
{
    const struct dt_series *series = &f->curves->series[s];
    const bool thinned = series->n > DT_CURVE_MAX_POINTS;
    fputs("<table><caption>", f->out);
    dt_page_text(f->out, series->name);
    fprintf(f->out, "</caption><thead><tr><th>%s%s", thinned ? "up to " : "", f->curves->x_name);
    fprintf(f->out, "<th>%s</thead><tbody>\n",
            thinned                  ? "mean<th>least<th>most<th>records"
            : series->epochs != NULL ? "value<th>epoch"
                                     : "value");
    for (size_t i = 0; i < f->n_parts[s]; i++) {
        put_part(f->out, &f->parts[s][i], thinned);
    }
    fputs("</tbody></table>\n", f->out);
}

static void put_tables(const struct figure *f)
{
    fputs("<details><summary>Numbers</summary><div class=\"wide\">\n", f->out);
    for (int s = 0; s < f->curves->n_series; s++) {
        if (f->n_parts[s] > 0) {
            put_series_table(f, s);
        }
    }
    fputs("</div></details>\n", f->out);
}

void dt_curves_draw(FILE *out, const struct dt_curves *curves)
{
    static struct figure figure; /* large for a stack; pages are written one after another */
    struct figure *f = &figure;
    size_t n = 0;
    f->out = out;
    f->curves = curves;
    f->chart = (struct dt_chart){
        .out = out, .label = curves->title, .x = {.name = curves->x_name}, .y = {.name = ""}};
    for (int s = 0; s < curves->n_series; s++) {
        n += f->n_parts[s] = thin(&curves->series[s], f->parts[s]);
    }
    if (n == 0) {
        return;
    }
    find_axes(f);
    fprintf(out,
            "<figure class=\"card curves\" data-low=\"%.15g\" data-high=\"%.15g\"><h3>%s</h3>\n",
            f->chart.x.low, f->chart.x.high, curves->title);
    put_legend(f);
    draw(f);
    fputs("<p class=\"hover\" aria-hidden=\"true\">&nbsp;</p>\n", out);
    put_tables(f);
    fputs("</figure>\n", out);
}
