/* Device memory and pinned memory of fake CUDA: with guards around it, and accessible only while
 * enqueued work runs. */
#include "tests/fakecuda/fake_runtime.h"

#include <sys/mman.h>

namespace fake {

constexpr size_t alignment = 256;   /* that of cudaMalloc */
constexpr int fresh_pattern = 0xff; /* a NaN as float, double and bfloat16 */

std::map<uintptr_t, memory> memories, freed;
int exposed = -1;

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
    FAKE_CHECK(mprotect(memory.pages(), memory.pages_bytes(), protection) == 0, "mprotect failed");
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

void check_slack(const memory &memory, const char *who)
{
    const auto intact = [](char byte) { return (unsigned char)byte == fresh_pattern; };
    const char *end = memory.begin + memory.n_bytes;
    FAKE_CHECK(std::all_of(memory.pages(), memory.begin, intact),
               "%s wrote before the begin of memory of %zu bytes", who, memory.n_bytes);
    FAKE_CHECK(std::all_of(end, (const char *)memory.pages() + memory.pages_bytes(), intact),
               "%s wrote past the end of memory of %zu bytes", who, memory.n_bytes);
}

void *allocate(size_t n_bytes, kind is)
{
    const size_t pages_bytes = (n_bytes + page_bytes - 1) / page_bytes * page_bytes;
    const size_t map_bytes = pages_bytes + 2 * page_bytes;
    void *map =
        mmap(nullptr, map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    FAKE_CHECK(map != MAP_FAILED, "no memory");
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
    FAKE_CHECK(found != nullptr && found->is == is && found->begin == pointer,
               "%s: %p is not the begin of such memory%s", call, pointer,
               found != nullptr && found->is == FREED ? ": it is freed already" : "");
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

std::string describe(const memory &memory, const void *pointer)
{
    static const char *const names[] = {"device memory", "pinned memory", "freed memory"};
    char text[160];
    snprintf(text, sizeof text, "byte %td of %s of %zu bytes (device %d)",
             (const char *)pointer - memory.begin, names[memory.is], memory.n_bytes, memory.device);
    return text;
}

bool lies_in(const void *pointer, size_t n_bytes, kind is)
{
    const memory *found = memory_at(pointer);
    return found != nullptr && found->is == is && (const char *)pointer >= found->begin &&
           (const char *)pointer + n_bytes <= found->begin + found->n_bytes;
}

void need_device(const void *pointer, size_t n_bytes, const char *what)
{
    const memory *found = memory_at(pointer);
    FAKE_CHECK(found != nullptr, "%s: %p is not device memory", what, pointer);
    FAKE_CHECK(lies_in(pointer, n_bytes, DEVICE), "%s: %zu bytes at %s", what, n_bytes,
               describe(*found, pointer).c_str());
}

} // namespace fake

using namespace fake;

/* ---- the runtime ---- */

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    ENTER();
    *total_bytes = device_bytes();
    *free_bytes = device_bytes() - (size_t)counts.n_live_bytes; /* a process uses one device */
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **pointer, size_t n_bytes)
{
    ENTER();
    TRY(refuse_in_capture());
    if (++counts.n_mallocs == fake_options.fail_malloc_at ||
        n_bytes > device_bytes() - (size_t)counts.n_live_bytes) {
        return fail(cudaErrorMemoryAllocation);
    }
    *pointer = n_bytes != 0 ? allocate(n_bytes, DEVICE) : nullptr;
    return cudaSuccess;
}

cudaError_t cudaFree(void *pointer)
{
    const cudaError_t entered = enter(__func__);
    TRY(refuse_in_capture());
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
    TRY(refuse_in_capture());
    *pointer = allocate(n_bytes, PINNED);
    return cudaSuccess;
}

/* Does not wait: a later copy from it ends the test. */
cudaError_t cudaFreeHost(void *pointer)
{
    const cudaError_t entered = enter(__func__);
    TRY(refuse_in_capture());
    if (pointer != nullptr) {
        release(__func__, pointer, PINNED);
    }
    return fail(entered);
}

enum side { PAGEABLE, PAGE_LOCKED, ON_DEVICE };

/* Of a copy; a range that crosses the border of its memory ends the test. */
static side side_of(const void *pointer, size_t n_bytes, const char *what)
{
    if (memory_at(pointer) == nullptr) {
        return PAGEABLE;
    }
    if (lies_in(pointer, n_bytes, PINNED)) {
        return PAGE_LOCKED;
    }
    need_device(pointer, n_bytes, what);
    return ON_DEVICE;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    ENTER();
    need_stream(stream, __func__);
    if (n_bytes == 0) {
        return cudaSuccess;
    }
    const side target = side_of(to, n_bytes, "cudaMemcpyAsync, target"),
               source = side_of(from, n_bytes, "cudaMemcpyAsync, source");
    static const cudaMemcpyKind kinds[2][2] = {{cudaMemcpyHostToHost, cudaMemcpyHostToDevice},
                                               {cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice}};
    FAKE_CHECK(kind == kinds[source == ON_DEVICE][target == ON_DEVICE],
               "cudaMemcpyAsync of kind %d from %p to %p", (int)kind, from, to);
    FAKE_CHECK(!stream->capturing || (source != PAGEABLE && target != PAGEABLE),
               "a graph records a copy with pageable memory, which may be gone when it runs");
    std::vector<char> staged; /* pageable memory is read now, pinned memory when the copy runs */
    if (source == PAGEABLE) {
        staged.assign((const char *)from, (const char *)from + n_bytes);
    }
    moves(n_bytes * ((source == ON_DEVICE) + (target == ON_DEVICE)));
    TRY(enqueue(stream, __func__, [=, staged = std::move(staged)] {
        memmove(to, staged.empty() ? from : staged.data(), n_bytes);
    }));
    return target == PAGEABLE ? wait_stream(stream) : cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *pointer, int value, size_t n_bytes, cudaStream_t stream)
{
    ENTER();
    if (n_bytes == 0) {
        return cudaSuccess; /* also for empty copies */
    }
    need_device(pointer, n_bytes, __func__);
    moves(n_bytes);
    return enqueue(stream, __func__, [=] { memset(pointer, value, n_bytes); });
}
