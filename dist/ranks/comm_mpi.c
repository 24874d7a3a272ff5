/* Collectives and messages over MPI, each started without blocking. */
#include <stdlib.h>
#include <string.h>

#include "dist/ranks/comm_private.h"
#include "dist/ranks/wire.h"

_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "a request fits into dt_request.handle");

/* Wrong arguments are our bug; everything else but memory is a peer, the network, or ranks that
 * disagree on a message's length. */
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
    return dt_error(ours                      ? DT_INTERNAL
                    : class == MPI_ERR_NO_MEM ? DT_NO_MEMORY
                                              : DT_STALLED,
                    "%s: %s", name, class == MPI_ERR_NO_MEM ? "no memory" : text);
}

#define MPI_TYPE(constant, c_type, mpi_type) mpi_type,
static const MPI_Datatype mpi_types[] = {DT_TYPE_LIST(MPI_TYPE)};
static const MPI_Op mpi_operations[] = {
    [DT_REDUCE_SUM] = MPI_SUM, [DT_REDUCE_MAX] = MPI_MAX, [DT_REDUCE_MIN] = MPI_MIN};

/* Keeps what was started, collective or message, as the handle of its request. */
static enum dt_status started(int code, const char *name, MPI_Request handle, void **kept)
{
    memcpy(kept, &handle, sizeof handle);
    return code == MPI_SUCCESS ? DT_OK : dt_comm_mpi_error(code, name);
}

static enum dt_status test(void **kept, const char *name, bool *done)
{
    MPI_Request handle;
    int flag = 0;
    memcpy(&handle, kept, sizeof handle);
    const int code = MPI_Test(&handle, &flag, MPI_STATUS_IGNORE);
    *done = flag != 0;
    return started(code, name, handle, kept);
}

/* NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker): their wait is dt_comm_wait */
static enum dt_status mpi_allreduce_start(struct dt_comm *comm, void *buffer, size_t n_elems,
                                          enum dt_type type, enum dt_reduce op,
                                          struct dt_request *request)
{
    DT_ASSERT(n_elems <= INT32_MAX && request->name != NULL);
    MPI_Request handle = MPI_REQUEST_NULL;
    const int code = MPI_Iallreduce(MPI_IN_PLACE, buffer, (int)n_elems, mpi_types[type],
                                    mpi_operations[op], comm->private->all, &handle);
    return started(code, request->name, handle, &request->handle);
}

static enum dt_status mpi_broadcast_start(struct dt_comm *comm, void *buffer, size_t n_bytes,
                                          int root, struct dt_request *request)
{
    DT_ASSERT(n_bytes <= INT32_MAX && root < comm->size);
    MPI_Request handle = MPI_REQUEST_NULL;
    const int code = MPI_Ibcast(buffer, (int)n_bytes, MPI_BYTE, root, comm->private->all, &handle);
    return started(code, request->name, handle, &request->handle);
}

static enum dt_status mpi_allgather_start(struct dt_comm *comm, const void *mine, void *all,
                                          size_t n_bytes_each, struct dt_request *request)
{
    DT_ASSERT(n_bytes_each <= INT32_MAX);
    MPI_Request handle = MPI_REQUEST_NULL;
    const int n = (int)n_bytes_each;
    const int code =
        MPI_Iallgather(mine, n, MPI_BYTE, all, n, MPI_BYTE, comm->private->all, &handle);
    return started(code, request->name, handle, &request->handle);
}

/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */

/* ---- messages between two ranks; collectives on the same communicator never meet them */

struct mpi_wire {
    struct dt_wire base;
    struct dt_comm_private *comm; /* borrowed */
};

static const struct dt_comm_private *comm_of(const struct dt_wire *wire)
{
    return ((const struct mpi_wire *)wire)->comm;
}

static const char message[] = "a message between two ranks"; /* the name of each */

/* NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker): their wait is dt_comm_wait */
static enum dt_status wire_send(struct dt_wire *wire, int peer, int tag, const void *bytes,
                                size_t n_bytes, struct dt_wire_request *request)
{
    DT_ASSERT(n_bytes <= INT32_MAX);
    MPI_Request handle = MPI_REQUEST_NULL;
    const struct dt_comm_private *comm = comm_of(wire);
    const int code = comm->cut
                         ? MPI_SUCCESS
                         : MPI_Isend(bytes, (int)n_bytes, MPI_BYTE, peer, tag, comm->all, &handle);
    return started(code, message, handle, &request->handle);
}

static enum dt_status wire_receive(struct dt_wire *wire, int peer, int tag, void *bytes,
                                   size_t n_bytes, struct dt_wire_request *request)
{
    DT_ASSERT(n_bytes <= INT32_MAX);
    MPI_Request handle = MPI_REQUEST_NULL;
    const int code =
        MPI_Irecv(bytes, (int)n_bytes, MPI_BYTE, peer, tag, comm_of(wire)->all, &handle);
    return started(code, message, handle, &request->handle);
}

/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */

static enum dt_status wire_test(struct dt_wire *wire, struct dt_wire_request *request, bool *done)
{
    (void)wire;
    return test(&request->handle, message, done);
}

static void wire_close(struct dt_wire *wire)
{
    free(wire->sent);
    free(wire);
}

static const struct dt_wire_ops wire_ops = {.name = "mpi",
                                            .send = wire_send,
                                            .receive = wire_receive,
                                            .test = wire_test,
                                            .close = wire_close};

enum dt_status dt_wire_open_mpi(struct dt_comm *comm, struct dt_wire **out)
{
    struct mpi_wire *wire = malloc(sizeof *wire);
    struct dt_traffic *sent = calloc((size_t)comm->size, sizeof *sent);
    if (wire == NULL || sent == NULL) {
        free(wire);
        free(sent);
        return dt_error(DT_NO_MEMORY, "no memory for the wire");
    }
    *wire = (struct mpi_wire){.base = {.ops = &wire_ops,
                                       .rank = comm->rank,
                                       .size = comm->size,
                                       .host_roots = comm->host_roots,
                                       .sent = sent},
                              .comm = comm->private};
    *out = &wire->base;
    return comm->private->wrap == NULL ? DT_OK : comm->private->wrap(out);
}

/* ---- opening and closing */

static void mpi_close(struct dt_comm *comm)
{
    if (comm->private->host != MPI_COMM_NULL) {
        MPI_Comm_free(&comm->private->host);
    }
    MPI_Comm_free(&comm->private->all);
}

static const struct dt_comm_ops mpi_ops = {.allreduce_start = mpi_allreduce_start,
                                           .broadcast_start = mpi_broadcast_start,
                                           .allgather_start = mpi_allgather_start,
                                           .test = test,
                                           .close = mpi_close};

enum dt_status dt_comm_open_over(MPI_Comm all, struct dt_comm **out)
{
    int rank, size;
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    struct dt_comm_private *self = dt_comm_new(rank, size);
    if (self == NULL) {
        MPI_Comm_free(&all);
        return dt_error(DT_NO_MEMORY, "no memory for the communicator");
    }
    MPI_Comm_set_errhandler(all, MPI_ERRORS_RETURN);
    self->ops = &mpi_ops;
    self->all = all;
    self->host = MPI_COMM_NULL;
    *out = &self->base;
    return DT_OK;
}

enum dt_status dt_comm_open_mpi(struct dt_comm **out)
{
    MPI_Comm all;
    const int code = MPI_Comm_dup(MPI_COMM_WORLD, &all);
    return code == MPI_SUCCESS ? dt_comm_open_over(all, out)
                               : dt_comm_mpi_error(code, "opening the communicator");
}
