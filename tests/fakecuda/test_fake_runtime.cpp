/* The fake CUDA runtime keeps CUDA's rules, and detects each rule that is broken on purpose: of
 * devices, memory, streams, events and graphs. Every case is a process of its own, which ends well
 * or with the expected line. */
#include "tests/fakecuda/trace.h"

/* ---- what ends the process ---- */

static void run(cudaStream_t stream, const char *name, std::function<void()> work)
{
    OK(fake_enqueue(stream, name, std::move(work)));
    OK(cudaStreamSynchronize(stream));
}

static void on_second_device()
{
    fake_options.n_devices = 2;
    OK(cudaSetDevice(1));
}

static void copy(void *to, const void *from, size_t n, cudaMemcpyKind kind)
{
    cudaMemcpyAsync(to, from, n, kind, new_stream());
}

static void record_two_priorities(unsigned long long flags)
{
    cudaStream_t high;
    OK(cudaStreamCreateWithPriority(&high, cudaStreamNonBlocking, -5));
    const stream usual(recording_stream()), urgent(high);
    const event event;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(fake_enqueue(usual, "usual", [] {}));
    OK(cudaEventRecord(event, usual));
    OK(cudaStreamWaitEvent(urgent, event, 0));
    OK(fake_enqueue(urgent, "urgent", [] {}));
    OK(cudaEventRecord(event, urgent));
    OK(cudaStreamWaitEvent(usual, event, 0));
    OK(cudaStreamEndCapture(usual, &graph));
    OK(cudaGraphInstantiate(&exec, graph, flags));
    OK(cudaGraphDestroy(graph));
    OK(cudaGraphExecDestroy(exec));
}

static float host[n_elems + 1];

static const fake_case misuse[] = {
    /* memory */
    {"the host touches byte 0 of device memory of 400 bytes",
     [] { *(volatile float *)device_floats() = 1; }},
    {"long wrote past the end of memory of 400 bytes",
     [] {
         float *x = device_floats();
         run(new_stream(), "long", [=] { *(volatile char *)&x[n_elems] = 1; });
     }},
    {"\"far\" on device 0 touches 256 bytes past the end of device memory of 400 bytes",
     [] {
         const float *x = device_floats();
         run(new_stream(), "far", [=] { (void)*(const volatile float *)&x[n_elems + 64]; });
     }},
    {"early wrote before the begin of memory of 400 bytes",
     [] {
         float *x = device_floats();
         run(new_stream(), "early", [=] { *(volatile float *)&x[-1] = 1; });
     }},
    {"\"other\" on device 1 touches byte 0 of device memory of 400 bytes (device 0)",
     [] {
         fake_options.n_devices = 2;
         float *x = device_floats();
         OK(cudaSetDevice(1));
         run(new_stream(), "other", [=] { *(volatile float *)x = 1; });
     }},
    {"wrote past the end of memory of 400 bytes",
     [] {
         float *x = pinned_floats();
         *(volatile char *)&x[n_elems] = 1;
         OK(cudaFreeHost(x));
     }},
    {"it is freed already",
     [] {
         float *x = device_floats();
         OK(cudaFree(x));
         OK(cudaFree(x));
     }},
    {"cudaFree: in a thread whose device is 0, of a thing on device 1",
     [] {
         on_second_device();
         float *x = device_floats();
         std::thread([x] { cudaFree(x); }).join();
     }},
    {"is not the begin of such memory", [] { OK(cudaFree(device_floats() + 1)); }},
    {"is not the begin of such memory", [] { OK(cudaFree(pinned_floats())); }},
    {"\"late\" on device 0 touches byte 0 of freed memory",
     [] {
         float *x = device_floats();
         OK(cudaFree(x));
         run(new_stream(), "late", [=] { *(volatile float *)x = 1; });
     }},
    {"of freed memory of 400 bytes",
     [] {
         const stream stream;
         float *x = pinned_floats();
         OK(cudaMemcpyAsync(device_floats(), x, n_bytes, cudaMemcpyHostToDevice, stream));
         OK(cudaFreeHost(x));
         OK(cudaStreamSynchronize(stream));
     }},
    {"cudaMemcpyAsync of kind 1 from device to host memory",
     [] { copy(host, device_floats(), n_bytes, cudaMemcpyHostToDevice); }},
    {"cudaMemcpyAsync of kind 3 from host to host memory",
     [] { copy(host, host + 1, 4, cudaMemcpyDeviceToDevice); }},
    {"cudaMemcpyAsync, target: 401 bytes at byte 0 of device memory of 400 bytes",
     [] { copy(device_floats(), host, n_bytes + 1, cudaMemcpyHostToDevice); }},
    {"is not device memory", [] { cudaMemsetAsync(host, 0, n_bytes, new_stream()); }},
    /* streams and events */
    {"set on the default stream", [] { set(NULL, device_floats(), 1); }},
    {"is not a stream, or is destroyed",
     [] {
         const cudaStream_t stream = new_stream();
         OK(cudaStreamDestroy(stream));
         cudaStreamSynchronize(stream);
     }},
    {"is not an event, or is destroyed",
     [] {
         const cudaEvent_t event = new_event();
         OK(cudaEventDestroy(event));
         cudaEventRecord(event, new_stream());
     }},
    {"set: in a thread whose device is 1, of a thing on device 0",
     [] {
         fake_options.n_devices = 2;
         const cudaStream_t stream = new_stream();
         OK(cudaSetDevice(1));
         set(stream, NULL, 1);
     }},
    {"cudaStreamSynchronize: in a thread whose device is 0, of a thing on device 1",
     [] {
         on_second_device();
         const cudaStream_t stream = new_stream();
         std::thread([stream] { cudaStreamSynchronize(stream); }).join();
     }},
    {"\"caller\", which is enqueued work, calls cudaStreamSynchronize",
     [] {
         const cudaStream_t stream = new_stream();
         run(stream, "caller", [=] { cudaStreamSynchronize(stream); });
     }},
    /* graphs */
    {"the priorities of the graph's nodes are lost", [] { record_two_priorities(0); }},
    {"a graph records a copy with pageable memory",
     [] {
         float *x = device_floats();
         cudaMemcpyAsync(x, host, n_bytes, cudaMemcpyHostToDevice, recording_stream());
     }},
    /* leaks */
    {"not closed at exit: device memory (1)", [] { device_floats(); }},
    {"not closed at exit: pinned memory (1)", [] { pinned_floats(); }},
    {"not closed at exit: stream (1)", [] { new_stream(); }},
    {"not closed at exit: event (1)", [] { new_event(); }},
    {"not closed at exit: graph (1)",
     [] {
         cudaGraph_t graph;
         OK(cudaStreamEndCapture(stream(recording_stream()), &graph));
     }},
    {"not closed at exit: executable graph (1)", [] { new_graph(stream(recording_stream())); }},
};

