#include "cuda/nccl_allreduce.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cuda/cuda_block.h"
#include "cuda/cuda_check.h"
#include "cuda/packed.h"

#define CLOSE_LIMIT_S 10.0 /* for each part of an orderly end, which all ranks join */
#define ABORT_LIMIT_S 2.0

struct nccl;

/* A sum. While a non-blocking communicator's state is ncclInProgress, it accepts neither another
 * sum nor an event after the last one: they queue here. */
struct operation {
    enum {
        FREE,
        QUEUED,
        GIVEN,
        ISSUED
    } state; /* waits for NCCL; with NCCL, not yet on the stream; on it, followed by `done`
              */
    struct nccl *owner;
    const char *name;
    size_t begin, end;
    cudaEvent_t ready, done;
};

struct nccl {
    struct dt_allreduce base;
    struct dt_cuda *cuda;        /* borrowed */
    cudaStream_t compute;        /* the backend's */
    cudaStream_t stream;         /* NCCL's */
    ncclComm_t nccl;             /* NULL: not opened */
    uint64_t n_queued, n_issued; /* so far; operation n is in slot n % n_slots */
    int n_slots;
    struct operation *operations;
    int32_t *starts; /* each rank's progress of its start */
};

static struct nccl *nccl_of(struct dt_allreduce *allreduce)
{
    return (struct nccl *)allreduce;
}

static struct operation *operation_of(struct nccl *self, uint64_t n)
{
    return &self->operations[n % (uint64_t)self->n_slots];
}

static enum dt_status status_of(ncclResult_t code)
{
    switch (code) {
    case ncclInvalidArgument:
    case ncclInvalidUsage:
    case ncclInternalError:
        return DT_INTERNAL;
    case ncclUnhandledCudaError:
    case ncclSystemError: /* the GPU, the driver, this host */
        return DT_UNAVAILABLE;
    default: /* a peer, or the network */
        return DT_STALLED;
    }
}

/* A failed GPU reports its own error. */
static enum dt_status nccl_error(ncclResult_t code, const char *name)
{
    const cudaError_t gpu = code == ncclUnhandledCudaError ? cudaPeekAtLastError() : cudaSuccess;
    if (gpu != cudaSuccess && gpu != cudaErrorNotReady) {
        return dt_cuda_failed(gpu, name, __FILE__, __LINE__);
    }
    return dt_error(status_of(code), "%s: NCCL: %s; %s (NCCL_DEBUG=INFO shows more%s)", name,
                    ncclGetErrorString(code), ncclGetLastError(NULL),
                    code == ncclSystemError ? "; in a container: --ipc=host, or --shm-size=1g"
                                            : "");
}

/* NCCL's state: a failure of any rank that it has noticed, or whether it works in the
 * background. */
static enum dt_status poll_state(struct nccl *self, const char *name, bool *busy)
{
    ncclResult_t state = ncclSuccess;
    const ncclResult_t code = ncclCommGetAsyncError(self->nccl, &state);
    *busy = state == ncclInProgress;
    if (code != ncclSuccess || (state != ncclSuccess && !*busy)) {
        return nccl_error(code != ncclSuccess ? code : state, name);
    }
    return DT_OK;
}

enum dt_status dt_nccl_check(struct dt_allreduce *allreduce, const char *name)
{
    bool busy;
    return poll_state(nccl_of(allreduce), name, &busy);
}

static enum dt_status give(struct nccl *self, struct operation *operation)
{
    float *buffer = self->base.part + operation->begin;
    DT_CUDA(cudaStreamWaitEvent(self->stream, operation->ready, 0));
    const size_t n_elems = operation->end - operation->begin;
    const ncclResult_t code =
        ncclAllReduce(buffer, buffer, n_elems, ncclFloat32, ncclSum, self->nccl, self->stream);
    operation->state = GIVEN;
    return code == ncclSuccess || code == ncclInProgress ? DT_OK
                                                         : nccl_error(code, operation->name);
}

