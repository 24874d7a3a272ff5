/* Selects the samples of a rank in a step: pure functions of (mode, seed, epoch, step, rank, size).
 *
 * shard:     rank r owns the samples r, r + n, r + 2n, ...; it keeps only those and shuffles them.
 * global:    one permutation of everything; each rank takes its slice of every global batch, so
 *            that the global batches do not depend on the number of ranks.
 * replicate: every rank goes through everything, each in its own order: many tutorials do this by
 *            mistake.
 *
 * In the first two modes every sample is used exactly once an epoch, even if nothing divides
 * evenly: the last batches are short, nothing is padded or dropped, and the number of steps is the
 * same on all ranks. */
#ifndef DT_DATA_SHARD_H
#define DT_DATA_SHARD_H

#include <stddef.h>

#include "base/permutation.h"
#include "base/samples.h"
#include "base/status.h"

#define DT_SHARDING_LIST(X)         \
    X(DT_SHARDING_SHARD, "shard")   \
    X(DT_SHARDING_GLOBAL, "global") \
    X(DT_SHARDING_REPLICATE, "replicate")
enum dt_sharding { DT_SHARDING_LIST(DT_NAMED_ENUM) };

struct dt_shard {
    enum dt_sharding mode;
    uint64_t seed;
    size_t n_total;      /* samples of the whole data set */
    size_t global_batch; /* samples of a full step over all ranks; >= size */
    int rank, size;
    bool shuffle;
    size_t used; /* global: samples of this epoch before a resume; a step takes what is behind */
    size_t leaf; /* global: ranks share out a batch in multiples of it; 0: sample by sample */
};

/* The rows that a rank keeps in memory: rows i = 0 .. n-1 are the samples first + i * stride. */
struct dt_owned {
    size_t n;
    uint32_t first, stride;
};
struct dt_owned dt_shard_owned(const struct dt_shard *shard);

int dt_shard_capacity(const struct dt_shard *shard);             /* largest batch of this rank */
uint64_t dt_shard_steps_per_epoch(const struct dt_shard *shard); /* the same on every rank */

/* This rank's batch of a step; empty when the rank ran out before the others. */
struct dt_draw dt_shard_draw(const struct dt_shard *shard, uint32_t epoch, uint64_t step);
/* The same with its like_step, for a device that takes recorded steps on its own. */
struct dt_draw dt_shard_device_draw(const struct dt_shard *shard, uint32_t epoch, uint64_t step);
/* Samples that all ranks together use in this step: the divisor of the mean. */
size_t dt_shard_step_samples(const struct dt_shard *shard, uint64_t step);

/* ---- hands out a rank's batches, step by step; nothing is allocated after the open */

struct dt_loader {
    struct dt_shard shard;
    int capacity;
    uint32_t *rows, *ids; /* (capacity) */
};

enum dt_status dt_loader_open(const struct dt_shard *shard, struct dt_loader *out);
void dt_loader_close(struct dt_loader *loader);

/* The batch of a step; its arrays live until the next call. */
struct dt_batch dt_loader_batch(struct dt_loader *loader, uint32_t epoch, uint64_t step);

#endif
