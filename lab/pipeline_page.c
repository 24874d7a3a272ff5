#include "lab/pipeline.h"
#include "report/page/page.h"

#define WIDTH 960
#define LEFT 26
#define ROW 26

/* `longest`: units of the longest step, so that all pictures have one scale. */
static void draw_grid(FILE *out, const struct dt_pipeline_grid *grid, int n_stages, int longest)
{
    const double unit = (double)(WIDTH - LEFT) * grid->length / longest / grid->n_units;
    fprintf(out, "<div class=\"wide\"><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n",
            WIDTH, n_stages * ROW, grid->name);
    for (int stage = 0; stage < n_stages; stage++) {
        const int y = stage * ROW;
        fprintf(out, "<text class=\"start\" x=\"0\" y=\"%d\">%d</text>", y + 17, stage);
        fprintf(out, "<rect class=\"rest\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>", LEFT,
                y + 1, grid->n_units * unit, ROW - 2);
        for (int i = 0; i < grid->n_passes[stage]; i++) {
            const struct dt_pipeline_pass *pass = &grid->passes[stage][i];
            fprintf(
                out,
                "<rect class=\"%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>",
                pass->op.backward ? "phase backward" : "phase forward",
                LEFT + pass->begin * unit + 0.5, y + 1, (pass->end - pass->begin) * unit - 1,
                ROW - 2);
            fprintf(out, "<text class=\"on\" x=\"%.1f\" y=\"%d\">%d</text>",
                    LEFT + (pass->begin + pass->end) * unit / 2, y + 17, pass->op.micro_batch + 1);
        }
        fputc('\n', out);
    }
    fputs("</svg></div>\n", out);
}

/* A dt_page_fn. */
static void put_row(FILE *out, const struct dt_pipeline_grid *grid, int n_stages)
{
    fprintf(out,
            "<tr><td>%s</td><td>%d</td><td>%d</td><td>%.1f %%</td><td>%d / %d = %.1f %%</td><td>",
            grid->name, grid->n_micro_batches, grid->length, 100 * grid->waits, n_stages - 1,
            grid->n_micro_batches + n_stages - 1, 100 * grid->formula);
    for (int stage = 0; stage < n_stages; stage++) {
        fprintf(out, stage > 0 ? " %d" : "%d", grid->held[stage]);
    }
    fputs("</td></tr>\n", out);
}

static void put_body(FILE *out, const void *context)
{
    const struct dt_pipeline_lesson *l = context;
    fprintf(out,
            "<h1>Who waits in a pipeline?</h1>\n<p>A step on %d stages, a row each, time from left "
            "to right: <b class=\"phase "
            "forward\">forward</b> one unit, <b class=\"phase backward\">backward</b> two; grey is "
            "waiting, numbers are "
            "micro-batches. Each picture is as "
            "wide as its step is long.</p>\n"
            "<div class=\"cards\">\n",
            l->n_stages);
    int longest = 0;
    for (int kind = 0; kind < DT_PIPELINE_GRIDS; kind++) {
        longest = l->grids[kind].length > longest ? l->grids[kind].length : longest;
    }
    for (int kind = 0; kind < DT_PIPELINE_GRIDS; kind++) {
        const struct dt_pipeline_grid *grid = &l->grids[kind];
        fprintf(
            out,
            "<div class=\"card\"><h2>%s: %s</h2><p>%d units of time, %.1f %% of them waiting</p>\n",
            grid->name, grid->meaning, grid->length, 100 * grid->waits);
        draw_grid(out, grid, l->n_stages, longest);
        fputs("</div>\n", out);
    }
    fputs("</div>\n<div "
          "class=\"wide\"><table><thead><tr><th>schedule</th><th>micro-batches</th><th>units</"
          "th><th>waits</th>"
          "<th>(p - 1) / (m + p - 1)</th><th>held by each stage</th></tr></thead>\n<tbody>",
          out);
    for (int kind = 0; kind < DT_PIPELINE_GRIDS; kind++) {
        put_row(out, &l->grids[kind], l->n_stages);
    }
    fprintf(out,
            "</tbody></table></div>\n<p>1f1b waits as long as gpipe, and a stage holds no more "
            "micro-batches than there are stages "
            "from it on.</p>\n<p class=\"verdict\">%s</p>\n",
            l->golden.verdict);
}

enum dt_status dt_pipeline_page(const char *path, const struct dt_pipeline_lesson *lesson)
{
    return dt_page_write(
        path, &(struct dt_page){
                  .title = "Pipeline", .class = "pipeline", .body = put_body, .context = lesson});
}
