/* Sharding, as properties over many modes, sizes, batches and numbers of ranks. */
#include "data/shard.h"
#include "tests/lib/check.h"
#include "tests/lib/shard_batch.h"

#include <stdint.h>

#define MAX_N 2000
#define MAX_SIZE 8

static size_t leaf; /* of global slices; 0: none */

static struct dt_shard make(enum dt_sharding mode, size_t n_total, size_t global_batch, int rank,
                            int size, bool shuffle)
{
    return (struct dt_shard){.mode = mode,
                             .seed = 11,
                             .n_total = n_total,
                             .global_batch = global_batch,
                             .rank = rank,
                             .size = size,
                             .shuffle = shuffle,
                             .leaf = leaf};
}

/* Every rank knows since when all have had as many samples as in this step. */
static void check_like_steps(enum dt_sharding mode, size_t n_total, size_t global_batch, int size)
{
    uint32_t before[MAX_SIZE] = {0}, now[MAX_SIZE] = {0};
    const struct dt_shard first = make(mode, n_total, global_batch, 0, size, true);
    uint64_t like_step = 0;
    for (uint64_t step = 0; step < dt_shard_steps_per_epoch(&first); step++) {
        struct dt_draw draws[MAX_SIZE];
        for (int rank = 0; rank < size; rank++) {
            const struct dt_shard shard = make(mode, n_total, global_batch, rank, size, true);
            draws[rank] = dt_shard_device_draw(&shard, 0, step);
            now[rank] = draws[rank].n;
        }
        like_step = memcmp(now, before, sizeof now) == 0 ? like_step : step;
        memcpy(before, now, sizeof now);
        for (int rank = 0; rank < size; rank++) {
            CHECK_INT(draws[rank].like_step, like_step);
        }
    }
}

/* The draws of all ranks in one epoch: counts[i] is how often sample i is used. Checks everything
 * that holds in every mode. */
static void run_epoch(enum dt_sharding mode, size_t n_total, size_t global_batch, int size,
                      bool shuffle, uint32_t epoch, int *counts)
{
    uint32_t rows[MAX_N + 1], ids[MAX_N + 1];
    memset(counts, 0, n_total * sizeof *counts);
    const struct dt_shard first = make(mode, n_total, global_batch, 0, size, shuffle);
    const uint64_t n_steps = dt_shard_steps_per_epoch(&first);
    check_like_steps(mode, n_total, global_batch, size);
    for (uint64_t step = 0; step < n_steps + 2; step++) {
        size_t sum = 0;
        for (int rank = 0; rank < size; rank++) {
            const struct dt_shard shard = make(mode, n_total, global_batch, rank, size, shuffle);
            const struct dt_owned owned = dt_shard_owned(&shard);
            const int capacity = dt_shard_capacity(&shard);
            CHECK(capacity >= 1);
            CHECK_INT(dt_shard_steps_per_epoch(&shard), n_steps);
            rows[capacity] = ids[capacity] = 0xabcdef01;
            const int n = shard_batch(&shard, epoch, step, rows, ids);
            CHECK(n >= 0 && n <= capacity);
            CHECK_INT(rows[capacity], 0xabcdef01);
            CHECK_INT(ids[capacity], 0xabcdef01);
            for (int i = 0; i < n; i++) {
                CHECK(rows[i] < owned.n);
                CHECK_INT(ids[i], owned.first + rows[i] * owned.stride);
                CHECK(ids[i] < n_total);
                counts[ids[i]]++;
            }
            sum += (size_t)n;
            CHECK_INT(dt_shard_step_samples(&shard, step), dt_shard_step_samples(&first, step));
        }
        CHECK_INT(sum, dt_shard_step_samples(&first, step));
        CHECK(sum <= global_batch);
        CHECK(step < n_steps ? sum > 0
                             : sum == 0); /* no empty step, and nothing left for a step more */
    }
}

static void test_each_sample_once(void)
{
    static const size_t totals[] = {1, 2, 3, 7, 8, 16, 31, 100, 257, 1000, 1999};
    static const size_t batches[] = {1, 2, 3, 4, 5, 8, 13, 32, 100, 128, 1999, 5000};
    int counts[MAX_N];
    for (size_t t = 0; t < sizeof totals / sizeof totals[0]; t++) {
        for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
            for (int size = 1; size <= MAX_SIZE && (size_t)size <= batches[b]; size++) {
                for (int variant = 0; variant < 4; variant++) {
                    const enum dt_sharding mode =
                        variant % 2 == 0 ? DT_SHARDING_SHARD : DT_SHARDING_GLOBAL;
                    run_epoch(mode, totals[t], batches[b], size, variant < 2, 3, counts);
                    for (size_t i = 0; i < totals[t]; i++) {
                        CHECK_INT(counts[i], 1);
                    }
                }
            }
        }
    }
}

