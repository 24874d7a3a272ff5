/* The ranks of a run as people need to see them, and whether they are fit to train together. */
#ifndef DT_CLI_RANKS_H
#define DT_CLI_RANKS_H

#include <sched.h>

#include "cli/config.h"
#include "dist/world.h"

struct dt_rank_info {
    int rank, local_rank, pid, n_threads;
    char host[DT_HOST_SIZE];
    char device[64];
    char version[32];
    char data[160]; /* what this rank reads */
    uint32_t config_crc;
    cpu_set_t cores; /* its affinity mask */
};

/* Cores in this rank's affinity mask, shared out among the ranks of this host that have the same mask; at least 1. `wanted` > 0
 * wins. */
enum dt_status dt_ranks_threads(struct dt_world *world, int64_t wanted, int *n_threads);

/* Everybody's row of the roster, on every rank: `all` has world->size elements. DT_CONFIG when a rank runs another version of the
 * program or has read another configuration: it is named. */
enum dt_status dt_ranks_gather(struct dt_world *world, const struct dt_rank_info *mine, struct dt_rank_info *all);

void dt_ranks_print(FILE *out, const struct dt_rank_info *all, int size);

#endif
