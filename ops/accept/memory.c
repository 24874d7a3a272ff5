/* Memory bandwidth of each rank while all ranks use it: bytes copied per second, counting reads and
 * writes, as STREAM's copy does (McCalpin 1995). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ops/accept/rows.h"

#define N_BYTES ((size_t)32 << 20) /* exceeds a rank's private caches */
#define LEAST_COPIES 4

/* GB/s of the fastest copy. */
static double copy_rate(char *from, char *to, double measure_s)
{
    double best_s = INFINITY;
    const double end_s = dt_clock_s() + measure_s;
    memset(from, 1, N_BYTES);
    for (size_t i = 0; i < LEAST_COPIES || dt_clock_s() < end_s; i++) {
        const double begin_s = dt_clock_s();
        memcpy(to, from, N_BYTES);
        from[i % N_BYTES] =
            to[N_BYTES - 1 - i % N_BYTES]; /* makes the next copy differ from this one */
        best_s = fmin(best_s, dt_clock_s() - begin_s);
    }
    return 2e-9 * (double)N_BYTES / best_s;
}

enum dt_status dt_accept_memory(struct dt_acceptance *a, struct dt_accept_row *row)
{
    char *from = NULL, *to = NULL;
    double *rates = NULL;
    enum dt_status s;
    DT_TRY_GOTO(s, dt_world_alloc(a->world, N_BYTES, 1, "a copy of memory", (void **)&from), done);
    DT_TRY_GOTO(s, dt_world_alloc(a->world, N_BYTES, 1, "a copy of memory", (void **)&to), done);
    DT_TRY_GOTO(
        s,
        dt_world_alloc(a->world, (size_t)a->world->size, sizeof *rates, "rates", (void **)&rates),
        done);
    const double mine = copy_rate(from, to, a->measure_s);
    DT_TRY_GOTO(s,
                dt_comm_allgather(a->world->comm, &mine, rates, sizeof mine,
                                  "exchange of memory bandwidths"),
                done);
    dt_accept_compare(
        a, &(struct dt_accept_measured){.values = rates, .unit = "GB/s", .figure = "bandwidth_gbs"},
        row);
done:
    free(rates);
    free(to);
    free(from);
    return s;
}
