/* The communicator over NCCL on the double: sums and broadcasts of several ranks in the order of the backend's stream, and each way
 * in which NCCL or a rank can fail: the right status and words, the same on all ranks where they agree, and nothing hangs. */
#include <cuda_runtime_api.h>

#include "../comm_values.h"
#include "../rig.h"
#include "cuda/cuda_block.h"
#include "cuda/nccl_comm.h"
#include "tests/fakecuda/fake.h"
#include "tests/fakecuda/fake_nccl.h"

enum { N_BUCKETS = 40, N_ELEMS = 1003 };

static struct dt_cuda cuda; /* nothing of it is asked but its stream */
static cudaStream_t compute;

#define CHECK_CUDA(call) CHECK_INT(call, cudaSuccess)

static struct dt_comm *open_comm(struct dt_comm *host)
{
    struct dt_comm *comm;
    CHECK_OK(dt_nccl_comm_open(host, &cuda.base, &comm));
    CHECK(comm->rank == host->rank && comm->size == host->size && comm->local_size == host->local_size);
    CHECK_NEAR(comm->timeout_s, host->timeout_s, 0);
    return comm;
}

static void *device_alloc(size_t n_bytes)
{
    void *memory;
    CHECK_CUDA(cudaMalloc(&memory, n_bytes));
    return memory;
}

/* Both only enqueue behind what is on the stream. */
static void put(void *device, const void *host, size_t n_bytes)
{
    CHECK_CUDA(cudaMemcpyAsync(device, host, n_bytes, cudaMemcpyHostToDevice, compute));
}

static void get(void *host, const void *device, size_t n_bytes)
{
    CHECK_CUDA(cudaMemcpyAsync(host, device, n_bytes, cudaMemcpyDeviceToHost, compute));
    CHECK_CUDA(cudaStreamSynchronize(compute));
}

/* A communicator whose abort hangs keeps what NCCL may still use. */
static void expect_kept(void)
{
    fake_closed("NCCL communicator");
    fake_closed("stream");
    for (int i = 0; i < 2 * DT_MAX_BUCKETS; i++) {
        fake_closed("event");
    }
}

static void check_allreduce(struct dt_comm *comm, enum dt_type type, enum dt_reduce op)
{
    static uint64_t host[N_ELEMS], expected[N_ELEMS];
    void *device = device_alloc(sizeof host);
    const size_t each = dt_type_bytes(type);
    for (size_t i = 0; i < N_ELEMS; i++) {
        put_value(host, type, op, i, value_of(comm->rank, i));
        put_value(expected, type, op, i, reduced_value(op, comm->size, i));
    }
    put(device, host, N_ELEMS * each);
    CHECK_OK(dt_comm_allreduce(comm, device, N_ELEMS, type, op, "test allreduce"));
    get(host, device, N_ELEMS * each);
    if (memcmp(host, expected, N_ELEMS * each) != 0) {
        CHECK_FAIL("type %d, operation %d: wrong on rank %d", (int)type, (int)op, comm->rank);
    }
    CHECK_CUDA(cudaFree(device));
}

static void test_allreduce(struct dt_comm *comm)
{
    for (int type = DT_TYPE_F32; type <= DT_TYPE_U64; type++) {
        for (int op = DT_REDUCE_SUM; op <= DT_REDUCE_MIN; op++) {
            check_allreduce(comm, (enum dt_type)type, (enum dt_reduce)op);
        }
    }
}

/* Many under way at once, finished in another order than started, each behind work that is enqueued just before it; the ranks look
 * at the first ones at different times. */
