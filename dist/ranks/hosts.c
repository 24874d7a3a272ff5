/* Which ranks of a communicator over MPI share a host, and the ways between the hosts. */
#include <stdlib.h>

#include "dist/ranks/comm_mpi.h"

/* Opens a communicator of the ranks that have the same number on their hosts. */
static int open_across(struct dt_mpi_comm *self)
{
    struct dt_comm *base = &self->base;
    DT_ASSERT(base->n_hosts > 1 && base->n_across >= 1 && base->n_across <= base->local_size);
    const int way = base->local_rank < base->n_across ? base->local_rank : MPI_UNDEFINED;
    MPI_Comm members;
    const int code = MPI_Comm_split(self->all, way, base->host_root, &members);
    if (code != MPI_SUCCESS || members == MPI_COMM_NULL) {
        return code;
    }
    struct dt_mpi_comm *across = dt_comm_mpi_over(members);
    if (across == NULL) {
        MPI_Comm_free(&members);
        return MPI_ERR_NO_MEM;
    }
    base->across = &across->base;
    return MPI_SUCCESS;
}

static int find_hosts(struct dt_mpi_comm *self)
{
    struct dt_comm *base = &self->base;
    MPI_Comm_rank(self->host, &base->local_rank);
    MPI_Comm_size(self->host, &base->local_size);
    const int is_root = base->local_rank == 0;
    int code = MPI_Allreduce(&is_root, &base->n_hosts, 1, MPI_INT, MPI_SUM, self->all);
    code = code != MPI_SUCCESS ? code : MPI_Bcast(&base->host_root, 1, MPI_INT, 0, self->host);
    base->host_roots = calloc((size_t)base->size, sizeof(int));
    if (code != MPI_SUCCESS || base->host_roots == NULL) {
        return code != MPI_SUCCESS ? code : MPI_ERR_NO_MEM;
    }
    code = MPI_Allgather(&base->host_root, 1, MPI_INT, base->host_roots, 1, MPI_INT, self->all);
    DT_ASSERT(code != MPI_SUCCESS || base->host_roots[base->rank] == base->host_root);
    DT_ASSERT(code != MPI_SUCCESS || (base->host_root <= base->rank && base->n_hosts >= 1));
    if (code != MPI_SUCCESS || base->n_hosts == 1) {
        return code;
    }
    code = MPI_Allreduce(&base->local_size, &base->n_across, 1, MPI_INT, MPI_MIN, self->all);
    return code != MPI_SUCCESS ? code : open_across(self);
}

/* *comm is closed, and NULL, where they are not found. */
static enum dt_status add_hosts(struct dt_comm **comm)
{
    struct dt_mpi_comm *self = dt_mpi_comm_of(*comm);
    int code = MPI_Comm_split_type(self->all, MPI_COMM_TYPE_SHARED, self->base.rank, MPI_INFO_NULL,
                                   &self->host);
    code = code != MPI_SUCCESS ? code : find_hosts(self);
    if (code != MPI_SUCCESS) {
        dt_comm_close(*comm);
        *comm = NULL;
        return dt_comm_mpi_error(code, "opening the communicator");
    }
    return DT_OK;
}

enum dt_status dt_comm_open_hosts(struct dt_comm **out)
{
    DT_TRY(dt_comm_open_mpi(out));
    return add_hosts(out);
}

/* n > 1. */
static enum dt_status split(struct dt_comm *comm, int n, struct dt_comm **out)
{
    MPI_Comm members = MPI_COMM_NULL;
    const int code = MPI_Comm_split(dt_mpi_comm_of(comm)->all, comm->rank < n ? 0 : MPI_UNDEFINED,
                                    comm->rank, &members);
    if (code == MPI_SUCCESS && members == MPI_COMM_NULL) {
        return DT_OK;
    }
    DT_TRY(dt_comm_mpi_open(code, members, out));
    return add_hosts(out);
}

enum dt_status dt_comm_open_first(struct dt_comm *comm, int n, struct dt_comm **out)
{
    DT_ASSERT(n >= 1 && n <= comm->size);
    *out = NULL;
    if (n > 1) {
        DT_TRY(split(comm, n, out));
    } else if (comm->rank == 0) {
        DT_TRY(dt_comm_open_self(out));
    }
    if (*out != NULL) {
        (*out)->timeout_s = comm->timeout_s;
    }
    return *out != NULL && n > 1 && comm->liveness != NULL ? comm->liveness->open(*out) : DT_OK;
}
