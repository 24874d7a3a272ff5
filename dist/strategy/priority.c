/* Mirrored weights in the order "priority": a step ends while its gradients still travel. The next
 * forward pass waits for each block's weights when it comes to the block, and the sums that it
 * needs first overtake the others: on the wire (dist/ranks/wire_credit.h), and in memory that the
 * ranks of a host share (dist/allreduce/host_sum.h, youngest_first). */
#include <limits.h>
#include <stdlib.h>

#include "base/clock.h"
#include "dist/ranks/wire_credit.h"
#include "dist/strategy/mirrored.h"

struct priority {
    struct dt_mirrored mirrored;
    struct dt_wire *wire;         /* the messages' own; NULL: sums need none here */
    struct dt_strategy_step last; /* its weights may still be on their way */
    int n_left;                   /* the first so many of its buckets */
};

static struct priority *priority_of(struct dt_strategy *strategy)
{
    return (struct priority *)strategy;
}

/* A wrap of struct dt_allreduce_spec. */
static enum dt_status open_wire(struct dt_wire *below, void *context, struct dt_wire **out)
{
    struct priority *self = context;
    DT_TRY(
        dt_wire_open_credit(below, DT_CREDIT_BYTES, self->mirrored.base.spec.model->n_blocks, out));
    self->wire = *out;
    return DT_OK;
}

/* A dt_comm.meanwhile. */
static void help(void *context)
{
    dt_grad_sync_help(&((struct priority *)context)->mirrored.sync);
}

static void hurry(const struct priority *self, int bucket)
{
    if (self->wire != NULL) {
        dt_wire_hurry(self->wire, bucket);
    }
}

/* Whether weights from element `begin` of the arena on are still on their way. */
static bool lacks(const struct priority *self, size_t begin)
{
    return self->n_left > 0 && self->mirrored.sync.buckets[self->n_left - 1].end > begin;
}

/* Buckets are asked for in one order on every rank, the last one first. */
static enum dt_status wait_for(struct priority *self, size_t begin)
{
    struct dt_mirrored *mirrored = &self->mirrored;
    while (lacks(self, begin)) {
        hurry(self, self->n_left - 1);
        DT_TRY(dt_grad_sync_wait_for(&mirrored->sync, self->n_left - 1,
                                     mirrored->host_step != NULL ? NULL : dt_mirrored_step_bucket,
                                     &self->last));
        self->n_left--;
    }
    return DT_OK;
}

/* All weights from element `begin` of the arena on are the last step's when this returns. */
static enum dt_status need(struct priority *self, size_t begin)
{
    struct dt_strategy *base = &self->mirrored.base;
    const struct dt_span span = {.kind = DT_SPAN_WAIT};
    const double start_s = dt_clock_s();
    base->spec.comm->meanwhile = NULL;
    if (!lacks(self, begin)) {
        return DT_OK;
    }
    DT_TRY(dt_span_begin(base->trace, &span));
    DT_TRY(wait_for(self, begin));
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
        DT_TRY(block->grad_end > block->grad_begin ? need(forward->self, block->grad_begin)
                                                   : DT_OK);
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
    return need(priority_of(strategy), 0);
}

static enum dt_status priority_each_sum(struct dt_strategy *strategy, dt_sums_fn fn, void *context)
{
    DT_TRY(need(priority_of(strategy), 0));
    return dt_mirrored_each_sum(strategy, fn, context);
}

static enum dt_status priority_ready(struct dt_strategy_step *step, size_t begin, size_t end)
{
    struct priority *self = priority_of(step->strategy);
    if (begin == 0) {
        DT_TRY(need(self, 0));
        hurry(self, INT_MAX);
        dt_mirrored_begin(step);
    }
    return dt_mirrored_ready(step, begin, end);
}

/* Waits for nothing: the exchange of the step's results follows, and meanwhile gradients travel. */
static enum dt_status priority_wait(struct dt_strategy_step *step)
{
    struct priority *self = priority_of(step->strategy);
    struct dt_comm *comm = self->mirrored.base.spec.comm;
    self->last = *step;
    DT_TRY(dt_grad_sync_end(&self->mirrored.sync));
    self->n_left = self->mirrored.sync.n_buckets;
    comm->meanwhile = help;
    comm->meanwhile_context = self;
    return DT_OK;
}

static void priority_close(struct dt_strategy *strategy)
{
    strategy->spec.comm->meanwhile = NULL;
    dt_mirrored_close(strategy);
}

static const struct dt_strategy_ops priority_ops = {.forward = priority_forward,
                                                    .ready = priority_ready,
                                                    .poll = dt_mirrored_poll,
                                                    .wait = priority_wait,
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
    if (spec->backend != NULL && spec->optimizer.clip_norm != 0) {
        return dt_error(
            DT_CONFIG,
            "train.optimizer.clip_norm needs all gradients before a step, and distributed.order "
            "\"priority\" steps block by block (set it to 0, or use \"order\": \"backward\")");
    }
    return DT_OK;
}

static enum dt_status priority_open(const struct dt_strategy_spec *spec, struct dt_strategy **out)
{
    struct priority *self = calloc(1, sizeof *self);
    if (self != NULL) {
        self->mirrored.base.ops = &priority_ops;
        self->mirrored.wrap = open_wire;
    }
    return dt_mirrored_open(spec, self != NULL ? &self->mirrored : NULL, out);
}

const struct dt_strategy_entry dt_priority_strategy = {
    .serves = serves, .check = check_spec, .open = priority_open};
