#include "cuda/nccl_comm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cuda/cuda_block.h"
#include "cuda/cuda_check.h"
#include "dist/strategy/grad_sync.h"

#define MAX_UNDER_WAY DT_MAX_BUCKETS
#define FAREWELL_LIMIT_MS 2000u /* for each part of closing */

/* A collective. While the state of a communicator that does not block is ncclInProgress, it may neither be given the next one nor
 * an event be put behind the last: that waits its turn. */
struct operation {
    enum { FREE, QUEUED, GIVEN, ISSUED } state; /* for NCCL; to NCCL, which puts it on the stream; and `done` behind it */
    void *buffer;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root; /* of a broadcast; -1: an allreduce */
    cudaEvent_t ready, done;
    struct dt_request counted; /* the same collective in the table of who has come how far, which is the host communicator's */
};

struct nccl_comm {
    struct dt_comm base;
    struct dt_comm *host;        /* borrowed */
    struct dt_cuda *cuda;        /* borrowed */
    cudaStream_t compute;        /* the backend's */
    cudaStream_t stream;         /* NCCL's */
    ncclComm_t nccl;             /* NULL: there is none to end */
    uint64_t n_queued, n_issued; /* so far; operation n is in place n % MAX_UNDER_WAY */
    struct operation operations[MAX_UNDER_WAY];
    int32_t starts[]; /* how far each rank's start is */
};

static struct nccl_comm *nccl_of(struct dt_comm *comm)
{
    return (struct nccl_comm *)comm;
}

static struct operation *operation_of(struct nccl_comm *self, uint64_t n)
{
    return &self->operations[n % MAX_UNDER_WAY];
}

/* Wrong arguments are our bug; everything else is a peer, the network, or the machine. */
static enum dt_status nccl_error(ncclResult_t code, const char *name)
{
    const bool ours = code == ncclInvalidArgument || code == ncclInvalidUsage;
    return dt_error(ours ? DT_INTERNAL : DT_STALLED, "%s: NCCL: %s; %s (NCCL_DEBUG=INFO shows more)", name,
                    ncclGetErrorString(code), ncclGetLastError(NULL));
}

static ncclDataType_t nccl_type(enum dt_type type)
{
    switch (type) {
    case DT_TYPE_F32:
        return ncclFloat32;
    case DT_TYPE_F64:
        return ncclFloat64;
    case DT_TYPE_I32:
        return ncclInt32;
    case DT_TYPE_U64:
        return ncclUint64;
    }
    return ncclNumTypes;
}

static ncclRedOp_t nccl_op(enum dt_reduce op)
{
    switch (op) {
    case DT_REDUCE_SUM:
        return ncclSum;
    case DT_REDUCE_MAX:
        return ncclMax;
    case DT_REDUCE_MIN:
        return ncclMin;
    }
    return ncclNumOps;
}

/* The state of NCCL: a failure of any rank that it has noticed, or whether it is at work in the background. */
static enum dt_status look(struct nccl_comm *self, const char *name, bool *busy)
{
    ncclResult_t state = ncclSuccess;
    const ncclResult_t code = ncclCommGetAsyncError(self->nccl, &state);
    *busy = state == ncclInProgress;
    if (code != ncclSuccess || (state != ncclSuccess && !*busy)) {
        return nccl_error(code != ncclSuccess ? code : state, name);
    }
    return DT_OK;
}

enum dt_status dt_nccl_comm_look(struct dt_comm *comm, const char *name)
{
    bool busy;
    return look(nccl_of(comm), name, &busy);
}

static enum dt_status give(struct nccl_comm *self, struct operation *operation)
{
    void *buffer = operation->buffer;
    DT_CUDA(cudaStreamWaitEvent(self->stream, operation->ready, 0));
    const ncclResult_t code =
        operation->root >= 0
            ? ncclBroadcast(buffer, buffer, operation->count, operation->type, operation->root, self->nccl, self->stream)
            : ncclAllReduce(buffer, buffer, operation->count, operation->type, operation->op, self->nccl, self->stream);
    operation->state = GIVEN;
    return code == ncclSuccess || code == ncclInProgress ? DT_OK : nccl_error(code, operation->counted.name);
}

