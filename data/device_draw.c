/* Draws for a device that takes recorded steps on its own. */
#include "data/shard.h"

/* The first step in which a rank has as many samples as in this one. */
static uint64_t rank_like_step(struct dt_shard shard, int rank, uint64_t step)
{
    shard.rank = rank;
    const size_t n_mine = dt_shard_owned(&shard).n, per_step = (size_t)dt_shard_capacity(&shard);
    const uint64_t n_full = n_mine / per_step, n_steps = (n_mine + per_step - 1) / per_step;
    DT_ASSERT(n_full <= n_steps && per_step > 0);
    return step < n_full ? 0 : step < n_steps ? n_full : n_steps;
}

/* A rank's batches become no larger in the course of an epoch, once the first one after a resume is
 * over. */
static uint64_t like_step(const struct dt_shard *shard, uint64_t step)
{
    if (shard->mode == DT_SHARDING_GLOBAL) {
        const uint64_t n_steps = dt_shard_steps_per_epoch(shard);
        return dt_shard_step_samples(shard, step) == shard->global_batch ? 0
               : step * shard->global_batch < shard->used                ? n_steps
                                                                         : step;
    }
    uint64_t last = 0;
    for (int rank = 0; rank < shard->size; rank++) {
        const uint64_t like = rank_like_step(*shard, rank, step);
        last = like > last ? like : last;
    }
    return last;
}

struct dt_draw dt_shard_device_draw(const struct dt_shard *shard, uint32_t epoch, uint64_t step)
{
    struct dt_draw draw = dt_shard_draw(shard, epoch, step);
    draw.like_step = (uint32_t)like_step(shard, step);
    DT_ASSERT(draw.like_step <= step || draw.like_step <= dt_shard_steps_per_epoch(shard));
    return draw;
}
