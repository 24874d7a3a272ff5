/* Round trips of messages between any two ranks; pairs without a common rank run at the same
 * time. */
#include <math.h>

#include "ops/accept/rows.h"
#include "ops/measure.h"

#define MAX_RANKS 128
#define LATE 0.5 /* of the median's speed; one more switch on the path costs less */

/* Peer of rank r in round `round` of n - 1, n even. One stays, the others rotate (a round-robin
 * tournament). */
static int peer_of(int r, int n, int round)
{
    const int m = n - 1;
    if (r == m) {
        for (int i = 0; i < m; i++) {
            if (2 * i % m == round) {
                return i;
            }
        }
    }
    const int peer = (round - r % m + m) % m;
    return peer == r ? m : peer;
}

/* Gives every rank all numbers, in both halves of the matrix, times `scale`. */
static enum dt_status share(struct dt_comm *comm, double *matrix, double scale, const char *what)
{
    const int n = comm->size;
    DT_TRY(
        dt_comm_allreduce(comm, matrix, (size_t)n * (size_t)n, DT_TYPE_F64, DT_REDUCE_SUM, what));
    for (int i = 0; i < n; i++) {
        for (int k = i + 1; k < n; k++) {
            matrix[k * n + i] = matrix[i * n + k] *= scale;
        }
    }
    return DT_OK;
}

static enum dt_status measure(struct dt_comm *comm, struct dt_measure_link *link, int n_rounds,
                              struct dt_accept_links *links)
{
    const int n = comm->size, even = n + n % 2;
    for (int round = 0; round < even - 1; round++) {
        double small_s, large_s;
        int peer = peer_of(comm->rank, even, round);
        peer = peer < n ? peer : -1;
        DT_TRY(dt_measure_link(link, peer, n_rounds, &small_s, &large_s));
        if (comm->rank < peer) {
            links->latency_us[comm->rank * n + peer] = small_s / 2;
            links->bandwidth_gbs[comm->rank * n + peer] = 2 * (double)DT_MEASURE_LARGE / large_s;
        }
    }
    DT_TRY(share(comm, links->latency_us, 1e6, "exchange of latencies"));
    return share(comm, links->bandwidth_gbs, 1e-9, "exchange of bandwidths");
}

/* A rank's best value to another host; among ranks of one host, to any. sign: -1 where less is
 * better. */
static double reach(const struct dt_acceptance *a, const double *matrix, int rank, double sign)
{
    double best = -INFINITY;
    for (int r = 0; r < a->links.n; r++) {
        const bool elsewhere =
            a->world->comm->n_hosts == 1 || !dt_facts_same_host(&a->ranks[r], &a->ranks[rank]);
        best = r != rank && elsewhere ? fmax(best, sign * matrix[rank * a->links.n + r]) : best;
    }
    return sign * best;
}

static void describe_range(const struct dt_accept_links *links, struct dt_accept_row *row)
{
    double least_us = INFINITY, most_us = 0, least = INFINITY, most = 0;
    for (int r = 0; r < links->n; r++) {
        for (int i = 0; i < r; i++) {
            const double latency_us = links->latency_us[i * links->n + r],
                         bandwidth = links->bandwidth_gbs[i * links->n + r];
            least_us = fmin(least_us, latency_us);
            most_us = fmax(most_us, latency_us);
            least = fmin(least, bandwidth);
            most = fmax(most, bandwidth);
        }
    }
    dt_accept_say(row, row->verdict, "%d pair%s: %.1f to %.1f us, %.2f to %.2f GB/s",
                  links->n * (links->n - 1) / 2, links->n == 2 ? "" : "s", least_us, most_us, least,
                  most);
}

static void judge(struct dt_acceptance *a, struct dt_accept_row *row)
{
    double rates[MAX_RANKS], quick[MAX_RANKS], slowest_us = 0;
    for (int r = 0; r < a->links.n; r++) {
        rates[r] = reach(a, a->links.bandwidth_gbs, r, 1);
        const double latency_us = reach(a, a->links.latency_us, r, -1);
        quick[r] = 1 / fmax(latency_us, 1e-3);
        slowest_us = fmax(slowest_us, latency_us);
    }
    dt_accept_compare(
        a, &(struct dt_accept_measured){.values = rates, .unit = "GB/s", .figure = "bandwidth_gbs"},
        row);
    row->figures[1] =
        (struct dt_accept_figure){.name = "latency_us", .value = slowest_us, .less = true};
    const struct dt_behind late = dt_accept_behind(quick, a->ranks, a->links.n, false);
    if (row->verdict == DT_ACCEPT_FAIL) {
        return;
    }
    describe_range(&a->links, row);
    if (late.host != NULL && late.share < LATE) {
        dt_accept_fail(a, row, late.rank, true,
                       "%s: messages take %.1f us, %.1f times the median of the hosts (leave it "
                       "out: mpirun -hosts, sbatch -x %s)",
                       late.host, 1 / (late.share * late.median), 1 / late.share, late.host);
    }
}

enum dt_status dt_accept_links(struct dt_acceptance *a, struct dt_accept_row *row)
{
    struct dt_comm *comm = a->world->comm;
    const size_t n = (size_t)comm->size;
    struct dt_measure_link link;
    if (comm->size == 1 || comm->size > MAX_RANKS) {
        dt_accept_say(row, DT_ACCEPT_SKIPPED,
                      comm->size == 1 ? "one rank: there are none"
                                      : "not measured for more than %d ranks",
                      MAX_RANKS);
        return DT_OK;
    }
    DT_TRY(dt_world_alloc(a->world, n * n, sizeof(double), "latencies",
                          (void **)&a->links.latency_us));
    DT_TRY(dt_world_alloc(a->world, n * n, sizeof(double), "bandwidths",
                          (void **)&a->links.bandwidth_gbs));
    DT_TRY(dt_measure_link_open(a->world, &link));
    const enum dt_status s =
        measure(comm, &link, dt_args_has(a->args, DT_OPTION_SHORT) ? 5 : 40, &a->links);
    dt_measure_link_close(&link, s);
    DT_TRY(s);
    a->links.n = comm->size;
    judge(a, row);
    return DT_OK;
}
