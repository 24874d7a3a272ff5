/* A communicator for device buffers where the devices cannot talk to each other: each message goes through host memory.
 * Sums of floats are formed as dist/allreduce/host_sum.h says if possible, all else in messages of the host's communicator.
 *
 * Starting a collective waits until the work enqueued before it is done; work enqueued after the test or wait that found it done
 * sees its result. An allgather is DT_INTERNAL: nobody gathers device buffers. */
#ifndef DT_DIST_ALLREDUCE_STAGED_H
#define DT_DIST_ALLREDUCE_STAGED_H

#include "dist/ranks/comm.h"
#include "model/backend.h"

/* Every rank calls it. `host` and `backend` are borrowed and stay open longer. n_elems_max: floats of all collectives that are
 * under way at once; another message may have as many bytes. More is DT_INTERNAL, and so are more than 256 at once. */
enum dt_status dt_comm_open_staged(struct dt_comm *host, struct dt_backend *backend, size_t n_elems_max, struct dt_comm **out);

#endif
