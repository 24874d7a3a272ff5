/* Allreduce over GPUs by NCCL, in the order of the backend's stream. A sum starts when the work
 * enqueued before it is done, on its own stream, so that later work overlaps with it; work enqueued
 * after the test or wait that found it done sees its result. Every wait on the GPU has a limit: the
 * NCCL communicator is non-blocking, and is polled within the limits of dist/ranks/comm.h. While
 * the backend's stream records a graph (cuda/step_graph.h), the wait adds the sum's end to it
 * instead of polling; if one rank records, all must. */
#ifndef DT_CUDA_NCCL_ALLREDUCE_H
#define DT_CUDA_NCCL_ALLREDUCE_H

#include "dist/allreduce/allreduce.h"

/* A dt_allreduce_open_fn for a backend of this module; every rank calls it, each on its own GPU.
 * spec->comm carries the unique id. After any failure all ranks have the same status and text.
 * DT_UNAVAILABLE: NCCL cannot start here. DT_STALLED after comm's time limit: the missing ranks.
 * Close it before the backend; it returns within a few seconds, whatever other ranks do. */
enum dt_status dt_nccl_open(const struct dt_allreduce_spec *spec, struct dt_allreduce **out);

/* Fails if NCCL has noticed a failure since; `name`: the sum it would affect. Costs nothing. */
enum dt_status dt_nccl_check(struct dt_allreduce *allreduce, const char *name);

#endif
