/* The cases of test_fake_runtime.cpp about NCCL: rules that one rank can break alone, and those
 * that need two ranks. */
#include <nccl.h>

#include "tests/cuda/trace.h"
#include "tests/fakecuda/fake_nccl.h"

static void settle(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        CHECK_INT(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    }
    CHECK_INT(state, ncclSuccess);
}

static ncclComm_t open_comm(int rank, int size, ncclUniqueId id)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm;
    CHECK_INT(ncclCommInitRankConfig(&comm, size, id, rank, &config), ncclInProgress);
    settle(comm);
    return comm;
}

static void close_comm(ncclComm_t comm)
{
    ncclCommFinalize(comm);
    settle(comm);
    CHECK_INT(ncclCommDestroy(comm), ncclSuccess);
}

struct rank {
    ncclComm_t comm;
    cudaStream_t stream;
    float *from, *x; /* the same, except with one rank, which has nothing to do in place */
};

static void start_sum(const struct rank *self)
{
    CHECK_INT(
        ncclAllReduce(self->from, self->x, n_elems, ncclFloat32, ncclSum, self->comm, self->stream),
        ncclInProgress);
}

static void add(const struct rank *self)
{
    start_sum(self);
    settle(self->comm);
}

/* Already connected by its first sum. */
static struct rank open_rank(int rank, int size, ncclUniqueId id)
{
    float *x = device_floats();
    const struct rank self = {open_comm(rank, size, id), new_stream(),
                              size == 1 ? device_floats() : x, x};
    OK(set(self.stream, self.from, 1));
    add(&self);
    OK(cudaStreamSynchronize(self.stream));
    return self;
}

static struct rank only_rank(void)
{
    ncclUniqueId id;
    CHECK_INT(ncclGetUniqueId(&id), ncclSuccess);
    return open_rank(0, 1, id);
}

static void close_rank(const struct rank *self)
{
    close_comm(self->comm);
    OK(cudaStreamDestroy(self->stream));
    OK(cudaFree(self->x));
    if (self->from != self->x) {
        OK(cudaFree(self->from));
    }
}

static void launch_and_destroy(cudaGraphExec_t exec, cudaStream_t stream)
{
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaGraphExecDestroy(exec));
}

static cudaGraphExec_t end_recording(cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    return exec;
}

static struct rank recording_rank(void)
{
    const struct rank self = only_rank();
    OK(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeThreadLocal));
    return self;
}

static void a_sum_that_is_driven_until_it_is_issued(void)
{
    const struct rank self = recording_rank();
    add(&self);
    OK(append(self.stream, self.x, 2));
    launch_and_destroy(end_recording(self.stream), self.stream);
    CHECK_NEAR(first_of(self.stream, self.x), 12, 0);
    close_rank(&self);
}

static void work_while_a_thread_of_nccl_records(void)
{
    const struct rank self = recording_rank();
    start_sum(&self);
    append(self.stream, self.x, 2);
}

static void an_event_while_a_thread_of_nccl_records(void)
{
    const struct rank self = recording_rank();
    start_sum(&self);
    cudaEventRecord(new_event(), self.stream);
}

static void a_recording_that_ends_while_a_thread_of_nccl_records(void)
{
    const struct rank self = recording_rank();
    start_sum(&self);
    end_recording(self.stream);
}

static void one_rank_adds_nothing_in_place(void)
{
    const struct rank self = recording_rank();
    const long n_before = fake_counts().n_enqueued;
    CHECK_INT(ncclAllReduce(self.x, self.x, n_elems, ncclFloat32, ncclSum, self.comm, self.stream),
              ncclSuccess);
    CHECK_INT(fake_counts().n_enqueued, n_before);
    OK(append(self.stream, self.x, 2));
    launch_and_destroy(end_recording(self.stream), self.stream);
    CHECK_INT(fake_last_graph().n_nodes, 1);
    close_rank(&self);
}

static void finalized_before_its_graph(void)
{
    const struct rank self = recording_rank();
    add(&self);
    end_recording(self.stream);
    ncclCommFinalize(self.comm);
}

static void aborted_before_its_graph(void)
{
    const struct rank self = recording_rank();
    add(&self);
    end_recording(self.stream);
    ncclCommAbort(self.comm);
}

