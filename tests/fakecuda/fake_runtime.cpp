/* The runtime of the double: devices, memory, streams, events and graphs.
 *
 * A stream is a queue of closures. Nothing runs until the host waits for it or asks for it, and then only what must have happened:
 * a missing wait between two streams shows at once. Device memory is inaccessible, but while such work runs. */
#include "tests/fakecuda/fake.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

struct fake_options fake_options;
const int fake_is_double = 1;

namespace {

constexpr size_t page_bytes = 4096;
constexpr size_t alignment = 256;   /* that of cudaMalloc */
constexpr int fresh_pattern = 0xff; /* a NaN as float, double and bfloat16 */
constexpr cudaError_t async_failure = cudaErrorIllegalAddress;

struct fake_counts counts;
std::map<std::string, long> open_objects;
int current_device;
cudaError_t last_error;   /* what cudaGetLastError takes */
cudaError_t sticky_error; /* the context is lost: no call works any more */
const char *running;      /* the work that runs now, else NULL */

/* ---- errors ---- */

cudaError_t fail(cudaError_t code)
{
    if (code != cudaSuccess) {
        last_error = code;
    }
    return code;
}

/* At exit, if all went well so far. */
void report_open(int status, void *)
{
    bool any = false;
    for (const auto &[what, n] : open_objects) {
        if (status == 0 && n != 0) {
            fprintf(stderr, "fakecuda: not closed at exit: %s (%ld)\n", what.c_str(), n);
            any = true;
        }
    }
    if (any) {
        _exit(1);
    }
}

/* ---- memory ---- */

enum kind { DEVICE, PINNED, FREED };

struct memory {
    char *map; /* a page of guard, the pages, a page of guard */
    size_t map_bytes;
    char *begin; /* what the caller got; it ends at the end of the pages, but for alignment */
    size_t n_bytes;
    kind is;
    int device;

