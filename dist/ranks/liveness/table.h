/* A table of signs of life, a line per rank of a host: it tells which ranks hold a collective up,
 * and what they were last seen in. */
#ifndef DT_DIST_RANKS_LIVENESS_TABLE_H
#define DT_DIST_RANKS_LIVENESS_TABLE_H

#include "dist/ranks/comm.h"

/* Gives the communicator, one over MPI, its table, which closes with it. Every rank calls it.
 * DT_NO_MEMORY, DT_STALLED. */
enum dt_status dt_liveness_open(struct dt_comm *comm);

#endif
