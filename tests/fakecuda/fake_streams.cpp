/* Streams and events of fake CUDA. A stream is a queue of closures. Nothing runs until the host
 * waits for it or queries it, and then only what must have happened: so a missing wait between two
 * streams shows at once. */
#include "tests/fakecuda/fake_runtime.h"

#include <sched.h>

struct CUevent_st {
    int device;
    bool timed;
    std::shared_ptr<fake::marker> recorded;
    long capture_serial; /* of the capture that recorded it; 0: none */
    std::vector<size_t> tail;
};

namespace fake {

std::optional<capture> recording;
long n_performed; /* the clock of cudaEventElapsedTime */
long n_moved;     /* by the next work item */
std::vector<std::unique_ptr<CUstream_st>> streams;
fake_living<CUevent_st> events = {"event", {}};

void need_stream(cudaStream_t stream, const char *call)
{
    if (stream == nullptr) {
        fake_die("%s on the default stream, which waits for others behind one's back", call);
    }
    const auto same = [stream](const auto &each) { return each.get() == stream && each->live; };
    if (std::none_of(streams.begin(), streams.end(), same)) {
        fake_die("%s: %p is not a stream, or is destroyed", call, (void *)stream);
    }
    need_current(stream->device, call);
}

void need_current(int device, const char *call)
{
    if (device != current_device) {
        fake_die("%s: in a thread whose device is %d, of a thing on device %d", call,
                 current_device, device);
    }
}

void need_event(cudaEvent_t event, const char *call)
{
    if (!events.has(event)) {
        fake_die("%s: %p is not an event, or is destroyed", call, (void *)event);
    }
}

bool perform(const piece &piece)
{
    if (piece.fails) {
        sticky_error = fake_options.fail_code != 0 ? (cudaError_t)fake_options.fail_code
                                                   : cudaErrorIllegalAddress;
        return false;
    }
    const char *outer = running;
    running = piece.name.c_str();
    const bool loses = fake_options.lost_writes && piece.name != "cudaMemcpyAsync";
    std::map<char *, std::vector<char>> before;
    for (const auto &[address, memory] : memories) {
        if (loses && memory.is == PINNED) {
            before[memory.begin].assign(memory.begin, memory.begin + memory.n_bytes);
        }
    }
    const bool done = piece.run();
    for (const auto &[to, bytes] : before) {
        std::copy(bytes.begin(), bytes.end(), to);
    }
    for (const auto &[address, memory] : memories) {
        if (memory.is == PINNED || (memory.is == DEVICE && memory.device == exposed)) {
            check_slack(memory, running);
        }
    }
    running = outer;
    n_performed++;
    return done;
}

void step(cudaStream_t stream)
{
    if (sticky_error == cudaSuccess && !stream->queue.empty()) {
        expose(stream->device);
        if (perform(stream->queue.front())) {
            stream->queue.pop_front();
        }
    }
}

template <typename condition> void run_until(cudaStream_t stream, condition done)
{
    while (sticky_error == cudaSuccess && !done()) {
        const size_t n_before = stream->queue.size();
        step(stream);
        if (stream->queue.size() == n_before) {
            expose(-1);
            sched_yield();
        }
    }
    expose(-1);
}

cudaError_t block(cudaStream_t stream, const std::function<bool()> &done)
{
    counts.n_host_waits++;
    run_until(stream, done);
    return fail(sticky_error);
}

cudaError_t wait_stream(cudaStream_t stream)
{
    return block(stream, [stream] { return stream->queue.empty(); });
}

cudaError_t wait_device(int device)
{
    counts.n_host_waits++;
    for (const auto &stream : streams) {
        if (stream->device == device) {
            run_until(stream.get(), [&stream] { return stream->queue.empty(); });
        }
    }
    return fail(sticky_error);
}

void need_graph(const char *call)
{
    if (recording->user != std::this_thread::get_id()) {
        fake_die("%s: two threads use one graph at once: the other one's library has not said that "
                 "it is done with it",
                 call);
    }
}

cudaError_t push(cudaStream_t stream, piece piece)
{
    piece.n_bytes = std::exchange(n_moved, 0);
    if (!stream->capturing) {
        stream->queue.push_back(std::move(piece));
        return cudaSuccess;
    }
    need_graph(piece.name.c_str());
    if (recording->invalid) {
        return fail(cudaErrorStreamCaptureInvalidated);
    }
    recording->nodes.push_back({std::move(piece), stream->tail, stream->priority});
    stream->tail = {recording->nodes.size() - 1};
    return cudaSuccess;
}

cudaError_t spoil_capture(cudaError_t code)
{
    recording->invalid = true;
    return fail(code);
}

cudaError_t refuse_in_capture()
{
    if (recording) {
        return spoil_capture(cudaErrorStreamCaptureUnsupported);
    }
    return cudaSuccess;
}

} // namespace fake

using namespace fake;

void fake_give_graph(std::thread::id to)
{
    recording->user = to;
}

void fake_moves(size_t n_bytes)
{
    n_moved += (long)n_bytes;
}

void fake_take_time(long ms)
{
    n_performed += ms;
}

int fake_is_capturing(cudaStream_t stream)
{
    need_stream(stream, __func__);
    return stream->capturing;
}

