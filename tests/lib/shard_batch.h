/* A rank's batch of a step as arrays of at least dt_shard_capacity elements. */
#ifndef TESTS_LIB_SHARD_BATCH_H
#define TESTS_LIB_SHARD_BATCH_H

#include "data/shard.h"

static inline int shard_batch(const struct dt_shard *shard, uint32_t epoch, uint64_t step,
                              uint32_t *rows, uint32_t *ids)
{
    const struct dt_draw draw = dt_shard_draw(shard, epoch, step);
    for (uint32_t i = 0; i < draw.n; i++) {
        rows[i] = dt_draw_row(&draw, i);
        ids[i] = dt_draw_id(&draw, rows[i]);
    }
    return (int)draw.n;
}

#endif
