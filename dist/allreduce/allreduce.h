/* Adding gradients over all ranks: the implementations behind the names of the configuration's
 * `distributed.allreduce`.
 *
 * A program gives the implementations that it links, as rows, and the algorithms
 * (algorithm.h). The first row that serves a spec opens it. Some rows only choose, and leave the
 * sum to the rows behind them:
 *
 *   compressed.c     what is sent is encoded
 *   staged.c         gradients on devices: added between the devices themselves (NCCL:
 *                    cuda/nccl_allreduce.c), or staged: by way of host memory
 *   shared_memory.c  shared_memory: in memory that the ranks of a host share, between hosts by MPI;
 *                    hierarchical: between hosts by an algorithm
 *   executor.c       an algorithm, over the wire
 *   mpi.c            MPI_Iallreduce; it serves everything that is in host memory
 */
#ifndef DT_DIST_ALLREDUCE_ALLREDUCE_H
#define DT_DIST_ALLREDUCE_ALLREDUCE_H

#include "dist/allreduce/algorithm.h"
#include "dist/ranks/comm.h"
#include "model/backend.h"

/* X(constant, name) of those that are no algorithm. */
#define DT_ALLREDUCE_OTHER_LIST(X)                 \
    X(DT_ALLREDUCE_AUTO, "auto")                   \
    X(DT_ALLREDUCE_SHARED_MEMORY, "shared_memory") \
    X(DT_ALLREDUCE_MPI, "mpi")                     \
    X(DT_ALLREDUCE_NCCL, "nccl")                   \
    X(DT_ALLREDUCE_STAGED, "staged")               \
    X(DT_ALLREDUCE_HIERARCHICAL, "hierarchical")
#define DT_ALLREDUCE_LIST(X)   \
    DT_ALLREDUCE_OTHER_LIST(X) \
    DT_ALGORITHM_LIST(X)
enum dt_allreduce_type { DT_ALLREDUCE_LIST(DT_NAMED_ENUM) DT_N_ALLREDUCE_TYPES };
/* The type of dt_algorithms[i]. */
#define DT_ALLREDUCE_OF_ALGORITHM(i) \
    ((enum dt_allreduce_type)(DT_N_ALLREDUCE_TYPES - DT_N_ALGORITHMS + (i)))
extern const char *const dt_allreduce_names[DT_N_ALLREDUCE_TYPES];

#define DT_ALLREDUCE_MAX_SLOTS 256

struct dt_allreduce;
struct dt_codec;
struct dt_error_feedback;
struct dt_host_sum;
struct dt_payload;
struct dt_allreduce_spec;

typedef enum dt_status (*dt_allreduce_open_fn)(const struct dt_allreduce_spec *spec,
                                               struct dt_allreduce **out);

/* An implementation. */
struct dt_allreduce_entry {
    bool (*serves)(const struct dt_allreduce_spec *spec);
    dt_allreduce_open_fn open; /* the spec's rows are then those behind this one */
};

/* The implementations and algorithms that a program links. */
struct dt_allreduce_entries {
    const struct dt_allreduce_entry *const *implementations; /* NULL ends them */
    const struct dt_algorithm *algorithms;
    int n_algorithms;
};

/* In the order in which a program that links several gives them. */
extern const struct dt_allreduce_entry dt_compressed_allreduce, dt_device_allreduce,
    dt_staged_allreduce, dt_shared_memory_allreduce, dt_scheduled_allreduce, dt_mpi_allreduce;

/* The program's algorithm that has the type's name; NULL: none. */
const struct dt_algorithm *dt_allreduce_algorithm(const struct dt_allreduce_entries *rows,
                                                  enum dt_allreduce_type type);

/* All slots are mandatory. */
struct dt_allreduce_ops {
    enum dt_status (*start)(struct dt_allreduce *allreduce, int slot, size_t begin, size_t end,
                            const char *name, struct dt_request *request);
    bool (*sent)(const struct dt_allreduce *allreduce, struct dt_wire_sent *out);
    void (*close)(struct dt_allreduce *allreduce);
};

/* The beginning of each implementation's own struct. */
struct dt_allreduce {
    const struct dt_allreduce_ops *ops;
    enum dt_allreduce_type type; /* what it is; never auto */
    char why[160];               /* what auto went by, or what else there is to say; or "" */
    const struct dt_algorithm *algorithm; /* goes over the wire: between all ranks or, with
                                             `shared`, between hosts; or NULL */
    struct dt_error_feedback
        *feedback; /* around it, of what this rank brings along; NULL: it encodes nothing */
    struct dt_host_sum
        *shared;          /* the ranks of a host add in memory that they share; NULL: they do not */
    struct dt_comm *comm; /* borrowed; counts, waits and names */
    struct dt_backend *backend; /* borrowed */
    float *part; /* what this rank adds goes here: n_elems zeroed floats in the backend's memory */
    const float *total; /* the sums come here; with most implementations the same memory */
};

/* For gradients that no backend has: has nothing but memory. */
extern struct dt_backend dt_program_memory;

struct dt_allreduce_spec {
    struct dt_allreduce_entries rows;
    enum dt_allreduce_type type;
    int across; /* hierarchical: which of DT_ALGORITHM_LIST goes between the hosts; 0: a ring */
    struct dt_comm *comm;       /* the world's, borrowed */
    struct dt_backend *backend; /* borrowed: in whose memory gradients lie */
    /* A module's sum between the backend's devices (model/device_module.h), where each rank has a
     * device of its own; or NULL. */
    dt_allreduce_open_fn device_open;
    size_t n_elems;
    const struct dt_codec *codec; /* of what is sent, where dt_allreduce_compresses; NULL: none */
    const struct dt_payload *payload; /* private: NULL, or what compressed.c has messages carry */
    int n_slots; /* ranges that may be under way at once, at most DT_ALLREDUCE_MAX_SLOTS */
};

/* Every rank calls it; all take the same implementation. Where shared memory is not to be had,
 * shared_memory and hierarchical become messages, and `why` says so. A failed open owes nothing.
 * DT_INTERNAL: the program links no implementation that serves. */
enum dt_status dt_allreduce_open(const struct dt_allreduce_spec *spec, struct dt_allreduce **out);
void dt_allreduce_close(struct dt_allreduce *allreduce); /* NULL is fine */

/* Begins to add elements [begin, end) over all ranks, in a slot whose last sum is done; the same on
 * every rank. `part` stays as it is until dt_comm_test or dt_comm_wait of `comm` find it done. */
enum dt_status dt_allreduce_start(struct dt_allreduce *allreduce, int slot, size_t begin,
                                  size_t end, const char *name, struct dt_request *request);

/* Counted on the wire: sent by this rank so far. False for MPI's and NCCL's own messages,
 * which cannot be counted. */
bool dt_allreduce_sent(const struct dt_allreduce *allreduce, struct dt_wire_sent *out);

/* For implementations: sets `backend`, and `part` and `total` to an array that it frees. */
enum dt_status dt_allreduce_take_memory(struct dt_allreduce *allreduce,
                                        const struct dt_allreduce_spec *spec);

#endif
