/* What happens to the weights beside the steps. */
#include <stdlib.h>

#include "data/validation_split.h"
#include "dist/strategy/replica_check.h"
#include "model/layers/layers.h"
#include "train/trainer.h"

/* ---- their average */

/* A step of SGD at the rate 1 - decay, down the gradient average - weights: every backend has it,
 * and it moves an average that has arrived by exactly 0. */
static enum dt_status add_weights(struct dt_trainer *t)
{
    const double share = t->ema.begun ? 1 - t->config.ema : 1;
    DT_ASSERT(share > 0 && share <= 1);
    const struct dt_update update = {
        .type = DT_OPTIMIZER_SGD, .grad_scale = -1, .weight_decay = 1, .lr = (float)share};
    t->ema.begun = true;
    return t->backend->ops->optimizer_step(t->backend, &update, t->model.arena_elems,
                                           t->ema.average, t->network->params, NULL, NULL);
}

enum dt_status dt_ema_update(struct dt_trainer *t)
{
    if (t->ema.average == NULL) {
        return DT_OK;
    }
    dt_step_clock_start(&t->clock);
    DT_TRY(dt_strategy_share_weights(t->strategy));
    DT_TRY(add_weights(t));
    DT_TRY(t->backend->ops->sync(t->backend));
    dt_step_clock_lap(&t->clock, DT_PHASE_UPDATE);
    return DT_OK;
}

/* With the average in the network's place of the weights; its answers are not noted. */
enum dt_status dt_ema_evaluate(struct dt_trainer *t, struct dt_evaluator *evaluator,
                               struct dt_metrics *out)
{
    float *weights = t->network->params;
    struct dt_answers *answers = evaluator->answers;
    *out = (struct dt_metrics){0};
    if (!t->ema.begun) {
        return DT_OK;
    }
    t->network->params = t->ema.average;
    evaluator->answers = NULL;
    const enum dt_status s = dt_evaluator_run(evaluator, out);
    t->network->params = weights;
    evaluator->answers = answers;
    return s;
}

static enum dt_status broadcast_through(struct dt_trainer *t, float *host)
{
    const struct dt_backend_ops *ops = t->backend->ops;
    const size_t n_bytes = t->model.arena_elems * sizeof *host;
    DT_TRY(ops->copy_out(t->backend, host, t->ema.average, n_bytes));
    DT_TRY(dt_comm_broadcast(t->world->comm, host, n_bytes, 0, "broadcast of the average"));
    return ops->copy_in(t->backend, t->ema.average, host, n_bytes);
}

enum dt_status dt_ema_broadcast(struct dt_trainer *t)
{
    float *host;
    if (t->ema.average == NULL) {
        return DT_OK;
    }
    DT_TRY(dt_comm_broadcast(t->world->comm, &t->ema.begun, sizeof t->ema.begun, 0,
                             "broadcast of what there is"));
    DT_TRY(dt_world_alloc(t->world, t->model.arena_elems, sizeof *host,
                          "the average of the weights", (void **)&host));
    const enum dt_status s = t->ema.begun ? broadcast_through(t, host) : DT_OK;
    free(host);
    return s;
}

/* ---- running statistics */

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

enum dt_status dt_statistics_after_step(struct dt_trainer *t)
{
    const bool ends = t->state.step_in_epoch == t->schedule.steps_per_epoch ||
                      t->state.step == (uint64_t)t->config.max_steps;
    return ends ? dt_statistics_share(t) : DT_OK;
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

/* ---- replicas */

struct dt_replicas {
    struct dt_replica_check check;
    char hash[DT_DIGEST_SIZE];
};

enum dt_status dt_replicas_compare(struct dt_trainer *t)
{
    return dt_replica_check_run(&t->replicas->check, t->network);
}

enum dt_status dt_replicas_after_step(struct dt_trainer *t)
{
    const uint64_t every = dt_replicas_are_equal(&t->config.dist) ? t->config.dist.check_every : 0;
    if (every == 0 || t->state.step % every != 0) {
        return DT_OK;
    }
    dt_step_clock_start(&t->clock);
    DT_TRY(dt_strategy_share_weights(t->strategy));
    DT_TRY(dt_replicas_compare(t));
    dt_step_clock_lap(&t->clock, DT_PHASE_COMMUNICATION);
    return DT_OK;
}

enum dt_status dt_replicas_finish(struct dt_trainer *t, const char **hash)
{
    struct dt_replicas *replicas = t->replicas;
    if (!dt_replicas_are_equal(&t->config.dist)) {
        return t->world->size > 1 ? dt_replicas_compare(t) : DT_OK;
    }
    DT_ASSERT(replicas->hash[0] == '\0');
    *hash = replicas->hash;
    return dt_replica_check_digest(&replicas->check, t->network, replicas->hash);
}

/* ---- the test set of a run with validation samples */

/* Its files are read now without a sample, not for the first time at the end of a long run. There
 * may be none. */
static enum dt_status check_files(const struct dt_data_spec *spec, size_t *n_test)
{
    struct dt_dataset none;
    const enum dt_status s = dt_dataset_count(spec, DT_SPLIT_TEST, n_test);
    if (s == DT_NO_INPUT) {
        dt_error_clear();
        *n_test = 0;
        return DT_OK;
    }
    DT_TRY(s);
    const struct dt_owned no_rows = {.first = (uint32_t)*n_test, .stride = 1};
    DT_TRY(dt_dataset_open(spec, DT_SPLIT_TEST, no_rows, &none));
    dt_dataset_close(&none);
    return DT_OK;
}

enum dt_status dt_trainer_test(struct dt_trainer *t, struct dt_metrics *test,
                               struct dt_metrics *averaged)
{
    const struct dt_data_spec spec = dt_validation_none(&t->config.data);
    struct dt_evaluator evaluator;
    dt_comm_phase(t->world->comm, "data load");
    DT_TRY(dt_evaluator_open_all(t->world, &spec, t->network, &evaluator));
    evaluator.answers = t->evaluator.answers;
    enum dt_status s = dt_evaluator_run(&evaluator, test);
    s = s == DT_OK ? dt_ema_evaluate(t, &evaluator, averaged) : s;
    dt_evaluator_close(&evaluator);
    return s == DT_OK ? dt_trainer_check_loss(t, "test loss", test, t->state.step) : s;
}

/* ---- open and close */

enum dt_status dt_trainer_open_run(struct dt_trainer *t)
{
    DT_TRY(dt_world_agree(t->world, check_batch(t)));
    if (t->config.ema > 0) {
        DT_ASSERT(!t->driver.ops->on_device);
        DT_TRY(
            dt_world_agree(t->world, dt_floats_alloc(t->backend, "the average of the weights", "",
                                                     t->model.arena_elems, &t->ema.average)));
    }
    DT_TRY(dt_world_alloc(t->world, 1, sizeof *t->replicas, "the replica check",
                          (void **)&t->replicas));
    DT_TRY(dt_world_agree(t->world,
                          dt_replica_check_open(t->world->comm, &t->model, &t->replicas->check)));
    return t->config.data.validation > 0
               ? dt_world_agree(t->world, check_files(&t->config.data, &t->n_test))
               : DT_OK;
}

void dt_trainer_close_run(struct dt_trainer *t)
{
    if (t->ema.average != NULL) {
        dt_floats_free(t->backend, t->ema.average);
    }
    if (t->replicas != NULL) {
        dt_replica_check_close(&t->replicas->check);
        free(t->replicas);
    }
}
