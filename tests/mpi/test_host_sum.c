/* Sums in shared memory, and between hosts: floats whose order of addition shows in the bits, ranks
 * that come early and late, and one that does not. */
#include <math.h>
#include <sched.h>
#include <sys/resource.h>

#include "tests/lib/rig.h"

#include "dist/allreduce/host_sum.h"
#include "dist/launch/job.h"
#include "dist/ranks/comm_private.h"

enum { N_ELEMS = 100003, N_RANGES = 5, N_ROUNDS = 40 };
/* Ranges of one element, of none, below a piece, and of many pieces that do not divide it. */
static const size_t ends[N_RANGES] = {1, 1, 5000, 40000, N_ELEMS};

/* Numbers of very different size, so that another order gives another sum. */
static float value_of(int rank, int round, size_t i)
{
    static const float sizes[] = {1e-3f, 1e4f, 1.0f, 3e-2f, 1e3f};
    const uint32_t mixed =
        ((uint32_t)i * 2654435761u) ^ ((uint32_t)(rank * 977 + round * 131) * 40503u);
    return ((float)(mixed % 20011) - 10005.0f) * sizes[(i + (size_t)rank * 3) % 5];
}

static int32_t host_roots[16]; /* of each rank: the first rank of its host */

/* In rank order inside a host, then from host to host. */
static float sum_of(const struct dt_comm *comm, int round, size_t i)
{
    float sum = 0;
    for (int root = 0; root < comm->size; root++) {
        float host = 0;
        for (int rank = root; rank < comm->size; rank++) {
            host += host_roots[rank] == root ? value_of(rank, round, i) : 0;
        }
        sum += host;
    }
    return sum;
}

/* How far a sum may be off: more than two hosts are added in an order of MPI's. */
static float slack_of(const struct dt_comm *comm, int round, size_t i)
{
    float sizes = 0;
    for (int rank = 0; rank < comm->size && comm->n_hosts > 2; rank++) {
        sizes += fabsf(value_of(rank, round, i));
    }
    return sizes * 0x1p-23f;
}

/* Different on every rank and in every round. */
static void dawdle(const struct dt_comm *comm, int round)
{
    for (int k = 0; k < (comm->rank * 5 + round * 3) % 7; k++) {
        sched_yield();
    }
}

static void fill(struct dt_host_sum *sum, int rank, int round)
{
    for (size_t i = 0; i < N_ELEMS; i++) {
        sum->part[i] = value_of(rank, round, i);
    }
}

static void check_total(const struct dt_host_sum *sum, size_t begin, size_t end, int round)
{
    for (size_t i = begin; i < end; i++) {
        const float expected = sum_of(sum->comm, round, i);
        CHECK_MESSAGE(fabsf(sum->total[i] - expected) <= slack_of(sum->comm, round, i),
                      "round %d: total %zu is %.9g, expected %.9g", round, i, (double)sum->total[i],
                      (double)expected);
    }
}

/* All ranges at once, finished in another order than started; the part changes the moment its own
 * range is done. */
static void test_rounds(struct dt_comm *comm, struct dt_host_sum *sum)
{
    for (int round = 0; round < N_ROUNDS; round++) {
        struct dt_request requests[N_RANGES];
        fill(sum, comm->rank, round);
        for (int k = 0; k < N_RANGES; k++) {
            dawdle(comm, round + k);
            dt_host_sum_start(sum, k, k == 0 ? 0 : ends[k - 1], ends[k], "range of the test",
                              &requests[k]);
        }
        for (int k = N_RANGES - 1; k >= 0; k--) {
            const size_t begin = k == 0 ? 0 : ends[k - 1];
            bool done;
            CHECK_OK(dt_comm_test(comm, &requests[k], &done));
            CHECK_OK(dt_comm_wait(comm, &requests[k]));
            CHECK_OK(dt_comm_wait(comm, &requests[k])); /* once more does no harm */
            for (size_t i = begin; i < ends[k]; i++) {
                sum->part[i] = -1;
            }
            dawdle(comm, round);
            check_total(sum, begin, ends[k], round);
        }
    }
}

