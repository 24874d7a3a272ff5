/* Mirrored weights: gradients are averaged over all ranks, and every rank takes the same step.
 *
 * Gradients are summed where they lie: on a device, or in host memory. Averaging divides the sum
 * over all samples of all ranks by their number, so a rank with a short batch weighs less. In host
 * memory each bucket is stepped as soon as its sum is there; of one rank on a device as soon as its
 * gradients are, beside the rest of the backward pass. */
#include <stdlib.h>

#include "dist/strategy/mirrored.h"

void dt_mirrored_start(struct dt_strategy_step *step)
{
    struct dt_mirrored *self = dt_mirrored_of(step->strategy);
    self->sync.trace = self->base.trace;
    self->update = step->update;
    self->n_stepped = 0;
    dt_grad_sync_begin(&self->sync);
}

void dt_mirrored_poll(struct dt_strategy_step *step)
{
    dt_grad_sync_poll(&dt_mirrored_of(step->strategy)->sync);
}

enum dt_status dt_mirrored_step_bucket(struct dt_strategy_step *step,
                                       const struct dt_bucket *bucket)
{
    return dt_strategy_step_range(step, bucket->begin, bucket->end,
                                  step->strategy->allreduce->total + bucket->begin);
}

/* Whether gradients are sums already, and an update is only enqueued, so that a backward pass need
 * not wait for it. */
static bool steps_early(const struct dt_strategy_step *step)
{
    const struct dt_strategy_spec *spec = &step->strategy->spec;
    return spec->comm->size == 1 && spec->device_open == NULL && !spec->backend->host_memory &&
           spec->elementwise;
}

enum dt_status dt_mirrored_ready(struct dt_strategy_step *step, size_t begin, size_t end)
{
    struct dt_mirrored *self = dt_mirrored_of(step->strategy);
    DT_TRY(dt_grad_sync_ready(&self->sync, begin, end));
    const double update_s = self->base.update_s;
    while (steps_early(step) && self->n_stepped < self->sync.n_started) {
        DT_TRY(dt_mirrored_step_bucket(step, &self->sync.buckets[self->n_stepped++]));
    }
    self->base.update_s = update_s; /* what it took to enqueue them is part of the backward pass */
    DT_ASSERT(self->n_stepped <= self->sync.n_started);
    return DT_OK;
}

static enum dt_status mirrored_finish(struct dt_strategy_step *step)
{
    struct dt_mirrored *self = dt_mirrored_of(step->strategy);
    const bool own = self->host_step == NULL;
    const bool by_bucket =
        own && self->base.spec.elementwise && self->base.spec.backend->host_memory;
    DT_TRY(dt_grad_sync_end(&self->sync));
    for (int i = 0; i < self->sync.n_buckets; i++) { /* later ones may still travel */
        DT_TRY(dt_grad_sync_wait(&self->sync, i));
        DT_TRY(by_bucket ? dt_mirrored_step_bucket(step, &self->sync.buckets[i]) : DT_OK);
    }
    const struct dt_bucket rest = {
        .begin = self->n_stepped > 0 ? self->sync.buckets[self->n_stepped - 1].end : 0,
        .end = self->base.optimizer.n_elems};
    return !own || by_bucket || rest.begin == rest.end ? DT_OK
                                                       : dt_mirrored_step_bucket(step, &rest);
}

/* Every rank reports its own share of the elements. */
enum dt_status dt_mirrored_each_sum(struct dt_strategy *strategy, dt_sums_fn fn, void *context)
{
    struct dt_host_step *host_step = dt_mirrored_of(strategy)->host_step;
    const size_t n_elems = strategy->spec.model->arena_elems;
    const int rank = strategy->spec.comm->rank, size = strategy->spec.comm->size;
    const size_t begin = dt_piece_begin(n_elems, rank, size),
                 end = dt_piece_begin(n_elems, rank + 1, size);
    return host_step != NULL ? host_step->each_sum(host_step, begin, end, fn, context)
                             : fn(context, begin, end, strategy->allreduce->total + begin);
}

