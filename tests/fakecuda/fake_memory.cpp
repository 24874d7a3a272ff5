/* Device memory and pinned memory of fake CUDA: with guards around it, and accessible only while
 * enqueued work runs. */
#include "tests/fakecuda/fake_runtime.h"

#include <sys/mman.h>

namespace fake {

constexpr size_t page_bytes = 4096;
constexpr size_t alignment = 256;   /* that of cudaMalloc */
constexpr int fresh_pattern = 0xff; /* a NaN as float, double and bfloat16 */

std::map<uintptr_t, memory> memories, freed;
int exposed = -1;

char *memory::pages() const
{
    return map + page_bytes;
}

size_t memory::pages_bytes() const
{
    return map_bytes - 2 * page_bytes;
}

static const memory *find(const std::map<uintptr_t, memory> &among, const void *pointer)
{
    auto after = among.upper_bound((uintptr_t)pointer);
    if (after == among.begin()) {
        return nullptr;
    }
    const memory &found = (--after)->second;
    return (const char *)pointer < found.map + found.map_bytes ? &found : nullptr;
}

const memory *memory_at(const void *pointer)
{
    const memory *found = find(memories, pointer);
    return found != nullptr ? found : find(freed, pointer);
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

/* Checks that the bytes between the guards and the caller's bytes are unchanged. */
void check_slack(const memory &memory, const char *who)
{
    const auto damaged = [](char byte) { return (unsigned char)byte != fresh_pattern; };
    if (std::any_of(memory.pages(), memory.begin, damaged)) {
        fake_die("%s wrote before the begin of memory of %zu bytes", who, memory.n_bytes);
    }
    if (std::any_of(memory.begin + memory.n_bytes, memory.pages() + memory.pages_bytes(),
                    damaged)) {
        fake_die("%s wrote past the end of memory of %zu bytes", who, memory.n_bytes);
    }
}

void *allocate(size_t n_bytes, kind is)
{
    const size_t pages_bytes = (n_bytes + page_bytes - 1) / page_bytes * page_bytes;
    const size_t map_bytes = pages_bytes + 2 * page_bytes;
    void *map =
        mmap(nullptr, map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        return nullptr;
    }
    memory memory = {(char *)map, map_bytes, nullptr, n_bytes, is, current_device};
    memory.begin = memory.pages() + pages_bytes - (n_bytes + alignment - 1) / alignment * alignment;
    protect(memory, PROT_READ | PROT_WRITE);
    madvise(memory.pages(), pages_bytes, MADV_HUGEPAGE); /* fewer pages to protect each time */
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
    memory memory = *found;
    if (is == DEVICE) {
        need_current(memory.device, call);
    }
    protect(memory, PROT_READ);
    check_slack(memory, "something");
    mmap(memory.map, memory.map_bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    memory.is = FREED;
    memories.erase((uintptr_t)memory.map);
    freed[(uintptr_t)memory.map] = memory;
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
        snprintf(text, n_text, "%ld bytes before %s of %zu bytes", -at, names[memory.is],
                 memory.n_bytes);
    } else if ((size_t)at >= memory.n_bytes) {
        snprintf(text, n_text, "%ld bytes past the end of %s of %zu bytes",
                 at - (long)memory.n_bytes, names[memory.is], memory.n_bytes);
    } else {
        snprintf(text, n_text, "byte %ld of %s of %zu bytes (device %d)", at, names[memory.is],
                 memory.n_bytes, memory.device);
    }
}

} // namespace fake

using namespace fake;

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

/* ---- the runtime ---- */

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

cudaError_t cudaMalloc(void **pointer, size_t n_bytes)
{
    ENTER();
    REFUSE_IN_CAPTURE();
    if (pointer == nullptr) {
        return fail(cudaErrorInvalidValue);
    }
    *pointer = nullptr;
    if (++counts.n_mallocs == fake_options.fail_malloc_at ||
        n_bytes > device_bytes() - device_used()) {
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
    wait_device(current_device); /* as the real one does, because running work may still use it */
    release(__func__, pointer, DEVICE);
    return fail(sticky_error);
}

cudaError_t cudaMallocHost(void **pointer, size_t n_bytes)
{
    ENTER();
    REFUSE_IN_CAPTURE();
    *pointer = n_bytes != 0 ? allocate(n_bytes, PINNED) : nullptr;
    return *pointer != nullptr || n_bytes == 0 ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}

/* Does not wait: a later copy from it ends the test. */
cudaError_t cudaFreeHost(void *pointer)
{
    const cudaError_t entered = enter(__func__);
    REFUSE_IN_CAPTURE();
    if (pointer != nullptr) {
        release(__func__, pointer, PINNED);
    }
    return fail(entered);
}

/* True if this side of a copy is device memory; a range that crosses its border ends the test. */
static bool side_is_device(const void *pointer, size_t n_bytes, const char *what)
{
    const memory *found = memory_at(pointer);
    if (found == nullptr || fake_is_pinned(pointer, n_bytes)) {
        return false;
    }
    fake_need_device(pointer, n_bytes, what);
    return true;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
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
    if (kind != kinds[from_device][to_device]) {
        fake_die("cudaMemcpyAsync of kind %d from %s to %s memory", (int)kind,
                 from_device ? "device" : "host", to_device ? "device" : "host");
    }
    const bool pageable_from = !from_device && !fake_is_pinned(from, n_bytes);
    const bool pageable_to = !to_device && !fake_is_pinned(to, n_bytes);
    if (stream->capturing && (pageable_from || pageable_to)) {
        fake_die(
            "a graph records a copy with pageable memory, which may be gone when the graph runs");
    }
    std::shared_ptr<std::vector<char>>
        staged; /* pageable memory is read now, pinned memory when the copy runs */
    if (pageable_from) {
        staged =
            std::make_shared<std::vector<char>>((const char *)from, (const char *)from + n_bytes);
    }
    fake_moves((to_device ? n_bytes : 0) + (from_device ? n_bytes : 0));
    const cudaError_t code = fake_enqueue(
        stream, __func__, [=] { memmove(to, staged ? staged->data() : from, n_bytes); });
    return code == cudaSuccess && pageable_to ? wait_stream(stream) : code;
}

cudaError_t cudaMemsetAsync(void *pointer, int value, size_t n_bytes, cudaStream_t stream)
{
    ENTER();
    if (n_bytes == 0) {
        return cudaSuccess; /* also for empty copies */
    }
    fake_need_device(pointer, n_bytes, __func__);
    fake_moves(n_bytes);
    return fake_enqueue(stream, __func__, [=] { memset(pointer, value, n_bytes); });
}
