#include "base/bytes.h"
#include "cli/sinks/staleness.h"
#include "lab/server.h"
#include "report/page/drawing.h"
#include "report/page/page.h"

/* What each rank sends: a bar a rank; the longest of all ways is as wide as the picture. */
static void draw_ranks(FILE *out, const struct dt_server_way *way, double most)
{
    char names[DT_LAB_RANKS][16], texts[DT_LAB_RANKS][DT_BYTES_TEXT_SIZE];
    struct dt_bar bars[DT_LAB_RANKS];
    for (int rank = 0; rank < DT_LAB_RANKS; rank++) {
        const double sent = way->outcome.sent[rank];
        snprintf(names[rank], sizeof names[rank], "rank %d", rank);
        bars[rank] = (struct dt_bar){names[rank], sent > 0.9 * most ? "d1" : "d0",
                                     dt_bytes_text(sent, texts[rank]), sent};
    }
    dt_bars_draw(out, "what each rank sends a step", 60, most, DT_LAB_RANKS, bars);
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
