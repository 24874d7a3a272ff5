/* Messages there and back between any two ranks, pairs that share no rank at the same time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/commands/accept/rows.h"
#include "dist/ranks/wire.h"

#define N_SMALL 50
#define N_LARGE 5
#define LARGE_BYTES ((size_t)1 << 20)
#define TAG 0x4C4B /* of messages that meet no others */
#define MAX_RANKS 128

/* A pair at it, seen from one of the two. */
struct pair {
    struct dt_wire *wire;
    int peer;
    bool asks; /* and so times */
    int n_left;
    size_t n_bytes;
    char *bytes;
    struct dt_wire_request in, out;
    bool sending;
    double begin_s, best_s;
};

static enum dt_status receive(struct pair *p)
{
    p->sending = false;
    return dt_wire_receive(p->wire, p->peer, TAG, p->bytes, p->n_bytes, &p->in);
}

static enum dt_status send(struct pair *p)
{
    p->sending = true;
    return dt_wire_send(p->wire, p->peer, TAG, p->bytes, p->n_bytes, &p->out);
}

static enum dt_status begin_round(struct pair *p)
{
    p->begin_s = dt_clock_s();
    return p->asks ? send(p) : receive(p);
}

/* A dt_request.progress. */
static enum dt_status progress(struct dt_request *request, bool *done)
{
    struct pair *p = request->handle;
    bool arrived;
    *done = p->n_left == 0;
    if (*done) {
        return DT_OK;
    }
    DT_TRY(dt_wire_test(p->wire, p->sending ? &p->out : &p->in, &arrived));
    if (!arrived) {
        return DT_OK;
    }
    if (p->sending == p->asks) { /* half of the way */
        return p->asks ? receive(p) : send(p);
    }
    p->best_s = fmin(p->best_s, dt_clock_s() - p->begin_s);
    *done = --p->n_left == 0;
    return *done ? DT_OK : begin_round(p);
}

/* Every rank calls it; one without a peer only waits. The best time there and back. */
static enum dt_status exchange(struct dt_comm *comm, struct pair *p, size_t n_bytes, int n_rounds, double *best_s)
{
    struct dt_request request;
    p->n_bytes = n_bytes;
    p->n_left = p->peer >= 0 ? n_rounds : 0;
    p->best_s = INFINITY;
    DT_TRY(p->n_left > 0 ? begin_round(p) : DT_OK);
    dt_comm_request_begin(comm, "messages between two ranks", &request);
    request.handle = p;
    request.progress = progress;
    DT_TRY(dt_comm_wait(comm, &request));
    *best_s = p->best_s;
    return dt_comm_barrier(comm, "barrier between pairs of ranks");
}

/* Round `round` of n - 1, n even: who meets rank r. One stays, the others go round (a round-robin tournament). */
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

/* Of each pair, by rank of the smaller and larger number: latency in seconds, one way, and bytes a second. */
struct links {
    int n;
    double *latency, *bandwidth;
};

static enum dt_status measure(struct dt_comm *comm, struct pair *p, struct links *links)
{
    const int n = comm->size, even = n + n % 2;
    for (int round = 0; round < even - 1; round++) {
        double small_s, large_s;
        const int peer = peer_of(comm->rank, even, round);
        p->peer = peer < n ? peer : -1;
        p->asks = comm->rank < peer;
        DT_TRY(exchange(comm, p, 8, N_SMALL, &small_s));
        DT_TRY(exchange(comm, p, LARGE_BYTES, N_LARGE, &large_s));
        if (p->peer >= 0 && p->asks) {
            links->latency[comm->rank * n + peer] = small_s / 2;
            links->bandwidth[comm->rank * n + peer] = 2 * (double)LARGE_BYTES / large_s;
        }
    }
    DT_TRY(dt_comm_allreduce(comm, links->latency, (size_t)n * (size_t)n, DT_TYPE_F64, DT_REDUCE_SUM, "exchange of latencies"));
    return dt_comm_allreduce(comm, links->bandwidth, (size_t)n * (size_t)n, DT_TYPE_F64, DT_REDUCE_SUM, "exchange of bandwidths");
}

static double link_of(const double *matrix, int n, int a, int b)
{
    return a < b ? matrix[a * n + b] : matrix[b * n + a];
}

/* The best bandwidth of a rank to another host; among ranks of one host, to any. */
static double reach(const struct dt_acceptance *a, const struct links *links, int rank)
{
    double best = 0;
    for (int r = 0; r < links->n; r++) {
        const bool elsewhere = a->world->comm->n_hosts == 1 || strcmp(a->hosts[r], a->hosts[rank]) != 0;
        best = r != rank && elsewhere ? fmax(best, link_of(links->bandwidth, links->n, rank, r)) : best;
    }
    return best;
}

static void judge(const struct dt_acceptance *a, const struct links *links, struct dt_accept_row *row)
{
    double values[MAX_RANKS], least_latency = INFINITY, most_latency = 0, least = INFINITY, most = 0;
    for (int r = 0; r < links->n; r++) {
        values[r] = reach(a, links, r);
        for (int i = 0; i < r; i++) {
            const double latency = link_of(links->latency, links->n, i, r), bandwidth = link_of(links->bandwidth, links->n, i, r);
            least_latency = fmin(least_latency, latency);
            most_latency = fmax(most_latency, latency);
            least = fmin(least, bandwidth);
            most = fmax(most, bandwidth);
        }
    }
    const struct dt_behind behind = dt_accept_behind(values, a->hosts, links->n);
    row->passed = behind.host == NULL;
    if (!row->passed) {
        snprintf(row->text, sizeof row->text,
                 "%s: %.3g GB/s, %.0f %% below the median of the hosts (leave it out: mpirun -hosts, sbatch -x %s)", behind.host,
                 1e-9 * behind.share * behind.median, 100 * (1 - behind.share), behind.host);
    } else {
        snprintf(row->text, sizeof row->text, "%d pairs: %.1f to %.1f us, %.2f to %.2f GB/s", links->n * (links->n - 1) / 2,
                 1e6 * least_latency, 1e6 * most_latency, 1e-9 * least, 1e-9 * most);
    }
}

enum dt_status dt_accept_links(struct dt_acceptance *a, struct dt_accept_row *row)
{
    struct dt_comm *comm = a->world->comm;
    const size_t n = (size_t)comm->size;
    struct links links = {.n = comm->size};
    struct pair pair = {.wire = NULL};
    if (comm->size == 1 || comm->size > MAX_RANKS) {
        row->passed = true;
        snprintf(row->text, sizeof row->text, comm->size == 1 ? "one rank: there are none" : "not measured for more than %d ranks",
                 MAX_RANKS);
        return DT_OK;
    }
    enum dt_status s;
    DT_TRY_GOTO(s, dt_world_alloc(a->world, n * n, sizeof(double), "latencies", (void **)&links.latency), done);
    DT_TRY_GOTO(s, dt_world_alloc(a->world, n * n, sizeof(double), "bandwidths", (void **)&links.bandwidth), done);
    DT_TRY_GOTO(s, dt_world_alloc(a->world, LARGE_BYTES, 1, "a message", (void **)&pair.bytes), done);
    DT_TRY_GOTO(s, dt_world_agree(a->world, dt_wire_open_mpi(comm, &pair.wire)), done);
    DT_TRY_GOTO(s, measure(comm, &pair, &links), done);
    judge(a, &links, row);
done:
    dt_wire_close(pair.wire);
    free(pair.bytes);
    free(links.bandwidth);
    free(links.latency);
    return s;
}
