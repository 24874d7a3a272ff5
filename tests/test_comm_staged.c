/* The communicator for device buffers that goes through host memory, with the cpu backend as the device: in shared memory and by
 * messages. */
#include <sched.h>

#include "comm_values.h"
#include "dist/allreduce/staged.h"
#include "rig.h"

enum { N_ELEMS = 20011, N_BUCKETS = 7, N_ROUNDS = 60 };

static struct dt_backend *backend;

static void *device_alloc(size_t n_bytes)
{
    void *memory;
    CHECK_OK(backend->ops->alloc(backend, n_bytes, &memory));
    return memory;
}

static void test_allreduce(struct dt_comm *comm)
{
    static double expected[N_ELEMS / 2];
    void *device = device_alloc(sizeof expected);
    for (int type = DT_TYPE_F32; type <= DT_TYPE_U64; type++) {
        for (int op = DT_REDUCE_SUM; op <= DT_REDUCE_MIN; op++) {
            const size_t n = N_ELEMS / 2;
            for (size_t i = 0; i < n; i++) {
                put_value(device, (enum dt_type)type, (enum dt_reduce)op, i, value_of(comm->rank, i));
                put_value(expected, (enum dt_type)type, (enum dt_reduce)op, i, reduced_value((enum dt_reduce)op, comm->size, i));
            }
            CHECK_OK(dt_comm_allreduce(comm, device, n, (enum dt_type)type, (enum dt_reduce)op, "test allreduce"));
            if (memcmp(device, expected, n * dt_type_bytes((enum dt_type)type)) != 0) {
                CHECK_FAIL("type %d, operation %d: wrong on rank %d", type, op, comm->rank);
            }
        }
    }
    backend->ops->free(backend, device);
}

/* Everything that may be under way at once, divided differently in each round, so that the staging memory is taken at many places;
 * the ranks finish at different times and in another order than they started. */
static void test_buckets(struct dt_comm *comm)
{
    float *device = device_alloc(N_ELEMS * sizeof *device);
    for (int round = 0; round < N_ROUNDS; round++) {
        struct dt_request requests[N_BUCKETS];
        size_t ends[N_BUCKETS];
        for (size_t i = 0; i < N_ELEMS; i++) {
            device[i] = (float)(value_of(comm->rank, i) + round);
        }
        for (size_t k = 0, begin = 0; k < N_BUCKETS; k++) {
            const size_t n_left = N_ELEMS - begin;
            const size_t n = k == N_BUCKETS - 1 ? n_left : n_left * (size_t)((round * 5 + (int)k * 3) % 8) / 7;
            CHECK_OK(dt_comm_allreduce_start(comm, device + begin, n, DT_TYPE_F32, DT_REDUCE_SUM, "bucket", &requests[k]));
            ends[k] = begin += n;
        }
        for (int k = 0; k < (comm->rank * 5 + round * 3) % 7; k++) {
            sched_yield();
        }
        for (int k = N_BUCKETS - 1; k >= 0; k--) {
            CHECK_OK(dt_comm_wait(comm, &requests[k]));
            CHECK_OK(dt_comm_wait(comm, &requests[k])); /* once more does no harm */
            for (size_t i = k == 0 ? 0 : ends[k - 1]; i < ends[k]; i++) {
                CHECK_NEAR(device[i], reduced_value(DT_REDUCE_SUM, comm->size, i) + comm->size * round, 0);
            }
        }
    }
    backend->ops->free(backend, device);
}

static void test_broadcast(struct dt_comm *comm)
{
    enum { N_BYTES = 4 * N_ELEMS };
    unsigned char *device = device_alloc(N_BYTES);
    for (int root = 0; root < comm->size; root++) {
        for (size_t i = 0; i < N_BYTES; i++) {
            device[i] = (unsigned char)(comm->rank == root ? value_of(root, i) : 255);
        }
        CHECK_OK(dt_comm_broadcast(comm, device, N_BYTES, root, "test broadcast"));
        for (size_t i = 0; i < N_BYTES; i++) {
            CHECK_INT(device[i], value_of(root, i));
        }
    }
    backend->ops->free(backend, device);
}

