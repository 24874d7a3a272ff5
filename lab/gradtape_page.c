#include <stdio.h>

#include "cli/text.h"
#include "lab/gradtape.h"
#include "report/page/page.h"

struct tape_page {
    const struct dt_tape *tapes;
    const struct dt_golden *golden;
};

/* ---- the picture: a column a rank, downwards in the order of time */

#define COLUMN 212 /* width of a rank's box */
#define GAP 16     /* between both */
#define ROW 74

static int left_of(int rank)
{
    return rank * (COLUMN + GAP);
}

static void draw_box(FILE *out, int x, int row, int width, const char *title, const char *numbers)
{
    const int y = row * ROW;
    fprintf(out, "<rect class=\"box\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"48\" rx=\"8\"/>",
            x + 1, y, width - 2);
    fprintf(out, "<text x=\"%d\" y=\"%d\">%s</text>", x + width / 2, y + 19, title);
    fprintf(out, "<text class=\"dark\" x=\"%d\" y=\"%d\">%s</text>\n", x + width / 2, y + 38,
            numbers);
}

static void draw_arrow(FILE *out, const char *class, int x1, int y1, int x2, int y2)
{
    fprintf(out, "<path class=\"%s\" marker-end=\"url(#tip)\" d=\"M%d %dL%d %d\"/>\n", class, x1,
            y1, x2, y2);
}

static void draw_down(FILE *out, int row)
{
    for (int rank = 0; rank < 2; rank++) {
        const int x = left_of(rank) + COLUMN / 2;
        draw_arrow(out, rank == 0 ? "s0" : "s1", x, row * ROW + 49, x, (row + 1) * ROW - 3);
    }
}

static const char *layer_text(const struct dt_tape_layer *l, char *out, size_t size)
{
    char a[32], b[32], c[32];
    snprintf(out, size, "%s, %s; %s", dt_float_text(l->weight[0], a),
             dt_float_text(l->weight[1], b), dt_float_text(l->bias, c));
    return out;
}

static void draw_layers(FILE *out, int row, const char *title, const struct dt_tape_layer *a,
                        const struct dt_tape_layer *b)
{
    char text[100];
    draw_box(out, left_of(0), row, COLUMN, title, layer_text(a, text, sizeof text));
    draw_box(out, left_of(1), row, COLUMN, title, layer_text(b, text, sizeof text));
}

static void draw_start(FILE *out, const struct dt_tape *t)
{
    for (int rank = 0; rank < 2; rank++) {
        char title[40], text[80], loss[32];
        snprintf(title, sizeof title, "rank %d begins with", rank);
        snprintf(text, sizeof text, "%s, %s; %s", rank == 0 ? "1" : "0", rank == 0 ? "1" : "0",
                 rank == 0 ? "1" : "0");
        draw_box(out, left_of(rank), 0, COLUMN, title, text);
        draw_box(out, left_of(rank), 1, COLUMN, "loss: sum of outputs",
                 dt_float_text(t[rank].loss, loss));
    }
}

static void draw(FILE *out, const struct dt_tape *t)
{
    char mean[100];
    const int width = 2 * COLUMN + GAP;
    fprintf(out,
            "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"the ranks' numbers from the loss "
            "to the broadcast\"><defs>"
            "<marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"5\" "
            "markerHeight=\"5\" orient=\"auto\">"
            "<path d=\"M0 0L10 5L0 10z\" fill=\"context-stroke\"/></marker></defs>\n",
            width, 5 * ROW + 50);
    draw_start(out, t);
    draw_layers(out, 2, "gradient, its own", &t[0].own, &t[1].own);
    draw_box(out, 0, 3, width, "allreduce: the mean of both",
             layer_text(&t[0].mean, mean, sizeof mean));
    draw_layers(out, 4, "weights after the step", &t[0].stepped, &t[1].stepped);
    draw_layers(out, 5, "after the broadcast", &t[0].sent, &t[1].sent);
    for (int row = 0; row < 4; row++) {
        draw_down(out, row);
    }
    for (int rank = 0; rank < 2; rank++) {
        draw_arrow(out, "s0", left_of(0) + COLUMN / 2, 4 * ROW + 49, left_of(rank) + COLUMN / 2,
                   5 * ROW - 3);
    }
    fputs("</svg>\n", out);
}

/* ---- the table */

static void put_row(FILE *out, const char *what, const char *a, const char *b)
{
    fprintf(out, "<tr><td>%s</td><td>%s</td><td>%s</td></tr>\n", what, a, b);
}

static void put_inputs(FILE *out, const struct dt_tape *t)
{
    for (int i = 0; i < DT_TAPE_SAMPLES; i++) {
        char what[32], text[2][100], a[32], b[32];
        snprintf(what, sizeof what, "sample %d", i + 1);
        for (int rank = 0; rank < 2; rank++) {
            const float *x = t[rank].x + DT_TAPE_INPUTS * i;
            snprintf(text[rank], sizeof text[rank], "%s<br>%s", dt_float_text(x[0], a),
                     dt_float_text(x[1], b));
        }
        put_row(out, what, text[0], text[1]);
    }
}

static void put_body(FILE *out, const void *context)
{
    const struct tape_page *page = context;
    const struct dt_tape *t = page->tapes;
    fputs("<h1>Horovod's gradient tape, by numbers</h1>\n<p>Two ranks, each with four samples of "
          "two inputs (MT19937 seeded by the "
          "rank) and a dense layer of three units, all of them alike. The loss is the sum of all "
          "outputs, the learning rate 1.</p>\n"
          "<div class=\"cards\"><div class=\"card\"><h2>What each rank has</h2><p>For input 1, for "
          "input 2; for the bias.</p>\n",
          out);
    draw(out, t);
    fputs("</div>\n<div class=\"card\"><h2>What it shows</h2>\n<p>Each rank's gradient is of its "
          "own samples. The mean makes equal "
          "steps: "
          "both ranks move alike, and stay 1 apart, as they began. Only the broadcast makes them "
          "equal, and from then on equal steps "
          "keep them so.</p>\n",
          out);
    fprintf(out,
            "<p>A slip of sign: the example's text says <i>new = old + gradient</i>. Its numbers, "
            "and dtrain, have <i>new = old − rate "
            "· "
            "gradient</i>: 1 − %.7f = %.7f.</p>\n<h2 class=\"part\">Inputs</h2><div "
            "class=\"wide\"><table><thead><tr><th></th><th>rank "
            "0</th><th>rank 1</th></tr></thead>\n<tbody>",
            (double)t[0].mean.weight[0], (double)t[0].stepped.weight[0]);
    put_inputs(out, t);
    fprintf(out, "</tbody></table></div>\n<p class=\"verdict\">%s</p></div></div>\n",
            page->golden->verdict);
}

enum dt_status dt_tape_page(const char *path, const struct dt_tape tapes[2],
                            const struct dt_golden *golden)
{
    const struct tape_page page = {tapes, golden};
    return dt_page_write(
        path, &(struct dt_page){.title = "Gradient tape", .body = put_body, .context = &page});
}
