/* Streams and events of fake CUDA. A stream is a queue of closures. Nothing runs until the host
 * waits for it or queries it, and then only what must have happened: so a missing wait between two
 * streams shows at once. */
#include "tests/fakecuda/fake_runtime.h"

#include <sched.h>

/* An event's position in a stream. */
struct marker {
    cudaStream_t stream;
    bool done;
    long time;
};

struct CUevent_st {
    int device;
    bool timed;
    std::shared_ptr<marker> recorded;
    long capture_serial; /* of the capture that recorded it; 0: none */
    std::vector<size_t> tail;
};

namespace fake {

std::optional<capture> recording;
long n_performed; /* the clock of cudaEventElapsedTime */
long n_moved;     /* moves(): by the next work item */
std::vector<std::unique_ptr<CUstream_st>> streams;
static living<CUevent_st> events = {"event", {}};

void need_stream(cudaStream_t stream, const char *call)
{
    FAKE_CHECK(stream != nullptr,
               "%s on the default stream, which waits for others behind one's back", call);
    const auto same = [stream](const auto &each) { return each.get() == stream && each->live; };
    FAKE_CHECK(std::any_of(streams.begin(), streams.end(), same),
               "%s: %p is not a stream, or is destroyed", call, (void *)stream);
    need_current(stream->device, call);
}

bool perform(const piece &piece)
{
    const char *outer = running;
    running = piece.name;
    const bool loses = fake_options.lost_writes && strcmp(piece.name, "cudaMemcpyAsync") != 0;
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

cudaError_t use_graph(const char *call)
{
    FAKE_CHECK(!recording->lent,
               "%s: two threads use one graph at once: NCCL has not said that it is done with it",
               call);
    return recording->invalid ? fail(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}

cudaError_t push(cudaStream_t stream, piece piece)
{
    piece.n_bytes = std::exchange(n_moved, 0);
    if (!stream->capturing) {
        stream->queue.push_back(std::move(piece));
        return cudaSuccess;
    }
    TRY(use_graph(piece.name));
    recording->nodes.push_back({std::move(piece), stream->tail, stream->priority});
    stream->tail = {recording->nodes.size() - 1};
    return cudaSuccess;
}

cudaError_t refuse_in_capture()
{
    if (!recording) {
        return cudaSuccess;
    }
    recording->invalid = true;
    return fail(cudaErrorStreamCaptureUnsupported);
}

void moves(size_t n_bytes)
{
    n_moved += (long)n_bytes;
}

void take_time(long ms)
{
    n_performed += ms;
}

cudaError_t enqueue_until(cudaStream_t stream, const char *name, std::function<bool()> work)
{
    TRY(enter(name));
    need_stream(stream, name);
    if (++counts.n_enqueued == fake_options.hang_launch_at) {
        work = [] { return false; };
    }
    if (counts.n_enqueued == fake_options.fail_launch_at) {
        work = [] {
            sticky_error = fake_options.fail_code != 0 ? (cudaError_t)fake_options.fail_code
                                                       : cudaErrorIllegalAddress;
            return false;
        };
    }
    return push(stream, {name, std::move(work)});
}

cudaError_t enqueue(cudaStream_t stream, const char *name, std::function<void()> work)
{
    return enqueue_until(stream, name, [work = std::move(work)] {
        work();
        return true;
    });
}

} // namespace fake

using namespace fake;

/* ---- the runtime ---- */

cudaError_t cudaDeviceSynchronize(void)
{
    ENTER();
    TRY(refuse_in_capture());
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
    FAKE_CHECK(!stream->capturing, "cudaStreamDestroy of a stream that records a graph");
    stream->live = false;
    fake_closed("stream");
    return fail(entered);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ENTER();
    need_stream(stream, __func__);
    return stream->capturing ? refuse_in_capture() : wait_stream(stream);
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
    return stream->capturing ? refuse_in_capture() : look(stream, stream->queue.empty());
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
    events.remove(event, __func__);
    return fail(entered);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER();
    events.need(event, __func__);
    need_stream(stream, __func__);
    FAKE_CHECK(event->device == stream->device, "%s on another device's stream", __func__);
    if (stream->capturing) {
        event->recorded = nullptr;
        event->capture_serial = recording->serial;
        event->tail = stream->tail;
        return use_graph(__func__);
    }
    const auto mark = std::make_shared<marker>(marker{stream, false, 0});
    event->recorded = mark;
    event->capture_serial = 0;
    const auto reached = [mark] {
        mark->done = true;
        mark->time = n_performed;
        return true;
    };
    return push(stream, {__func__, reached});
}

/* A stream that waits for an event of a recording stream records with it. */
static cudaError_t wait_captured(cudaStream_t stream, cudaEvent_t event)
{
    FAKE_CHECK(recording && recording->serial == event->capture_serial,
               "cudaStreamWaitEvent: the event belongs to a recording that has ended");
    stream->capturing = true;
    stream->tail.insert(stream->tail.end(), event->tail.begin(), event->tail.end());
    return use_graph("cudaStreamWaitEvent");
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    ENTER();
    events.need(event, __func__);
    need_stream(stream, __func__);
    if (event->capture_serial != 0) {
        return wait_captured(stream, event);
    }
    if (event->recorded == nullptr) {
        return cudaSuccess;
    }
    FAKE_CHECK(!stream->capturing, "a recorded stream waits for work outside of its graph");
    const auto mark = event->recorded;
    const auto wait = [mark] {
        if (!mark->done) {
            step(mark->stream);
        }
        return mark->done;
    };
    return push(stream, {__func__, wait});
}

/* A point that the host may wait for or query; NULL: the event was never recorded. */
static std::shared_ptr<marker> mark_of(cudaEvent_t event, const char *call)
{
    FAKE_CHECK(events.need(event, call)->capture_serial == 0, "%s: the event is part of a graph",
               call);
    return event->recorded;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ENTER();
    TRY(refuse_in_capture());
    const auto mark = mark_of(event, __func__);
    return mark == nullptr ? cudaSuccess : look(mark->stream, mark->done);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ENTER();
    TRY(refuse_in_capture());
    const auto mark = mark_of(event, __func__);
    return mark == nullptr ? cudaSuccess : block(mark->stream, [mark] { return mark->done; });
}

/* A millisecond for each item, plus the duration that it declared. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    ENTER();
    const auto begin = mark_of(from, __func__), end = mark_of(to, __func__);
    FAKE_CHECK(from->timed && to->timed && begin != nullptr && end != nullptr && begin->done &&
                   end->done,
               "%s: the events are not timed, or not reached", __func__);
    *ms = (float)(end->time - begin->time);
    return cudaSuccess;
}
