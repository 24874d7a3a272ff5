#include "train/hooks/weights/statistics.h"

#include <stdlib.h>

#include "model/layers/layers.h"

/* Rank 0 is a worker under every strategy. */
enum dt_status dt_statistics_share(struct dt_trainer *t)
{
    float *host;
    if (t->world->size == 1 || t->model.n_buffers == 0) {
        return DT_OK;
    }
    DT_ASSERT(t->model.buffer_elems > 0);
    DT_TRY(dt_world_alloc(t->world, t->model.buffer_elems, sizeof *host, "running statistics",
                          (void **)&host));
    enum dt_status s;
    DT_TRY_GOTO(s, dt_world_agree(t->world, dt_buffers_get(t->network, host)), out);
    DT_TRY_GOTO(s,
                dt_comm_broadcast(t->world->comm, host, t->model.buffer_elems * sizeof *host, 0,
                                  "broadcast of running statistics"),
                out);
    s = dt_world_agree(t->world, dt_buffers_set(t->network, host));
out:
    free(host);
    return s;
}

/* A resumed run may have nothing left but to evaluate. */
static enum dt_status begin_run(struct dt_hook *hook, struct dt_trainer *t,
                                struct dt_run_event *start)
{
    (void)hook, (void)start;
    return dt_statistics_share(t);
}

/* The last step before the test samples come. */
static enum dt_status end_step(struct dt_hook *hook, struct dt_trainer *t, uint64_t first,
                               uint64_t last)
{
    (void)hook, (void)first;
    const bool ends = t->state.step_in_epoch == t->schedule.steps_per_epoch ||
                      last == (uint64_t)t->config.max_steps;
    return ends ? dt_statistics_share(t) : DT_OK;
}

static const struct dt_hook_ops statistics_ops = {.run_begin = begin_run, .step_end = end_step};

/* Samples of a full step's last micro-batch, its largest: of this worker, or of all. */
static size_t micro_batch(const struct dt_trainer *t, bool of_all)
{
    const size_t n_parts = (size_t)t->config.accumulate;
    struct dt_shard shard = t->set.loader.shard;
    const int begin = of_all ? 0 : shard.rank, end = of_all ? shard.size : shard.rank + 1;
    size_t n = 0;
    shard.used = 0; /* a run may resume within an epoch */
    for (shard.rank = begin; shard.rank < end; shard.rank++) {
        n += (dt_shard_draw(&shard, 0, 0).n + n_parts - 1) / n_parts;
    }
    return n;
}

/* One value has no variance: its output would be the bias alone, and no gradient would pass. Ranks
 * may differ by a sample; rank 0, whose running statistics are kept, has the fewest. */
static enum dt_status check_batch(const struct dt_trainer *t)
{
    for (int b = 0; b < t->model.n_blocks && t->roles.works; b++) {
        const struct dt_block *block = &t->model.blocks[b];
        const bool has_one = block->buffer > 0 && block->in.h * block->in.w == 1,
                   sync = has_one && t->model.spec.layers[block->row - 1].sync;
        if (has_one && micro_batch(t, sync) <= 1) {
            return dt_error(DT_CONFIG,
                            "train.batch: %s one sample at a time, of which model.layers[%d] "
                            "batch_norm can take no variance (%s)",
                            sync ? "all ranks together take" : "a rank takes", block->row - 1,
                            micro_batch(t, true) > 1
                                ? "give ranks more, or give the layer \"sync\": true"
                                : "take a larger batch, in fewer micro-batches");
        }
    }
    return DT_OK;
}

enum dt_status dt_statistics_open(struct dt_trainer *t)
{
    struct dt_hook *hook;
    if (t->model.n_buffers == 0) {
        return DT_OK;
    }
    DT_TRY(dt_world_agree(t->world, check_batch(t)));
    return dt_hook_open(t, &statistics_ops, sizeof *hook, "running statistics", (void **)&hook);
}
