#include <math.h>

#include "cli/text.h"
#include "lab/compression.h"
#include "report/page/chart.h"
#include "report/page/page.h"

/* Where the names stand, above or below their dots, so that none covers another. */
static const struct {
    const char *text;
    bool above;
} notes[DT_N_COMPRESSION_TYPES] = {
    [DT_COMPRESSION_NONE] = {"none", true},     [DT_COMPRESSION_FP16] = {"fp16, bf16", false},
    [DT_COMPRESSION_BF16] = {"", false},        [DT_COMPRESSION_INT8] = {"int8", true},
    [DT_COMPRESSION_ONEBIT] = {"onebit", true}, [DT_COMPRESSION_TOPK] = {"topk", true},
};

/* In per cent; none has nothing to feed back, and is in both series. */
static double accuracy(const struct dt_compression_lesson *l, int type, int feedback)
{
    return 100 * l->ways[type].outcomes[type == DT_COMPRESSION_NONE ? 0 : feedback].accuracy;
}

static double margin(const struct dt_compression_lesson *l, int type, int feedback)
{
    return 100 * dt_compression_margin(accuracy(l, type, feedback) / 100);
}

static void draw_series(const struct dt_chart *chart, const struct dt_compression_lesson *l,
                        int feedback)
{
    double x[DT_N_COMPRESSION_TYPES], y[DT_N_COMPRESSION_TYPES];
    for (int type = 0; type < DT_N_COMPRESSION_TYPES; type++) {
        x[type] = l->ways[type].expected;
        y[type] = accuracy(l, type, feedback);
    }
    dt_chart_line(chart, feedback == 1 ? "s1" : "s0", DT_N_COMPRESSION_TYPES, x, y);
    for (int type = 0; type < DT_N_COMPRESSION_TYPES; type++) {
        const double m = margin(l, type, feedback);
        dt_chart_line(chart, feedback == 1 ? "s1" : "s0", 2, (double[]){x[type], x[type]},
                      (double[]){y[type] - m, y[type] + m});
        dt_chart_dot(chart, feedback == 1 ? "d1" : "d0", x[type], y[type]);
    }
}

static void draw(FILE *out, const struct dt_compression_lesson *l)
{
    double least = 100;
    for (int type = 0; type < DT_N_COMPRESSION_TYPES; type++) {
        least = fmin(least, fmin(accuracy(l, type, 0), accuracy(l, type, 1)));
    }
    const double low = 10 * floor(least / 10 - 0.5), apart = (100 - low) / 20;
    const struct dt_chart chart = {out,
                                   "accuracy by bytes sent",
                                   {"bytes that a rank sends a step", 800, 2e5, true},
                                   {"accuracy, %", low, 100, false}};
    dt_chart_begin(&chart);
    draw_series(&chart, l, 0);
    draw_series(&chart, l, 1);
    for (int type = 0; type < DT_N_COMPRESSION_TYPES; type++) {
        const double a = accuracy(l, type, 0), b = accuracy(l, type, 1);
        dt_chart_note(&chart, "dark", l->ways[type].expected,
                      notes[type].above ? fmax(a, b) + apart : fmin(a, b) - apart,
                      notes[type].text);
    }
    dt_chart_end(&chart);
}

static void put_table(FILE *out, const struct dt_compression_lesson *l)
{
    char bytes[32];
    fputs("<div class=\"wide\"><table><thead><tr><th>type</th><th>bytes of n numbers</th><th>a "
          "rank sends</th><th>times fewer</th>"
          "<th>accuracy</th><th>with error feedback</th></tr></thead>\n<tbody>",
          out);
    for (int type = 0; type < DT_N_COMPRESSION_TYPES; type++) {
        fprintf(out, "<tr><td>%s</td><td>%s</td><td>%s</td><td>%.1f</td><td>%.1f ± %.1f %%</td>",
                dt_compression_names[type], dt_compression_formulas[type],
                dt_count_text(l->ways[type].expected, bytes, sizeof bytes),
                l->ways[DT_COMPRESSION_NONE].expected / l->ways[type].expected,
                accuracy(l, type, 0), margin(l, type, 0));
        if (type == DT_COMPRESSION_NONE) {
            fputs("<td></td></tr>\n", out);
        } else {
            fprintf(out, "<td>%.1f ± %.1f %%</td></tr>\n", accuracy(l, type, 1),
                    margin(l, type, 1));
        }
    }
    fputs("</tbody></table></div>\n", out);
}

/* A dt_page_fn. */
static void put_body(FILE *out, const void *context)
{
    const struct dt_compression_lesson *l = context;
    fprintf(out,
            "<h1>How few bytes do gradients need?</h1>\n<p>%d ranks, each of which sends %zu "
            "gradients to the others in every step: "
            "bytes, counted, against the accuracy of %d test images after %d epochs. Upright "
            "lines, and ± in the table: 95 of 100 such "
            "test sets come so near.</p>\n<div class=\"cards\"><div class=\"card\"><h2>Without and "
            "with error feedback</h2><p>Blue: without; what an encoding loses is lost. Orange: "
            "with error feedback it is added to the "
            "next "
            "step's "
            "gradients.</p>\n",
            DT_LAB_RANKS, l->whole.n_gradients, DT_COMPRESSION_N_TEST, DT_LAB_N_EPOCHS);
    draw(out, l);
    fputs("</div></div>\n", out);
    put_table(out, l);
    fputs("<p>Compared with none, by more than the chance of the test set explains; each is one "
          "training from one seed:</p>\n<pre "
          "style=\"white-space:pre-wrap\">",
          out);
    dt_compression_print_claims(out, l);
    fputs("</pre>\n", out);
    fprintf(out, "<p class=\"verdict\">%s</p>\n", l->golden.verdict);
}

enum dt_status dt_compression_page(const char *path, const struct dt_compression_lesson *lesson)
{
    return dt_page_write(
        path, &(struct dt_page){.title = "Compression", .body = put_body, .context = lesson});
}
