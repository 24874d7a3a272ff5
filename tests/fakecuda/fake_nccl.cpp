/* NCCL between the processes of a test: the ranks share a file in memory, whose path is the unique
 * id; each has a box in it for its part of a collective. All read all boxes, in rank order. Only
 * non-blocking communicators. A communicator's state is ncclInProgress as long as the real library
 * allows: for some looks after every call, and until all ranks have reached the start, the first
 * collective (which connects them) and the end. Only then is a collective on its stream; before
 * that no other call may use the communicator. If the stream records a graph, the graph belongs to
 * NCCL from the call until a look finds the collective issued. Ranks of one host that share a GPU
 * end the test. A single rank has nothing to add: in place nothing happens, on no stream and in no
 * graph. While a graph with one of its collectives exists, a communicator's end would wait
 * forever. */

#include <nccl.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "tests/fakecuda/fake_runtime.h"

namespace {

constexpr int max_ranks = 64;
constexpr size_t box_bytes = 64 << 20; /* of addresses; memory is allocated when it is written */
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
    char gpu[80]; /* host and number; another rank with the same is refused */
};

struct meeting {
    std::atomic<int> n_started, n_connected, n_finalized; /* ranks */
    member ranks[max_ranks];
};

constexpr size_t header_bytes = (sizeof(meeting) + 4095) / 4096 * 4096;
constexpr size_t meeting_bytes = header_bytes + max_ranks * box_bytes;

const char *last_error = "";

} // namespace

/* Work on streams and in graphs keeps it alive after it has been destroyed or aborted. */
struct ncclComm : std::enable_shared_from_this<ncclComm> {
    const struct fake_options options = fake_options;
    int rank, size, device;
    meeting *shared;
    uint64_t n_begun = 0; /* collectives; ranks number them in the order in which they run */
    int n_asked = 0, n_recorded = 0; /* on a stream at once; into graphs */
    bool finalized = false;
    std::atomic<bool> aborted{false};
    ncclResult_t state = ncclInProgress;
    int busy_looks = n_busy_looks;
    std::function<bool()> ready;  /* true if the operation in progress can end now */
    std::function<void()> at_end; /* called then */

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

    void look()
    {
        if (state == ncclInProgress && busy_looks-- <= 0 && ready()) {
            state = ncclSuccess;
            std::exchange(at_end, nullptr)(); /* it may hold the communicator */
        }
    }

    void fail(ncclResult_t code, const char *text)
    {
        last_error = text;
        state = code;
    }

