/* The cases of test_fake_runtime.cpp about memory and copies. */
#include "tests/cuda/trace.h"

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
    CHECK_NEAR(pinned[0], 2, 0); /* nothing has waited yet */
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

static void freed_in_a_thread_that_has_not_chosen_its_device(void)
{
    fake_options.n_devices = 2;
    OK(cudaSetDevice(1));
    float *x = device_floats();
    std::thread([x] { cudaFree(x); }).join();
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

int main(void)
{
    WORKS(memory_begins_as_nan);
    WORKS(pageable_memory_is_read_at_once_and_pinned_memory_later);
    WORKS(a_free_waits);
    ENDS(host_reads_device_memory, "the host touches byte 0 of device memory of 400 bytes");
    ENDS(host_writes_device_memory, "the host touches byte 0 of device memory of 400 bytes");
    ENDS(work_writes_a_byte_past_the_end, "long wrote past the end of memory of 400 bytes");
    ENDS(work_reads_far_past_the_end,
         "\"far\" on device 0 touches 256 bytes past the end of device memory of 400 bytes");
    ENDS(work_writes_before_the_begin, "early wrote before the begin of memory of 400 bytes");
    ENDS(work_touches_another_device,
         "\"set\" on device 1 touches byte 0 of device memory of 400 bytes (device 0)");
    ENDS(host_writes_past_pinned_memory, "wrote past the end of memory of 400 bytes");
    ENDS(freed_twice, "it is freed already");
    ENDS(freed_from_within, "is not the begin of such memory");
    ENDS(freed_in_a_thread_that_has_not_chosen_its_device,
         "cudaFree: in a thread whose device is 0, of a thing on device 1");
    ENDS(freed_as_the_other_kind, "is not the begin of such memory");
    ENDS(used_after_free, "\"set\" on device 0 touches byte 0 of freed memory");
    ENDS(pinned_memory_freed_too_early, "of freed memory of 400 bytes");
    ENDS(copy_in_the_wrong_direction, "cudaMemcpyAsync of kind 1 from device to host memory");
    ENDS(copy_between_host_memory_as_if_it_were_the_devices,
         "cudaMemcpyAsync of kind 3 from host to host memory");
    ENDS(copy_too_long,
         "cudaMemcpyAsync, target: 401 bytes at byte 0 of device memory of 400 bytes");
    ENDS(memset_of_host_memory, "is not device memory");
    return 0;
}
