#include "cli/text.h"
#include "lab/model_parallel.h"
#include "report/page/drawing.h"
#include "report/page/page.h"

/* A device computes something in column `at`. */
static void draw_cell(const struct dt_lanes *grid, int row, int at, const char *class,
                      const char *text)
{
    dt_lanes_box(grid, row, &(struct dt_box){class, at, at + 1, text, NULL});
}

static struct dt_lanes begin(FILE *out, int n_rows, int n_columns, const char *label)
{
    const struct dt_lanes grid = {.out = out,
                                  .label = label,
                                  .n_rows = n_rows,
                                  .width = 440,
                                  .left = 26,
                                  .row = 26,
                                  .end = n_columns};
    char text[16];
    dt_lanes_begin(&grid);
    for (int row = 0; row < n_rows; row++) {
        snprintf(text, sizeof text, "%d", row);
        dt_lanes_name(&grid, row, text);
    }
    return grid;
}

/* Forward down the devices and backward up again, m micro-batches one behind the other. */
static void draw_stages(FILE *out, int p, int m, const char *label)
{
    const int n = 2 * (m + p - 1);
    const struct dt_lanes grid = begin(out, p, n, label);
    for (int row = 0; row < p; row++) {
        for (int i = 0; i < m; i++) {
            char text[16] = "";
            if (m > 1) {
                snprintf(text, sizeof text, "%d", i + 1);
            }
            draw_cell(&grid, row, row + i, "phase forward", text);
            draw_cell(&grid, row, n - 1 - row - i, "phase backward", text);
        }
    }
    dt_lanes_end(&grid);
}

/* All devices at once; `n_exchanges` per direction: one after every layer, or one at the end of the
 * step. */
static void draw_together(FILE *out, int p, int n_layers, bool each, const char *label)
{
    const struct dt_lanes grid = begin(out, p, each ? 4 * n_layers : 2 * n_layers + 1, label);
    for (int row = 0; row < p; row++) {
        int at = 0;
        for (int i = 0; i < 2 * n_layers; i++) {
            draw_cell(&grid, row, at++, i < n_layers ? "phase forward" : "phase backward", NULL);
            if (each) {
                draw_cell(&grid, row, at++, "phase communication", NULL);
            }
        }
        if (!each) {
            draw_cell(&grid, row, at, "phase communication", NULL);
        }
    }
    dt_lanes_end(&grid);
}

static void draw_way(FILE *out, const struct dt_parallel_lesson *l, int way)
{
    const char *name = l->ways[way].name;
    const int shown = l->model.n_blocks < 4 ? l->model.n_blocks : 4;
    if (way == DT_PARALLEL_LAYERS || way == DT_PARALLEL_PIPELINE) {
        draw_stages(out, l->n_stages, way == DT_PARALLEL_LAYERS ? 1 : DT_PARALLEL_MICRO_BATCHES,
                    name);
    } else {
        draw_together(out, l->n_devices, shown, way == DT_PARALLEL_SLICES, name);
    }
}

/* A dt_page_fn. */
static void put_body(FILE *out, const void *context)
{
    const struct dt_parallel_lesson *l = context;
    char text[32];
    fprintf(out,
            "<h1>Four ways to share a model</h1>\n<p>%zu samples a step on %d devices, time from "
            "left to right: <b "
            "class=\"phase forward\">forward</b>, "
            "<b class=\"phase backward\">backward</b>, <b class=\"phase "
            "communication\">exchange</b>. As if all layers took "
            "equally long; numbers are "
            "micro-batches.</p>\n"
            "<div class=\"cards\">\n",
            l->batch, l->n_devices);
    for (int i = 0; i < DT_PARALLEL_WAYS; i++) {
        const struct dt_parallel_way *w = &l->ways[i];
        fprintf(out, "<div class=\"card\"><h2>%s</h2><p>%s</p>\n", w->name, w->meaning);
        draw_way(out, l, i);
        fprintf(out, "<p>%s bytes a step; %.2f of %d devices at once</p></div>\n",
                dt_count_text(w->bytes, text, sizeof text), w->at_once, l->n_devices);
    }
    fputs("</div>\n<div class=\"wide\"><table><thead><tr><th>device</th><th>blocks</th><th>of the "
          "operations</th><th>outputs of a "
          "sample</th></tr></thead>\n<tbody>",
          out);
    for (int i = 0; i < l->n_stages; i++) {
        const struct dt_parallel_stage *s = &l->stages[i];
        fprintf(out, "<tr><td>%d</td><td>%s%s%s</td><td>%.1f %%</td><td>%s</td></tr>\n", i,
                l->model.blocks[s->begin].name, s->end > s->begin + 1 ? " to " : "",
                s->end > s->begin + 1 ? l->model.blocks[s->end - 1].name : "",
                100 * s->flops / l->flops,
                dt_count_text((double)dt_shape_elems(l->model.blocks[s->end - 1].out), text,
                              sizeof text));
    }
    fprintf(out,
            "</tbody></table></div>\n<p>The pipeline of %d micro-batches would keep %.2f devices "
            "at work if its stages were even; "
            "as they "
            "are cut, %.2f.</p>\n<p class=\"verdict\">%s</p>\n",
            DT_PARALLEL_MICRO_BATCHES, l->even, l->ways[DT_PARALLEL_PIPELINE].at_once,
            l->golden.verdict);
}

enum dt_status dt_parallel_page(const char *path, const struct dt_parallel_lesson *lesson)
{
    return dt_page_write(
        path, &(struct dt_page){.title = "Model parallel", .body = put_body, .context = lesson});
}