static void test_buckets(struct dt_comm *comm)
{
    static float host[N_BUCKETS][N_ELEMS], result[N_ELEMS];
    float *device = device_alloc(sizeof host);
    struct dt_request requests[N_BUCKETS];
    for (int k = 0; k < N_BUCKETS; k++) {
        bool done;
        for (size_t i = 0; i < N_ELEMS; i++) {
            host[k][i] = (float)(value_of(comm->rank, i) + k);
        }
        put(device + k * N_ELEMS, host[k], sizeof host[k]);
        CHECK_OK(dt_comm_allreduce_start(comm, device + k * N_ELEMS, N_ELEMS, DT_TYPE_F32, DT_REDUCE_SUM, "bucket", &requests[k]));
        CHECK_OK(dt_comm_test(comm, &requests[k * comm->rank / comm->size], &done));
    }
    for (int k = N_BUCKETS - 1; k >= 0; k--) {
        CHECK_OK(dt_comm_wait(comm, &requests[k]));
        CHECK_OK(dt_comm_wait(comm, &requests[k])); /* once more does no harm */
    }
    for (int k = 0; k < N_BUCKETS; k++) {
        get(result, device + k * N_ELEMS, sizeof result);
        for (size_t i = 0; i < N_ELEMS; i++) {
            CHECK_NEAR(result[i], reduced_value(DT_REDUCE_SUM, comm->size, i) + comm->size * k, 0);
        }
    }
    CHECK_CUDA(cudaFree(device));
}

static void test_broadcast(struct dt_comm *comm)
{
    unsigned char host[N_ELEMS];
    void *device = device_alloc(sizeof host);
    for (int root = 0; root < comm->size; root++) {
        for (size_t i = 0; i < sizeof host; i++) {
            host[i] = (unsigned char)(comm->rank == root ? value_of(root, i) : 255);
        }
        put(device, host, sizeof host);
        CHECK_OK(dt_comm_broadcast(comm, device, sizeof host, root, "test broadcast"));
        get(host, device, sizeof host);
        for (size_t i = 0; i < sizeof host; i++) {
            CHECK_INT(host[i], value_of(root, i));
        }
    }
    CHECK_CUDA(cudaFree(device));
}

static void test_refused(struct dt_comm *comm)
{
    static struct dt_request requests[DT_MAX_BUCKETS + 1];
    float *device = device_alloc(sizeof *device);
    CHECK_STATUS(dt_comm_allgather(comm, device, device, sizeof *device, "test allgather"), DT_INTERNAL);
    CHECK_HAS(dt_error_text(), "test allgather: the communicator over NCCL has no allgather");
    for (int k = 0; k < DT_MAX_BUCKETS; k++) {
        CHECK_OK(dt_comm_allreduce_start(comm, device, 1, DT_TYPE_F32, DT_REDUCE_SUM, "one of many", &requests[k]));
    }
    CHECK_STATUS(dt_comm_allreduce_start(comm, device, 1, DT_TYPE_F32, DT_REDUCE_SUM, "one too many", &requests[DT_MAX_BUCKETS]),
                 DT_INTERNAL);
    CHECK_HAS(dt_error_text(), "one too many: more than 256 collectives are under way");
    dt_error_clear();
    for (int k = 0; k < DT_MAX_BUCKETS; k++) {
        CHECK_OK(dt_comm_wait(comm, &requests[k]));
    }
    CHECK_CUDA(cudaFree(device));
}

/* The last rank comes only after all others have given up on it and met on the host's communicator. What they computed meanwhile is
 * not held up. */
static void test_late_rank(struct dt_comm *host, struct dt_comm *comm)
{
    const int late = comm->size - 1;
    const double usual_timeout_s = comm->timeout_s;
    struct dt_comm *second;
    struct dt_request request;
    float one = 1, sum = 0;
    float *device = device_alloc(2 * sizeof *device);
    put(device, &one, sizeof one);
    CHECK_OK(dt_comm_open_mpi(&second));
    dt_comm_phase(comm, comm->rank == late ? "data load" : "step");
    CHECK_OK(dt_comm_barrier(host, "all know who is late"));
    if (comm->rank == late) {
        CHECK_OK(dt_comm_barrier(second, "meeting without the late rank"));
    }
    CHECK_OK(dt_comm_allreduce_start(comm, device, 1, DT_TYPE_F32, DT_REDUCE_SUM, "allreduce of the test", &request));
    if (comm->rank != late) {
        char who[64];
        comm->timeout_s = 0.5;
        snprintf(who, sizeof who, "rank %d has not arrived; it was last seen ", late);
        CHECK_STATUS(dt_comm_wait(comm, &request), DT_STALLED);
        CHECK_HAS(dt_error_text(), "allreduce of the test stalled for ");
        CHECK_HAS(dt_error_text(), who);
        CHECK_HAS(dt_error_text(), "in 'data load'");
        dt_error_clear();
        CHECK_CUDA(cudaGetLastError()); /* "not ready" is none */
        put(device + 1, &one, sizeof one);
        CHECK_CUDA(cudaStreamSynchronize(compute));
        CHECK_OK(dt_comm_barrier(second, "meeting without the late rank"));
        comm->timeout_s = usual_timeout_s;
    }
    CHECK_OK(dt_comm_wait(comm, &request)); /* a stall is only an opinion: now it goes through */
    get(&sum, device, sizeof sum);
    CHECK_NEAR(sum, comm->size, 0);
    CHECK_CUDA(cudaFree(device));
    dt_comm_close(second);
}

