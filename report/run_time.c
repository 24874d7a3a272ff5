#include "report/run.h"

#include <math.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "dist/strategy/facts/facts.h"
#include "report/page/drawing.h"
#include "report/page/page.h"

#define MAX_BARS 64
#define MAX_ROWS 1024 /* of the table of numbers */

/* A rank's milliseconds of a step. */
struct rank_times {
    int rank;
    double ms[DT_N_PHASES];
    double own; /* all but waiting for others */
    double all;
};

struct times {
    int n;
    struct rank_times *ranks;
    double largest;
    bool used[DT_N_PHASES]; /* by some rank */
};

static struct rank_times times_of(const cJSON *object, int rank)
{
    struct rank_times t = {.rank = rank};
    for (int p = 0; p < DT_N_PHASES; p++) {
        const double ms = dt_record_number(object, dt_phase_names[p]);
        t.ms[p] = ms > 0 ? ms : 0;
        t.all += t.ms[p];
        t.own += p != DT_PHASE_COMMUNICATION ? t.ms[p] : 0;
    }
    return t;
}

/* All ranks', or else rank 0's: a run that failed has no others. */
static void find_times(const struct dt_record *r, struct times *out)
{
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(r->summary, "ranks_ms_per_step");
    const cJSON *first = cJSON_GetObjectItemCaseSensitive(r->summary, "rank0_ms_per_step");
    const int n = cJSON_IsArray(array) ? cJSON_GetArraySize(array) : cJSON_IsObject(first) ? 1 : 0;
    *out = (struct times){.ranks = n > 0 ? calloc((size_t)n, sizeof *out->ranks) : NULL};
    if (n > 0 && out->ranks == NULL) {
        (void)dt_error(DT_NO_MEMORY, "no memory for the times of %d ranks", n);
    }
    const cJSON *item = cJSON_IsArray(array) ? array->child : first;
    for (int i = 0; i < n && out->ranks != NULL && item != NULL; i++, item = item->next) {
        out->ranks[out->n++] = times_of(item, i);
        out->largest = fmax(out->largest, out->ranks[i].all);
        for (int p = 0; p < DT_N_PHASES; p++) {
            out->used[p] |= out->ranks[i].ms[p] > 0;
        }
    }
}

/* ---- bars */

static void draw_bar(FILE *out, const struct rank_times *t, double largest)
{
    double x = 0;
    fprintf(out,
            "<tr><td>rank %d<td class=\"bar\"><svg viewBox=\"0 0 1000 20\" "
            "preserveAspectRatio=\"none\" aria-hidden=\"true\">",
            t->rank);
    for (int p = 0; p < DT_N_PHASES; p++) {
        const double width = 1000 * t->ms[p] / largest;
        if (width > 0) {
            fprintf(out,
                    "<rect class=\"phase %s\" x=\"%.2f\" width=\"%.2f\" height=\"20\"><title>%s "
                    "%.3f ms</title></rect>",
                    dt_phase_names[p], x, width, dt_phase_names[p], t->ms[p]);
        }
        x += width;
    }
    fprintf(out, "</svg><td>%.3f\n", t->all);
}

static int by_own(const void *a, const void *b)
{
    const struct rank_times *x = a, *y = b;
    return x->own != y->own ? (x->own < y->own) - (x->own > y->own) : x->rank - y->rank;
}

static void sort(struct times *t)
{
    qsort(t->ranks, (size_t)t->n, sizeof *t->ranks, by_own);
}

static void draw_bars(FILE *out, const struct times *t)
{
    fputs("<p class=\"legend\">", out);
    for (int p = 0; p < DT_N_PHASES; p++) {
        if (t->used[p]) {
            fprintf(out, "<span class=\"key phase %s\">%s</span> ", dt_phase_names[p],
                    dt_phase_names[p]);
        }
    }
    fputs("</p>\n<table class=\"bars\"><thead><tr><th>rank<th>a step<th>ms</thead><tbody>\n", out);
    for (int i = 0; i < t->n && i < MAX_BARS; i++) {
        draw_bar(out, &t->ranks[i], t->largest);
    }
    fputs("</tbody></table>\n", out);
    if (t->n > MAX_BARS) {
        fprintf(out, "<p>The %d slowest of %d ranks; the numbers have %s.</p>\n", MAX_BARS, t->n,
                t->n > MAX_ROWS ? "more of them" : "all");
    }
}

static void put_numbers(FILE *out, const struct times *t)
{
    fputs(
        "<details><summary>Numbers</summary><div class=\"wide\"><table><caption>milliseconds of a "
        "step</caption><thead><tr><th>rank",
        out);
    for (int p = 0; p < DT_N_PHASES; p++) {
        if (t->used[p]) {
            fprintf(out, "<th>%s", dt_phase_names[p]);
        }
    }
    fputs("<th>total</thead><tbody>\n", out);
    for (int i = 0; i < t->n && i < MAX_ROWS; i++) {
        fprintf(out, "<tr><td>%d", t->ranks[i].rank);
        for (int p = 0; p < DT_N_PHASES; p++) {
            if (t->used[p]) {
                fprintf(out, "<td>%.3f", t->ranks[i].ms[p]);
            }
        }
        fprintf(out, "<td>%.3f\n", t->ranks[i].all);
    }
    fputs("</tbody></table></div>", out);
    if (t->n > MAX_ROWS) {
        fprintf(out, "<p>%d more ranks were faster.</p>", t->n - MAX_ROWS);
    }
    fputs("</details>\n", out);
}