/* The same numbers again give the same bits, and so they do on every rank. */
static void test_same_bits(struct dt_comm *comm, struct dt_host_sum *sum)
{
    static float first[N_ELEMS];
    for (int again = 0; again < 3; again++) {
        struct dt_request request;
        fill(sum, comm->rank, 0);
        dawdle(comm, again);
        dt_host_sum_start(sum, 0, 0, N_ELEMS, "the same once more", &request);
        CHECK_OK(dt_comm_wait(comm, &request));
        if (again == 0) {
            memcpy(first, sum->total, sizeof first);
            CHECK_OK(dt_comm_broadcast(comm, first, sizeof first, 0, "the bits of rank 0"));
        }
        CHECK(memcmp(first, sum->total, sizeof first) == 0);
    }
}

struct used {
    struct dt_host_sum *sum;
    size_t n_elems;
    int round;
};

static enum dt_status use(void *context, size_t begin, size_t end, const float *sums)
{
    struct used *used = context;
    for (size_t i = begin; i < end; i++) {
        CHECK_MESSAGE(sums[i - begin] == sum_of(used->sum->comm, used->round, i),
                      "round %d: sum %zu is %.9g", used->round, i, (double)sums[i - begin]);
        used->sum->total[i] += 1; /* by one rank alone */
    }
    used->n_elems += end - begin;
    return DT_OK;
}

/* Sums that are used at once: each by one rank of the host, and all of them before any rank goes
 * on. */
static void test_used(struct dt_comm *comm, struct dt_host_sum *sum)
{
    struct used used = {.sum = sum};
    if (comm->n_hosts > 1) {
        return;
    }
    CHECK_OK(dt_comm_barrier(comm, "all have read the totals before"));
    if (comm->rank == 0) {
        memset(sum->total, 0, N_ELEMS * sizeof *sum->total);
    }
    CHECK_OK(dt_comm_barrier(comm, "no sum is under way"));
    sum->use = use;
    sum->use_context = &used;
    for (used.round = 0; used.round < N_ROUNDS; used.round++) {
        struct dt_request requests[N_RANGES];
        fill(sum, comm->rank, used.round);
        for (int k = 0; k < N_RANGES; k++) {
            dawdle(comm, used.round + k);
            dt_host_sum_start(sum, k, k == 0 ? 0 : ends[k - 1], ends[k], "range of the test",
                              &requests[k]);
        }
        for (int k = 0; k < N_RANGES; k++) {
            CHECK_OK(dt_comm_wait(comm, &requests[k]));
        }
        for (size_t i = 0; i < N_ELEMS; i++) {
            CHECK(sum->total[i] == (float)(used.round + 1));
        }
        CHECK_OK(dt_comm_barrier(comm, "all have seen them"));
    }
    double n_all = (double)used.n_elems;
    CHECK_OK(
        dt_comm_allreduce(comm, &n_all, 1, DT_TYPE_F64, DT_REDUCE_SUM, "sum of what was used"));
    CHECK(n_all == (double)N_ELEMS * N_ROUNDS);
    sum->use = NULL;
}

/* NaN and infinity are part of the sum. */
static void test_special(struct dt_comm *comm, struct dt_host_sum *sum)
{
    struct dt_request request;
    const bool last = comm->rank == comm->size - 1;
    sum->part[0] = last ? NAN : 1;
    sum->part[1] = last ? INFINITY : 1;
    sum->part[2] = comm->rank == 0 ? INFINITY : last ? -INFINITY : 1;
    dt_host_sum_start(sum, 7, 0, 3, "special numbers", &request);
    CHECK_OK(dt_comm_wait(comm, &request));
    CHECK(isnan(sum->total[0]) && isinf(sum->total[1]) && isnan(sum->total[2]));
}

static void test_late_rank(struct dt_comm *comm, struct dt_host_sum *sum)
{
    struct dt_request request;
    struct rig_late late = rig_late_begin(comm, "sleep");
    fill(sum, comm->rank, 0);
    dt_host_sum_start(sum, 3, 0, N_ELEMS, "allreduce of the test", &request);
    rig_late_end(&late, &request);
    check_total(sum, 0, N_ELEMS, 0);
}

/* Arrays of several huge pages: every element has a place of its own. */
static void test_large(struct dt_comm *comm)
{
    enum { N_LARGE = 1200007 };
    struct dt_host_sum sum;
    struct dt_request request;
    CHECK_OK(dt_host_sum_open(comm, N_LARGE, &sum));
    for (size_t i = 0; i < N_LARGE + 64; i++) {
        CHECK(sum.part[i] == 0);
        sum.part[i] = (float)(i % 4099);
    }
    dt_host_sum_start(&sum, 9, 0, N_LARGE, "large sum", &request);
    CHECK_OK(dt_comm_wait(comm, &request));
    for (size_t i = 0; i < N_LARGE; i++) {
        CHECK(sum.total[i] == (float)(i % 4099) * (float)comm->size);
    }
    CHECK_OK(dt_comm_barrier(comm, "all have seen the large sum"));
    dt_host_sum_close(&sum);
}

