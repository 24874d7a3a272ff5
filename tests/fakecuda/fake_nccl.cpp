/* NCCL between the processes of a test: the ranks share a file in memory, whose path is the unique
 * id; each has a box in it for its part of a collective. All read all boxes, in rank order. Only
 * non-blocking communicators. A communicator's state is ncclInProgress as long as the real library
 * allows: for some looks after every call, and until all ranks have reached the start, the first
 * collective (which connects them) and the end. Only then is a collective on its stream, put there
 * by a short-lived thread; before that no other call may use the communicator. If the stream
 * records a graph, the graph belongs to that thread from the call until a look finds the collective
 * issued. Ranks of one host that share a GPU are refused. A single rank has nothing to add: in
 * place nothing happens, on no stream and in no graph. While a graph with one of its collectives
 * exists, a communicator's end would wait forever. */

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include "tests/fakecuda/fake_runtime.h"

namespace {

constexpr int max_ranks = 64;
constexpr size_t box_bytes = size_t(1)
                             << 26; /* of addresses; memory is allocated when it is written */
constexpr int n_busy_looks = 3;

/* A sum of floats, the only collective that dtrain asks NCCL for. */
struct collective {
    bool is_recorded; /* part of a graph */
    size_t count;

    size_t n_bytes() const
    {
        return count * sizeof(float);
    }
};

struct member {
    std::atomic<uint64_t> n_put, n_taken; /* collectives */
    struct collective what;               /* the last one put */
    char host[64];                        /* another rank with the same host and GPU is refused */
    int device;
};

struct meeting {
    std::atomic<int> n_started, n_connected, n_finalized; /* ranks */
    member ranks[max_ranks];
};

constexpr size_t header_bytes = (sizeof(meeting) + 4095) / 4096 * 4096;
constexpr size_t meeting_bytes = header_bytes + max_ranks * box_bytes;

const char *last_error = "";

} // namespace

/* Work on streams keeps it alive after it has been destroyed or aborted. */
struct ncclComm : std::enable_shared_from_this<ncclComm> {
    const struct fake_options options = fake_options;
    int rank, size, device;
    meeting *shared;
    uint64_t n_given = 0, n_done = 0;                         /* collectives */
    int n_recorded = 0;                                       /* into graphs */
    std::shared_ptr<int> in_graphs = std::make_shared<int>(); /* one reference per graph */
    bool finalized = false;
    std::atomic<bool> aborted{false};
    ncclResult_t state = ncclInProgress;
    int busy_looks = n_busy_looks;
    std::function<bool()> ready;   /* true if the operation in progress can end now */
    std::function<void()> at_end;  /* called then */
    std::shared_ptr<ncclComm> own; /* until destroyed or aborted */

    ~ncclComm()
    {
        munmap(shared, meeting_bytes);
    }

    char *box(int of_rank) const
    {
        return reinterpret_cast<char *>(shared) + header_bytes + size_t(of_rank) * box_bytes;
    }

    /* True if each rank has put or taken n collectives. */
    bool all_have(std::atomic<uint64_t> member::*count, uint64_t n) const
    {
        return std::all_of(shared->ranks, shared->ranks + size,
                           [=](const member &each) { return each.*count >= n; });
    }

    ncclResult_t begin(std::function<bool()> is_ready, std::function<void()> then)
    {
        state = ncclInProgress;
        busy_looks = n_busy_looks;
        ready = std::move(is_ready);
        at_end = std::move(then);
        return state;
    }

    /* The library's thread for a collective; it starts one for each. */
    void launch(const std::function<void()> &enqueue) const
    {
        std::thread([this, &enqueue] {
            cudaSetDevice(device);
            enqueue();
        }).join();
    }

    void look()
    {
        if (state == ncclInProgress && busy_looks-- <= 0 && ready()) {
            state = ncclSuccess;
            const auto then = std::move(at_end); /* it may own its own closure */
            at_end = nullptr;
            then();
        }
    }

    bool shares_its_gpu() const
    {
        const member &mine = shared->ranks[rank];
        return std::any_of(shared->ranks, shared->ranks + size, [&mine](const member &other) {
            return &other != &mine && other.device == mine.device &&
                   strcmp(other.host, mine.host) == 0;
        });
    }

    ncclResult_t fail(ncclResult_t code, const char *text)
    {
        last_error = text;
        return state = code;
    }

