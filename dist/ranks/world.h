/* The ranks of this job: who they are, and how they agree. launch/job.h has how they begin and end.
 * Rank and size come from MPI alone, the local rank from MPI_Comm_split_type. */
#ifndef DT_DIST_RANKS_WORLD_H
#define DT_DIST_RANKS_WORLD_H

#include "dist/ranks/comm.h"

#define DT_HOST_SIZE 64

struct dt_world {
    int rank, size;
    int local_rank, local_size; /* among the ranks of this host */
    char host[DT_HOST_SIZE];
    struct dt_comm *comm;      /* owned by the world */
    bool reports_error;        /* private: this rank prints an error that not all ranks know of */
    struct dt_report *reports; /* private: room for dt_world_agree */
};

void dt_world_close(struct dt_world *world); /* the communicator and all */

/* All ranks call this with their own status; all return the same one: DT_OK if all are, else that
 * of the lowest failing rank, whose error text every rank then has in dt_error_text(), headed by
 * "rank R (HOST): " when not all ranks failed alike, and which dt_error_is_agreed. DT_STALLED: they
 * could not agree; each keeps its own text. */
enum dt_status dt_world_agree(struct dt_world *world, enum dt_status mine);

/* n zeroed items of n_bytes for every rank, or for none: DT_NO_MEMORY, agreed, says `what` they
 * were for. Every rank calls it, each with a number of its own; the caller frees. */
enum dt_status dt_world_alloc(struct dt_world *world, size_t n, size_t n_bytes, const char *what,
                              void **out);

#endif
