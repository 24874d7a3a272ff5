#include "lab/shards.h"
#include "report/page/page.h"

#define WIDTH 440
#define LEFT 64 /* of the first cell: names of ranks stand before it */
#define CELL 24 /* height of one */
#define BAR_LEFT 128

/* Which step of a rank takes a sample; 0: none. */
static int step_of(const struct dt_shards_lesson *l, int mode, int rank, int sample)
{
    for (int i = 0; i < l->n_used[mode][rank]; i++) {
        if (l->used[mode][rank][i] == (uint32_t)sample) {
            return i + 1;
        }
    }
    return 0;
}

/* A row a rank, a column a sample; in a cell the step that takes it. */
static void draw_use(FILE *out, const struct dt_shards_lesson *l, int mode)
{
    const double cell = (double)(WIDTH - LEFT) / l->n_shown;
    fprintf(
        out,
        "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"which rank uses which sample\">\n",
        WIDTH, (l->n_ranks + 1) * CELL + 4);
    for (int i = 0; i < l->n_shown; i++) {
        fprintf(out, "<text x=\"%.1f\" y=\"16\">%d</text>", LEFT + (i + 0.5) * cell, i);
    }
    for (int rank = 0; rank < l->n_ranks; rank++) {
        const int y = (rank + 1) * CELL;
        fprintf(out, "<text class=\"start\" x=\"0\" y=\"%d\">rank %d</text>", y + 16, rank);
        for (int i = 0; i < l->n_shown; i++) {
            const int step = step_of(l, mode, rank, i);
            fprintf(
                out,
                "<rect class=\"%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"3\"/>",
                step > 0 ? "taken" : "box", LEFT + i * cell + 1, y + 1, cell - 2, CELL - 2);
            if (step > 0) {
                fprintf(out, "<text class=\"on\" x=\"%.1f\" y=\"%d\">%d</text>",
                        LEFT + (i + 0.5) * cell, y + 16, step);
            }
        }
        fputc('\n', out);
    }
    fputs("</svg>\n", out);
}

static void draw_accuracy(FILE *out, const struct dt_shards_lesson *l)
{
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"accuracy of each way\">\n",
            WIDTH, DT_SHARDS_MAX_SHARINGS * 30);
    for (int i = 0; i < DT_SHARDS_MAX_SHARINGS; i++) {
        const struct dt_sharing *s = &l->sharings[i];
        const double length = s->accuracy * (WIDTH - BAR_LEFT - 60);
        fprintf(out, "<text class=\"start\" x=\"0\" y=\"%d\">%s</text>", i * 30 + 20, s->name);
        fprintf(out, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"20\" rx=\"3\"/>",
                s->accuracy < 0.85 ? "d1" : "d0", BAR_LEFT, i * 30 + 5, length);
        fprintf(out, "<text class=\"start dark\" x=\"%.1f\" y=\"%d\">%.1f %%</text>\n",
                BAR_LEFT + length + 6, i * 30 + 20, 100 * s->accuracy);
    }
    fputs("</svg>\n", out);
}

/* A dt_page_fn. */
static void put_body(FILE *out, const void *context)
{
    const struct dt_shards_lesson *l = context;
    fprintf(out,
            "<h1>How ranks share the data</h1>\n<p>%d ranks and %d samples, one a step for each "
            "rank: a blue cell is a sample that "
            "a rank "
            "uses, with the number of its step.</p>\n<div class=\"cards\">\n",
            l->n_ranks, l->n_shown);
    for (int mode = 0; mode < DT_SHARDS_MODES; mode++) {
        fprintf(out, "<div class=\"card\"><h2>%s</h2><p>%s</p>\n", l->sharings[mode].name,
                l->sharings[mode].meaning);
        draw_use(out, l, mode);
        fputs("</div>\n", out);
    }
    fputs("<div class=\"card\"><h2>Accuracy after one epoch</h2><p>Shards by label do no harm "
          "while every step averages over all "
          "ranks. They "
          "do when ranks go on alone, or when all read one label after the other.</p>\n",
          out);
    draw_accuracy(out, l);
    fputs("</div></div>\n<div class=\"wide\"><table><thead><tr><th>way</th><th>steps</th><th>a "
          "sample is used</th><th>labels a rank "
          "sees</th><th>accuracy</th><th></th></tr></thead>\n<tbody>",
          out);
    for (int i = 0; i < DT_SHARDS_MAX_SHARINGS; i++) {
        const struct dt_sharing *s = &l->sharings[i];
        fprintf(out,
                "<tr><td>%s</td><td>%llu</td><td>%d ×</td><td>%d</td><td>%.1f "
                "%%</td><td>%s</td></tr>\n",
                s->name, (unsigned long long)s->n_steps, s->most, s->n_labels, 100 * s->accuracy,
                s->meaning);
    }
    fprintf(out, "</tbody></table></div>\n<p class=\"verdict\">%s</p>\n", l->golden.verdict);
}

enum dt_status dt_shards_page(const char *path, const struct dt_shards_lesson *lesson)
{
    return dt_page_write(path,
                         &(struct dt_page){.title = "Shards", .body = put_body, .context = lesson});
}