    char *pages() const
    {
        return map + page_bytes;
    }
    size_t pages_bytes() const
    {
        return map_bytes - 2 * page_bytes;
    }
};

std::map<uintptr_t, memory> memories; /* by the address of the map; freed ones stay, so that their addresses mean nothing else */
int exposed = -1;                     /* the device whose memory is accessible now */

const memory *memory_at(const void *pointer)
{
    auto after = memories.upper_bound((uintptr_t)pointer);
    if (after == memories.begin()) {
        return nullptr;
    }
    const memory &found = (--after)->second;
    return (const char *)pointer < found.map + found.map_bytes ? &found : nullptr;
}

void protect(const memory &memory, int protection)
{
    if (mprotect(memory.pages(), memory.pages_bytes(), protection) != 0) {
        fake_die("mprotect failed");
    }
}

void expose(int device)
{
    if (device == exposed) {
        return;
    }
    for (const auto &[address, memory] : memories) {
        if (memory.is == DEVICE && memory.device == exposed) {
            protect(memory, PROT_NONE);
        }
        if (memory.is == DEVICE && memory.device == device) {
            protect(memory, PROT_READ | PROT_WRITE);
        }
    }
    exposed = device;
}

/* What lies between the guards and the caller's bytes must be as it was. */
void check_slack(const memory &memory, const char *who)
{
    const auto damaged = [](char byte) { return (unsigned char)byte != fresh_pattern; };
    if (std::any_of(memory.pages(), memory.begin, damaged)) {
        fake_die("%s wrote before the begin of memory of %zu bytes", who, memory.n_bytes);
    }
    if (std::any_of(memory.begin + memory.n_bytes, memory.pages() + memory.pages_bytes(), damaged)) {
        fake_die("%s wrote past the end of memory of %zu bytes", who, memory.n_bytes);
    }
}

void *allocate(size_t n_bytes, kind is)
{
    const size_t pages_bytes = (n_bytes + page_bytes - 1) / page_bytes * page_bytes;
    const size_t map_bytes = pages_bytes + 2 * page_bytes;
    void *map = mmap(nullptr, map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        return nullptr;
    }
    memory memory = {(char *)map, map_bytes, nullptr, n_bytes, is, current_device};
    memory.begin = memory.pages() + pages_bytes - (n_bytes + alignment - 1) / alignment * alignment;
    protect(memory, PROT_READ | PROT_WRITE);
    madvise(memory.pages(), pages_bytes, MADV_HUGEPAGE); /* fewer pages to protect again and again */
    memset(memory.pages(), fresh_pattern, pages_bytes);
    if (is == DEVICE) {
        protect(memory, PROT_NONE);
        counts.n_live_bytes += (long)n_bytes;
    }
    fake_opened(is == DEVICE ? "device memory" : "pinned memory");
    memories[(uintptr_t)map] = memory;
    return memory.begin;
}

void release(const char *call, void *pointer, kind is)
{
    const memory *found = memory_at(pointer);
    if (found == nullptr || found->is != is || found->begin != pointer) {
        fake_die("%s: %p is not the begin of such memory%s", call, pointer,
                 found != nullptr && found->is == FREED ? ": it is freed already" : "");
    }
    memory &memory = memories[(uintptr_t)found->map];
    protect(memory, PROT_READ);
    check_slack(memory, "something");
    mmap(memory.map, memory.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    memory.is = FREED;
    if (is == DEVICE) {
        counts.n_live_bytes -= (long)memory.n_bytes;
    }
    fake_closed(is == DEVICE ? "device memory" : "pinned memory");
}

void describe(const memory &memory, const void *pointer, char *text, size_t n_text)
{
    static const char *const names[] = {"device memory", "pinned memory", "freed memory"};
    const long at = (long)((const char *)pointer - memory.begin);
    if (at < 0) {
        snprintf(text, n_text, "%ld bytes before %s of %zu bytes", -at, names[memory.is], memory.n_bytes);
    } else if ((size_t)at >= memory.n_bytes) {
        snprintf(text, n_text, "%ld bytes past the end of %s of %zu bytes", at - (long)memory.n_bytes, names[memory.is],
                 memory.n_bytes);
    } else {
        snprintf(text, n_text, "byte %ld of %s of %zu bytes (device %d)", at, names[memory.is], memory.n_bytes, memory.device);
    }
}

struct sigaction previous_handler;

/* Turns a crash into a line. */
void on_fault(int, siginfo_t *info, void *)
{
    const memory *found = memory_at(info->si_addr);
    if (found == nullptr) {
        sigaction(SIGSEGV, &previous_handler, nullptr); /* it faults again, there */
        return;
    }
    char text[160];
    describe(*found, info->si_addr, text, sizeof text);
    if (running == nullptr) {
        fake_die("the host touches %s", text);
    }
    fake_die("\"%s\" on device %d touches %s", running, exposed, text);
}

void start()
{
    static bool started;
    if (started) {
        return;
    }
    started = true;
    on_exit(report_open, nullptr);
    struct sigaction handler = {};
    handler.sa_sigaction = on_fault;
    handler.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &handler, &previous_handler);
}

/* ---- devices ---- */

int n_devices()
{
    return fake_options.n_devices < 0 ? 0 : std::max(fake_options.n_devices, 1);
}

int driver_version()
{
    if (fake_options.n_devices == -1) {
        return 0;
    }
    return fake_options.driver_version != 0 ? fake_options.driver_version : CUDART_VERSION;
}

size_t device_bytes()
{
    return fake_options.device_bytes != 0 ? fake_options.device_bytes : (size_t)1 << 30;
}

/* What any call returns where the driver, the devices or the context are not there. */
cudaError_t enter(const char *call)
{
    if (running != nullptr) {
        fake_die("\"%s\", which is enqueued work, calls %s", running, call);
    }
    start();
    if (driver_version() / 1000 < CUDART_VERSION / 1000) {
        return cudaErrorInsufficientDriver;
    }
    return n_devices() == 0 ? cudaErrorNoDevice : sticky_error;
}

#define ENTER()                                      \
    do {                                             \
        const cudaError_t entered = enter(__func__); \
        if (entered != cudaSuccess) {                \
            return fail(entered);                    \
        }                                            \
    } while (0)

/* ---- work ---- */

struct piece {
    std::string name;
    std::function<bool()> run; /* false: not finished, call again */
    bool fails;
};

/* A point in a stream, which an event names. */
struct marker {
    cudaStream_t stream;
    bool done;
    long time;
};

struct node {
    piece work;
    std::vector<size_t> after;
};

/* Only one at a time: more than that is more than dtrain needs. */
struct capture {
    cudaStream_t origin;
    cudaStreamCaptureMode mode;
    long serial;
    bool invalid;
    std::vector<node> nodes;
};

std::optional<capture> recording;
long n_captures;
long n_performed; /* the clock of cudaEventElapsedTime */

} // namespace

