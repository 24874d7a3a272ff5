/* The fake CUDA runtime keeps CUDA's rules, and detects each rule that is broken on purpose. Every
 * case is a process of its own, which ends well or with the expected line. Devices, errors, streams
 * and events are here. */
#include "tests/cuda/trace.h"

/* ---- devices and errors ---- */

static void no_driver(void)
{
    fake_options.n_devices = -1;
    int count = 7, version = 7;
    CHECK_INT(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    CHECK_INT(count, 7);
    OK(cudaDriverGetVersion(&version));
    CHECK_INT(version, 0);
    void *memory;
    CHECK_INT(cudaMalloc(&memory, 1), cudaErrorInsufficientDriver);
    CHECK_INT(cudaGetLastError(), cudaErrorInsufficientDriver);
    CHECK_TEXT(cudaGetErrorString(cudaErrorInsufficientDriver),
               "CUDA driver version is insufficient for CUDA runtime version");
}

static void old_driver(void)
{
    fake_options.driver_version = CUDART_VERSION - 1000;
    int count = 7;
    CHECK_INT(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    CHECK_INT(count, 7);
}

static void no_device(void)
{
    fake_options.n_devices = -2;
    int count = 7;
    CHECK_INT(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    CHECK_TEXT(cudaGetErrorName(cudaErrorNoDevice), "cudaErrorNoDevice");
}

static void three_devices(void)
{
    fake_options.n_devices = 3;
    fake_options.capability = 75;
    int count = 0, device = 7;
    OK(cudaGetDeviceCount(&count));
    CHECK_INT(count, 3);
    OK(cudaSetDevice(2));
    OK(cudaGetDevice(&device));
    CHECK_INT(device, 2);
    CHECK_INT(cudaSetDevice(3), cudaErrorInvalidDevice);
    struct cudaDeviceProp first, last;
    OK(cudaGetDeviceProperties(&first, 0));
    OK(cudaGetDeviceProperties(&last, 2));
    CHECK(memcmp(&first.uuid, &last.uuid, sizeof first.uuid) != 0);
    CHECK_INT(last.major * 10 + last.minor, 75);
    CHECK_INT(cudaGetLastError(), cudaErrorInvalidDevice);
    OK(cudaGetLastError());
}

static void memory_ends(void)
{
    fake_options.device_bytes = 1000;
    fake_options.fail_malloc_at = 3;
    void *memory, *more = &memory;
    OK(cudaMalloc(&memory, 600));
    size_t n_free, n_total;
    OK(cudaMemGetInfo(&n_free, &n_total));
    CHECK_INT(n_free, 400);
    CHECK_INT(n_total, 1000);
    CHECK_INT(cudaMalloc(&more, 401), cudaErrorMemoryAllocation);
    CHECK(more == NULL);
    CHECK_INT(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
    OK(cudaMalloc(&more, 1));
    OK(cudaFree(more));
    OK(cudaFree(memory));
    OK(cudaFree(NULL));
    CHECK_INT(fake_counts().n_live_bytes, 0);
}

static void a_failure_is_sticky(void)
{
    fake_options.fail_launch_at = 2;
    const cudaStream_t stream = new_stream();
    float *x = device_floats();
    OK(set(stream, x, 1));
    OK(set(stream, x, 2)); /* fails, but only later */
    OK(set(stream, x, 3));
    CHECK_INT(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
    CHECK_INT(set(stream, x, 4), cudaErrorIllegalAddress);
    CHECK_INT(cudaGetLastError(), cudaErrorIllegalAddress);
    CHECK_INT(cudaGetLastError(), cudaErrorIllegalAddress);
    void *memory;
    CHECK_INT(cudaMalloc(&memory, 1), cudaErrorIllegalAddress);
    CHECK_INT(cudaFree(x), cudaErrorIllegalAddress); /* freed all the same */
    CHECK_INT(cudaStreamDestroy(stream), cudaErrorIllegalAddress);
}

/* ---- work ---- */

static void work_is_late(void)
{
    const cudaStream_t first = new_stream(), second = new_stream();
    bool first_ran = false, second_ran = false;
    OK(fake_enqueue(first, "first", [&] { first_ran = true; }));
    OK(fake_enqueue(second, "second", [&] { second_ran = true; }));
    CHECK(!first_ran && !second_ran);
    OK(cudaStreamSynchronize(second));
    CHECK(!first_ran && second_ran);
    OK(cudaDeviceSynchronize());
    CHECK(first_ran);
    CHECK_INT(fake_counts().n_enqueued, 2);
    CHECK_INT(fake_counts().n_host_waits, 2);
    OK(cudaStreamDestroy(first));
    OK(cudaStreamDestroy(second));
}

static void events_order_streams(void)
{
    const cudaStream_t first = new_stream(), second = new_stream();
    const cudaEvent_t event = new_event();
    float *x = device_floats();
    OK(cudaStreamWaitEvent(second, event, 0)); /* not recorded: nothing to wait for */
    OK(set(first, x, 1));
    OK(cudaEventRecord(event, first));
    OK(append(first, x, 9)); /* after the event: nothing waits for it */
    OK(cudaStreamWaitEvent(second, event, 0));
    OK(append(second, x, 2));
    CHECK_NEAR(first_of(second, x), 12, 0);
    CHECK_NEAR(first_of(first, x), 129, 0);
    OK(cudaStreamDestroy(first));
    OK(cudaStreamDestroy(second));
    OK(cudaEventDestroy(event));
    OK(cudaFree(x));
}

static void a_missing_wait_shows(void)
{
    const cudaStream_t first = new_stream(), second = new_stream();
    float *x = device_floats();
    OK(set(first, x, 1));
    CHECK(isnan(first_of(second, x)));
    OK(cudaDeviceSynchronize());
    OK(cudaStreamDestroy(first));
    OK(cudaStreamDestroy(second));
    OK(cudaFree(x));
}

static void looking_takes_a_step(void)
{
    const cudaStream_t stream = new_stream();
    const cudaEvent_t event = new_event();
    float *x = device_floats();
    OK(cudaStreamQuery(stream));
    OK(cudaEventQuery(event));
    OK(set(stream, x, 1));
    CHECK_INT(cudaStreamQuery(stream), cudaErrorNotReady);
    CHECK_INT(cudaGetLastError(), cudaErrorNotReady);
    OK(cudaStreamQuery(stream));
    OK(set(stream, x, 2));
    OK(cudaEventRecord(event, stream));
    CHECK_INT(cudaEventQuery(event), cudaErrorNotReady);
    CHECK_INT(cudaEventQuery(event), cudaErrorNotReady);
    OK(cudaEventQuery(event));
    OK(cudaEventSynchronize(event));
    OK(cudaStreamDestroy(stream));
    OK(cudaEventDestroy(event));
    OK(cudaFree(x));
}

static void work_that_waits(void)
{
    const cudaStream_t stream = new_stream();
    int n_calls = 0;
    bool behind = false;
    OK(fake_enqueue_until(stream, "waits", [&] { return ++n_calls == 3; }));
    OK(fake_enqueue(stream, "behind", [&] { behind = true; }));
    CHECK_INT(cudaStreamQuery(stream), cudaErrorNotReady);
    CHECK_INT(cudaStreamQuery(stream), cudaErrorNotReady);
    CHECK(!behind);
    OK(cudaStreamSynchronize(stream));
    CHECK_INT(n_calls, 3);
    CHECK(behind);
    OK(cudaStreamDestroy(stream));
}

static void times(void)
{
    const cudaStream_t stream = new_stream();
    const cudaEvent_t from = new_event(), to = new_event();
    float *x = device_floats(), ms = -1;
    CHECK_INT(cudaEventElapsedTime(&ms, from, to), cudaErrorInvalidResourceHandle);
    OK(cudaEventRecord(from, stream));
    OK(set(stream, x, 1));
    OK(cudaEventRecord(to, stream));
    CHECK_INT(cudaEventElapsedTime(&ms, from, to), cudaErrorNotReady);
    OK(cudaEventSynchronize(to));
    OK(cudaEventElapsedTime(&ms, from, to));
    CHECK(ms > 0);
    OK(cudaEventDestroy(from));
    OK(cudaEventDestroy(to));
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(x));
}

/* ---- handles ---- */

static void default_stream(void)
{
    set(NULL, device_floats(), 1);
}

static void destroyed_stream(void)
{
    const cudaStream_t stream = new_stream();
    OK(cudaStreamDestroy(stream));
    cudaStreamSynchronize(stream);
}

static void destroyed_event(void)
{
    const cudaEvent_t event = new_event();
    OK(cudaEventDestroy(event));
    cudaEventRecord(event, new_stream());
}

static void work_after_the_streams_end_still_runs(void)
{
    const cudaStream_t first = new_stream(), second = new_stream();
    const cudaEvent_t event = new_event();
    float *x = device_floats();
    OK(set(first, x, 1));
    OK(cudaEventRecord(event, first));
    OK(cudaStreamDestroy(first));
    OK(cudaStreamWaitEvent(second, event, 0));
    OK(cudaEventDestroy(event));
    CHECK_NEAR(first_of(second, x), 1, 0);
    OK(cudaStreamDestroy(second));
    OK(cudaFree(x));
}

static void stream_of_another_device(void)
{
    fake_options.n_devices = 2;
    const cudaStream_t stream = new_stream();
    OK(cudaSetDevice(1));
    set(stream, NULL, 1);
}

static void stream_in_a_thread_that_has_not_chosen_its_device(void)
{
    fake_options.n_devices = 2;
    OK(cudaSetDevice(1));
    const cudaStream_t stream = new_stream();
    std::thread([stream] { cudaStreamSynchronize(stream); }).join();
}

static void work_calls_the_runtime(void)
{
    const cudaStream_t stream = new_stream();
    OK(fake_enqueue(stream, "caller", [=] { cudaStreamSynchronize(stream); }));
    OK(cudaStreamSynchronize(stream));
}

static void leaks_memory(void)
{
    device_floats();
}

static void leaks_pinned_memory(void)
{
    pinned_floats();
}

static void leaks_a_stream(void)
{
    new_stream();
}

static void leaks_an_event(void)
{
    new_event();
}

int main(void)
{
    WORKS(no_driver);
    WORKS(old_driver);
    WORKS(no_device);
    WORKS(three_devices);
    WORKS(memory_ends);
    WORKS(a_failure_is_sticky);
    WORKS(work_is_late);
    WORKS(events_order_streams);
    WORKS(a_missing_wait_shows);
    WORKS(looking_takes_a_step);
    WORKS(work_that_waits);
    WORKS(times);
    ENDS(default_stream, "set on the default stream");
    ENDS(destroyed_stream, "is not a stream, or is destroyed");
    ENDS(destroyed_event, "is not an event, or is destroyed");
    WORKS(work_after_the_streams_end_still_runs);
    ENDS(stream_of_another_device, "set: in a thread whose device is 1, of a thing on device 0");
    ENDS(stream_in_a_thread_that_has_not_chosen_its_device,
         "cudaStreamSynchronize: in a thread whose device is 0, of a thing on device 1");
    ENDS(work_calls_the_runtime, "\"caller\", which is enqueued work, calls cudaStreamSynchronize");
    ENDS(leaks_memory, "not closed at exit: device memory (1)");
    ENDS(leaks_pinned_memory, "not closed at exit: pinned memory (1)");
    ENDS(leaks_a_stream, "not closed at exit: stream (1)");
    ENDS(leaks_an_event, "not closed at exit: event (1)");
    return 0;
}
