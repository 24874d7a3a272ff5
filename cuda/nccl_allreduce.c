/* Allreduce over GPUs by NCCL, in the order of the backend's stream. A sum starts when the work
 * enqueued before it is done, on its own stream, so that later work overlaps with it; work enqueued
 * after the test or wait that found it done sees its result. Every wait on the GPU has a limit: the
 * NCCL communicator is non-blocking, and is polled within the limits of dist/ranks/comm.h. While
 * the backend's stream records a graph (step_graph.c), the wait adds the sum's end to it instead of
 * polling; if one rank records, all must. */
#include "cuda/cuda_backend.h"

#include <math.h>
#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cuda/cuda_check.h"
#include "dist/allreduce/allreduce.h"

#define CLOSE_LIMIT_S 10.0 /* for each part of an orderly end, which all ranks join */
#define ABORT_LIMIT_S 2.0

/* A sum between its start and its end. */
struct operation {
    struct nccl *owner;
    bool under_way;
    cudaEvent_t done;
};

struct nccl {
    struct dt_allreduce base;
    struct dt_cuda *cuda; /* borrowed */
    cudaStream_t compute; /* the backend's */
    cudaStream_t stream;  /* NCCL's */
    cudaEvent_t ready;    /* the gradients of the sum that starts are complete */
    ncclComm_t nccl;      /* NULL: not opened */
    int n_slots;
    struct operation operations[DT_ALLREDUCE_MAX_SLOTS];
    int32_t starts[]; /* each rank's progress of its start */
};

