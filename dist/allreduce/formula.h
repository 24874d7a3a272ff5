/* The traffic of an allreduce: by the textbooks' formula, and counted move by move. */
#ifndef DT_DIST_ALLREDUCE_FORMULA_H
#define DT_DIST_ALLREDUCE_FORMULA_H

#include "dist/allreduce/allreduce.h"

/* The traffic of one rank, counted move by move; with `host_roots`, each rank's host, only the
 * traffic to other hosts. moves: room for DT_MAX_MOVES(size). */
struct dt_traffic dt_algorithm_traffic(const struct dt_algorithm *algorithm, int rank, int size,
                                       size_t n_elems, const int *host_roots,
                                       struct dt_move *moves);

/* Into how many slices a range of so many elements is cut for its way between the hosts of a
 * communicator, on all ranks alike; the k-th rank of every host carries slice k, which begins at
 * dt_piece_begin. */
int dt_allreduce_n_slices(const struct dt_comm *comm, size_t n_elems);

/* The traffic of all ranks together for a sum of n_elems elements, by the algorithm's formula. */
struct dt_traffic dt_allreduce_formula(const struct dt_allreduce *allreduce, size_t n_elems);

#endif
