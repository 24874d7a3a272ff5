/* The same bits at any number of ranks: mirrored weights whose gradients are added as integers
 * (micro_batches.h), by any allreduce. Every rank steps with the same sum. */
#include <stdlib.h>

#include "dist/strategy/micro_batches.h"
#include "dist/strategy/mirrored.h"

struct deterministic {
    struct dt_mirrored mirrored; /* its gradients are digits */
    struct dt_micro_batches leaves;
    float *grads; /* (arena): sums over all ranks */
    size_t n_wrong;
};

static struct deterministic *deterministic_of(struct dt_strategy *strategy)
{
    return (struct deterministic *)strategy;
}

static enum dt_status deterministic_passes(struct dt_strategy_step *step,
                                           struct dt_network *network,
                                           struct dt_bound_samples *samples,
                                           const struct dt_pass *pass)
{
    return dt_micro_batches_passes(&deterministic_of(step->strategy)->leaves, step, network,
                                   samples, pass, step->strategy->allreduce->part);
}

static enum dt_status deterministic_ready(struct dt_strategy_step *step, size_t begin, size_t end)
{
    DT_ASSERT(begin <= end && end <= deterministic_of(step->strategy)->leaves.n_elems);
    struct deterministic *self = deterministic_of(step->strategy);
    const size_t n_digits = (size_t)self->leaves.n_digits;
    return dt_grad_sync_ready(&self->mirrored.sync, n_digits * begin, n_digits * end);
}

/* The sums of digits [begin, end) are there. One rank's are gradients. */
static enum dt_status take_sums(struct dt_strategy_step *step, size_t begin, size_t end)
{
    struct deterministic *self = deterministic_of(step->strategy);
    const int n_digits = self->leaves.n_digits;
    DT_ASSERT(begin % (size_t)n_digits == 0);
    const size_t first = begin / (size_t)n_digits, last = end / (size_t)n_digits;
    float *grads = self->grads + first;
    self->n_wrong += n_digits == 1 ? self->leaves.n_wrong
                                   : dt_fixed_join(n_digits, last - first,
                                                   step->strategy->allreduce->total + begin, grads);
    return step->strategy->spec.elementwise && self->n_wrong == 0
               ? dt_strategy_step_range(step, first, last, grads)
               : DT_OK;
}

static enum dt_status deterministic_finish(struct dt_strategy_step *step)
{
    struct deterministic *self = deterministic_of(step->strategy);
    struct dt_grad_sync *sync = &self->mirrored.sync;
    self->n_wrong = 0;
    DT_TRY(dt_grad_sync_end(sync));
    for (int i = 0; i < sync->n_buckets; i++) {
        DT_TRY(dt_grad_sync_wait(sync, i));
        DT_TRY(take_sums(step, sync->buckets[i].begin, sync->buckets[i].end));
    }
    if (self->n_wrong > 0) { /* on every rank */
        return dt_error_agreed(dt_error(
            DT_NON_FINITE,
            "training diverged at step %llu: gradients are not below %g, no checkpoint "
            "saved (lower train.optimizer.lr)",
            (unsigned long long)step->strategy->optimizer.n_steps, (double)DT_FIXED_LARGEST));
    }
    return step->strategy->spec.elementwise
               ? DT_OK
               : dt_strategy_step_range(step, 0, self->leaves.n_elems, self->grads);
}

/* Every rank has the whole sum, and gives its share to `fn`. */
static enum dt_status deterministic_each_sum(struct dt_strategy *strategy, dt_sums_fn fn,
                                             void *context)
{
    const struct dt_comm *comm = strategy->spec.comm;
    const size_t n = strategy->spec.model->arena_elems;
    const size_t begin = dt_piece_begin(n, comm->rank, comm->size),
                 end = dt_piece_begin(n, comm->rank + 1, comm->size);
    return fn(context, begin, end, deterministic_of(strategy)->grads + begin);
}

static void deterministic_close(struct dt_strategy *strategy)
{
    struct dt_backend *backend = strategy->spec.backend;
    dt_allreduce_close(strategy->allreduce);
    dt_optimizer_close(&strategy->optimizer);
    dt_micro_batches_close(backend, &deterministic_of(strategy)->leaves);
    dt_floats_free(backend, strategy->memory.params);
    free(strategy);
}

static const struct dt_strategy_ops deterministic_ops = {.passes = deterministic_passes,
                                                         .start = dt_mirrored_start,
                                                         .ready = deterministic_ready,
                                                         .poll = dt_mirrored_poll,
                                                         .finish = deterministic_finish,
                                                         .each_sum = deterministic_each_sum,
                                                         .close = deterministic_close};

/* Local: no other rank waits for this. */
static enum dt_status open_own(struct deterministic *self)
{
    struct dt_strategy *strategy = &self->mirrored.base;
    const struct dt_strategy_spec *spec = &strategy->spec;
    const size_t n_elems = spec->model->arena_elems;
    DT_TRY(dt_micro_batches_open(spec, spec->comm->size, &self->leaves));
    DT_TRY(dt_floats_alloc(spec->backend, "the weights", "", n_elems, &strategy->memory.params));
    strategy->memory.grads = self->leaves.grads;
    return dt_optimizer_open(&spec->optimizer, spec->backend, n_elems, NULL, &strategy->optimizer);
}

static enum dt_status open_sum(struct deterministic *self)
{
    struct dt_strategy *strategy = &self->mirrored.base;
    const struct dt_strategy_spec *spec = &strategy->spec;
    struct dt_allreduce_spec allreduce = {.rows = spec->dist.rows->allreduce,
                                          .type = spec->dist.allreduce,
                                          .across = spec->dist.across,
                                          .comm = spec->comm,
                                          .backend = spec->backend,
                                          .n_slots = spec->model->n_blocks};
    allreduce.n_elems = (size_t)self->leaves.n_digits * spec->model->arena_elems;
    DT_TRY(dt_allreduce_open(&allreduce, &strategy->allreduce));
    self->grads = self->leaves.n_digits == 1 ? strategy->allreduce->part : self->leaves.grads;
    dt_grad_sync_open(strategy->allreduce, spec->model, &spec->dist, &self->mirrored.sync);
    dt_micro_batches_widen(self->leaves.n_digits, &self->mirrored.sync);
    return DT_OK;
}

static enum dt_status deterministic_open(const struct dt_strategy_spec *spec,
                                         struct dt_strategy **out)
{
    struct deterministic *self = calloc(1, sizeof *self);
    bool all;
    enum dt_status s = DT_NO_MEMORY;
    if (self != NULL) {
        self->mirrored.base = (struct dt_strategy){.ops = &deterministic_ops, .spec = *spec};
        s = open_own(self);
    }
    const enum dt_status agreed = dt_comm_all(spec->comm, s == DT_OK, "agreement on memory", &all);
    if (self == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the deterministic strategy");
    }
    s = s != DT_OK ? s : agreed;
    s = s == DT_OK && all ? open_sum(self) : s;
    if (s == DT_OK && all && self->mirrored.base.allreduce != NULL) {
        *out = &self->mirrored.base;
    } else {
        deterministic_close(&self->mirrored.base);
    }
    return s;
}

static bool serves(const struct dt_dist_spec *dist)
{
    return dist->strategy == DT_STRATEGY_ALLREDUCE && dist->deterministic;
}

const struct dt_strategy_entry dt_deterministic_strategy = {
    .serves = serves, .check = dt_micro_batches_check, .open = deterministic_open};