    /* The work of collective n on a stream. Only a later look finds that a peer is lost. */
    std::function<bool()> work_of(uint64_t n, const collective &what, const void *send,
                                  void *receive)
    {
        return [self = shared_from_this(), n, what, send, receive, has_put = false]() mutable {
            if (int(n) == self->options.nccl_error_at) {
                const long code = self->options.nccl_error_code;
                self->fail(code != 0 ? ncclResult_t(code) : ncclRemoteError,
                           "fake: the connection to a peer was closed");
            }
            const bool works = self->state == ncclSuccess || self->state == ncclInProgress;
            has_put = has_put || (works && self->put(n, what, send));
            return self->aborted || (works && has_put && int(n) != self->options.nccl_hang_at &&
                                     self->take(n, what, receive));
        };
    }

    /* Puts the rank's part into its box when all have emptied it. */
    bool put(uint64_t n, const collective &what, const void *send)
    {
        if (!all_have(&member::n_taken, n - 1)) {
            return false;
        }
        memcpy(box(rank), send, what.n_bytes());
        shared->ranks[rank].what = what;
        shared->ranks[rank].n_put = n;
        return true;
    }

    /* Takes the result when all parts are there. */
    bool take(uint64_t n, const collective &what, void *receive)
    {
        if (!all_have(&member::n_put, n)) {
            return false;
        }
        for (int r = 0; r < size; r++) {
            if (shared->ranks[r].what.is_recorded != what.is_recorded) {
                fake_die("NCCL: collective %d is part of a graph on one of ranks %d and %d, and "
                         "not on the other",
                         int(n), std::min(rank, r), std::max(rank, r));
            }
            if (shared->ranks[r].what.count != what.count) {
                fake_die("NCCL: collective %d is not the same on ranks %d and %d", int(n), rank, r);
            }
        }
        memcpy(receive, box(0), what.n_bytes());
        float *sums = static_cast<float *>(receive);
        for (int r = 1; r < size; r++) {
            const float *part = reinterpret_cast<const float *>(box(r));
            std::transform(sums, sums + what.count, part, sums, std::plus<float>());
        }
        shared->ranks[rank].n_taken = n_done = n;
        return true;
    }
};

namespace {

std::mutex live_lock; /* an abort comes from another thread */
std::set<ncclComm_t> live;

ncclComm_t need_live(ncclComm_t comm, const char *call)
{
    const std::lock_guard<std::mutex> guard(live_lock);
    if (live.count(comm) == 0) {
        fake_die("%s: no such communicator, or one that has ended", call);
    }
    fake::need_current(comm->device, call);
    return comm;
}

ncclComm_t need_idle(ncclComm_t comm, const char *call)
{
    need_live(comm, call);
    if (comm->state == ncclInProgress) {
        fake_die("%s: the communicator has not ended what it was asked before", call);
    }
    if (comm->finalized) {
        fake_die("%s: the communicator is finalized", call);
    }
    return comm;
}

void need_no_graph(ncclComm_t comm, const char *call)
{
    if (fake_holders_in_graphs(comm->in_graphs) > 0) {
        fake_die("%s waits for ever: there is a graph with a collective of the communicator", call);
    }
}

void end(ncclComm_t comm)
{
    const std::lock_guard<std::mutex> guard(live_lock);
    live.erase(comm);
    fake_closed("NCCL communicator");
    comm->own.reset();
}

/* Adds it as a node to a graph; each launch of the graph is one more collective: ranks number their
 * collectives in the order of the host's calls, however far each GPU is. */
ncclResult_t record(ncclComm_t comm, const void *send, void *receive, collective what,
                    cudaStream_t stream)
{
    what.is_recorded = true;
    if (comm->n_given == 0) {
        fake_die("ncclAllReduce: the first collective connects the ranks and allocates, which does "
                 "not belong into a graph");
    }
    comm->n_recorded++;
    const auto launched = [self = comm->shared_from_this(), what, send, receive] {
        return self->work_of(++self->n_given, what, send, receive);
    };
    const auto enqueue = [stream, launched, held = comm->in_graphs] {
        fake_give_graph(std::this_thread::get_id());
        fake_enqueue_until(stream, "ncclAllReduce", nullptr, held, launched);
    };
    fake_give_graph({});
    return comm->begin([comm] { return comm->n_recorded != comm->options.nccl_launch_hangs_at; },
                       [comm, enqueue, user = std::this_thread::get_id()] {
                           comm->launch(enqueue);
                           fake_give_graph(user);
                       });
}

/* NCCL treats ranks with different NCCL_HOSTID as ranks of different hosts. */
void say_where(ncclComm_t comm)
{
    auto &mine = comm->shared->ranks[comm->rank];
    const char *host = getenv("NCCL_HOSTID");
    snprintf(mine.host, sizeof mine.host, "%s", host != nullptr ? host : "");
    if (cudaGetDevice(&mine.device) != cudaSuccess) {
        fake_die("ncclCommInitRankConfig: no current device");
    }
    comm->device = mine.device;
}

meeting *open_meeting(const char *path)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    void *memory = fd < 0 ? MAP_FAILED
                          : mmap(nullptr, meeting_bytes, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (memory == MAP_FAILED) {
        fake_die("ncclCommInitRankConfig: the unique id '%s' leads nowhere", path);
    }
    close(fd);
    return static_cast<meeting *>(memory);
}

} // namespace

