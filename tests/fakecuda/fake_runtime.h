/* What the parts of fake CUDA share. */
#ifndef DT_TESTS_FAKE_RUNTIME_H
#define DT_TESTS_FAKE_RUNTIME_H

#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakecuda/fake.h"

/* Ends the process with a line: the code under test broke a rule of CUDA. */
__attribute__((noreturn, format(printf, 1, 2))) void fake_die(const char *format, ...);
#define FAKE_CHECK(condition, ...) ((condition) ? (void)0 : fake_die(__VA_ARGS__))

namespace fake {

/* The living objects of a kind, which is named as for fake_opened. */
template <typename object> struct living {
    const char *what;
    std::set<object *> all;

    object *add(object *made)
    {
        fake_opened(what);
        return *all.insert(made).first;
    }
    /* Dies unless it is one of them. */
    object *need(object *pointer, const char *call) const
    {
        FAKE_CHECK(all.count(pointer) != 0, "%s: %p is no %s, or is destroyed", call,
                   (void *)pointer, what);
        return pointer;
    }
    void remove(object *pointer, const char *call)
    {
        all.erase(need(pointer, call));
        delete pointer;
        fake_closed(what);
    }
};

/* ---- fake_runtime.cpp: errors and devices ---- */

extern struct fake_counts counts;
extern thread_local int current_device; /* 0 in a new thread, whatever other threads have chosen */
extern cudaError_t sticky_error;        /* the context is lost: every call fails */
extern const char *running;             /* the current work item, else NULL */

cudaError_t fail(cudaError_t code);
size_t device_bytes();
/* The error of any call if the driver, the devices or the context are missing. */
cudaError_t enter(const char *call);
/* Dies unless the calling thread has chosen this device. CUDA allows other ones, at times by
 * mistake. */
void need_current(int device, const char *call);

#define TRY(call)                        \
    do {                                 \
        const cudaError_t code = (call); \
        if (code != cudaSuccess) {       \
            return fail(code);           \
        }                                \
    } while (0)
#define ENTER() TRY(enter(__func__))

/* ---- fake_memory.cpp ---- */

constexpr size_t page_bytes = 4096;

enum kind { DEVICE, PINNED, FREED };

struct memory {
    char *map; /* a guard page, the pages, a guard page */
    size_t map_bytes;
    char *begin; /* the caller's pointer; the allocation ends with the pages, up to alignment */
    size_t n_bytes;
    kind is;
    int device;

    char *pages() const
    {
        return map + page_bytes;
    }
    size_t pages_bytes() const
    {
        return map_bytes - 2 * page_bytes;
    }
};

/* By the address of the map. Freed ones stay mapped, so that their addresses are not reused. */
extern std::map<uintptr_t, memory> memories, freed;
extern int exposed; /* the device whose memory is accessible now */

const memory *memory_at(const void *pointer);
/* True if [pointer, pointer + n_bytes) lies inside one allocation of this kind. */
bool lies_in(const void *pointer, size_t n_bytes, kind is);
/* Dies unless it is device memory; `what` names the call and the argument. */
void need_device(const void *pointer, size_t n_bytes, const char *what);
void expose(int device);
/* Checks that the bytes between the guards and the caller's bytes are unchanged. */
void check_slack(const memory &memory, const char *who);
std::string describe(const memory &memory, const void *pointer);

/* ---- fake_streams.cpp: work, streams and events ---- */

struct piece {
    const char *name;
    std::function<bool()> run; /* false: not finished, call again */
    long n_bytes = 0;          /* of moves() */
};

/* Enqueues work after everything on the stream so far; or records it into the stream's graph, of
 * which each launch runs a copy. `name` is for messages. Returns what a launch returns: an error of
 * earlier work is sticky. */
cudaError_t enqueue(cudaStream_t stream, const char *name, std::function<void()> work);
/* The same for work that waits for another process: each look at the stream calls it again until it
 * returns true, and nothing after it runs before. It never blocks; a synchronization yields between
 * its calls. */
cudaError_t enqueue_until(cudaStream_t stream, const char *name, std::function<bool()> work);
/* The next work item has these bytes of device memory as an argument; cudaGraphDebugDotPrint tells
 * their sum. A kernel's: from each pointer to the end of its allocation. */
void moves(size_t n_bytes);
/* Called by running work: adds its duration. */
void take_time(long ms);

struct node {
    piece work;
    std::vector<size_t> after;
    int priority; /* of the stream that it was recorded on */
};

/* Only one at a time: dtrain needs no more. */
struct capture {
    cudaStream_t origin;
    long serial;
    bool invalid;
    bool lent; /* to a thread of NCCL: no other may use it */
    std::vector<node> nodes;
};

extern std::optional<capture> recording;
extern std::vector<std::unique_ptr<CUstream_st>>
    streams; /* including destroyed ones: their work still runs */

void need_stream(cudaStream_t stream, const char *call);
bool perform(const piece &piece);
/* Dies if NCCL has the graph being recorded; the error of any addition to a spoiled one. */
cudaError_t use_graph(const char *call);
cudaError_t wait_stream(cudaStream_t stream);
cudaError_t wait_device(int device);
/* For calls that a recording does not allow, and that spoil it. */
cudaError_t refuse_in_capture();

/* ---- fake_graphs.cpp ---- */

bool any_graph(); /* true if a graph or an executable one is not destroyed */

/* ---- operands of the libraries' calls ---- */

/* A float or a bfloat16; with tf32, 10 bits of fraction: truncates the rest, as tensor cores do
 * with unrounded floats. */
inline float load(const void *memory, size_t i, bool is_float, bool tf32)
{
    float x = is_float ? ((const float *)memory)[i] : (float)((const __nv_bfloat16 *)memory)[i];
    uint32_t bits;
    if (tf32 && std::isfinite(x)) {
        memcpy(&bits, &x, sizeof bits);
        bits &= ~0x1fffu;
        memcpy(&x, &bits, sizeof x);
    }
    return x;
}

inline void store(void *memory, size_t i, bool is_float, float value)
{
    if (is_float) {
        ((float *)memory)[i] = value;
    } else {
        ((__nv_bfloat16 *)memory)[i] = __nv_bfloat16(value);
    }
}

/* No caller may rely on its contents. */
inline void spoil(void *workspace, size_t n_bytes)
{
    memset(workspace, 0xff, std::min(n_bytes, (size_t)4096));
}

inline bool overlap(const void *a, size_t n_a, const void *b, size_t n_b)
{
    return (const char *)a < (const char *)b + n_b && (const char *)b < (const char *)a + n_a;
}

} // namespace fake

struct CUstream_st {
    int device, priority;
    bool live;
    bool capturing;
    int n_launches;           /* of graphs, not finished yet */
    std::vector<size_t> tail; /* predecessors of the next node */
    std::deque<fake::piece> queue;
};

#endif
