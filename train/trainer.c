#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/rank_checks.h"

void dt_data_spec_fit(struct dt_data_spec *spec, const struct dt_model *model)
{
    const bool classifies = model->spec.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY;
    spec->shape = model->spec.input;
    spec->n_classes = classifies ? model->n_outputs : 0;
    spec->n_targets = classifies ? 0 : model->n_outputs;
}

static size_t global_batch(const struct dt_config *config, int world_size)
{
    DT_ASSERT((config->batch_global > 0) != (config->batch_per_rank > 0));
    return config->batch_global > 0 ? (size_t)config->batch_global
                                    : (size_t)config->batch_per_rank * (size_t)world_size;
}

enum dt_status dt_trainer_shard(const struct dt_config *config, int rank, int size,
                                struct dt_shard *out)
{
    DT_ASSERT(rank >= 0 && rank < size);
    *out = (struct dt_shard){.mode = config->sharding,
                             .seed = (uint64_t)config->seed,
                             .global_batch = global_batch(config, size),
                             .rank = rank,
                             .size = size,
                             .shuffle = config->shuffle,
                             .leaf = config->dist.deterministic ? (size_t)config->dist.leaf : 0};
    if (out->global_batch < (size_t)size) {
        return dt_error(DT_CONFIG,
                        "train.batch.global: %zu is smaller than the number of ranks %d (use a "
                        "larger batch or fewer ranks)",
                        out->global_batch, size);
    }
    DT_TRY(dt_dataset_count(&config->data, DT_SPLIT_TRAIN, &out->n_total));
    if (out->global_batch > out->n_total && config->sharding != DT_SHARDING_REPLICATE) {
        return dt_error(
            DT_CONFIG,
            "train.batch: %zu samples a step, but the training set has %zu (use a smaller batch)",
            out->global_batch, out->n_total);
    }
    return DT_OK;
}

int dt_trainer_capacity(const struct dt_trainer *t)
{
    DT_ASSERT(t->config.accumulate >= 1 && t->set.loader.capacity >= 1);
    const int accumulate = (int)t->config.accumulate;
    if (t->config.dist.deterministic && !t->roles.whole) {
        return (int)t->config.dist.leaf; /* as many at any number of ranks */
    }
    return (t->set.loader.capacity + accumulate - 1) / accumulate;
}

static enum dt_status open_data(struct dt_trainer *t)
{
    const struct dt_config *config = &t->config;
    struct dt_shard shard;
    dt_comm_phase(t->world->comm, "data load");
    DT_TRY(dt_trainer_shard(config, t->roles.worker, t->roles.n_workers, &shard));
    DT_TRY(dt_loader_open(&shard, &t->set.loader));
    DT_TRY(t->parts->check_memory != NULL ? t->parts->check_memory(t) : DT_OK);
    const struct dt_owned nothing = {.first = (uint32_t)shard.n_total, .stride = 1};
    return dt_dataset_open(&config->data, DT_SPLIT_TRAIN,
                           t->roles.works ? dt_shard_owned(&shard) : nothing, &t->set.data);
}

static enum dt_status init_weights(struct dt_trainer *t)
{
    const uint64_t seed =
        (uint64_t)t->config.seed + (t->config.init_per_rank ? (uint64_t)t->world->rank : 0);
    if (t->backend->host_memory) {
        dt_model_init(&t->model, seed, t->network->params);
        return DT_OK;
    }
    float *arena = calloc(t->model.arena_elems, sizeof *arena);
    if (arena == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the initial weights");
    }
    dt_model_init(&t->model, seed, arena);
    const enum dt_status s = t->backend->ops->copy_in(t->backend, t->network->params, arena,
                                                      t->model.arena_elems * sizeof *arena);
    free(arena);
    return s;
}

static enum dt_status open_backend(struct dt_trainer *t)
{
    const struct dt_backend_options options = {
        .n_threads = (int)t->config.threads,
        .local_rank = t->world->local_rank,
        .precision = t->config.precision,
        .deterministic = t->config.dist.deterministic ||
                         (t->device.module != NULL && t->config.cuda_deterministic),
        .limit_s = dt_comm_timeout_s(t->world->comm),
        .alive = {dt_comm_alive, t->world->comm}};
    return t->device.backend->open(&options, &t->backend);
}

/* Once the strategy is open: of all drivers. */
static const struct dt_driver_ops *choose_driver(const struct dt_trainer *t)
{
    const struct dt_driver_ops *const *driver = t->parts->drivers;
    while (*driver != NULL && ((!(*driver)->on_device && t->strategy == NULL) ||
                               ((*driver)->on_device && t->driver.why[0] != '\0') ||
                               ((*driver)->fits != NULL && !(*driver)->fits(t)))) {
        driver++;
    }
    return *driver;
}

