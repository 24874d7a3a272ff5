/* A table of signs of life, a line per rank of a host: it tells which ranks hold a collective up,
 * and what they were last seen in. */
#ifndef DT_DIST_LIVENESS_TABLE_H
#define DT_DIST_LIVENESS_TABLE_H

#include "dist/ranks/comm.h"

/* The phase in which rank 0 writes to a disk. It then has so many times the usual limit; the others
 * have the usual one. */
#define DT_PHASE_SAVING "saving a checkpoint"
#define DT_SAVING_LIMITS 5

/* Gives the communicator, one over MPI, its table, which closes with it. Every rank calls it.
 * DT_NO_MEMORY, DT_STALLED. */
enum dt_status dt_liveness_open(struct dt_comm *comm);

#endif
