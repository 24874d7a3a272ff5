/* Sums in shared memory: floats whose order of addition shows in the bits, ranks that come early and late, and one that does not.
 */
#include <math.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>

#include "rig.h"

enum { N_ELEMS = 100003, N_RANGES = 5, N_ROUNDS = 40 };
/* Ranges of one element, of none, below a piece, and of many pieces that do not divide it. */
static const size_t ends[N_RANGES] = {1, 1, 5000, 40000, N_ELEMS};

/* Of very different size, so that another order gives another sum. */
static float value_of(int rank, int round, size_t i)
{
    static const float sizes[] = {1e-3f, 1e4f, 1.0f, 3e-2f, 1e3f};
    const uint32_t mixed = ((uint32_t)i * 2654435761u) ^ ((uint32_t)(rank * 977 + round * 131) * 40503u);
    return ((float)(mixed % 20011) - 10005.0f) * sizes[(i + (size_t)rank * 3) % 5];
}

static float sum_of(int n_ranks, int round, size_t i)
{
    float sum = value_of(0, round, i);
    for (int rank = 1; rank < n_ranks; rank++) {
        sum += value_of(rank, round, i);
    }
    return sum;
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

static void check_total(const struct dt_host_sum *sum, size_t begin, size_t end, int n_ranks, int round)
{
    for (size_t i = begin; i < end; i++) {
        const float expected = sum_of(n_ranks, round, i);
        if (sum->total[i] != expected) {
            CHECK_FAIL("round %d: total %zu is %.9g, expected %.9g", round, i, (double)sum->total[i], (double)expected);
        }
    }
}

/* All ranges at once, finished in another order than started; the part changes the moment its own range is done. */
static void test_rounds(struct dt_comm *comm, struct dt_host_sum *sum)
{
    for (int round = 0; round < N_ROUNDS; round++) {
        struct dt_request requests[N_RANGES];
        fill(sum, comm->rank, round);
        for (int k = 0; k < N_RANGES; k++) {
            dawdle(comm, round + k);
            dt_host_sum_start(sum, k, k == 0 ? 0 : ends[k - 1], ends[k], "range of the test", &requests[k]);
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
            check_total(sum, begin, ends[k], comm->size, round);
        }
    }
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

/* The last rank comes only after the others have given up on it; its name and what it did are in the message. */
static void test_late_rank(struct dt_comm *comm, struct dt_host_sum *sum)
{
    struct dt_request request;
    const int late = comm->size - 1;
    const double usual_timeout_s = comm->timeout_s;
    dt_comm_phase(comm, comm->rank == late ? "sleep" : "step");
    CHECK_OK(dt_comm_barrier(comm, "all know who is late"));
    fill(sum, comm->rank, 0);
    if (comm->rank != late) {
        char who[64];
        comm->timeout_s = 0.5;
        snprintf(who, sizeof who, "rank %d has not arrived; it was last seen ", late);
        dt_host_sum_start(sum, 3, 0, N_ELEMS, "allreduce of the test", &request);
        CHECK_STATUS(dt_comm_wait(comm, &request), DT_STALLED);
        CHECK_HAS(dt_error_text(), "allreduce of the test stalled for ");
        CHECK_HAS(dt_error_text(), who);
        CHECK_HAS(dt_error_text(), "in 'sleep'");
        dt_error_clear();
        comm->timeout_s = usual_timeout_s;
    } else {
        struct timespec pause = {.tv_sec = 2};
        nanosleep(&pause, NULL);
        dt_host_sum_start(sum, 3, 0, N_ELEMS, "allreduce of the test", &request);
    }
    CHECK_OK(dt_comm_wait(comm, &request)); /* a stall is only an opinion: now it goes through */
    check_total(sum, 0, N_ELEMS, comm->size, 0);
}

/* A rank that may open no more files cannot reach the memory. Then no rank gets it, and that is no error. */
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

static void test_several_hosts(struct dt_comm *comm)
{
    struct dt_host_sum sum;
    const int local_size = comm->local_size;
    const uint64_t n_before = comm->n_started;
    comm->local_size = comm->size - 1;
    CHECK_OK(dt_host_sum_open(comm, N_ELEMS, &sum));
    CHECK(sum.part == NULL && sum.total == NULL);
    CHECK_INT(comm->n_started, n_before);
    comm->local_size = local_size;
}

int main(void)
{
    struct dt_world world;
    struct dt_host_sum sum;
    CHECK_OK(dt_world_open(&world));
    struct dt_comm *comm = world.comm;
    CHECK_OK(dt_host_sum_open(comm, N_ELEMS, &sum));
    if (comm->size == 1) {
        CHECK(sum.part == NULL);
        dt_world_exit(&world, DT_OK, true);
    }
    CHECK(sum.part != NULL && (uintptr_t)sum.part % 64 == 0 && (uintptr_t)sum.total % 64 == 0);
    for (size_t i = 0; i < N_ELEMS + 64; i++) {
        CHECK(sum.part[i] == 0);
    }
    test_rounds(comm, &sum);
    test_special(comm, &sum);
    test_late_rank(comm, &sum);
    dt_host_sum_close(&sum);
    test_refused(comm, 0);
    test_refused(comm, comm->size - 1);
    test_several_hosts(comm);
    dt_world_exit(&world, DT_OK, true);
}
