/* Collectives: sums of whole numbers, which every order of addition must get right to the bit; and
 * a rank that does not come. */
#include <limits.h>
#include <math.h>
#include <stdint.h>

#include "base/clock.h"
#include "dist/launch/job.h"
#include "dist/liveness/clocks.h"
#include "dist/liveness/start_watch.h"
#include "dist/liveness/table.h"
#include "dist/ranks/comm_private.h"
#include "dist/ranks/wire.h"
#include "tests/lib/comm_values.h"
#include "tests/lib/rig.h"

#define MAX_ELEMS 100003
#define N_GUARD 8
#define GUARD_BYTE 0xA5

static const size_t sizes[] = {0, 1, 7, 1000, MAX_ELEMS};
static const enum dt_type types[] = {DT_TYPE_F32, DT_TYPE_F64, DT_TYPE_I32, DT_TYPE_U64};
static unsigned char buffer[(MAX_ELEMS + N_GUARD) * 8], expected[(MAX_ELEMS + N_GUARD) * 8];

static void check_allreduce(struct dt_comm *comm, enum dt_type type, enum dt_reduce op, size_t n)
{
    memset(buffer, GUARD_BYTE, sizeof buffer);
    memset(expected, GUARD_BYTE, sizeof expected);
    const int base = op == DT_REDUCE_SUM || type == DT_TYPE_U64 ? 0 : -30; /* some have a sign */
    for (size_t i = 0; i < n; i++) {
        put_value(buffer, type, op, i, base + value_of(comm->rank, i));
        put_value(expected, type, op, i, base + reduced_value(op, comm->size, i));
    }
    CHECK_OK(dt_comm_allreduce(comm, buffer, n, type, op, "test allreduce"));
    CHECK_MESSAGE(memcmp(buffer, expected, sizeof buffer) == 0,
                  "allreduce of %zu elements, type %d, operation %d, is wrong on rank %d", n,
                  (int)type, (int)op, comm->rank);
}

static void test_allreduce(struct dt_comm *comm)
{
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            for (int op = DT_REDUCE_SUM; op <= DT_REDUCE_MIN; op++) {
                check_allreduce(comm, types[t], (enum dt_reduce)op, sizes[s]);
            }
        }
    }
}

static void test_broadcast(struct dt_comm *comm)
{
    for (int root = 0; root < comm->size; root++) {
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            memset(buffer, GUARD_BYTE, sizeof buffer);
            memset(expected, GUARD_BYTE, sizeof expected);
            for (size_t i = 0; i < sizes[s]; i++) {
                buffer[i] = (unsigned char)(comm->rank == root ? value_of(root, i) : 255);
                expected[i] = (unsigned char)value_of(root, i);
            }
            CHECK_OK(dt_comm_broadcast(comm, buffer, sizes[s], root, "test broadcast"));
            CHECK(memcmp(buffer, expected, sizeof buffer) == 0);
        }
    }
}

static void test_allgather(struct dt_comm *comm)
{
    for (size_t n = 0; n <= 1001; n += 143) {
        unsigned char mine[1001];
        memset(buffer, GUARD_BYTE, sizeof buffer);
        memset(expected, GUARD_BYTE, sizeof expected);
        for (size_t i = 0; i < n; i++) {
            mine[i] = (unsigned char)value_of(comm->rank, i);
            for (int rank = 0; rank < comm->size; rank++) {
                expected[(size_t)rank * n + i] = (unsigned char)value_of(rank, i);
            }
        }
        CHECK_OK(dt_comm_allgather(comm, mine, buffer, n, "test allgather"));
        CHECK(memcmp(buffer, expected, sizeof buffer) == 0);
    }
}

