/* Which ranks of a communicator over MPI share a host, and the ways between the hosts. */
#include <stdlib.h>

#include "dist/ranks/comm_private.h"

static enum dt_status check(int code)
{
    return code == MPI_SUCCESS ? DT_OK : dt_comm_mpi_error(code, "opening the communicator");
}

/* Opens a communicator of the ranks that have the same number on their hosts. */
static enum dt_status open_across(struct dt_comm *comm)
{
    DT_ASSERT(comm->n_hosts > 1 && comm->n_across >= 1 && comm->n_across <= comm->local_size);
    const int way = comm->local_rank < comm->n_across ? comm->local_rank : MPI_UNDEFINED;
    MPI_Comm members;
    DT_TRY(check(MPI_Comm_split(comm->private->all, way, comm->host_root, &members)));
    return members == MPI_COMM_NULL ? DT_OK : dt_comm_open_over(members, &comm->across);
}

static enum dt_status find_hosts(struct dt_comm *comm)
{
    const MPI_Comm all = comm->private->all;
    MPI_Comm *host = &comm->private->host;
    DT_TRY(check(MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, comm->rank, MPI_INFO_NULL, host)));
    MPI_Comm_rank(*host, &comm->local_rank);
    MPI_Comm_size(*host, &comm->local_size);
    const int is_root = comm->local_rank == 0;
    DT_TRY(check(MPI_Allreduce(&is_root, &comm->n_hosts, 1, MPI_INT, MPI_SUM, all)));
    DT_TRY(check(MPI_Bcast(&comm->host_root, 1, MPI_INT, 0, *host)));
    comm->host_roots = calloc((size_t)comm->size, sizeof(int));
    DT_TRY(check(comm->host_roots != NULL ? MPI_SUCCESS : MPI_ERR_NO_MEM));
    DT_TRY(check(MPI_Allgather(&comm->host_root, 1, MPI_INT, comm->host_roots, 1, MPI_INT, all)));
    DT_ASSERT(comm->host_roots[comm->rank] == comm->host_root);
    DT_ASSERT(comm->host_root <= comm->rank && comm->n_hosts >= 1);
    if (comm->n_hosts == 1) {
        return DT_OK;
    }
    DT_TRY(check(MPI_Allreduce(&comm->local_size, &comm->n_across, 1, MPI_INT, MPI_MIN, all)));
    return open_across(comm);
}

/* *comm is closed, and NULL, where they are not found. */
static enum dt_status add_hosts(struct dt_comm **comm)
{
    const enum dt_status s = find_hosts(*comm);
    if (s != DT_OK) {
        dt_comm_close(*comm);
        *comm = NULL;
    }
    return s;
}

enum dt_status dt_comm_open_hosts(struct dt_comm **out)
{
    DT_TRY(dt_comm_open_mpi(out));
    return add_hosts(out);
}

/* n > 1. */
static enum dt_status split(const struct dt_comm *comm, int n, struct dt_comm **out)
{
    MPI_Comm members = MPI_COMM_NULL;
    DT_TRY(check(MPI_Comm_split(comm->private->all, comm->rank < n ? 0 : MPI_UNDEFINED, comm->rank,
                                &members)));
    if (members == MPI_COMM_NULL) {
        return DT_OK;
    }
    DT_TRY(dt_comm_open_over(members, out));
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
    if (*out == NULL) {
        return DT_OK;
    }
    dt_comm_set_timeout(*out, dt_comm_timeout_s(comm));
    return n > 1 && comm->private->liveness != NULL ? comm->private->liveness->open(*out) : DT_OK;
}
