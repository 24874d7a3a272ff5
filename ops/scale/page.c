#include "report/page/page.h"
#include <math.h>

#include "cli/text.h"
#include "ops/scale/scale.h"
#include "report/page/chart.h"
#include "report/page/layout.h"

/* The points of one kind in a table. */
struct points {
    int n;
    double x[DT_SCALE_MAX_ROWS], y[DT_N_SCALE_OF][DT_SCALE_MAX_ROWS];
};

static void find_points(const struct dt_scale *s, const struct dt_scale_table *table,
                        enum dt_scale_kind kind, struct points *p)
{
    p->n = 0;
    for (int i = 0; i < table->n; i++) {
        if (table->rows[i].kind == kind) {
            p->x[p->n] = table->rows[i].n_ranks;
            for (int of = 0; of < DT_N_SCALE_OF; of++) {
                p->y[of][p->n] =
                    100 * dt_scale_efficiency(s, &table->rows[i], (enum dt_scale_of)of);
            }
            p->n++;
        }
    }
}

static void draw(FILE *out, const struct dt_scale *s, enum dt_scale_kind kind)
{
    struct points predicted = {.n = 0}, measured = {.n = 0};
    find_points(s, &s->predicted, kind, &predicted);
    find_points(s, &s->measured, kind, &measured);
    const double most = predicted.n > 0 ? predicted.x[predicted.n - 1] : s->world->size;
    double top = 105;
    for (int i = 0; i < measured.n; i++) {
        top = fmax(top, 1.05 * measured.y[DT_SCALE_LEAST][i]);
    }
    const double ends[] = {1, most > 2 ? most : 2}, ideal[] = {100, 100};
    const struct dt_chart chart = {
        out, "efficiency by ranks", {"ranks", 1, ends[1], true}, {"efficiency, %", 0, top, false}};
    dt_chart_begin(&chart);
    dt_chart_band(&chart, "band", predicted.n, predicted.x, predicted.y[DT_SCALE_MOST],
                  predicted.y[DT_SCALE_LEAST]);
    dt_chart_line(&chart, "ideal", 2, ends, ideal);
    dt_chart_line(&chart, "s0", predicted.n, predicted.x, predicted.y[DT_SCALE_MEDIAN]);
    for (int i = 0; i < measured.n; i++) {
        const double x[] = {measured.x[i], measured.x[i]},
                     y[] = {measured.y[DT_SCALE_MOST][i], measured.y[DT_SCALE_LEAST][i]};
        dt_chart_line(&chart, "s1", 2, x, y);
        dt_chart_dot(&chart, "d1", x[0], measured.y[DT_SCALE_MEDIAN][i]);
    }
    dt_chart_end(&chart);
}

static void put_row(FILE *out, const struct dt_scale *s, const struct dt_scale_row *row,
                    bool predicted)
{
    char batch[32], rate[32];
    dt_table_row(out, "%s|%d|%s|%.3f|%.3f|%.3f|%s|%.4g|%.1f %%|%s",
                 predicted ? "predicted" : "measured", row->n_ranks,
                 dt_count_text((double)row->batch, batch, sizeof batch),
                 1e3 * row->step_s[DT_SCALE_MEDIAN], 1e3 * row->step_s[DT_SCALE_LEAST],
                 1e3 * row->step_s[DT_SCALE_MOST],
                 dt_count_text(dt_scale_rate(row, DT_SCALE_MEDIAN), rate, sizeof rate),
                 dt_scale_epoch_s(s, row), 100 * dt_scale_efficiency(s, row, DT_SCALE_MEDIAN),
                 row->fastest != NULL ? row->fastest : "");
}

static void put_table(FILE *out, const struct dt_scale *s, enum dt_scale_kind kind)
{
    const struct dt_scale_table *const tables[] = {&s->measured, &s->predicted};
    char columns[160];
    snprintf(columns, sizeof columns,
             "|ranks|batch|ms a step|min|max|%s/s|epoch (s)|efficiency|"
             "fastest algorithm",
             dt_unit_name(&s->config));
    dt_table_begin(out, columns);
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < tables[t]->n; i++) {
            if (tables[t]->rows[i].kind == kind) {
                put_row(out, s, &tables[t]->rows[i], t == 1);
            }
        }
    }
    dt_table_end(out);
}

/* A dt_page_fn. */
static void put_body(FILE *out, const void *context)
{
    const struct dt_scale *s = context;
    char text[300];
    dt_scale_describe(s, text, sizeof text);
    fprintf(out, "<h1>Scaling</h1>\n<p>");
    dt_page_text(out, text);
    fprintf(out, "; median, min and max of %d rounds.</p>\n", DT_SCALE_ROUNDS);
    if (s->predicts) {
        dt_scale_describe_links(s, text, sizeof text);
        fprintf(out, "<p class=\"verdict\">");
        dt_page_text(out, s->advice);
        fprintf(out, "</p>\n<p>Prediction: ");
        dt_page_text(out, text);
        fprintf(out, ".</p>\n");
    }
    fprintf(out, "<div class=\"cards\">\n");
    for (int kind = 0; kind < DT_N_SHOWN_KINDS; kind++) {
        dt_card_begin(
            out, kind == DT_SCALE_WEAK ? "Weak scaling" : "Strong scaling",
            "%s. Dots: measured, from min to max. Line: predicted from 1 and 2 ranks, with "
            "its band. Dashed: ideal.",
            dt_scale_meanings[kind]);
        draw(out, s, (enum dt_scale_kind)kind);
        dt_card_end(out);
    }
    fprintf(out, "</div>\n");
    for (int kind = 0; kind < DT_N_SHOWN_KINDS; kind++) {
        fprintf(out, "<h2 class=\"part\">%s: %s</h2>\n", dt_scale_names[kind],
                dt_scale_meanings[kind]);
        put_table(out, s, (enum dt_scale_kind)kind);
    }
}

enum dt_status dt_scale_write_page(const char *path, const struct dt_scale *s)
{
    const struct dt_page page = {
        .title = "Scaling", .class = "scaling", .body = put_body, .context = s};
    return dt_page_write(path, &page);
}
