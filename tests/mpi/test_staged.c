/* Adding by way of host memory, with a device whose memory is its own: in shared memory, by
 * messages and by algorithms. */
#include <sched.h>

#include "dist/launch/job.h"
#include "dist/strategy/strategy.h"
#include "tests/lib/comm_values.h"
#include "tests/lib/rig.h"

enum { N_ELEMS = 20011, N_BUCKETS = 7, N_ROUNDS = 40 };

/* The cpu backend under another name, which does not let the program at its memory. */
static struct dt_backend_ops device_ops;
static struct dt_backend device;
static struct dt_backend *cpu;

static enum dt_status device_alloc(struct dt_backend *backend, size_t n_bytes, void **out)
{
    (void)backend;
    return dt_cpu_backend.alloc(cpu, n_bytes, out);
}

static void device_free(struct dt_backend *backend, void *memory)
{
    (void)backend;
    dt_cpu_backend.free(cpu, memory);
}

/* Divided differently in each round; the ranks finish at different times and in another order than
 * they started. */
static void test_buckets(struct dt_allreduce *staged)
{
    struct dt_comm *comm = staged->comm;
    for (int round = 0; round < N_ROUNDS; round++) {
        struct dt_request requests[N_BUCKETS];
        size_t ends[N_BUCKETS];
        for (size_t i = 0; i < N_ELEMS; i++) {
            staged->part[i] = (float)(value_of(comm->rank, i) + round);
        }
        for (size_t k = 0, begin = 0; k < N_BUCKETS; k++) {
            const size_t n_left = N_ELEMS - begin;
            const size_t n =
                k == N_BUCKETS - 1 ? n_left : n_left * (size_t)((round * 5 + (int)k * 3) % 8) / 7;
            CHECK_OK(dt_allreduce_start(staged, (int)k, begin, begin + n, "bucket", &requests[k]));
            ends[k] = begin += n;
        }
        for (int k = 0; k < (comm->rank * 5 + round * 3) % 7; k++) {
            sched_yield();
        }
        for (int k = N_BUCKETS - 1; k >= 0; k--) {
            CHECK_OK(dt_comm_wait(comm, &requests[k]));
            CHECK_OK(dt_comm_wait(comm, &requests[k])); /* once more does no harm */
            for (size_t i = k == 0 ? 0 : ends[k - 1]; i < ends[k]; i++) {
                CHECK_NEAR(staged->total[i],
                           reduced_value(DT_REDUCE_SUM, comm->size, i) + comm->size * round, 0);
            }
        }
    }
}

static void test_late_rank(struct dt_allreduce *staged)
{
    struct dt_request request;
    struct rig_late late = rig_late_begin(staged->comm, "data load");
    staged->part[0] = 1;
    CHECK_OK(dt_allreduce_start(staged, 0, 0, 1, "allreduce of the test", &request));
    rig_late_end(&late, &request);
    CHECK_NEAR(staged->total[0], staged->comm->size, 0);
}

static void test_way(struct dt_comm *comm, enum dt_allreduce_type type)
{
    struct dt_allreduce *staged;
    const struct dt_allreduce_spec spec = {.rows = dt_all_entries.allreduce,
                                           .type = type,
                                           .comm = comm,
                                           .backend = &device,
                                           .n_elems = N_ELEMS,
                                           .n_slots = N_BUCKETS};
    CHECK_OK(dt_allreduce_open(&spec, &staged));
    CHECK_INT(staged->type, comm->size > 1 ? DT_ALLREDUCE_STAGED : DT_ALLREDUCE_MPI);
    if (comm->size > 1 && type == DT_ALLREDUCE_RING) {
        CHECK_TEXT(staged->algorithm->name, "ring");
    }
    test_buckets(staged);
    if (comm->size > 1) {
        test_late_rank(staged);
    }
    test_buckets(staged);
    dt_allreduce_close(staged);
    CHECK_OK(dt_comm_barrier(comm, "after the test"));
}

int main(void)
{
    struct dt_world world;
    CHECK_OK(dt_world_open(&world));
    CHECK_OK(dt_cpu_backend.open(&(struct dt_backend_options){.n_threads = 1}, &cpu));
    device_ops = dt_cpu_backend;
    device_ops.alloc = device_alloc;
    device_ops.free = device_free;
    device = (struct dt_backend){.ops = &device_ops, .description = "not the host's memory"};
    test_way(world.comm, DT_ALLREDUCE_AUTO);
    test_way(world.comm, DT_ALLREDUCE_MPI);
    test_way(world.comm, DT_ALLREDUCE_RING);
    cpu->ops->close(cpu);
    dt_world_exit(&world, DT_OK, true);
}
