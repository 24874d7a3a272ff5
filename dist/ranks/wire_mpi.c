/* Messages over MPI. Its collectives on the same communicator never meet them. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "dist/ranks/comm_mpi.h"
#include "dist/ranks/wire.h"

struct mpi_wire {
    struct dt_wire base;
    MPI_Comm all; /* the communicator's */
    const struct dt_comm *comm;
};

_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "a request fits into dt_wire_request.handle");

static MPI_Comm all_of(const struct dt_wire *wire)
{
    return ((const struct mpi_wire *)wire)->all;
}

static enum dt_status started(int code, MPI_Request handle, struct dt_wire_request *request)
{
    memcpy(&request->handle, &handle, sizeof handle);
    return code == MPI_SUCCESS ? DT_OK : dt_comm_mpi_error(code, "a message between two ranks");
}

/* NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker): their wait is dt_comm_wait */
static enum dt_status mpi_send(struct dt_wire *wire, int peer, int tag, const void *bytes,
                               size_t n_bytes, struct dt_wire_request *request)
{
    MPI_Request handle = MPI_REQUEST_NULL;
    if (((const struct mpi_wire *)wire)->comm->cut) {
        return started(MPI_SUCCESS, handle, request);
    }
    const int code = MPI_Isend(bytes, (int)n_bytes, MPI_BYTE, peer, tag, all_of(wire), &handle);
    return started(code, handle, request);
}

static enum dt_status mpi_receive(struct dt_wire *wire, int peer, int tag, void *bytes,
                                  size_t n_bytes, struct dt_wire_request *request)
{
    MPI_Request handle = MPI_REQUEST_NULL;
    const int code = MPI_Irecv(bytes, (int)n_bytes, MPI_BYTE, peer, tag, all_of(wire), &handle);
    return started(code, handle, request);
}

/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */

static enum dt_status mpi_test(struct dt_wire *wire, struct dt_wire_request *request, bool *done)
{
    (void)wire;
    MPI_Request handle;
    int flag = 0;
    memcpy(&handle, &request->handle, sizeof handle);
    const int code = MPI_Test(&handle, &flag, MPI_STATUS_IGNORE);
    *done = flag != 0;
    return started(code, handle, request);
}

static void mpi_close(struct dt_wire *wire)
{
    free(wire->sent);
    free(wire);
}

static const struct dt_wire_ops mpi_ops = {
    .name = "mpi", .send = mpi_send, .receive = mpi_receive, .test = mpi_test, .close = mpi_close};

enum dt_status dt_wire_open_mpi(struct dt_comm *comm, struct dt_wire **out)
{
    struct mpi_wire *wire = malloc(sizeof *wire);
    struct dt_wire_count *sent = calloc((size_t)comm->size, sizeof *sent);
    if (wire == NULL || sent == NULL) {
        free(wire);
        free(sent);
        return dt_error(DT_NO_MEMORY, "no memory for the wire");
    }
    *wire = (struct mpi_wire){
        .base = {.ops = &mpi_ops, .rank = comm->rank, .size = comm->size, .sent = sent},
        .all = dt_comm_mpi_handle(comm),
        .comm = comm};
    wire->base.host_roots = comm->host_roots;
    *out = &wire->base;
    return DT_OK;
}
