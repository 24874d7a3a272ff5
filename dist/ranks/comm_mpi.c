/* Collectives over MPI, each started without blocking, and a table of signs of life in memory
 * shared by the ranks of a host. */
#include <limits.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "dist/ranks/comm_mpi.h"

#define PHASE_SIZE 32
#define STILL_ALIVE_S 1.0 /* a rank that waits is seen far more often */

/* One rank's line in the table. Only that rank writes it. A reader may catch `phase` between two
 * names; its last byte is never written, so that it always ends. */
struct slot {
    _Atomic uint64_t n_started, n_done; /* of struct dt_comm */
    _Atomic uint64_t seen_ns;           /* when it last moved, on the host's monotonic clock */
    int32_t rank;
    char phase[PHASE_SIZE];
    _Atomic uint32_t
        claimed; /* of the first slot: whether a rank of this host has claimed the word */
};

struct mpi_comm {
    struct dt_comm base;
    MPI_Comm all;  /* private, so that no message can meet another's */
    MPI_Comm host; /* the ranks that share memory with this one */
    MPI_Win window;
    struct slot *slots; /* base.local_size, of this host's ranks */
    struct slot *mine;
    struct slot unseen; /* `mine` of a communicator between hosts: it has no table */
};

_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "a request fits into dt_request.handle");
_Static_assert(sizeof(struct slot) == 64, "one cache line a rank");

static struct mpi_comm *mpi_of(struct dt_comm *comm)
{
    return (struct mpi_comm *)comm;
}

MPI_Comm dt_comm_mpi_handle(struct dt_comm *comm)
{
    return mpi_of(comm)->all;
}

/* Wrong arguments are our bug; everything else is a peer, the network, or ranks that disagree on a
 * message's length. */
enum dt_status dt_comm_mpi_error(int code, const char *name)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0, class = MPI_ERR_OTHER;
    MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &length);
    for (char *line_end = strchr(text, '\n'); line_end != NULL; line_end = strchr(line_end, '\n')) {
        *line_end = ' ';
    }
    const bool ours = class == MPI_ERR_ARG || class == MPI_ERR_BUFFER || class == MPI_ERR_COUNT ||
                      class == MPI_ERR_TYPE || class == MPI_ERR_OP || class == MPI_ERR_COMM ||
                      class == MPI_ERR_ROOT || class == MPI_ERR_REQUEST;
    return dt_error(ours ? DT_INTERNAL : DT_STALLED, "%s: %s", name, text);
}

static MPI_Datatype mpi_type(enum dt_type type)
{
    switch (type) {
    case DT_TYPE_F32:
        return MPI_FLOAT;
    case DT_TYPE_F64:
        return MPI_DOUBLE;
    case DT_TYPE_I32:
        return MPI_INT32_T;
    case DT_TYPE_U64:
        return MPI_UINT64_T;
    }
    return MPI_DATATYPE_NULL;
}

static MPI_Op mpi_op(enum dt_reduce op)
{
    switch (op) {
    case DT_REDUCE_SUM:
        return MPI_SUM;
    case DT_REDUCE_MAX:
        return MPI_MAX;
    case DT_REDUCE_MIN:
        return MPI_MIN;
    }
    return MPI_OP_NULL;
}

static void mpi_alive(struct dt_comm *comm)
{
    struct slot *mine = mpi_of(comm)->mine;
    atomic_store_explicit(&mine->n_started, comm->n_started, memory_order_relaxed);
    atomic_store_explicit(&mine->n_done, comm->n_done, memory_order_relaxed);
    atomic_store_explicit(&mine->seen_ns, dt_clock_ns(), memory_order_relaxed);
}

static void mpi_phase(struct dt_comm *comm, const char *name)
{
    snprintf(mpi_of(comm)->mine->phase, PHASE_SIZE - 1, "%s", name);
    mpi_alive(comm);
}

static enum dt_status mpi_started(struct dt_request *request, MPI_Request handle, int code)
{
    if (code != MPI_SUCCESS) {
        return dt_comm_mpi_error(code, request->name);
    }
    memcpy(&request->handle, &handle, sizeof handle);
    return DT_OK;
}

/* NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker): their wait is dt_comm_wait */
static enum dt_status mpi_allreduce_start(struct dt_comm *comm, void *buffer, size_t n_elems,
                                          enum dt_type type, enum dt_reduce op,
                                          struct dt_request *request)
{
    MPI_Request handle = MPI_REQUEST_NULL;
    const int code = MPI_Iallreduce(MPI_IN_PLACE, buffer, (int)n_elems, mpi_type(type), mpi_op(op),
                                    mpi_of(comm)->all, &handle);
    return mpi_started(request, handle, code);
}

static enum dt_status mpi_broadcast_start(struct dt_comm *comm, void *buffer, size_t n_bytes,
                                          int root, struct dt_request *request)
{
    MPI_Request handle = MPI_REQUEST_NULL;
    const int code = MPI_Ibcast(buffer, (int)n_bytes, MPI_BYTE, root, mpi_of(comm)->all, &handle);
    return mpi_started(request, handle, code);
}

static enum dt_status mpi_allgather_start(struct dt_comm *comm, const void *mine, void *all,
                                          size_t n_bytes_each, struct dt_request *request)
{
    MPI_Request handle = MPI_REQUEST_NULL;
    const int n = (int)n_bytes_each;
    const int code =
        MPI_Iallgather(mine, n, MPI_BYTE, all, n, MPI_BYTE, mpi_of(comm)->all, &handle);
    return mpi_started(request, handle, code);
}

/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */

static enum dt_status mpi_test(struct dt_comm *comm, struct dt_request *request, bool *done)
{
    (void)comm;
    MPI_Request handle;
    memcpy(&handle, &request->handle, sizeof handle);
    int flag = 0;
    const int code = MPI_Test(&handle, &flag, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) {
        return dt_comm_mpi_error(code, request->name);
    }
    memcpy(&request->handle, &handle, sizeof handle);
    *done = flag != 0;
    return DT_OK;
}

static double unseen_s(const struct slot *slot)
{
    const uint64_t seen_ns =
        atomic_load(&slot->seen_ns); /* before the clock: it may move in between */
    return (double)(dt_clock_ns() - seen_ns) * 1e-9;
}

/* ---- who holds everybody up. A rank that only waits shows signs of life, also one that still
 * waits in an earlier collective: so it is the one that has shown none for longest; if all have,
 * the one that has seen fewer collectives end than others, for instance because its GPU hangs,
 * whatever others that wait for it have not entered; if there is none, the first that has not
 * entered. Where there are more hosts, the last two may still wait for a rank elsewhere, and are
 * not to blame. */

static const struct slot *find_silent(const struct mpi_comm *self)
{
    const struct slot *silent = NULL;
    for (int i = 0; i < self->base.local_size; i++) {
        const struct slot *slot = &self->slots[i];
        if (slot != self->mine &&
            (silent == NULL || atomic_load(&slot->seen_ns) < atomic_load(&silent->seen_ns))) {
            silent = slot;
        }
    }
    return silent != NULL && unseen_s(silent) > STILL_ALIVE_S ? silent : NULL;
}

static const struct slot *find_behind(const struct mpi_comm *self)
{
    const struct slot *least = self->slots, *most = self->slots;
    for (int i = 1; i < self->base.local_size && self->base.n_hosts == 1; i++) {
        const struct slot *slot = &self->slots[i];
        least = atomic_load(&slot->n_done) < atomic_load(&least->n_done) ? slot : least;
        most = atomic_load(&slot->n_done) > atomic_load(&most->n_done) ? slot : most;
    }
    return atomic_load(&least->n_done) < atomic_load(&most->n_done) ? least : NULL;
}

static const struct slot *find_absent(const struct mpi_comm *self, uint64_t sequence)
{
    for (int i = 0; i < self->base.local_size && self->base.n_hosts == 1; i++) {
        if (atomic_load(&self->slots[i].n_started) < sequence) {
            return &self->slots[i];
        }
    }
    return NULL;
}

static int count_missing(const struct mpi_comm *self, uint64_t sequence)
{
    int n_missing = 0;
    for (int i = 0; i < self->base.local_size; i++) {
        n_missing += atomic_load(&self->slots[i].n_started) < sequence;
    }
    return n_missing;
}