struct CUstream_st {
    int device;
    bool live;
    bool capturing;
    std::vector<size_t> tail; /* the nodes that the next one comes after */
    std::deque<piece> queue;
};

struct CUevent_st {
    int device;
    bool timed;
    std::shared_ptr<marker> recorded;
    long capture_serial; /* of the capture that it was recorded in; 0: none */
    std::vector<size_t> tail;
};

struct CUgraph_st {
    std::vector<node> nodes;
};

struct CUgraphExec_st {
    std::shared_ptr<std::vector<piece>> pieces;
};

namespace {

std::vector<std::unique_ptr<CUstream_st>> streams; /* also destroyed ones: their work still runs */
std::set<cudaEvent_t> events;

void need_stream(cudaStream_t stream, const char *call)
{
    if (stream == nullptr) {
        fake_die("%s on the default stream, which waits for others behind one's back", call);
    }
    const auto same = [stream](const auto &each) { return each.get() == stream && each->live; };
    if (std::none_of(streams.begin(), streams.end(), same)) {
        fake_die("%s: %p is not a stream, or is destroyed", call, (void *)stream);
    }
}

void need_event(cudaEvent_t event, const char *call)
{
    if (events.count(event) == 0) {
        fake_die("%s: %p is not an event, or is destroyed", call, (void *)event);
    }
}

bool perform(const piece &piece)
{
    if (piece.fails) {
        sticky_error = async_failure;
        return false;
    }
    const char *outer = running;
    running = piece.name.c_str();
    const bool done = piece.run();
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

cudaError_t wait_stream(cudaStream_t stream)
{
    counts.n_host_waits++;
    run_until(stream, [stream] { return stream->queue.empty(); });
    return fail(sticky_error);
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

cudaError_t push(cudaStream_t stream, piece piece)
{
    if (!stream->capturing) {
        stream->queue.push_back(std::move(piece));
        return cudaSuccess;
    }
    if (recording->invalid) {
        return fail(cudaErrorStreamCaptureInvalidated);
    }
    recording->nodes.push_back({std::move(piece), stream->tail});
    stream->tail = {recording->nodes.size() - 1};
    return cudaSuccess;
}

cudaError_t spoil_capture(cudaError_t code)
{
    recording->invalid = true;
    return fail(code);
}

/* For calls that touch more than one stream. */
cudaError_t refuse_in_capture()
{
    if (recording && recording->mode != cudaStreamCaptureModeRelaxed) {
        return spoil_capture(cudaErrorStreamCaptureUnsupported);
    }
    return cudaSuccess;
}

#define REFUSE_IN_CAPTURE()                              \
    do {                                                 \
        const cudaError_t refused = refuse_in_capture(); \
        if (refused != cudaSuccess) {                    \
            return refused;                              \
        }                                                \
    } while (0)

} // namespace

/* ---- fake.h ---- */

void fake_die(const char *format, ...)
{
    char text[512]; /* in one piece: other processes write too */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fflush(stdout);
    dprintf(STDERR_FILENO, "fakecuda: %s\n", text);
    _exit(1);
}

static int lies_in(const void *pointer, size_t n_bytes, kind is)
{
    const memory *found = memory_at(pointer);
    return found != nullptr && found->is == is && (const char *)pointer >= found->begin &&
           (const char *)pointer + n_bytes <= found->begin + found->n_bytes;
}

int fake_is_device(const void *pointer, size_t n_bytes)
{
    return lies_in(pointer, n_bytes, DEVICE);
}

int fake_is_pinned(const void *pointer, size_t n_bytes)
{
    return lies_in(pointer, n_bytes, PINNED);
}

void fake_need_device(const void *pointer, size_t n_bytes, const char *what)
{
    if (fake_is_device(pointer, n_bytes)) {
        return;
    }
    char text[160];
    const memory *found = memory_at(pointer);
    if (found == nullptr) {
        fake_die("%s: %p is not device memory", what, pointer);
    }
    describe(*found, pointer, text, sizeof text);
    fake_die("%s: %zu bytes at %s", what, n_bytes, text);
}

int fake_is_capturing(cudaStream_t stream)
{
    need_stream(stream, __func__);
    return stream->capturing;
}

void fake_opened(const char *what)
{
    open_objects[what]++;
}

void fake_closed(const char *what)
{
    open_objects[what]--;
}

struct fake_counts fake_counts(void)
{
    return counts;
}

cudaError_t fake_enqueue_until(cudaStream_t stream, const char *name, std::function<bool()> work)
{
    const cudaError_t entered = enter(name);
    if (entered != cudaSuccess) {
        return fail(entered);
    }
    need_stream(stream, name);
    if (stream->device != current_device) {
        return fail(cudaErrorInvalidResourceHandle);
    }
    const bool fails = ++counts.n_enqueued == fake_options.fail_launch_at;
    return push(stream, {name, std::move(work), fails});
}

cudaError_t fake_enqueue(cudaStream_t stream, const char *name, std::function<void()> work)
{
    return fake_enqueue_until(stream, name, [work] {
        work();
        return true;
    });
}

/* ---- the runtime: errors and devices ---- */

cudaError_t cudaGetLastError(void)
{
    const cudaError_t code = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return code;
}

cudaError_t cudaPeekAtLastError(void)
{
    return sticky_error != cudaSuccess ? sticky_error : last_error;
}

static const struct {
    cudaError_t code;
    const char *name, *text;
} error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched", "the capture was not initiated in this stream"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation", "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream"},
};

