/* `dtrain lab shards`: what is told and what is drawn of it. */
#ifndef DT_LAB_SHARDS_H
#define DT_LAB_SHARDS_H

#include "lab/golden.h"
#include "lab/images.h"

#define DT_SHARDS_MODES 3                          /* shard, global, replicate */
#define DT_SHARDS_MAX_SHOWN (2 * DT_LAB_MAX_RANKS) /* samples of the example: two for each rank */

/* A way of sharing, and what comes of it in one epoch. */
struct dt_sharing {
    const char *name, *meaning;
    uint64_t n_steps;
    int least, most; /* how often a sample is used, by all ranks together */
    int n_labels;    /* that a rank sees, at most */
    double accuracy; /* on the test set after the epoch; of ranks that train alone, their mean */
};

#define DT_SHARDS_MAX_SHARINGS 7

struct dt_shards_lesson {
    int n_ranks, n_shown;                          /* samples of the example */
    int n_used[DT_SHARDS_MODES][DT_LAB_MAX_RANKS]; /* by each rank, in this order: */
    uint32_t used[DT_SHARDS_MODES][DT_LAB_MAX_RANKS][DT_SHARDS_MAX_SHOWN];
    struct dt_sharing sharings[DT_SHARDS_MAX_SHARINGS];
    struct dt_golden golden;
};

enum dt_status dt_shards_page(const char *path, const struct dt_shards_lesson *lesson);

#endif
