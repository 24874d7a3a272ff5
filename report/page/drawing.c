#include "report/page/drawing.h"

#include <math.h>
#include <string.h>

#include "report/page/chart.h"
#include "report/page/page.h"

#define WIDTH 440
#define HEIGHT 120
#define AXIS 22 /* height of an axis */
#define MAX_TICKS 8
#define CHARACTER 7.8  /* width of one */
#define LEAST_WIDTH .4 /* of a box */
#define BAR 30         /* height of a bar's row */
#define BAR_TEXT 80

/* ---- lanes */

static double x_of(const struct dt_lanes *l, double at)
{
    return l->left + (l->width - l->left - l->right) * at / l->end;
}

static double y_of(const struct dt_lanes *l, int row)
{
    return (l->unit != NULL ? AXIS : 0) + row * l->row;
}

static void draw_axis(const struct dt_lanes *l)
{
    const double tick = dt_chart_tick(l->end, MAX_TICKS);
    for (int i = 0; i <= MAX_TICKS && i * tick <= l->end; i++) {
        const double x = x_of(l, i * tick);
        fprintf(l->out, "<path class=\"grid\" d=\"M%.1f 18V%.1f\"/>", x, y_of(l, l->n_rows));
        fprintf(l->out, "<text x=\"%.1f\" y=\"12\"%s>%g", x, i == 0 ? " class=\"start\"" : "",
                i * tick);
        fprintf(l->out, "%s%s</text>\n", i == 0 ? " " : "", i == 0 ? l->unit : "");
    }
}

void dt_lanes_begin(const struct dt_lanes *l)
{
    fprintf(l->out, "<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"%s\"", l->width,
            y_of(l, l->n_rows), l->label);
    if (l->class != NULL) {
        fprintf(l->out, " class=\"%s\"", l->class);
    }
    fputs(">\n", l->out);
    if (l->unit != NULL) {
        draw_axis(l);
    }
}

static void put_text(const struct dt_lanes *l, const char *class, double x, int row,
                     const char *text)
{
    fprintf(l->out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x,
            y_of(l, row) + l->row / 2 + 4);
    dt_page_text(l->out, text);
    fputs("</text>\n", l->out);
}

void dt_lanes_name(const struct dt_lanes *l, int row, const char *name)
{
    put_text(l, "start", 0, row, name);
}

void dt_lanes_note(const struct dt_lanes *l, int row, double at, const char *text)
{
    put_text(l, "start dark", x_of(l, at) + 6, row, text);
}

void dt_lanes_box(const struct dt_lanes *l, int row, const struct dt_box *box)
{
    const double x = x_of(l, box->begin), wide = x_of(l, box->end) - x;
    const double gap = wide > 4 ? 1 : 0; /* between neighbours */
    fprintf(l->out,
            "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%g\" rx=\"2\"",
            box->class, x, y_of(l, row) + 1, fmax(wide - gap, LEAST_WIDTH), l->row - 2);
    if (box->hint != NULL) {
        fputs("><title>", l->out);
        dt_page_text(l->out, box->hint);
        fputs("</title></rect>\n", l->out);
    } else {
        fputs("/>\n", l->out);
    }
    if (box->text != NULL && wide > CHARACTER * (double)strlen(box->text)) {
        put_text(l, "on", x + wide / 2, row, box->text);
    }
}

void dt_lanes_end(const struct dt_lanes *l)
{
    fputs("</svg>\n", l->out);
}

/* ---- bars */

void dt_bars_draw(FILE *out, const char *label, double left, double most, int n,
                  const struct dt_bar *bars)
{
    const struct dt_lanes lanes = {.out = out,
                                   .label = label,
                                   .n_rows = n,
                                   .width = WIDTH,
                                   .left = left,
                                   .right = BAR_TEXT,
                                   .row = BAR,
                                   .end = most};
    dt_lanes_begin(&lanes);
    for (int i = 0; i < n; i++) {
        dt_lanes_name(&lanes, i, bars[i].name);
        dt_lanes_box(&lanes, i, &(struct dt_box){.class = bars[i].class, .end = bars[i].value});
        dt_lanes_note(&lanes, i, bars[i].value, bars[i].text);
    }
    dt_lanes_end(&lanes);
}

/* ---- columns */

void dt_histogram_draw(FILE *out, const char *label, int n, const uint64_t *counts)
{
    double most = 1;
    for (int i = 0; i < n; i++) {
        most = (double)counts[i] > most ? (double)counts[i] : most;
    }
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", WIDTH, HEIGHT + 24,
            label);
    for (int i = 0; i < n; i++) {
        const double width = (double)WIDTH / n, tall = (double)counts[i] / most * (HEIGHT - 20);
        fprintf(
            out,
            "<rect class=\"d0\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\"/>",
            i * width + 2, HEIGHT - tall, width - 4, tall);
        fprintf(out, "<text x=\"%.1f\" y=\"%d\">%d</text>\n", (i + 0.5) * width, HEIGHT + 18, i);
    }
    fputs("</svg>\n", out);
}
