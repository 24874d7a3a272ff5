#include "cli/trainer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/data_spec.h"
#include "cli/ranks.h"
#include "dist/comm_staged.h"

static size_t global_batch(const struct dt_config *config, int world_size)
{
    return config->batch_global > 0 ? (size_t)config->batch_global : (size_t)config->batch_per_rank * (size_t)world_size;
}

static enum dt_status check_batch(const struct dt_config *config, size_t batch, size_t n_train, int world_size)
{
    if (batch < (size_t)world_size) {
        return dt_error(DT_CONFIG,
                        "train.batch.global: %zu is smaller than the number of ranks %d (use a larger batch or fewer ranks)", batch,
                        world_size);
    }
    if (batch > n_train && config->sharding != DT_SHARDING_REPLICATE) {
        return dt_error(DT_CONFIG, "train.batch: %zu samples a step, but the training set has %zu (use a smaller batch)", batch,
                        n_train);
    }
    return DT_OK;
}

enum dt_status dt_trainer_shard(const struct dt_config *config, int rank, int size, struct dt_shard *out)
{
    *out = (struct dt_shard){.mode = config->sharding,
                             .seed = (uint64_t)config->seed,
                             .global_batch = global_batch(config, size),
                             .rank = rank,
                             .size = size,
                             .shuffle = config->shuffle};
    DT_TRY(dt_dataset_count(&config->data, DT_SPLIT_TRAIN, &out->n_total));
    return check_batch(config, out->global_batch, out->n_total, size);
}

/* Refuses what cannot fit before the machine starts to swap: the ranks of a host share its memory. A GPU does not swap. */
static enum dt_status check_memory(const struct dt_trainer *t)
{
    if (t->device.cuda != NULL) {
        return DT_OK;
    }
    const double gib = 1024.0 * 1024.0 * 1024.0;
    const double need = (double)dt_model_n_bytes(&t->model, t->micro_capacity, dt_optimizer_n_states(&t->config.optimizer));
    const double have = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE) / t->world->local_size;
    if (need > have) {
        return dt_error(
            DT_CONFIG,
            "model needs %.1f GiB a rank, this host has %.1f GiB for each of its %d ranks (use a smaller model or batch)",
            need / gib, have / gib, t->world->local_size);
    }
    return DT_OK;
}

static enum dt_status open_data(struct dt_trainer *t)
{
    const struct dt_config *config = &t->config;
    struct dt_shard shard;
    dt_comm_phase(t->world->comm, "data load");
    DT_TRY(dt_trainer_shard(config, t->world->rank, t->world->size, &shard));
    DT_TRY(dt_loader_open(&shard, &t->loader));
    const int accumulate = (int)config->accumulate;
    t->micro_capacity = (t->loader.capacity + accumulate - 1) / accumulate;
    t->steps_per_epoch = dt_shard_steps_per_epoch(&shard);
    DT_TRY(check_memory(t));
    return dt_dataset_open(&config->data, DT_SPLIT_TRAIN, dt_shard_owned(&shard), &t->data);
}

static enum dt_status init_weights(struct dt_trainer *t)
{
    float *arena = calloc(t->model.arena_elems, sizeof *arena);
    if (arena == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the initial weights");
    }
    const uint64_t seed = (uint64_t)t->config.seed + (t->config.init_per_rank ? (uint64_t)t->world->rank : 0);
    dt_model_init(&t->model, seed, arena);
    const enum dt_status s = t->backend->ops->copy_in(t->backend, t->network->params, arena, t->model.arena_elems * sizeof *arena);
    free(arena);
    return s;
}

static enum dt_status open_network(struct dt_trainer *t)
{
    const struct dt_backend_options options = {
        .n_threads = t->n_threads, .local_rank = t->world->local_rank, .precision = t->config.precision};
    DT_TRY(t->device.backend->open(&options, &t->backend));
    DT_TRY(t->backend->ops->samples_open(t->backend, &t->data.samples, &t->samples));
    DT_TRY(dt_network_open(&t->model, t->backend, t->micro_capacity, &t->network));
    DT_TRY(dt_optimizer_open(&t->config.optimizer, t->backend, t->model.arena_elems, &t->optimizer));
    DT_TRY(dt_dist_optimizer_open(&t->config.dist, t->world->comm, t->network, &t->optimizer, &t->dist));
    DT_TRY(dt_replica_check_open(t->world->comm, &t->model, &t->check));
    return init_weights(t);
}