static void test_refused(struct dt_comm *comm)
{
    enum { MANY = DT_MAX_BUCKETS, TOO_LONG = 2 * N_ELEMS + 10000 };
    static struct dt_request requests[MANY + 1];
    float *device = device_alloc(TOO_LONG * sizeof *device);
    CHECK_STATUS(dt_comm_allgather(comm, device, device, 4, "test allgather"), DT_INTERNAL);
    CHECK_HAS(dt_error_text(), "test allgather: the communicator through host memory has no allgather");
    CHECK_STATUS(dt_comm_allreduce(comm, device, TOO_LONG, DT_TYPE_F32, DT_REDUCE_SUM, "too long"), DT_INTERNAL);
    CHECK_HAS(dt_error_text(), "too long: too much is under way for ");
    for (int k = 0; k < 2; k++) {
        CHECK_OK(dt_comm_allreduce_start(comm, device, N_ELEMS, DT_TYPE_F32, DT_REDUCE_SUM, "half of it", &requests[k]));
    }
    CHECK_STATUS(dt_comm_allreduce_start(comm, device, N_ELEMS, DT_TYPE_F32, DT_REDUCE_SUM, "too much", &requests[2]), DT_INTERNAL);
    CHECK_HAS(dt_error_text(), "too much: too much is under way for ");
    dt_error_clear();
    CHECK_OK(dt_comm_wait(comm, &requests[0]));
    CHECK_OK(dt_comm_wait(comm, &requests[1]));
    for (int k = 0; k < MANY; k++) {
        CHECK_OK(dt_comm_allreduce_start(comm, device + k, 1, DT_TYPE_F32, DT_REDUCE_SUM, "one of many", &requests[k]));
    }
    CHECK_STATUS(dt_comm_allreduce_start(comm, device, 1, DT_TYPE_F32, DT_REDUCE_SUM, "one too many", &requests[MANY]),
                 DT_INTERNAL);
    CHECK_HAS(dt_error_text(), "one too many: too much is under way for ");
    dt_error_clear();
    for (int k = 0; k < MANY; k++) {
        CHECK_OK(dt_comm_wait(comm, &requests[k]));
    }
    backend->ops->free(backend, device);
}

/* The last rank comes only after all others have given up on it, or know that it is late, and met on a second communicator. */
static void test_late_rank(struct dt_comm *host, struct dt_comm *comm)
{
    const int late = comm->size - 1;
    const double usual_timeout_s = comm->timeout_s;
    char who[64];
    struct dt_comm *second;
    struct dt_request request;
    float *device = device_alloc(sizeof *device);
    CHECK_OK(dt_comm_open_mpi(&second));
    *device = 1;
    rig_word_on_late(host, late, who, sizeof who);
    dt_comm_phase(comm, comm->rank == late ? "data load" : "step");
    CHECK_OK(dt_comm_barrier(host, "all know who is late"));
    if (comm->rank == late) {
        CHECK_OK(dt_comm_barrier(second, "meeting without the late rank"));
    }
    CHECK_OK(dt_comm_allreduce_start(comm, device, 1, DT_TYPE_F32, DT_REDUCE_SUM, "allreduce of the test", &request));
    if (comm->rank != late && who[0] != '\0') {
        comm->timeout_s = 0.5;
        CHECK_STATUS(dt_comm_wait(comm, &request), DT_STALLED);
        CHECK_HAS(dt_error_text(), "allreduce of the test stalled for ");
        CHECK_HAS(dt_error_text(), who);
        CHECK_HAS(dt_error_text(), who[0] == 'r' ? "in 'data load'" : "");
        dt_error_clear();
        comm->timeout_s = usual_timeout_s;
    }
    if (comm->rank != late) {
        CHECK_OK(dt_comm_barrier(second, "meeting without the late rank"));
    }
    CHECK_OK(dt_comm_wait(comm, &request)); /* a stall is only an opinion: now it goes through */
    CHECK_NEAR(*device, comm->size, 0);
    backend->ops->free(backend, device);
    dt_comm_close(second);
}

static void test_all(struct dt_comm *host, bool by_messages)
{
    struct dt_comm *comm;
    const int n_hosts = host->n_hosts;
    host->n_hosts = by_messages ? host->size : n_hosts; /* as if each rank had a host of its own */
    CHECK_OK(dt_comm_open_staged(host, backend, N_ELEMS, &comm));
    host->n_hosts = n_hosts;
    CHECK(comm->rank == host->rank && comm->size == host->size);
    CHECK_NEAR(comm->timeout_s, host->timeout_s, 0);
    test_allreduce(comm);
    test_buckets(comm);
    test_broadcast(comm);
    test_buckets(comm);
    test_refused(comm);
    if (comm->size > 1) {
        test_late_rank(host, comm);
    }
    dt_comm_close(comm);
    CHECK_OK(dt_comm_barrier(host, "after the test"));
}

int main(void)
{
    struct dt_world world;
    CHECK_OK(dt_world_open(&world));
    CHECK_OK(dt_cpu_backend.open(&(struct dt_backend_options){.n_threads = 1}, &backend));
    test_all(world.comm, false);
    test_all(world.comm, true);
    backend->ops->close(backend);
    dt_world_exit(&world, DT_OK, true);
}
