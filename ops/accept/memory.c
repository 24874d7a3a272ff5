/* Memory bandwidth of each rank while all ranks use it: bytes copied per second, counting reads and
 * writes, as STREAM's copy does (McCalpin 1995). */
#include <math.h>
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
    char *from, *to;
    double *rates;
    DT_TRY(dt_accept_alloc(a, N_BYTES, 1, "a copy of memory", (void **)&from));
    DT_TRY(dt_accept_alloc(a, N_BYTES, 1, "a copy of memory", (void **)&to));
    const double mine = copy_rate(from, to, a->measure_s);
    DT_TRY(dt_accept_gather(a, &mine, sizeof mine, "memory bandwidths", (void **)&rates));
    dt_accept_compare(
        a, &(struct dt_accept_measured){.values = rates, .unit = "GB/s", .figure = "bandwidth_gbs"},
        row);
    return DT_OK;
}
