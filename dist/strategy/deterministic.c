/* The same bits at any number of ranks: mirrored weights whose gradients are added as integers.
 *
 * The global batch is cut into leaves of dt_dist_spec.leaf samples. Each leaf passes through the
 * network as a batch of its own on whichever rank has it, by the same code, so its gradient has the
 * same bits everywhere. Float addition depends on the order, integer addition does not: leaves are
 * added as 64-bit integers in units of 2^-40, and every rank steps with the same sum.
 *
 * The unit: a float has 24 bits, so gradients from 2^-17 up are exact, and the error of smaller
 * ones is below 5e-13, far below the rounding of the float sums that make a leaf's gradient. A
 * leaf's gradient below 2^11 leaves room for 2^12 leaves; larger ones, and NaNs, end the training.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "dist/strategy/facts/facts.h"
#include "dist/strategy/strategies.h"

#define UNITS_PER_ONE 0x1p40
#define LARGEST_GRADIENT 0x1p11F

struct deterministic {
    struct dt_strategy base;
    int64_t *sums; /* (arena_elems + 1); the last counts gradients that no sum can hold */
};

static struct deterministic *deterministic_of(struct dt_strategy *strategy)
{
    return (struct deterministic *)strategy;
}

/* Adds round(x * 2^40) to each sum. A double that is 1.5 * 2^52 larger has the rounded number in
 * its last 51 bits: vector units then convert without an instruction for it, and the same bits
 * come out on all of them. Counts what it cannot add. */
static inline int64_t add_fixed(size_t n, const float *x, bool first, int64_t *sums)
{
    const double shift = 0x1.8p52;
    int64_t shift_bits, n_wrong = 0;
    memcpy(&shift_bits, &shift, sizeof shift_bits);
    for (size_t i = 0; i < n; i++) {
        const double shifted = (double)x[i] * UNITS_PER_ONE + shift;
        int64_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        sums[i] = (first ? 0 : sums[i]) + (bits - shift_bits);
        n_wrong += !(fabsf(x[i]) < LARGEST_GRADIENT);
    }
    return n_wrong;
}

/* The gradient of one leaf, added to the sums; the first one replaces them. */
static enum dt_status add_leaf(struct deterministic *self, struct dt_network *network,
                               struct dt_bound_samples *samples, const struct dt_pass *part,
                               bool first)
{
    const size_t n_elems = self->base.spec.model->arena_elems;
    const struct dt_span gather = {.kind = DT_SPAN_GATHER, .n_samples = part->batch->n};
    DT_TRY(dt_span_begin(part->trace, &gather));
    DT_TRY(dt_network_gather(network, samples, part->batch));
    DT_TRY(dt_span_end(part->trace, &gather));
    const double begin_s = dt_clock_s();
    DT_TRY(dt_network_forward(network, part));
    DT_TRY(dt_network_loss(network, samples, part));
    const double middle_s = dt_clock_s();
    DT_TRY(dt_network_backward(network, part, NULL, NULL));
    const float *grads = self->base.memory.grads;
    self->sums[n_elems] += first ? add_fixed(n_elems, grads, true, self->sums)
                                 : add_fixed(n_elems, grads, false, self->sums);
    self->base.pass_times.forward_s += middle_s - begin_s;
    self->base.pass_times.backward_s += dt_clock_s() - middle_s;
    return DT_OK;
}

/* A rank's share of a batch begins with a leaf (data/shard.h). */
static enum dt_status deterministic_passes(struct dt_strategy_step *step,
                                           struct dt_network *network,
                                           struct dt_bound_samples *samples,
                                           const struct dt_pass *pass)
{
    struct deterministic *self = deterministic_of(step->strategy);
    const struct dt_batch *batch = pass->batch;
    const int leaf = (int)self->base.spec.dist.leaf;
    const size_t n_elems = self->base.spec.model->arena_elems;
    self->sums[n_elems] = 0;
    if (batch->n == 0) {
        memset(self->sums, 0, n_elems * sizeof *self->sums);
    }
    for (int first = 0; first < batch->n; first += leaf) {
        struct dt_batch mine = *batch;
        mine.n = batch->n - first < leaf ? batch->n - first : leaf;
        mine.rows += first;
        mine.ids += first;
        struct dt_pass part = *pass;
        part.batch = &mine;
        DT_TRY(add_leaf(self, network, samples, &part, first == 0));
    }
    return DT_OK;
}

