/* A communicator of one rank, and what users of a communicator set or say. */
#include "dist/ranks/comm_private.h"

enum dt_status dt_comm_open_self(struct dt_comm **out)
{
    struct dt_comm_private *self = dt_comm_new(0, 1);
    if (self == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the communicator");
    }
    *out = &self->base;
    return DT_OK;
}

double dt_comm_set_timeout(struct dt_comm *comm, double seconds)
{
    const double before_s = comm->private->timeout_s;
    comm->private->timeout_s = seconds;
    return before_s;
}

double dt_comm_timeout_s(const struct dt_comm *comm)
{
    return comm->private->timeout_s;
}

void dt_comm_meanwhile(struct dt_comm *comm, void (*call)(void *context), void *context)
{
    comm->private->meanwhile = call;
    comm->private->meanwhile_context = context;
}

void dt_comm_phase(struct dt_comm *comm, const char *name)
{
    if (comm->private->liveness != NULL) {
        comm->private->liveness->phase(comm, name);
    }
}

void dt_comm_cut(struct dt_comm *comm)
{
    for (; comm != NULL; comm = comm->across) {
        comm->private->cut = true;
    }
}

void dt_comm_wrap_wires(struct dt_comm *comm, enum dt_status (*wrap)(struct dt_wire **wire))
{
    for (; comm != NULL; comm = comm->across) {
        comm->private->wrap = wrap;
    }
}

void dt_comm_part_ended(struct dt_comm *comm)
{
    comm->private->n_started++;
    dt_comm_wait_ended(comm);
}

enum dt_status dt_comm_barrier(struct dt_comm *comm, const char *name)
{
    int32_t nothing = 0;
    return dt_comm_allreduce(comm, &nothing, 1, DT_TYPE_I32, DT_REDUCE_SUM, name);
}