/* Does what NCCL's state allows for the operations that wait. `name`: of the collective that asks. */
static enum dt_status advance(struct nccl_comm *self, const char *name)
{
    for (;;) {
        bool busy;
        DT_TRY(look(self, name, &busy));
        if (busy || self->n_issued == self->n_queued) {
            return DT_OK;
        }
        struct operation *operation = operation_of(self, self->n_issued);
        if (operation->state == QUEUED) {
            DT_TRY(give(self, operation));
        } else {
            DT_CUDA(cudaEventRecord(operation->done, self->stream));
            operation->state = ISSUED;
            self->n_issued++;
        }
    }
}

static enum dt_status start(struct nccl_comm *self, void *buffer, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                            struct dt_request *request)
{
    struct operation *operation = operation_of(self, self->n_queued);
    if (operation->state != FREE) {
        return dt_error(DT_INTERNAL, "%s: more than %d collectives are under way", request->name, MAX_UNDER_WAY);
    }
    operation->buffer = buffer;
    operation->count = count;
    operation->type = type;
    operation->op = op;
    operation->root = root;
    DT_CUDA(cudaEventRecord(operation->ready, self->compute));
    operation->state = QUEUED;
    self->n_queued++;
    request->handle = operation;
    dt_comm_request_begin(self->host, request->name, &operation->counted);
    return advance(self, request->name);
}

static enum dt_status nccl_allreduce_start(struct dt_comm *comm, void *buffer, size_t n_elems, enum dt_type type, enum dt_reduce op,
                                           struct dt_request *request)
{
    return start(nccl_of(comm), buffer, n_elems, nccl_type(type), nccl_op(op), -1, request);
}

static enum dt_status nccl_broadcast_start(struct dt_comm *comm, void *buffer, size_t n_bytes, int root, struct dt_request *request)
{
    return start(nccl_of(comm), buffer, n_bytes, ncclUint8, ncclSum, root, request);
}

static enum dt_status nccl_allgather_start(struct dt_comm *comm, const void *mine, void *all, size_t n_bytes_each,
                                           struct dt_request *request)
{
    (void)comm, (void)mine, (void)all, (void)n_bytes_each;
    return dt_error(DT_INTERNAL, "%s: the communicator over NCCL has no allgather", request->name);
}

static enum dt_status nccl_test(struct dt_comm *comm, struct dt_request *request, bool *done)
{
    struct nccl_comm *self = nccl_of(comm);
    struct operation *operation = request->handle;
    *done = false;
    DT_TRY(advance(self, request->name));
    if (operation->state != ISSUED) {
        return DT_OK;
    }
    enum cudaStreamCaptureStatus capture;
    DT_CUDA(cudaStreamIsCapturing(self->compute, &capture));
    if (capture != cudaStreamCaptureStatusNone) {
        DT_CUDA(cudaStreamWaitEvent(self->compute, operation->done, 0));
        operation->state = FREE;
        dt_comm_request_end(self->host);
        *done = true;
        return DT_OK;
    }
    const cudaError_t code = cudaEventQuery(operation->done);
    if (code == cudaErrorNotReady) {
        cudaGetLastError(); /* or the check after the next launch finds it */
        return DT_OK;
    }
    DT_CUDA(code);
    operation->state = FREE; /* what is enqueued from now on comes after it on any stream */
    dt_comm_request_end(self->host);
    *done = true;
    return DT_OK;
}

static void nccl_phase(struct dt_comm *comm, const char *name)
{
    dt_comm_phase(nccl_of(comm)->host, name);
}

static void nccl_alive(struct dt_comm *comm)
{
    struct dt_comm *host = nccl_of(comm)->host;
    host->ops->alive(host);
}

static bool nccl_explain(struct dt_comm *comm, const struct dt_request *request, char *text, size_t n_text)
{
    struct dt_comm *host = nccl_of(comm)->host;
    const struct operation *operation = request->handle;
    return host->ops->explain(host, &operation->counted, text, n_text);
}

static bool nccl_claim(struct dt_comm *comm)
{
    struct dt_comm *host = nccl_of(comm)->host;
    return host->ops->claim(host);
}

struct farewell {
    ncclResult_t (*end)(ncclComm_t);
    ncclComm_t nccl;
    _Atomic bool over;
};