static void explain_absent(const struct mpi_comm *self, const struct slot *absent,
                           uint64_t sequence, char *text, size_t n_text)
{
    const double ago_s = unseen_s(absent);
    const int n_others = count_missing(self, sequence) - 1;
    if (n_others > 0) {
        snprintf(text, n_text,
                 "rank %d and %d more of this host have not arrived; rank %d was last seen %.0f s "
                 "ago in '%s'",
                 absent->rank, n_others, absent->rank, ago_s, absent->phase);
    } else {
        snprintf(text, n_text, "rank %d has not arrived; it was last seen %.0f s ago in '%s'",
                 absent->rank, ago_s, absent->phase);
    }
}

static bool mpi_explain(struct dt_comm *comm, const struct dt_request *request, char *text,
                        size_t n_text)
{
    const struct mpi_comm *self = mpi_of(comm);
    const uint64_t sequence = request->sequence;
    const struct slot *silent = find_silent(self), *behind = find_behind(self),
                      *absent = find_absent(self, sequence);
    comm->silent = silent != NULL ? silent->rank : -1;
    if (silent != NULL && atomic_load(&silent->n_started) < sequence) {
        explain_absent(self, silent, sequence, text, n_text);
    } else if (silent != NULL) {
        snprintf(text, n_text, "rank %d arrived but has not moved for %.0f s, in '%s'",
                 silent->rank, unseen_s(silent), silent->phase);
    } else if (behind != NULL) {
        snprintf(text, n_text,
                 "rank %d waits in '%s' for a collective that other ranks have finished: it or its "
                 "device hangs",
                 behind->rank, behind->phase);
    } else if (absent != NULL) {
        explain_absent(self, absent, sequence, text, n_text);
    } else if (comm->n_hosts > 1) {
        snprintf(
            text, n_text,
            "all ranks of this host wait; one on another host, or the network, does not answer");
        return false;
    } else {
        snprintf(text, n_text, "all ranks wait in it; what connects them does not answer");
    }
    return true;
}

static bool mpi_claim(struct dt_comm *comm)
{
    return atomic_exchange(&mpi_of(comm)->slots[0].claimed, 1) == 0;
}

static void mpi_close(struct dt_comm *comm)
{
    struct mpi_comm *self = mpi_of(comm);
    dt_comm_close(comm->across);
    if (self->window != MPI_WIN_NULL) {
        MPI_Win_free(&self->window);
    }
    if (self->host != MPI_COMM_NULL) {
        MPI_Comm_free(&self->host);
    }
    if (self->all != MPI_COMM_NULL) {
        MPI_Comm_free(&self->all);
    }
    free(self->base.host_roots);
    free(self);
}

static const struct dt_comm_ops mpi_ops = {
    .name = "mpi",
    .allreduce_start = mpi_allreduce_start,
    .broadcast_start = mpi_broadcast_start,
    .allgather_start = mpi_allgather_start,
    .test = mpi_test,
    .phase = mpi_phase,
    .alive = mpi_alive,
    .explain = mpi_explain,
    .claim = mpi_claim,
    .close = mpi_close,
};

/* The first rank of the host owns the table; the others look it up. */
static int open_slots(struct mpi_comm *self)
{
    MPI_Comm_rank(self->host, &self->base.local_rank);
    MPI_Comm_size(self->host, &self->base.local_size);
    const MPI_Aint n_bytes =
        self->base.local_rank == 0 ? (MPI_Aint)sizeof(struct slot) * self->base.local_size : 0;
    int code =
        MPI_Win_allocate_shared(n_bytes, 1, MPI_INFO_NULL, self->host, &self->slots, &self->window);
    if (code != MPI_SUCCESS) {
        return code;
    }
    MPI_Aint size;
    int unit;
    code = MPI_Win_shared_query(self->window, 0, &size, &unit, &self->slots);
    if (code != MPI_SUCCESS) {
        return code;
    }
    self->mine = &self->slots[self->base.local_rank];
    memset(self->mine, 0, sizeof *self->mine);
    self->mine->rank = self->base.rank;
    mpi_phase(&self->base, "start");
    return MPI_SUCCESS;
}

static struct mpi_comm *new_comm(void)
{
    struct mpi_comm *self = calloc(1, sizeof *self);
    if (self != NULL) {
        *self = (struct mpi_comm){
            .base = {.ops = &mpi_ops, .silent = -1, .timeout_s = DT_TIMEOUT_DEFAULT_S},
            .all = MPI_COMM_NULL,
            .host = MPI_COMM_NULL,
            .window = MPI_WIN_NULL};
        self->mine = &self->unseen;
    }
    return self;
}