/* A start that cannot be: all ranks have the status and the words of the one that failed. */
static void test_init_fails(struct dt_comm *host)
{
    struct dt_comm *comm;
    char text[128];
    const int bad = host->size - 1;
    fake_nccl_options.init_fails = host->rank == bad;
    CHECK_STATUS(dt_nccl_comm_open(host, &cuda.base, &comm), DT_UNAVAILABLE);
    snprintf(text, sizeof text,
             "rank %d: NCCL cannot start: invalid usage; fake: Duplicate GPU detected (NCCL_DEBUG=INFO shows more)", bad);
    CHECK_TEXT(dt_error_text(), text);
    dt_error_clear();
    fake_nccl_options = (struct fake_nccl_options){.init_fails = false};
}

static void test_init_hangs(struct dt_comm *host, bool abort_hangs)
{
    struct dt_comm *comm;
    char who[64];
    const int bad = host->size - 1;
    const double usual_timeout_s = host->timeout_s;
    host->timeout_s = 3; /* the ranks wait no longer for each other either */
    fake_nccl_options.init_hangs = host->rank == bad;
    fake_nccl_options.abort_hangs = abort_hangs;
    CHECK_STATUS(dt_nccl_comm_open(host, &cuda.base, &comm), DT_STALLED);
    snprintf(who, sizeof who, "NCCL did not start within 3 s on rank %d (", bad);
    CHECK_HAS(dt_error_text(), who);
    CHECK_HAS(dt_error_text(), "NCCL_DEBUG=INFO");
    dt_error_clear();
    host->timeout_s = usual_timeout_s;
    if (abort_hangs) {
        expect_kept();
    }
    fake_nccl_options = (struct fake_nccl_options){.init_fails = false};
}

/* With three collectives under way, of which the first ends well. */
static struct dt_comm *start_faulty(struct dt_comm *host, struct dt_request requests[3], float **device)
{
    struct dt_comm *comm = open_comm(host);
    *device = device_alloc(3 * sizeof **device);
    for (int k = 0; k < 3; k++) {
        CHECK_OK(dt_comm_allreduce_start(comm, *device + k, 1, DT_TYPE_F32, DT_REDUCE_SUM, "faulty allreduce", &requests[k]));
    }
    return comm;
}

/* All ranks lose a peer, or only the last, for which the others then wait in vain. */
static void test_error(struct dt_comm *host, bool everywhere)
{
    struct dt_request requests[3];
    float *device;
    const bool hit = everywhere || host->rank == host->size - 1;
    fake_nccl_options.error_at = hit ? 3 : 0;
    struct dt_comm *comm = start_faulty(host, requests, &device);
    enum dt_status status = DT_OK;
    dt_error_clear();
    if (!hit) {
        comm->timeout_s = 0.5;
    }
    for (int k = 0; k < 3 && status == DT_OK; k++) {
        status = dt_comm_wait(comm, &requests[k]);
    }
    CHECK_INT(status, DT_STALLED);
    CHECK_HAS(dt_error_text(),
              hit ? "faulty allreduce: NCCL: remote process exited or there was a network error; fake: the connection "
                    "to a peer was closed (NCCL_DEBUG=INFO shows more)"
                  : "faulty allreduce stalled for ");
    dt_error_clear();
    dt_comm_close(comm);
    fake_nccl_options = (struct fake_nccl_options){.init_fails = false};
    CHECK_CUDA(cudaFree(device));
    CHECK_OK(dt_comm_barrier(host, "after the error"));
}

