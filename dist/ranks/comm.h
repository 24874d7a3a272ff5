/* Collectives that cannot hang: every one has a name and a time limit, and none blocks inside MPI.
 *
 * Debian's MPICH spins without yielding, so a blocking allreduce of 4 ranks on 2 cores costs a
 * scheduler slice of 8 ms; starting the non-blocking call, testing it, and yielding after some
 * tries costs 15 us. The same loop watches the clock. Every rank calls each of these with the same
 * arguments in the same order. */
#ifndef DT_DIST_RANKS_COMM_H
#define DT_DIST_RANKS_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* X(constant, C's type, MPI's) of those that can be reduced. MPICH 4.0 compares unsigned numbers as
 * if they had a sign: no bytes, and max and min of DT_TYPE_U64 only below 2^63. Its sums wrap
 * around. */
#define DT_TYPE_LIST(X)                  \
    X(DT_TYPE_F32, float, MPI_FLOAT)     \
    X(DT_TYPE_F64, double, MPI_DOUBLE)   \
    X(DT_TYPE_I32, int32_t, MPI_INT32_T) \
    X(DT_TYPE_U64, uint64_t, MPI_UINT64_T)
enum dt_type { DT_TYPE_LIST(DT_NAMED_ENUM) };
size_t dt_type_bytes(enum dt_type type);
enum dt_reduce { DT_REDUCE_SUM, DT_REDUCE_MAX, DT_REDUCE_MIN };

/* A collective under way. The caller owns it, and keeps the buffer in place until it is done. */
struct dt_request {
    const char *name; /* what time-out messages call it: "allreduce of gradient bucket 0" */
    bool active;
    uint64_t sequence; /* its number in the communicator, from 1; the same on every rank */
    void *handle;      /* the implementation's */
    /* Does a piece of the work and returns whether all is done, for a collective that is built on
     * top (dist/allreduce/host_sum.h); else NULL. */
    enum dt_status (*progress)(struct dt_request *request, bool *done);
    int slot; /* of `progress` */
};

struct dt_comm {
    int rank, size;
    int local_rank, local_size; /* among the ranks that share memory with this one: its host's */
    int n_hosts;
    int host_root;   /* the first rank of this host */
    int *host_roots; /* of each rank: the first rank of its host; NULL: each has its own host */
    /* Ways between several hosts, which dt_comm_close closes: the k-th rank of every host in one
     * communicator, in the order of the hosts' first ranks. So many as the smallest host has ranks;
     * NULL on all further ranks. */
    int n_across;           /* 0: one host */
    struct dt_comm *across; /* starts and tests; its members wait and are named in this one */
    struct dt_comm_private *private; /* comm_private.h */
};

enum dt_status dt_comm_open_self(struct dt_comm **out); /* one rank; needs no MPI */
/* Over a private duplicate of MPI_COMM_WORLD, as if each rank were on a host of its own; and with
 * the hosts known. After MPI_Init. */
enum dt_status dt_comm_open_mpi(struct dt_comm **out);
enum dt_status dt_comm_open_hosts(struct dt_comm **out);
/* The first n ranks of a communicator in one of their own; NULL on the others. Every rank of `comm`
 * calls it; each that got one closes it. */
enum dt_status dt_comm_open_first(struct dt_comm *comm, int n, struct dt_comm **out);
void dt_comm_close(struct dt_comm *comm);

/* The limit of each wait, in seconds during which this process itself was not stopped; 60 without
 * a call. Returns what it was. */
double dt_comm_set_timeout(struct dt_comm *comm, double seconds);
double dt_comm_timeout_s(const struct dt_comm *comm);
/* What this rank does at each look of a wait and at each sign of life; NULL: nothing. */
void dt_comm_meanwhile(struct dt_comm *comm, void (*call)(void *context), void *context);
/* From now on nothing that this rank sends in messages arrives, on other hosts either: an injected
 * fault. */
void dt_comm_cut(struct dt_comm *comm);
/* Wires that open from now on are first handed to `wrap`, which may put others around them. */
struct dt_wire;
void dt_comm_wrap_wires(struct dt_comm *comm, enum dt_status (*wrap)(struct dt_wire **wire));

/* Starting, testing, waiting. `name` must outlive the request. A wait past the limit is DT_STALLED
 * and names the collective, the time, and the ranks that are missing; the program can then only end
 * (dt_world_exit). A rank that sees none missing on its own host waits 1.5 s longer, so that the
 * host where one is can name it first. An MPI error is DT_STALLED too, or DT_INTERNAL where the
 * call itself was wrong. One message holds 2^31 - 1 elements at most: DT_CONFIG. */
enum dt_status dt_comm_allreduce_start(struct dt_comm *comm, void *buffer, size_t n_elems,
                                       enum dt_type type, enum dt_reduce op, const char *name,
                                       struct dt_request *request);
/* For what is built on top: counts a collective that begins (n_bytes or 0), and one more, which
 * began and ended within it. */
void dt_comm_request_begin(struct dt_comm *comm, const char *name, size_t n_bytes,
                           struct dt_request *request);
void dt_comm_part_ended(struct dt_comm *comm);
enum dt_status dt_comm_test(struct dt_comm *comm, struct dt_request *request, bool *done);
enum dt_status dt_comm_wait(struct dt_comm *comm, struct dt_request *request);
/* DT_STALLED after the limit of a wait, as soon as no other rank may know more. */
enum dt_status dt_comm_judge(struct dt_comm *comm, const struct dt_request *request,
                             double waited_s);

/* A sign of life between the pieces of long work of this rank's own. A dt_alive.show: `comm` is a
 * struct dt_comm. */
void dt_comm_alive(void *comm);

/* Says what this rank is about to do, for others who tell what they last saw of it. */
#define DT_PHASE_OPENING "opening the GPU" /* dist/liveness/table.h: it may last */
void dt_comm_phase(struct dt_comm *comm, const char *name);

/* Start and wait in one. Longer buffers than one message holds go in pieces. */
enum dt_status dt_comm_allreduce(struct dt_comm *comm, void *buffer, size_t n_elems,
                                 enum dt_type type, enum dt_reduce op, const char *name);
enum dt_status dt_comm_broadcast(struct dt_comm *comm, void *buffer, size_t n_bytes, int root,
                                 const char *name);
enum dt_status dt_comm_allgather(struct dt_comm *comm, const void *mine, void *all,
                                 size_t n_bytes_each, const char *name);
enum dt_status dt_comm_barrier(struct dt_comm *comm, const char *name);
enum dt_status dt_comm_all(struct dt_comm *comm, bool mine, const char *name,
                           bool *all); /* whether it is so on every rank */

#endif
