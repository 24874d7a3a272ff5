#include "report/page/chart.h"

#include <math.h>

#define MAX_TICKS 6

static double share(const struct dt_axis *axis, double value)
{
    return axis->log ? log(value / axis->low) / log(axis->high / axis->low)
                     : (value - axis->low) / (axis->high - axis->low);
}

double dt_chart_x(const struct dt_chart *chart, double value)
{
    return DT_CHART_LEFT +
           share(&chart->x, value) * (DT_CHART_WIDTH - DT_CHART_LEFT - DT_CHART_RIGHT);
}

double dt_chart_y(const struct dt_chart *chart, double value)
{
    return DT_CHART_HEIGHT - DT_CHART_BOTTOM -
           share(&chart->y, value) * (DT_CHART_HEIGHT - DT_CHART_TOP - DT_CHART_BOTTOM);
}

double dt_chart_tick(double span, int n_most)
{
    double step = pow(10, floor(log10(span / n_most)));
    for (int i = 0; i < 3 && span / step > n_most; i++) {
        step *= i == 1 ? 2.5 : 2;
    }
    return step;
}

static void tick_x(const struct dt_chart *c, double value)
{
    const double x = dt_chart_x(c, value);
    fprintf(c->out, "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\">%g</text>\n",
            x, DT_CHART_TOP, DT_CHART_HEIGHT - DT_CHART_BOTTOM, x,
            DT_CHART_HEIGHT - DT_CHART_BOTTOM + 18, value);
}

static void tick_y(const struct dt_chart *c, double value)
{
    const double y = dt_chart_y(c, value);
    fprintf(c->out,
            "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"end\" x=\"%d\" "
            "y=\"%.1f\">%g</text>\n",
            DT_CHART_LEFT, y, DT_CHART_WIDTH - DT_CHART_RIGHT, DT_CHART_LEFT - 6, y + 4, value);
}

static void draw_ticks(const struct dt_chart *c, const struct dt_axis *axis,
                       void (*tick)(const struct dt_chart *c, double value))
{
    const double factor = axis->high / axis->low > 200 ? 10 : 2,
                 step = axis->log ? 0 : dt_chart_tick(axis->high - axis->low, MAX_TICKS);
    const double first = axis->log ? pow(factor, ceil(log(axis->low) / log(factor) - 1e-9))
                                   : ceil(axis->low / step - 1e-9) * step;
    if (axis->log &&
        share(axis, first) > 0.07) { /* far above the end, which is a number too, of two digits */
        const double digit = pow(10, floor(log10(axis->low)) - 1);
        tick(c, ceil(axis->low / digit - 1e-9) * digit);
    }
    for (int i = 0; i < 20; i++) {
        const double value = axis->log ? first * pow(factor, i) : first + i * step;
        if (!(value <= axis->high * (1 + 1e-9) + (axis->log ? 0 : 1e-9 * step))) {
            break;
        }
        tick(c, fabs(value) < 1e-9 * step ? 0 : value);
    }
}

void dt_chart_begin(const struct dt_chart *c)
{
    fprintf(c->out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", DT_CHART_WIDTH,
            DT_CHART_HEIGHT, c->label);
    fprintf(
        c->out,
        "<clipPath id=\"plot\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/></clipPath>\n",
        DT_CHART_LEFT, DT_CHART_TOP, DT_CHART_WIDTH - DT_CHART_LEFT - DT_CHART_RIGHT,
        DT_CHART_HEIGHT - DT_CHART_TOP - DT_CHART_BOTTOM);
    draw_ticks(c, &c->x, tick_x);
    draw_ticks(c, &c->y, tick_y);
    fprintf(c->out, "<text x=\"%d\" y=\"%d\">%s</text>\n",
            (DT_CHART_LEFT + DT_CHART_WIDTH - DT_CHART_RIGHT) / 2, DT_CHART_HEIGHT - 8, c->x.name);
    fprintf(c->out, "<text transform=\"translate(15 %d) rotate(-90)\">%s</text>\n",
            (DT_CHART_TOP + DT_CHART_HEIGHT - DT_CHART_BOTTOM) / 2, c->y.name);
}

void dt_chart_end(const struct dt_chart *c)
{
    fputs("</svg>\n", c->out);
}

void dt_chart_line(const struct dt_chart *c, const char *class, int n, const double *x,
                   const double *y)
{
    fprintf(c->out, "<path class=\"%s\" clip-path=\"url(#plot)\" d=\"", class);
    for (int i = 0; i < n; i++) {
        fprintf(c->out, "%c%.1f %.1f", i == 0 ? 'M' : 'L', dt_chart_x(c, x[i]),
                dt_chart_y(c, y[i]));
    }
    fputs("\"/>\n", c->out);
}

void dt_chart_band(const struct dt_chart *c, const char *class, int n, const double *x,
                   const double *low, const double *high)
{
    fprintf(c->out, "<path class=\"%s\" clip-path=\"url(#plot)\" d=\"", class);
    for (int i = 0; i < 2 * n; i++) {
        const int at = i < n ? i : 2 * n - 1 - i;
        fprintf(c->out, "%c%.1f %.1f", i == 0 ? 'M' : 'L', dt_chart_x(c, x[at]),
                dt_chart_y(c, i < n ? low[at] : high[at]));
    }
    fputs("\"/>\n", c->out);
}

void dt_chart_mark(const struct dt_chart *c, const char *class, double x)
{
    fprintf(c->out, "<path class=\"%s\" d=\"M%.1f %dV%d\"/>\n", class, dt_chart_x(c, x),
            DT_CHART_TOP, DT_CHART_HEIGHT - DT_CHART_BOTTOM);
}

void dt_chart_dot(const struct dt_chart *c, const char *class, double x, double y)
{
    fprintf(c->out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>\n", class,
            dt_chart_x(c, x), dt_chart_y(c, y));
}

void dt_chart_note(const struct dt_chart *c, const char *class, double x, double y,
                   const char *text)
{
    const double beside = class[0] == 's' ? 8 : -8;
    fprintf(c->out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", class,
            dt_chart_x(c, x) + beside, dt_chart_y(c, y) + 4, text);
}
