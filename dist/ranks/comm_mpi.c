/* Collectives over MPI, each started without blocking. */
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "dist/ranks/comm_mpi.h"

struct mpi_comm {
    struct dt_comm base;
    MPI_Comm all;  /* private, so that no message can meet another's */
    MPI_Comm host; /* the ranks that share memory with this one */
};

_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "a request fits into dt_request.handle");

static struct mpi_comm *mpi_of(struct dt_comm *comm)
{
    return (struct mpi_comm *)comm;
}

MPI_Comm dt_comm_mpi_handle(struct dt_comm *comm)
{
    return mpi_of(comm)->all;
}

MPI_Comm dt_comm_mpi_host(struct dt_comm *comm)
{
    return mpi_of(comm)->host;
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

static void mpi_close(struct dt_comm *comm)
{
    struct mpi_comm *self = mpi_of(comm);
    dt_comm_close(comm->across);
    if (comm->liveness != NULL) {
        comm->liveness->close(comm->liveness);
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
    .close = mpi_close,
};

static struct mpi_comm *new_comm(void)
{
    struct mpi_comm *self = calloc(1, sizeof *self);
    if (self != NULL) {
        *self = (struct mpi_comm){
            .base = {.ops = &mpi_ops, .silent = -1, .timeout_s = DT_TIMEOUT_DEFAULT_S},
            .all = MPI_COMM_NULL,
            .host = MPI_COMM_NULL};
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
    MPI_Comm_rank(self->host, &base->local_rank);
    MPI_Comm_size(self->host, &base->local_size);
    const int is_root = base->local_rank == 0;
    base->host_root = base->rank;
    int code = MPI_Allreduce(&is_root, &base->n_hosts, 1, MPI_INT, MPI_SUM, self->all);
    code = code != MPI_SUCCESS ? code : MPI_Bcast(&base->host_root, 1, MPI_INT, 0, self->host);
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
    const int code = MPI_Comm_split_type(self->all, MPI_COMM_TYPE_SHARED, self->base.rank,
                                         MPI_INFO_NULL, &self->host);
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
    return *out != NULL && n > 1 && comm->liveness != NULL ? comm->liveness->open(*out) : DT_OK;
}
