/* For tests of fake CUDA: memory, streams, events and graphs that end with their scope, kernels
 * whose effects show their order, and tables of cases. */
#ifndef DT_TESTS_FAKECUDA_TRACE_H
#define DT_TESTS_FAKECUDA_TRACE_H

#include "tests/cuda/case.h"
#include "tests/fakecuda/fake.h"

#define OK(call) CHECK_INT(call, cudaSuccess)

static const int n_elems = 100;
static const size_t n_bytes = n_elems * sizeof(float);

inline float *device_floats()
{
    void *memory;
    OK(cudaMalloc(&memory, n_bytes));
    return (float *)memory;
}

inline float *pinned_floats()
{
    void *memory;
    OK(cudaMallocHost(&memory, n_bytes));
    return (float *)memory;
}

inline cudaStream_t new_stream()
{
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

inline cudaStream_t recording_stream()
{
    const cudaStream_t stream = new_stream();
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    return stream;
}

inline cudaEvent_t new_event()
{
    cudaEvent_t event;
    OK(cudaEventCreate(&event));
    return event;
}

/* Ends the recording. */
inline cudaGraphExec_t new_graph(cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    return exec;
}

/* A thing that ends with its scope. */
template <typename T, auto end, T (*make)() = nullptr> struct scoped {
    T it;

    scoped(T thing = make()) : it(thing)
    {
    }
    scoped(const scoped &) = delete;
    ~scoped()
    {
        OK(end(it));
    }
    operator T() const
    {
        return it;
    }
};

using stream = scoped<cudaStream_t, cudaStreamDestroy, new_stream>;
using event = scoped<cudaEvent_t, cudaEventDestroy, new_event>;
using graph = scoped<cudaGraphExec_t, cudaGraphExecDestroy>;
using floats = scoped<float *, cudaFree, device_floats>;
using pinned = scoped<float *, cudaFreeHost, pinned_floats>;

/* A kernel: x[i] = value. */
inline cudaError_t set(cudaStream_t stream, float *x, float value)
{
    return fake_enqueue(stream, "set", [=] {
        for (int i = 0; i < n_elems; i++) {
            x[i] = value;
        }
    });
}

/* x[0] = 10 * x[0] + digit: the digits show which kernels ran, in which order. */
inline cudaError_t append(cudaStream_t stream, float *x, int digit)
{
    return fake_enqueue(stream, "append", [=] { x[0] = 10 * x[0] + (float)digit; });
}

inline float first_of(cudaStream_t stream, const float *x)
{
    float value;
    OK(cudaMemcpyAsync(&value, x, sizeof value, cudaMemcpyDeviceToHost, stream));
    return value;
}

/* One process each. */
struct fake_case {
    const char *name; /* for misuse, the line with which it ends */
    void (*body)();
};

template <size_t N> inline void all_work(const fake_case (&cases)[N])
{
    for (const fake_case &each : cases) {
        run_case(each.name, each.body, NULL);
    }
}

template <size_t N> inline void all_end(const fake_case (&cases)[N])
{
    for (const fake_case &each : cases) {
        run_case(each.name, each.body, each.name);
    }
}

#endif
