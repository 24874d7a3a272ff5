/* The chain of blocks is split over the ranks, stage by stage; a batch goes through in
 * micro-batches, so that stages work at once. Activations go to the next rank, their gradients to
 * the one before; each rank steps its own blocks' weights, and the other blocks' weights that it
 * has are old until dt_strategy_share_weights.
 *
 * A step sends each message once, between buffers that have a place for every sample of the batch:
 * all receives are posted at its beginning, and it ends when all that was sent has left. Each rank
 * waits 2 m + 1 times in a step, if need be for nothing: so many collectives of the world's
 * communicator, which names the rank that is late. */
#include <stdlib.h>

#include "base/arithmetic.h"
#include "base/clock.h"
#include "dist/strategy/micro_batches.h"
#include "dist/strategy/pipeline/pipeline_schedule.h"
#include "dist/strategy/pipeline/pipeline_stages.h"
#include "dist/strategy/roles.h"
#include "dist/strategy/strategy.h"
#include "dist/strategy/summary/summary.h"
#include "model/own_memory.h"

/* Messages about one micro-batch between this rank and its neighbours. */
enum { ACTIVATIONS_IN, ACTIVATIONS_OUT, GRADIENTS_IN, GRADIENTS_OUT, N_MESSAGES };
struct messages {
    struct dt_wire_request of[N_MESSAGES];
};

struct pipeline {
    struct dt_strategy base;
    struct dt_stages stages;
    struct dt_stage *mine;
    bool is_first, is_last;
    struct dt_wire *wire; /* NULL: there is one rank */
    float *dx,
        *dy; /* gradients of what enters and leaves the stage; NULL on the first and the last */
    size_t n_in, n_out;             /* floats of a sample of these */
    struct dt_micro_batches leaves; /* deterministic: the micro-batches */
    /* of the step under way */
    struct dt_network *network;
    struct dt_bound_samples *samples;
    const struct dt_pass *pass; /* over the whole batch */
    int m;                      /* micro-batches, none of them empty */
    enum dt_status failed;      /* what a poll ran into */
    struct dt_wire_request *awaited;
    struct messages messages[]; /* (dt_pipeline_n_parts of the largest batch) */
};

static struct pipeline *pipeline_of(struct dt_strategy *strategy)
{
    return (struct pipeline *)strategy;
}

/* ---- messages */

static int tag_of(int k, bool of_gradients)
{
    DT_ASSERT(k >= 0);
    return 2 * k + of_gradients;
}

/* Lets messages progress. A dt_pass.poll. */
static void poll(void *context)
{
    struct pipeline *self = context;
    for (int i = 0; i < self->m * N_MESSAGES && self->failed == DT_OK; i++) {
        bool done;
        self->failed =
            dt_wire_test(self->wire, &self->messages[i / N_MESSAGES].of[i % N_MESSAGES], &done);
    }
}

/* A dt_request.progress. */
static enum dt_status progress_message(struct dt_request *request, bool *done)
{
    struct pipeline *self = request->handle;
    return dt_wire_test(self->wire, self->awaited, done);
}

/* A dt_request.progress. */
static enum dt_status progress_all(struct dt_request *request, bool *done)
{
    struct pipeline *self = request->handle;
    *done = true;
    for (int i = 0; i < self->m * N_MESSAGES && *done; i++) {
        DT_TRY(dt_wire_test(self->wire, &self->messages[i / N_MESSAGES].of[i % N_MESSAGES], done));
    }
    return DT_OK;
}

static enum dt_status wait_for(struct pipeline *self, const char *name,
                               struct dt_wire_request *message)
{
    struct dt_comm *comm = self->base.spec.comm;
    const double begin_s = dt_clock_s();
    struct dt_request request;
    DT_TRY(self->failed);
    dt_comm_request_begin(comm, name, 0, &request);
    DT_ASSERT(message == NULL || self->wire != NULL || !message->active);
    self->awaited = message;
    request.handle = self;
    request.progress = message != NULL ? progress_message : progress_all;
    const enum dt_status s = dt_comm_wait(comm, &request);
    self->base.pass_times.waiting_s += dt_clock_s() - begin_s;
    return s;
}

/* ---- micro-batches */

static int first_of(const struct pipeline *self, int k)
{
    DT_ASSERT(k >= 0 && k <= self->m);
    const struct dt_dist_spec *dist = &self->base.spec.dist;
    if (dist->deterministic) {
        return dt_min(self->pass->batch->n, k * (int)dist->leaf);
    }
    return (int)((int64_t)self->pass->batch->n * k / self->m);
}