extern "C" {

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    const int fd = memfd_create(
        "fake-nccl", MFD_CLOEXEC); /* stays open: the ranks find it as long as this process lives */
    if (fd < 0 || ftruncate(fd, off_t(meeting_bytes)) != 0) {
        fake_die("ncclGetUniqueId: no memory");
    }
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/proc/%ld/fd/%d", long(getpid()), fd);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
    if (config->size != initial.size || config->magic != initial.magic ||
        config->version != initial.version) {
        fake_die(
            "ncclCommInitRankConfig: the configuration does not come from NCCL_CONFIG_INITIALIZER");
    }
    if (config->blocking != 0 || size < 1 || size > max_ranks || rank < 0 || rank >= size) {
        fake_die("ncclCommInitRankConfig: blocking %d, rank %d of %d", config->blocking, rank,
                 size);
    }
    auto comm = std::make_shared<ncclComm>();
    comm->rank = rank;
    comm->size = size;
    comm->shared = open_meeting(id.internal);
    say_where(comm.get());
    comm->shared->n_started++;
    comm->own = comm;
    *out = comm.get();
    const std::lock_guard<std::mutex> guard(live_lock);
    live.insert(*out);
    fake_opened("NCCL communicator");
    if (comm->options.nccl_init_fails) {
        comm->fail(ncclInvalidUsage, "fake: Duplicate GPU detected");
        return ncclInProgress;
    }
    ncclComm_t self = *out;
    const auto check_gpus = [self] {
        if (self->shares_its_gpu()) {
            self->fail(ncclInvalidUsage, "Duplicate GPU detected");
        }
    };
    return comm->begin(
        [self] { return self->shared->n_started == self->size && !self->options.nccl_init_hangs; },
        check_gpus);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    need_live(comm, "ncclCommGetAsyncError")->look();
    *state = comm->state;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    need_idle(comm, __func__);
    if (comm->state != ncclSuccess) {
        return comm->state;
    }
    if (comm->size == 1 && send == receive) {
        return ncclSuccess;
    }
    const collective what = {false, count};
    fake_need_device(send, what.n_bytes(), __func__);
    fake_need_device(receive, what.n_bytes(), __func__);
    if (type != ncclFloat32 || op != ncclSum || what.n_bytes() > box_bytes) {
        fake_die("ncclAllReduce: type %d, operation %d, %zu bytes are not in fake NCCL", int(type),
                 int(op), what.n_bytes());
    }
    if (fake_is_capturing(stream)) {
        return record(comm, send, receive, what, stream);
    }
    if (++comm->n_given == 1) {
        comm->shared->n_connected++;
    }
    const auto work = comm->work_of(comm->n_given, what, send, receive);
    return comm->begin([comm] { return comm->shared->n_connected == comm->size; },
                       [comm, stream, work] {
                           comm->launch([&] { fake_enqueue_until(stream, "ncclAllReduce", work); });
                       });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    need_idle(comm, "ncclCommFinalize");
    if (comm->state != ncclSuccess) {
        return comm->state;
    }
    if (comm->n_done != comm->n_given) {
        fake_die("ncclCommFinalize: a collective is under way, which may never end");
    }
    need_no_graph(comm, "ncclCommFinalize");
    comm->finalized = true;
    comm->shared->n_finalized++;
    return comm->begin(
        [comm] {
            return comm->shared->n_finalized == comm->size && !comm->options.nccl_finalize_hangs;
        },
        [] {});
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    need_live(comm, "ncclCommDestroy");
    if (!comm->finalized || comm->state != ncclSuccess) {
        fake_die("ncclCommDestroy: the communicator is not finalized: this may hang");
    }
    end(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    need_live(comm, "ncclCommAbort");
    need_no_graph(comm, "ncclCommAbort");
    while (comm->options.nccl_abort_hangs) {
        pause();
    }
    comm->aborted = true;
    end(comm);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclInvalidUsage:
        return "invalid usage";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    case ncclInProgress:
        return "NCCL operation in progress";
    default:
        return "another error";
    }
}

const char *ncclGetLastError(ncclComm_t)
{
    return last_error;
}
}
