/* The loader hands out what the shard says. */
#include "data/shard.h"
#include "tests/lib/check.h"
#include "tests/lib/shard_batch.h"

static const struct dt_shard example = {.mode = DT_SHARDING_SHARD,
                                        .seed = 5,
                                        .n_total = 1003,
                                        .global_batch = 96,
                                        .rank = 2,
                                        .size = 3,
                                        .shuffle = true};

static void test_batches_are_the_shards(void)
{
    struct dt_loader loader;
    uint32_t rows[64], ids[64];
    CHECK_OK(dt_loader_open(&example, &loader));
    CHECK_INT(loader.capacity, 32);
    for (uint32_t epoch = 0; epoch < 3; epoch++) {
        for (uint64_t step = 0; step < dt_shard_steps_per_epoch(&example); step++) {
            const struct dt_batch batch = dt_loader_batch(&loader, epoch, step);
            CHECK_INT(batch.n, shard_batch(&example, epoch, step, rows, ids));
            CHECK_INT(batch.epoch, epoch);
            CHECK_INT(memcmp(batch.rows, rows, (size_t)batch.n * sizeof *rows), 0);
            CHECK_INT(memcmp(batch.ids, ids, (size_t)batch.n * sizeof *ids), 0);
        }
    }
    dt_loader_close(&loader);
}

/* More ranks than samples: a loader that never has any. */
static void test_a_rank_without_samples(void)
{
    struct dt_loader loader;
    const struct dt_shard shard = {
        .mode = DT_SHARDING_SHARD, .n_total = 2, .global_batch = 4, .rank = 3, .size = 4};
    CHECK_OK(dt_loader_open(&shard, &loader));
    CHECK_INT(dt_loader_batch(&loader, 0, 0).n, 0);
    dt_loader_close(&loader);
    dt_loader_close(&loader); /* harmless */
}

int main(void)
{
    test_batches_are_the_shards();
    test_a_rank_without_samples();
    return 0;
}
