/* The cases of test_fake_runtime.cpp about recording and running graphs. */
#include "tests/cuda/trace.h"

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

/* Ends a recording that must have been invalidated. */
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

static void a_launch_behind_many_others_blocks(void)
{
    const cudaStream_t stream = recording_stream();
    int n_runs = 0;
    OK(fake_enqueue(stream, "counts", [&] { n_runs++; }));
    const cudaGraphExec_t exec = finish(stream);
    for (int i = 0; i < 8; i++) {
        OK(cudaGraphLaunch(exec, stream));
    }
    CHECK_INT(n_runs, 0);
    CHECK_INT(fake_counts().n_host_waits, 0);
    OK(cudaGraphLaunch(exec, stream));
    CHECK_INT(n_runs, 1);
    CHECK_INT(fake_counts().n_host_waits, 1);
    OK(cudaStreamSynchronize(stream));
    CHECK_INT(n_runs, 9);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaStreamDestroy(stream));
}

static void record_two_priorities(unsigned long long flags)
{
    cudaStream_t urgent;
    OK(cudaStreamCreateWithPriority(&urgent, cudaStreamNonBlocking, -5));
    const cudaStream_t stream = recording_stream();
    const cudaEvent_t event = new_event();
    OK(fake_enqueue(stream, "usual", [] {}));
    OK(cudaEventRecord(event, stream));
    OK(cudaStreamWaitEvent(urgent, event, 0));
    OK(fake_enqueue(urgent, "urgent", [] {}));
    OK(cudaEventRecord(event, urgent));
    OK(cudaStreamWaitEvent(stream, event, 0));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, flags));
    OK(cudaGraphDestroy(graph));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamDestroy(urgent));
}

static void priorities_that_are_kept(void)
{
    record_two_priorities(cudaGraphInstantiateFlagUseNodePriority);
}

static void priorities_that_are_lost(void)
{
    record_two_priorities(0);
}

/* Two branches: `side` begins after 1 and ends before 4. join: with the wait that orders it. */
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
    CHECK_INT(fake_last_graph().n_nodes, 4);
    CHECK_INT(fake_last_graph().longest_chain, 3); /* 2 and 3 in parallel */
}

static void bytes_are_counted_once_for_reading_and_once_for_writing(void)
{
    const cudaStream_t stream = new_stream();
    const fake_work *works;
    char *x;
    OK(cudaMalloc((void **)&x, 8192));
    CHECK_INT(fake_count_bytes(), 1);
    OK(cudaMemsetAsync(x, 0, 8192, stream));
    OK(cudaMemcpyAsync(x, x + 4096, 4096, cudaMemcpyDeviceToDevice, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK_INT(fake_counted(&works), 2);
    CHECK(works[0].n_read == 0 && works[0].n_written == 8192);
    CHECK(works[1].n_read == 4096 && works[1].n_written == 4096 &&
          strcmp(works[1].name, "cudaMemcpyAsync") == 0);
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(x));
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
    WORKS(a_graph_runs_each_time);
    WORKS(a_launch_behind_many_others_blocks);
    WORKS(branches_run_in_another_order_than_recorded);
#ifdef __x86_64__
    WORKS(bytes_are_counted_once_for_reading_and_once_for_writing);
#endif
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
    WORKS(priorities_that_are_kept);
    ENDS(priorities_that_are_lost, "the priorities of the graph's nodes are lost");
    ENDS(unjoined_branch, "not closed at exit");
    ENDS(pageable_memory_in_a_graph, "a graph records a copy with pageable memory");
    ENDS(leaks_a_graph, "not closed at exit: graph (1)");
    ENDS(leaks_an_executable_graph, "not closed at exit: executable graph (1)");
    return 0;
}
