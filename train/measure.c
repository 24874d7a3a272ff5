#include "train/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "dist/strategy/facts/facts.h"

/* "cuda NVIDIA H200, bf16, 1a2b3c4d": of a GPU also the beginning of its UUID, "GPU-1a2b3c4d-...",
 * to tell which one it is. */
static void describe_device(const struct dt_trainer *t, char *text, size_t size)
{
    const int n = snprintf(text, size, "%s %s", t->backend->ops->name, t->backend->description);
    const char *dash = strchr(t->device.info.uuid, '-');
    if (dash != NULL && n > 0 && (size_t)n < size) {
        snprintf(text + n, size - (size_t)n, ", %.8s", dash + 1);
    }
}

static void describe_rank(const struct dt_trainer *t, struct dt_rank_info *me)
{
    struct dt_strategy_facts facts;
    dt_strategy_facts(t->strategy, &facts);
    memset(me, 0, sizeof *me); /* padding too: it travels */
    me->rank = t->world->rank;
    me->local_rank = t->world->local_rank;
    me->n_threads = (int)t->config.threads;
    memcpy(me->host, t->world->host, sizeof me->host);
    describe_device(t, me->device, sizeof me->device);
    me->n_samples = t->set.data.samples.n;
    me->works = t->roles.works;
    me->held = facts.held_bytes;
}

enum dt_status dt_measure_ranks(struct dt_trainer *t, struct dt_rank_info **out)
{
    struct dt_rank_info mine;
    DT_TRY(
        dt_world_alloc(t->world, (size_t)t->world->size, sizeof mine, "the roster", (void **)out));
    describe_rank(t, &mine);
    return dt_ranks_gather(t->world, &mine, *out);
}

static struct dt_strategy_facts averaging_of(const struct dt_trainer *t)
{
    struct dt_strategy_facts averaging;
    dt_strategy_facts(t->strategy, &averaging);
    if (averaging.why[0] == '\0' && t->device.module != NULL && t->device.allreduce_open == NULL) {
        averaging.why = t->device.why;
    }
    return averaging;
}

struct dt_run_event dt_measure_start(const struct dt_trainer *t)
{
    return (struct dt_run_event){.n_parameters = t->model.n_parameters,
                                 .n_workers = t->roles.n_workers,
                                 .gradient_bytes = t->model.arena_elems * sizeof(float),
                                 .n_train = t->set.loader.shard.n_total,
                                 .n_test = t->evaluator.set.loader.shard.n_total,
                                 .global_batch = t->set.loader.shard.global_batch,
                                 .lr = t->schedule.lr,
                                 .lr_scale = t->schedule.scale,
                                 .steps_per_epoch = t->schedule.steps_per_epoch,
                                 .step = t->state.step,
                                 .n_epochs = t->state.epoch,
                                 .gpu = t->device.module != NULL,
                                 .graph = t->driver.ops->on_device,
                                 .device_why = t->device.why,
                                 .averaging = averaging_of(t)};
}

/* The part of this process's memory that other processes account for: each of n processes that
 * share a page has an n-th of it (Linux's "proportional set size"). 0: the system does not say. */
static double bytes_of_others(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    char line[256];
    double resident_kb = 0, own_kb = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        sscanf(line, "Rss: %lf", &resident_kb);
        sscanf(line, "Pss: %lf", &own_kb);
    }
    if (file != NULL) {
        fclose(file);
    }
    return own_kb > 0 ? 1024.0 * (resident_kb - own_kb) : 0;
}

static struct dt_memory_use measure_memory(struct dt_trainer *t)
{
    struct rusage usage;
    struct dt_device_memory device = {0};
    getrusage(RUSAGE_SELF, &usage);
    if (t->device.module != NULL) {
        t->device.module->memory(t->backend, &device);
    }
    return (struct dt_memory_use){.host_peak = 1024.0 * (double)usage.ru_maxrss - bytes_of_others(),
                                  .gpu_peak = (double)device.peak_bytes,
                                  .gpu_free = (double)device.free_bytes,
                                  .gpu_all = (double)device.total_bytes};
}

static enum dt_status measure_tightest(struct dt_trainer *t, struct dt_memory_use *out)
{
    const struct dt_memory_use mine = measure_memory(t);
    double most[] = {mine.host_peak, mine.gpu_peak, -mine.gpu_free,
                     -mine.gpu_all}; /* the last two: least */
    DT_TRY(dt_comm_allreduce(t->world->comm, most, 4, DT_TYPE_F64, DT_REDUCE_MAX,
                             "largest of the ranks' memory"));
    *out = (struct dt_memory_use){
        .host_peak = most[0], .gpu_peak = most[1], .gpu_free = -most[2], .gpu_all = -most[3]};
    return DT_OK;
}

void dt_measure_here(const struct dt_trainer *t, struct dt_end_event *out)
{
    out->rank0 = t->clock.times;
    out->n_timed_steps = t->clock.n_steps;
    out->steps = t->state.step;
    out->epochs = t->state.epoch;
    out->allreduce = dt_strategy_adds_by(t->strategy);
    out->idle_gpus = t->device.idle ? t->device.why : NULL;
}

enum dt_status dt_measure_end(struct dt_trainer *t, struct dt_phase_times *ranks,
                              struct dt_end_event *out)
{
    DT_TRY(dt_comm_allgather(t->world->comm, &t->clock.times, ranks, sizeof t->clock.times,
                             "gathering of the ranks' times"));
    out->ranks = ranks;
    DT_TRY(dt_strategy_traffic(t->strategy, t->clock.n_steps, &out->traffic));
    out->predicted = averaging_of(t).traffic;
    DT_TRY(dt_strategy_staleness(t->strategy, &out->staleness));
    return measure_tightest(t, &out->memory);
}