const char *cudaGetErrorName(cudaError_t code)
{
    for (const auto &each : error_texts) {
        if (each.code == code) {
            return each.name;
        }
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t code)
{
    for (const auto &each : error_texts) {
        if (each.code == code) {
            return each.text;
        }
    }
    return "unrecognized error code";
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = driver_version();
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    ENTER(); /* without a driver the count stays unwritten, as with the real one */
    *count = n_devices();
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    ENTER();
    if (device < 0 || device >= n_devices()) {
        return fail(cudaErrorInvalidDevice);
    }
    const int capability = fake_options.capability != 0 ? fake_options.capability : 90;
    *properties = {};
    snprintf(properties->name, sizeof properties->name, "Double of a GPU");
    for (int i = 0; i < 16; i++) {
        properties->uuid.bytes[i] = (char)(16 * device + i);
    }
    properties->major = capability / 10;
    properties->minor = capability % 10;
    properties->totalGlobalMem = device_bytes();
    properties->multiProcessorCount = 132;
    properties->maxThreadsPerBlock = 1024;
    properties->warpSize = 32;
    properties->pciBusID = device;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    ENTER();
    if (device < 0 || device >= n_devices()) {
        return fail(cudaErrorInvalidDevice);
    }
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    ENTER();
    *device = current_device;
    return cudaSuccess;
}

static size_t device_used()
{
    size_t used = 0;
    for (const auto &[address, memory] : memories) {
        used += memory.is == DEVICE && memory.device == current_device ? memory.n_bytes : 0;
    }
    return used;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    ENTER();
    *total_bytes = device_bytes();
    *free_bytes = device_bytes() - device_used();
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    ENTER();
    if (recording) {
        return spoil_capture(cudaErrorStreamCaptureUnsupported);
    }
    return wait_device(current_device);
}

/* ---- the runtime: memory ---- */

cudaError_t cudaMalloc(void **pointer, size_t n_bytes)
{
    ENTER();
    REFUSE_IN_CAPTURE();
    if (pointer == nullptr) {
        return fail(cudaErrorInvalidValue);
    }
    *pointer = nullptr;
    if (++counts.n_mallocs == fake_options.fail_malloc_at || n_bytes > device_bytes() - device_used()) {
        return fail(cudaErrorMemoryAllocation);
    }
    if (n_bytes == 0) {
        return cudaSuccess;
    }
    *pointer = allocate(n_bytes, DEVICE);
    return *pointer != nullptr ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void *pointer)
{
    const cudaError_t entered = enter(__func__);
    REFUSE_IN_CAPTURE();
    if (pointer == nullptr) {
        return fail(entered);
    }
    wait_device(current_device); /* as the real one does, so that what runs may still use it */
    release(__func__, pointer, DEVICE);
    return fail(sticky_error);
}

cudaError_t cudaHostAlloc(void **pointer, size_t n_bytes, unsigned)
{
    ENTER();
    REFUSE_IN_CAPTURE();
    *pointer = n_bytes != 0 ? allocate(n_bytes, PINNED) : nullptr;
    return *pointer != nullptr || n_bytes == 0 ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocHost(void **pointer, size_t n_bytes)
{
    return cudaHostAlloc(pointer, n_bytes, cudaHostAllocDefault);
}

/* Does not wait: a copy that is still to come ends the test. */
cudaError_t cudaFreeHost(void *pointer)
{
    const cudaError_t entered = enter(__func__);
    REFUSE_IN_CAPTURE();
    if (pointer != nullptr) {
        release(__func__, pointer, PINNED);
    }
    return fail(entered);
}

/* Which side of a copy is device memory; a range that is neither inside nor outside of it ends the test. */
static bool side_is_device(const void *pointer, size_t n_bytes, const char *what)
{
    const memory *found = memory_at(pointer);
    if (found == nullptr || fake_is_pinned(pointer, n_bytes)) {
        return false;
    }
    fake_need_device(pointer, n_bytes, what);
    return true;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    ENTER();
    need_stream(stream, __func__);
    if (n_bytes == 0) {
        return cudaSuccess;
    }
    const bool to_device = side_is_device(to, n_bytes, "cudaMemcpyAsync, target");
    const bool from_device = side_is_device(from, n_bytes, "cudaMemcpyAsync, source");
    static const cudaMemcpyKind kinds[2][2] = {{cudaMemcpyHostToHost, cudaMemcpyHostToDevice},
                                               {cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice}};
    if (kind != cudaMemcpyDefault && kind != kinds[from_device][to_device]) {
        fake_die("cudaMemcpyAsync of kind %d from %s to %s memory", (int)kind, from_device ? "device" : "host",
                 to_device ? "device" : "host");
    }
    const bool pageable_from = !from_device && !fake_is_pinned(from, n_bytes);
    const bool pageable_to = !to_device && !fake_is_pinned(to, n_bytes);
    if (stream->capturing && (pageable_from || pageable_to)) {
        fake_die("a graph records a copy with pageable memory, which may be gone when the graph runs");
    }
    std::shared_ptr<std::vector<char>> staged; /* pageable memory is read now, pinned memory when the copy's turn comes */
    if (pageable_from) {
        staged = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + n_bytes);
    }
    const cudaError_t code = fake_enqueue(stream, __func__, [=] { memmove(to, staged ? staged->data() : from, n_bytes); });
    return code == cudaSuccess && pageable_to ? wait_stream(stream) : code;
}

cudaError_t cudaMemsetAsync(void *pointer, int value, size_t n_bytes, cudaStream_t stream)
{
    ENTER();
    if (n_bytes != 0) {
        fake_need_device(pointer, n_bytes, __func__);
    }
    return fake_enqueue(stream, __func__, [=] { memset(pointer, value, n_bytes); });
}

/* ---- the runtime: streams ---- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned, int)
{
    ENTER();
    streams.push_back(std::make_unique<CUstream_st>());
    *stream = streams.back().get();
    (*stream)->device = current_device;
    (*stream)->live = true;
    fake_opened("stream");
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER();
    *least = 0;
    *greatest = -5;
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
    return stream->capturing ? spoil_capture(cudaErrorStreamCaptureUnsupported) : wait_stream(stream);
}

/* One look is one piece further, and the look that finds something to do says that it is not done. */
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
    return stream->capturing ? spoil_capture(cudaErrorStreamCaptureUnsupported) : look(stream, stream->queue.empty());
}

