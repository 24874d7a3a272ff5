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

/* The rank records, and `then` happens to it. */
static void recording(void (*then)(const rank &), bool started = true)
{
    const rank self(0, 1, new_id());
    self.record();
    if (started) {
        self.start_sum();
    }
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

static void a_sum_that_is_driven_until_it_is_issued(const rank &self)
{
    settle(self.comm);
    OK(append(self.on, self.x, 2));
    {
        const graph exec(new_graph(self.on));
        OK(cudaGraphLaunch(exec, self.on));
    }
    CHECK_NEAR(first_of(self.on, self.x), 12, 0);
    self.close();
}

static void one_rank_adds_nothing_in_place(const rank &self)
{
    const long n_before = fake_counts().n_enqueued;
    CHECK_INT(ncclAllReduce(self.x, self.x, n_elems, ncclFloat32, ncclSum, self.comm, self.on),
              ncclSuccess);
    CHECK_INT(fake_counts().n_enqueued, n_before);
    OK(append(self.on, self.x, 2));
    {
        const graph exec(new_graph(self.on));
    }
    CHECK_INT(fake_last_graph().n_nodes, 1);
    self.close();
}

/* ---- two ranks ---- */

static void two_ranks(void (*body)(const rank &, int number))
{
    const ncclUniqueId id = new_id();
    fake_options.n_devices = 2;
    const int parent = getpid(), number = fork() == 0;
    alarm(20); /* ends ranks that wait for each other's other sum */
    OK(cudaSetDevice(number));
    {
        const rank self(number, 2, id);
        body(self, number);
        self.close();
    }
    int status = 0;
    CHECK(getpid() != parent || (wait(&status) > 0 && status == 0));
}

static void add_in_graph(const rank &self)
{
    self.record();
    self.add();
    const graph exec(new_graph(self.on));
    OK(cudaGraphLaunch(exec, self.on));
    OK(cudaStreamSynchronize(self.on));
}

static void both_record(const rank &self, int)
{
    add_in_graph(self);
    CHECK_NEAR(first_of(self.on, self.x), 4, 0);
}

static void one_records(const rank &self, int number)
{
    if (number == 0) {
        add_in_graph(self);
    } else {
        self.add();
        OK(cudaStreamSynchronize(self.on));
    }
}

static int gate[2];

/* A sum in a graph, then one call by call, while the first rank's GPU is ahead of the second's: the
 * second launches its graph when the first has queried the end of its own three times. */
static void unlike_progress(const rank &self, int number)
{
    char byte = 0;
    self.record();
    self.add();
    const graph exec(new_graph(self.on));
    CHECK(number == 0 || read(gate[0], &byte, 1) == 1);
    OK(cudaGraphLaunch(exec, self.on));
    for (int i = 0; i < 3 && number == 0; i++) {
        CHECK_INT(cudaStreamQuery(self.on), cudaErrorNotReady);
    }
    CHECK(number == 1 || write(gate[1], &byte, 1) == 1);
    self.add();
    CHECK_NEAR(first_of(self.on, self.x), 8, 0);
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
     [] { two_ranks(one_records); }},
};

static const fake_case rules[] = {
    {"driven until it is issued", [] { recording(a_sum_that_is_driven_until_it_is_issued); }},
    {"one rank", [] { recording(one_rank_adds_nothing_in_place, false); }},
    {"ended in a thread", [] { end_in_thread(true); }},
    {"both ranks record", [] { two_ranks(both_record); }},
    {"unlike progress", [] { two_ranks(unlike_progress); }},
};

int main()
{
    CHECK(pipe(gate) == 0);
    all_end(misuse);
    all_work(rules);
    return 0;
}
