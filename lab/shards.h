/* `dtrain lab shards`: its results, text and page. */
#ifndef DT_LAB_SHARDS_H
#define DT_LAB_SHARDS_H

#include "lab/golden.h"
#include "lab/images.h"

#define DT_SHARDS_MODES 3                          /* shard, global, replicate */
#define DT_SHARDS_MAX_SHOWN (2 * DT_LAB_MAX_RANKS) /* samples of the example: two for each rank */

/* A way of sharing, and its results after one epoch. */
struct dt_sharing {
    const char *name, *meaning;
    uint64_t n_steps;
    int least, most; /* uses of a sample, by all ranks together */
    int n_labels;    /* the most labels that a rank sees */
    double accuracy; /* on the test set after the epoch; the mean, if ranks train alone */
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
