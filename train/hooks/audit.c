#include "train/hooks/audit.h"

#include "train/events.h"
#include "train/trainer.h"

struct sums {
    uint64_t n_samples, hash;
};

struct audit {
    struct dt_hook hook; /* first */
    const struct dt_emitter *emitter;
    struct sums steps[DT_MAX_STEPS_TOGETHER]; /* this rank's, of those under way */
};

/* Of sample `id`: the second output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). It
 * maps numbers one to one, so that one sample in place of another always shows; sums of CRCs, which
 * are linear, would cancel. */
static uint64_t hash_of(uint64_t id)
{
    uint64_t x = (id + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Numbers come from the rows that are gathered, and from the samples as they were loaded; a device
 * that takes steps on its own has no rows here, but makes them of the same draw. */
static struct sums sum_step(const struct dt_trainer *t, uint64_t step_in_epoch)
{
    const struct dt_loader *loader = &t->set.loader;
    const struct dt_samples *samples = &t->set.data.samples;
    const struct dt_draw draw =
        dt_shard_draw(&loader->shard, (uint32_t)t->state.epoch, step_in_epoch);
    struct sums sums = {.n_samples = draw.n};
    for (uint32_t i = 0; i < draw.n; i++) {
        const uint32_t row = t->driver.ops->on_device ? dt_draw_row(&draw, i) : loader->rows[i];
        DT_ASSERT(row < samples->n);
        sums.hash += hash_of(samples->first_id + (uint64_t)row * samples->id_stride);
    }
    return sums;
}

/* The ranks of a worker that is all of them have the same samples. */
static enum dt_status begin_steps(struct dt_hook *hook, struct dt_trainer *t, uint64_t first,
                                  uint64_t last)
{
    struct audit *audit = (struct audit *)hook;
    const bool mine = t->roles.whole ? t->world->rank == 0 : t->roles.works;
    for (uint64_t step = first; step <= last; step++) {
        const uint64_t i = step - t->state.step - 1;
        DT_ASSERT(i < DT_MAX_STEPS_TOGETHER);
        audit->steps[i] =
            mine ? sum_step(t, t->state.step_in_epoch + i) : (struct sums){.n_samples = 0};
    }
    return DT_OK;
}

static enum dt_status end_steps(struct dt_hook *hook, struct dt_trainer *t, uint64_t first,
                                uint64_t last)
{
    struct audit *audit = (struct audit *)hook;
    const size_t n = (size_t)(last - first + 1);
    DT_TRY(dt_comm_allreduce(t->world->comm, audit->steps, 2 * n, DT_TYPE_U64, DT_REDUCE_SUM,
                             "sum of the audit of samples"));
    DT_ASSERT(audit->steps[0].n_samples <= t->set.loader.shard.global_batch);
    for (size_t i = 0; i < n && t->world->rank == 0; i++) {
        const struct dt_audit_event event = {.step = first + i,
                                             .epoch = t->state.epoch + 1,
                                             .n_samples = audit->steps[i].n_samples,
                                             .hash = audit->steps[i].hash};
        audit->emitter->emit(audit->emitter->context,
                             &(struct dt_event){.kind = DT_EVENT_AUDIT, .audit = &event});
    }
    return DT_OK;
}

static const struct dt_hook_ops audit_ops = {.step_begin = begin_steps, .step_end = end_steps};

enum dt_status dt_audit_open(struct dt_trainer *t, const struct dt_emitter *emitter)
{
    struct audit *audit;
    if (!t->config.log_audit) {
        return DT_OK;
    }
    DT_TRY(dt_hook_open(t, &audit_ops, sizeof *audit, "the audit of samples", (void **)&audit));
    audit->emitter = emitter;
    return DT_OK;
}
