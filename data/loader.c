#include "data/loader.h"

#include <stdlib.h>

enum dt_status dt_loader_open(const struct dt_shard *shard, struct dt_loader *out)
{
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
    const int n = dt_shard_batch(&loader->shard, epoch, step, loader->rows, loader->ids);
    return (struct dt_batch){.n = n, .rows = loader->rows, .ids = loader->ids, .epoch = epoch};
}
