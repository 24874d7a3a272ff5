/* Adding over GPUs by NCCL, in the order of the backend's stream.
 *
 * A sum begins when the work enqueued before it is done, on a stream of its own, so that later work
 * overlaps with it; work enqueued after the test or wait that found it done sees its result.
 * Nothing waits on the GPU without a limit: NCCL's communicator is one that does not block, and
 * dist/ranks/comm.c polls it. While the backend's stream records a graph (cuda/step_graph.h), the
 * start waits until NCCL has put the sum into the graph, and the wait puts the sum's end into the
 * graph instead of looking for it; where one rank records, all must. */
#ifndef DT_CUDA_NCCL_ALLREDUCE_H
#define DT_CUDA_NCCL_ALLREDUCE_H

#include "dist/allreduce/allreduce.h"

/* A dt_allreduce_open_fn, of a backend of this module; every rank calls it, each on a GPU of its
 * own. spec->comm carries the unique id. After any failure all ranks have the same status and text.
 * DT_UNAVAILABLE: NCCL cannot start here. DT_STALLED after comm->timeout_s, naming who is missing.
 * It closes within a few seconds whatever the other ranks do, before the backend. */
enum dt_status dt_nccl_open(const struct dt_allreduce_spec *spec, struct dt_allreduce **out);

/* Whether NCCL has noticed a failure since; `name`: what it would strike. Costs nothing. */
enum dt_status dt_nccl_look(struct dt_allreduce *allreduce, const char *name);

#endif
