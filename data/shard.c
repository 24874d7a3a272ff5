#include "data/shard.h"

#include "base/arithmetic.h"

/* Rank r's part when n things are cut into `size` contiguous slices as even as can be. */
static size_t slice_begin(size_t n, int rank, int size)
{
    return n * (size_t)rank / (size_t)size;
}

/* The same in whole leaves; only the last one may be short. */
static size_t leaf_begin(const struct dt_shard *shard, size_t n, int rank)
{
    const size_t leaf = shard->leaf > 0 ? shard->leaf : 1;
    return dt_min_size(n, leaf * slice_begin((n + leaf - 1) / leaf, rank, shard->size));
}

size_t dt_shard_batch_of(const struct dt_shard *shard, int rank)
{
    return slice_begin(shard->global_batch, rank + 1, shard->size) -
           slice_begin(shard->global_batch, rank, shard->size);
}

size_t dt_shard_samples_of(const struct dt_shard *shard, int rank)
{
    if (shard->mode != DT_SHARDING_SHARD) {
        return shard->n_total;
    }
    const size_t r = (size_t)rank, size = (size_t)shard->size;
    return shard->n_total > r ? (shard->n_total - r + size - 1) / size : 0;
}

/* First of a rank's own samples in this step, and their number (shard, replicate). */
static size_t rank_step(const struct dt_shard *shard, int rank, uint64_t step, size_t *n)
{
    const size_t n_mine = dt_shard_samples_of(shard, rank),
                 per_step = dt_shard_batch_of(shard, rank);
    const size_t begin = step < n_mine ? dt_min_size((size_t)step * per_step, n_mine) : n_mine;
    *n = dt_min_size(per_step, n_mine - begin);
    return begin;
}

/* The same of all ranks together, in the epoch's one order (global). */
static size_t global_step(const struct dt_shard *shard, uint64_t step, size_t *n)
{
    const size_t begin = step < shard->n_total
                             ? dt_min_size((size_t)step * shard->global_batch, shard->n_total)
                             : shard->n_total;
    *n = dt_min_size(shard->global_batch, shard->n_total - begin);
    return begin;
}

/* The stretch of its order that this rank uses in this step. */
static size_t my_step(const struct dt_shard *shard, uint64_t step, size_t *n)
{
    if (shard->mode != DT_SHARDING_GLOBAL) {
        return rank_step(shard, shard->rank, step, n);
    }
    size_t n_global;
    const size_t begin = global_step(shard, step, &n_global),
                 mine = leaf_begin(shard, n_global, shard->rank);
    *n = leaf_begin(shard, n_global, shard->rank + 1) - mine;
    return begin + mine;
}

struct dt_owned dt_shard_owned(const struct dt_shard *shard)
{
    const bool all = shard->mode != DT_SHARDING_SHARD;
    return (struct dt_owned){
        .n = dt_shard_samples_of(shard, shard->rank),
        .first = all ? 0 : (uint32_t)shard->rank,
        .stride = all ? 1 : (uint32_t)shard->size,
    };
}

int dt_shard_capacity(const struct dt_shard *shard)
{
    size_t n = dt_shard_batch_of(shard, shard->rank);
    if (shard->mode ==
        DT_SHARDING_GLOBAL) { /* a shorter batch can give a rank one sample more than a full one */
        const size_t leaf = shard->leaf > 0 ? shard->leaf : 1, size = (size_t)shard->size,
                     most = dt_min_size(shard->global_batch, shard->n_total);
        n = dt_min_size(most, leaf * (((most + leaf - 1) / leaf + size - 1) / size));
    }
    n = dt_min_size(n, dt_shard_samples_of(shard, shard->rank));
    return n > 0 ? (int)n : 1;
}

uint64_t dt_shard_steps_per_epoch(const struct dt_shard *shard)
{
    if (shard->mode == DT_SHARDING_GLOBAL) {
        return (shard->n_total + shard->global_batch - 1) / shard->global_batch;
    }
    uint64_t n_steps = 0;
    for (int rank = 0; rank < shard->size; rank++) {
        const size_t per_step = dt_shard_batch_of(shard, rank);
        const uint64_t n = (dt_shard_samples_of(shard, rank) + per_step - 1) / per_step;
        n_steps = n > n_steps ? n : n_steps;
    }
    return n_steps;
}

struct dt_draw dt_shard_draw(const struct dt_shard *shard, uint32_t epoch, uint64_t step)
{
    size_t n;
    const size_t begin = my_step(shard, step, &n);
    const struct dt_owned owned = dt_shard_owned(shard);
    const uint32_t stream = shard->mode == DT_SHARDING_GLOBAL ? 0 : (uint32_t)shard->rank;
    return (struct dt_draw){.order =
                                dt_permutation_make(shard->seed, stream, epoch, (uint32_t)owned.n),
                            .shuffle = shard->shuffle,
                            .begin = (uint32_t)begin,
                            .n = (uint32_t)n,
                            .first_id = owned.first,
                            .id_stride = owned.stride};
}

int dt_shard_batch(const struct dt_shard *shard, uint32_t epoch, uint64_t step, uint32_t *rows,
                   uint32_t *ids)
{
    const struct dt_draw draw = dt_shard_draw(shard, epoch, step);
    for (uint32_t i = 0; i < draw.n; i++) {
        rows[i] = dt_draw_row(&draw, i);
        ids[i] = dt_draw_id(&draw, rows[i]);
    }
    return (int)draw.n;
}

size_t dt_shard_step_samples(const struct dt_shard *shard, uint64_t step)
{
    size_t n;
    if (shard->mode == DT_SHARDING_GLOBAL) {
        global_step(shard, step, &n);
        return n;
    }
    size_t sum = 0;
    for (int rank = 0; rank < shard->size; rank++) {
        rank_step(shard, rank, step, &n);
        sum += n;
    }
    return sum;
}
