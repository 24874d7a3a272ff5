#include "lab/shards.h"
#include "report/page/drawing.h"
#include "report/page/page.h"

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
    const struct dt_lanes grid = {.out = out,
                                  .label = "which rank uses which sample",
                                  .n_rows = l->n_ranks + 1,
                                  .width = 440,
                                  .left = 64,
                                  .row = 24,
                                  .end = l->n_shown};
    char text[16];
    dt_lanes_begin(&grid);
    for (int i = 0; i < l->n_shown; i++) {
        snprintf(text, sizeof text, "%d", i);
        dt_lanes_box(&grid, 0, &(struct dt_box){"head", i, i + 1, text, NULL});
    }
    for (int rank = 0; rank < l->n_ranks; rank++) {
        snprintf(text, sizeof text, "rank %d", rank);
        dt_lanes_name(&grid, rank + 1, text);
        for (int i = 0; i < l->n_shown; i++) {
            const int step = step_of(l, mode, rank, i);
            snprintf(text, sizeof text, "%d", step);
            dt_lanes_box(&grid, rank + 1,
                         &(struct dt_box){step > 0 ? "taken" : "box", i, i + 1,
                                          step > 0 ? text : NULL, NULL});
        }
    }
    dt_lanes_end(&grid);
}

static void draw_accuracy(FILE *out, const struct dt_shards_lesson *l)
{
    struct dt_bar bars[DT_SHARDS_MAX_SHARINGS];
    char texts[DT_SHARDS_MAX_SHARINGS][16];
    for (int i = 0; i < DT_SHARDS_MAX_SHARINGS; i++) {
        const struct dt_sharing *s = &l->sharings[i];
        snprintf(texts[i], sizeof texts[i], "%.1f %%", 100 * s->accuracy);
        bars[i] = (struct dt_bar){s->name, s->accuracy < 0.85 ? "d1" : "d0", texts[i], s->accuracy};
    }
    dt_bars_draw(out, "accuracy of each way", 128, 1, DT_SHARDS_MAX_SHARINGS, bars);
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
