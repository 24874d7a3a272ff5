/* Declarations shared by the parts of the fake runtime. */
#ifndef DT_TESTS_FAKE_RUNTIME_H
#define DT_TESTS_FAKE_RUNTIME_H

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakecuda/fake.h"

namespace fake {

/* ---- fake_runtime.cpp: errors and devices ---- */

extern struct fake_counts counts;
extern thread_local int current_device; /* 0 in a new thread, whatever other threads have chosen */
extern cudaError_t last_error;          /* returned and cleared by cudaGetLastError */
extern cudaError_t sticky_error;        /* the context is lost: every call fails */
extern const char *running;             /* the current work item, else NULL */

cudaError_t fail(cudaError_t code);
size_t device_bytes();
/* The error of any call if the driver, the devices or the context are missing. */
cudaError_t enter(const char *call);

#define ENTER()                                      \
    do {                                             \
        const cudaError_t entered = enter(__func__); \
        if (entered != cudaSuccess) {                \
            return fail(entered);                    \
        }                                            \
    } while (0)

/* ---- fake_memory.cpp ---- */

enum kind { DEVICE, PINNED, FREED };

struct memory {
    char *map; /* a guard page, the pages, a guard page */
    size_t map_bytes;
    char *begin; /* the caller's pointer; the allocation ends with the pages, up to alignment */
    size_t n_bytes;
    kind is;
    int device;

    char *pages() const;
    size_t pages_bytes() const;
};

/* By the address of the map. Freed ones stay mapped, so that their addresses are not reused. */
extern std::map<uintptr_t, memory> memories, freed;
extern int exposed; /* the device whose memory is accessible now */

const memory *memory_at(const void *pointer);
void expose(int device);
/* Checks that the bytes between the guards and the caller's bytes are unchanged. */
void check_slack(const memory &memory, const char *who);
void describe(const memory &memory, const void *pointer, char *text, size_t n_text);

/* ---- fake_streams.cpp: work, streams and events ---- */

struct piece {
    std::string name;
    std::function<bool()> run; /* false: not finished, call again */
    bool fails;
    std::shared_ptr<void> held; /* by the graphs that contain it */
    std::function<std::function<bool()>()>
        launched;     /* makes the work for a launch of such a graph; empty: `run` is used */
    long n_bytes = 0; /* of fake_moves */
};

/* An event's position in a stream. */
struct marker {
    cudaStream_t stream;
    bool done;
    long time;
};

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
    std::thread::id user; /* fake_give_graph */
    std::vector<node> nodes;
};

extern std::optional<capture> recording;
extern std::vector<std::unique_ptr<CUstream_st>>
    streams; /* including destroyed ones: their work still runs */

void need_stream(cudaStream_t stream, const char *call);
/* Checks that the calling thread has chosen this device. CUDA allows other ones, at times by
 * mistake. */
void need_current(int device, const char *call);
bool perform(const piece &piece);
void need_graph(
    const char *call); /* checks that the calling thread may use the graph being recorded */
cudaError_t wait_stream(cudaStream_t stream);
cudaError_t wait_device(int device);
/* Runs work as a blocking host call does, until `done` or an error. */
cudaError_t block(cudaStream_t stream, const std::function<bool()> &done);
cudaError_t spoil_capture(cudaError_t code);
/* For calls that touch more than one stream. */
cudaError_t refuse_in_capture();

#define REFUSE_IN_CAPTURE()                              \
    do {                                                 \
        const cudaError_t refused = refuse_in_capture(); \
        if (refused != cudaSuccess) {                    \
            return refused;                              \
        }                                                \
    } while (0)

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