static struct dt_pass part_of(struct pipeline *self, int k, struct dt_batch *batch)
{
    const int first = first_of(self, k);
    struct dt_pass part = *self->pass;
    *batch = *self->pass->batch;
    batch->n = first_of(self, k + 1) - first;
    batch->rows += first;
    batch->ids += first;
    DT_ASSERT(batch->n >= 1 && first + batch->n <= self->pass->batch->n);
    part.batch = batch;
    part.first = first;
    part.accumulate = k > 0 && !self->base.spec.dist.deterministic;
    part.more = k < self->m - 1 && !self->base.spec.dist.deterministic;
    part.poll = poll;
    part.context = self;
    return part;
}

static enum dt_status post_receives(struct pipeline *self, int k)
{
    const int rank = self->base.spec.comm->rank, first = first_of(self, k);
    const size_t n = (size_t)(first_of(self, k + 1) - first) * sizeof(float);
    struct dt_wire_request *messages = self->messages[k].of;
    if (!self->is_first) {
        DT_TRY(dt_wire_receive(self->wire, rank - 1, tag_of(k, false),
                               dt_network_activation(self->network, self->mine->begin, first),
                               n * self->n_in, &messages[ACTIVATIONS_IN]));
    }
    return self->is_last
               ? DT_OK
               : dt_wire_receive(self->wire, rank + 1, tag_of(k, true),
                                 dt_network_delta(self->network, self->mine->end - 1, first),
                                 n * self->n_out, &messages[GRADIENTS_IN]);
}

static enum dt_status forward(struct pipeline *self, int k)
{
    DT_ASSERT(k >= 0 && k < self->m);
    struct dt_batch batch;
    const struct dt_pass part = part_of(self, k, &batch);
    DT_TRY(
        wait_for(self, "activations of the stage before", &self->messages[k].of[ACTIVATIONS_IN]));
    const double begin_s = dt_clock_s();
    DT_TRY(dt_network_forward_blocks(self->network, self->mine->begin, self->mine->end,
                                     DT_SPAN_FORWARD, &part));
    self->base.pass_times.forward_s += dt_clock_s() - begin_s;
    return self->is_last
               ? DT_OK
               : dt_wire_send(self->wire, self->base.spec.comm->rank + 1, tag_of(k, false),
                              dt_network_activation(self->network, self->mine->end, part.first),
                              (size_t)batch.n * self->n_out * sizeof(float),
                              &self->messages[k].of[ACTIVATIONS_OUT]);
}

static enum dt_status backward(struct pipeline *self, int k)
{
    DT_ASSERT(k >= 0 && k < self->m);
    struct dt_batch batch;
    const struct dt_pass part = part_of(self, k, &batch);
    DT_TRY(wait_for(self, "gradients of the stage behind", &self->messages[k].of[GRADIENTS_IN]));
    const double begin_s = dt_clock_s();
    const bool leaves = self->base.spec.dist.deterministic;
    if (leaves) {
        dt_micro_batches_next(&self->leaves, self->network, k == self->m - 1);
    }
    DT_TRY(self->is_last ? dt_network_loss(self->network, self->samples, &part)
                         : DT_OK); /* no sooner: gradients lie in one place */
    DT_TRY(dt_network_backward_blocks(self->network, self->mine->begin, self->mine->end, &part,
                                      leaves ? dt_micro_batches_ready : NULL, &self->leaves));
    self->base.pass_times.backward_s += dt_clock_s() - begin_s;
    return self->is_first
               ? DT_OK
               : dt_wire_send(self->wire, self->base.spec.comm->rank - 1, tag_of(k, true),
                              dt_network_delta(self->network, self->mine->begin - 1, part.first),
                              (size_t)batch.n * self->n_in * sizeof(float),
                              &self->messages[k].of[GRADIENTS_OUT]);
}

static enum dt_status gather(struct pipeline *self)
{
    const struct dt_span span = {.kind = DT_SPAN_GATHER, .n_samples = self->pass->batch->n};
    DT_TRY(dt_span_begin(self->pass->trace, &span));
    DT_TRY(dt_network_gather(self->network, self->samples, self->pass->batch));
    return dt_span_end(self->pass->trace, &span);
}

/* The network's gradients at the ends of this rank's range lie where messages leave and come. */
static void place_deltas(struct pipeline *self)
{
    struct dt_network_floats *deltas = self->network->deltas;
    if (!self->is_first) {
        deltas[self->mine->begin - 1] = (struct dt_network_floats){self->dx, self->n_in};
    }
    if (!self->is_last) {
        deltas[self->mine->end - 1] = (struct dt_network_floats){self->dy, self->n_out};
    }
}

