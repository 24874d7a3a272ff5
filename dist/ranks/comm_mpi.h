/* The communicator over MPI, for other users of MPI here. */
#ifndef DT_DIST_RANKS_COMM_MPI_H
#define DT_DIST_RANKS_COMM_MPI_H

#include <mpi.h>

#include "dist/ranks/comm.h"

struct dt_mpi_comm {
    struct dt_comm base;
    MPI_Comm all;  /* private, so that no message can meet another's */
    MPI_Comm host; /* the ranks that share memory with this one (hosts.c), or MPI_COMM_NULL */
};

static inline struct dt_mpi_comm *dt_mpi_comm_of(struct dt_comm *comm)
{
    return (struct dt_mpi_comm *)comm;
}

/* Over the ranks of `all`, which it owns from then on. NULL: no memory, and `all` stays whose it
 * was. */
struct dt_mpi_comm *dt_comm_mpi_over(MPI_Comm all);
/* Over the ranks of `all`, which MPI made with this code. Closed, where there is no memory. */
enum dt_status dt_comm_mpi_open(int code, MPI_Comm all, struct dt_comm **out);
enum dt_status dt_comm_mpi_error(int code, const char *name);

#endif