static void test_hang(struct dt_comm *host, bool abort_hangs)
{
    struct dt_request requests[3];
    float *device;
    fake_nccl_options.hang_at = 2;
    fake_nccl_options.abort_hangs = abort_hangs;
    struct dt_comm *comm = start_faulty(host, requests, &device);
    CHECK_OK(dt_comm_wait(comm, &requests[0]));
    comm->timeout_s = 0.5;
    CHECK_STATUS(dt_comm_wait(comm, &requests[1]), DT_STALLED);
    CHECK_HAS(dt_error_text(), "faulty allreduce stalled for ");
    dt_error_clear();
    dt_comm_close(comm);
    if (abort_hangs) {
        expect_kept();
        fake_closed("device memory"); /* which is still in use */
    } else {
        CHECK_CUDA(cudaFree(device));
    }
    fake_nccl_options = (struct fake_nccl_options){.init_fails = false};
    CHECK_OK(dt_comm_barrier(host, "after the hang"));
}

/* On the last rank a collective does not end, which on the others does: whoever complains, it is the one that is named. */
static void test_hang_of_one(struct dt_comm *host)
{
    struct dt_request requests[3];
    float *device;
    char who[128];
    const int bad = host->size - 1, n_well = host->rank == bad ? 1 : 2;
    fake_nccl_options.hang_at = host->rank == bad ? 2 : 0;
    struct dt_comm *comm = start_faulty(host, requests, &device);
    dt_comm_phase(comm, host->rank == bad ? "training" : "step");
    for (int k = 0; k < n_well; k++) {
        CHECK_OK(dt_comm_wait(comm, &requests[k]));
    }
    comm->timeout_s = 0.5;
    CHECK_STATUS(dt_comm_wait(comm, &requests[n_well]), DT_STALLED);
    snprintf(who, sizeof who, "rank %d waits in 'training' for a collective that other ranks have finished", bad);
    CHECK_HAS(dt_error_text(), who);
    dt_error_clear();
    dt_comm_close(comm);
    fake_nccl_options = (struct fake_nccl_options){.init_fails = false};
    CHECK_CUDA(cudaFree(device));
    CHECK_OK(dt_comm_barrier(host, "after the hang of one"));
}

static void test_finalize_hangs(struct dt_comm *host)
{
    fake_nccl_options.finalize_hangs = host->rank == 0;
    dt_comm_close(open_comm(host));
    fake_nccl_options = (struct fake_nccl_options){.init_fails = false};
    CHECK_OK(dt_comm_barrier(host, "after the end"));
}

int main(void)
{
    struct dt_world world;
    CHECK_OK(dt_world_open(&world));
    fake_options.n_devices = world.size; /* NCCL wants one for each rank */
    CHECK_CUDA(cudaSetDevice(world.rank));
    CHECK_CUDA(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
    cuda.stream = compute;
    struct dt_comm *comm = open_comm(world.comm);
    test_allreduce(comm);
    test_buckets(comm);
    test_broadcast(comm);
    test_refused(comm);
    if (comm->size > 1) {
        test_late_rank(world.comm, comm);
    }
    dt_comm_close(comm);
    test_init_fails(world.comm);
    test_init_hangs(world.comm, false);
    test_error(world.comm, true);
    test_error(world.comm, false);
    test_hang(world.comm, false);
    if (world.size > 1) {
        test_hang_of_one(world.comm);
    }
    test_finalize_hangs(world.comm);
    test_init_hangs(world.comm, true);
    test_hang(world.comm, true); /* last: waiting for the whole device takes for ever now */
    CHECK_CUDA(cudaStreamDestroy(compute));
    dt_world_exit(&world, DT_OK, true);
}
