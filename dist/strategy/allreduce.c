/* Mirrored weights: gradients are averaged over all ranks, and every rank takes the same step.
 *
 * Gradients are summed where they lie: on a device, or in host memory. Averaging divides the sum
 * over all samples of all ranks by their number, so a rank with a short batch weighs less. In host
 * memory each bucket is stepped as soon as its sum is there; of one rank on a device as soon as its
 * gradients are, beside the rest of the backward pass. */
#include <stdlib.h>

#include "base/clock.h"
#include "dist/strategy/grad_sync.h"
#include "dist/strategy/host_step.h"
#include "dist/strategy/strategies.h"

struct mirrored {
    struct dt_strategy base;
    struct dt_grad_sync sync;
    struct dt_host_step host_step; /* the ranks of the host step together, unless it is zero */
    int n_stepped;                 /* buckets, of the step under way */
    struct dt_strategy_step
        last; /* by priority: the step whose weights may still be on their way */
};

static struct mirrored *mirrored_of(struct dt_strategy *strategy)
{
    return (struct mirrored *)strategy;
}

static void mirrored_begin(struct dt_strategy_step *step)
{
    struct mirrored *self = mirrored_of(step->strategy);
    self->host_step.update = step->update;
    self->sync.trace = self->base.trace;
    self->n_stepped = 0;
    dt_grad_sync_begin(&self->sync);
}

static void mirrored_poll(struct dt_strategy_step *step)
{
    dt_grad_sync_poll(&mirrored_of(step->strategy)->sync);
}

/* A dt_grad_ready_fn: the sums of a bucket are there. */
static enum dt_status step_bucket(void *context, size_t begin, size_t end)
{
    struct dt_strategy_step *step = context;
    return dt_strategy_step_range(step, begin, end, step->strategy->allreduce->total + begin);
}

/* Whether gradients are sums already, and an update is only enqueued, so that a backward pass need
 * not wait for it. */
static bool steps_early(const struct dt_strategy_step *step)
{
    const struct dt_strategy_spec *spec = &step->strategy->spec;
    return spec->comm->size == 1 && spec->device_open == NULL && !spec->backend->host_memory &&
           step->update.clip_norm == 0;
}

static enum dt_status mirrored_ready(struct dt_strategy_step *step, size_t begin, size_t end)
{
    struct mirrored *self = mirrored_of(step->strategy);
    const double update_s = self->base.update_s;
    DT_TRY(dt_grad_sync_ready(&self->sync, begin, end));
    while (steps_early(step) && self->n_stepped < self->sync.n_started) {
        const struct dt_bucket *bucket = &self->sync.buckets[self->n_stepped++];
        DT_TRY(step_bucket(step, bucket->begin, bucket->end));
    }
    self->base.update_s = update_s; /* what it took to enqueue them is part of the backward pass */
    return DT_OK;
}

static enum dt_status mirrored_wait(struct dt_strategy_step *step)
{
    struct mirrored *self = mirrored_of(step->strategy);
    const bool own = !self->base.together;
    const bool by_bucket =
        own && step->update.clip_norm == 0 && self->base.spec.backend->host_memory;
    DT_TRY(dt_grad_sync_wait(&self->sync, by_bucket ? step_bucket : NULL, step));
    if (own) {
        const size_t begin = self->n_stepped > 0 ? self->sync.buckets[self->n_stepped - 1].end : 0;
        const size_t n_elems = self->base.optimizer.n_elems;
        return by_bucket || begin == n_elems ? DT_OK : step_bucket(step, begin, n_elems);
    }
    self->base.update_s = self->host_step.seconds;
    return DT_OK;
}

static const struct dt_host_step_ops *host_step_of(const struct dt_strategy *strategy)
{
    return strategy->spec.dist.rows->host_step;
}

/* This rank's share of all elements, in which sums that were used piece by piece are formed once
 * more. */
static enum dt_status mirrored_each_sum(struct dt_strategy *strategy, dt_sums_fn fn, void *context)
{
    const struct dt_allreduce *a = strategy->allreduce;
    const size_t n_elems = strategy->spec.model->arena_elems;
    const int rank = strategy->spec.comm->rank, size = strategy->spec.comm->size;
    const size_t begin = dt_piece_begin(n_elems, rank, size),
                 end = dt_piece_begin(n_elems, rank + 1, size);
    const size_t most = strategy->together ? DT_HOST_STEP_PIECE : end - begin;
    for (size_t at = begin, next; at < end; at = next) {
        next = end - at < most ? end : at + most;
        const float *sums =
            strategy->together ? host_step_of(strategy)->sums(a->shared, at, next) : a->total + at;
        DT_TRY(fn(context, at, next, sums));
    }
    return DT_OK;
}

