/* Adding by the communicator's own allreduce: over MPI, MPI_Iallreduce. Of one rank, nothing at
 * all, in any memory. */
#include <stdlib.h>

#include "dist/allreduce/allreduce.h"

static enum dt_status mpi_start(struct dt_allreduce *a, int slot, size_t begin, size_t end,
                                const char *name, struct dt_request *request)
{
    DT_ASSERT(begin <= end);
    (void)slot;
    return dt_comm_allreduce_start(a->comm, a->part + begin, end - begin, DT_TYPE_F32,
                                   DT_REDUCE_SUM, name, request);
}

static bool mpi_sent(const struct dt_allreduce *a, struct dt_wire_sent *out)
{
    (void)out;
    return a->comm->size == 1;
}

static void mpi_close(struct dt_allreduce *a)
{
    a->backend->ops->free(a->backend, a->part);
    free(a);
}

static const struct dt_allreduce_ops mpi_ops = {
    .start = mpi_start, .sent = mpi_sent, .close = mpi_close};

/* One rank, and everything that is no algorithm of this program's. */
static bool serves(const struct dt_allreduce_spec *spec)
{
    return spec->comm->size == 1 || dt_allreduce_algorithm(&spec->rows, spec->type) == NULL;
}

static enum dt_status mpi_open(const struct dt_allreduce_spec *spec, struct dt_allreduce **out)
{
    struct dt_allreduce *a = calloc(1, sizeof *a);
    if (a == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the allreduce by MPI");
    }
    *a = (struct dt_allreduce){.ops = &mpi_ops, .type = DT_ALLREDUCE_MPI, .comm = spec->comm};
    const enum dt_status s = dt_allreduce_take_memory(a, spec);
    if (s != DT_OK) {
        free(a);
        return s;
    }
    *out = a;
    return DT_OK;
}

const struct dt_allreduce_entry dt_mpi_allreduce = {.serves = serves, .open = mpi_open};
