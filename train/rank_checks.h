/* The ranks of a run as people need to see them, and whether they are fit to train together. */
#ifndef DT_TRAIN_RANK_CHECKS_H
#define DT_TRAIN_RANK_CHECKS_H

#include "dist/ranks/world.h"
#include "train/config.h"

struct dt_rank_info {
    int rank, local_rank, n_threads;
    char host[DT_HOST_SIZE];
    char device[96];
    uint64_t n_samples; /* of the training set that it reads */
    bool works;         /* computes gradients */
    uint64_t held;      /* bytes of weights that it holds for the others, as a server */
};

/* Cores in this rank's affinity mask, shared out among the ranks of this host that have the same
 * mask; at least 1. `wanted` > 0 wins. */
enum dt_status dt_ranks_threads(struct dt_world *world, int64_t wanted, int *n_threads);

/* Whether every rank runs the same version of the program and has the same `text`, which is its
 * `what` ("configuration"). DT_CONFIG names the first that differs from rank 0. To be asked before
 * anything that ranks do together depends on it. */
enum dt_status dt_ranks_same(struct dt_world *world, const char *what, const char *text);

/* The same for their written configuration; names the first key that differs. */
enum dt_status dt_ranks_same_config(struct dt_world *world, const struct dt_config_format *format,
                                    const char *text);

/* Everybody's row of the roster, on every rank: `all` has world->size elements. */
enum dt_status dt_ranks_gather(struct dt_world *world, const struct dt_rank_info *mine,
                               struct dt_rank_info *all);

#endif