static void *say_farewell(void *context)
{
    struct farewell *farewell = context;
    farewell->end(farewell->nccl);
    atomic_store(&farewell->over, true);
    return NULL;
}

/* Calls ncclCommDestroy or ncclCommAbort, which may never return while another rank hangs. False: it has not, and what it uses must
 * stay. */
static bool leave(ncclComm_t nccl, ncclResult_t (*end)(ncclComm_t))
{
    struct farewell *farewell = malloc(sizeof *farewell);
    pthread_t thread;
    if (farewell == NULL) {
        return false;
    }
    *farewell = (struct farewell){.end = end, .nccl = nccl};
    if (pthread_create(&thread, NULL, say_farewell, farewell) != 0) {
        free(farewell);
        return false;
    }
    for (unsigned ms = 0; ms < FAREWELL_LIMIT_MS && !atomic_load(&farewell->over); ms++) {
        dt_sleep_ms(1);
    }
    if (!atomic_load(&farewell->over)) {
        pthread_detach(thread);
        return false;
    }
    pthread_join(thread, NULL);
    free(farewell);
    return true;
}

/* Nothing is under way, and all ranks agree in time that they are done. */
static bool end_in_peace(struct nccl_comm *self)
{
    for (int i = 0; i < MAX_UNDER_WAY; i++) {
        if (self->operations[i].state != FREE) {
            return false;
        }
    }
    if (cudaStreamQuery(self->compute) == cudaErrorNotReady) { /* recorded ones are */
        cudaGetLastError();
        return false;
    }
    ncclResult_t state = ncclCommFinalize(self->nccl);
    for (unsigned ms = 0; ms < FAREWELL_LIMIT_MS && state == ncclInProgress; ms++) {
        dt_sleep_ms(1);
        if (ncclCommGetAsyncError(self->nccl, &state) != ncclSuccess) {
            return false;
        }
    }
    return state == ncclSuccess;
}

static void end(struct nccl_comm *self, bool in_peace)
{
    if (self->nccl != NULL && !leave(self->nccl, in_peace ? ncclCommDestroy : ncclCommAbort)) {
        self->cuda->lost = true;
        return;
    }
    for (int i = 0; i < MAX_UNDER_WAY; i++) {
        if (self->operations[i].ready != NULL) {
            cudaEventDestroy(self->operations[i].ready);
        }
        if (self->operations[i].done != NULL) {
            cudaEventDestroy(self->operations[i].done);
        }
    }
    if (self->stream != NULL) {
        cudaStreamDestroy(self->stream);
    }
    free(self);
}

static void nccl_close(struct dt_comm *comm)
{
    end(nccl_of(comm), end_in_peace(nccl_of(comm)));
}

static const struct dt_comm_ops nccl_ops = {
    .name = "nccl",
    .allreduce_start = nccl_allreduce_start,
    .broadcast_start = nccl_broadcast_start,
    .allgather_start = nccl_allgather_start,
    .test = nccl_test,
    .phase = nccl_phase,
    .alive = nccl_alive,
    .explain = nccl_explain,
    .claim = nccl_claim,
    .close = nccl_close,
};

/* What a rank says of its start is a status, or one of these. */
enum { STARTING = -1, LATE = -2 };

/* Tells all ranks how far each is. If some failed, all do so with the words of the first. */
static enum dt_status gather_starts(struct nccl_comm *self, int32_t mine)
{
    struct dt_comm *host = self->host;
    DT_TRY(dt_comm_allgather(host, &mine, self->starts, sizeof mine, "start of NCCL"));
    int first = 0;
    while (first < host->size && self->starts[first] <= 0) {
        first++;
    }
    if (first == host->size) {
        return DT_OK;
    }
    char text[DT_ERROR_TEXT_SIZE];
    snprintf(text, sizeof text, "%s", dt_error_text());
    DT_TRY(dt_comm_broadcast(host, text, sizeof text, first, "broadcast of an error's text"));
    dt_error_clear();
    return dt_error_agreed(dt_error((enum dt_status)self->starts[first], "rank %d: %s", first, text));
}

