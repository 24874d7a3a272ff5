/* The fake runtime: a test's options, errors and devices. fake_memory.cpp, fake_streams.cpp and
 * fake_graphs.cpp have the rest. A stream is a queue of closures. Nothing runs until the host waits
 * for it or queries it, and then only what must have happened: so a missing wait between two
 * streams shows at once. Device memory is inaccessible except while such work runs. */
#include "tests/fakecuda/fake_runtime.h"

#include <signal.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdlib>

struct fake_options fake_options;
const int fake_is_linked = 1;

namespace fake {

struct fake_counts counts;
thread_local int current_device;
cudaError_t last_error;
cudaError_t sticky_error;
const char *running;

cudaError_t fail(cudaError_t code)
{
    if (code != cudaSuccess) {
        last_error = code;
    }
    return code;
}

} // namespace fake

using namespace fake;

namespace {

std::map<std::string, long> open_objects;

/* Runs at exit, if the test has passed so far. */
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

struct sigaction previous_handler;

/* Turns a crash into a line of text. */
void on_fault(int, siginfo_t *info, void *)
{
    const memory *found = memory_at(info->si_addr);
    if (found == nullptr) {
        sigaction(SIGSEGV, &previous_handler, nullptr); /* it faults again, and that handler runs */
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
    return fake_options.devices < 0 ? 0 : std::max((int)fake_options.devices, 1);
}

int driver_version()
{
    if (fake_options.devices == -1) {
        return 0;
    }
    return fake_options.driver_version != 0 ? (int)fake_options.driver_version : CUDART_VERSION;
}

} // namespace

size_t fake::device_bytes()
{
    return fake_options.device_bytes != 0 ? (size_t)fake_options.device_bytes : (size_t)1 << 30;
}

cudaError_t fake::enter(const char *call)
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
    const char *text;
} error_texts[] = {
    {cudaSuccess, "no error"},
    {cudaErrorInvalidValue, "invalid argument"},
    {cudaErrorMemoryAllocation, "out of memory"},
    {cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "invalid resource handle"},
    {cudaErrorIllegalState, "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "device not ready"},
    {cudaErrorIllegalAddress, "an illegal memory access was encountered"},
    {cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"},
    {cudaErrorSystemNotReady, "system not yet initialized"},
    {cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "the capture was not initiated in this stream"},
    {cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent,
     "operation not permitted on an event last recorded in a capturing stream"},
};

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
    *properties = {};
    snprintf(properties->name, sizeof properties->name, "Fake GPU");
    for (int i = 0; i < 16; i++) {
        properties->uuid.bytes[i] = (char)(16 * device + i);
    }
    properties->major = 9;
    properties->totalGlobalMem = device_bytes();
    properties->multiProcessorCount = 132;
    properties->maxThreadsPerBlock = 1024;
    properties->warpSize = 32;
    properties->pciBusID = device;
    return cudaSuccess;
}

/* Works also if the context is lost: it affects the thread only. */
cudaError_t cudaSetDevice(int device)
{
    const cudaError_t entered = enter(__func__);
    if (entered != sticky_error) {
        return fail(entered);
    }
    if (device < 0 || device >= n_devices()) {
        return fail(cudaErrorInvalidDevice);
    }
    current_device = device;
    return fail(entered);
}

cudaError_t cudaGetDevice(int *device)
{
    ENTER();
    *device = current_device;
    return cudaSuccess;
}