    /* The work of a collective. Only a later look finds that a peer is lost. */
    std::function<bool()> work_of(const collective &what, const void *send, void *receive)
    {
        return [self = shared_from_this(), what, send, receive, n = uint64_t(0),
                has_put = false]() mutable {
            n = n == 0 ? ++self->n_begun : n;
            if (long(n) == self->options.nccl_error_at) {
                const long code = self->options.nccl_error_code;
                self->fail(code != 0 ? ncclResult_t(code) : ncclRemoteError,
                           "fake: the connection to a peer was closed");
            }
            const bool works = self->state == ncclSuccess || self->state == ncclInProgress;
            has_put = has_put || (works && self->put(n, what, send));
            return self->aborted || (works && has_put && long(n) != self->options.nccl_hang_at &&
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
            const collective &theirs = shared->ranks[r].what;
            FAKE_CHECK(theirs.is_recorded == what.is_recorded,
                       "NCCL: collective %d is part of a graph on one of ranks %d and %d, and not "
                       "on the other",
                       int(n), std::min(rank, r), std::max(rank, r));
            FAKE_CHECK(theirs.count == what.count,
                       "NCCL: collective %d is not the same on ranks %d and %d", int(n), rank, r);
        }
        memcpy(receive, box(0), what.n_bytes());
        float *sums = static_cast<float *>(receive);
        for (int r = 1; r < size; r++) {
            const float *part = reinterpret_cast<const float *>(box(r));
            std::transform(sums, sums + what.count, part, sums, std::plus<float>());
        }
        shared->ranks[rank].n_taken = n;
        return true;
    }
};

namespace {

std::mutex live_lock; /* an end comes from another thread */
std::map<ncclComm_t, std::shared_ptr<ncclComm>> live;

ncclComm_t add()
{
    const std::lock_guard<std::mutex> guard(live_lock);
    const auto made = std::make_shared<ncclComm>();
    fake_opened("NCCL communicator");
    return (live[made.get()] = made).get();
}

std::shared_ptr<ncclComm> &need_live(ncclComm_t comm, const char *call)
{
    const std::lock_guard<std::mutex> guard(live_lock);
    FAKE_CHECK(live.count(comm) != 0, "%s: no such communicator, or one that has ended", call);
    fake::need_current(comm->device, call);
    return live[comm];
}

void need_idle(ncclComm_t comm, const char *call)
{
    need_live(comm, call);
    FAKE_CHECK(comm->state != ncclInProgress,
               "%s: the communicator has not ended what it was asked before", call);
    FAKE_CHECK(!comm->finalized, "%s: the communicator is finalized", call);
}

ncclResult_t end(ncclComm_t comm)
{
    const std::lock_guard<std::mutex> guard(live_lock);
    live.erase(comm);
    fake_closed("NCCL communicator");
    return ncclSuccess;
}

/* Adds it as a node to a graph; each launch of the graph is one more collective. */
ncclResult_t record(ncclComm_t comm, const std::function<bool()> &work, cudaStream_t stream)
{
    FAKE_CHECK(comm->n_asked > 0, "ncclAllReduce: the first collective connects the ranks and "
                                  "allocates, which does not belong into a graph");
    comm->n_recorded++;
    fake::recording->lent = true;
    return comm->begin([comm] { return comm->n_recorded != comm->options.nccl_launch_hangs_at; },
                       [work, stream] {
                           fake::recording->lent = false;
                           fake::enqueue_until(stream, "ncclAllReduce", work);
                       });
}

meeting *open_meeting(const char *path)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    void *memory = fd < 0 ? MAP_FAILED
                          : mmap(nullptr, meeting_bytes, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_NORESERVE, fd, 0);
    FAKE_CHECK(memory != MAP_FAILED, "ncclCommInitRankConfig: the unique id '%s' leads nowhere",
               path);
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
    /* stays open: the ranks find it as long as this process lives */
    const int fd = memfd_create("fake-nccl", MFD_CLOEXEC);
    FAKE_CHECK(fd >= 0 && ftruncate(fd, off_t(meeting_bytes)) == 0, "ncclGetUniqueId: no memory");
    *id = {};
    snprintf(id->internal, sizeof id->internal, "/proc/%ld/fd/%d", long(getpid()), fd);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
    FAKE_CHECK(
        config->size == initial.size && config->magic == initial.magic &&
            config->version == initial.version,
        "ncclCommInitRankConfig: the configuration does not come from NCCL_CONFIG_INITIALIZER");
    FAKE_CHECK(config->blocking == 0 && size >= 1 && size <= max_ranks && rank >= 0 && rank < size,
               "ncclCommInitRankConfig: blocking %d, rank %d of %d", config->blocking, rank, size);
    ncclComm *self = *out = add();
    self->rank = rank;
    self->size = size;
    self->device = fake::current_device;
    self->shared = open_meeting(id.internal);
    member &mine = self->shared->ranks[rank];
    const char *host = getenv("NCCL_HOSTID"); /* another one: NCCL takes it for another host */
    snprintf(mine.gpu, sizeof mine.gpu, "GPU %d of %s", self->device, host != nullptr ? host : "");
    self->shared->n_started++;
    if (self->options.nccl_init_fails) {
        self->fail(ncclInvalidUsage, "fake: Duplicate GPU detected");
        return ncclInProgress;
    }
    const auto check_gpus = [self, &mine] {
        for (int r = 0; r < self->size; r++) {
            FAKE_CHECK(r == self->rank || strcmp(self->shared->ranks[r].gpu, mine.gpu) != 0,
                       "NCCL refuses ranks %d and %d, which share %s", r, self->rank, mine.gpu);
        }
    };
    return self->begin(
        [self] { return self->shared->n_started == self->size && !self->options.nccl_init_hangs; },
        check_gpus);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    need_live(comm, __func__)->look();
    *state = comm->state;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *send, void *receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    need_idle(comm, __func__);
    fake::need_stream(stream, __func__);
    if (comm->state != ncclSuccess) {
        return comm->state;
    }
    if (comm->size == 1 && send == receive) {
        return ncclSuccess;
    }
    const collective what = {stream->capturing, count};
    fake::need_device(send, what.n_bytes(), __func__);
    fake::need_device(receive, what.n_bytes(), __func__);
    FAKE_CHECK(type == ncclFloat32 && op == ncclSum && what.n_bytes() <= box_bytes,
               "ncclAllReduce: type %d, operation %d, %zu bytes are not in fake NCCL", int(type),
               int(op), what.n_bytes());
    const auto work = comm->work_of(what, send, receive);
    if (what.is_recorded) {
        return record(comm, work, stream);
    }
    comm->shared->n_connected += comm->n_asked++ == 0;
    return comm->begin([comm] { return comm->shared->n_connected == comm->size; },
                       [stream, work] { fake::enqueue_until(stream, "ncclAllReduce", work); });
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    need_idle(comm, __func__);
    if (comm->state != ncclSuccess) {
        return comm->state;
    }
    FAKE_CHECK(need_live(comm, __func__).use_count() == 1,
               "ncclCommFinalize: a collective is under way or in a graph, and may never end");
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
    need_live(comm, __func__);
    FAKE_CHECK(comm->finalized && comm->state == ncclSuccess,
               "ncclCommDestroy: the communicator is not finalized: this may hang");
    return end(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    need_live(comm, __func__);
    FAKE_CHECK(comm->n_recorded == 0 || !fake::any_graph(),
               "ncclCommAbort waits for ever: a graph may have a collective of the communicator");
    while (comm->options.nccl_abort_hangs) {
        pause();
    }
    comm->aborted = true;
    return end(comm);
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclInvalidUsage  ? "invalid usage"
           : result == ncclRemoteError ? "remote process exited or there was a network error"
                                       : "another error";
}

const char *ncclGetLastError(ncclComm_t)
{
    return last_error;
}
}