/* ---- the runtime: events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    ENTER();
    *event = new CUevent_st{current_device, (flags & cudaEventDisableTiming) == 0, nullptr, 0, {}};
    events.insert(*event);
    fake_opened("event");
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
    events.erase(event);
    delete event;
    fake_closed("event");
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
    return push(stream, {__func__, reached, false});
}

/* A stream that waits for an event of a recording stream records with it. */
static cudaError_t wait_captured(cudaStream_t stream, cudaEvent_t event)
{
    if (!recording || recording->serial != event->capture_serial) {
        return fail(cudaErrorCapturedEvent);
    }
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
    return push(stream, {__func__, wait, false});
}

/* NULL-able: what a host call may wait for or look at. */
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
    counts.n_host_waits++;
    run_until(mark->stream, [mark] { return mark->done; });
    return fail(sticky_error);
}

/* A millisecond for each piece of work. */
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

/* ---- the runtime: graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    ENTER();
    need_stream(stream, __func__);
    if (stream->capturing) {
        return spoil_capture(cudaErrorIllegalState);
    }
    if (recording) {
        fake_die("two streams begin to record; the double knows one recording at a time");
    }
    recording = capture{stream, mode, ++n_captures, false, {}};
    stream->capturing = true;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    ENTER();
    need_stream(stream, __func__);
    *status = !stream->capturing   ? cudaStreamCaptureStatusNone
              : recording->invalid ? cudaStreamCaptureStatusInvalidated
                                   : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

/* Whether the origin has waited for everything that others recorded. */
static bool all_joined()
{
    std::vector<bool> joined(recording->nodes.size());
    std::vector<size_t> next = recording->origin->tail;
    while (!next.empty()) {
        const size_t i = next.back();
        next.pop_back();
        if (!joined[i]) {
            joined[i] = true;
            next.insert(next.end(), recording->nodes[i].after.begin(), recording->nodes[i].after.end());
        }
    }
    return std::find(joined.begin(), joined.end(), false) == joined.end();
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    *graph = nullptr;
    ENTER();
    need_stream(stream, __func__);
    if (!stream->capturing) {
        return fail(cudaErrorIllegalState);
    }
    if (stream != recording->origin) {
        return spoil_capture(cudaErrorStreamCaptureUnmatched);
    }
    const cudaError_t code = recording->invalid ? cudaErrorStreamCaptureInvalidated
                             : all_joined()     ? cudaSuccess
                                                : cudaErrorStreamCaptureUnjoined;
    if (code == cudaSuccess) {
        *graph = new CUgraph_st{recording->nodes};
        fake_opened("graph");
    }
    for (const auto &each : streams) {
        each->capturing = false;
        each->tail.clear();
    }
    recording.reset();
    return fail(code);
}

