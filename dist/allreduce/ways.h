/* The ways of adding gradients over all ranks:
 *
 *   mpi            mpi.c            MPI_Iallreduce
 *   shared_memory  shared_memory.c  in memory that the ranks of a host share, and between hosts by
 * MPI hierarchical   shared_memory.c  the same, and between hosts by any algorithm of the list nccl
 * cuda/nccl_allreduce.c staged         staged.c         of gradients on GPUs, by way of host
 * memory, where any other way adds them all others     schedule.c       an algorithm of the list in
 * algorithm.h, over the wire
 *
 * Which one it is, is decided once, here: nobody else compares names. */
#ifndef DT_DIST_ALLREDUCE_WAYS_H
#define DT_DIST_ALLREDUCE_WAYS_H

#include "dist/allreduce/allreduce.h"

/* Every rank calls it; all take the same way. Where shared memory is not to be had, shared_memory
 * and hierarchical become messages, and `why` says so. What is in a device's memory and has no way
 * of its own is staged. A failed open owes nothing. */
enum dt_status dt_allreduce_open(const struct dt_allreduce_spec *spec, struct dt_allreduce **out);

/* ---- each way; *out is NULL before */

enum dt_status dt_mpi_open(const struct dt_allreduce_spec *spec, struct dt_allreduce **out);
enum dt_status dt_schedule_open(const struct dt_allreduce_spec *spec, struct dt_allreduce **out);
/* *out stays NULL: on no rank is it to be had, or another rank has failed, which the caller's
 * agreement will tell. */
enum dt_status dt_shared_memory_open(const struct dt_allreduce_spec *spec,
                                     struct dt_allreduce **out);
/* host: as large, in the program's memory; from now on, or from a failure on, staged's. */
enum dt_status dt_staged_open(const struct dt_allreduce_spec *spec, struct dt_allreduce *host,
                              struct dt_allreduce **out);

#endif