/* Moves queued operations as far as NCCL's state allows. `name`: the sum of the caller. */
static enum dt_status advance(struct nccl *self, const char *name)
{
    for (;;) {
        bool busy;
        DT_TRY(poll_state(self, name, &busy));
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

/* *recording: the backend's stream records a graph (step_graph.h). */
static enum dt_status look_for_recording(const struct nccl *self, bool *recording)
{
    enum cudaStreamCaptureStatus capture;
    DT_CUDA(cudaStreamIsCapturing(self->compute, &capture));
    *recording = capture != cudaStreamCaptureStatusNone;
    return DT_OK;
}

/* Adds the sum's end to the graph being recorded; without one, polls for it. */
static enum dt_status find_end(const struct nccl *self, const struct operation *operation,
                               bool *done)
{
    bool recording = false;
    DT_TRY(look_for_recording(self, &recording));
    if (recording) {
        DT_CUDA(cudaStreamWaitEvent(self->compute, operation->done, 0));
        *done = true;
        return DT_OK;
    }
    const cudaError_t code = cudaEventQuery(operation->done);
    if (code == cudaErrorNotReady) {
        cudaGetLastError(); /* else the check after the next launch finds it */
        return DT_OK;
    }
    DT_CUDA(code);
    *done = true; /* work enqueued from now on, on any stream, comes after it */
    return DT_OK;
}

/* A dt_request.progress. */
static enum dt_status progress(struct dt_request *request, bool *done)
{
    struct operation *operation = request->handle;
    *done = false;
    DT_TRY(advance(operation->owner, request->name));
    if (operation->state == ISSUED) {
        DT_TRY(find_end(operation->owner, operation, done));
        operation->state = *done ? FREE : ISSUED;
    }
    return DT_OK;
}

/* A dt_request.progress. */
static enum dt_status issue(struct dt_request *request, bool *done)
{
    const struct operation *operation = request->handle;
    DT_TRY(advance(operation->owner, request->name));
    *done = operation->state == ISSUED;
    return DT_OK;
}

/* Two threads must not access a graph at once, and one of NCCL's threads puts the sum into the
 * graph: until then nothing else may go into it. If NCCL never does, the recording cannot be ended
 * either. */
static enum dt_status wait_until_issued(struct nccl *self, struct operation *operation)
{
    struct dt_request request;
    dt_comm_request_begin(self->base.comm, operation->name, 0, &request);
    request.handle = operation;
    request.progress = issue;
    const enum dt_status status = dt_comm_wait(self->base.comm, &request);
    self->cuda->lost = self->cuda->lost || status != DT_OK;
    return status;
}

static enum dt_status nccl_start(struct dt_allreduce *a, int slot, size_t begin, size_t end,
                                 const char *name, struct dt_request *request)
{
    struct nccl *self = nccl_of(a);
    struct operation *operation = operation_of(self, self->n_queued);
    (void)slot;
    if (operation->state != FREE) {
        return dt_error(DT_INTERNAL, "%s: more than %d sums are under way", name, self->n_slots);
    }
    operation->name = name;
    operation->begin = begin;
    operation->end = end;
    DT_TRY(dt_cuda_record_gradients(self->cuda, operation->ready));
    operation->state = QUEUED;
    self->n_queued++;
    dt_comm_request_begin(a->comm, name, (end - begin) * sizeof *a->part, request);
    request->handle = operation;
    request->progress = progress;
    bool recording = false;
    DT_TRY(look_for_recording(self, &recording));
    return recording ? wait_until_issued(self, operation) : advance(self, name);
}

static bool nccl_sent(const struct dt_allreduce *a, struct dt_wire_sent *out)
{
    (void)out;
    return a->comm->size == 1;
}

struct closing {
    ncclResult_t (*end)(ncclComm_t);
    ncclComm_t nccl;
    int device;
    _Atomic bool over;
};

static void *run_closing(void *context)
{
    struct closing *closing = context;
    cudaSetDevice(closing->device); /* a new thread starts on device 0 */
    closing->end(closing->nccl);
    atomic_store(&closing->over, true);
    return NULL;
}

static double close_limit_s(const struct nccl *self)
{
    const double timeout_s = dt_comm_timeout_s(self->base.comm);
    return timeout_s < CLOSE_LIMIT_S ? timeout_s : CLOSE_LIMIT_S;
}

/* Calls ncclCommDestroy or ncclCommAbort, which may never return while another rank hangs. Returns
 * false if it has not returned; its memory must then stay. */
static bool close_comm(const struct nccl *self, bool orderly)
{
    struct closing *closing = malloc(sizeof *closing);
    pthread_t thread;
    if (closing == NULL) {
        return false;
    }
    *closing = (struct closing){.end = orderly ? ncclCommDestroy : ncclCommAbort,
                                .nccl = self->nccl,
                                .device = self->cuda->gpu.index};
    if (pthread_create(&thread, NULL, run_closing, closing) != 0) {
        free(closing);
        return false;
    }
    const double limit_s = orderly ? close_limit_s(self) : ABORT_LIMIT_S;
    struct dt_patience patience = dt_patience_begin();
    while (!atomic_load(&closing->over) && dt_patience_look(&patience) < limit_s) {
        dt_sleep_ms(1);
    }
    if (!atomic_load(&closing->over)) {
        pthread_detach(thread);
        return false;
    }
    pthread_join(thread, NULL);
    free(closing);
    return true;
}

/* True if nothing is under way and all ranks agree in time that they are done. */
static bool end_orderly(struct nccl *self)
{
    for (int i = 0; i < self->n_slots; i++) {
        if (self->operations[i].state != FREE) {
            return false;
        }
    }
    if (cudaStreamQuery(self->compute) != cudaSuccess) { /* sums still run, or the GPU failed */
        cudaGetLastError();
        return false;
    }
    ncclResult_t state = ncclCommFinalize(self->nccl);
    struct dt_patience patience = dt_patience_begin();
    while (state == ncclInProgress && dt_patience_look(&patience) < close_limit_s(self)) {
        dt_sleep_ms(1);
        if (ncclCommGetAsyncError(self->nccl, &state) != ncclSuccess) {
            return false;
        }
    }
    return state == ncclSuccess;
}

static void destroy_events(struct nccl *self)
{
    for (int i = 0; self->operations != NULL && i < self->n_slots; i++) {
        if (self->operations[i].ready != NULL) {
            cudaEventDestroy(self->operations[i].ready);
        }
        if (self->operations[i].done != NULL) {
            cudaEventDestroy(self->operations[i].done);
        }
    }
}

/* Once NCCL is gone, nothing waits for another rank any more: work that does not end now hangs on
 * the GPU itself. */
static bool hangs(cudaStream_t stream)
{
    return stream != NULL && dt_cuda_wait(stream, NULL, ABORT_LIMIT_S) == cudaErrorNotReady;
}

static void end(struct nccl *self, bool orderly)
{
    struct dt_cuda *cuda = self->cuda;
    const bool left = self->nccl == NULL || close_comm(self, orderly);
    cuda->lost = cuda->lost || !left || hangs(self->stream) || hangs(self->compute);
    if (cuda->lost) {
        return;
    }
    destroy_events(self);
    if (self->stream != NULL) {
        cudaStreamDestroy(self->stream);
    }
    cuda->base.ops->free(&cuda->base, self->base.part);
    free(self->operations);
    free(self->starts);
    free(self);
}

static void nccl_close(struct dt_allreduce *a)
{
    end(nccl_of(a), end_orderly(nccl_of(a)));
}

static const struct dt_allreduce_ops nccl_ops = {
    .start = nccl_start, .sent = nccl_sent, .close = nccl_close};

/* A rank reports a status for its start, or one of these. */
enum { STARTING = -1, LATE = -2 };

/* Exchanges all ranks' progress. If some failed, all fail with the error text of the first. */
static enum dt_status gather_starts(struct nccl *self, int32_t mine)
{
    struct dt_comm *host = self->base.comm;
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
    return dt_error_agreed(
        dt_error((enum dt_status)self->starts[first], "rank %d: %s", first, text));
}

static enum dt_status open_events(struct nccl *self)
{
    self->operations = calloc((size_t)self->n_slots, sizeof *self->operations);
    if (self->operations == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the allreduce by NCCL");
    }
    for (int i = 0; i < self->n_slots; i++) {
        self->operations[i].owner = self;
        DT_CUDA(cudaEventCreateWithFlags(&self->operations[i].ready, cudaEventDisableTiming));
        DT_CUDA(cudaEventCreateWithFlags(&self->operations[i].done, cudaEventDisableTiming));
    }
    return DT_OK;
}

static enum dt_status prepare(struct nccl *self, const struct dt_allreduce_spec *spec,
                              ncclUniqueId *id)
{
    DT_TRY(dt_allreduce_take_memory(&self->base, spec));
    DT_TRY(dt_cuda_urgent_stream(&self->stream));
    DT_TRY(open_events(self));
    if (self->base.comm->rank == 0) {
        DT_NCCL(ncclGetUniqueId(id));
    }
    return DT_OK;
}

static enum dt_status too_late(const struct nccl *self)
{
    int first = -1, n_late = 0;
    for (int rank = 0; rank < self->base.comm->size; rank++) {
        if (self->starts[rank] != DT_OK) {
            first = first < 0 ? rank : first;
            n_late++;
        }
    }
    char others[32] = "";
    if (n_late > 1) {
        snprintf(others, sizeof others, " and %d more", n_late - 1);
    }
    return dt_error_agreed(
        dt_error(DT_STALLED,
                 "NCCL did not start within %.0f s on rank %d%s (NCCL_DEBUG=INFO shows why; raise "
                 "DTRAIN_TIMEOUT if it takes that long)",
                 dt_comm_timeout_s(self->base.comm), first, others));
}

static int32_t start_of(ncclResult_t state, bool late)
{
    if (state == ncclSuccess) {
        return DT_OK;
    }
    if (state == ncclInProgress) {
        return late ? LATE : STARTING;
    }
    return dt_error(DT_UNAVAILABLE, "NCCL cannot start: %s; %s (NCCL_DEBUG=INFO shows more)",
                    ncclGetErrorString(state), ncclGetLastError(NULL));
}

/* The ranks exchange their progress until all have started, one has failed, or one is out of time:
 * so nobody waits for a failed rank, and the host's communicator names a rank that dies
 * meanwhile. */
static enum dt_status start_nccl(struct nccl *self, ncclUniqueId id)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t state = ncclCommInitRankConfig(&self->nccl, self->base.comm->size, id,
                                                self->base.comm->rank, &config);
    struct dt_patience patience = dt_patience_begin();
    for (;;) {
        const bool is_late = dt_patience_look(&patience) > dt_comm_timeout_s(self->base.comm);
        DT_TRY(gather_starts(self, start_of(state, is_late)));
        bool all_done = true, late = false;
        for (int rank = 0; rank < self->base.comm->size; rank++) {
            all_done = all_done && self->starts[rank] == DT_OK;
            late = late || self->starts[rank] == LATE;
        }
        if (all_done || late) {
            return all_done ? DT_OK : too_late(self);
        }
        dt_sleep_ms(1);
        const ncclResult_t code =
            state == ncclInProgress ? ncclCommGetAsyncError(self->nccl, &state) : ncclSuccess;
        state = code == ncclSuccess ? state : code;
    }
}

static enum dt_status open_all(struct nccl *self, const struct dt_allreduce_spec *spec)
{
    ncclUniqueId id;
    DT_TRY(gather_starts(self, (int32_t)prepare(self, spec, &id)));
    DT_TRY(dt_comm_broadcast(self->base.comm, &id, sizeof id, 0, "broadcast of NCCL's unique id"));
    return start_nccl(self, id);
}

enum dt_status dt_nccl_open(const struct dt_allreduce_spec *spec, struct dt_allreduce **out)
{
    struct nccl *self = calloc(1, sizeof *self);
    int32_t *starts = calloc((size_t)spec->comm->size, sizeof *starts);
    if (self == NULL || starts == NULL) {
        free(self);
        free(starts);
        return dt_error(DT_NO_MEMORY, "no memory for the allreduce by NCCL");
    }
    *self = (struct nccl){.base = {.ops = &nccl_ops, .type = DT_ALLREDUCE_NCCL, .comm = spec->comm},
                          .cuda = (struct dt_cuda *)spec->backend,
                          .n_slots = spec->n_slots,
                          .starts = starts};
    self->compute = self->cuda->stream;
    const enum dt_status status = open_all(self, spec);
    if (status != DT_OK) {
        end(self, false);
        return status;
    }
    *out = &self->base;
    return DT_OK;
}
