/* Hands out a rank's batches, step by step. Nothing is allocated after the open. */
#ifndef DT_DATA_LOADER_H
#define DT_DATA_LOADER_H

#include "base/samples.h"
#include "base/status.h"
#include "data/shard.h"

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