/* In replicate mode each rank passes over everything. */
static void test_replicate_uses_everything_on_every_rank(void)
{
    int counts[MAX_N];
    for (int size = 1; size <= 5; size++) {
        for (size_t batch = (size_t)size; batch < 40; batch += 7) {
            run_epoch(DT_SHARDING_REPLICATE, 101, batch, size, true, 0, counts);
            for (size_t i = 0; i < 101; i++) {
                CHECK_INT(counts[i], size);
            }
        }
    }
}

/* Rank r takes samples m r / size .. m (r + 1) / size of a step's m, in the order of one rank
 * alone. */
static void test_global_slices(void)
{
    uint32_t rows[MAX_N], ids[MAX_N], alone[MAX_N];
    for (int size = 1; size <= MAX_SIZE; size++) {
        const struct dt_shard single = make(DT_SHARDING_GLOBAL, 1000, 36, 0, 1, true);
        for (uint64_t step = 0; step < dt_shard_steps_per_epoch(&single); step++) {
            const size_t m = (size_t)shard_batch(&single, 0, step, rows, alone);
            for (int rank = 0; rank < size; rank++) {
                const struct dt_shard shard = make(DT_SHARDING_GLOBAL, 1000, 36, rank, size, true);
                const size_t begin = m * (size_t)rank / (size_t)size,
                             end = m * (size_t)(rank + 1) / (size_t)size;
                CHECK_INT(shard_batch(&shard, 0, step, rows, ids), end - begin);
                CHECK_INT(memcmp(ids, alone + begin, (end - begin) * sizeof *ids), 0);
            }
        }
    }
}

/* A device's recordings, by the key of their steps: how many samples each rank has. */
struct recorded {
    bool there;
    uint32_t n[MAX_SIZE];
};

/* As a run that was resumed takes a step. */
static void take_resumed(struct dt_shard shard, uint64_t step, struct recorded *recorded,
                         int *counts)
{
    uint32_t rows[MAX_N], ids[MAX_N], now[MAX_SIZE] = {0}, key = 0;
    for (shard.rank = 0; shard.rank < shard.size; shard.rank++) {
        const struct dt_draw draw = dt_shard_device_draw(&shard, 1, step);
        const int n = shard_batch(&shard, 1, step, rows, ids);
        CHECK(n <= dt_shard_capacity(&shard));
        CHECK_INT(n, draw.n);
        for (int i = 0; i < n; i++) {
            counts[ids[i]]++;
        }
        CHECK(shard.rank == 0 || draw.like_step == key);
        key = draw.like_step;
        now[shard.rank] = draw.n;
    }
    CHECK(!recorded[key].there || memcmp(recorded[key].n, now, sizeof now) == 0);
    recorded[key].there = true;
    memcpy(recorded[key].n, now, sizeof now);
}

/* Stopped after `n_steps` steps, and resumed again and again, each time on another number of ranks
 * and with another batch: each sample is used once, in steps that are none of them empty. */
static void resume_again_and_again(size_t n_total, uint64_t n_steps, unsigned first)
{
    static const size_t batches[] = {8, 13, 100, 9, 64, 33};
    int counts[MAX_N] = {0};
    size_t used = 0;
    for (unsigned start = first; used < n_total; start++) {
        struct recorded recorded[MAX_N] = {{.there = false}};
        struct dt_shard shard = make(DT_SHARDING_GLOBAL, n_total, batches[start % 6], 0,
                                     1 + (int)(5 * start % MAX_SIZE), true);
        shard.used = used;
        const uint64_t begin = used / shard.global_batch, end = dt_shard_steps_per_epoch(&shard);
        CHECK(begin < end);
        for (uint64_t step = begin; step < end && step < begin + n_steps; step++) {
            const size_t n = dt_shard_step_samples(&shard, step);
            CHECK(n > 0 && n <= shard.global_batch);
            take_resumed(shard, step, recorded, counts);
            used += n;
        }
    }
    CHECK_INT(used, n_total);
    for (size_t i = 0; i < n_total; i++) {
        CHECK_INT(counts[i], 1);
    }
}

static void test_resumed_with_other_batches(void)
{
    for (leaf = 0; leaf <= 8; leaf += 8) {
        for (unsigned first = 0; first < 48; first++) {
            resume_again_and_again(330, 1 + first % 5, first);
            resume_again_and_again(1999, 2 + first % 3, first);
        }
    }
    leaf = 0;
}

/* With leaves, too, each sample is used once, and a slice begins and ends with a leaf. */
static void test_leaves_stay_whole(void)
{
    static const size_t leaves[] = {1, 2, 7, 8, 64};
    uint32_t rows[MAX_N], ids[MAX_N];
    for (size_t l = 0; l < sizeof leaves / sizeof leaves[0]; l++) {
        leaf = leaves[l];
        test_each_sample_once();
        for (int rank = 0; rank < 3; rank++) {
            const struct dt_shard shard = make(DT_SHARDING_GLOBAL, 250, 100, rank, 3, false);
            for (uint64_t step = 0; step < 3; step++) {
                const size_t n = (size_t)shard_batch(&shard, 0, step, rows, ids);
                const size_t end = n > 0 ? ids[n - 1] + 1 - 100 * step : 0;
                CHECK(n == 0 || (ids[0] - 100 * step) % leaf == 0);
                CHECK(end % leaf == 0 || end == dt_shard_step_samples(&shard, step));
            }
        }
    }
    leaf = 0;
}