static enum dt_status prepare(struct nccl_comm *self, ncclUniqueId *id)
{
    int lowest, highest; /* number, highest first */
    DT_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    DT_CUDA(cudaStreamCreateWithPriority(&self->stream, cudaStreamNonBlocking, highest));
    for (int i = 0; i < MAX_UNDER_WAY; i++) {
        DT_CUDA(cudaEventCreateWithFlags(&self->operations[i].ready, cudaEventDisableTiming));
        DT_CUDA(cudaEventCreateWithFlags(&self->operations[i].done, cudaEventDisableTiming));
    }
    if (self->host->rank == 0) {
        DT_NCCL(ncclGetUniqueId(id));
    }
    return DT_OK;
}

static enum dt_status too_late(const struct nccl_comm *self)
{
    int first = -1, n_late = 0;
    for (int rank = 0; rank < self->host->size; rank++) {
        if (self->starts[rank] != DT_OK) {
            first = first < 0 ? rank : first;
            n_late++;
        }
    }
    char others[32] = "";
    if (n_late > 1) {
        snprintf(others, sizeof others, " and %d more", n_late - 1);
    }
    return dt_error_agreed(dt_error(
        DT_STALLED,
        "NCCL did not start within %.0f s on rank %d%s (NCCL_DEBUG=INFO shows why; raise DTRAIN_TIMEOUT if it takes that long)",
        self->host->timeout_s, first, others));
}

static int32_t start_of(ncclResult_t state, bool late)
{
    if (state == ncclSuccess) {
        return DT_OK;
    }
    if (state == ncclInProgress) {
        return late ? LATE : STARTING;
    }
    return dt_error(DT_UNAVAILABLE, "NCCL cannot start: %s; %s (NCCL_DEBUG=INFO shows more)", ncclGetErrorString(state),
                    ncclGetLastError(NULL));
}

/* The ranks look at each other's start until all have made it, one has failed, or one's time is up: so a rank that fails is not
 * waited for, and one that dies in between is named by the host's communicator. */
static enum dt_status start_nccl(struct nccl_comm *self, ncclUniqueId id)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t state = ncclCommInitRankConfig(&self->nccl, self->host->size, id, self->host->rank, &config);
    uint64_t last_ns = dt_clock_ns();
    double waited_s = 0;
    for (;;) {
        const uint64_t now_ns = dt_clock_ns();
        const double gap_s = (double)(now_ns - last_ns) * 1e-9;
        waited_s += gap_s < 1 ? gap_s : 1; /* as in dist/ranks/comm.c */
        last_ns = now_ns;
        DT_TRY(gather_starts(self, start_of(state, waited_s > self->host->timeout_s)));
        bool all_done = true, late = false;
        for (int rank = 0; rank < self->host->size; rank++) {
            all_done = all_done && self->starts[rank] == DT_OK;
            late = late || self->starts[rank] == LATE;
        }
        if (all_done || late) {
            return all_done ? DT_OK : too_late(self);
        }
        dt_sleep_ms(1);
        const ncclResult_t code = state == ncclInProgress ? ncclCommGetAsyncError(self->nccl, &state) : ncclSuccess;
        state = code == ncclSuccess ? state : code;
    }
}

static enum dt_status open_all(struct nccl_comm *self)
{
    ncclUniqueId id;
    DT_TRY(gather_starts(self, (int32_t)prepare(self, &id)));
    DT_TRY(dt_comm_broadcast(self->host, &id, sizeof id, 0, "broadcast of NCCL's unique id"));
    return start_nccl(self, id);
}

enum dt_status dt_nccl_comm_open(struct dt_comm *host, struct dt_backend *backend, struct dt_comm **out)
{
    struct nccl_comm *self = calloc(1, sizeof *self + (size_t)host->size * sizeof self->starts[0]);
    if (self == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the communicator");
    }
    self->base = *host; /* ranks and time limit */
    self->base.ops = &nccl_ops;
    self->base.n_started = self->base.n_done = 0;
    self->host = host;
    self->cuda = (struct dt_cuda *)backend;
    self->compute = self->cuda->stream;
    const enum dt_status status = open_all(self);
    if (status != DT_OK) {
        end(self, false);
        return status;
    }
    *out = &self->base;
    return DT_OK;
}
