/* Mirrored weights in the order "priority": a step ends while its gradients still travel, and the
 * next forward pass waits, before each block, for the weights of this block alone. Sums of the
 * first blocks are in the highest slots, which the executor moves on first
 * (dist/allreduce/executor.h); in memory that the ranks of a host share, the sum that a rank waits
 * for is added first (dist/allreduce/host_sum.h). */
#include <stdio.h>

#include "base/clock.h"
#include "dist/strategy/mirrored.h"

struct priority {
    struct dt_mirrored mirrored;
    struct dt_strategy_step last; /* its weights may still be on their way */
    int n_left;                   /* the first so many of its buckets */
};

static struct priority *priority_of(struct dt_strategy *strategy)
{
    return (struct priority *)strategy;
}

/* Whether weights from element `begin` of the arena on are still on their way. */
static bool lacks(const struct priority *self, size_t begin)
{
    DT_ASSERT(self->n_left <= self->mirrored.sync.n_buckets);
    return self->n_left > 0 && self->mirrored.sync.buckets[self->n_left - 1].end > begin;
}

/* All weights from element `begin` of the arena on are the last step's when this returns. Every
 * rank waits for the last bucket first. */
static enum dt_status wait_for(struct priority *self, size_t begin)
{
    struct dt_mirrored *mirrored = &self->mirrored;
    struct dt_strategy *base = &mirrored->base;
    const struct dt_span span = {.kind = DT_SPAN_WAIT};
    const double start_s = dt_clock_s();
    if (!lacks(self, begin)) {
        return DT_OK;
    }
    DT_TRY(dt_span_begin(base->trace, &span));
    while (lacks(self, begin)) {
        DT_TRY(dt_grad_sync_wait(&mirrored->sync, self->n_left - 1));
        DT_TRY(mirrored->host_step == NULL
                   ? dt_mirrored_step_bucket(&self->last, &mirrored->sync.buckets[self->n_left - 1])
                   : DT_OK);
        self->n_left--;
    }
    base->pass_times.waiting_s += dt_clock_s() - start_s;
    return dt_span_end(base->trace, &span);
}

/* ---- the forward pass: before each block, the wait for its weights */

struct forward {
    struct dt_trace trace;
    struct dt_trace *outer;
    struct priority *self;
};

static enum dt_status begin_span(struct dt_trace *trace, const struct dt_span *span)
{
    const struct forward *forward = (const struct forward *)trace;
    if (span->kind == DT_SPAN_FORWARD) {
        const struct dt_model *model = forward->self->mirrored.base.spec.model;
        const struct dt_block *block = &model->blocks[span->block];
        if (block->grad_end > block->grad_begin) {
            DT_TRY(wait_for(forward->self, block->grad_begin));
        }
    }
    return dt_span_begin(forward->outer, span);
}

static enum dt_status end_span(struct dt_trace *trace, const struct dt_span *span)
{
    return dt_span_end(((const struct forward *)trace)->outer, span);
}

/* A dt_pass.poll. */
static void poll(void *context)
{
    dt_grad_sync_poll(&((struct priority *)context)->mirrored.sync);
}

static enum dt_status priority_forward(struct dt_strategy_step *step, struct dt_network *network,
                                       const struct dt_pass *pass)
{
    struct priority *self = priority_of(step->strategy);
    struct forward forward = {
        .trace = {.begin = begin_span, .end = end_span}, .outer = pass->trace, .self = self};
    struct dt_pass waiting = *pass;
    waiting.trace = &forward.trace;
    waiting.poll = poll;
    waiting.context = self;
    return dt_network_forward(network, &waiting);
}

/* ---- the other slots */

static enum dt_status priority_share(struct dt_strategy *strategy, enum dt_shared_arrays arrays)
{
    (void)arrays;
    return wait_for(priority_of(strategy), 0);
}

static enum dt_status priority_each_sum(struct dt_strategy *strategy, dt_sums_fn fn, void *context)
{
    DT_TRY(wait_for(priority_of(strategy), 0));
    return dt_mirrored_each_sum(strategy, fn, context);
}

static enum dt_status priority_ready(struct dt_strategy_step *step, size_t begin, size_t end)
{
    struct priority *self = priority_of(step->strategy);
    if (begin == 0) {
        DT_TRY(wait_for(self, 0));
        dt_mirrored_start(step);
    }
    DT_ASSERT(self->n_left == 0);
    return dt_mirrored_ready(step, begin, end);
}

/* Waits for nothing: the next forward pass does. */
static enum dt_status priority_finish(struct dt_strategy_step *step)
{
    struct priority *self = priority_of(step->strategy);
    self->last = *step;
    DT_TRY(dt_grad_sync_end(&self->mirrored.sync));
    DT_ASSERT(self->n_left == 0);
    self->n_left = self->mirrored.sync.n_buckets;
    return DT_OK;
}

static void priority_close(struct dt_strategy *strategy)
{
    if (dt_error_is_agreed()) { /* all end their sums, or MPI would write into freed memory */
        (void)wait_for(priority_of(strategy), 0);
    }
    dt_mirrored_close(strategy);
}

static const struct dt_strategy_ops priority_ops = {.forward = priority_forward,
                                                    .ready = priority_ready,
                                                    .poll = dt_mirrored_poll,
                                                    .finish = priority_finish,
                                                    .share = priority_share,
                                                    .each_sum = priority_each_sum,
                                                    .close = priority_close};

static bool serves(const struct dt_dist_spec *dist)
{
    return dist->strategy == DT_STRATEGY_ALLREDUCE && dist->order == DT_ORDER_PRIORITY;
}

static enum dt_status check_spec(const struct dt_strategy_spec *spec, const char **key)
{
    DT_TRY(dt_mirrored_check(spec, key));
    if (spec->backend != NULL && !spec->backend->host_memory) {
        return dt_error(DT_CONFIG, "distributed.order \"priority\" steps in host memory (use "
                                   "\"device\": \"cpu\", or \"order\": \"backward\")");
    }
    return DT_OK;
}

static enum dt_status priority_open(const struct dt_strategy_spec *spec, struct dt_strategy **out)
{
    const struct dt_comm *comm = spec->comm;
    const bool chooses = spec->dist.allreduce == DT_ALLREDUCE_AUTO && spec->codec == NULL &&
                         comm->n_hosts > 1; /* auto would be MPI between the hosts */
    struct dt_strategy_spec chosen = *spec;
    chosen.dist.allreduce = chooses ? DT_ALLREDUCE_HIERARCHICAL : spec->dist.allreduce;
    DT_TRY(dt_mirrored_open(&chosen, &priority_ops, sizeof(struct priority), out));
    if (*out == NULL || comm->size == 1) {
        return DT_OK;
    }
    struct dt_allreduce *a = (*out)->allreduce;
    if (a->algorithm == NULL && (a->shared == NULL || comm->n_hosts > 1)) {
        dt_mirrored_close(*out);
        *out = NULL;
        return dt_error(DT_CONFIG, "distributed.order \"priority\": MPI adds in one order here "
                                   "(set distributed.allreduce to "
                                   "hierarchical or ring, or order to backward)");
    }
    if (chooses && a->why[0] == '\0') {
        snprintf(a->why, sizeof a->why, "MPI adds in one order");
    }
    return DT_OK;
}

const struct dt_strategy_entry dt_priority_strategy = {
    .serves = serves,
    .check = check_spec,
    .needs_elementwise = "all gradients before a step, and distributed.order \"priority\" steps "
                         "block by block (set it to 0, or use \"order\": \"backward\")",
    .open = priority_open};