/* In an order that the dependencies allow, but as far from the recorded one as can be. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    ENTER();
    const auto pieces = std::make_shared<std::vector<piece>>();
    std::vector<bool> placed(graph->nodes.size());
    while (pieces->size() < graph->nodes.size()) {
        for (size_t i = graph->nodes.size(); i-- > 0;) {
            const node &node = graph->nodes[i];
            if (!placed[i] && std::all_of(node.after.begin(), node.after.end(), [&placed](size_t j) { return placed[j]; })) {
                placed[i] = true;
                pieces->push_back(node.work);
                break;
            }
        }
    }
    *exec = new CUgraphExec_st{pieces};
    fake_opened("executable graph");
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    ENTER();
    need_stream(stream, __func__);
    if (stream->capturing) {
        fake_die("a graph is launched while another is recorded");
    }
    const auto pieces = exec->pieces;
    const auto next = std::make_shared<size_t>(0);
    return fake_enqueue_until(stream, __func__, [pieces, next] {
        while (*next < pieces->size() && perform((*pieces)[*next])) {
            ++*next;
        }
        return *next == pieces->size();
    });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    const cudaError_t entered = enter(__func__);
    delete graph;
    fake_closed("graph");
    return fail(entered);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    const cudaError_t entered = enter(__func__);
    delete exec;
    fake_closed("executable graph");
    return fail(entered);
}
