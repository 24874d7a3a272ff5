/* The allreduce over fake NCCL: sums of several ranks in the order of the backend's stream, a rank
 * that is late, and failures of NCCL that test_cuda_training.sh does not have: the right status and
 * text, and no hang. */
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
static double usual_timeout_s;
static struct fake_options healthy;

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

/* A hanging end keeps the memory that NCCL may still use. */
static void expect_kept(void)
{
    fake_closed("NCCL communicator");
    fake_closed("stream");
    fake_closed("device memory");
    for (int i = 0; i < 2 * N_BUCKETS; i++) {
        fake_closed("event");
    }
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

static cudaGraphExec_t end_recording(void)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK_CUDA(cudaStreamEndCapture(compute, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagUseNodePriority));
    CHECK_CUDA(cudaGraphDestroy(graph));
    return exec;
}

/* Sums in a graph, with other work recorded right after the start of each: NCCL's thread has then
 * left the graph. */
static void test_recorded(struct dt_allreduce *nccl)
{
    enum { N = 3, N_LAUNCHES = 2 };
    struct dt_comm *comm = nccl->comm;
    struct dt_request requests[N];
    float host[2 * N] = {1, 2, 3, 4, 5, 6};
    put(nccl->part, host, sizeof host);
    CHECK_CUDA(cudaStreamBeginCapture(compute, cudaStreamCaptureModeThreadLocal));
    for (size_t k = 0; k < N; k++) {
        CHECK_OK(dt_allreduce_start(nccl, (int)k, k, k + 1, "recorded", &requests[k]));
        CHECK_CUDA(cudaMemsetAsync(nccl->part + N + k, 0, sizeof(float), compute));
    }
    for (size_t k = 0; k < N; k++) {
        CHECK_OK(dt_comm_wait(comm, &requests[k]));
    }
    cudaGraphExec_t exec = end_recording();
    for (int i = 0; i < N_LAUNCHES; i++) {
        CHECK_CUDA(cudaGraphLaunch(exec, compute));
    }
    get(host, nccl->total, sizeof host);
    for (int k = 0; k < N; k++) {
        CHECK_NEAR(host[k], (k + 1) * comm->size * comm->size, 0);
        CHECK_NEAR(host[N + k], 0, 0);
    }
    CHECK_CUDA(cudaGraphExecDestroy(exec));
}

/* The last rank arrives only after all others have given up on it and met on another communicator.
 * Their work meanwhile is not delayed. */
static void test_late_rank(struct dt_allreduce *nccl)
{
    struct dt_comm *comm = nccl->comm, *second;
    const int late = comm->size - 1;
    struct dt_request request;
    float one = 1, sum = 0;
    put(nccl->part, &one, sizeof one);
    CHECK_OK(dt_comm_open_hosts(&second));
    dt_comm_phase(comm, comm->rank == late ? "data load" : "step");
    CHECK_OK(dt_comm_barrier(comm, "all know who is late"));
    if (comm->rank == late) {
        CHECK_OK(dt_comm_barrier(second, "meeting without the late rank"));
    }
    CHECK_OK(dt_allreduce_start(nccl, 0, 0, 1, "allreduce of the test", &request));
    if (comm->rank != late) {
        char who[64];
        dt_comm_set_timeout(comm, 0.5);
        snprintf(who, sizeof who, "rank %d has not arrived; it was last seen ", late);
        CHECK_FAILS(dt_comm_wait(comm, &request), DT_STALLED, "allreduce of the test stalled for ");
        CHECK_HAS(dt_error_text(), who);
        CHECK_HAS(dt_error_text(), "in 'data load'");
        CHECK_CUDA(cudaGetLastError()); /* "not ready" must be cleared */
        put(nccl->part + 1, &one, sizeof one);
        CHECK_CUDA(cudaStreamSynchronize(compute));
        CHECK_OK(dt_comm_barrier(second, "meeting without the late rank"));
        dt_comm_set_timeout(comm, usual_timeout_s);
    }
    CHECK_OK(
        dt_comm_wait(comm, &request)); /* after a stall the sum can still finish: now it does */
    get(&sum, nccl->total, sizeof sum);
    CHECK_NEAR(sum, comm->size, 0);
    dt_comm_close(second);
}

