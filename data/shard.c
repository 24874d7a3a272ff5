#include "data/shard.h"

#include <stdlib.h>

#include "base/arithmetic.h"

/* Rank r's part when n things are cut into `size` contiguous slices as even as can be. */
static size_t slice_begin(size_t n, int rank, int size)
{
    DT_ASSERT(rank >= 0 && rank <= size && n <= SIZE_MAX / (size_t)(size + 1));
    return n * (size_t)rank / (size_t)size;
}

/* The same in whole leaves; only the last one may be short. */
static size_t leaf_begin(const struct dt_shard *shard, size_t n, int rank)
{
    const size_t leaf = shard->leaf > 0 ? shard->leaf : 1;
    return dt_min_size(n, leaf * slice_begin((n + leaf - 1) / leaf, rank, shard->size));
}

/* Samples that a rank keeps. */
static size_t rank_samples(const struct dt_shard *shard, int rank)
{
    DT_ASSERT(rank >= 0 && rank < shard->size);
    if (shard->mode != DT_SHARDING_SHARD) {
        return shard->n_total;
    }
    const size_t r = (size_t)rank, size = (size_t)shard->size;
    return shard->n_total > r ? (shard->n_total - r + size - 1) / size : 0;
}

/* Samples that are used one after the other in an epoch, and how many of them in a step: a rank's,
 * or (global) those of all ranks together. */
struct run {
    size_t n_samples, per_step;
};

static int n_runs(const struct dt_shard *shard)
{
    return shard->mode == DT_SHARDING_GLOBAL ? 1 : shard->size;
}

static struct run run_of(const struct dt_shard *shard, int rank)
{
    DT_ASSERT(shard->global_batch >= (size_t)shard->size);
    const int n = n_runs(shard), r = rank % n;
    return (struct run){.n_samples = rank_samples(shard, r),
                        .per_step = slice_begin(shard->global_batch, r + 1, n) -
                                    slice_begin(shard->global_batch, r, n)};
}

/* The stretch of a rank's run in this step: its begin and its length. */
static size_t stretch_of(const struct dt_shard *shard, int rank, uint64_t step, size_t *n)
{
    const struct run run = run_of(shard, rank);
    const size_t n_steps = dt_min_size(step, run.n_samples);
    const size_t begin = dt_min_size(n_steps * run.per_step, run.n_samples),
                 end = begin + dt_min_size(run.per_step, run.n_samples - begin);
    *n = end - dt_min_size(end, dt_max_size(begin, shard->used));
    DT_ASSERT(begin <= end && end <= run.n_samples && *n <= run.per_step);
    return end - *n;
}

/* The stretch of its order that this rank uses in this step. */
static size_t my_step(const struct dt_shard *shard, uint64_t step, size_t *n)
{
    const size_t begin = stretch_of(shard, shard->rank, step, n);
    if (shard->mode != DT_SHARDING_GLOBAL) {
        return begin;
    }
    const size_t mine = leaf_begin(shard, *n, shard->rank);
    *n = leaf_begin(shard, *n, shard->rank + 1) - mine;
    DT_ASSERT(begin + mine + *n <= shard->n_total);
    return begin + mine;
}

struct dt_owned dt_shard_owned(const struct dt_shard *shard)
{
    DT_ASSERT(shard->rank >= 0 && shard->rank < shard->size);
    const bool all = shard->mode != DT_SHARDING_SHARD;
    return (struct dt_owned){
        .n = rank_samples(shard, shard->rank),
        .first = all ? 0 : (uint32_t)shard->rank,
        .stride = all ? 1 : (uint32_t)shard->size,
    };
}

int dt_shard_capacity(const struct dt_shard *shard)
{
    const struct run run = run_of(shard, shard->rank);
    size_t n = dt_min_size(run.per_step, run.n_samples);
    if (shard->mode ==
        DT_SHARDING_GLOBAL) { /* a shorter batch can give a rank one sample more than a full one */
        const size_t leaf = shard->leaf > 0 ? shard->leaf : 1, size = (size_t)shard->size;
        n = dt_min_size(n, leaf * (((n + leaf - 1) / leaf + size - 1) / size));
    }
    return n > 0 ? (int)n : 1;
}

uint64_t dt_shard_steps_per_epoch(const struct dt_shard *shard)
{
    size_t n_steps = 0;
    for (int i = 0; i < n_runs(shard); i++) {
        const struct run run = run_of(shard, i);
        n_steps = dt_max_size(n_steps, (run.n_samples + run.per_step - 1) / run.per_step);
    }
    return n_steps;
}

struct dt_draw dt_shard_draw(const struct dt_shard *shard, uint32_t epoch, uint64_t step)
{
    size_t n;
    const size_t begin = my_step(shard, step, &n);
    const struct dt_owned owned = dt_shard_owned(shard);
    DT_ASSERT(begin + n <= owned.n && n <= (size_t)dt_shard_capacity(shard));
    DT_ASSERT(n == 0 || step < dt_shard_steps_per_epoch(shard));
    const uint32_t stream = shard->mode == DT_SHARDING_GLOBAL ? 0 : (uint32_t)shard->rank;
    return (struct dt_draw){.order =
                                dt_permutation_make(shard->seed, stream, epoch, (uint32_t)owned.n),
                            .shuffle = shard->shuffle,
                            .begin = (uint32_t)begin,
                            .n = (uint32_t)n,
                            .first_id = owned.first,
                            .id_stride = owned.stride};
}

size_t dt_shard_step_samples(const struct dt_shard *shard, uint64_t step)
{
    size_t sum = 0;
    for (int i = 0; i < n_runs(shard); i++) {
        size_t n;
        stretch_of(shard, i, step, &n);
        sum += n;
    }
    DT_ASSERT(sum <= shard->global_batch);
    return sum;
}

enum dt_status dt_loader_open(const struct dt_shard *shard, struct dt_loader *out)
{
    DT_ASSERT(shard->used == 0 || shard->mode == DT_SHARDING_GLOBAL);
    DT_ASSERT(shard->leaf == 0 || shard->mode == DT_SHARDING_GLOBAL);
    const int capacity = dt_shard_capacity(shard);
    const size_t n_bytes = (size_t)capacity * sizeof(uint32_t);
    *out = (struct dt_loader){
        .shard = *shard, .capacity = capacity, .rows = malloc(n_bytes), .ids = malloc(n_bytes)};
    if (out->rows == NULL || out->ids == NULL) {
        dt_loader_close(out);
        return dt_error(DT_NO_MEMORY, "no memory for the sample numbers of a batch of %d",
                        capacity);
    }
    return DT_OK;
}

void dt_loader_close(struct dt_loader *loader)
{
    free(loader->rows);
    free(loader->ids);
    *loader = (struct dt_loader){0};
}

struct dt_batch dt_loader_batch(struct dt_loader *loader, uint32_t epoch, uint64_t step)
{
    const struct dt_draw draw = dt_shard_draw(&loader->shard, epoch, step);
    DT_ASSERT(draw.n <= (uint32_t)loader->capacity);
    for (uint32_t i = 0; i < draw.n; i++) {
        loader->rows[i] = dt_draw_row(&draw, i);
        loader->ids[i] = dt_draw_id(&draw, loader->rows[i]);
        DT_ASSERT(loader->ids[i] < loader->shard.n_total);
    }
    return (struct dt_batch){
        .n = (int)draw.n, .rows = loader->rows, .ids = loader->ids, .epoch = epoch};
}
