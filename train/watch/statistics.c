#include "train/watch/statistics.h"

#include <stdlib.h>

#include "model/layers/layers.h"

struct statistics {
    struct dt_watcher watcher; /* first */
    float *host;               /* model.buffer_elems */
};

/* Rank 0 is a worker under every strategy. */
static enum dt_status give_out(struct statistics *s, struct dt_trainer *t)
{
    struct dt_comm *comm = t->world->comm;
    if (t->world->size == 1) {
        return DT_OK;
    }
    DT_TRY(dt_world_agree(t->world, dt_buffers_get(t->network, s->host)));
    DT_TRY(dt_comm_broadcast(comm, s->host, t->model.buffer_elems * sizeof *s->host, 0,
                             "broadcast of running statistics"));
    return dt_world_agree(t->world, dt_buffers_set(t->network, s->host));
}

/* A resumed run may have nothing left but to evaluate. */
static enum dt_status begin_run(struct dt_watcher *watcher, struct dt_trainer *t,
                                struct dt_run_event *start)
{
    (void)start;
    return give_out((struct statistics *)watcher, t);
}

/* The last step before the test samples come. */
static enum dt_status end_step(struct dt_watcher *watcher, struct dt_trainer *t, uint64_t first,
                               uint64_t last)
{
    (void)first;
    const bool ends = t->state.step_in_epoch == t->schedule.steps_per_epoch ||
                      last == (uint64_t)t->config.max_steps;
    return ends ? give_out((struct statistics *)watcher, t) : DT_OK;
}

static void close_statistics(struct dt_watcher *watcher)
{
    free(((struct statistics *)watcher)->host);
    free(watcher);
}

static const struct dt_watcher_ops statistics_ops = {
    .run_begin = begin_run, .step_end = end_step, .close = close_statistics};

enum dt_status dt_statistics_open(struct dt_trainer *t)
{
    struct statistics *s;
    if (t->model.n_buffers == 0) {
        return DT_OK;
    }
    DT_TRY(dt_world_alloc(t->world, 1, sizeof *s, "running statistics", (void **)&s));
    s->watcher.ops = &statistics_ops;
    dt_watcher_add(t, &s->watcher);
    return dt_world_alloc(t->world, t->model.buffer_elems, sizeof *s->host, "running statistics",
                          (void **)&s->host);
}
