#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ops/accept/rows.h"
#include "ops/measure.h"

/* The best of the ranks on r's host. */
static double best_of_host(const double *values, const struct dt_rank_facts *ranks, int n, int r)
{
    double best = 0;
    for (int i = 0; i < n; i++) {
        if (dt_facts_same_host(&ranks[i], &ranks[r])) {
            best = fmax(best, values[i]);
        }
    }
    return best;
}

struct dt_behind dt_accept_behind(const double *values, const struct dt_rank_facts *ranks, int n,
                                  bool by_rank)
{
    struct dt_behind out = {.host = NULL, .share = 1};
    double *sorted = calloc((size_t)n, sizeof *sorted);
    int n_sorted = 0;
    double least = 0;
    for (int r = 0; r < n && sorted != NULL; r++) {
        const double best = by_rank ? values[r] : best_of_host(values, ranks, n, r);
        if (best > 0 && (by_rank || dt_facts_is_first(ranks, r))) {
            out.rank = n_sorted == 0 || best < least ? r : out.rank;
            least = n_sorted == 0 || best < least ? best : least;
            sorted[n_sorted++] = best;
        }
    }
    if (n_sorted > 0) {
        (void)dt_measure_median(sorted, n_sorted); /* sorts */
        out.median = sorted[n_sorted / 2];
        out.share = least / out.median;
        out.host = n_sorted >= DT_ACCEPT_LEAST_COMPARED && out.share < DT_ACCEPT_BEHIND
                       ? ranks[out.rank].host
                       : NULL;
    }
    free(sorted);
    out.n_compared = n_sorted;
    return out;
}

void dt_accept_compare(struct dt_acceptance *a, const struct dt_accept_measured *m,
                       struct dt_accept_row *row)
{
    const int n = a->world->size;
    double least = INFINITY, most = 0;
    for (int r = 0; r < n; r++) {
        a->cells[r].value = m->values[r];
        least = fmin(least, m->values[r]);
        most = fmax(most, m->values[r]);
    }
    const struct dt_behind b = dt_accept_behind(m->values, a->ranks, n, m->by_rank);
    const bool compared = b.n_compared >= DT_ACCEPT_LEAST_COMPARED;
    snprintf(row->alone, sizeof row->alone, "%d %s%s", b.n_compared, m->by_rank ? "rank" : "host",
             b.n_compared == 1 ? "" : "s");
    snprintf(row->unit, sizeof row->unit, "%s", m->unit);
    row->figures[0].value = b.share * b.median;
    snprintf(row->figures[0].name, sizeof row->figures[0].name, "%s", m->figure);
    if (b.host == NULL) {
        dt_accept_say(row, compared ? DT_ACCEPT_PASS : DT_ACCEPT_MEASURED, "%.1f to %.1f %s a rank",
                      least, most, m->unit);
        return;
    }
    char name[DT_HOST_SIZE + 24];
    snprintf(name, sizeof name, "rank %d (%s)", b.rank, b.host);
    dt_accept_fail(a, row, b.rank, !m->by_rank,
                   "%s: %.3g %s, %.0f %% below the median of the %ss (leave %s out: mpirun -hosts, "
                   "sbatch -x %s)",
                   m->by_rank ? name : b.host, b.share * b.median, m->unit, 100 * (1 - b.share),
                   m->by_rank ? "rank" : "host", m->by_rank ? "its host" : "it", b.host);
}
