#include "report/page/drawing.h"

#include <math.h>
#include <stdlib.h>

#include "report/page/page.h"

#define SIDE 440  /* of the map */
#define MARGIN 44 /* for names */
#define MOST_NAMES 16
#define MOST_HINTS 40 /* rows: more of them have no text for a pointer */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double at(const struct dt_heat_map *m, int i, int k)
{
    return m->values[i * m->n + k];
}

struct range {
    double least, median, most;
};

/* The range of row i, or with -1 of all rows. */
static struct range range_of(const struct dt_heat_map *m, int i)
{
    struct range range = {NAN, NAN, NAN};
    double *sorted = calloc((size_t)m->n * (size_t)m->n, sizeof *sorted);
    size_t n = 0;
    if (sorted == NULL) {
        (void)dt_error(DT_NO_MEMORY, "no memory for a map of %d by %d", m->n, m->n);
    }
    for (int row = i < 0 ? 0 : i; sorted != NULL && row < (i < 0 ? m->n : i + 1); row++) {
        for (int k = 0; k < m->n; k++) {
            if (k != row) {
                sorted[n++] = at(m, row, k);
            }
        }
    }
    if (n > 0) {
        qsort(sorted, n, sizeof *sorted, by_value);
        range = (struct range){sorted[0], sorted[n / 2], sorted[n - 1]};
    }
    free(sorted);
    return range;
}

static bool is_odd(const struct dt_heat_map *m, const struct range *range, double value)
{
    return m->less ? value > m->odd * range->median : value < m->odd * range->median;
}

/* The better, the stronger. */
static double shade(const struct dt_heat_map *m, const struct range *range, double value)
{
    const double span = range->most - range->least;
    const double share = span > 0 ? (value - range->least) / span : 1;
    return 0.12 + 0.88 * (m->less && span > 0 ? 1 - share : share);
}

static void put_name(FILE *out, const struct dt_heat_map *m, int i)
{
    dt_page_text(out, m->name(m->context, i));
}

static void draw_cell(FILE *out, const struct dt_heat_map *m, const struct range *range, int i,
                      int k)
{
    const double side = (double)SIDE / m->n, value = at(m, i, k);
    fprintf(out,
            "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
            "fill-opacity=\"%.2f\"",
            is_odd(m, range, value) ? "cell odd" : "cell", MARGIN + k * side, MARGIN + i * side,
            0.94 * side, 0.94 * side, shade(m, range, value));
    if (m->n > MOST_HINTS) {
        fputs("/>", out);
        return;
    }
    fputs("><title>", out);
    put_name(out, m, i);
    fputs(" and ", out);
    put_name(out, m, k);
    fprintf(out, ": %.3g %s</title></rect>", value, m->unit);
}

static void draw_names(FILE *out, const struct dt_heat_map *m)
{
    const double side = (double)SIDE / m->n;
    const int step = (m->n + MOST_NAMES - 1) / MOST_NAMES;
    for (int i = 0; i < m->n; i += step) {
        fprintf(out,
                "<text class=\"end\" x=\"%d\" y=\"%.1f\">%d</text><text x=\"%.1f\" "
                "y=\"%d\">%d</text>\n",
                MARGIN - 8, MARGIN + (i + 0.5) * side + 4, i, MARGIN + (i + 0.5) * side,
                MARGIN - 10, i);
    }
}

static void draw_map(FILE *out, const struct dt_heat_map *m, const struct range *range)
{
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", SIDE + MARGIN + 8,
            SIDE + MARGIN + 8, m->title);
    draw_names(out, m);
    for (int i = 0; i < m->n; i++) {
        for (int k = 0; k < m->n; k++) {
            if (k != i) {
                draw_cell(out, m, range, i, k);
            }
        }
        fputc('\n', out);
    }
    fputs("</svg>\n", out);
}

/* ---- the numbers */

static void put_pairs(FILE *out, const struct dt_heat_map *m)
{
    fprintf(out, "<table><caption>%s, %s</caption><thead><tr><th>", m->title, m->unit);
    for (int k = 0; k < m->n; k++) {
        fprintf(out, "<th>%d", k);
    }
    fputs("</thead><tbody>\n", out);
    for (int i = 0; i < m->n; i++) {
        fprintf(out, "<tr><td>%d ", i);
        put_name(out, m, i);
        for (int k = 0; k < m->n; k++) {
            fprintf(out, k == i ? "<td>" : "<td>%.3g", at(m, i, k));
        }
        fputc('\n', out);
    }
    fputs("</tbody></table>\n", out);
}

static void put_rows(FILE *out, const struct dt_heat_map *m)
{
    fprintf(out,
            "<table><caption>%s, "
            "%s</caption><thead><tr><th><th>least<th>median<th>most</thead><tbody>\n",
            m->title, m->unit);
    for (int i = 0; i < m->n; i++) {
        const struct range range = range_of(m, i);
        fprintf(out, "<tr><td>%d ", i);
        put_name(out, m, i);
        fprintf(out, "<td>%.3g<td>%.3g<td>%.3g\n", range.least, range.median, range.most);
    }
    fputs("</tbody></table>\n", out);
}

void dt_heat_map_draw(FILE *out, const struct dt_heat_map *m)
{
    const struct range range = range_of(m, -1);
    fprintf(out,
            "<figure class=\"card heat\"><h3>%s</h3>\n<p>%.3g to %.3g %s, median %.3g; the "
            "stronger the colour, the better.",
            m->title, range.least, range.most, m->unit, range.median);
    fprintf(out, " Pairs %s %g times the median are framed.</p>\n", m->less ? "above" : "below",
            m->odd);
    draw_map(out, m, &range);
    fputs("<details><summary>Numbers</summary><div class=\"wide\">\n", out);
    if (m->n <= MOST_NAMES) {
        put_pairs(out, m);
    } else {
        put_rows(out, m);
    }
    fputs("</div></details></figure>\n", out);
}