/* On the last rank; and so does ending it. */
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
    dt_comm_set_timeout(host, usual_timeout_s);
    expect_kept();
    fake_options = healthy;
}

static enum dt_status start_three(struct dt_allreduce *nccl, struct dt_request requests[3])
{
    for (size_t k = 0; k < 3; k++) {
        DT_TRY(dt_allreduce_start(nccl, (int)k, k, k + 1, "faulty allreduce", &requests[k]));
    }
    return DT_OK;
}

static void end_fault(struct dt_comm *comm, const char *barrier)
{
    dt_comm_set_timeout(comm, usual_timeout_s);
    fake_options = healthy;
    CHECK_OK(dt_comm_barrier(comm, barrier));
}

/* Their own hosts fail. */
static void test_error(struct dt_comm *comm)
{
    struct dt_request requests[3];
    fake_options.nccl_error_at = 3;
    fake_options.nccl_error_code = ncclSystemError;
    struct dt_allreduce *nccl = open_nccl(comm);
    dt_error_clear();
    enum dt_status status = start_three(nccl, requests);
    for (int k = 0; k < 3 && status == DT_OK; k++) {
        status = dt_comm_wait(comm, &requests[k]);
    }
    CHECK_INT(status, DT_UNAVAILABLE);
    CHECK_HAS(dt_error_text(),
              "faulty allreduce: NCCL: another error; fake: the connection to a peer was closed "
              "(NCCL_DEBUG=INFO shows more; in a container: --ipc=host, or --shm-size=1g)");
    dt_allreduce_close(nccl);
    end_fault(comm, "after the error");
}

/* And so does ending NCCL. */
static void test_hang(struct dt_comm *comm)
{
    struct dt_request requests[3];
    fake_options.nccl_hang_at = 2;
    fake_options.nccl_abort_hangs = true;
    struct dt_allreduce *nccl = open_nccl(comm);
    CHECK_OK(start_three(nccl, requests));
    CHECK_OK(dt_comm_wait(comm, &requests[0]));
    dt_comm_set_timeout(comm, 0.5);
    CHECK_FAILS(dt_comm_wait(comm, &requests[1]), DT_STALLED, "faulty allreduce stalled for ");
    dt_allreduce_close(nccl);
    expect_kept();
    end_fault(comm, "after the hang");
}

static void test_finalize_hangs(struct dt_comm *comm)
{
    fake_options.nccl_finalize_hangs = comm->rank == 0;
    struct dt_allreduce *nccl = open_nccl(comm);
    dt_comm_set_timeout(comm, 0.5);
    dt_allreduce_close(nccl);
    end_fault(comm, "after the end");
}

int main(void)
{
    struct dt_world world;
    CHECK_OK(dt_world_open(&world));
    usual_timeout_s = dt_comm_timeout_s(world.comm);
    healthy.devices = world.size; /* NCCL needs one per rank */
    fake_options = healthy;
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
    test_recorded(nccl);
    if (world.size > 1) {
        test_late_rank(nccl);
    }
    dt_allreduce_close(nccl);
    if (world.size > 1) { /* one rank never waits */
        test_error(world.comm);
    }
    test_finalize_hangs(world.comm);
    test_init_hangs(world.comm);
    if (world.size > 1) {
        test_hang(world.comm); /* from here on waiting for the whole device takes forever */
    }
    fake_closed("stream");
    fake_closed("stream");
    fake_closed("event");
    free(cuda.memory.pieces);
    dt_world_exit(&world, DT_OK, true);
}