static enum dt_status pipeline_passes(struct dt_strategy_step *step, struct dt_network *network,
                                      struct dt_bound_samples *samples, const struct dt_pass *pass)
{
    DT_ASSERT(pass->batch->n <= step->strategy->spec.capacity && pass->first == 0);
    struct pipeline *self = pipeline_of(step->strategy);
    const struct dt_strategy_spec *spec = &self->base.spec;
    self->network = network;
    self->samples = samples;
    self->pass = pass;
    self->m = dt_pipeline_n_parts(&spec->dist, pass->batch->n);
    self->failed = DT_OK;
    DT_ASSERT(self->m <= dt_pipeline_n_parts(&spec->dist, spec->capacity));
    place_deltas(self);
    dt_micro_batches_begin(&self->leaves, step, self->base.memory.grads);
    for (int k = 0; k < self->m; k++) {
        DT_TRY(post_receives(self, k));
    }
    DT_TRY(self->is_first ? gather(self) : DT_OK);
    for (int i = 0; i < 2 * self->m; i++) {
        const struct dt_pipeline_op op =
            dt_pipeline_op(spec->dist.schedule, spec->comm->rank, self->stages.n, self->m, i);
        DT_TRY(op.backward ? backward(self, op.micro_batch) : forward(self, op.micro_batch));
    }
    return wait_for(self, "messages to neighbouring stages", NULL);
}

/* ---- the strategy's other slots */

static enum dt_status pipeline_finish(struct dt_strategy_step *step)
{
    const struct pipeline *self = pipeline_of(step->strategy);
    const struct dt_stage *mine = self->mine;
    return dt_strategy_step_range(step, mine->grad_begin, mine->grad_end,
                                  step->strategy->memory.grads + mine->grad_begin);
}

/* Each stage's range of the array becomes its rank's, on every rank. */
static enum dt_status share(struct pipeline *self, float *array, const char *name)
{
    for (int rank = 0; rank < self->stages.n && self->wire != NULL; rank++) {
        const struct dt_stage *stage = &self->stages.stages[rank];
        const size_t n_elems = stage->grad_end - stage->grad_begin;
        DT_TRY(dt_comm_broadcast(self->base.spec.comm, array + stage->grad_begin,
                                 n_elems * sizeof *array, rank, name));
    }
    return DT_OK;
}

static enum dt_status pipeline_share(struct dt_strategy *strategy, enum dt_shared_arrays arrays)
{
    if (arrays == DT_SHARED_WEIGHTS) {
        return share(pipeline_of(strategy), strategy->memory.params, "weights of the stages");
    }
    for (int i = 0; i < strategy->optimizer.n_states; i++) {
        DT_TRY(share(pipeline_of(strategy), strategy->optimizer.states[i],
                     "the stages' optimizer state"));
    }
    return DT_OK;
}

static enum dt_status pipeline_each_sum(struct dt_strategy *strategy, dt_sums_fn fn, void *context)
{
    const struct dt_stage *mine = pipeline_of(strategy)->mine;
    return fn(context, mine->grad_begin, mine->grad_end, strategy->memory.grads + mine->grad_begin);
}

static void pipeline_facts(const struct dt_strategy *strategy, struct dt_strategy_summary *out)
{
    const struct pipeline *self = (const struct pipeline *)strategy;
    out->n_stages = self->stages.n;
    out->counted = true;
    out->sent = self->wire != NULL ? dt_wire_sent(self->wire) : out->sent;
}

static void pipeline_close(struct dt_strategy *strategy)
{
    struct pipeline *self = pipeline_of(strategy);
    dt_wire_close(self->wire);
    dt_optimizer_close(&strategy->optimizer);
    dt_micro_batches_close(strategy->spec.backend, &self->leaves);
    dt_network_memory_close(strategy->spec.backend, &strategy->memory);
    dt_floats_free(strategy->spec.backend, self->dx);
    dt_floats_free(strategy->spec.backend, self->dy);
    free(self);
}

static const struct dt_strategy_ops pipeline_ops = {.passes = pipeline_passes,
                                                    .finish = pipeline_finish,
                                                    .share = pipeline_share,
                                                    .each_sum = pipeline_each_sum,
                                                    .close = pipeline_close};