/* Where a device cannot record steps, the host takes them. */
static enum dt_status open_driver(struct dt_trainer *t)
{
    const struct dt_driver_ops *ops = choose_driver(t);
    DT_ASSERT(ops != NULL);
    t->driver.ops = ops;
    t->driver.most = 1;
    const enum dt_status s =
        dt_world_agree(t->world, ops->open != NULL ? ops->open(t, &t->driver.own) : DT_OK);
    if (s != DT_UNAVAILABLE || !ops->on_device) {
        return s;
    }
    if (t->driver.own != NULL) {
        ops->close(t, t->driver.own);
        t->driver.own = NULL;
    }
    snprintf(t->driver.why, sizeof t->driver.why, "%s", dt_error_text());
    dt_error_clear();
    return open_driver(t);
}

static enum dt_status open_strategy(struct dt_trainer *t)
{
    DT_ASSERT(t->strategy == NULL && t->backend != NULL);
    const struct dt_strategy_spec spec = {
        .dist = t->config.dist,
        .optimizer = t->config.optimizer,
        .model = &t->model,
        .comm = t->world->comm,
        .backend = t->backend,
        .capacity = dt_trainer_capacity(t),
        .device_open = t->device.allreduce_open,
        .shared_step =
            t->config.threads == 1, /* several threads are quicker in a step of their own */
        .recorded = choose_driver(t) != NULL};
    const enum dt_status s = dt_strategy_open(&spec, &t->strategy);
    if (t->strategy != NULL && t->model.has_rates) {
        t->strategy->optimizer.model = &t->model;
        t->strategy->optimizer.by_rates = dt_optimizer_apply_rates;
    }
    return s;
}

/* `opened`: what came of opening something, on a device perhaps whose memory is its own. */
static enum dt_status advise(struct dt_trainer *t, enum dt_status opened, bool search)
{
    const bool can = t->parts->advise != NULL && t->device.info.total_bytes > 0;
    return opened == DT_NO_MEMORY && can ? t->parts->advise(t, search) : opened;
}

enum dt_status dt_trainer_open_network(struct dt_trainer *t, int capacity)
{
    DT_ASSERT(t->network == NULL && t->set.samples == NULL && capacity >= 1);
    DT_TRY(t->backend->ops->samples_open(t->backend, &t->set.data.samples, &t->set.samples));
    DT_TRY(dt_network_open(&t->model, t->backend, capacity, &t->strategy->memory, t->roles.whole,
                           &t->network));
    DT_TRY(dt_evaluator_open(t->world, &t->config.data, t->network, &t->evaluator));
    return init_weights(t);
}

void dt_trainer_close_network(struct dt_trainer *t)
{
    if (t->evaluator.network != NULL) {
        dt_evaluator_close(&t->evaluator);
        t->evaluator.network = NULL;
    }
    dt_network_close(t->network);
    t->network = NULL;
    if (t->set.samples != NULL) {
        t->backend->ops->samples_close(t->backend, t->set.samples);
        t->set.samples = NULL;
    }
}

/* `batch.global` fixes the batch, so there is nothing to scale the rate for. */
double dt_trainer_lr_scale(const struct dt_config *c, uint64_t n_workers)
{
    return dt_lr_scale(c->lr_scaling, c->batch_global > 0 ? 1.0 : (double)n_workers);
}

struct dt_lr_schedule dt_trainer_schedule(const struct dt_config *c, uint64_t n_workers,
                                          uint64_t steps_per_epoch)
{
    DT_ASSERT(n_workers >= 1 && steps_per_epoch >= 1);
    const double scale = dt_trainer_lr_scale(c, n_workers);
    return (struct dt_lr_schedule){.type = c->schedule,
                                   .lr = c->optimizer.lr * scale,
                                   .warmup_epochs = c->warmup_epochs,
                                   .warmup_from = c->warmup_from >= 0 ? c->warmup_from : 1 / scale,
                                   .steps_per_epoch = steps_per_epoch,
                                   .n_epochs = (double)c->epochs,
                                   .min_lr = c->schedule_min_lr,
                                   .step_epochs = c->schedule_step_epochs,
                                   .milestones = c->schedule_milestones,
                                   .step_gamma = c->schedule_gamma,
                                   .peak = c->schedule_peak,
                                   .from = c->schedule_from,
                                   .to = c->schedule_to,
                                   .factor = c->schedule_factor};
}

/* Until no image is left that cannot be read. */
static enum dt_status open_data_all(struct dt_trainer *t)
{
    DT_TRY(dt_world_agree(
        t->world, t->parts->open_images != NULL ? t->parts->open_images(&t->config.data) : DT_OK));
    for (bool again = true; again;) {
        dt_sample_set_close(&t->set, NULL);
        DT_TRY(dt_world_agree(t->world, open_data(t)));
        DT_TRY(dt_samples_settle(t->world, &t->config.data, &again));
    }
    return DT_OK;
}