/* ---- errors that are returned ---- */

/* By calls or in a graph: the second fails, but only later, and what comes after does not run. */
static void a_failure_is_sticky(bool recorded)
{
    fake_options.fail_launch_at = 2;
    const cudaStream_t stream = recorded ? recording_stream() : new_stream();
    float *const x = recorded ? NULL : device_floats();
    int n_runs = 0;
    for (int i = 0; i < 3; i++) {
        OK(fake_enqueue(stream, "counts", [&] { n_runs++; }));
    }
    const cudaGraphExec_t exec = recorded ? new_graph(stream) : NULL;
    OK(recorded ? cudaGraphLaunch(exec, stream) : cudaSuccess);
    void *memory;
    CHECK_INT(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
    CHECK_INT(n_runs, 1);
    CHECK_INT(set(stream, x, 4), cudaErrorIllegalAddress);
    CHECK_INT(cudaGetLastError(), cudaErrorIllegalAddress);
    CHECK_INT(cudaGetLastError(), cudaErrorIllegalAddress);
    CHECK_INT(cudaMalloc(&memory, 1), cudaErrorIllegalAddress);
    /* ended all the same */
    CHECK_INT(recorded ? cudaGraphExecDestroy(exec) : cudaFree(x), cudaErrorIllegalAddress);
    CHECK_INT(cudaStreamDestroy(stream), cudaErrorIllegalAddress);
}

/* ---- work is as late as CUDA allows, so that a missing wait shows ---- */

static void memory_begins_as_nan()
{
    const stream stream;
    const floats x;
    const pinned y;
    CHECK(isnan(first_of(stream, x)) && isnan(y[n_elems - 1]));
    OK(cudaMemsetAsync(x, 0, n_bytes, stream));
    CHECK_NEAR(first_of(stream, x), 0, 0);
}

static void pinned_memory_is_read_late()
{
    const stream stream;
    const floats x, y;
    const pinned from;
    float pageable[n_elems];
    pageable[0] = from[0] = 1;
    OK(cudaMemcpyAsync(x, pageable, n_bytes, cudaMemcpyHostToDevice, stream));
    OK(cudaMemcpyAsync(y, from, n_bytes, cudaMemcpyHostToDevice, stream));
    pageable[0] = from[0] = 2;
    CHECK_NEAR(first_of(stream, x), 1, 0);
    CHECK_NEAR(first_of(stream, y), 2, 0);
    OK(cudaMemcpyAsync(from, x, n_bytes, cudaMemcpyDeviceToHost, stream));
    CHECK_NEAR(from[0], 2, 0); /* nothing has waited yet */
    OK(cudaStreamSynchronize(stream));
    CHECK_NEAR(from[0], 1, 0);
}

static void work_is_late()
{
    const stream first, second;
    const floats x;
    OK(set(first, x, 1));
    CHECK(isnan(first_of(second, x))); /* waits for the second stream alone */
    OK(cudaDeviceSynchronize());
    CHECK_NEAR(first_of(second, x), 1, 0);
    CHECK_INT(fake_counts().n_enqueued, 3);
    CHECK_INT(fake_counts().n_host_waits, 3);
}

static void a_free_waits()
{
    const stream stream;
    float *x = device_floats();
    bool ran = false;
    OK(fake_enqueue(stream, "sets", [&] { ran = true; }));
    OK(cudaFree(x));
    CHECK(ran);
}

static void looking_takes_a_step()
{
    const stream stream;
    const event from, to;
    int n_calls = 0;
    float ms = -1;
    OK(cudaStreamQuery(stream));
    OK(cudaEventQuery(to));
    CHECK_INT(cudaEventElapsedTime(&ms, from, to), cudaErrorInvalidResourceHandle);
    OK(cudaEventRecord(from, stream));
    OK(fake_enqueue_until(stream, "waits", [&] { return ++n_calls == 3; }));
    OK(cudaEventRecord(to, stream));
    CHECK_INT(cudaStreamQuery(stream), cudaErrorNotReady);
    CHECK_INT(cudaGetLastError(), cudaErrorNotReady);
    CHECK_INT(cudaEventQuery(to), cudaErrorNotReady);
    CHECK_INT(cudaEventElapsedTime(&ms, from, to), cudaErrorNotReady);
    OK(cudaEventSynchronize(to));
    CHECK_INT(n_calls, 3);
    OK(cudaEventElapsedTime(&ms, from, to));
    CHECK(ms > 0);
}

/* ---- graphs ---- */

static void a_launch_behind_many_others_blocks()
{
    const stream stream(recording_stream());
    int n_runs = 0;
    OK(fake_enqueue(stream, "counts", [&] { n_runs++; }));
    const graph exec(new_graph(stream));
    for (int i = 0; i < 8; i++) {
        OK(cudaGraphLaunch(exec, stream));
    }
    CHECK(n_runs == 0 && fake_counts().n_host_waits == 0);
    OK(cudaGraphLaunch(exec, stream));
    CHECK(n_runs == 1 && fake_counts().n_host_waits == 1);
    OK(cudaStreamSynchronize(stream));
    CHECK_INT(n_runs, 9);
}

static void begin_branch(cudaEvent_t event, cudaStream_t from, cudaStream_t to)
{
    OK(cudaEventRecord(event, from));
    OK(cudaStreamWaitEvent(to, event, 0));
}

/* Two branches: `side` begins after 1, or before if it is early, and ends before 4. */
static float two_branches(bool early)
{
    const stream stream, side;
    const event event;
    const floats x;
    OK(set(stream, x, 0));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    if (early) {
        begin_branch(event, stream, side);
    }
    OK(append(stream, x, 1));
    if (!early) {
        begin_branch(event, stream, side);
    }
    OK(append(stream, x, 2)); /* beside 3 */
    OK(append(side, x, 3));
    begin_branch(event, side, stream);
    OK(append(stream, x, 4));
    const graph exec(new_graph(stream));
    OK(cudaGraphLaunch(exec, stream));
    return first_of(stream, x);
}

/* They run in another order than recorded, which shows what is not ordered. */
static void branches()
{
    CHECK_NEAR(two_branches(false), 1324, 0);
    CHECK_INT(fake_last_graph().n_nodes, 4);
    CHECK_INT(fake_last_graph().longest_chain, 3); /* 2 and 3 in parallel */
    CHECK_NEAR(two_branches(true), 3124, 0);
}

static void unjoined_branch()
{
    const stream stream(recording_stream()), side;
    const event event;
    cudaGraph_t graph;
    begin_branch(event, stream, side);
    CHECK(fake_is_capturing(side));
    OK(fake_enqueue(side, "alone", [] {}));
    CHECK_INT(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
    CHECK(!fake_is_capturing(side));
}

struct scene {
    floats x;
    event before; /* recorded on the other stream before the recording */
    stream other, it;
};

/* The call fails with this code, and spoils the recording of the stream. */
struct spoiler {
    cudaError_t code;
    cudaError_t (*call)(const scene &on);
};

static void *memory;
static const cudaError_t unsupported = cudaErrorStreamCaptureUnsupported;

static const spoiler spoilers[] = {
    {unsupported, [](const scene &on) { return cudaStreamSynchronize(on.it); }},
    {unsupported, [](const scene &) { return cudaDeviceSynchronize(); }},
    {unsupported, [](const scene &on) { return cudaStreamQuery(on.it); }},
    {unsupported, [](const scene &) { return cudaMalloc((void **)&memory, 1); }},
    {unsupported, [](const scene &on) { return cudaFree(on.x); }},
    {unsupported, [](const scene &on) { return cudaEventQuery(on.before); }},
    {cudaErrorStreamCaptureIsolation,
     [](const scene &on) { return cudaStreamWaitEvent(on.it, on.before, 0); }},
    {cudaErrorCapturedEvent,
     [](const scene &on) {
         OK(cudaEventRecord(on.before, on.it));
         return cudaEventQuery(on.before);
     }},
    {cudaErrorStreamCaptureUnmatched,
     [](const scene &on) {
         cudaGraph_t graph;
         CHECK_INT(cudaStreamEndCapture(on.other, &graph), cudaErrorIllegalState);
         begin_branch(on.before, on.it, on.other);
         return cudaStreamEndCapture(on.other, &graph);
     }},
};

static void spoiled_recordings()
{
    for (const spoiler &each : spoilers) {
        const scene on;
        cudaGraph_t graph = (cudaGraph_t)&graph;
        cudaStreamCaptureStatus status;
        OK(cudaEventRecord(on.before, on.other));
        OK(cudaStreamBeginCapture(on.it, cudaStreamCaptureModeThreadLocal));
        CHECK_INT(each.call(on), each.code);
        OK(cudaStreamIsCapturing(on.it, &status));
        CHECK_INT(status, cudaStreamCaptureStatusInvalidated);
        CHECK_INT(fake_enqueue(on.it, "nothing", [] {}), cudaErrorStreamCaptureInvalidated);
        CHECK_INT(cudaStreamEndCapture(on.it, &graph), cudaErrorStreamCaptureInvalidated);
        CHECK(graph == NULL && !fake_is_capturing(on.it));
        OK(cudaStreamSynchronize(on.it));
    }
}

static void event_of_an_ended_recording()
{
    const stream stream(recording_stream());
    const event event;
    OK(cudaEventRecord(event, stream));
    OK(cudaGraphExecDestroy(new_graph(stream)));
    CHECK_INT(cudaStreamWaitEvent(stream, event, 0), cudaErrorCapturedEvent);
    CHECK_INT(cudaEventSynchronize(event), cudaErrorCapturedEvent);
}

static const fake_case rules[] = {
    {"no such device", [] { CHECK_INT(cudaSetDevice(1), cudaErrorInvalidDevice); }},
    {"a failure is sticky", [] { a_failure_is_sticky(false); }},
    {"a failure in a graph is sticky", [] { a_failure_is_sticky(true); }},
    {"memory begins as NaN", memory_begins_as_nan},
    {"pinned memory is read late", pinned_memory_is_read_late},
    {"work is late", work_is_late},
    {"a free waits", a_free_waits},
    {"looking takes a step", looking_takes_a_step},
    {"a launch behind many others blocks", a_launch_behind_many_others_blocks},
    {"branches", branches},
    {"an unjoined branch", unjoined_branch},
    {"spoiled recordings", spoiled_recordings},
    {"an event of an ended recording", event_of_an_ended_recording},
    {"priorities", [] { record_two_priorities(cudaGraphInstantiateFlagUseNodePriority); }},
};

int main()
{
    all_end(misuse);
    all_work(rules);
    return 0;
}
