#include <math.h>
#include <stdlib.h>

#include "ops/accept/accept.h"
#include "ops/measure.h"

#define MOST_SHOWN 16 /* ranks whose maps a text has, too */

static void add_figures(struct dt_doc *doc, const struct dt_acceptance *a)
{
    struct dt_part *figures = dt_doc_figures(doc, "Figures");
    dt_doc_caption(figures,
                   "Each is the slowest host's, by its best rank and its best link to another "
                   "host, or the slowest rank's if the check compares ranks.");
    for (int k = 0; k < DT_ACCEPT_FIGURES; k++) {
        const struct dt_accept_figure *f = &dt_accept_figures[k];
        const double bound = dt_accept_bound(a, k);
        dt_doc_figure(figures, dt_doc_print(doc, "%s:%s:%d", f->name, f->unit, f->digits),
                      dt_n(a->figures[k]));
        if (isfinite(bound)) {
            dt_doc_bound(figures, f->less, bound);
        }
    }
}

/* The least value of a check on the ranks of a host. */
static double least_of(const struct dt_acceptance *a, enum dt_accept_number check, int rank)
{
    double least = (double)NAN;
    for (int r = 0; r < a->world->size; r++) {
        if (dt_probe_same_host(&a->ranks[r], &a->ranks[rank])) {
            least = fmin(least, a->all_cells[(int)check * a->world->size + r].value);
        }
    }
    return least;
}

/* "links, memory": the checks that a host has failed. */
static const char *failed_on(struct dt_doc *doc, const struct dt_acceptance *a, int rank)
{
    const char *text = "";
    for (int i = 0; i < a->n_done; i++) {
        bool failed = false;
        for (int r = 0; r < a->world->size; r++) {
            failed |= a->all_cells[i * a->world->size + r].failed &&
                      dt_probe_same_host(&a->ranks[r], &a->ranks[rank]);
        }
        if (failed) {
            text = dt_doc_print(doc, "%s%s%s", text, text[0] != '\0' ? ", " : "", a->rows[i].name);
        }
    }
    return text;
}

static void add_hosts(struct dt_doc *doc, const struct dt_acceptance *a)
{
    const int n = a->world->size;
    struct dt_part *speed =
        dt_doc_table(doc, "Hosts",
                     "host|best link of slowest rank:GB/s:2|memory:GB/s:1|matrix "
                     "products:GFLOP/s:1|failed checks");
    dt_doc_caption(speed, "Of each host's slowest rank: its best link to another host, or with one "
                          "host to another rank; its memory bandwidth; its matrix products.");
    struct dt_part *hardware =
        dt_doc_table(doc, "Hardware", "host|ranks::0|CPUs::0|GPUs::0|kernel|CPU and GPU");
    for (int r = 0; r < n; r++) {
        const struct dt_rank_probe *f = &a->ranks[r];
        int n_gpus = 0;
        for (int i = 0; i < n; i++) {
            n_gpus += a->ranks[i].has_gpu && dt_probe_same_host(&a->ranks[i], f);
        }
        if (dt_probe_is_first(a->ranks, r)) {
            dt_doc_row(speed, dt_t(f->host), dt_n(least_of(a, DT_ACCEPT_links, r)),
                       dt_n(least_of(a, DT_ACCEPT_memory, r)),
                       dt_n(least_of(a, DT_ACCEPT_compute, r)), dt_t(failed_on(doc, a, r)));
            dt_doc_row(hardware, dt_t(f->host), dt_n(dt_probe_on_host(a->ranks, n, r)),
                       dt_n(f->n_host_cpus), dt_n(n_gpus), dt_t(f->kernel),
                       dt_t(dt_doc_print(doc, "%s%s%s", f->cpu,
                                         f->cpu[0] != '\0' && n_gpus > 0 ? ", " : "",
                                         n_gpus > 0 ? f->gpu : "")));
        }
    }
}

/* `odd`: a pair that is so far from the median stands out. */
static void add_map(struct dt_doc *doc, const struct dt_acceptance *a, const char *title,
                    const double *values, double odd)
{
    const int n = a->links.n, n_pairs = n * (n - 1) / 2;
    double *sorted = calloc((size_t)n_pairs, sizeof *sorted);
    const char **names = calloc((size_t)n, sizeof *names);
    struct dt_part *map = dt_doc_grid(doc, title, DT_GRID_MAP, (size_t)n, (size_t)n, values);
    bool outliers = false;
    if (n > MOST_SHOWN) {
        dt_doc_detail(map);
    }
    if (sorted != NULL && names != NULL) {
        for (int r = 0, k = 0; r < n; r++) {
            names[r] = dt_doc_print(doc, "%d %s", r, a->ranks[r].host);
            for (int i = 0; i < r; i++) {
                sorted[k++] = values[i * n + r];
            }
        }
        (void)dt_measure_median(sorted, n_pairs); /* sorts */
        const double median = sorted[n_pairs / 2];
        for (int i = 0; i < n * n; i++) {
            if (odd < 1 ? values[i] < odd * median : values[i] > odd * median) {
                dt_doc_odd(map, (size_t)(i / n), (size_t)(i % n));
                outliers = true;
            }
        }
        if (outliers && a->rows[DT_ACCEPT_links].verdict != DT_VERDICT_FAIL) {
            dt_doc_caption(map, "Framed pairs are outliers, not failures: the check compares "
                                "hosts, each by its best link to another.");
        }
        dt_doc_names(map, "rank|rank", names, a->world->comm->n_hosts > 1 ? names : NULL);
    }
    free(sorted);
    free(names);
}

static void add_links(struct dt_doc *doc, const struct dt_acceptance *a)
{
    if (a->links.n < 2) {
        return;
    }
    add_map(doc, a, "Bandwidth between ranks, GB/s", a->links.bandwidth_gbs, DT_ACCEPT_BEHIND);
    add_map(doc, a, "Latency between ranks, us", a->links.latency_us, 1 / DT_ACCEPT_LATE);
}

static void add_meanings(struct dt_doc *doc)
{
#define ROW(name, meaning) dt_doc_row(table, dt_t(#name), dt_t(meaning));
    struct dt_part *table = dt_doc_table(doc, "What each check requires", "check|passes if");
    dt_doc_detail(table);
    DT_ACCEPT_LIST(ROW)
}

struct dt_doc *dt_accept_document(const struct dt_acceptance *a)
{
    const int n = a->world->size, n_hosts = a->world->comm->n_hosts;
    struct dt_doc *doc = dt_doc_open("accept", "Acceptance of %d rank%s on %d host%s", n,
                                     n == 1 ? "" : "s", n_hosts, n_hosts == 1 ? "" : "s");
    dt_findings_show(doc, a->rows, a->n_done, true, a->n_warnings);
    add_meanings(doc);
    add_figures(doc, a);
    add_hosts(doc, a);
    add_links(doc, a);
    struct dt_part *record = dt_record_show(doc, a->args, a->ranks, n);
    dt_doc_fact(record, "device", "%s", a->device.backend->name);
    dt_doc_figure(record, "ranks per host::0", dt_n(dt_probe_on_host(a->ranks, n, 0)));
    return doc;
}
