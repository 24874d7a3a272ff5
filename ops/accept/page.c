/* The page: which check passed on which host, what was measured there, and the links between the
 * ranks as maps. */
#include "report/page/page.h"

#include <math.h>
#include <stdio.h>

#include "ops/accept/outcome.h"
#include "report/page/drawing.h"

static const char *class_of(enum dt_accept_verdict verdict)
{
    return verdict == DT_ACCEPT_FAIL ? "fail" : verdict == DT_ACCEPT_PASS ? "pass" : "open";
}

/* A check on a host, with the value of its slowest rank. */
static void put_cell(FILE *out, const struct dt_acceptance *a, int i, int rank)
{
    const int n = a->world->size;
    const enum dt_accept_verdict verdict = dt_accept_host_verdict(a, i, rank);
    double least = (double)NAN;
    for (int r = 0; r < n; r++) {
        if (dt_facts_same_host(&a->ranks[r], &a->ranks[rank])) {
            least = fmin(least, a->all_cells[i * n + r].value);
        }
    }
    fprintf(out, "<td class=\"%s\">%s", class_of(verdict),
            verdict == DT_ACCEPT_FAIL ? dt_accept_verdicts[verdict].word
                                      : dt_accept_verdicts[verdict].mark);
    if (isfinite(least)) {
        fprintf(out, "<small>%.3g %s</small>", least, a->rows[i].unit);
    }
}

static void put_grid(FILE *out, const struct dt_acceptance *a)
{
    fputs("<h2 class=\"part\">Hosts and checks</h2>\n"
          "<p>\u2713 passed, \u25cb measured, with nothing to compare with, \u2013 skipped. "
          "Figures are those of a host's slowest rank.</p>\n"
          "<div class=\"wide\"><table class=\"grid-table\"><thead><tr><th>host",
          out);
    for (int i = 0; i < a->n_done; i++) {
        fprintf(out, "<th>%s", dt_accept_checks[i].name);
    }
    fputs("</thead><tbody>\n", out);
    for (int r = 0; r < a->world->size; r++) {
        if (dt_facts_is_first(a->ranks, r)) {
            fputs("<tr><td>", out);
            dt_page_text(out, a->ranks[r].host);
            for (int i = 0; i < a->n_done; i++) {
                put_cell(out, a, i, r);
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

static void put_rows(FILE *out, const struct dt_acceptance *a)
{
    fputs("<h2 class=\"part\">Results</h2>\n<div class=\"wide\"><table "
          "class=\"rows\"><thead><tr><th>check<th>verdict<th>time<th>result</thead><tbody>\n",
          out);
    for (int i = 0; i < a->n_done; i++) {
        const struct dt_accept_row *row = &a->rows[i];
        fprintf(out, "<tr><td>%s<td class=\"%s\">%s<td>%.1f s<td>", dt_accept_checks[i].name,
                class_of(row->verdict), dt_accept_verdicts[row->verdict].word, a->seconds[i]);
        dt_page_text(out, row->text);
        if (i == DT_ACCEPT_NUMBER_doctor) {
            put_warnings(out, a);
        }
        fputs("<small>", out);
        dt_page_text(out, dt_accept_checks[i].meaning);
        fputs("</small>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

static const char *name_of(const void *context, int rank)
{
    return ((const struct dt_acceptance *)context)->ranks[rank].host;
}

static void put_links(FILE *out, const struct dt_acceptance *a)
{
    struct dt_heat_map map = {.title = "Bandwidth between ranks",
                              .unit = "GB/s",
                              .n = a->links.n,
                              .values = a->links.bandwidth_gbs,
                              .name = name_of,
                              .context = a,
                              .odd = DT_ACCEPT_BEHIND};
    if (map.n < 2) {
        return;
    }
    fputs("<h2 class=\"part\">Links</h2>\n", out);
    if (a->rows[DT_ACCEPT_NUMBER_links].verdict != DT_ACCEPT_FAIL) {
        fputs("<p>A framed pair is worth a look, and no failure: the check compares hosts, each by "
              "its best link to another.</p>\n",
              out);
    }
    fputs("<div class=\"cards\">\n", out);
    dt_heat_map_draw(out, &map);
    map.title = "Latency between ranks";
    map.unit = "us";
    map.values = a->links.latency_us;
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
    const struct dt_acceptance *a = context;
    const enum dt_accept_verdict verdict = dt_accept_verdict(a->counts[DT_ACCEPT_FAIL] == 0);
    const int n = a->world->size, n_hosts = a->world->comm->n_hosts;
    char sum[96];
    dt_accept_sum_text(a, sum, sizeof sum);
    fprintf(out, "<h1>dtrain accept: <span class=\"%s\">%s</span></h1>\n", class_of(verdict),
            dt_accept_verdicts[verdict].word);
    fprintf(out, "<p>Of the checks %s, on %d rank%s of %d host%s, %s.</p>\n", sum, n,
            n == 1 ? "" : "s", n_hosts, n_hosts == 1 ? "" : "s", a->date);
    put_grid(out, a);
    put_rows(out, a);
    put_links(out, a);
    put_record(out, a);
}

enum dt_status dt_accept_write_page(const char *path, const struct dt_acceptance *a)
{
    return dt_page_write(
        path, &(struct dt_page){
                  .title = "dtrain accept", .class = "accept", .body = put_body, .context = a});
}
