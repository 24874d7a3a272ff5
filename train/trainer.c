#include "train/trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "data/border.h"
#include "train/data_spec.h"
#include "train/ranks.h"

#define SMALLER " (use a smaller batch, model or data set)"
#define SPARE_SHARE 64 /* of a GPU's memory, where a batch is said to fit */

static size_t global_batch(const struct dt_config *config, int world_size)
{
    return config->batch_global > 0 ? (size_t)config->batch_global
                                    : (size_t)config->batch_per_rank * (size_t)world_size;
}

static enum dt_status check_ranks(size_t batch, int world_size)
{
    if (batch < (size_t)world_size) {
        return dt_error(DT_CONFIG,
                        "train.batch.global: %zu is smaller than the number of ranks %d (use a "
                        "larger batch or fewer ranks)",
                        batch, world_size);
    }
    return DT_OK;
}

static enum dt_status check_samples(const struct dt_config *config, size_t batch, size_t n_train)
{
    if (batch > n_train && config->sharding != DT_SHARDING_REPLICATE) {
        return dt_error(
            DT_CONFIG,
            "train.batch: %zu samples a step, but the training set has %zu (use a smaller batch)",
            batch, n_train);
    }
    return DT_OK;
}

enum dt_status dt_trainer_shard(const struct dt_config *config, int rank, int size,
                                struct dt_shard *out)
{
    *out = (struct dt_shard){.mode = config->sharding,
                             .seed = (uint64_t)config->seed,
                             .global_batch = global_batch(config, size),
                             .rank = rank,
                             .size = size,
                             .shuffle = config->shuffle};
    DT_TRY(check_ranks(out->global_batch, size));
    DT_TRY(dt_dataset_count(&config->data, DT_SPLIT_TRAIN, &out->n_total));
    return check_samples(config, out->global_batch, out->n_total);
}

static bool has_own_memory(const struct dt_device_choice *device)
{
    return device->info.total_bytes > 0;
}

/* Refuses what cannot fit before the machine starts to swap: the ranks of a host share its memory.
 * A device's own does not swap. */
static enum dt_status check_memory(const struct dt_trainer *t)
{
    if (has_own_memory(&t->device)) {
        return DT_OK;
    }
    const double gib = 1024.0 * 1024.0 * 1024.0;
    const double need = (double)dt_model_n_bytes(&t->model, t->micro_capacity,
                                                 dt_optimizer_n_states(&t->config.optimizer));
    const double have =
        (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE) / t->world->local_size;
    if (need > have) {
        return dt_error(DT_CONFIG,
                        "model needs %.1f GiB a rank, this host has %.1f GiB for each of its %d "
                        "ranks (use a smaller model or batch)",
                        need / gib, have / gib, t->world->local_size);
    }
    return DT_OK;
}

static struct dt_owned nothing_of(const struct dt_shard *shard)
{
    return (struct dt_owned){.first = (uint32_t)shard->n_total, .stride = 1};
}

static enum dt_status open_data(struct dt_trainer *t)
{
    const struct dt_config *config = &t->config;
    struct dt_shard shard;
    dt_comm_phase(t->world->comm, "data load");
    DT_TRY(dt_trainer_shard(config, t->roles.worker, t->roles.n_workers, &shard));
    DT_TRY(dt_loader_open(&shard, &t->loader));
    const int accumulate = (int)config->accumulate;
    t->micro_capacity = (t->loader.capacity + accumulate - 1) / accumulate;
    t->steps_per_epoch = dt_shard_steps_per_epoch(&shard);
    DT_TRY(check_memory(t));
    return dt_dataset_open(&config->data, DT_SPLIT_TRAIN,
                           t->roles.works ? dt_shard_owned(&shard) : nothing_of(&shard), &t->data);
}

static enum dt_status init_weights(struct dt_trainer *t)
{
    float *arena = calloc(t->model.arena_elems, sizeof *arena);
    if (arena == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the initial weights");
    }
    const uint64_t seed =
        (uint64_t)t->config.seed + (t->config.init_per_rank ? (uint64_t)t->world->rank : 0);
    dt_model_init(&t->model, seed, arena);
    const enum dt_status s = t->backend->ops->copy_in(t->backend, t->network->params, arena,
                                                      t->model.arena_elems * sizeof *arena);
    free(arena);
    return s;
}

static enum dt_status open_backend(struct dt_trainer *t)
{
    const struct dt_backend_options options = {.n_threads = t->n_threads,
                                               .local_rank = t->world->local_rank,
                                               .precision = t->config.precision,
                                               .deterministic = t->config.cuda_deterministic,
                                               .limit_s = t->world->comm->timeout_s};
    return t->device.backend->open(&options, &t->backend);
}

/* Whether the device takes steps on its own: where nothing of a step has to pass through the host.
 */
