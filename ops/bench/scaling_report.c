#include <math.h>
#include <stdio.h>

#include "cli/text.h"
#include "ops/bench/scaling.h"
#include "report/page/chart.h"
#include "report/page/page.h"

#define PEAK_MS 3

#define SCALING_NAME(constant, name, meaning) name,
#define SCALING_MEANING(constant, name, meaning) meaning,
const char *const dt_scaling_names[DT_N_SCALING_KINDS] = {DT_SCALING_LIST(SCALING_NAME)};
const char *const dt_scaling_meanings[DT_N_SCALING_KINDS] = {DT_SCALING_LIST(SCALING_MEANING)};

static int most_ranks(const struct dt_scaling *s)
{
    return s->rows[s->n_rows - 1].n_ranks;
}

/* ---- the table */

/* "1,199,882 parameters, cpu x86-64-v4, 1 thread, shared_memory" */
static void describe(const struct dt_scaling *s, char *text, size_t size)
{
    char count[32];
    snprintf(text, size, "%s parameters, %s, %s",
             dt_count_text((double)s->n_parameters, count, sizeof count), s->device, s->adds_by);
}

void dt_scaling_print(const struct dt_scaling *s)
{
    char text[256], batch[32], rate[32];
    const int n_cores = dt_bench_n_cores();
    describe(s, text, sizeof text);
    printf("# %s\n# medians of %d training steps\n", text, DT_SCALING_STEPS);
    for (int kind = 0; kind < DT_N_SCALING_KINDS; kind++) {
        printf("# %s: %s\n", dt_scaling_names[kind], dt_scaling_meanings[kind]);
    }
    printf("# efficiency: %s/s over those of one rank times the ranks\n", s->unit);
    if (s->n_host_threads > n_cores) {
        printf("# this host has %d cores for %d threads, which share them\n", n_cores,
               s->n_host_threads);
    }
    printf("%-8s %6s %9s %11s %12s/s %11s\n", "scaling", "ranks", "batch", "ms a step", s->unit,
           "efficiency");
    for (int i = 0; i < s->n_rows; i++) {
        const struct dt_scaling_row *row = &s->rows[i];
        printf("%-8s %6d %9s %11.3f %14s %9.1f %%\n", dt_scaling_names[row->kind], row->n_ranks,
               dt_count_text((double)row->batch, batch, sizeof batch), 1e3 * row->step_s,
               dt_count_text(row->rate, rate, sizeof rate), 100 * row->efficiency);
    }
}

cJSON *dt_scaling_json(const struct dt_world *world, const struct dt_scaling *s)
{
    cJSON *json = dt_bench_json("scaling", world, dt_bench_peak(PEAK_MS));
    cJSON_AddNumberToObject(json, "parameters", (double)s->n_parameters);
    cJSON_AddStringToObject(json, "device", s->device);
    cJSON_AddNumberToObject(json, "threads", s->n_threads);
    cJSON_AddStringToObject(json, "allreduce", s->adds_by);
    cJSON_AddNumberToObject(json, "steps", DT_SCALING_STEPS);
    cJSON *rows = cJSON_AddArrayToObject(json, "rows");
    for (int i = 0; i < s->n_rows; i++) {
        const struct dt_scaling_row *row = &s->rows[i];
        cJSON *out = cJSON_CreateObject();
        cJSON_AddStringToObject(out, "scaling", dt_scaling_names[row->kind]);
        cJSON_AddNumberToObject(out, "ranks", row->n_ranks);
        cJSON_AddNumberToObject(out, "batch", (double)row->batch);
        cJSON_AddNumberToObject(out, "step_ms", 1e3 * row->step_s);
        cJSON_AddNumberToObject(out, "samples_per_s", row->rate);
        cJSON_AddNumberToObject(out, "efficiency", row->efficiency);
        cJSON_AddItemToArray(rows, out);
    }
    return json;
}

/* ---- the page */

/* How many times as fast as one rank. */
static double speedup(const struct dt_scaling_row *row)
{
    return row->efficiency * row->n_ranks;
}