static enum dt_status deterministic_wait(struct dt_strategy_step *step)
{
    struct deterministic *self = deterministic_of(step->strategy);
    const size_t n_elems = self->base.spec.model->arena_elems;
    float *grads = self->base.memory.grads;
    DT_TRY(dt_comm_allreduce(self->base.spec.comm, self->sums, n_elems + 1, DT_TYPE_U64,
                             DT_REDUCE_SUM, "allreduce of gradients as integers"));
    if (self->sums[n_elems] != 0) {
        return dt_error_agreed(dt_error(
            DT_NON_FINITE,
            "training diverged at step %llu: %lld gradients are not below %g, no checkpoint "
            "saved (lower train.optimizer.lr)",
            (unsigned long long)self->base.optimizer.n_steps, (long long)self->sums[n_elems],
            (double)LARGEST_GRADIENT));
    }
    for (size_t i = 0; i < n_elems; i++) {
        grads[i] = (float)self->sums[i] * (float)(1 / UNITS_PER_ONE);
    }
    return dt_strategy_step_range(step, 0, n_elems, grads);
}

/* Every rank has the whole sum, and gives its share to `fn`. */
static enum dt_status deterministic_each_sum(struct dt_strategy *strategy, dt_sums_fn fn,
                                             void *context)
{
    const struct dt_comm *comm = strategy->spec.comm;
    const size_t n = strategy->spec.model->arena_elems;
    const size_t begin = dt_piece_begin(n, comm->rank, comm->size),
                 end = dt_piece_begin(n, comm->rank + 1, comm->size);
    return fn(context, begin, end, strategy->memory.grads + begin);
}

static void facts(const struct dt_strategy *strategy, struct dt_strategy_facts *out)
{
    (void)strategy;
    out->allreduce = "64-bit integers over mpi";
    out->n_buckets = 1;
}

static void deterministic_close(struct dt_strategy *strategy)
{
    struct dt_backend *backend = strategy->spec.backend;
    dt_optimizer_close(&strategy->optimizer);
    dt_network_memory_close(backend, &strategy->memory);
    backend->ops->free(backend, deterministic_of(strategy)->sums);
    free(strategy);
}

static const struct dt_strategy_ops deterministic_ops = {.passes = deterministic_passes,
                                                         .wait = deterministic_wait,
                                                         .each_sum = deterministic_each_sum,
                                                         .close = deterministic_close};

static enum dt_status open_parts(struct deterministic *self)
{
    const struct dt_strategy_spec *spec = &self->base.spec;
    const size_t n_elems = spec->model->arena_elems;
    void *sums = NULL;
    DT_TRY(dt_network_memory_open(spec->backend, spec->model, &self->base.memory));
    DT_TRY(spec->backend->ops->alloc(spec->backend, (n_elems + 1) * sizeof *self->sums, &sums));
    self->sums = sums;
    return dt_optimizer_open(&spec->optimizer, spec->backend, n_elems, NULL, &self->base.optimizer);
}

static enum dt_status deterministic_open(const struct dt_strategy_spec *spec,
                                         struct dt_strategy **out)
{
    struct deterministic *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the deterministic strategy");
    }
    self->base.ops = &deterministic_ops;
    self->base.spec = *spec;
    const enum dt_status s = open_parts(self);
    if (s != DT_OK) {
        deterministic_close(&self->base);
        return s;
    }
    *out = &self->base;
    return DT_OK;
}

/* With a configuration alone. */
static enum dt_status check_config(const struct dt_strategy_spec *spec, const char **key)
{
    const struct dt_dist_spec *dist = &spec->dist;
    *key = "distributed.deterministic";
    if (spec->accumulate > 1) {
        return dt_error(DT_CONFIG,
                        "a batch is cut into leaves already (set train.accumulate to 1)");
    }
    if (dist->compression.type != DT_COMPRESSION_NONE) {
        return dt_error(DT_CONFIG, "codecs round what each rank sends (set "
                                   "distributed.compression.type to none)");
    }
    if (dist->allreduce != DT_ALLREDUCE_AUTO && dist->allreduce != DT_ALLREDUCE_MPI) {
        return dt_error(
            DT_CONFIG,
            "integers are added by MPI alone (set distributed.allreduce to auto or mpi)");
    }
    if (dist->order != DT_ORDER_BACKWARD) {
        return dt_error(DT_CONFIG, "a step ends with all its gradients (set distributed.order to "
                                   "backward)");
    }
    if (!dist->average) {
        return dt_error(DT_CONFIG,
                        "replicas that step alone differ (leave distributed.average on)");
    }
    return DT_OK;
}

static enum dt_status deterministic_check(const struct dt_strategy_spec *spec, const char **key)
{
    if (spec->backend == NULL) {
        return check_config(spec, key);
    }
    if (!spec->backend->host_memory) {
        return dt_error(DT_CONFIG, "distributed.deterministic adds gradients in host memory (use "
                                   "\"device\": \"cpu\")");
    }
    return DT_OK;
}

static bool serves(const struct dt_dist_spec *dist)
{
    return dist->strategy == DT_STRATEGY_ALLREDUCE && dist->deterministic;
}

const struct dt_strategy_row dt_deterministic_strategy = {
    .serves = serves, .check = deterministic_check, .open = deterministic_open};

const struct dt_facts_row dt_deterministic_facts = {.strategy = &dt_deterministic_strategy,
                                                    .facts = facts};