/* Several at once, tested in another order than started. */
static void test_many_at_once(struct dt_comm *comm)
{
    enum { N = 16, ELEMS = 501 };
    static float x[N][ELEMS];
    struct dt_request requests[N];
    for (int k = 0; k < N; k++) {
        for (size_t i = 0; i < ELEMS; i++) {
            x[k][i] = (float)(value_of(comm->rank, i) + k);
        }
        CHECK_OK(dt_comm_allreduce_start(comm, x[k], ELEMS, DT_TYPE_F32, DT_REDUCE_SUM,
                                         "one of many", &requests[k]));
    }
    for (int n_done = 0; n_done < N;) {
        n_done = 0;
        for (int k = N - 1; k >= 0; k--) {
            bool done;
            CHECK_OK(dt_comm_test(comm, &requests[k], &done));
            CHECK_INT(requests[k].active, !done);
            n_done += done;
        }
    }
    for (int k = 0; k < N; k++) {
        CHECK_OK(dt_comm_wait(comm, &requests[k])); /* once more does no harm */
        for (size_t i = 0; i < ELEMS; i++) {
            CHECK_NEAR(x[k][i], reduced_value(DT_REDUCE_SUM, comm->size, i) + comm->size * k, 0);
        }
    }
}

static void test_too_large(struct dt_comm *comm)
{
    struct dt_request request;
    CHECK_FAILS(dt_comm_allreduce_start(comm, NULL, (size_t)INT_MAX + 1, DT_TYPE_F32, DT_REDUCE_SUM,
                                        "bucket 3", &request),
                DT_CONFIG, "bucket 3: 2147483648 elements");
    CHECK(!request.active);
    dt_error_clear();
}

static void test_late_rank(struct dt_comm *comm)
{
    int32_t x = 1;
    struct dt_request request;
    struct rig_late late = rig_late_begin(comm, "data load, a name that is longer than its place");
    CHECK_OK(dt_comm_allreduce_start(comm, &x, 1, DT_TYPE_I32, DT_REDUCE_SUM,
                                     "allreduce of the test", &request));
    rig_late_end(&late, &request);
    CHECK_INT(x, comm->size);
}

static void test_claim(struct dt_comm *comm, bool agreed)
{
    int32_t n_claims =
        comm->private->liveness == NULL || comm->private->liveness->claim(comm, agreed);
    CHECK_OK(dt_comm_allreduce(comm, &n_claims, 1, DT_TYPE_I32, DT_REDUCE_SUM, "count of claims"));
    CHECK_INT(n_claims, comm->n_hosts);
}

/* Every rank sends as many bytes to each other as that one's number: those to other hosts are
 * counted apart. */
static void test_wire_counts(struct dt_comm *comm)
{
    char mine[64] = {0}, theirs[64][64];
    struct dt_wire *wire;
    struct dt_wire_request requests[128];
    struct dt_traffic between = {0};
    int32_t roots[64];
    CHECK_OK(dt_comm_allgather(comm, &(int32_t){comm->host_root}, roots, sizeof roots[0], "hosts"));
    CHECK_OK(dt_wire_open_mpi(comm, &wire));
    for (int peer = 0; peer < comm->size; peer++) {
        const bool is_elsewhere = roots[peer] != comm->host_root;
        CHECK_INT(comm->host_roots[peer], roots[peer]);
        CHECK_OK(dt_wire_send(wire, peer, 0, mine, (size_t)peer, &requests[2 * peer]));
        CHECK_OK(dt_wire_receive(wire, peer, 0, theirs[peer], (size_t)comm->rank,
                                 &requests[2 * peer + 1]));
        between.messages += is_elsewhere;
        between.bytes += is_elsewhere ? (uint64_t)peer : 0;
    }
    for (int i = 0; i < 2 * comm->size; i++) {
        for (bool done = false; !done;) {
            CHECK_OK(dt_wire_test(wire, &requests[i], &done));
        }
    }
    CHECK_INT(dt_wire_sent(wire).all.messages, comm->size);
    CHECK_INT(dt_wire_sent(wire).between_hosts.messages, between.messages);
    CHECK_INT(dt_wire_sent(wire).between_hosts.bytes, between.bytes);
    CHECK((between.messages > 0) == (comm->n_hosts > 1));
    dt_wire_close(wire);
    if (comm->across != NULL) { /* all on other hosts, but this one itself */
        CHECK_OK(dt_wire_open_mpi(comm->across, &wire));
        wire->sent[(comm->across->rank + 1) % comm->across->size].messages = 3;
        CHECK_INT(dt_wire_sent(wire).between_hosts.messages, 3);
        dt_wire_close(wire);
    }
}

