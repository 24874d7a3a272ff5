#include <stdlib.h>
#include <string.h>

#include "cli/commands/accept/rows.h"

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The best of the ranks on r's host; 0 where an earlier rank has told it. */
static double best_of_host(const double *values, char (*const hosts)[DT_HOST_SIZE], int n, int r)
{
    double best = 0;
    for (int i = 0; i < n; i++) {
        const bool same = strcmp(hosts[i], hosts[r]) == 0;
        if (same && i < r) {
            return 0;
        }
        best = same && values[i] > best ? values[i] : best;
    }
    return best;
}

struct dt_behind dt_accept_behind(const double *values, char (*const hosts)[DT_HOST_SIZE], int n)
{
    struct dt_behind out = {.host = NULL, .share = 1};
    double *sorted = calloc((size_t)n, sizeof *sorted);
    int n_hosts = 0, worst = 0;
    double least = 0;
    for (int r = 0; r < n && sorted != NULL; r++) {
        const double best = best_of_host(values, hosts, n, r);
        if (best > 0) {
            worst = n_hosts == 0 || best < least ? r : worst;
            least = n_hosts == 0 || best < least ? best : least;
            sorted[n_hosts++] = best;
        }
    }
    if (n_hosts > 0) {
        qsort(sorted, (size_t)n_hosts, sizeof *sorted, by_value);
        out.median = sorted[n_hosts / 2];
        out.share = least / out.median;
        out.host = n_hosts >= 3 && out.share < DT_ACCEPT_BEHIND ? hosts[worst] : NULL;
    }
    free(sorted);
    return out;
}