static struct nccl *nccl_of(struct dt_allreduce *allreduce)
{
    return (struct nccl *)allreduce;
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
static enum dt_status poll_state(const struct nccl *self, const char *name, bool *busy)
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

/* Whether the backend's stream records a graph (step_graph.c). */
static bool is_recording(const struct nccl *self)
{
    enum cudaStreamCaptureStatus capture;
    return cudaStreamIsCapturing(self->compute, &capture) == cudaSuccess &&
           capture != cudaStreamCaptureStatusNone;
}

/* A dt_request.progress: looks for the sum's end; in a graph being recorded, adds that end. */
static enum dt_status progress(struct dt_request *request, bool *done)
{
    struct operation *operation = request->handle;
    const struct nccl *self = operation->owner;
    bool busy;
    DT_TRY(poll_state(self, request->name, &busy));
    const cudaError_t code = is_recording(self)
                                 ? cudaStreamWaitEvent(self->compute, operation->done, 0)
                                 : cudaEventQuery(operation->done);
    if (code == cudaErrorNotReady) {
        cudaGetLastError(); /* else the check after the next launch finds it */
    } else {
        DT_CUDA(code);
    }
    *done = code == cudaSuccess; /* work enqueued from now on, on any stream, comes after it */
    operation->under_way = !*done;
    return DT_OK;
}

/* Until a non-blocking communicator has put a sum on its stream, it takes neither another sum nor
 * an event behind the sum. One of its threads does so; two threads must not access a graph at once,
 * and if NCCL never ends, the recording cannot be ended either. */
static enum dt_status wait_until_issued(struct nccl *self, const struct dt_request *request)
{
    struct dt_comm *comm = self->base.comm;
    struct dt_patience patience = dt_patience_begin();
    bool busy = true;
    enum dt_status s = poll_state(self, request->name, &busy);
    while (s == DT_OK && busy) {
        dt_comm_alive(comm);
        sched_yield();
        s = dt_comm_judge(comm, request, dt_patience_look(&patience));
        s = s == DT_OK ? poll_state(self, request->name, &busy) : s;
    }
    self->cuda->lost = self->cuda->lost || (s != DT_OK && is_recording(self));
    return s;
}

static enum dt_status nccl_start(struct dt_allreduce *a, int slot, size_t begin, size_t end,
                                 const char *name, struct dt_request *request)
{
    struct nccl *self = nccl_of(a);
    struct operation *operation = &self->operations[slot];
    float *buffer = a->part + begin;
    DT_ASSERT(slot < self->n_slots && !operation->under_way);
    DT_TRY(dt_cuda_record_gradients(self->cuda, self->ready));
    DT_CUDA(cudaStreamWaitEvent(self->stream, self->ready, 0));
    const ncclResult_t code =
        ncclAllReduce(buffer, buffer, end - begin, ncclFloat32, ncclSum, self->nccl, self->stream);
    if (code != ncclSuccess && code != ncclInProgress) {
        return nccl_error(code, name);
    }
    dt_comm_request_begin(a->comm, name, (end - begin) * sizeof *a->part, request);
    request->handle = operation;
    request->progress = progress;
    operation->under_way = true;
    DT_TRY(wait_until_issued(self, request));
    DT_CUDA(cudaEventRecord(operation->done, self->stream));
    return DT_OK;
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
    return fmin(dt_comm_timeout_s(self->base.comm), CLOSE_LIMIT_S);
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
        if (self->operations[i].under_way) {
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

static void destroy_event(cudaEvent_t event)
{
    if (event != NULL) {
        cudaEventDestroy(event);
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
    destroy_event(self->ready);
    for (int i = 0; i < self->n_slots; i++) {
        destroy_event(self->operations[i].done);
    }
    if (self->stream != NULL) {
        cudaStreamDestroy(self->stream);
    }
    cuda->base.ops->free(&cuda->base, self->base.part);
    free(self);
}

static void nccl_close(struct dt_allreduce *a)
{
    end(nccl_of(a), end_orderly(nccl_of(a)));
}

static const struct dt_allreduce_ops nccl_ops = {
    .start = nccl_start, .sent = nccl_sent, .close = nccl_close};

#define STARTING (-1) /* what a rank reports until its start has a status */

/* Exchanges all ranks' progress. If some failed, all fail with the error text of the first. */
static enum dt_status gather_starts(struct nccl *self, int32_t mine, bool *all_started)
{
    struct dt_comm *host = self->base.comm;
    int first = -1;
    char text[DT_ERROR_TEXT_SIZE];
    DT_TRY(dt_comm_allgather(host, &mine, self->starts, sizeof mine, "start of NCCL"));
    *all_started = true;
    for (int rank = host->size - 1; rank >= 0; rank--) {
        *all_started = *all_started && self->starts[rank] == DT_OK;
        first = self->starts[rank] > DT_OK ? rank : first;
    }
    if (first < 0) {
        return DT_OK;
    }
    snprintf(text, sizeof text, "%s", dt_error_text());
    DT_TRY(dt_comm_broadcast(host, text, sizeof text, first, "broadcast of an error's text"));
    dt_error_clear();
    return dt_error_agreed(
        dt_error((enum dt_status)self->starts[first], "rank %d: %s", first, text));
}

static enum dt_status prepare(struct nccl *self, const struct dt_allreduce_spec *spec,
                              ncclUniqueId *id)
{
    DT_TRY(dt_allreduce_take_memory(&self->base, spec));
    DT_TRY(dt_cuda_urgent_stream(&self->stream));
    DT_CUDA(cudaEventCreateWithFlags(&self->ready, cudaEventDisableTiming));
    for (int i = 0; i < self->n_slots; i++) {
        self->operations[i].owner = self;
        DT_CUDA(cudaEventCreateWithFlags(&self->operations[i].done, cudaEventDisableTiming));
    }
    if (self->base.comm->rank == 0) {
        const ncclResult_t code = ncclGetUniqueId(id);
        return code == ncclSuccess ? DT_OK : nccl_error(code, "NCCL's unique id");
    }
    return DT_OK;
}

static int32_t start_of(const struct nccl *self, ncclResult_t state, double waited_s)
{
    const double limit_s = dt_comm_timeout_s(self->base.comm);
    if (state == ncclSuccess || (state == ncclInProgress && waited_s <= limit_s)) {
        return state == ncclSuccess ? DT_OK : STARTING;
    }
    if (state == ncclInProgress) {
        return dt_error(DT_STALLED,
                        "NCCL did not start within %.0f s (NCCL_DEBUG=INFO shows why; raise "
                        "DTRAIN_TIMEOUT if it takes that long)",
                        limit_s);
    }
    return dt_error(DT_UNAVAILABLE, "NCCL cannot start: %s; %s (NCCL_DEBUG=INFO shows more)",
                    ncclGetErrorString(state), ncclGetLastError(NULL));
}

/* The ranks exchange their progress until all have started, one has failed, or one is out of time:
 * so nobody waits for a failed rank, and the host's communicator names a rank that dies
 * meanwhile. */
static enum dt_status open_all(struct nccl *self, const struct dt_allreduce_spec *spec)
{
    struct dt_comm *host = self->base.comm;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    bool all_started;
    DT_TRY(gather_starts(self, (int32_t)prepare(self, spec, &id), &all_started));
    DT_TRY(dt_comm_broadcast(host, &id, sizeof id, 0, "broadcast of NCCL's unique id"));
    config.blocking = 0;
    ncclResult_t state = ncclCommInitRankConfig(&self->nccl, host->size, id, host->rank, &config);
    struct dt_patience patience = dt_patience_begin();
    for (;;) {
        const int32_t mine = start_of(self, state, dt_patience_look(&patience));
        DT_TRY(gather_starts(self, mine, &all_started));
        if (all_started) {
            return DT_OK;
        }
        dt_sleep_ms(1);
        const ncclResult_t code =
            state == ncclInProgress ? ncclCommGetAsyncError(self->nccl, &state) : ncclSuccess;
        state = code == ncclSuccess ? state : code;
    }
}

enum dt_status dt_nccl_open(const struct dt_allreduce_spec *spec, struct dt_allreduce **out)
{
    struct nccl *self = calloc(1, sizeof *self + (size_t)spec->comm->size * sizeof(int32_t));
    if (self == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the allreduce by NCCL");
    }
    self->base =
        (struct dt_allreduce){.ops = &nccl_ops, .type = DT_ALLREDUCE_NCCL, .comm = spec->comm};
    self->cuda = (struct dt_cuda *)spec->backend;
    self->compute = self->cuda->stream;
    self->n_slots = spec->n_slots;
    const enum dt_status status = open_all(self, spec);
    if (status != DT_OK) {
        end(self, false);
        return status;
    }
    *out = &self->base;
    return DT_OK;
}