void dt_mirrored_close(struct dt_strategy *strategy)
{
    struct dt_mirrored *self = dt_mirrored_of(strategy);
    dt_allreduce_close(strategy->allreduce); /* early: it ends what a device may be waiting for, and
                                                what comes now waits for it */
    dt_optimizer_close(&strategy->optimizer);
    if (self->host_step != NULL) {
        self->host_step->close(self->host_step);
    } else {
        strategy->spec.backend->ops->free(strategy->spec.backend, strategy->memory.params);
    }
    free(self);
}

static const struct dt_strategy_ops mirrored_ops = {.start = dt_mirrored_start,
                                                    .ready = dt_mirrored_ready,
                                                    .poll = dt_mirrored_poll,
                                                    .finish = mirrored_finish,
                                                    .each_sum = dt_mirrored_each_sum,
                                                    .close = dt_mirrored_close};

/* Local: no other rank waits for this. */
static enum dt_status open_own_steps(struct dt_strategy *strategy)
{
    const struct dt_strategy_spec *spec = &strategy->spec;
    const size_t n_elems = spec->model->arena_elems;
    DT_TRY(dt_floats_alloc(spec->backend, "the weights", "", n_elems, &strategy->memory.params));
    return dt_optimizer_open(&spec->optimizer, spec->backend, n_elems, NULL, &strategy->optimizer);
}

static enum dt_status open_parts(struct dt_mirrored *self)
{
    DT_ASSERT(self->base.allreduce == NULL);
    const struct dt_strategy_spec *spec = &self->base.spec;
    const struct dt_allreduce_spec allreduce = {.rows = spec->dist.rows->allreduce,
                                                .type = spec->dist.allreduce,
                                                .across = spec->dist.across,
                                                .comm = spec->comm,
                                                .backend = spec->backend,
                                                .device_open = spec->device_open,
                                                .codec = spec->codec,
                                                .n_elems = spec->model->arena_elems,
                                                .n_slots = spec->model->n_blocks};
    DT_TRY(dt_allreduce_open(&allreduce, &self->base.allreduce));
    self->base.memory.grads = self->base.allreduce->part;
    self->base.feedback = self->base.allreduce->feedback;
    if (spec->dist.rows->host_step_open != NULL) {
        DT_TRY(spec->dist.rows->host_step_open(self));
    }
    DT_TRY(self->host_step == NULL ? open_own_steps(&self->base) : DT_OK);
    dt_grad_sync_open(self->base.allreduce, spec->model, &spec->dist, &self->sync);
    self->sync.quiet =
        spec->recorded ||
        self->host_step != NULL; /* pieces are left for those who have nothing else to do */
    return DT_OK;
}

enum dt_status dt_mirrored_check(const struct dt_strategy_spec *spec, const char **key)
{
    const struct dt_dist_spec *dist = &spec->dist;
    return dist->compression.type != DT_COMPRESSION_NONE && dist->rows->compression != NULL
               ? dist->rows->compression->check(spec, key)
               : DT_OK;
}

enum dt_status dt_mirrored_open(const struct dt_strategy_spec *spec,
                                const struct dt_strategy_ops *ops, size_t n_bytes,
                                struct dt_strategy **out)
{
    struct dt_mirrored *self = calloc(1, n_bytes);
    bool all;
    enum dt_status s = dt_comm_all(spec->comm, self != NULL, "agreement on memory",
                                   &all); /* before what ranks open together */
    if (self == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the averaging of gradients");
    }
    self->base.ops = ops;
    self->base.spec = *spec;
    s = s == DT_OK && all ? open_parts(self) : s;
    if (s != DT_OK || !all) {
        dt_mirrored_close(&self->base);
        return s;
    }
    *out = &self->base;
    return DT_OK;
}

static bool serves(const struct dt_dist_spec *dist)
{
    return dist->strategy == DT_STRATEGY_ALLREDUCE;
}

static enum dt_status mirrored_open(const struct dt_strategy_spec *spec, struct dt_strategy **out)
{
    return dt_mirrored_open(spec, &mirrored_ops, sizeof(struct dt_mirrored), out);
}

const struct dt_strategy_entry dt_mirrored_strategy = {
    .serves = serves, .check = dt_mirrored_check, .open = mirrored_open};