static void draw_kind(const struct dt_chart *chart, const struct dt_scaling *s, int kind)
{
    static const char *const lines[] = {"s0", "s1"}, *const dots[] = {"d0", "d1"};
    double x[DT_SCALING_MAX_ROWS], y[DT_SCALING_MAX_ROWS];
    int n = 0;
    for (int i = 0; i < s->n_rows; i++) {
        if (s->rows[i].kind == (enum dt_scaling_kind)kind) {
            x[n] = s->rows[i].n_ranks;
            y[n] = speedup(&s->rows[i]);
            dt_chart_dot(chart, dots[kind], x[n], y[n]);
            n++;
        }
    }
    dt_chart_line(chart, lines[kind], n, x, y);
}

static void draw(FILE *out, const struct dt_scaling *s)
{
    const double n = most_ranks(s), ideal[] = {0, n};
    double most = n;
    for (int i = 0; i < s->n_rows; i++) {
        most = fmax(most, speedup(&s->rows[i]));
    }
    const struct dt_chart chart = {out,
                                   "speed by ranks",
                                   {"ranks", 0, 1.05 * n, false},
                                   {"times one rank's speed", 0, 1.05 * most, false}};
    dt_chart_begin(&chart);
    dt_chart_line(&chart, "ideal", 2, ideal, ideal);
    dt_chart_note(&chart, "end", 0.8 * n, 0.85 * n, "ideal");
    for (int kind = 0; kind < DT_N_SCALING_KINDS; kind++) {
        draw_kind(&chart, s, kind);
    }
    dt_chart_end(&chart);
}

static void put_table(FILE *out, const struct dt_scaling *s)
{
    char batch[32], rate[32];
    fprintf(
        out,
        "<div class=\"wide\"><table><thead><tr><th>scaling</th><th>ranks</th><th>batch</th><th>ms "
        "a step</th><th>%s/s</th><th>efficiency</th></tr></thead>\n<tbody>",
        s->unit);
    for (int i = 0; i < s->n_rows; i++) {
        const struct dt_scaling_row *row = &s->rows[i];
        fprintf(
            out,
            "<tr><td>%s</td><td>%d</td><td>%s</td><td>%.3f</td><td>%s</td><td>%.1f %%</td></tr>\n",
            dt_scaling_names[row->kind], row->n_ranks,
            dt_count_text((double)row->batch, batch, sizeof batch), 1e3 * row->step_s,
            dt_count_text(row->rate, rate, sizeof rate), 100 * row->efficiency);
    }
    fputs("</tbody></table></div>\n", out);
}

/* A dt_page_fn. */
static void put_body(FILE *out, const void *context)
{
    const struct dt_scaling *s = context;
    char text[256];
    describe(s, text, sizeof text);
    fprintf(out,
            "<h1>Scaling to %d rank%s</h1>\n<p>%s; medians of %d training steps on a host with %d "
            "cores.</p>\n"
            "<div class=\"cards\"><div class=\"card\"><h2>Speed</h2><p>How many times as fast as "
            "one rank. Blue: weak, %s. Orange: strong, %s.</p>\n",
            most_ranks(s), most_ranks(s) == 1 ? "" : "s", text, DT_SCALING_STEPS,
            dt_bench_n_cores(), dt_scaling_meanings[DT_SCALING_WEAK],
            dt_scaling_meanings[DT_SCALING_STRONG]);
    draw(out, s);
    fprintf(out,
            "</div>\n<div class=\"card\"><h2>Efficiency</h2><p>%s/s over those of one rank times "
            "the ranks. Where the batch stays, that is T1 / (n Tn).</p>\n",
            s->unit);
    put_table(out, s);
    fputs("</div></div>\n", out);
}

enum dt_status dt_scaling_page(const char *path, const struct dt_scaling *scaling)
{
    return dt_page_write(
        path, &(struct dt_page){
                  .title = "Scaling", .class = "scaling", .body = put_body, .context = scaling});
}
