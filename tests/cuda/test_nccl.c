/* The allreduce over fake NCCL: sums of several ranks in the order of the backend's stream, a rank
 * that is late, and what an end that NCCL never reaches may free. test_cuda_training.sh has NCCL's
 * failures, nccl_in_graph.c its sums in a graph. */
#include <cuda_runtime_api.h>
#include <nccl.h>

#include "cuda/cuda_backend.h"
#include "dist/launch/job.h"
#include "tests/fakecuda/fake.h"
#include "tests/lib/comm_values.h"
#include "tests/lib/rig.h"

enum { N_BUCKETS = 40, N_ELEMS = 1003 };

static struct dt_cuda cuda; /* only its two streams and its memory are used */
static cudaStream_t compute;

#define CHECK_CUDA(call) CHECK_INT(call, cudaSuccess)

static enum dt_status try_open(struct dt_comm *comm, struct dt_allreduce **out)
{
    const struct dt_allreduce_spec spec = {.type = DT_ALLREDUCE_NCCL,
                                           .comm = comm,
                                           .backend = &cuda.base,
                                           .n_elems = N_BUCKETS * N_ELEMS,
                                           .n_slots = N_BUCKETS};
    return dt_nccl_open(&spec, out);
}

static struct dt_allreduce *open_nccl(struct dt_comm *comm)
{
    struct dt_allreduce *allreduce;
    CHECK_OK(try_open(comm, &allreduce));
    CHECK(allreduce->type == DT_ALLREDUCE_NCCL && allreduce->comm == comm &&
          allreduce->total == allreduce->part);
    return allreduce;
}

/* Both only enqueue on the stream. */
static void put(void *device, const void *host, size_t n_bytes)
{
    CHECK_CUDA(cudaMemcpyAsync(device, host, n_bytes, cudaMemcpyHostToDevice, compute));
}

static void get(void *host, const void *device, size_t n_bytes)
{
    CHECK_CUDA(cudaMemcpyAsync(host, device, n_bytes, cudaMemcpyDeviceToHost, compute));
    CHECK_CUDA(cudaStreamSynchronize(compute));
}

/* Many sums at once, finished in another order than started, each after work that is enqueued just
 * before it; the ranks poll the first ones at different times. */
static void test_buckets(struct dt_allreduce *nccl)
{
    static float host[N_BUCKETS][N_ELEMS], result[N_ELEMS];
    struct dt_comm *comm = nccl->comm;
    struct dt_request requests[N_BUCKETS];
    for (size_t k = 0; k < N_BUCKETS; k++) {
        bool done;
        for (size_t i = 0; i < N_ELEMS; i++) {
            host[k][i] = (float)(value_of(comm->rank, i) + (int)k);
        }
        put(nccl->part + k * N_ELEMS, host[k], sizeof host[k]);
        CHECK_OK(dt_allreduce_start(nccl, (int)k, k * N_ELEMS, (k + 1) * N_ELEMS, "bucket",
                                    &requests[k]));
        CHECK_OK(dt_comm_test(comm, &requests[(int)k * comm->rank / comm->size], &done));
    }
    for (int k = N_BUCKETS - 1; k >= 0; k--) {
        CHECK_OK(dt_comm_wait(comm, &requests[k]));
        CHECK_OK(dt_comm_wait(comm, &requests[k])); /* waiting once more does no harm */
    }
    for (int k = 0; k < N_BUCKETS; k++) {
        get(result, nccl->total + k * N_ELEMS, sizeof result);
        for (size_t i = 0; i < N_ELEMS; i++) {
            CHECK_NEAR(result[i], reduced_value(DT_REDUCE_SUM, comm->size, i) + comm->size * k, 0);
        }
    }
}

/* Other work of the backend's stream is not delayed by the last rank, which is late. */
static void test_late_rank(struct dt_allreduce *nccl)
{
    struct dt_comm *comm = nccl->comm;
    struct dt_request request;
    float one = 1, sum = 0;
    put(nccl->part, &one, sizeof one);
    struct rig_late late = rig_late_begin(comm, "data load");
    CHECK_OK(dt_allreduce_start(nccl, 0, 0, 1, "allreduce of the test", &request));
    get(&one, nccl->part + 1, sizeof one);
    rig_late_end(&late, &request);
    CHECK_CUDA(cudaGetLastError()); /* "not ready" must be cleared */
    get(&sum, nccl->total, sizeof sum);
    CHECK_NEAR(sum, comm->size, 0);
}

/* The last rank starts no sum, so that NCCL never takes the others' first one, and the ranks never
 * agree that they are done. Nothing is lost that was not recorded: all memory is freed. */
static void test_no_start(struct dt_comm *comm)
{
    struct dt_allreduce *nccl = open_nccl(comm);
    struct dt_request request;
    const double usual_timeout_s = dt_comm_set_timeout(comm, 0.5);
    CHECK_CUDA(cudaStreamSynchronize(compute)); /* so that the last rank has nothing under way */
    if (comm->rank < comm->size - 1) {
        CHECK_FAILS(dt_allreduce_start(nccl, 0, 0, 1, "lonely allreduce", &request), DT_STALLED,
                    "lonely allreduce stalled for ");
    }
    dt_allreduce_close(nccl);
    CHECK(!cuda.lost && fake_counts().n_live_bytes == 0);
    dt_comm_set_timeout(comm, usual_timeout_s);
    CHECK_OK(dt_comm_barrier(comm, "after the end"));
}

/* On the last rank; and ending it hangs on all, which keeps the memory that NCCL may still use. */
static void test_init_hangs(struct dt_comm *host)
{
    struct dt_allreduce *nccl;
    char who[64];
    const int bad = host->size - 1;
    dt_comm_set_timeout(host, 3); /* the ranks do not wait longer for each other either */
    fake_options.nccl_init_hangs = host->rank == bad;
    fake_options.nccl_abort_hangs = true;
    CHECK_FAILS(try_open(host, &nccl), DT_STALLED, "");
    snprintf(who, sizeof who, "rank %d: NCCL did not start within 3 s (", bad);
    CHECK_HAS(dt_error_text(), who);
    CHECK_HAS(dt_error_text(), "NCCL_DEBUG=INFO");
    CHECK(cuda.lost && fake_counts().n_live_bytes > 0);
}

int main(void)
{
    struct dt_world world;
    CHECK_OK(dt_world_open(&world));
    fake_options.devices = world.size; /* NCCL needs one per rank */
    CHECK_CUDA(cudaSetDevice(world.rank));
    CHECK_CUDA(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    cuda.gpu.index = world.rank;
    cuda.base.ops = &dt_cuda_backend;
    cuda.stream = cuda.main.stream = compute;
    CHECK_CUDA(cudaStreamCreateWithFlags(&cuda.branches.lanes[DT_CUDA_GRADIENTS].stream,
                                         cudaStreamNonBlocking));
    CHECK_CUDA(
        cudaEventCreateWithFlags(&cuda.branches.events[DT_CUDA_GRADIENTS], cudaEventDisableTiming));
    struct dt_allreduce *nccl = open_nccl(world.comm);
    test_buckets(nccl);
    test_buckets(nccl);
    if (world.size > 1) { /* one rank never waits */
        test_late_rank(nccl);
    }
    dt_allreduce_close(nccl);
    if (world.size > 1) {
        test_no_start(world.comm);
        test_init_hangs(world.comm);
    }
    fake_closed("stream");
    fake_closed("stream");
    fake_closed("event");
    dt_world_exit(&world, DT_OK, true);
}
