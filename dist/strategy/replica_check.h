/* Are the replicas still equal? A hash (XXH3-128, xxHash library) of every parameter tensor,
 * compared over all ranks. */
#ifndef DT_DIST_STRATEGY_REPLICA_CHECK_H
#define DT_DIST_STRATEGY_REPLICA_CHECK_H

#include "dist/ranks/comm.h"
#include "dist/strategy/dist_spec.h"
#include "model/network.h"

/* Whether they are meant to be: ranks begin with the same weights and take the same steps. */
static inline bool dt_replicas_are_equal(const struct dt_dist_spec *dist)
{
    return dist->average && dist->broadcast;
}

struct dt_replica_check {
    struct dt_comm *comm;         /* borrowed */
    const struct dt_model *model; /* borrowed */
    float *host;                  /* owned: a piece of a tensor */
    void *hashes;                 /* owned: 16 bytes a tensor, this rank's and then everybody's */
};

enum dt_status dt_replica_check_open(struct dt_comm *comm, const struct dt_model *model,
                                     struct dt_replica_check *out);
void dt_replica_check_close(struct dt_replica_check *check);

/* DT_INTERNAL names, on every rank alike, the first tensor that differs, and the ranks that differ
 * from the majority; without a majority, as of two ranks, which ranks have the same. */
enum dt_status dt_replica_check_run(struct dt_replica_check *check, struct dt_network *network);

/* A hash of all tensors of this rank, in hexadecimal: the same for the same weights. Local. */
#define DT_DIGEST_SIZE 33
enum dt_status dt_replica_check_digest(struct dt_replica_check *check, struct dt_network *network,
                                       char out[DT_DIGEST_SIZE]);

#endif
