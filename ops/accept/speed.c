/* Links, memory and matrix products: measured on every rank, and compared between hosts. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "ops/accept/accept.h"
#include "ops/measure.h"

/* ---- links: pairs without a common rank exchange messages at the same time */

#define MAX_RANKS 128

/* Peer of rank r in round `round` of n - 1, n even. One rank stays, the others rotate (a
 * round-robin tournament). */
static int peer_of(int r, int n, int round)
{
    const int m = n - 1;
    for (int i = 0; r == m && i < m; i++) {
        if (2 * i % m == round) {
            return i;
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
        matrix[i * n + i] = (double)NAN;
        for (int k = i + 1; k < n; k++) {
            matrix[k * n + i] = matrix[i * n + k] *= scale;
        }
    }
    return DT_OK;
}

static enum dt_status measure_links(struct dt_comm *comm, struct dt_measure_link *link,
                                    int n_rounds, struct dt_accept_links *links)
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
            a->world->comm->n_hosts == 1 || !dt_probe_same_host(&a->ranks[r], &a->ranks[rank]);
        best = r != rank && elsewhere ? fmax(best, sign * matrix[rank * a->links.n + r]) : best;
    }
    return sign * best;
}

static void describe_range(const struct dt_accept_links *links, struct dt_finding *row)
{
    double least_us = INFINITY, most_us = 0, least = INFINITY, most = 0;
    for (int i = 0; i < links->n * links->n; i++) { /* fmin leaves out NaN */
        least_us = fmin(least_us, links->latency_us[i]);
        most_us = fmax(most_us, links->latency_us[i]);
        least = fmin(least, links->bandwidth_gbs[i]);
        most = fmax(most, links->bandwidth_gbs[i]);
    }
    snprintf(row->text, sizeof row->text, "%d pair%s: %.1f to %.1f us, %.2f to %.2f GB/s",
             links->n * (links->n - 1) / 2, links->n == 2 ? "" : "s", least_us, most_us, least,
             most);
}

static void judge_links(struct dt_acceptance *a, struct dt_finding *row)
{
    double rates[MAX_RANKS], quick[MAX_RANKS];
    for (int r = 0; r < a->links.n; r++) {
        rates[r] = reach(a, a->links.bandwidth_gbs, r, 1);
        quick[r] = 1 / fmax(reach(a, a->links.latency_us, r, -1), 1e-3);
    }
    dt_accept_compare(a, DT_ACCEPT_FIGURE_LINK_BANDWIDTH, rates, false, row);
    const struct dt_behind late = dt_accept_behind(quick, a->ranks, a->links.n, false);
    a->figures[DT_ACCEPT_FIGURE_LINK_LATENCY] = 1 / late.least;
    if (row->verdict == DT_VERDICT_FAIL) {
        return;
    }
    describe_range(&a->links, row);
    if (late.host != NULL && late.share < DT_ACCEPT_LATE) {
        dt_accept_fail(a, row, late.rank, true,
                       "%s: messages take %.1f us, %.1f times the median of the hosts", late.host,
                       1 / late.least, 1 / late.share);
        dt_accept_leave_out(row, "it", late.host);
    }
}

enum dt_status dt_accept_links(struct dt_acceptance *a, struct dt_finding *row)
{
    const size_t n = (size_t)a->world->size;
    struct dt_measure_link link;
    if (n == 1 || n > MAX_RANKS) {
        *row = dt_find(DT_VERDICT_SKIPPED, NULL,
                       n == 1 ? "one rank: there are none" : "not measured for more than %d ranks",
                       MAX_RANKS);
        return DT_OK;
    }
    DT_TRY(dt_world_alloc(a->world, n * n, sizeof(double), "latencies",
                          (void **)&a->links.latency_us));
    DT_TRY(dt_world_alloc(a->world, n * n, sizeof(double), "bandwidths",
                          (void **)&a->links.bandwidth_gbs));
    DT_TRY(dt_measure_link_open(a->world, &link));
    const enum dt_status s = measure_links(
        a->world->comm, &link, dt_args_has(a->args, DT_OPTION_SHORT) ? 5 : 40, &a->links);
    dt_measure_link_close(&link, s);
    DT_TRY(s);
    a->links.n = a->world->size;
    judge_links(a, row);
    return DT_OK;
}

