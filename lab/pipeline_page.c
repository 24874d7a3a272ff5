#include "lab/pipeline.h"
#include "report/page/drawing.h"
#include "report/page/page.h"

/* `longest`: units of the longest step, so that all pictures have one scale. */
static void draw_grid(FILE *out, const struct dt_pipeline_grid *grid, int n_stages, int longest)
{
    const double unit = (double)grid->length / grid->n_units;
    const struct dt_lanes lanes = {.out = out,
                                   .label = grid->name,
                                   .n_rows = n_stages,
                                   .width = 960,
                                   .left = 26,
                                   .row = 26,
                                   .end = longest};
    char text[16];
    fputs("<div class=\"wide\">", out);
    dt_lanes_begin(&lanes);
    for (int stage = 0; stage < n_stages; stage++) {
        snprintf(text, sizeof text, "%d", stage);
        dt_lanes_name(&lanes, stage, text);
        dt_lanes_box(&lanes, stage, &(struct dt_box){"rest", 0, grid->length, NULL, NULL});
        for (int i = 0; i < grid->n_passes[stage]; i++) {
            const struct dt_pipeline_pass *pass = &grid->passes[stage][i];
            snprintf(text, sizeof text, "%d", pass->op.micro_batch + 1);
            dt_lanes_box(&lanes, stage,
                         &(struct dt_box){pass->op.backward ? "phase backward" : "phase forward",
                                          pass->begin * unit, pass->end * unit, text, NULL});
        }
    }
    dt_lanes_end(&lanes);
    fputs("</div>\n", out);
}

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
