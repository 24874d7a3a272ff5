/* The double of the CUDA runtime keeps CUDA's rules, and each rule that is broken on purpose is noticed. Every case is a process of
 * its own, which ends well or with the line that it should. */
#include "tests/fakecuda/case.h"
#include "tests/fakecuda/fake.h"

#define OK(call) CHECK_INT(call, cudaSuccess)

static const int n_elems = 100;
static const size_t n_bytes = n_elems * sizeof(float);

static float *device_floats(void)
{
    void *memory;
    OK(cudaMalloc(&memory, n_bytes));
    return (float *)memory;
}

static float *pinned_floats(void)
{
    void *memory;
    OK(cudaMallocHost(&memory, n_bytes));
    return (float *)memory;
}

static cudaStream_t new_stream(void)
{
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static cudaEvent_t new_event(void)
{
    cudaEvent_t event;
    OK(cudaEventCreate(&event));
    return event;
}

/* A kernel: x[i] = value. */
static cudaError_t set(cudaStream_t stream, float *x, float value)
{
    return fake_enqueue(stream, "set", [=] {
        for (int i = 0; i < n_elems; i++) {
            x[i] = value;
        }
    });
}

/* x[0] = 10 * x[0] + digit: what ran, in which order. */
static cudaError_t append(cudaStream_t stream, float *x, int digit)
{
    return fake_enqueue(stream, "append", [=] { x[0] = 10 * x[0] + (float)digit; });
}

static float first_of(cudaStream_t stream, const float *x)
{
    float value;
    OK(cudaMemcpyAsync(&value, x, sizeof value, cudaMemcpyDeviceToHost, stream));
    return value;
}

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
    CHECK_TEXT(cudaGetErrorString(cudaErrorInsufficientDriver), "CUDA driver version is insufficient for CUDA runtime version");
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
    OK(set(stream, x, 2)); /* fails, but later */
    OK(set(stream, x, 3));
    CHECK_INT(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
    CHECK_INT(set(stream, x, 4), cudaErrorIllegalAddress);
    CHECK_INT(cudaGetLastError(), cudaErrorIllegalAddress);
    CHECK_INT(cudaGetLastError(), cudaErrorIllegalAddress);
    void *memory;
    CHECK_INT(cudaMalloc(&memory, 1), cudaErrorIllegalAddress);
    CHECK_INT(cudaFree(x), cudaErrorIllegalAddress); /* given back all the same */
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
    OK(append(first, x, 9)); /* behind the event: nobody waits for it */
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

/* ---- memory and copies ---- */

static void memory_begins_as_nan(void)
{
    const cudaStream_t stream = new_stream();
    float *x = device_floats(), *pinned = pinned_floats();
    CHECK(isnan(first_of(stream, x)));
    CHECK(isnan(pinned[n_elems - 1]));
    OK(cudaMemsetAsync(x, 0, n_bytes, stream));
    CHECK_NEAR(first_of(stream, x), 0, 0);
    OK(cudaFree(x));
    OK(cudaFreeHost(pinned));
    OK(cudaStreamDestroy(stream));
}

static void pageable_memory_is_read_at_once_and_pinned_memory_later(void)
{
    const cudaStream_t stream = new_stream();
    float *x = device_floats(), *y = device_floats(), *pinned = pinned_floats(), pageable[n_elems];
    pageable[0] = pinned[0] = 1;
    OK(cudaMemcpyAsync(x, pageable, n_bytes, cudaMemcpyHostToDevice, stream));
    OK(cudaMemcpyAsync(y, pinned, n_bytes, cudaMemcpyHostToDevice, stream));
    pageable[0] = pinned[0] = 2;
    CHECK_NEAR(first_of(stream, x), 1, 0);
    CHECK_NEAR(first_of(stream, y), 2, 0);
    OK(cudaMemcpyAsync(pinned, x, n_bytes, cudaMemcpyDeviceToHost, stream));
    CHECK_NEAR(pinned[0], 2, 0); /* nobody has waited yet */
    OK(cudaStreamSynchronize(stream));
    CHECK_NEAR(pinned[0], 1, 0);
    OK(cudaFree(x));
    OK(cudaFree(y));
    OK(cudaFreeHost(pinned));
    OK(cudaStreamDestroy(stream));
}

static void a_free_waits(void)
{
    const cudaStream_t stream = new_stream();
    float *x = device_floats();
    bool ran = false;
    OK(fake_enqueue(stream, "sets", [&ran, x] {
        x[0] = 1;
        ran = true;
    }));
    OK(cudaFree(x));
    CHECK(ran);
    OK(cudaStreamDestroy(stream));
}

static void host_reads_device_memory(void)
{
    const cudaStream_t stream = new_stream();
    float *x = device_floats();
    OK(set(stream, x, 1));
    OK(cudaStreamSynchronize(stream));
    CHECK_NEAR(*(volatile float *)x, 1, 0);
}

static void host_writes_device_memory(void)
{
    *(volatile float *)device_floats() = 1;
}

static void work_writes_a_byte_past_the_end(void)
{
    const cudaStream_t stream = new_stream();
    float *x = device_floats();
    OK(fake_enqueue(stream, "long", [=] { *(volatile char *)&x[n_elems] = 1; }));
    OK(cudaStreamSynchronize(stream));
}

static void work_reads_far_past_the_end(void)
{
    const cudaStream_t stream = new_stream();
    const float *x = device_floats();
    OK(fake_enqueue(stream, "far", [=] { (void)*(const volatile float *)&x[n_elems + 64]; }));
    OK(cudaStreamSynchronize(stream));
}

static void work_writes_before_the_begin(void)
{
    const cudaStream_t stream = new_stream();
    float *x = device_floats();
    OK(fake_enqueue(stream, "early", [=] { *(volatile float *)&x[-1] = 1; }));
    OK(cudaStreamSynchronize(stream));
}

static void work_touches_another_device(void)
{
    fake_options.n_devices = 2;
    float *x = device_floats();
    OK(cudaSetDevice(1));
    const cudaStream_t stream = new_stream();
    OK(set(stream, x, 1));
    OK(cudaStreamSynchronize(stream));
}

static void host_writes_past_pinned_memory(void)
{
    float *pinned = pinned_floats();
    *(volatile char *)&pinned[n_elems] = 1;
    OK(cudaFreeHost(pinned));
}

static void freed_twice(void)
{
    float *x = device_floats();
    OK(cudaFree(x));
    OK(cudaFree(x));
}

static void freed_from_within(void)
{
    OK(cudaFree(device_floats() + 1));
}

static void freed_as_the_other_kind(void)
{
    OK(cudaFree(pinned_floats()));
}

static void used_after_free(void)
{
    const cudaStream_t stream = new_stream();
    float *x = device_floats();
    OK(cudaFree(x));
    OK(set(stream, x, 1));
    OK(cudaStreamSynchronize(stream));
}

static void pinned_memory_freed_too_early(void)
{
    const cudaStream_t stream = new_stream();
    float *x = device_floats(), *pinned = pinned_floats();
    OK(cudaMemcpyAsync(x, pinned, n_bytes, cudaMemcpyHostToDevice, stream));
    OK(cudaFreeHost(pinned));
    OK(cudaStreamSynchronize(stream));
}

static void copy_in_the_wrong_direction(void)
{
    float host[n_elems];
    cudaMemcpyAsync(host, device_floats(), n_bytes, cudaMemcpyHostToDevice, new_stream());
}

static void copy_between_host_memory_as_if_it_were_the_devices(void)
{
    float host[n_elems], other[n_elems];
    cudaMemcpyAsync(host, other, n_bytes, cudaMemcpyDeviceToDevice, new_stream());
}

static void copy_too_long(void)
{
    float host[n_elems + 1] = {};
    cudaMemcpyAsync(device_floats(), host, n_bytes + 1, cudaMemcpyHostToDevice, new_stream());
}

static void memset_of_host_memory(void)
{
    float host[n_elems];
    cudaMemsetAsync(host, 0, n_bytes, new_stream());
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
    CHECK_INT(set(stream, NULL, 1), cudaErrorInvalidResourceHandle);
    OK(cudaStreamDestroy(stream));
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

/* ---- graphs ---- */

static cudaGraphExec_t finish(cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    return exec;
}

static cudaStream_t recording_stream(void)
{
    const cudaStream_t stream = new_stream();
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(fake_is_capturing(stream));
    return stream;
}

/* Ends a recording that should have been spoiled. */
static void end_spoiled(cudaStream_t stream)
{
    cudaGraph_t graph = (cudaGraph_t)&graph;
    cudaStreamCaptureStatus status;
    OK(cudaStreamIsCapturing(stream, &status));
    CHECK_INT(status, cudaStreamCaptureStatusInvalidated);
    CHECK_INT(fake_enqueue(stream, "nothing", [] {}), cudaErrorStreamCaptureInvalidated);
    CHECK_INT(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    CHECK(graph == NULL);
    CHECK(!fake_is_capturing(stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaStreamDestroy(stream));
}

static void a_graph_runs_each_time(void)
{
    const cudaStream_t stream = new_stream();
    float *x = device_floats();
    OK(set(stream, x, 0));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(append(stream, x, 1));
    OK(append(stream, x, 2));
    const cudaGraphExec_t exec = finish(stream);
    CHECK_NEAR(first_of(stream, x), 0, 0); /* recorded, not run */
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaGraphExecDestroy(exec));
    CHECK_NEAR(first_of(stream, x), 1212, 0);
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(x));
}

/* Two branches: `side` begins behind 1 and ends before 4. join: with the wait that makes it so. */
static float two_branches(bool fork, bool join)
{
    const cudaStream_t stream = new_stream(), side = new_stream();
    const cudaEvent_t event = new_event();
    float *x = device_floats();
    OK(set(stream, x, 0));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    if (!fork) {
        OK(cudaEventRecord(event, stream));
        OK(cudaStreamWaitEvent(side, event, 0));
    }
    OK(append(stream, x, 1));
    if (fork) {
        OK(cudaEventRecord(event, stream));
        OK(cudaStreamWaitEvent(side, event, 0));
    }
    CHECK(fake_is_capturing(side));
    OK(append(stream, x, 2)); /* beside 3 */
    OK(append(side, x, 3));
    if (!join) {
        cudaGraph_t graph;
        CHECK_INT(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnjoined);
        CHECK(!fake_is_capturing(side));
        exit(0);
    }
    OK(cudaEventRecord(event, side));
    OK(cudaStreamWaitEvent(stream, event, 0));
    OK(append(stream, x, 4));
    const cudaGraphExec_t exec = finish(stream);
    OK(cudaGraphLaunch(exec, stream));
    const float result = first_of(stream, x);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamDestroy(side));
    OK(cudaFree(x));
    return result;
}

static void branches_run_in_another_order_than_recorded(void)
{
    CHECK_NEAR(two_branches(true, true), 1324, 0);
}

static void a_branch_that_begins_too_early_shows(void)
{
    CHECK_NEAR(two_branches(false, true), 3124, 0);
}

static void unjoined_branch(void)
{
    two_branches(true, false);
}

static void work_that_waits_in_a_graph(void)
{
    const cudaStream_t stream = recording_stream();
    int n_calls = 0;
    bool behind = false;
    OK(fake_enqueue_until(stream, "waits", [&] { return ++n_calls == 3; }));
    OK(fake_enqueue(stream, "behind", [&] { behind = true; }));
    const cudaGraphExec_t exec = finish(stream);
    OK(cudaGraphLaunch(exec, stream));
    CHECK_INT(cudaStreamQuery(stream), cudaErrorNotReady);
    CHECK(!behind);
    OK(cudaStreamSynchronize(stream));
    CHECK(behind);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaStreamDestroy(stream));
}

static void synchronizing_spoils_a_recording(void)
{
    const cudaStream_t stream = recording_stream();
    CHECK_INT(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
    end_spoiled(stream);
}

static void synchronizing_the_device_spoils_a_recording(void)
{
    const cudaStream_t stream = recording_stream();
    CHECK_INT(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
    end_spoiled(stream);
}

static void looking_spoils_a_recording(void)
{
    const cudaStream_t stream = recording_stream();
    CHECK_INT(cudaStreamQuery(stream), cudaErrorStreamCaptureUnsupported);
    end_spoiled(stream);
}

static void allocating_spoils_a_recording(void)
{
    const cudaStream_t stream = recording_stream();
    void *memory;
    CHECK_INT(cudaMalloc(&memory, 1), cudaErrorStreamCaptureUnsupported);
    end_spoiled(stream);
}

static void freeing_spoils_a_recording(void)
{
    float *x = device_floats();
    const cudaStream_t stream = recording_stream();
    CHECK_INT(cudaFree(x), cudaErrorStreamCaptureUnsupported);
    end_spoiled(stream);
    OK(cudaFree(x));
}

static void looking_at_a_recorded_event_spoils_a_recording(void)
{
    const cudaEvent_t event = new_event();
    const cudaStream_t stream = recording_stream();
    OK(cudaEventRecord(event, stream));
    CHECK_INT(cudaEventQuery(event), cudaErrorCapturedEvent);
    end_spoiled(stream);
    CHECK_INT(cudaEventSynchronize(event), cudaErrorCapturedEvent);
    OK(cudaEventDestroy(event));
}

static void looking_at_another_event_spoils_a_recording(void)
{
    const cudaEvent_t event = new_event();
    const cudaStream_t stream = recording_stream();
    CHECK_INT(cudaEventQuery(event), cudaErrorStreamCaptureUnsupported);
    end_spoiled(stream);
    OK(cudaEventDestroy(event));
}

static void waiting_for_earlier_work_spoils_a_recording(void)
{
    const cudaEvent_t event = new_event();
    const cudaStream_t other = new_stream();
    OK(cudaEventRecord(event, other));
    const cudaStream_t stream = recording_stream();
    CHECK_INT(cudaStreamWaitEvent(stream, event, 0), cudaErrorStreamCaptureIsolation);
    end_spoiled(stream);
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(other));
}

static void ended_by_another_stream(void)
{
    const cudaEvent_t event = new_event();
    const cudaStream_t other = new_stream(), stream = recording_stream();
    cudaGraph_t graph;
    CHECK_INT(cudaStreamEndCapture(other, &graph), cudaErrorIllegalState);
    OK(cudaEventRecord(event, stream));
    OK(cudaStreamWaitEvent(other, event, 0));
    CHECK_INT(cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureUnmatched);
    end_spoiled(stream);
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(other));
}

static void event_of_an_ended_recording(void)
{
    const cudaEvent_t event = new_event();
    const cudaStream_t stream = recording_stream();
    OK(cudaEventRecord(event, stream));
    OK(cudaGraphExecDestroy(finish(stream)));
    CHECK_INT(cudaStreamWaitEvent(stream, event, 0), cudaErrorCapturedEvent);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK_INT(cudaStreamWaitEvent(stream, event, 0), cudaErrorCapturedEvent);
    OK(cudaGraphExecDestroy(finish(stream)));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
}

static void a_failure_in_a_graph_is_sticky(void)
{
    fake_options.fail_launch_at = 2;
    const cudaStream_t stream = recording_stream();
    bool behind = false;
    OK(fake_enqueue(stream, "first", [] {}));
    OK(fake_enqueue(stream, "second", [] {}));
    OK(fake_enqueue(stream, "third", [&] { behind = true; }));
    const cudaGraphExec_t exec = finish(stream);
    OK(cudaGraphLaunch(exec, stream));
    CHECK_INT(cudaStreamSynchronize(stream), cudaErrorIllegalAddress);
    CHECK(!behind);
    CHECK_INT(cudaGraphExecDestroy(exec), cudaErrorIllegalAddress);
    CHECK_INT(cudaStreamDestroy(stream), cudaErrorIllegalAddress);
}

static void pageable_memory_in_a_graph(void)
{
    float host[n_elems] = {}, *x = device_floats();
    cudaMemcpyAsync(x, host, n_bytes, cudaMemcpyHostToDevice, recording_stream());
}

static void leaks_a_graph(void)
{
    const cudaStream_t stream = recording_stream();
    cudaGraph_t graph;
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaStreamDestroy(stream));
}

