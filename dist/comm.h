/* Collectives that cannot hang: every one has a name and a time limit, and none blocks inside MPI.
 *
 * Debian's MPICH spins without yielding, so a blocking allreduce of 4 ranks on 2 cores costs a scheduler slice of 8 ms; starting
 * the non-blocking call, testing it, and yielding after some tries costs 15 us. The same loop watches the clock.
 * Every rank calls each of these with the same arguments in the same order. */
#ifndef DT_DIST_COMM_H
#define DT_DIST_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum dt_type { DT_TYPE_BYTE, DT_TYPE_F32, DT_TYPE_F64, DT_TYPE_I32, DT_TYPE_U64 };
enum dt_reduce { DT_REDUCE_SUM, DT_REDUCE_MAX, DT_REDUCE_MIN };

struct dt_comm;

/* A collective under way. Owned by the caller, who keeps it and the buffer in place until it is done. */
struct dt_request {
    const char *name; /* what time-out messages call it: "allreduce of gradient bucket 0" */
    uint64_t deadline_ns;
    bool active;
    void *handle; /* the implementation's */
};

struct dt_comm_ops {
    const char *name; /* "self", "mpi"; a test may bring its own */
    enum dt_status (*allreduce_start)(struct dt_comm *comm, void *buffer, size_t n_elems, enum dt_type type, enum dt_reduce op,
                                      struct dt_request *request); /* in place */
    enum dt_status (*broadcast_start)(struct dt_comm *comm, void *buffer, size_t n_bytes, int root, struct dt_request *request);
    enum dt_status (*allgather_start)(struct dt_comm *comm, const void *mine, void *all, size_t n_bytes_each,
                                      struct dt_request *request); /* all: size * n_bytes_each, in rank order */
    enum dt_status (*test)(struct dt_comm *comm, struct dt_request *request, bool *done); /* never blocks */
    void (*close)(struct dt_comm *comm);
};

struct dt_comm {
    const struct dt_comm_ops *ops;
    int rank, size;
    double timeout_s; /* limit of each collective from its start; DTRAIN_TIMEOUT, 2 .. 3600, default 60 */
};

enum dt_status dt_comm_open_self(struct dt_comm **out); /* one rank; needs no MPI */
enum dt_status dt_comm_open_mpi(struct dt_comm **out);  /* over a private duplicate of MPI_COMM_WORLD; after dt_world_open */
void dt_comm_close(struct dt_comm *comm);

/* Starting, testing, waiting. `name` must outlive the request. A wait past the limit is DT_STALLED and names collective and time.
 */
enum dt_status dt_comm_allreduce_start(struct dt_comm *comm, void *buffer, size_t n_elems, enum dt_type type, enum dt_reduce op,
                                       const char *name, struct dt_request *request);
enum dt_status dt_comm_test(struct dt_comm *comm, struct dt_request *request, bool *done);
enum dt_status dt_comm_wait(struct dt_comm *comm, struct dt_request *request);

/* Start and wait in one. */
enum dt_status dt_comm_allreduce(struct dt_comm *comm, void *buffer, size_t n_elems, enum dt_type type, enum dt_reduce op,
                                 const char *name);
enum dt_status dt_comm_broadcast(struct dt_comm *comm, void *buffer, size_t n_bytes, int root, const char *name);
enum dt_status dt_comm_allgather(struct dt_comm *comm, const void *mine, void *all, size_t n_bytes_each, const char *name);
enum dt_status dt_comm_barrier(struct dt_comm *comm, const char *name);

#endif
