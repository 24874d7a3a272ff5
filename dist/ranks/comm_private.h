/* What a communicator holds beyond what comm.h shows, for dist/ alone. */
#ifndef DT_DIST_RANKS_COMM_PRIVATE_H
#define DT_DIST_RANKS_COMM_PRIVATE_H

#include <mpi.h>

#include "dist/ranks/comm.h"

/* Starts, tests and ends over MPI. All slots are mandatory. */
struct dt_comm_ops {
    enum dt_status (*allreduce_start)(struct dt_comm *comm, void *buffer, size_t n_elems,
                                      enum dt_type type, enum dt_reduce op,
                                      struct dt_request *request); /* in place */
    enum dt_status (*broadcast_start)(struct dt_comm *comm, void *buffer, size_t n_bytes, int root,
                                      struct dt_request *request);
    enum dt_status (*allgather_start)(
        struct dt_comm *comm, const void *mine, void *all, size_t n_bytes_each,
        struct dt_request *request); /* all: size * n_bytes_each, in rank order */
    /* Never blocks. The handle and the name are a request's. */
    enum dt_status (*test)(void **handle, const char *name, bool *done);
    void (*close)(struct dt_comm *comm);
};

/* Says which ranks are late (liveness/table.h). All slots are mandatory. */
struct dt_liveness_ops {
    enum dt_status (*open)(struct dt_comm *comm);          /* another one, for that communicator */
    void (*phase)(struct dt_comm *comm, const char *name); /* what this rank does now */
    /* A sign of life, with n_started and n_done. `begins`: a collective of n_bytes, or NULL. */
    void (*alive)(struct dt_comm *comm, const char *begins, size_t n_bytes);
    /* Which ranks hold this collective up: "rank 2 has not arrived; ...". Returns how many seconds
     * more than usual they have, or ranks elsewhere, who may know them where this one does not. */
    double (*explain)(struct dt_comm *comm, const struct dt_request *request, char *text,
                      size_t n_text);
    /* True for the first rank of this host that asks, of errors that all ranks agree on and of
     * others apart. */
    bool (*claim)(struct dt_comm *comm, bool agreed);
    void (*close)(struct dt_comm *comm);
};

struct dt_comm_private {
    struct dt_comm base;           /* first; base.private is this struct */
    const struct dt_comm_ops *ops; /* NULL: of one rank, a collective is done as it starts */
    MPI_Comm all;                  /* private, so that no message can meet another's */
    MPI_Comm host; /* the ranks that share memory with this one (hosts.c), or MPI_COMM_NULL */
    const struct dt_liveness_ops *liveness; /* NULL: a late rank has no name */
    struct dt_liveness_table *table;
    uint64_t n_started, n_done; /* collectives that this rank has entered; waits that have ended,
                                   which come in the same order on all ranks */
    bool stalled;               /* a wait was too long: ranks no longer wait for each other */
    int silent;       /* the rank of this host that a stall was put down to, or -1: none */
    bool cut;         /* dt_comm_cut */
    double timeout_s; /* dt_comm_set_timeout */
    void (*meanwhile)(void *context); /* dt_comm_meanwhile */
    void *meanwhile_context;
    enum dt_status (*wrap)(struct dt_wire **wire); /* dt_comm_wrap_wires */
};

/* One on a host of its own, without `ops`. NULL: no memory. */
struct dt_comm_private *dt_comm_new(int rank, int size);
/* Over the ranks of `all`, which it owns from then on, or frees if it fails. */
enum dt_status dt_comm_open_over(MPI_Comm all, struct dt_comm **out);
enum dt_status dt_comm_mpi_error(int code, const char *name);
void dt_comm_wait_ended(struct dt_comm *comm);

#endif