static bool records_steps(const struct dt_trainer *t)
{
    const struct dt_device_module *module = t->device.module;
    return t->config.cuda_graph && module != NULL && module->graph != NULL &&
           (t->world->size == 1 || t->device.allreduce_open != NULL);
}

static enum dt_status open_strategy(struct dt_trainer *t)
{
    const struct dt_strategy_spec spec = {
        .dist = t->config.dist,
        .optimizer = t->config.optimizer,
        .model = &t->model,
        .comm = t->world->comm,
        .backend = t->backend,
        .capacity = t->micro_capacity,
        .device_open = t->device.allreduce_open,
        .together = t->n_threads == 1, /* several threads are quicker in a step of their own */
        .recorded = records_steps(t)};
    return dt_strategy_open(&spec, &t->strategy);
}

/* Of a device whose memory is its own. */
static enum dt_status with_cure(const struct dt_trainer *t, enum dt_status s)
{
    return s == DT_NO_MEMORY && has_own_memory(&t->device) ? dt_error_around(s, "", SMALLER) : s;
}

/* Local: no rank waits for another in it. */
static enum dt_status open_network(struct dt_trainer *t)
{
    DT_TRY(t->backend->ops->samples_open(t->backend, &t->data.samples, &t->samples));
    DT_TRY((dt_strategy_splits(t->strategy) ? dt_network_open_for_stages : dt_network_open)(
        &t->model, t->backend, t->micro_capacity, &t->strategy->memory, &t->network));
    DT_TRY(dt_replica_check_open(t->world->comm, &t->model, &t->check));
    DT_TRY(dt_evaluator_open(t->world, &t->config.data, t->network, &t->evaluator));
    return init_weights(t);
}

/* What open_network has opened, all or a part. */
static void close_network(struct dt_trainer *t)
{
    if (t->evaluator.network != NULL) {
        dt_evaluator_close(&t->evaluator);
        t->evaluator.network = NULL;
    }
    dt_replica_check_close(&t->check);
    dt_network_close(t->network);
    t->network = NULL;
    if (t->samples != NULL) {
        t->backend->ops->samples_close(t->backend, t->samples);
        t->samples = NULL;
    }
}

/* ---- out of memory on a GPU: what would fit is found by trying, which leaves no guess at what its
 * libraries take */

/* Room for what is only allocated later: NCCL's buffers, kernels when they first run. */
static bool has_spare_memory(struct dt_trainer *t)
{
    void *spare;
    if (t->backend->ops->alloc(t->backend, t->device.info.total_bytes / SPARE_SHARE, &spare) !=
        DT_OK) {
        return false;
    }
    t->backend->ops->free(t->backend, spare);
    return true;
}

/* A half, a quarter, ... of a micro-batch that fits; 0: none does, or none was found in half of the
 * time that others wait. */
static int find_fitting_batch(struct dt_trainer *t)
{
    const double end_s = dt_clock_s() + t->world->comm->timeout_s / 2;
    enum dt_status s = DT_NO_MEMORY;
    int n = t->micro_capacity;
    dt_comm_phase(t->world->comm, "search for a batch that fits");
    while (s == DT_NO_MEMORY && n > 1 && dt_clock_s() < end_s) {
        n /= 2;
        close_network(t);
        t->micro_capacity = n;
        s = open_network(t);
        s = s == DT_OK && !has_spare_memory(t) ? DT_NO_MEMORY : s;
        dt_error_clear();
    }
    return s == DT_OK ? n : 0;
}

/* Ends the waiting text with the cure. */
static enum dt_status no_gpu_memory(struct dt_trainer *t)
{
    char text[DT_ERROR_TEXT_SIZE], cure[160];
    const long long k = t->config.accumulate;
    const int capacity = t->micro_capacity;
    const bool shared = t->device.why[0] != '\0'; /* what fits depends on when the others try */
    snprintf(text, sizeof text, "%s", dt_error_text());
    dt_error_clear();
    const int n = shared ? 0 : find_fitting_batch(t);
    if (n > 0) {
        const bool global = t->config.batch_global > 0;
        snprintf(
            cure, sizeof cure,
            " (%d samples at a time would fit: set train.batch.%s=%lld, or train.accumulate=%lld)",
            n, global ? "global" : "per_rank", n * k * (global ? t->world->size : 1),
            k * ((capacity + n - 1) / n));
    } else {
        snprintf(cure, sizeof cure, "%s", SMALLER);
    }
    return dt_error_around(dt_error(DT_NO_MEMORY, "%s", text), "", cure);
}

static enum dt_status open_network_or_advise(struct dt_trainer *t)
{
    const enum dt_status s = open_network(t);
    return s == DT_NO_MEMORY && has_own_memory(&t->device) ? no_gpu_memory(t) : s;
}