cudaError_t fake_enqueue_until(cudaStream_t stream, const char *name, std::function<bool()> work,
                               std::shared_ptr<void> held,
                               std::function<std::function<bool()>()> launched)
{
    const cudaError_t entered = enter(name);
    if (entered != cudaSuccess) {
        return fail(entered);
    }
    need_stream(stream, name);
    const bool fails = ++counts.n_enqueued == fake_options.fail_launch_at;
    if (counts.n_enqueued == fake_options.hang_launch_at) {
        work = [] { return false; };
    }
    return push(stream, {name, std::move(work), fails, std::move(held), std::move(launched)});
}

cudaError_t fake_enqueue(cudaStream_t stream, const char *name, std::function<void()> work)
{
    return fake_enqueue_until(stream, name, [work] {
        work();
        return true;
    });
}

/* ---- the runtime ---- */

cudaError_t cudaDeviceSynchronize(void)
{
    ENTER();
    REFUSE_IN_CAPTURE();
    return wait_device(current_device);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int priority)
{
    ENTER();
    streams.push_back(std::make_unique<CUstream_st>());
    *stream = streams.back().get();
    (*stream)->device = current_device;
    (*stream)->priority = priority;
    (*stream)->live = true;
    fake_opened("stream");
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER();
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    ENTER();
    need_stream(stream, __func__);
    *priority = stream->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    const cudaError_t entered = enter(__func__);
    need_stream(stream, __func__);
    if (stream->capturing) {
        fake_die("cudaStreamDestroy of a stream that records a graph");
    }
    stream->live = false;
    fake_closed("stream");
    return fail(entered);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ENTER();
    need_stream(stream, __func__);
    return stream->capturing ? spoil_capture(cudaErrorStreamCaptureUnsupported)
                             : wait_stream(stream);
}

/* Each look runs one item, and a look that finds work returns "not done". */
static cudaError_t look(cudaStream_t stream, bool done)
{
    if (done) {
        return cudaSuccess;
    }
    step(stream);
    expose(-1);
    return fail(sticky_error != cudaSuccess ? sticky_error : cudaErrorNotReady);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    ENTER();
    need_stream(stream, __func__);
    return stream->capturing ? spoil_capture(cudaErrorStreamCaptureUnsupported)
                             : look(stream, stream->queue.empty());
}

/* ---- the runtime: events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    ENTER();
    const bool timed = (flags & cudaEventDisableTiming) == 0;
    *event = events.add(new CUevent_st{current_device, timed, nullptr, 0, {}});
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    const cudaError_t entered = enter(__func__);
    need_event(event, __func__);
    events.remove(event);
    return fail(entered);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER();
    need_event(event, __func__);
    need_stream(stream, __func__);
    if (event->device != stream->device) {
        return fail(cudaErrorInvalidResourceHandle);
    }
    if (stream->capturing) {
        need_graph(__func__);
        event->recorded = nullptr;
        event->capture_serial = recording->serial;
        event->tail = stream->tail;
        return recording->invalid ? fail(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
    }
    const auto mark = std::make_shared<marker>(marker{stream, false, 0});
    event->recorded = mark;
    event->capture_serial = 0;
    const auto reached = [mark] {
        mark->done = true;
        mark->time = n_performed;
        return true;
    };
    return push(stream, {__func__, reached, false, nullptr, nullptr});
}

/* A stream that waits for an event of a recording stream records with it. */
static cudaError_t wait_captured(cudaStream_t stream, cudaEvent_t event)
{
    if (!recording || recording->serial != event->capture_serial) {
        return fail(cudaErrorCapturedEvent);
    }
    need_graph("cudaStreamWaitEvent");
    stream->capturing = true;
    stream->tail.insert(stream->tail.end(), event->tail.begin(), event->tail.end());
    return recording->invalid ? fail(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    ENTER();
    need_event(event, __func__);
    need_stream(stream, __func__);
    if (event->capture_serial != 0) {
        return wait_captured(stream, event);
    }
    if (event->recorded == nullptr) {
        return cudaSuccess;
    }
    if (stream->capturing) {
        return spoil_capture(cudaErrorStreamCaptureIsolation);
    }
    const auto mark = event->recorded;
    const auto wait = [mark] {
        if (!mark->done) {
            step(mark->stream);
        }
        return mark->done;
    };
    return push(stream, {__func__, wait, false, nullptr, nullptr});
}

/* May be NULL: a point that a host call may wait for or query. */
static cudaError_t recorded_mark(cudaEvent_t event, std::shared_ptr<marker> &mark)
{
    if (event->capture_serial != 0) {
        return recording ? spoil_capture(cudaErrorCapturedEvent) : fail(cudaErrorCapturedEvent);
    }
    REFUSE_IN_CAPTURE();
    mark = event->recorded;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ENTER();
    need_event(event, __func__);
    std::shared_ptr<marker> mark;
    const cudaError_t code = recorded_mark(event, mark);
    return code != cudaSuccess || mark == nullptr ? code : look(mark->stream, mark->done);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ENTER();
    need_event(event, __func__);
    std::shared_ptr<marker> mark;
    const cudaError_t code = recorded_mark(event, mark);
    if (code != cudaSuccess || mark == nullptr) {
        return code;
    }
    return block(mark->stream, [mark] { return mark->done; });
}

/* A millisecond for each item, plus the duration that it declared. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    ENTER();
    need_event(from, __func__);
    need_event(to, __func__);
    if (!from->timed || !to->timed || from->recorded == nullptr || to->recorded == nullptr) {
        return fail(cudaErrorInvalidResourceHandle);
    }
    if (!from->recorded->done || !to->recorded->done) {
        return fail(cudaErrorNotReady);
    }
    *ms = (float)(to->recorded->time - from->recorded->time);
    return cudaSuccess;
}