/* A rank that may open no more files cannot reach the memory. Then no rank gets it, and that is no
 * error. */
static void test_refused(struct dt_comm *comm, int refused_rank)
{
    struct dt_host_sum sum;
    struct rlimit before;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    if (comm->rank == refused_rank) {
        const struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    }
    CHECK_OK(dt_host_sum_open(comm, N_ELEMS, &sum));
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(sum.part == NULL && sum.total == NULL);
    dt_host_sum_close(&sum);
}

/* Where each rank is alone on its host there is nothing to share, and nobody is asked. */
static void test_lone_ranks(struct dt_comm *comm)
{
    struct dt_host_sum sum;
    const int n_hosts = comm->n_hosts;
    const uint64_t n_before = comm->private->n_started;
    comm->n_hosts = comm->size;
    CHECK_OK(dt_host_sum_open(comm, N_ELEMS, &sum));
    CHECK(sum.part == NULL && sum.total == NULL);
    CHECK_INT(comm->private->n_started, n_before);
    comm->n_hosts = n_hosts;
}

static size_t piece_begins[64];
static int n_noted;

static enum dt_status note_piece(void *context, size_t begin, size_t end, const float *sums)
{
    (void)context;
    (void)end;
    (void)sums;
    piece_begins[n_noted++] = begin;
    return DT_OK;
}

/* The sum that a rank waits for is added first, and done before the older one: seen by rank 0,
 * which adds all of the younger while the others wait. */
static void test_asked_first(struct dt_comm *comm, struct dt_host_sum *sum)
{
    struct dt_request requests[2];
    if (comm->n_hosts > 1) {
        return;
    }
    CHECK_OK(dt_comm_barrier(comm, "no sum is under way"));
    sum->use = note_piece;
    dt_host_sum_start(sum, 0, ends[2], ends[3], "the older range", &requests[0]);
    dt_host_sum_start(sum, 1, ends[3], N_ELEMS, "the younger range", &requests[1]);
    CHECK_OK(dt_comm_barrier(comm, "all have begun both"));
    if (comm->rank == 0) {
        for (bool done = false; !done;) { /* its wait is below: all ranks have the same */
            CHECK_OK(dt_comm_test(comm, &requests[1], &done));
        }
        CHECK_INT(n_noted, 8);
        for (int i = 0; i < n_noted; i++) {
            CHECK(piece_begins[i] >= ends[3]);
        }
    }
    CHECK_OK(dt_comm_barrier(comm, "the younger is added"));
    CHECK_OK(dt_comm_wait(comm, &requests[1]));
    CHECK_OK(dt_comm_wait(comm, &requests[0]));
    sum->use = NULL;
}

int main(void)
{
    struct dt_world world;
    struct dt_host_sum sum;
    CHECK_OK(dt_world_open(&world));
    struct dt_comm *comm = world.comm;
    CHECK_OK(dt_host_sum_open(comm, N_ELEMS, &sum));
    if (comm->n_hosts == comm->size) {
        CHECK(sum.part == NULL);
        dt_world_exit(&world, DT_OK, true);
    }
    const int32_t host_root = comm->host_root;
    CHECK_OK(dt_comm_allgather(comm, &host_root, host_roots, sizeof host_root,
                               "which host each rank is on"));
    CHECK(sum.part != NULL && (uintptr_t)sum.part % 64 == 0 && (uintptr_t)sum.total % 64 == 0);
    for (size_t i = 0; i < N_ELEMS + 64; i++) {
        CHECK(sum.part[i] == 0);
    }
    test_rounds(comm, &sum);
    test_same_bits(comm, &sum);
    test_used(comm, &sum);
    test_asked_first(comm, &sum);
    test_special(comm, &sum);
    test_late_rank(comm, &sum);
    dt_host_sum_close(&sum);
    test_large(comm);
    test_refused(comm, 0);
    test_refused(comm, comm->size - 1);
    test_lone_ranks(comm);
    dt_world_exit(&world, DT_OK, true);
}
