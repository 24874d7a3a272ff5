#include "base/bytes.h"
#include "cli/sinks/staleness.h"
#include "lab/server.h"
#include "report/page/histogram.h"
#include "report/page/page.h"

#define WIDTH 440
#define LEFT 60
#define ROW 30

/* What each rank sends: a bar a rank; the longest of all ways is as wide as the picture. */
static void draw_ranks(FILE *out, const struct dt_server_way *way, double most)
{
    char bytes[DT_BYTES_TEXT_SIZE];
    fprintf(out,
            "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"what each rank sends a step\">\n",
            WIDTH, DT_LAB_RANKS * ROW);
    for (int rank = 0; rank < DT_LAB_RANKS; rank++) {
        const double length = way->outcome.sent[rank] / most * (WIDTH - LEFT - 80);
        fprintf(out, "<text class=\"start\" x=\"0\" y=\"%d\">rank %d</text>", rank * ROW + 20,
                rank);
        fprintf(out, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"20\" rx=\"3\"/>",
                way->outcome.sent[rank] > 0.9 * most ? "d1" : "d0", LEFT, rank * ROW + 5, length);
        fprintf(out, "<text class=\"start dark\" x=\"%.1f\" y=\"%d\">%s</text>\n",
                LEFT + length + 6, rank * ROW + 20, dt_bytes_text(way->outcome.sent[rank], bytes));
    }
    fputs("</svg>\n", out);
}

static void put_table(FILE *out, const struct dt_server_lesson *l)
{
    char bytes[DT_BYTES_TEXT_SIZE];
    fputs("<div class=\"wide\"><table><thead><tr><th>way</th><th>workers</th><th>busiest rank "
          "sends</th><th>bytes a step</th>"
          "<th>accuracy</th></tr></thead>\n<tbody>",
          out);
    for (int i = 0; i < DT_SERVER_WAYS; i++) {
        const struct dt_server_way *way = &l->ways[i];
        fprintf(out, "<tr><td>%s</td><td>%d</td><td>%s</td><td>%s</td><td>%.1f %%</td></tr>\n",
                way->name, way->outcome.n_workers, way->formula, dt_bytes_text(way->busiest, bytes),
                100 * way->outcome.accuracy);
    }
    fputs("</tbody></table></div>\n", out);
}

/* A dt_page_fn. */
static void put_body(FILE *out, const void *context)
{
    const struct dt_server_lesson *l = context;
    const struct dt_staleness *staleness = &l->ways[DT_SERVER_WAYS - 1].outcome.staleness;
    double most = 1;
    for (int i = 0; i < DT_SERVER_WAYS; i++) {
        most = l->ways[i].busiest > most ? l->ways[i].busiest : most;
    }
    fprintf(out,
            "<h1>Who carries the gradients?</h1>\n<p>%d ranks, %zu gradients: what each rank sends "
            "in a step, counted.</p>\n"
            "<div class=\"cards\">\n",
            DT_LAB_RANKS, l->n_elems);
    for (int i = 0; i < DT_SERVER_WAYS; i++) {
        fprintf(out, "<div class=\"card\"><h2>%s</h2><p>%s</p>\n", l->ways[i].name,
                l->ways[i].meaning);
        draw_ranks(out, &l->ways[i], most);
        fputs("</div>\n", out);
    }
    fputs("<div class=\"card\"><h2>Stale gradients</h2><p>Async: how many steps others had taken "
          "since the worker read the weights. "
          "With an allreduce, or a server that waits, none.</p>\n",
          out);
    dt_histogram_draw(out, "staleness in steps", dt_staleness_n_bins(staleness), staleness->counts);
    fputs("</div></div>\n", out);
    put_table(out, l);
    fprintf(out, "<p class=\"verdict\">%s</p>\n", l->golden.verdict);
}

enum dt_status dt_server_page(const char *path, const struct dt_server_lesson *lesson)
{
    return dt_page_write(
        path, &(struct dt_page){.title = "Servers", .body = put_body, .context = lesson});
}
