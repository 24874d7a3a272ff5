/* Memory bandwidth of each rank while all of them use it: bytes copied in a second, both ways counted, as STREAM's copy does
 * (McCalpin 1995). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/commands/accept/rows.h"

#define N_BYTES ((size_t)32 << 20) /* beyond the caches that a rank has for itself */
#define N_COPIES 8

static double copy_rate(char *from, char *to)
{
    double best_s = INFINITY;
    memset(from, 1, N_BYTES);
    for (int i = 0; i < N_COPIES; i++) {
        const double begin_s = dt_clock_s();
        memcpy(to, from, N_BYTES);
        from[i] = to[N_BYTES - 1 - (size_t)i]; /* the next copy is not this one */
        best_s = fmin(best_s, dt_clock_s() - begin_s);
    }
    return 2 * (double)N_BYTES / best_s;
}

static void judge(const struct dt_acceptance *a, const double *rates, struct dt_accept_row *row)
{
    const int n = a->world->size;
    double least = INFINITY, most = 0;
    for (int r = 0; r < n; r++) {
        least = fmin(least, rates[r]);
        most = fmax(most, rates[r]);
    }
    const struct dt_behind behind = dt_accept_behind(rates, a->hosts, n);
    row->passed = behind.host == NULL;
    if (row->passed) {
        snprintf(row->text, sizeof row->text, "%.1f to %.1f GB/s a rank", 1e-9 * least, 1e-9 * most);
    } else {
        snprintf(row->text, sizeof row->text,
                 "%s: %.0f %% below the median of the hosts (leave it out: mpirun -hosts, sbatch -x %s)", behind.host,
                 100 * (1 - behind.share), behind.host);
    }
}

enum dt_status dt_accept_memory(struct dt_acceptance *a, struct dt_accept_row *row)
{
    char *from = NULL, *to = NULL;
    double *rates = NULL;
    enum dt_status s;
    DT_TRY_GOTO(s, dt_world_alloc(a->world, N_BYTES, 1, "a copy of memory", (void **)&from), done);
    DT_TRY_GOTO(s, dt_world_alloc(a->world, N_BYTES, 1, "a copy of memory", (void **)&to), done);
    DT_TRY_GOTO(s, dt_world_alloc(a->world, (size_t)a->world->size, sizeof *rates, "rates", (void **)&rates), done);
    const double mine = copy_rate(from, to);
    DT_TRY_GOTO(s, dt_comm_allgather(a->world->comm, &mine, rates, sizeof mine, "exchange of rates"), done);
    judge(a, rates, row);
done:
    free(rates);
    free(to);
    free(from);
    return s;
}
