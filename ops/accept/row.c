/* Shared by the checks: blame, memory and exchanges, and hosts that are far slower than the others.
 */
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "ops/accept/accept.h"
#include "ops/measure.h"

void dt_accept_fail(struct dt_acceptance *a, struct dt_finding *row, int rank, bool whole_host,
                    const char *format, ...)
{
    va_list args;
    for (int r = 0; r < a->world->size; r++) {
        a->cells[r].failed |=
            r == rank || (whole_host && dt_probe_same_host(&a->ranks[r], &a->ranks[rank]));
    }
    if (row->verdict != DT_VERDICT_FAIL) {
        row->verdict = DT_VERDICT_FAIL;
        va_start(args, format);
        vsnprintf(row->text, sizeof row->text, format, args);
        va_end(args);
    }
}

enum dt_status dt_accept_alloc(struct dt_acceptance *a, size_t n, size_t n_bytes, const char *what,
                               void **out)
{
    assert(a->n_memory < DT_ACCEPT_MEMORY);
    DT_TRY(dt_world_alloc(a->world, n, n_bytes, what, out));
    a->memory[a->n_memory++] = *out;
    return DT_OK;
}

enum dt_status dt_accept_gather(struct dt_acceptance *a, const void *mine, size_t n_bytes,
                                const char *what, void **out)
{
    snprintf(a->exchange, sizeof a->exchange, "exchange of %s", what);
    DT_TRY(dt_accept_alloc(a, (size_t)a->world->size, n_bytes, what, out));
    return dt_comm_allgather(a->world->comm, mine, *out, n_bytes, a->exchange);
}

enum dt_status dt_accept_backend_open(const struct dt_acceptance *a, struct dt_backend **out)
{
    const struct dt_backend_options options = {.n_threads = 1, .local_rank = a->world->local_rank};
    return a->device.backend->open(&options, out);
}

/* ---- which host or rank is far behind the others */

/* The best of the ranks on r's host. */
static double best_of_host(const double *values, const struct dt_rank_probe *ranks, int n, int r)
{
    double best = 0;
    for (int i = 0; i < n; i++) {
        best = dt_probe_same_host(&ranks[i], &ranks[r]) ? fmax(best, values[i]) : best;
    }
    return best;
}

struct dt_behind dt_accept_behind(const double *values, const struct dt_rank_probe *ranks, int n,
                                  bool by_rank)
{
    struct dt_behind out = {.least = INFINITY, .share = 1};
    double *sorted = calloc((size_t)n, sizeof *sorted);
    for (int r = 0; r < n && sorted != NULL; r++) {
        const double best = by_rank ? values[r] : best_of_host(values, ranks, n, r);
        if (best > 0 && (by_rank || dt_probe_is_first(ranks, r))) {
            out.rank = best < out.least ? r : out.rank;
            out.least = fmin(out.least, best);
            sorted[out.n_compared++] = best;
        }
    }
    if (out.n_compared > 0) {
        (void)dt_measure_median(sorted, out.n_compared); /* sorts */
        out.median = sorted[out.n_compared / 2];
        out.share = out.least / out.median;
    }
    if (out.n_compared >= DT_ACCEPT_LEAST_COMPARED && out.share < DT_ACCEPT_BEHIND) {
        out.host = ranks[out.rank].host;
    }
    free(sorted);
    return out;
}

void dt_accept_leave_out(struct dt_finding *row, const char *what, const char *host)
{
    snprintf(row->hint, sizeof row->hint, "leave %s out: mpirun -hosts, sbatch -x %s", what, host);
}

void dt_accept_compare(struct dt_acceptance *a, int figure, const double *values, bool by_rank,
                       struct dt_finding *row)
{
    const int n = a->world->size;
    const struct dt_accept_figure *f = &dt_accept_figures[figure];
    const char *of = by_rank ? "rank" : "host";
    double least = INFINITY, most = 0;
    for (int r = 0; r < n; r++) {
        a->cells[r].value = values[r];
        least = fmin(least, values[r]);
        most = fmax(most, values[r]);
    }
    const struct dt_behind b = dt_accept_behind(values, a->ranks, n, by_rank);
    const bool compared = b.n_compared >= DT_ACCEPT_LEAST_COMPARED;
    a->figures[figure] = b.least;
    snprintf(a->alone, sizeof a->alone, "%d %s%s", b.n_compared, of, b.n_compared == 1 ? "" : "s");
    if (b.host == NULL) {
        *row = dt_find(compared ? DT_VERDICT_PASS : DT_VERDICT_MEASURED, NULL,
                       "%.1f to %.1f %s a rank", least, most, f->unit);
        return;
    }
    char rank[DT_HOST_SIZE + 24];
    snprintf(rank, sizeof rank, "rank %d (%s)", b.rank, b.host);
    dt_accept_fail(a, row, b.rank, !by_rank, "%s: %.3g %s, %.0f %% below the median of the %ss",
                   by_rank ? rank : b.host, b.least, f->unit, 100 * (1 - b.share), of);
    dt_accept_leave_out(row, by_rank ? "its host" : "it", b.host);
}