/* ---- by priority: the weights come while the next step's forward pass asks for them, block by
 * block */

/* A dt_comm.meanwhile. */
static void help(void *context)
{
    dt_grad_sync_help(&((struct mirrored *)context)->sync);
}

static enum dt_status priority_need(struct dt_strategy *strategy, size_t begin)
{
    struct mirrored *self = mirrored_of(strategy);
    const struct dt_span span = {.kind = DT_SPAN_WAIT};
    const double start_s = dt_clock_s();
    strategy->spec.comm->meanwhile = NULL;
    if (!dt_grad_sync_lacks(&self->sync, begin)) {
        return DT_OK;
    }
    DT_TRY(dt_span_begin(strategy->trace, &span));
    DT_TRY(dt_grad_sync_need(&self->sync, begin, strategy->together ? NULL : step_bucket,
                             &self->last));
    strategy->update_s = strategy->together ? self->host_step.seconds : strategy->update_s;
    strategy->pass_times.waiting_s += dt_clock_s() - start_s;
    return dt_span_end(strategy->trace, &span);
}

static enum dt_status priority_finish(struct dt_strategy *strategy)
{
    return priority_need(strategy, 0);
}

static enum dt_status priority_each_sum(struct dt_strategy *strategy, dt_sums_fn fn, void *context)
{
    DT_TRY(priority_finish(strategy));
    return mirrored_each_sum(strategy, fn, context);
}

static enum dt_status priority_ready(struct dt_strategy_step *step, size_t begin, size_t end)
{
    if (begin == 0) {
        DT_TRY(priority_finish(step->strategy));
        mirrored_begin(step);
    }
    return mirrored_ready(step, begin, end);
}

/* Waits for nothing: what follows is the exchange of the step's results, meanwhile gradients travel
 * on. */
static enum dt_status priority_wait(struct dt_strategy_step *step)
{
    struct mirrored *self = mirrored_of(step->strategy);
    struct dt_comm *comm = self->base.spec.comm;
    self->last = *step;
    DT_TRY(dt_grad_sync_end(&self->sync));
    comm->meanwhile = help;
    comm->meanwhile_context = self;
    return DT_OK;
}

static void mirrored_describe(const struct dt_strategy *strategy, struct dt_averaging *out)
{
    const struct mirrored *self = (const struct mirrored *)strategy;
    const struct dt_allreduce *a = strategy->allreduce;
    const bool across = a->shared != NULL && out->n_hosts > 1;
    out->across = !across ? NULL : a->algorithm != NULL ? a->algorithm->name : "mpi";
    out->why = a->why;
    out->n_buckets = self->sync.n_buckets;
    out->traffic = dt_traffic_predict(a, &self->sync);
}

static bool mirrored_sent(const struct dt_strategy *strategy, struct dt_wire_sent *out)
{
    return dt_allreduce_sent(strategy->allreduce, out);
}

static void mirrored_close(struct dt_strategy *strategy)
{
    struct mirrored *self = mirrored_of(strategy);
    strategy->spec.comm->meanwhile = NULL;
    dt_allreduce_close(strategy->allreduce); /* early: it ends what a device may be waiting for, and
                                                what comes now waits for it */
    dt_optimizer_close(&strategy->optimizer);
    if (self->base.together) {
        host_step_of(strategy)->close(&self->host_step);
    } else {
        dt_floats_free(strategy->spec.backend, strategy->memory.params);
    }
    free(self);
}

static const struct dt_strategy_ops mirrored_ops = {.begin = mirrored_begin,
                                                    .ready = mirrored_ready,
                                                    .poll = mirrored_poll,
                                                    .wait = mirrored_wait,
                                                    .each_sum = mirrored_each_sum,
                                                    .describe = mirrored_describe,
                                                    .sent = mirrored_sent,
                                                    .close = mirrored_close};

static const struct dt_strategy_ops priority_ops = {.ready = priority_ready,
                                                    .poll = mirrored_poll,
                                                    .wait = priority_wait,
                                                    .need = priority_need,
                                                    .share_weights = priority_finish,
                                                    .collect_state = priority_finish,
                                                    .each_sum = priority_each_sum,
                                                    .describe = mirrored_describe,
                                                    .sent = mirrored_sent,
                                                    .close = mirrored_close};

