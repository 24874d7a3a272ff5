/* The ways of adding gradients over all ranks, behind one interface: the configuration's `distributed.allreduce`.
 *
 *   shared_memory  in memory that the ranks of a host share (dist/allreduce/host_sum.h), and between hosts by MPI
 *   mpi            MPI_Iallreduce
 *   nccl, staged   of gradients on GPUs: between them, or by way of host memory (cuda/nccl_comm.h, dist/allreduce/staged.h)
 *   hierarchical   shared memory inside each host, a ring between the hosts
 *   all others     an algorithm of the list in algorithm.h, over the wire
 *
 * Which one it is, is decided once, here, and asked here: nobody else compares names. */
#ifndef DT_DIST_ALLREDUCE_ALLREDUCE_H
#define DT_DIST_ALLREDUCE_ALLREDUCE_H

#include "dist/allreduce/executor.h"
#include "dist/allreduce/host_sum.h"
#include "model/spec.h"

#define DT_ALLREDUCE_LIST(X)                       \
    X(DT_ALLREDUCE_AUTO, "auto")                   \
    X(DT_ALLREDUCE_SHARED_MEMORY, "shared_memory") \
    X(DT_ALLREDUCE_MPI, "mpi")                     \
    X(DT_ALLREDUCE_NCCL, "nccl")                   \
    X(DT_ALLREDUCE_STAGED, "staged")               \
    DT_ALGORITHM_LIST(X)                           \
    X(DT_ALLREDUCE_HIERARCHICAL, "hierarchical")
enum dt_allreduce_type { DT_ALLREDUCE_LIST(DT_NAMED_ENUM) DT_N_ALLREDUCE_TYPES };
extern const char *const dt_allreduce_names[DT_N_ALLREDUCE_TYPES];
const char *dt_allreduce_meaning(enum dt_allreduce_type type); /* in a few words */

#define DT_ALLREDUCE_MAX_SLOTS DT_HOST_SUM_SLOTS

/* The algorithm that this type runs over all ranks, or between hosts; NULL: none of the list. */
const struct dt_algorithm *dt_allreduce_algorithm(enum dt_allreduce_type type);
bool dt_allreduce_is_for_gpus(enum dt_allreduce_type type); /* and for them alone */

struct dt_allreduce {
    enum dt_allreduce_type type; /* what it is; never auto */
    char why[160];               /* what auto went by, or what else there is to say; or "" */
    float *part;                 /* what this rank adds goes here: the memory given, or shared memory in its place */
    const float *total;          /* the sums come here */
    struct dt_host_sum shared;   /* part NULL: not this way */
    /* private */
    struct dt_comm *comm; /* borrowed; counts, waits and names */
    struct dt_wire *wire; /* NULL: no algorithm of the list */
    struct dt_executor executor;
};

struct dt_allreduce_spec {
    enum dt_allreduce_type type;
    struct dt_comm *comm; /* the world's, borrowed */
    /* Of gradients in a device's memory: the communicator that reaches it, borrowed; `type` then says which it is: nccl or staged.
     */
    struct dt_comm *device;
    float *memory; /* borrowed; n_elems floats that are added in place, unless they get shared memory */
    size_t n_elems;
    int n_slots; /* ranges of it that may be under way at once, at most DT_ALLREDUCE_MAX_SLOTS */
};

/* Every rank calls it; all take the same way. Where shared memory is not to be had, shared_memory and hierarchical become messages,
 * and `why` says so. A failed open owes nothing. */
enum dt_status dt_allreduce_open(const struct dt_allreduce_spec *spec, struct dt_allreduce *out);
void dt_allreduce_close(struct dt_allreduce *allreduce); /* a zeroed one is fine */

/* Begins to add elements [begin, end) over all ranks, in a slot whose last sum is done; the same on every rank. dt_comm_test and
 * dt_comm_wait of the communicator move it on. */
enum dt_status dt_allreduce_start(struct dt_allreduce *allreduce, int slot, size_t begin, size_t end, const char *name,
                                  struct dt_request *request);

/* Counted on the wire: sent by this rank so far. False: nobody counts MPI's and NCCL's own messages. */
bool dt_allreduce_sent(const struct dt_allreduce *allreduce, struct dt_wire_count *out);

#endif