static enum dt_status open_graph(struct dt_trainer *t)
{
    t->n_at_once = 1;
    if (!records_steps(t)) {
        return DT_OK;
    }
    return t->device.module->graph->open(
        t->backend, t->device.allreduce_open != NULL ? t->strategy->allreduce : NULL,
        t->loader.capacity, dt_trainer_gpu_step, t, &t->graph);
}

/* `batch.global` fixes the batch, so there is nothing to scale the rate for. */
static void plan_schedule(struct dt_trainer *t)
{
    const struct dt_config *c = &t->config;
    const double ratio = c->batch_global > 0 ? 1.0 : (double)t->roles.n_workers;
    const double scale = dt_lr_scale(c->lr_scaling, ratio);
    t->schedule = (struct dt_schedule){.type = c->schedule,
                                       .lr = c->optimizer.lr * scale,
                                       .scale = scale,
                                       .warmup_epochs = c->warmup_epochs,
                                       .steps_per_epoch = t->steps_per_epoch,
                                       .n_epochs = (double)c->epochs,
                                       .min_lr = c->schedule_min_lr,
                                       .step_epochs = c->schedule_step_epochs,
                                       .step_gamma = c->schedule_gamma,
                                       .factor = c->schedule_factor};
}

/* Ranks have shares of the samples, or each of them all. */
static enum dt_status count_bright_borders(struct dt_trainer *t)
{
    const struct dt_samples *samples = &t->data.samples;
    const bool images = samples->pixels != NULL;
    double sums[] = {images ? (double)dt_border_count_bright(samples) : 0, (double)samples->n};
    DT_TRY(dt_comm_allreduce(t->world->comm, sums, 2, DT_TYPE_F64, DT_REDUCE_SUM,
                             "sum of what borders are like"));
    t->state.bright_borders = images
                                  ? (uint64_t)(sums[0] * (double)samples->n_total / sums[1] + 0.5)
                                  : DT_CHECKPOINT_UNKNOWN;
    return DT_OK;
}

/* What every rank has been waited for in vain cannot be agreed on. */
static enum dt_status agree_unless_stalled(struct dt_world *world, enum dt_status mine)
{
    return mine == DT_STALLED ? mine : dt_world_agree(world, mine);
}

static enum dt_status open_parts(struct dt_trainer *t)
{
    DT_TRY(dt_world_agree(t->world, open_data(t)));
    DT_TRY(dt_world_agree(t->world, with_cure(t, open_backend(t))));
    DT_TRY(agree_unless_stalled(t->world, with_cure(t, open_strategy(t))));
    DT_TRY(dt_world_agree(t->world, open_network_or_advise(t)));
    DT_TRY(dt_world_agree(t->world, open_graph(t)));
    plan_schedule(t);
    t->state = (struct dt_checkpoint_state){.seed = (uint64_t)t->config.seed,
                                            .world_size = (uint64_t)t->roles.n_workers,
                                            .global_batch = t->loader.shard.global_batch,
                                            .n_train = t->loader.shard.n_total,
                                            .data_crc = t->data.crc,
                                            .shuffle_rounds = DT_PERMUTATION_ROUNDS};
    return count_bright_borders(t);
}

static enum dt_status lower(struct dt_trainer *t)
{
    DT_TRY(dt_model_lower(&t->config.model, &t->model));
    dt_data_spec_fit(&t->config.data, &t->model);
    return DT_OK;
}

enum dt_status dt_trainer_open(struct dt_world *world, const struct dt_config *config,
                               const struct dt_config_format *format, struct dt_trainer *out)
{
    *out = (struct dt_trainer){.world = world, .config = *config, .format = format};
    enum dt_status s;
    out->config.data.alive = (struct dt_alive){dt_comm_alive, world->comm};
    out->config_text = format->write(config);
    s = out->config_text != NULL
            ? DT_OK
            : dt_error(DT_NO_MEMORY, "out of memory for the resolved configuration");
    DT_TRY_GOTO(s, dt_world_agree(world, s), fail);
    DT_TRY_GOTO(s, dt_ranks_same_config(world, format, out->config_text), fail);
    DT_TRY_GOTO(s, dt_world_agree(world, lower(out)), fail);
    DT_TRY_GOTO(
        s,
        dt_world_agree(world, dt_roles_find(&config->dist, world->rank, world->size, &out->roles)),
        fail);
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
    if (t->graph != NULL) {
        t->device.module->graph->close(t->graph);
    }
    dt_strategy_close(t->strategy); /* early: it ends what a GPU may be waiting for, and what comes
                                       now waits for the GPU */
    close_network(t);
    if (t->backend != NULL) {
        t->backend->ops->close(t->backend);
    }
    dt_watchers_close(&t->watchers);
    dt_loader_close(&t->loader);
    dt_dataset_close(&t->data);
    free(t->config_text);
    memset(t, 0, sizeof *t);
}