static enum dt_status check_evaluator(struct dt_trainer *t)
{
    bool again;
    DT_TRY(dt_samples_settle(t->world, &t->config.data, &again));
    if (!again) {
        return DT_OK;
    }
    dt_evaluator_close(&t->evaluator);
    t->evaluator.network = NULL;
    return dt_evaluator_open_all(t->world, &t->config.data, t->network, &t->evaluator);
}

static enum dt_status open_parts(struct dt_trainer *t)
{
    DT_TRY(open_data_all(t));
    DT_TRY(t->parts->normalize != NULL ? t->parts->normalize(t) : DT_OK);
    DT_TRY(t->config.class_weights.n != 0 ? dt_class_weights_open(t) : DT_OK);
    if (t->device.module != NULL) {
        dt_comm_phase(t->world->comm, DT_PHASE_OPENING);
    }
    DT_TRY(dt_world_agree(t->world, advise(t, open_backend(t), false)));
    const enum dt_status s = advise(t, open_strategy(t), false);
    DT_TRY(s == DT_STALLED ? s
                           : dt_world_agree(t->world, s)); /* in which no stalled rank takes part */
    DT_TRY(dt_world_agree(t->world,
                          advise(t, dt_trainer_open_network(t, dt_trainer_capacity(t)), true)));
    DT_TRY(check_evaluator(t));
    if (t->device.module == NULL) {
        memcpy(t->driver.why, t->device.why, sizeof t->driver.why);
    }
    DT_TRY(open_driver(t));
    dt_comm_phase(t->world->comm, "data load"); /* of a checkpoint, if any */
    t->schedule = dt_trainer_schedule(&t->config, (uint64_t)t->roles.n_workers,
                                      dt_shard_steps_per_epoch(&t->set.loader.shard));
    t->state = (struct dt_checkpoint_state){.seed = (uint64_t)t->config.seed,
                                            .world_size = (uint64_t)t->roles.n_workers,
                                            .global_batch = t->set.loader.shard.global_batch,
                                            .n_train = t->set.loader.shard.n_total,
                                            .data_crc = t->set.data.crc,
                                            .bright_borders = DT_CHECKPOINT_UNKNOWN,
                                            .data_hash = DT_CHECKPOINT_UNKNOWN,
                                            .shuffle_rounds = DT_PERMUTATION_ROUNDS};
    return DT_OK;
}

static enum dt_status write_config(struct dt_trainer *t, const struct dt_config *config)
{
    t->written.text = t->written.format->write(config);
    return t->written.text != NULL
               ? DT_OK
               : dt_error(DT_NO_MEMORY, "out of memory for the resolved configuration");
}

static enum dt_status open_all(struct dt_trainer *t, const struct dt_config *config)
{
    struct dt_world *world = t->world;
    int n_threads;
    DT_TRY(dt_world_agree(world, write_config(t, config)));
    DT_TRY(dt_ranks_same_config(world, t->written.format, t->written.text));
    DT_TRY(dt_world_agree(world, dt_model_lower(&config->model, &t->model)));
    dt_data_spec_fit(&t->config.data, &t->model);
    DT_TRY(
        dt_world_agree(world, dt_roles_find(&config->dist, world->rank, world->size, &t->roles)));
    DT_TRY(dt_ranks_threads(world, t->config.threads, &n_threads));
    t->config.threads = n_threads;
    DT_TRY(t->parts->choose_device(world, config, &t->device));
    return open_parts(t);
}

enum dt_status dt_trainer_open(struct dt_world *world, const struct dt_config *config,
                               const struct dt_config_format *format,
                               const struct dt_trainer_parts *parts, struct dt_trainer *out)
{
    *out = (struct dt_trainer){
        .world = world, .parts = parts, .config = *config, .written = {.format = format}};
    out->config.data.alive = (struct dt_alive){dt_comm_alive, world->comm};
    const enum dt_status s = open_all(out, config);
    if (s != DT_OK) {
        dt_trainer_close(out);
    }
    return s;
}

void dt_trainer_close(struct dt_trainer *t)
{
    if (t->driver.own != NULL) {
        t->driver.ops->close(t, t->driver.own);
    }
    dt_strategy_close(t->strategy); /* early: it ends what a GPU may be waiting for, and what comes
                                       now waits for the GPU */
    dt_trainer_close_network(t);
    dt_trainer_close_run(t);
    dt_hooks_close(t); /* which may have memory of the backend */
    if (t->backend != NULL) {
        t->backend->ops->close(t->backend);
    }
    dt_sample_set_close(&t->set, NULL);
    free(t->written.text);
    free(t->class_weights);
    if (t->parts != NULL && t->parts->close_images != NULL) {
        t->parts->close_images(&t->config.data);
    }
    memset(t, 0, sizeof *t);
}
