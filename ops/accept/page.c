/* The page: which check passed on which host, what was measured there, and the links between the
 * ranks as maps. */
#include "report/page/page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/accept/outcome.h"
#include "report/page/heat_map.h"

struct page {
    const struct dt_acceptance *a;
    double *latency_us, *bandwidth_gbs; /* of both halves of the matrix */
};

static const char *class_of(enum dt_accept_verdict verdict)
{
    return verdict == DT_ACCEPT_FAIL ? "fail" : verdict == DT_ACCEPT_PASS ? "pass" : "open";
}

/* A check on a host, with the value of its slowest rank. */
static void put_cell(FILE *out, const struct page *p, int i, int rank)
{
    const int n = p->a->world->size;
    const enum dt_accept_verdict verdict = dt_accept_host_verdict(p->a, i, rank);
    double least = (double)NAN;
    for (int r = 0; r < n; r++) {
        if (strcmp(p->a->ranks[r].host, p->a->ranks[rank].host) == 0) {
            least = fmin(least, p->a->all_cells[i * n + r].value);
        }
    }
    fprintf(out, "<td class=\"%s\">%s", class_of(verdict),
            verdict == DT_ACCEPT_FAIL ? dt_accept_verdicts[verdict].word
                                      : dt_accept_verdicts[verdict].mark);
    if (isfinite(least)) {
        fprintf(out, "<small>%.3g %s</small>", least, p->a->rows[i].unit);
    }
}

static void put_grid(FILE *out, const struct page *p)
{
    fputs("<h2 class=\"part\">Hosts and checks</h2>\n"
          "<p>\u2713 passed, \u25cb measured, with nothing to compare with, \u2013 skipped. "
          "Figures are those of a host's slowest rank.</p>\n"
          "<div class=\"wide\"><table class=\"grid-table\"><thead><tr><th>host",
          out);
    for (int i = 0; i < p->a->n_done; i++) {
        fprintf(out, "<th>%s", dt_accept_names[i]);
    }
    fputs("</thead><tbody>\n", out);
    for (int r = 0; r < p->a->world->size; r++) {
        if (dt_facts_is_first(p->a->ranks, r)) {
            fputs("<tr><td>", out);
            dt_page_text(out, p->a->ranks[r].host);
            for (int i = 0; i < p->a->n_done; i++) {
                put_cell(out, p, i, r);
            }
            fputc('\n', out);
        }
    }
    fputs("</tbody></table></div>\n", out);
}

/* Below the row of the doctor. */
static void put_warnings(FILE *out, const struct dt_acceptance *a)
{
    char text[DT_ACCEPT_WARNING_SIZE];
    for (int i = 0; dt_accept_next_warning(a, &i, text);) {
        fputs("<br>warning: ", out);
        dt_page_text(out, text);
    }
}

static void put_rows(FILE *out, const struct page *p)
{
    const struct dt_acceptance *a = p->a;
    fputs("<h2 class=\"part\">Results</h2>\n<div class=\"wide\"><table "
          "class=\"rows\"><thead><tr><th>check<th>verdict<th>time<th>result</thead><tbody>\n",
          out);
    for (int i = 0; i < a->n_done; i++) {
        const struct dt_accept_row *row = &a->rows[i];
        fprintf(out, "<tr><td>%s<td class=\"%s\">%s<td>%.1f s<td>", dt_accept_names[i],
                class_of(row->verdict), dt_accept_verdicts[row->verdict].word, a->seconds[i]);
        dt_page_text(out, row->text);
        if (i == DT_ACCEPT_NUMBER_doctor) {
            put_warnings(out, p->a);
        }
        fputs("<small>", out);
        dt_page_text(out, dt_accept_meanings[i]);
        fputs("</small>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

static const char *name_of(const void *context, int rank)
{
    return ((const struct dt_acceptance *)context)->ranks[rank].host;
}

static void put_links(FILE *out, const struct page *p)
{
    struct dt_heat_map map = {.title = "Bandwidth between ranks",
                              .unit = "GB/s",
                              .n = p->a->links.n,
                              .values = p->bandwidth_gbs,
                              .name = name_of,
                              .context = p->a,
                              .odd = DT_ACCEPT_BEHIND};
    if (map.n < 2) {
        return;
    }
    fputs("<h2 class=\"part\">Links</h2>\n", out);
    if (p->a->rows[DT_ACCEPT_NUMBER_links].verdict != DT_ACCEPT_FAIL) {
        fputs("<p>A framed pair is worth a look, and no failure: the check compares hosts, each by "
              "its best link to another.</p>\n",
              out);
    }
    fputs("<div class=\"cards\">\n", out);
    dt_heat_map_draw(out, &map);
    map.title = "Latency between ranks";
    map.unit = "us";
    map.values = p->latency_us;
    map.less = true;
    map.odd = 2;
    dt_heat_map_draw(out, &map);
    fputs("</div>\n", out);
}

static void put_entry(FILE *out, const char *name, const char *text)
{
    fprintf(out, "<tr><td>%s<td>", name);
    dt_page_text(out, text);
    fputc('\n', out);
}

/* When, where and with what. */
static void put_record(FILE *out, const struct dt_acceptance *a)
{
    fputs("<h2 class=\"part\">Record</h2>\n<div class=\"wide\"><table class=\"record\"><tbody>\n",
          out);
    dt_accept_record_put(a, out, put_entry);
    fputs("</tbody></table></div>\n", out);
}

static void put_body(FILE *out, const void *context)
{
    const struct page *p = context;
    const enum dt_accept_verdict verdict = dt_accept_verdict(p->a->counts[DT_ACCEPT_FAIL] == 0);
    const int n = p->a->world->size, n_hosts = p->a->world->comm->n_hosts;
    char sum[96];
    dt_accept_sum_text(p->a, sum, sizeof sum);
    fprintf(out, "<h1>dtrain accept: <span class=\"%s\">%s</span></h1>\n", class_of(verdict),
            dt_accept_verdicts[verdict].word);
    fprintf(out, "<p>Of the checks %s, on %d rank%s of %d host%s, %s.</p>\n", sum, n,
            n == 1 ? "" : "s", n_hosts, n_hosts == 1 ? "" : "s", p->a->date);
    put_grid(out, p);
    put_rows(out, p);
    put_links(out, p);
    put_record(out, p->a);
}

/* Both halves, in the units that people read. */
static double *unfold(const double *half, int n, double scale)
{
    double *out = calloc((size_t)n * (size_t)n + 1, sizeof *out);
    for (int i = 0; out != NULL && i < n; i++) {
        for (int k = 0; k < n; k++) {
            out[i * n + k] = scale * (i < k ? half[i * n + k] : half[k * n + i]);
        }
    }
    return out;
}

enum dt_status dt_accept_write_page(const char *path, const struct dt_acceptance *a)
{
    const struct dt_accept_links *links = &a->links;
    struct page p = {.a = a,
                     .latency_us = unfold(links->latency, links->n, 1e6),
                     .bandwidth_gbs = unfold(links->bandwidth, links->n, 1e-9)};
    const struct dt_page page = {
        .title = "dtrain accept", .class = "accept", .body = put_body, .context = &p};
    const enum dt_status s = p.latency_us != NULL && p.bandwidth_gbs != NULL
                                 ? dt_page_write(path, &page)
                                 : dt_error(DT_NO_MEMORY, "no memory for %.200s", path);
    free(p.latency_us);
    free(p.bandwidth_gbs);
    return s;
}
