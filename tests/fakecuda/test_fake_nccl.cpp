/* Fake NCCL keeps NCCL's rules, and detects each rule that is broken on purpose: rules that one
 * rank can break alone, and those that need two ranks. */
#include <nccl.h>

#include "tests/fakecuda/fake_nccl.h"
#include "tests/fakecuda/trace.h"

static void settle(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        CHECK_INT(ncclCommGetAsyncError(comm, &state), ncclSuccess);
    }
    CHECK_INT(state, ncclSuccess);
}

/* A rank that is connected by its first sum. */
struct rank {
    ncclComm_t comm;
    stream on;
    floats x, other; /* one rank has nothing to do in place, so it adds from `other` */
    float *from;

    rank(int number, int size, ncclUniqueId id) : from(size == 1 ? other : x)
    {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        CHECK_INT(ncclCommInitRankConfig(&comm, size, id, number, &config), ncclInProgress);
        settle(comm);
        OK(set(on, from, 1));
        add();
        OK(cudaStreamSynchronize(on));
    }
    void start_sum() const
    {
        CHECK_INT(ncclAllReduce(from, x, n_elems, ncclFloat32, ncclSum, comm, on), ncclInProgress);
    }
    void add() const
    {
        start_sum();
        settle(comm);
    }
    void record() const
    {
        OK(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal));
    }
    void close() const
    {
        ncclCommFinalize(comm);
        settle(comm);
        CHECK_INT(ncclCommDestroy(comm), ncclSuccess);
    }
};

static ncclUniqueId new_id()
{
    ncclUniqueId id;
    CHECK_INT(ncclGetUniqueId(&id), ncclSuccess);
    return id;
}

/* ---- one rank ---- */

/* The rank records a sum, and `then` happens to it. */
static void recording(void (*then)(const rank &))
{
    const rank self(0, 1, new_id());
    self.record();
    self.start_sum();
    then(self);
}

/* Ends the rank, on the second device, in a thread. */
static void end_in_thread(bool chooses)
{
    fake_options.n_devices = 2;
    OK(cudaSetDevice(1));
    const rank self(0, 1, new_id());
    std::thread([&] {
        OK(cudaSetDevice(chooses));
        CHECK_INT(ncclCommAbort(self.comm), ncclSuccess);
    }).join();
}

static void end_before_graph(const rank &self, ncclResult_t (*end)(ncclComm_t))
{
    settle(self.comm);
    new_graph(self.on);
    end(self.comm);
}

/* ---- two ranks ---- */

/* Each adds once more, the first in a graph; and so does the second, if it records, too. */
static void two_ranks(bool second_records)
{
    const ncclUniqueId id = new_id();
    fake_options.n_devices = 2;
    const int parent = getpid(), number = fork() == 0;
    alarm(20); /* ends ranks that wait for each other */
    OK(cudaSetDevice(number));
    {
        const rank self(number, 2, id);
        const bool records = number == 0 || second_records;
        if (records) {
            self.record();
        }
        self.add();
        if (records) {
            const graph exec(new_graph(self.on));
            OK(cudaGraphLaunch(exec, self.on));
        }
        CHECK_NEAR(first_of(self.on, self.x), 4, 0);
        self.close();
    }
    int status = 0;
    CHECK(getpid() != parent || (wait(&status) > 0 && status == 0));
}

static const fake_case misuse[] = {
    {"append: two threads use one graph at once",
     [] { recording([](const rank &self) { append(self.on, self.x, 2); }); }},
    {"cudaEventRecord: two threads use one graph at once",
     [] { recording([](const rank &self) { cudaEventRecord(new_event(), self.on); }); }},
    {"cudaStreamEndCapture: two threads use one graph at once",
     [] { recording([](const rank &self) { new_graph(self.on); }); }},
    {"in a thread whose device is 0, of a thing on device 1", [] { end_in_thread(false); }},
    {"ncclCommFinalize waits for ever: there is a graph with a collective of the communicator",
     [] { recording([](const rank &self) { end_before_graph(self, ncclCommFinalize); }); }},
    {"ncclCommAbort waits for ever: there is a graph with a collective of the communicator",
     [] { recording([](const rank &self) { end_before_graph(self, ncclCommAbort); }); }},
    {"NCCL: collective 2 is part of a graph on one of ranks 0 and 1, and not on the other",
     [] { two_ranks(false); }},
};

static const fake_case rules[] = {
    {"ended in a thread that has chosen its device", [] { end_in_thread(true); }},
    {"two ranks record", [] { two_ranks(true); }},
};

int main()
{
    all_end(misuse);
    all_work(rules);
    return 0;
}