/* One host, replicas that begin alike, and a rule that looks at one element at a time. */
static bool may_step_together(const struct mirrored *self)
{
    const struct dt_strategy_spec *spec = &self->base.spec;
    return spec->dist.rows->host_step != NULL && self->base.allreduce->shared != NULL &&
           spec->backend->host_memory && spec->comm->n_hosts == 1 && spec->dist.broadcast &&
           spec->optimizer.clip_norm == 0;
}

static enum dt_status agree_to_step_together(struct mirrored *self)
{
    const struct dt_strategy_spec *spec = &self->base.spec;
    bool all_want;
    if (!may_step_together(self)) {
        return DT_OK;
    }
    DT_TRY(dt_comm_all(spec->comm, spec->together, "agreement to step together", &all_want));
    if (all_want) {
        DT_TRY(spec->dist.rows->host_step->open(
            spec->comm, &self->base.optimizer, dt_optimizer_n_states(&spec->optimizer),
            spec->model->arena_elems, self->base.allreduce->shared, &self->host_step));
        self->base.together = self->host_step.memory.bytes != NULL;
    }
    return DT_OK;
}

/* Of this rank alone: no other waits for it meanwhile. */
static enum dt_status open_own_parts(struct mirrored *self)
{
    const struct dt_strategy_spec *spec = &self->base.spec;
    const size_t n_elems = spec->model->arena_elems;
    float *const *states = NULL;
    if (self->base.together) {
        self->base.memory.params = self->host_step.params;
        states = self->host_step.states;
    } else {
        DT_TRY(
            dt_floats_alloc(spec->backend, "the weights", "", n_elems, &self->base.memory.params));
    }
    DT_TRY(
        dt_optimizer_open(&spec->optimizer, spec->backend, n_elems, states, &self->base.optimizer));
    DT_TRY(dt_grad_sync_open(self->base.allreduce, spec->model, &spec->dist, &self->sync));
    self->sync.quiet =
        spec->recorded ||
        self->base.together; /* pieces are left for those who have nothing else to do */
    return DT_OK;
}

static bool by_priority(const struct dt_strategy_spec *spec)
{
    return spec->dist.order == DT_ORDER_PRIORITY;
}

static enum dt_status open_parts(struct mirrored *self)
{
    const struct dt_strategy_spec *spec = &self->base.spec;
    const struct dt_allreduce_spec allreduce = {.rows = spec->dist.rows->allreduce,
                                                .type = spec->dist.allreduce,
                                                .across = spec->dist.across,
                                                .comm = spec->comm,
                                                .backend = spec->backend,
                                                .device_open = spec->device_open,
                                                .codec = spec->codec,
                                                .n_elems = spec->model->arena_elems,
                                                .n_slots = spec->model->n_blocks,
                                                .credit_bytes =
                                                    by_priority(spec) ? DT_CREDIT_BYTES : 0};
    DT_TRY(dt_allreduce_open(&allreduce, &self->base.allreduce));
    self->base.memory.grads = self->base.allreduce->part;
    self->base.feedback = self->base.allreduce->feedback;
    DT_TRY(agree_to_step_together(self));
    return open_own_parts(self);
}

static enum dt_status check_spec(const struct dt_strategy_spec *spec)
{
    if (by_priority(spec) && !spec->backend->host_memory) {
        return dt_error(DT_CONFIG, "distributed.order \"priority\" steps in host memory (use "
                                   "\"device\": \"cpu\", or \"order\": "
                                   "\"backward\")");
    }
    if (by_priority(spec) && spec->optimizer.clip_norm != 0) {
        return dt_error(
            DT_CONFIG,
            "train.optimizer.clip_norm needs all gradients before a step, and distributed.order "
            "\"priority\" steps block by block (set it to 0, or use \"order\": \"backward\")");
    }
    return DT_OK;
}

static enum dt_status mirrored_open(const struct dt_strategy_spec *spec, struct dt_strategy **out)
{
    struct mirrored *self = calloc(1, sizeof *self);
    bool all;
    enum dt_status s = dt_comm_all(spec->comm, self != NULL, "agreement on memory",
                                   &all); /* before what ranks open together */
    if (self == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the averaging of gradients");
    }
    self->base.ops = by_priority(spec) ? &priority_ops : &mirrored_ops;
    self->base.spec = *spec;
    s = s == DT_OK && all ? open_parts(self) : s;
    if (s != DT_OK || !all) {
        mirrored_close(&self->base);
        return s;
    }
    *out = &self->base;
    return DT_OK;
}

static bool serves(const struct dt_dist_spec *dist)
{
    return dist->strategy == DT_STRATEGY_ALLREDUCE;
}

const struct dt_strategy_row dt_mirrored_strategy = {
    .serves = serves, .check = check_spec, .open = mirrored_open};
