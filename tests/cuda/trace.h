/* For tests of the fake runtime: memory, streams and events, and kernels whose effects show their
 * order. */
#ifndef DT_TESTS_FAKECUDA_TRACE_H
#define DT_TESTS_FAKECUDA_TRACE_H

#include "tests/cuda/case.h"
#include "tests/fakecuda/fake.h"

#define OK(call) CHECK_INT(call, cudaSuccess)

static const int n_elems = 100;
static const size_t n_bytes = n_elems * sizeof(float);

static inline float *device_floats(void)
{
    void *memory;
    OK(cudaMalloc(&memory, n_bytes));
    return (float *)memory;
}

static inline float *pinned_floats(void)
{
    void *memory;
    OK(cudaMallocHost(&memory, n_bytes));
    return (float *)memory;
}

static inline cudaStream_t new_stream(void)
{
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static inline cudaEvent_t new_event(void)
{
    cudaEvent_t event;
    OK(cudaEventCreate(&event));
    return event;
}

/* A kernel: x[i] = value. */
static inline cudaError_t set(cudaStream_t stream, float *x, float value)
{
    return fake_enqueue(stream, "set", [=] {
        for (int i = 0; i < n_elems; i++) {
            x[i] = value;
        }
    });
}

/* x[0] = 10 * x[0] + digit: the digits show which kernels ran, in which order. */
static inline cudaError_t append(cudaStream_t stream, float *x, int digit)
{
    return fake_enqueue(stream, "append", [=] { x[0] = 10 * x[0] + (float)digit; });
}

static inline float first_of(cudaStream_t stream, const float *x)
{
    float value;
    OK(cudaMemcpyAsync(&value, x, sizeof value, cudaMemcpyDeviceToHost, stream));
    return value;
}

#endif