/* What gradients in a GPU's memory travel by. */
static enum dt_status open_device_comm(struct dt_trainer *t)
{
    if (t->device.nccl) {
        const enum dt_status s = t->device.cuda->comm_open(t->world->comm, t->backend, &t->device_comm);
        return s == DT_OK || s == DT_STALLED ? s : dt_error_agreed(s);
    }
    if (t->backend->host_memory || t->world->size == 1) {
        return DT_OK;
    }
    return dt_comm_open_staged(t->world->comm, t->backend, t->model.arena_elems, &t->device_comm);
}

/* `batch.global` fixes the batch, so there is nothing to scale the rate for. */
static void plan_schedule(struct dt_trainer *t)
{
    const struct dt_config *c = &t->config;
    const double ratio = c->batch_global > 0 ? 1.0 : (double)t->world->size;
    const double scale = dt_lr_scale(c->lr_scaling, ratio);
    t->schedule = (struct dt_schedule){.type = c->schedule,
                                       .lr = c->optimizer.lr * scale,
                                       .scale = scale,
                                       .warmup_epochs = c->warmup_epochs,
                                       .steps_per_epoch = t->steps_per_epoch,
                                       .n_epochs = (double)c->epochs,
                                       .min_lr = c->schedule_min_lr,
                                       .step_epochs = c->schedule_step_epochs,
                                       .step_gamma = c->schedule_gamma};
}

static enum dt_status open_parts(struct dt_trainer *t)
{
    DT_TRY(dt_world_agree(t->world, open_data(t)));
    DT_TRY(dt_world_agree(t->world, open_network(t)));
    DT_TRY(open_device_comm(t));
    DT_TRY(dt_dist_optimizer_share(&t->dist, t->device_comm));
    DT_TRY(dt_world_agree(t->world, dt_evaluator_open(t->world, &t->config.data, t->network, &t->evaluator)));
    plan_schedule(t);
    t->state = (struct dt_checkpoint_state){.seed = (uint64_t)t->config.seed,
                                            .world_size = (uint64_t)t->world->size,
                                            .global_batch = t->loader.shard.global_batch,
                                            .n_train = t->loader.shard.n_total,
                                            .data_crc = t->data.crc};
    return DT_OK;
}

static enum dt_status lower(struct dt_trainer *t)
{
    DT_TRY(dt_model_lower(&t->config.model, &t->model));
    dt_data_spec_fit(&t->config.data, &t->model);
    return DT_OK;
}

enum dt_status dt_trainer_open(struct dt_world *world, const struct dt_config *config, struct dt_trainer *out)
{
    *out = (struct dt_trainer){.world = world, .config = *config};
    enum dt_status s;
    out->config_json = dt_config_to_json(config);
    s = out->config_json != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "out of memory for the resolved configuration");
    DT_TRY_GOTO(s, dt_world_agree(world, s), fail);
    DT_TRY_GOTO(s, dt_ranks_same(world, "configuration", out->config_json), fail);
    DT_TRY_GOTO(s, dt_world_agree(world, lower(out)), fail);
    DT_TRY_GOTO(s, dt_ranks_threads(world, config->threads, &out->n_threads), fail);
    DT_TRY_GOTO(s, dt_device_choose(world, config, &out->device), fail);
    DT_TRY_GOTO(s, open_parts(out), fail);
    return DT_OK;
fail:
    dt_trainer_close(out);
    return s;
}

void dt_trainer_close(struct dt_trainer *t)
{
    if (t->backend != NULL) {
        if (t->evaluator.network != NULL) {
            dt_evaluator_close(&t->evaluator);
        }
        dt_replica_check_close(&t->check);
        dt_dist_optimizer_close(&t->dist);
        dt_comm_close(t->device_comm);
        dt_optimizer_close(&t->optimizer);
        dt_network_close(t->network);
        if (t->samples != NULL) {
            t->backend->ops->samples_close(t->backend, t->samples);
        }
        t->backend->ops->close(t->backend);
    }
    dt_loader_close(&t->loader);
    dt_dataset_close(&t->data);
    free(t->config_json);
    memset(t, 0, sizeof *t);
}
