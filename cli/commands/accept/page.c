/* The page: which check passed on which host, what was measured there, and the links between the ranks as maps. */
#include "cli/page/page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/version.h"
#include "cli/commands/accept/outcome.h"
#include "cli/page/heat_map.h"

struct page {
    const struct dt_acceptance *a;
    const struct dt_accept_outcome *outcome;
    double *latency_us, *bandwidth_gbs; /* of both halves of the matrix */
};

static void put_style(FILE *out, const void *context)
{
    (void)context;
    fputs("body{max-width:1280px}.pass{color:var(--c)}.fail{color:#d32f2f;font-weight:600}\n"
          "@media screen and (prefers-color-scheme:dark){.fail{color:#ff7b72}}\n"
          ".grid-table td,.grid-table th{text-align:center}.grid-table td:first-child{text-align:left}"
          "td.fail{background:var(--empty)}\n"
          ".rows td{text-align:left;white-space:normal;vertical-align:top}.rows td:nth-child(4){min-width:16rem;"
          "overflow-wrap:anywhere}.rows th{text-align:left}\n"
          ".rows td:nth-child(3){white-space:nowrap;text-align:right}td small{color:var(--soft);display:block;font-weight:400}\n",
          out);
    dt_heat_map_style(out);
}

static bool is_first_of_host(const struct dt_acceptance *a, int rank)
{
    int r = 0;
    while (strcmp(a->hosts[r], a->hosts[rank]) != 0) {
        r++;
    }
    return r == rank;
}

/* A check on a host: failed where one of its ranks has; the best value of its ranks. */
static void put_cell(FILE *out, const struct page *p, int i, int rank)
{
    const struct dt_accept_row *row = &p->outcome->rows[i];
    const int n = p->a->world->size;
    bool failed = false;
    double best = (double)NAN;
    for (int r = 0; r < n; r++) {
        const struct dt_accept_cell *cell = &p->outcome->cells[i * n + r];
        if (strcmp(p->a->hosts[r], p->a->hosts[rank]) == 0) {
            failed |= cell->failed;
            best = fmax(best, cell->value);
        }
    }
    fputs(failed ? "<td class=\"fail\">FAIL" : "<td class=\"pass\">&#10003;", out);
    if (isfinite(best)) {
        fprintf(out, "<small>%.3g %s</small>", best, row->unit);
    }
}

static void put_grid(FILE *out, const struct page *p)
{
    fputs("<h2 class=\"part\">Hosts and checks</h2>\n<div class=\"wide\"><table class=\"grid-table\"><thead><tr><th>host", out);
    for (int i = 0; i < p->outcome->n_done; i++) {
        fprintf(out, "<th>%s", dt_accept_names[i]);
    }
    fputs("</thead><tbody>\n", out);
    for (int r = 0; r < p->a->world->size; r++) {
        if (is_first_of_host(p->a, r)) {
            fputs("<tr><td>", out);
            dt_page_text(out, p->a->hosts[r]);
            for (int i = 0; i < p->outcome->n_done; i++) {
                put_cell(out, p, i, r);
            }
            fputc('\n', out);
        }
    }
    fputs("</tbody></table></div>\n", out);
}

static void put_rows(FILE *out, const struct dt_accept_outcome *outcome)
{
    fputs(
        "<h2 class=\"part\">What was found</h2>\n<div class=\"wide\"><table class=\"rows\"><thead><tr><th>check<th>verdict<th>time"
        "<th>found</thead><tbody>\n",
        out);
    for (int i = 0; i < outcome->n_done; i++) {
        const struct dt_accept_row *row = &outcome->rows[i];
        fprintf(out, "<tr><td>%s<td class=\"%s\">%s<td>%.1f s<td>", dt_accept_names[i], row->passed ? "pass" : "fail",
                row->passed ? "PASS" : "FAIL", outcome->seconds[i]);
        dt_page_text(out, row->text);
        fputs("<small>", out);
        dt_page_text(out, dt_accept_meanings[i]);
        fputs("</small>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

static const char *name_of(const void *context, int rank)
{
    return ((const struct dt_acceptance *)context)->hosts[rank];
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
    fputs("<h2 class=\"part\">Links</h2>\n<div class=\"cards\">\n", out);
    dt_heat_map_draw(out, &map);
    map.title = "Latency between ranks";
    map.unit = "us";
    map.values = p->latency_us;
    map.less = true;
    map.odd = 2;
    dt_heat_map_draw(out, &map);
    fputs("</div>\n", out);
}

static void put_body(FILE *out, const void *context)
{
    const struct page *p = context;
    const int n = p->a->world->size, n_hosts = p->a->world->comm->n_hosts, n_passed = p->outcome->n_done - p->outcome->n_failed;
    fprintf(out, "<h1>dtrain accept: <span class=\"%s\">%s</span></h1>\n", p->outcome->n_failed == 0 ? "pass" : "fail",
            p->outcome->n_failed == 0 ? "PASS" : "FAIL");
    fprintf(out, "<p>%d of %d checks passed on %d rank%s of %d host%s (%s), with ", n_passed, p->outcome->n_done, n,
            n == 1 ? "" : "s", n_hosts, n_hosts == 1 ? "" : "s", p->a->device.backend->name);
    dt_page_text(out, p->a->ranks[0].mpi);
    fprintf(out, " and dtrain %s.</p>\n", dt_version);
    put_grid(out, p);
    put_rows(out, p->outcome);
    put_links(out, p);
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

enum dt_status dt_accept_write_page(const char *path, const struct dt_acceptance *a, const struct dt_accept_outcome *outcome)
{
    const struct dt_accept_links *links = &a->links;
    struct page p = {.a = a,
                     .outcome = outcome,
                     .latency_us = unfold(links->latency, links->n, 1e6),
                     .bandwidth_gbs = unfold(links->bandwidth, links->n, 1e-9)};
    const struct dt_page page = {.title = "dtrain accept", .style = put_style, .body = put_body, .context = &p};
    const enum dt_status s = p.latency_us != NULL && p.bandwidth_gbs != NULL ? dt_page_write(path, &page)
                                                                             : dt_error(DT_NO_MEMORY, "no memory for %.200s", path);
    free(p.latency_us);
    free(p.bandwidth_gbs);
    return s;
}
