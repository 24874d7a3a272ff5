#include "cli/sinks/staleness.h"
#include "lab/stragglers.h"
#include "report/page/chart.h"
#include "report/page/histogram.h"
#include "report/page/page.h"

#define WIDTH 440
#define LEFT 56
#define ROW 26
#define BAR 18

static void draw_bar(FILE *out, const char *class, int rank, double begin, double end,
                     double longest)
{
    const double scale = (WIDTH - LEFT - 2) / longest;
    fprintf(out, "<rect class=\"%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>", class,
            LEFT + begin * scale, rank * ROW + 4, (end - begin) * scale, BAR);
}

/* A lane a worker: what it computes, and where it waits; time goes to the right, in seconds. */
static void draw_lanes(FILE *out, const struct dt_stragglers_way *way, double longest)
{
    const int n = way->outcome.n_workers;
    fprintf(out,
            "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"who computes and who waits\">\n",
            WIDTH, DT_LAB_RANKS * ROW + 20);
    for (int rank = 0; rank < DT_LAB_RANKS; rank++) {
        fprintf(out, "<text class=\"start\" x=\"0\" y=\"%d\">rank %d</text>\n", rank * ROW + 18,
                rank);
        for (int i = 0; rank < n && i < DT_STRAGGLERS_N_STEPS; i++) {
            const struct dt_lab_span *span = &way->outcome.spans[rank][i];
            draw_bar(out, rank == DT_STRAGGLERS_SLOW ? "work d1" : "work d0", rank, span->begin,
                     span->ready, longest);
            draw_bar(out, "wait", rank, span->ready, span->end, longest);
        }
    }
    if (n < DT_LAB_RANKS) {
        fprintf(out, "<text class=\"start\" x=\"%d\" y=\"%d\">has the weights</text>\n", LEFT,
                n * ROW + 18);
    }
    fprintf(out,
            "<text class=\"start\" x=\"%d\" y=\"%d\">0</text><text class=\"end\" x=\"%d\" "
            "y=\"%d\">%.2f s</text></svg>\n",
            LEFT, DT_LAB_RANKS * ROW + 16, WIDTH, DT_LAB_RANKS * ROW + 16, longest);
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
