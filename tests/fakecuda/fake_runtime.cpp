/* The fake runtime: a test's options, errors and devices. fake_memory.cpp, fake_streams.cpp and
 * fake_graphs.cpp have the rest. Options may come from the environment, integers: FAKE_DEVICES,
 * FAKE_ENGINE_MS_<number>, and the faults, FAKE_<NAME>, which apply to the rank FAKE_RANK alone if
 * that is set. */
#include "tests/fakecuda/fake_runtime.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdlib>
#include <thread>

struct fake_options fake_options;
const int fake_is_linked = 1;

namespace fake {

struct fake_counts counts;
thread_local int current_device;
cudaError_t sticky_error;
const char *running;
static cudaError_t last_error; /* returned and cleared by cudaGetLastError */

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
    const std::string what = describe(*found, info->si_addr);
    FAKE_CHECK(running != nullptr, "the host touches %s", what.c_str());
    fake_die("\"%s\" on device %d touches %s", running, exposed, what.c_str());
}

bool start()
{
    on_exit(report_open, nullptr);
    struct sigaction handler = {};
    handler.sa_sigaction = on_fault;
    handler.sa_flags = SA_SIGINFO;
    return sigaction(SIGSEGV, &handler, &previous_handler) == 0;
}

long number(std::string name)
{
    std::transform(name.begin(), name.end(), name.begin(), toupper);
    const char *text = getenv(("FAKE_" + name).c_str());
    return text != nullptr ? atol(text) : 0;
}

__attribute__((constructor)) void read_environment()
{
    const char *hit = getenv("FAKE_RANK"), *rank = getenv("PMI_RANK");
    fake_options.devices = number("devices");
    for (int i = 1; i < FAKE_N_ENGINES; i++) {
        fake_options.engine_ms[i] = number("engine_ms_" + std::to_string(i));
    }
    if (hit == nullptr || strcmp(hit, rank != nullptr ? rank : "0") == 0) {
#define READ(name) fake_options.name = number(#name);
        FAKE_FAULT_LIST(READ)
        std::this_thread::sleep_for(std::chrono::milliseconds(fake_options.load_ms));
    }
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
    [[maybe_unused]] static const bool started = start();
    FAKE_CHECK(running == nullptr, "\"%s\", which is enqueued work, calls %s", running, call);
    if (driver_version() / 1000 < CUDART_VERSION / 1000) {
        return cudaErrorInsufficientDriver;
    }
    return n_devices() == 0 ? cudaErrorNoDevice : sticky_error;
}

void fake::need_current(int device, const char *call)
{
    FAKE_CHECK(device == current_device,
               "%s: in a thread whose device is %d, of a thing on device %d", call, current_device,
               device);
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

/* Only those that a test or a reader may see. */
const char *cudaGetErrorString(cudaError_t code)
{
    static const std::map<cudaError_t, const char *> texts = {
        {cudaErrorMemoryAllocation, "out of memory"},
        {cudaErrorIllegalAddress, "an illegal memory access was encountered"},
        {cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"},
        {cudaErrorSystemNotReady, "system not yet initialized"},
        {cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"},
        {cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error in capture"},
        {cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"},
    };
    const auto found = texts.find(code);
    return found != texts.end() ? found->second : "an error without a text in fake CUDA";
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
    *properties = {};
    snprintf(properties->name, sizeof properties->name, "Fake GPU");
    for (int i = 0; i < 16; i++) {
        properties->uuid.bytes[i] = (char)(16 * device + i);
    }
    properties->major = 9;
    return cudaSuccess;
}

/* Works also if the context is lost: it affects the thread only. */
cudaError_t cudaSetDevice(int device)
{
    const cudaError_t entered = enter(__func__);
    FAKE_CHECK(device >= 0 && device < n_devices(), "cudaSetDevice: %d of %d", device, n_devices());
    current_device = device;
    return fail(entered);
}
