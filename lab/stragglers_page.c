#include "cli/sinks/staleness.h"
#include "lab/stragglers.h"
#include "report/page/chart.h"
#include "report/page/drawing.h"
#include "report/page/page.h"

/* A lane a worker: what it computes, and where it waits; time goes to the right. */
static void draw_lanes(FILE *out, const struct dt_stragglers_way *way, double longest)
{
    const struct dt_lanes lanes = {.out = out,
                                   .label = "who computes and who waits",
                                   .unit = "s",
                                   .n_rows = DT_LAB_RANKS,
                                   .width = 440,
                                   .left = 56,
                                   .row = 26,
                                   .end = longest};
    const int n = way->outcome.n_workers;
    char name[16];
    dt_lanes_begin(&lanes);
    for (int rank = 0; rank < DT_LAB_RANKS; rank++) {
        const char *work = rank == DT_STRAGGLERS_SLOW ? "d1" : "d0";
        snprintf(name, sizeof name, "rank %d", rank);
        dt_lanes_name(&lanes, rank, name);
        for (int i = 0; rank < n && i < DT_STRAGGLERS_N_STEPS; i++) {
            const struct dt_lab_span *s = &way->outcome.spans[rank][i];
            dt_lanes_box(&lanes, rank, &(struct dt_box){work, s->begin, s->ready, NULL, NULL});
            dt_lanes_box(&lanes, rank, &(struct dt_box){"rest", s->ready, s->end, NULL, NULL});
        }
    }
    if (n < DT_LAB_RANKS) {
        dt_lanes_note(&lanes, n, 0, "has the weights");
    }
    dt_lanes_end(&lanes);
}

static void put_way(FILE *out, const struct dt_stragglers_way *way, double longest)
{
    fprintf(out, "<div class=\"card\"><h2>%s</h2><p>%s; ms a step:", way->name, way->meaning);
    for (int rank = 0; rank < way->outcome.n_workers; rank++) {
        fprintf(out, "%s %.1f", rank > 0 ? "," : "", way->step_ms[rank]);
    }
    fputs("</p>\n", out);
    draw_lanes(out, way, longest);
    fputs("</div>\n", out);
}

static void put_jitter(FILE *out, const struct dt_stragglers_lesson *l)
{
    const struct dt_chart chart = {out,
                                   "the latest of n ranks",
                                   {"ranks that jitter", 1, 80, true},
                                   {"ms a step", 0, 60, false}};
    double n[DT_STRAGGLERS_N_SIZES], formula[DT_STRAGGLERS_N_SIZES];
    fprintf(out,
            "<div class=\"card\"><h2>Now this one, now that one</h2><p>Ranks late by 0 to %d ms: "
            "blue what the latest of n is "
            "by formula, orange what steps of the ranks here took.</p>\n",
            DT_STRAGGLERS_JITTER_MS);
    dt_chart_begin(&chart);
    for (int i = 0; i < DT_STRAGGLERS_N_SIZES; i++) {
        n[i] = l->jitter[i].n;
        formula[i] = l->jitter[i].formula;
        dt_chart_dot(&chart, "d0", n[i], formula[i]);
        if (l->jitter[i].measured > 0 && l->jitter[i].measured < chart.y.high) {
            dt_chart_dot(&chart, "d1", n[i], l->jitter[i].measured);
        }
    }
    dt_chart_line(&chart, "s0", DT_STRAGGLERS_N_SIZES, n, formula);
    dt_chart_end(&chart);
    fputs("</div>\n", out);
}

static void put_table(FILE *out, const struct dt_stragglers_lesson *l)
{
    fprintf(out,
            "<div class=\"wide\"><table><caption>The latest of ranks that jitter, means in "
            "ms</caption>\n<thead><tr><th>ranks</th>"
            "<th>by formula</th><th>of 10,000 drawn steps</th><th>of %d drawn steps</th><th>these "
            "steps took</th></tr></thead>\n"
            "<tbody>",
            DT_STRAGGLERS_N_JITTERED);
    for (int i = 0; i < DT_STRAGGLERS_N_SIZES; i++) {
        const struct dt_jitter *j = &l->jitter[i];
        fprintf(out, "<tr><td>%d</td><td>%.1f</td><td>%.1f</td>", j->n, j->formula, j->drawn);
        if (j->measured > 0) {
            fprintf(out, "<td>%.1f</td><td>%.1f</td></tr>\n", j->drawn_taken, j->measured);
        } else {
            fputs("<td></td><td></td></tr>\n", out);
        }
    }
    fputs("</tbody></table></div>\n", out);
}

/* A dt_page_fn. */
static void put_body(FILE *out, const void *context)
{
    const struct dt_stragglers_lesson *l = context;
    const struct dt_staleness *staleness = &l->ways[DT_STRAGGLERS_ASYNC].outcome.staleness;
    fprintf(out,
            "<h1>Who waits for a slow rank?</h1>\n<p>%d steps, each of which takes a rank %d ms "
            "(blue), and rank %d %d ms "
            "(orange); grey is waiting.</p>\n<div class=\"cards\">\n",
            DT_STRAGGLERS_N_STEPS, DT_STRAGGLERS_WORK_MS, DT_STRAGGLERS_SLOW,
            DT_STRAGGLERS_SLOW_MS);
    for (int i = 0; i < DT_STRAGGLERS_WAYS; i++) {
        put_way(out, &l->ways[i], l->longest_s);
    }
    fputs("<div class=\"card\"><h2>Stale gradients</h2><p>Async: how many steps others had taken "
          "since the worker read the "
          "weights. The slow rank's are the old ones.</p>\n",
          out);
    dt_histogram_draw(out, "staleness in steps", dt_staleness_n_bins(staleness), staleness->counts);
    fputs("</div>\n", out);
    put_jitter(out, l);
    fputs("</div>\n", out);
    put_table(out, l);
    fprintf(out, "<p class=\"verdict\">%s</p>\n", l->golden.verdict);
}

enum dt_status dt_stragglers_page(const char *path, const struct dt_stragglers_lesson *lesson)
{
    return dt_page_write(
        path, &(struct dt_page){.title = "Stragglers", .body = put_body, .context = lesson});
}