/* ---- memory, while all ranks use it: bytes copied per second, counting reads and writes, as
 * STREAM's copy does (McCalpin 1995) */

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
        from[i % N_BYTES] = to[N_BYTES - 1 - i % N_BYTES]; /* no copy is the same as another */
        best_s = fmin(best_s, dt_clock_s() - begin_s);
    }
    return 2e-9 * (double)N_BYTES / best_s;
}

enum dt_status dt_accept_memory(struct dt_acceptance *a, struct dt_finding *row)
{
    char *from, *to;
    double *rates;
    DT_TRY(dt_accept_alloc(a, N_BYTES, 1, "a copy of memory", (void **)&from));
    DT_TRY(dt_accept_alloc(a, N_BYTES, 1, "a copy of memory", (void **)&to));
    const double mine = copy_rate(from, to, a->measure_s);
    DT_TRY(dt_accept_gather(a, &mine, sizeof mine, "memory bandwidths", (void **)&rates));
    dt_accept_compare(a, DT_ACCEPT_FIGURE_MEMORY, rates, false, row);
    return DT_OK;
}

/* ---- matrix products, on the training's device: a dense layer forward. Cores are timed by the
 * thread's CPU time, so that sharing them does not count against them. */

#define LEAST_PRODUCTS 5

static double now_s(const struct dt_backend *backend)
{
    return backend->host_memory ? dt_measure_thread_s() : dt_clock_s();
}

/* GFLOP/s of the fastest product of (n / 2, n) and (n, n). */
static enum dt_status time_products(const struct dt_accept_network *p, int n, double measure_s,
                                    double *rate)
{
    const struct dt_pass pass = {.batch = &p->batch};
    const double end_s = dt_clock_s() + measure_s;
    double best_s = INFINITY;
    DT_TRY(p->backend->ops->sync(p->backend));
    for (int i = 0; i < LEAST_PRODUCTS || dt_clock_s() < end_s; i++) {
        const double begin_s = now_s(p->backend);
        DT_TRY(dt_network_forward(p->network, &pass));
        DT_TRY(p->backend->ops->sync(p->backend));
        best_s = fmin(best_s, now_s(p->backend) - begin_s);
    }
    *rate = 1e-9 * n * n * n / best_s; /* an addition and a multiplication for each of n^3 / 2 */
    return DT_OK;
}

enum dt_status dt_accept_compute(struct dt_acceptance *a, struct dt_finding *row)
{
    const bool on_gpu = a->device.module != NULL;
    const int n = on_gpu ? 4096 : 1024;
    const struct dt_model_spec spec = {
        .input = {n, 1, 1},
        .n_layers = 2,
        .layers = {{.type = DT_LAYER_FLATTEN}, {.type = DT_LAYER_DENSE, .size = n}},
        .loss = DT_LOSS_SOFTMAX_CROSS_ENTROPY};
    struct dt_accept_network product = {.backend = NULL};
    double *rates, mine = 0;
    enum dt_status s = dt_world_agree(a->world, dt_accept_network_open(a, &spec, n / 2, &product));
    s = s == DT_OK ? dt_world_agree(a->world, time_products(&product, n, a->measure_s, &mine)) : s;
    dt_accept_network_close(&product);
    DT_TRY(s);
    DT_TRY(dt_accept_gather(a, &mine, sizeof mine, "rates of products", (void **)&rates));
    /* where ranks share cores, a slow rank may be its neighbours' fault */
    const bool share_cores =
        !on_gpu &&
        dt_check_run(DT_CHECK_cores, a->ranks, a->world->size).verdict == DT_VERDICT_WARN;
    dt_accept_compare(a, DT_ACCEPT_FIGURE_COMPUTE, rates, !share_cores, row);
    return DT_OK;
}
