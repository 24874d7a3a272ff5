/* What other users of MPI here need of the communicator over MPI. */
#ifndef DT_DIST_RANKS_COMM_MPI_H
#define DT_DIST_RANKS_COMM_MPI_H

#include <mpi.h>

#include "dist/ranks/comm.h"

MPI_Comm dt_comm_mpi_handle(
    struct dt_comm *comm); /* its ranks; of messages from one to another it has none itself */
MPI_Comm dt_comm_mpi_host(struct dt_comm *comm); /* those that share memory with this one */
enum dt_status dt_comm_mpi_error(int code, const char *name);

#endif