static void leaks_an_executable_graph(void)
{
    const cudaStream_t stream = recording_stream();
    finish(stream);
    OK(cudaStreamDestroy(stream));
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

    WORKS(memory_begins_as_nan);
    WORKS(pageable_memory_is_read_at_once_and_pinned_memory_later);
    WORKS(a_free_waits);
    ENDS(host_reads_device_memory, "the host touches byte 0 of device memory of 400 bytes");
    ENDS(host_writes_device_memory, "the host touches byte 0 of device memory of 400 bytes");
    ENDS(work_writes_a_byte_past_the_end, "long wrote past the end of memory of 400 bytes");
    ENDS(work_reads_far_past_the_end, "\"far\" on device 0 touches 256 bytes past the end of device memory of 400 bytes");
    ENDS(work_writes_before_the_begin, "early wrote before the begin of memory of 400 bytes");
    ENDS(work_touches_another_device, "\"set\" on device 1 touches byte 0 of device memory of 400 bytes (device 0)");
    ENDS(host_writes_past_pinned_memory, "wrote past the end of memory of 400 bytes");
    ENDS(freed_twice, "it is freed already");
    ENDS(freed_from_within, "is not the begin of such memory");
    ENDS(freed_as_the_other_kind, "is not the begin of such memory");
    ENDS(used_after_free, "\"set\" on device 0 touches byte 0 of freed memory");
    ENDS(pinned_memory_freed_too_early, "of freed memory of 400 bytes");
    ENDS(copy_in_the_wrong_direction, "cudaMemcpyAsync of kind 1 from device to host memory");
    ENDS(copy_between_host_memory_as_if_it_were_the_devices, "cudaMemcpyAsync of kind 3 from host to host memory");
    ENDS(copy_too_long, "cudaMemcpyAsync, target: 401 bytes at byte 0 of device memory of 400 bytes");
    ENDS(memset_of_host_memory, "is not device memory");

    ENDS(default_stream, "set on the default stream");
    ENDS(destroyed_stream, "is not a stream, or is destroyed");
    ENDS(destroyed_event, "is not an event, or is destroyed");
    WORKS(work_after_the_streams_end_still_runs);
    WORKS(stream_of_another_device);
    ENDS(work_calls_the_runtime, "\"caller\", which is enqueued work, calls cudaStreamSynchronize");
    ENDS(leaks_memory, "not closed at exit: device memory (1)");
    ENDS(leaks_pinned_memory, "not closed at exit: pinned memory (1)");
    ENDS(leaks_a_stream, "not closed at exit: stream (1)");
    ENDS(leaks_an_event, "not closed at exit: event (1)");

    WORKS(a_graph_runs_each_time);
    WORKS(branches_run_in_another_order_than_recorded);
    WORKS(a_branch_that_begins_too_early_shows);
    WORKS(work_that_waits_in_a_graph);
    WORKS(a_failure_in_a_graph_is_sticky);
    WORKS(synchronizing_spoils_a_recording);
    WORKS(synchronizing_the_device_spoils_a_recording);
    WORKS(looking_spoils_a_recording);
    WORKS(allocating_spoils_a_recording);
    WORKS(freeing_spoils_a_recording);
    WORKS(looking_at_a_recorded_event_spoils_a_recording);
    WORKS(looking_at_another_event_spoils_a_recording);
    WORKS(waiting_for_earlier_work_spoils_a_recording);
    WORKS(ended_by_another_stream);
    WORKS(event_of_an_ended_recording);
    ENDS(unjoined_branch, "not closed at exit");
    ENDS(pageable_memory_in_a_graph, "a graph records a copy with pageable memory");
    ENDS(leaks_a_graph, "not closed at exit: graph (1)");
    ENDS(leaks_an_executable_graph, "not closed at exit: executable graph (1)");
    return 0;
}