/* ---- sentences */

/* `t` is sorted by own work, the most first. */
static void tell_slowest(FILE *out, const struct dt_record *r, const struct times *t)
{
    const struct rank_times *slowest = &t->ranks[0];
    const cJSON *info =
        cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(r->start, "ranks"), slowest->rank);
    if (t->n < 2) {
        return;
    }
    fprintf(out, "<p>The slowest is rank %d (", slowest->rank);
    dt_page_text(out, dt_record_text(info, "host"));
    fprintf(out,
            "): it computes %.3f ms a step (median %.3f); faster ranks spend the difference "
            "waiting in communication.</p>\n",
            slowest->own, t->ranks[t->n / 2].own);
}

static void tell_communication(FILE *out, const struct times *t)
{
    double waited = 0, all = 0;
    for (int i = 0; i < t->n; i++) {
        waited += t->ranks[i].ms[DT_PHASE_COMMUNICATION] / t->n;
        all += t->ranks[i].all / t->n;
    }
    if (t->n > 1 && all > 0) {
        fprintf(out,
                "<p>Exposed communication: %.3f ms of a step, %.1f %%, mean over ranks. "
                "Communication that overlaps the backward pass is counted as backward time.</p>\n",
                waited, 100 * waited / all);
    }
}

static void tell_traffic(FILE *out, const struct dt_record *r)
{
    const cJSON *counted = r->last_epoch != NULL ? r->last_epoch : r->summary;
    const double messages = dt_record_number(counted, "messages"),
                 bytes = dt_record_number(counted, "bytes_sent");
    const double expected_messages = dt_record_number(r->start, "messages"),
                 expected = dt_record_number(r->start, "bytes_sent");
    char text[DT_BYTES_TEXT_SIZE], other[DT_BYTES_TEXT_SIZE];
    if (!(messages > 0)) {
        return;
    }
    fprintf(out, "<p>Sent in a step by the busiest rank, counted: %g messages, %s (%.0f bytes)",
            messages, dt_bytes_text(bytes, text), bytes);
    if (isfinite(expected)) {
        const bool same = messages == expected_messages && bytes == expected;
        fprintf(out, "; by the formula %g messages, %s: %s", expected_messages,
                dt_bytes_text(expected, other), same ? "equal" : "NOT equal");
    }
    const double between = dt_record_number(counted, "bytes_between_hosts");
    if (between > 0) {
        fprintf(out, "; between hosts, all ranks together, %s", dt_bytes_text(between, text));
    }
    fputs(".</p>\n", out);
}

static void tell_compression(FILE *out, const struct dt_record *r)
{
    const struct dt_compression_spec *c = &r->config.dist.compression;
    if (c->type != DT_COMPRESSION_NONE) {
        fprintf(
            out,
            "<p>Gradients travel as %s%s: %s bytes for n numbers, which as floats are 4 n.</p>\n",
            dt_compression_names[c->type], c->error_feedback ? " with error feedback" : "",
            dt_compression_formulas[c->type]);
    }
}

static void draw_staleness(FILE *out, const struct dt_record *r)
{
    uint64_t counts[DT_STALENESS_BINS] = {0};
    int n = 0;
    double all = 0, sum = 0;
    const cJSON *item =
        cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(r->last_epoch, "staleness"), 0);
    for (; item != NULL && n < DT_STALENESS_BINS; item = item->next, n++) {
        const double count =
            cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 1e15
                ? item->valuedouble
                : 0;
        counts[n] = (uint64_t)count;
        all += count;
        sum += n * count;
    }
    if (!(all > 0)) {
        return;
    }
    fprintf(out,
            "<div class=\"card narrow\"><h3>Staleness of gradients, in steps</h3><p>Mean %.2f, "
            "most %d: steps that others had taken since the weights were read.</p>\n",
            sum / all, n - 1);
    dt_histogram_draw(out, "how many gradients were so many steps old", n, counts);
    fputs("<details><summary>Numbers</summary><table><thead><tr><th>steps<th>gradients</"
          "thead><tbody>\n",
          out);
    for (int i = 0; i < n; i++) {
        fprintf(out, "<tr><td>%d<td>%llu\n", i, (unsigned long long)counts[i]);
    }
    fputs("</tbody></table></details></div>\n", out);
}

static void draw_times(FILE *out, const struct dt_record *r, struct times *t)
{
    fputs("<div class=\"card\">\n", out);
    if (t->n > MAX_BARS) {
        sort(t);
    }
    draw_bars(out, t);
    put_numbers(out, t);
    fputs("</div>\n", out);
    sort(t);
    tell_slowest(out, r, t);
    tell_communication(out, t);
}

void dt_run_time_draw(FILE *out, const struct dt_record *r)
{
    struct times times;
    find_times(r, &times);
    if (times.largest > 0 || dt_record_number(r->last_epoch, "messages") > 0) {
        fputs("<h2 class=\"part\">Where the time went</h2>\n", out);
    }
    if (times.ranks != NULL && times.largest > 0) {
        draw_times(out, r, &times);
    }
    free(times.ranks);
    tell_traffic(out, r);
    tell_compression(out, r);
    draw_staleness(out, r);
}