/* Processes of one host have one clock. */
static void test_clocks(struct dt_comm *comm)
{
    struct dt_clock_offset clock;
    CHECK_OK(dt_clocks_compare(comm, &clock));
    CHECK((clock.error_s > 0) == (comm->rank > 0));
    CHECK(fabs(clock.offset_s) <= clock.error_s + 1e-7);
}

/* The first ranks do among themselves what all do, as if there were no others. */
static void test_first(struct dt_comm *comm)
{
    for (int n = 1; n <= comm->size; n++) {
        struct dt_comm *first;
        CHECK_OK(dt_comm_open_first(comm, n, &first));
        CHECK((first != NULL) == (comm->rank < n));
        if (first != NULL) {
            CHECK_INT(first->rank, comm->rank);
            CHECK_INT(first->size, n);
            CHECK_NEAR(dt_comm_timeout_s(first), dt_comm_timeout_s(comm), 0);
            test_allgather(first);
            if (n > 1) {
                test_wire_counts(first);
            }
            dt_comm_close(first);
        }
        CHECK_OK(dt_comm_barrier(comm, "after the first ranks"));
    }
}

static void test_timeout_from_env(void)
{
    static const char *const bad[] = {"abc", "",    "1",   "1.9", "3601",
                                      "60x", "nan", "inf", "-5",  "60 s"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        double seconds = 17;
        char message[128];
        setenv("DTRAIN_TIMEOUT", bad[i], 1);
        snprintf(message, sizeof message, "DTRAIN_TIMEOUT: expected seconds 2..3600, got '%s'",
                 bad[i]);
        CHECK_FAILS(dt_comm_timeout_from_env(&seconds), DT_CONFIG, "");
        CHECK_TEXT(dt_error_text(), message);
        CHECK_NEAR(seconds, 17, 0);
    }
    dt_error_clear();
    double seconds = 17;
    unsetenv("DTRAIN_TIMEOUT");
    CHECK_OK(dt_comm_timeout_from_env(&seconds));
    CHECK_NEAR(seconds, 17, 0);
    setenv("DTRAIN_TIMEOUT", "2.5", 1);
    CHECK_OK(dt_comm_timeout_from_env(&seconds));
    CHECK_NEAR(seconds, 2.5, 0);
    unsetenv("DTRAIN_TIMEOUT");
}

static void test_all(struct dt_comm *comm)
{
    test_allreduce(comm);
    test_broadcast(comm);
    test_allgather(comm);
    test_many_at_once(comm);
    test_too_large(comm);
    test_claim(comm, false);
    test_claim(comm, true); /* neither takes the other's word */
    CHECK_OK(dt_comm_barrier(comm, "last barrier"));
}

int main(void)
{
    struct dt_world world;
    CHECK_OK(dt_world_open(&world));
    struct dt_comm *self, *mpi;
    CHECK_OK(dt_comm_open_self(&self));
    test_all(self);
    dt_comm_close(self);
    CHECK_OK(dt_comm_open_hosts(&mpi)); /* of one rank too */
    CHECK_OK(dt_liveness_open(mpi));
    test_all(mpi);
    test_wire_counts(mpi);
    test_clocks(mpi);
    test_first(mpi);
    if (mpi->size > 1) {
        test_late_rank(mpi);
    }
    dt_comm_close(mpi);
    test_timeout_from_env();
    dt_world_exit(&world, DT_OK, true);
}