static enum dt_status check_config(const struct dt_strategy_spec *spec, const char **key)
{
    if (spec->accumulate > 1) {
        *key = "train.accumulate";
        return dt_error(
            DT_CONFIG,
            "a pipeline has distributed.pipeline.micro_batches instead (set accumulate to 1)");
    }
    if (spec->dist.compression.type != DT_COMPRESSION_NONE) {
        *key = "distributed.compression.type";
        return dt_error(DT_CONFIG, "a pipeline sends no gradients of weights (set it to none)");
    }
    if (!spec->dist.average) {
        *key = "distributed.average";
        return dt_error(DT_CONFIG, "a pipeline has nothing to average (leave it on)");
    }
    return DT_OK;
}

static enum dt_status check_spec(const struct dt_strategy_spec *spec, const char **key)
{
    DT_TRY(spec->dist.deterministic ? dt_micro_batches_check(spec, key) : DT_OK);
    if (spec->backend == NULL) {
        return check_config(spec, key);
    }
    if (!spec->backend->host_memory) {
        return dt_error(DT_CONFIG, "distributed.strategy \"pipeline\" sends activations from host "
                                   "memory (use \"device\": \"cpu\", or "
                                   "\"strategy\": \"allreduce\")");
    }
    return DT_OK;
}

static enum dt_status open_buffers(struct pipeline *self)
{
    DT_ASSERT(self->mine->begin < self->mine->end);
    const struct dt_strategy_spec *spec = &self->base.spec;
    const struct dt_block *blocks = spec->model->blocks;
    const size_t n = (size_t)spec->capacity;
    self->n_in = dt_shape_elems(blocks[self->mine->begin].in);
    self->n_out = dt_shape_elems(blocks[self->mine->end - 1].out);
    if (!self->is_first) {
        DT_TRY(dt_floats_alloc(spec->backend, "gradients of what enters ",
                               blocks[self->mine->begin].name, n * self->n_in, &self->dx));
    }
    if (!self->is_last) {
        DT_TRY(dt_floats_alloc(spec->backend, "gradients of the output of ",
                               blocks[self->mine->end - 1].name, n * self->n_out, &self->dy));
    }
    return DT_OK;
}

static enum dt_status open_parts(struct pipeline *self)
{
    const struct dt_strategy_spec *spec = &self->base.spec;
    const struct dt_comm *comm = spec->comm;
    DT_TRY(dt_stages_make(spec->model, comm->size, &spec->dist.cut, &self->stages));
    self->mine = &self->stages.stages[comm->rank];
    self->is_first = comm->rank == 0;
    self->is_last = comm->rank == comm->size - 1;
    DT_TRY(comm->size > 1 ? dt_wire_open_mpi(spec->comm, &self->wire) : DT_OK);
    DT_TRY(open_buffers(self));
    DT_TRY(spec->dist.deterministic ? dt_micro_batches_open(spec, 1, &self->leaves) : DT_OK);
    DT_TRY(dt_network_memory_open(spec->backend, spec->model, &self->base.memory));
    return dt_optimizer_open(&spec->optimizer, spec->backend, spec->model->arena_elems, NULL,
                             &self->base.optimizer);
}

static enum dt_status pipeline_open(const struct dt_strategy_spec *spec, struct dt_strategy **out)
{
    const size_t n_parts = (size_t)dt_pipeline_n_parts(&spec->dist, spec->capacity);
    struct pipeline *self = calloc(1, sizeof *self + n_parts * sizeof *self->messages);
    if (self == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the pipeline");
    }
    self->base.ops = &pipeline_ops;
    self->base.spec = *spec;
    const enum dt_status s = open_parts(self);
    if (s != DT_OK) {
        pipeline_close(&self->base);
        return s;
    }
    *out = &self->base;
    return DT_OK;
}

static bool serves(const struct dt_dist_spec *dist)
{
    return dist->strategy == DT_STRATEGY_PIPELINE;
}

static void pipeline_roles(const struct dt_dist_spec *dist, int size, struct dt_roles *out)
{
    (void)dist, (void)size;
    *out = (struct dt_roles){.n_workers = 1, .whole = true};
}

const struct dt_strategy_entry dt_pipeline_strategy = {
    .serves = serves,
    .check = check_spec,
    .needs_elementwise = "the norm of the whole gradient, and each stage of a pipeline has its own "
                         "(set it to 0, or use \"strategy\": \"allreduce\")",
    .roles = pipeline_roles,
    .open = pipeline_open};

const struct dt_summary_entry dt_pipeline_summary = {.strategy = &dt_pipeline_strategy,
                                                     .facts = pipeline_facts};