/* Of ranks with the same number on their hosts. */
static int open_across(struct mpi_comm *self)
{
    struct dt_comm *base = &self->base;
    const int way = base->local_rank < base->n_across ? base->local_rank : MPI_UNDEFINED;
    MPI_Comm members;
    const int code = MPI_Comm_split(self->all, way, base->host_root, &members);
    if (code != MPI_SUCCESS || members == MPI_COMM_NULL) {
        return code;
    }
    struct mpi_comm *across = new_comm();
    if (across == NULL) {
        return MPI_ERR_NO_MEM;
    }
    across->all = members;
    MPI_Comm_rank(members, &across->base.rank);
    MPI_Comm_size(members, &across->base.size);
    base->across = &across->base;
    return MPI_SUCCESS;
}

/* How many hosts there are, and the ways between them. */
static int find_hosts(struct mpi_comm *self)
{
    struct dt_comm *base = &self->base;
    const int is_root = base->local_rank == 0;
    int code = MPI_Allreduce(&is_root, &base->n_hosts, 1, MPI_INT, MPI_SUM, self->all);
    base->host_root = self->slots[0].rank; /* by now it is there */
    base->host_roots = calloc((size_t)base->size, sizeof(int));
    if (code != MPI_SUCCESS || base->host_roots == NULL) {
        return code != MPI_SUCCESS ? code : MPI_ERR_NO_MEM;
    }
    code = MPI_Allgather(&base->host_root, 1, MPI_INT, base->host_roots, 1, MPI_INT, self->all);
    if (code != MPI_SUCCESS || base->n_hosts == 1) {
        return code;
    }
    code = MPI_Allreduce(&base->local_size, &base->n_across, 1, MPI_INT, MPI_MIN, self->all);
    return code != MPI_SUCCESS ? code : open_across(self);
}

static int open_comms(struct mpi_comm *self)
{
    MPI_Comm_set_errhandler(self->all, MPI_ERRORS_RETURN);
    MPI_Comm_rank(self->all, &self->base.rank);
    MPI_Comm_size(self->all, &self->base.size);
    int code = MPI_Comm_split_type(self->all, MPI_COMM_TYPE_SHARED, self->base.rank, MPI_INFO_NULL,
                                   &self->host);
    if (code == MPI_SUCCESS) {
        code = open_slots(self);
    }
    return code != MPI_SUCCESS ? code : find_hosts(self);
}

/* Of the ranks of `all`, which it owns from then on; `code`: what came of making that. */
static enum dt_status open_over(int code, MPI_Comm all, struct dt_comm **out)
{
    struct mpi_comm *self = new_comm();
    if (self == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the communicator");
    }
    if (code == MPI_SUCCESS) {
        self->all = all;
        code = open_comms(self);
    }
    if (code != MPI_SUCCESS) {
        const enum dt_status status = dt_comm_mpi_error(code, "opening the communicator");
        mpi_close(&self->base);
        return status;
    }
    /* Everybody's line is in place before anybody may read it. */
    enum dt_status status = dt_comm_barrier(&self->base, "first barrier");
    if (status != DT_OK) {
        return status;
    }
    *out = &self->base;
    return DT_OK;
}

enum dt_status dt_comm_open_mpi(struct dt_comm **out)
{
    MPI_Comm all;
    const int code = MPI_Comm_dup(MPI_COMM_WORLD, &all);
    return open_over(code, all, out);
}

enum dt_status dt_comm_open_first(struct dt_comm *comm, int n, struct dt_comm **out)
{
    MPI_Comm members = MPI_COMM_NULL;
    *out = NULL;
    if (n == 1) {
        DT_TRY(comm->rank == 0 ? dt_comm_open_self(out) : DT_OK);
    } else {
        const int code = MPI_Comm_split(mpi_of(comm)->all, comm->rank < n ? 0 : MPI_UNDEFINED,
                                        comm->rank, &members);
        DT_TRY(comm->rank < n || code != MPI_SUCCESS ? open_over(code, members, out) : DT_OK);
    }
    if (*out != NULL) {
        (*out)->timeout_s = comm->timeout_s;
    }
    return DT_OK;
}