static void ended_in_a_thread_that_has_not_chosen_its_device(void)
{
    fake_options.n_devices = 2;
    OK(cudaSetDevice(1));
    const struct rank self = only_rank();
    std::thread([&self] { ncclCommAbort(self.comm); }).join();
}

static void ended_in_a_thread_that_has(void)
{
    fake_options.n_devices = 2;
    OK(cudaSetDevice(1));
    const struct rank self = only_rank();
    std::thread([&self] {
        OK(cudaSetDevice(1));
        CHECK_INT(ncclCommAbort(self.comm), ncclSuccess);
    }).join();
    OK(cudaStreamDestroy(self.stream));
    OK(cudaFree(self.x));
    OK(cudaFree(self.from));
}

/* Two ranks; the flags choose which of them record their second sum. */
static void two_ranks(bool first_records, bool second_records)
{
    ncclUniqueId id;
    CHECK_INT(ncclGetUniqueId(&id), ncclSuccess);
    fake_options.n_devices = 2;
    const int parent = getpid(), rank = fork() == 0;
    OK(cudaSetDevice(rank));
    const struct rank self = open_rank(rank, 2, id);
    if (rank == 0 ? first_records : second_records) {
        OK(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeThreadLocal));
        add(&self);
        launch_and_destroy(end_recording(self.stream), self.stream);
    } else {
        add(&self);
        OK(cudaStreamSynchronize(self.stream));
    }
    CHECK_NEAR(first_of(self.stream, self.x), 4, 0);
    close_rank(&self);
    int status = 0;
    CHECK(getpid() != parent || (wait(&status) > 0 && status == 0));
}

static void both_ranks_record(void)
{
    two_ranks(true, true);
}

static void one_rank_records(void)
{
    two_ranks(true, false);
}

/* A sum in a graph, then one call by call, while the first rank's GPU is ahead of the second's: the
 * second launches its graph when the first has queried the end of its own three times. */
static void unlike_progress(void)
{
    ncclUniqueId id;
    int gate[2];
    char byte = 0;
    CHECK_INT(ncclGetUniqueId(&id), ncclSuccess);
    CHECK(pipe(gate) == 0);
    fake_options.n_devices = 2;
    const int parent = getpid(), rank = fork() == 0;
    alarm(20); /* ends ranks that wait for each other's other sum */
    OK(cudaSetDevice(rank));
    const struct rank self = open_rank(rank, 2, id);
    OK(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeThreadLocal));
    add(&self);
    const cudaGraphExec_t exec = end_recording(self.stream);
    CHECK(rank == 0 || read(gate[0], &byte, 1) == 1);
    OK(cudaGraphLaunch(exec, self.stream));
    for (int i = 0; i < 3 && rank == 0; i++) {
        CHECK_INT(cudaStreamQuery(self.stream), cudaErrorNotReady);
    }
    CHECK(rank == 1 || write(gate[1], &byte, 1) == 1);
    add(&self);
    CHECK_NEAR(first_of(self.stream, self.x), 8, 0);
    OK(cudaGraphExecDestroy(exec));
    close_rank(&self);
    int status = 0;
    CHECK(getpid() != parent || (wait(&status) > 0 && status == 0));
}

int main(void)
{
    WORKS(a_sum_that_is_driven_until_it_is_issued);
    ENDS(work_while_a_thread_of_nccl_records, "append: two threads use one graph at once");
    ENDS(an_event_while_a_thread_of_nccl_records,
         "cudaEventRecord: two threads use one graph at once");
    ENDS(a_recording_that_ends_while_a_thread_of_nccl_records,
         "cudaStreamEndCapture: two threads use one graph at once");
    ENDS(ended_in_a_thread_that_has_not_chosen_its_device,
         "in a thread whose device is 0, of a thing on device 1");
    WORKS(ended_in_a_thread_that_has);
    WORKS(one_rank_adds_nothing_in_place);
    ENDS(finalized_before_its_graph,
         "ncclCommFinalize waits for ever: there is a graph with a collective of the communicator");
    ENDS(aborted_before_its_graph,
         "ncclCommAbort waits for ever: there is a graph with a collective of the communicator");
    WORKS(both_ranks_record);
    WORKS(unlike_progress);
    ENDS(one_rank_records,
         "NCCL: collective 2 is part of a graph on one of ranks 0 and 1, and not on the other");
    return 0;
}
