/* Compares the replicas (dist/strategy/replica_check.h): every `distributed.check_every` steps, and
 * at the end, where the hash of the weights comes from. */
#include "train/hooks/hooks.h"

#include <stdlib.h>

#include "dist/strategy/replica_check.h"
#include "train/events.h"

struct hook {
    struct dt_hook hook; /* first */
    const struct dt_emitter *emitter;
    struct dt_replica_check check;
    char digest[DT_DIGEST_SIZE];
};

/* Counts as communication. */
static enum dt_status end_step(struct dt_hook *hook, struct dt_trainer *t, uint64_t first,
                               uint64_t last)
{
    const uint64_t every = dt_replicas_are_equal(&t->config.dist) ? t->config.dist.check_every : 0;
    (void)first;
    if (every == 0 || last % every != 0) {
        return DT_OK;
    }
    dt_step_clock_start(&t->clock);
    DT_TRY(dt_strategy_share_weights(t->strategy));
    DT_TRY(dt_replica_check_run(&((struct hook *)hook)->check, t->network));
    dt_step_clock_lap(&t->clock, DT_PHASE_COMMUNICATION);
    return DT_OK;
}

/* With averaging or the broadcast off, replicas are expected to differ: said at the end, not an
 * error. */
static enum dt_status tell_difference(struct hook *w, struct dt_trainer *t)
{
    const enum dt_status s =
        t->world->size > 1 ? dt_replica_check_run(&w->check, t->network) : DT_OK;
    if (s != DT_INTERNAL) {
        return s;
    }
    if (t->world->rank == 0) {
        w->emitter->emit(w->emitter->context, &(struct dt_event){.kind = DT_EVENT_DIFFERENCE,
                                                                 .difference = dt_error_text()});
    }
    dt_error_clear();
    return DT_OK;
}

static enum dt_status end_run(struct dt_hook *hook, struct dt_trainer *t, enum dt_status status,
                              struct dt_end_event *end)
{
    struct hook *w = (struct hook *)hook;
    if (status != DT_OK) {
        return DT_OK;
    }
    if (!dt_replicas_are_equal(&t->config.dist)) {
        return tell_difference(w, t);
    }
    DT_ASSERT(w->digest[0] == '\0');
    end->weights = w->digest;
    return dt_replica_check_digest(&w->check, t->network, w->digest);
}

static void close_replicas(struct dt_hook *hook)
{
    dt_replica_check_close(&((struct hook *)hook)->check);
    free(hook);
}

static const struct dt_hook_ops replicas_ops = {
    .step_end = end_step, .run_end = end_run, .close = close_replicas};

enum dt_status dt_replicas_open(struct dt_trainer *t, const struct dt_emitter *emitter)
{
    struct hook *w;
    DT_TRY(dt_hook_open(t, &replicas_ops, sizeof *w, "the replica check", (void **)&w));
    w->emitter = emitter;
    return dt_world_agree(t->world, dt_replica_check_open(t->world->comm, &t->model, &w->check));
}
