#include <math.h>

#include "lab/linear.h"
#include "report/page/chart.h"
#include "report/page/page.h"

#define N_ANGLES 72
#define PI 3.14159265358979323846

/* The loss is least + (w - best)' C (w - best), C = [x2 x1; x1 1]: means of x squared and of x. */
struct bowl {
    double m, n, x1, x2;
};

static struct bowl bowl_of(const struct dt_samples *points)
{
    double x1 = 0, x2 = 0, y1 = 0, xy = 0;
    for (size_t i = 0; i < points->n; i++) {
        const double x = (double)points->values[i], y = (double)points->targets[i],
                     part = 1.0 / (double)points->n;
        x1 += part * x;
        x2 += part * x * x;
        y1 += part * y;
        xy += part * x * y;
    }
    const double m = (xy - x1 * y1) / (x2 - x1 * x1);
    return (struct bowl){.m = m, .n = y1 - m * x1, .x1 = x1, .x2 = x2};
}

/* Where the loss is `above` its least: with u = (cos, sin), C = L L', w = best + sqrt(above) *
 * inverse(L') u. */
static void draw_contour(const struct dt_chart *chart, const struct bowl *b, double above)
{
    double m[N_ANGLES + 1], n[N_ANGLES + 1];
    const double l11 = sqrt(b->x2), l21 = b->x1 / l11, l22 = sqrt(1 - l21 * l21), r = sqrt(above);
    for (int i = 0; i <= N_ANGLES; i++) {
        const double angle = 2 * PI * i / N_ANGLES, second = r * sin(angle) / l22;
        n[i] = b->n + second;
        m[i] = b->m + (r * cos(angle) - l21 * second) / l11;
    }
    dt_chart_line(chart, "grid contour", N_ANGLES + 1, m, n);
}

static void draw_path(const struct dt_chart *chart, const struct dt_line *path, int rank)
{
    double m[DT_LINEAR_STEPS + 1], n[DT_LINEAR_STEPS + 1];
    for (int i = 0; i <= DT_LINEAR_STEPS; i++) {
        m[i] = (double)path[i].slope;
        n[i] = (double)path[i].intercept;
    }
    dt_chart_line(chart, rank == 0 ? "s0 wide-line" : "s1", DT_LINEAR_STEPS + 1, m, n);
    dt_chart_dot(chart, rank == 0 ? "d0" : "d1", m[0], n[0]);
    dt_chart_dot(chart, rank == 0 ? "d0" : "d1", m[DT_LINEAR_STEPS], n[DT_LINEAR_STEPS]);
}

static void draw_case(FILE *out, const struct dt_linear_case *c, const struct bowl *bowl)
{
    const struct dt_chart chart = {out,
                                   "contours of the loss, and the ways of both ranks",
                                   {"m", -0.25, 3.25, false},
                                   {"n", -0.25, 3.5, false}};
    dt_chart_begin(&chart);
    for (int i = 0; i < 7; i++) {
        draw_contour(&chart, bowl, 0.05 * pow(2.2, i));
    }
    dt_chart_dot(&chart, "best", bowl->m, bowl->n);
    for (int rank = 0; rank < 2; rank++) {
        draw_path(&chart, c->path[rank], rank);
    }
    dt_chart_end(&chart);
}

static void put_case(FILE *out, const struct dt_linear_case *c, const struct bowl *bowl)
{
    const struct dt_line *a = &c->path[0][DT_LINEAR_STEPS], *b = &c->path[1][DT_LINEAR_STEPS];
    const char *says =
        c->average && c->broadcast ? "Equal steps from equal weights: one training."
        : c->average   ? "Equal steps: the distance (1, 1) stays forever, and both end wrong."
        : c->broadcast ? "Steps of their own: they drift apart, each to the line of its points."
                       : "Two programs that know nothing of each other.";
    fprintf(out, "<div class=\"card\"><h2>average %s, broadcast %s</h2><p>%s</p>\n",
            c->average ? "on" : "off", c->broadcast ? "on" : "off", says);
    draw_case(out, c, bowl);
    fprintf(out, "<p>rank 0 ends at %.6f, %.6f; rank 1 at %.6f, %.6f; %.6f apart</p></div>\n",
            (double)a->slope, (double)a->intercept, (double)b->slope, (double)b->intercept,
            c->apart);
}

/* A dt_page_fn. */
static void put_body(FILE *out, const void *context)
{
    const struct dt_linear_lesson *l = context;
    const struct bowl bowl = bowl_of(&l->points);
    fprintf(out,
            "<h1>What averaging and broadcasting are for</h1>\n<p>Two ranks fit y = m x + n, each "
            "with 32 of 64 points, of which a "
            "step "
            "takes %d: %d steps of rate %g. <span class=\"rank0\">Rank 0</span> begins at (1, 1), "
            "<span class=\"rank1\">rank "
            "1</span> at "
            "(0, 0). Around the circle, where the loss over all points is least: its "
            "contours.</p>\n<div class=\"cards\">\n",
            l->batch, DT_LINEAR_STEPS, l->rate);
    for (int i = 0; i < DT_LINEAR_CASES; i++) {
        put_case(out, &l->cases[i], &bowl);
    }
    fprintf(out,
            "</div>\n<p>Batch %s: %d of %d steps raised the loss over all points.</p>\n<p "
            "class=\"verdict\">%s</p>\n",
            l->batch_name, l->n_uphill, DT_LINEAR_STEPS, l->golden.verdict);
}

enum dt_status dt_linear_page(const char *path, const struct dt_linear_lesson *lesson)
{
    return dt_page_write(
        path,
        &(struct dt_page){.title = "A line on two ranks", .body = put_body, .context = lesson});
}