/* The example of docs/data.md: the first two steps of 10 samples on 3 ranks, as text. */
static void test_three_ranks_by_hand(void)
{
    static const char *const want[] = {
        [DT_SHARDING_SHARD] = "0 3 . 1 4 . 2 5 | 6 9 . 7 . 8 | ",
        [DT_SHARDING_GLOBAL] = "0 1 . 2 3 . 4 5 | 6 . 7 . 8 9 | ",
        [DT_SHARDING_REPLICATE] = "0 1 . 0 1 . 0 1 | 2 3 . 2 3 . 2 3 | ",
    };
    static const int want_steps[] = {2, 2, 5};
    for (int mode = DT_SHARDING_SHARD; mode <= DT_SHARDING_REPLICATE; mode++) {
        char text[200] = "";
        for (uint64_t step = 0; step < 2; step++) {
            for (int rank = 0; rank < 3; rank++) {
                uint32_t rows[8], ids[8];
                const struct dt_shard shard = make((enum dt_sharding)mode, 10, 6, rank, 3, false);
                CHECK_INT(dt_shard_steps_per_epoch(&shard), want_steps[mode]);
                const int n = shard_batch(&shard, 0, step, rows, ids);
                for (int i = 0; i < n; i++) {
                    sprintf(text + strlen(text), "%u ", ids[i]);
                }
                strcat(text, rank < 2 ? ". " : "| ");
            }
        }
        CHECK_TEXT(text, want[mode]);
    }
}

/* Shuffling: another order in another epoch, the same one again when asked again; apart for ranks
 * that replicate. */
static void test_epochs_differ(void)
{
    uint32_t rows[MAX_N], a[MAX_N], b[MAX_N];
    for (int mode = DT_SHARDING_SHARD; mode <= DT_SHARDING_REPLICATE; mode++) {
        const struct dt_shard shard = make((enum dt_sharding)mode, 1000, 200, 0, 2, true);
        const struct dt_shard other = make((enum dt_sharding)mode, 1000, 200, 1, 2, true);
        const size_t n_bytes = 100 * sizeof *a;
        CHECK_INT(shard_batch(&shard, 0, 0, rows, a), 100);
        shard_batch(&shard, 1, 0, rows, b);
        CHECK(memcmp(a, b, n_bytes) != 0);
        shard_batch(&shard, 0, 0, rows, b);
        CHECK_INT(memcmp(a, b, n_bytes), 0);
        shard_batch(&other, 0, 0, rows, b);
        CHECK(memcmp(a, b, n_bytes) != 0);
    }
}

/* One rank: shard and global are the same thing. */
static void test_one_rank_modes_agree(void)
{
    uint32_t rows[MAX_N], a[MAX_N], b[MAX_N];
    const struct dt_shard shard = make(DT_SHARDING_SHARD, 1000, 64, 0, 1, true);
    const struct dt_shard global = make(DT_SHARDING_GLOBAL, 1000, 64, 0, 1, true);
    for (uint64_t step = 0; step < 16; step++) {
        const int n = shard_batch(&shard, 4, step, rows, a);
        CHECK_INT(shard_batch(&global, 4, step, rows, b), n);
        CHECK_INT(memcmp(a, b, (size_t)n * sizeof *a), 0);
    }
}

/* Numbers near the limits must not wrap: 2^31 - 1 samples, and step numbers far past the end. */
static void test_large_numbers(void)
{
    uint32_t rows[8], ids[8];
    for (int mode = DT_SHARDING_SHARD; mode <= DT_SHARDING_REPLICATE; mode++) {
        const struct dt_shard shard = make((enum dt_sharding)mode, INT32_MAX, 8, 1, 2, true);
        const uint64_t n_steps = dt_shard_steps_per_epoch(&shard);
        CHECK_INT(n_steps, mode == DT_SHARDING_REPLICATE ? 536870912 : 268435456);
        const int n = shard_batch(&shard, 0, n_steps - 1, rows, ids);
        CHECK(n >= 3 && n <= 4);
        for (int i = 0; i < n; i++) {
            CHECK(ids[i] < INT32_MAX);
        }
        for (int bit = 31; bit < 64; bit++) { /* step * batch wraps to 0 */
            CHECK_INT(shard_batch(&shard, 0, (uint64_t)1 << bit, rows, ids), 0);
            CHECK_INT(dt_shard_step_samples(&shard, (uint64_t)1 << bit), 0);
        }
    }
}

int main(void)
{
    test_each_sample_once();
    test_replicate_uses_everything_on_every_rank();
    test_global_slices();
    test_resumed_with_other_batches();
    test_leaves_stay_whole();
    test_three_ranks_by_hand();
    test_epochs_differ();
    test_one_rank_modes_agree();
    test_large_numbers();
    return 0;
}
