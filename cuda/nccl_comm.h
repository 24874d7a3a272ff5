/* A communicator over NCCL: allreduce and broadcast of device buffers, in the order of the backend's stream.
 *
 * A collective begins when the work enqueued before it is done, on a stream of its own, so that later work overlaps with it; work
 * enqueued after the test or wait that found it done sees its result. Nothing waits on the GPU without a limit: the communicator is
 * one that does not block, and dist/ranks/comm.c polls it. While the backend's stream records a graph (cuda/step_graph.h), the wait
 * puts the collective's end into the graph instead of looking for it. An allgather is DT_INTERNAL: nobody gathers device buffers.
 */
#ifndef DT_CUDA_NCCL_COMM_H
#define DT_CUDA_NCCL_COMM_H

#include "dist/ranks/comm.h"
#include "model/backend.h"

/* See comm_open in model/device_module.h. After any failure all ranks have the same status and text. DT_UNAVAILABLE: NCCL cannot
 * start here. The communicator closes within a few seconds whatever the other ranks do, before `backend`. */
enum dt_status dt_nccl_comm_open(struct dt_comm *host, struct dt_backend *backend, struct dt_comm **out);

/* Whether NCCL has noticed a failure since; `name`: what it would strike. Costs nothing. */
enum dt_status dt_nccl_comm_look(struct dt_comm *comm, const char *name);

#endif
