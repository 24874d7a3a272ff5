/* The roster of the ranks, and what a run has cost: times, messages, memory. */
#include "train/hooks/hooks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "train/events.h"

struct hook {
    struct dt_hook hook; /* first */
    struct dt_rank_info *roster;
    struct dt_phase_times *times; /* of each rank, at the end */
};

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
    struct dt_strategy_summary facts;
    dt_strategy_summary(t->strategy, &facts);
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

static struct dt_strategy_summary averaging_of(const struct dt_trainer *t)
{
    struct dt_strategy_summary averaging;
    dt_strategy_summary(t->strategy, &averaging);
    if (averaging.why[0] == '\0' && t->device.module != NULL && t->device.allreduce_open == NULL) {
        averaging.why = t->device.why;
    }
    return averaging;
}

static enum dt_status begin_run(struct dt_hook *hook, struct dt_trainer *t,
                                struct dt_run_event *start)
{
    DT_ASSERT(start->ranks == NULL);
    struct dt_rank_info *roster = ((struct hook *)hook)->roster, mine;
    describe_rank(t, &mine);
    start->ranks = roster;
    start->averaging = averaging_of(t);
    return dt_ranks_gather(t->world, &mine, roster);
}

static enum dt_status end_epoch(struct dt_hook *hook, struct dt_trainer *t,
                                struct dt_epoch_event *epoch)
{
    (void)hook;
    epoch->allreduce = dt_strategy_adds_by(t->strategy);
    DT_TRY(dt_strategy_traffic(t->strategy, t->clock.n_steps, &epoch->traffic));
    return dt_strategy_staleness(t->strategy, &epoch->staleness);
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

static enum dt_status end_run(struct dt_hook *hook, struct dt_trainer *t, enum dt_status status,
                              struct dt_end_event *end)
{
    struct dt_phase_times *times = ((struct hook *)hook)->times;
    end->allreduce = dt_strategy_adds_by(t->strategy);
    end->idle_gpus = t->device.idle ? t->device.why : NULL;
    if (status != DT_OK && status != DT_STOPPED) {
        return DT_OK;
    }
    DT_TRY(dt_comm_allgather(t->world->comm, &t->clock.times, times, sizeof t->clock.times,
                             "gathering of the ranks' times"));
    end->ranks = times;
    DT_TRY(dt_strategy_traffic(t->strategy, t->clock.n_steps, &end->traffic));
    end->predicted = averaging_of(t).traffic;
    DT_TRY(dt_strategy_staleness(t->strategy, &end->staleness));
    return measure_tightest(t, &end->memory);
}

static void close_measure(struct dt_hook *hook)
{
    free(((struct hook *)hook)->roster);
    free(((struct hook *)hook)->times);
    free(hook);
}

static const struct dt_hook_ops measure_ops = {
    .run_begin = begin_run, .epoch_end = end_epoch, .run_end = end_run, .close = close_measure};

enum dt_status dt_measure_open(struct dt_trainer *t)
{
    struct hook *w;
    const size_t n_ranks = (size_t)t->world->size;
    DT_TRY(dt_hook_open(t, &measure_ops, sizeof *w, "the roster", (void **)&w));
    DT_TRY(dt_world_alloc(t->world, n_ranks, sizeof *w->roster, "the roster", (void **)&w->roster));
    return dt_world_alloc(t->world, n_ranks, sizeof *w->times, "the ranks' times",
                          (void **)&w->times);
}
