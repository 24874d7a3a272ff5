/* Weights with servers: workers send each piece of their gradients to the server that holds it, as
 * soon as it is final; the server adds the workers' in rank order, steps, and sends everybody the
 * new weights (Li et al. 2014, "Scaling distributed machine learning with the parameter server",
 * OSDI). A server that is a worker too needs no message for itself: strategy central.
 *
 * A piece that a worker has sent away is not read again before its new weights are there, so these
 * are received in place. */
#include <stdlib.h>
#include <string.h>

#include "dist/strategy/servers/parameter_server.h"
#include "dist/strategy/strategy.h"
#include "model/own_memory.h"

static bool is_async(const struct dt_parameter_server *self)
{
    return self->base.spec.dist.mode == DT_SERVER_MODE_ASYNC;
}

/* ---- the server's side */

/* As they come; a piece is as many floats behind it as before it in the array. */
static float *gradients_of(const struct dt_parameter_server *self, int worker,
                           const struct dt_piece *p)
{
    return self->incoming +
           self->width * ((size_t)worker * self->base.spec.model->arena_elems + p->begin);
}

static enum dt_status receive_gradients(struct dt_parameter_server *self, int piece)
{
    DT_ASSERT(dt_server_holds(self, piece) && self->incoming != NULL);
    const struct dt_piece *p = &self->placement.pieces[piece];
    for (int w = 0; w < self->roles.n_workers; w++) {
        if (w != self->base.spec.comm->rank) {
            DT_TRY(dt_wire_receive(self->wire, w, dt_server_tag(piece, DT_TAG_GRADIENTS),
                                   gradients_of(self, w, p),
                                   dt_server_push_bytes(&self->feedback.codec, self->width, p),
                                   &dt_server_link_of(self, piece, w)->gradients));
        }
    }
    return DT_OK;
}

static enum dt_status have_all_gradients(struct dt_parameter_server *self, int piece, bool *all)
{
    *all = !self->roles.works || piece < self->n_pushed;
    for (int w = 0; w < self->roles.n_workers && *all; w++) {
        if (w != self->base.spec.comm->rank) {
            DT_TRY(dt_wire_test(self->wire, &dt_server_link_of(self, piece, w)->gradients, all));
        }
    }
    return DT_OK;
}

static void add_own(const struct dt_parameter_server *self, size_t begin, size_t n, bool first)
{
    const float *own = self->digits != NULL ? self->digits : self->base.memory.grads;
    for (size_t i = begin; i < begin + n; i++) {
        self->sums[i] = first ? own[i] : self->sums[i] + own[i];
    }
}

/* In rank order, as in shared memory: the same bits. A digit that is a NaN makes one of a weight,
 * and so of the next loss. */
static void add_gradients(struct dt_parameter_server *self, const struct dt_piece *p)
{
    DT_ASSERT(self->sums != NULL &&
              (self->width == 1 || self->digits != NULL || !self->roles.works));
    const size_t n = dt_server_n_floats(self->width, p), begin = self->width * p->begin;
    float *sums = self->sums + begin;
    for (int w = 0; w < self->roles.n_workers; w++) {
        if (w == self->base.spec.comm->rank) {
            add_own(self, begin, n, w == 0);
        } else if (w == 0) {
            dt_codec_decode(&self->feedback.codec, gradients_of(self, w, p), begin, n, sums);
        } else {
            dt_codec_decode_add(&self->feedback.codec, gradients_of(self, w, p), begin, n, sums);
        }
    }
    if (self->width > 1) {
        (void)dt_fixed_join((int)self->width, n / self->width, sums, sums);
    }
}

static enum dt_status send_weights(struct dt_parameter_server *self, int piece)
{
    DT_ASSERT(self->stepped[piece]);
    const struct dt_piece *p = &self->placement.pieces[piece];
    for (int w = 0; w < self->roles.n_workers; w++) {
        if (w != self->base.spec.comm->rank) {
            DT_TRY(dt_wire_send(self->wire, w, dt_server_tag(piece, DT_TAG_WEIGHTS),
                                self->base.memory.params + p->begin, dt_server_piece_bytes(p),
                                &dt_server_link_of(self, piece, w)->weights));
        }
    }
    return DT_OK;
}

static enum dt_status serve(struct dt_parameter_server *self, int piece, bool *done)
{
    const struct dt_piece *p = &self->placement.pieces[piece];
    bool all;
    *done = false;
    if (!self->stepped[piece]) {
        DT_TRY(have_all_gradients(self, piece, &all));
        if (!all) {
            return DT_OK;
        }
        add_gradients(self, p);
        DT_TRY(dt_strategy_step_range(self->step, p->begin, p->end,
                                      self->sums + self->width * p->begin));
        self->stepped[piece] = true;
        DT_TRY(send_weights(self, piece));
    }
    *done = true;
    for (int w = 0; w < self->roles.n_workers && *done; w++) {
        DT_TRY(dt_wire_test(self->wire, &dt_server_link_of(self, piece, w)->weights, done));
    }
    return DT_OK;
}

/* ---- the worker's side */

/* Returns the message's bytes. The gradients become the numbers that others will decode, also those
 * that stay here. */
static const float *encode(struct dt_parameter_server *self, const struct dt_piece *p)
{
    float *gradients = self->base.memory.grads + p->begin;
    if (self->digits != NULL) {
        return self->digits + self->width * p->begin;
    }
    if (self->encoded == NULL) {
        return gradients;
    }
    dt_error_feedback_encode(&self->feedback, dt_error_feedback_draw(&self->feedback), p->begin,
                             p->end, gradients, self->encoded + p->begin);
    return self->encoded + p->begin;
}

static enum dt_status push(struct dt_parameter_server *self, int piece)
{
    DT_ASSERT(self->roles.works && piece == self->n_pushed);
    const struct dt_piece *p = &self->placement.pieces[piece];
    struct dt_server_link *link = dt_server_link_of(self, piece, self->base.spec.comm->rank);
    const float *message = encode(self, p);
    const int holder = dt_server_holder(self, piece);
    if (dt_server_holds(self, piece)) {
        return DT_OK;
    }
    DT_TRY(dt_wire_send(self->wire, holder, dt_server_tag(piece, DT_TAG_GRADIENTS), message,
                        dt_server_push_bytes(&self->feedback.codec, self->width, p),
                        &link->gradients));
    return dt_wire_receive(self->wire, holder, dt_server_tag(piece, DT_TAG_WEIGHTS),
                           self->base.memory.params + p->begin, dt_server_piece_bytes(p),
                           &link->weights);
}

static enum dt_status push_ready(struct dt_parameter_server *self)
{
    while (self->n_pushed < self->placement.n_pieces &&
           self->placement.pieces[self->n_pushed].end <= self->n_ready) {
        DT_TRY(push(self, self->n_pushed));
        self->n_pushed++;
    }
    DT_ASSERT(self->n_pushed <= self->placement.n_pieces);
    return DT_OK;
}

static enum dt_status pull(struct dt_parameter_server *self, int piece, bool *done)
{
    struct dt_server_link *link = dt_server_link_of(self, piece, self->base.spec.comm->rank);
    DT_TRY(dt_wire_test(self->wire, &link->gradients, done));
    return *done ? dt_wire_test(self->wire, &link->weights, done) : DT_OK;
}

/* ---- both */

/* Everything a little further. */
static enum dt_status advance(struct dt_parameter_server *self, bool *done)
{
    *done = true;
    for (int piece = 0; piece < self->placement.n_pieces; piece++) {
        bool piece_done = true;
        if (dt_server_holds(self, piece)) {
            DT_TRY(is_async(self) ? dt_async_serve(self, piece, &piece_done)
                                  : serve(self, piece, &piece_done));
        } else if (self->roles.works && piece < self->n_pushed) {
            DT_TRY(pull(self, piece, &piece_done));
        }
        *done = *done && piece_done;
    }
    *done = *done && (!self->roles.works || self->n_pushed == self->placement.n_pieces);
    return DT_OK;
}

/* A dt_request.progress. */
static enum dt_status progress_step(struct dt_request *request, bool *done)
{
    return advance(request->handle, done);
}

static void server_start(struct dt_strategy_step *step)
{
    struct dt_parameter_server *self = dt_server_of(step->strategy);
    if (self->base.n_expected > 0) {
        dt_async_expect(self, self->base.n_expected);
        self->base.n_expected = 0;
    }
    self->n_ready = 0;
    self->n_pushed = 0;
    self->failed = DT_OK;
    memset(self->stepped, 0, sizeof self->stepped);
    DT_ASSERT(!is_async(self) || self->n_begun < self->n_expected);
    self->n_begun++;
    for (int piece = 0;
         piece < self->placement.n_pieces && self->failed == DT_OK && !is_async(self); piece++) {
        self->failed = dt_server_holds(self, piece) ? receive_gradients(self, piece) : DT_OK;
    }
}

static void server_poll(struct dt_strategy_step *step)
{
    struct dt_parameter_server *self = dt_server_of(step->strategy);
    bool done;
    self->step = step;
    if (self->failed == DT_OK) {
        self->failed = advance(self, &done);
    }
}

static enum dt_status server_ready(struct dt_strategy_step *step, size_t begin, size_t end)
{
    struct dt_parameter_server *self = dt_server_of(step->strategy);
    (void)begin;
    DT_ASSERT(begin == self->n_ready && end <= self->base.spec.model->arena_elems);
    self->n_ready = end;
    if (self->base.spec.dist.overlap) {
        DT_TRY(push_ready(self));
        server_poll(step);
    }
    return DT_OK;
}

static enum dt_status server_finish(struct dt_strategy_step *step)
{
    struct dt_parameter_server *self = dt_server_of(step->strategy);
    struct dt_comm *comm = self->base.spec.comm;
    struct dt_request request;
    DT_TRY(self->failed);
    DT_ASSERT(!self->roles.works || self->n_ready == self->base.spec.model->arena_elems);
    self->step = step;
    DT_TRY(push_ready(self));
    dt_comm_request_begin(
        comm, self->roles.works ? "new weights of the servers" : "gradients of the workers", 0,
        &request);
    request.handle = self;
    request.progress = progress_step;
    return dt_comm_wait(comm, &request);
}

/* ---- outside of steps: servers give out what they hold */

/* True if the rank lacks weights that another holds. */
typedef bool (*lacks_fn)(const struct dt_parameter_server *self, int rank);

/* Workers have all weights already, unless they run freely: they are left alone, so that a
 * comparison still compares. */
static bool lacks_weights(const struct dt_parameter_server *self, int rank)
{
    return rank >= self->roles.n_workers || is_async(self);
}

/* For checkpoints, which rank 0 writes. */
static bool lacks_state(const struct dt_parameter_server *self, int rank)
{
    (void)self;
    return rank == 0;
}

/* A dt_request.progress. */
static enum dt_status progress_shares(struct dt_request *request, bool *done)
{
    struct dt_parameter_server *self = request->handle;
    *done = true;
    for (int i = 0; i < self->placement.n_pieces * self->base.spec.comm->size && *done; i++) {
        DT_TRY(dt_wire_test(self->shares_wire, &self->shares[i], done));
    }
    return DT_OK;
}

/* Piece by piece of the array, from its holder to every other rank that lacks it. */
static enum dt_status share_piece(struct dt_parameter_server *self, int piece, float *array,
                                  lacks_fn lacks)
{
    const struct dt_comm *comm = self->base.spec.comm;
    const struct dt_piece *p = &self->placement.pieces[piece];
    struct dt_wire_request *requests = self->shares + piece * comm->size;
    const int from = dt_server_holder(self, piece);
    for (int rank = 0; rank < comm->size && dt_server_holds(self, piece); rank++) {
        if (rank != from && lacks(self, rank)) {
            DT_TRY(dt_wire_send(self->shares_wire, rank, dt_server_tag(piece, DT_TAG_SHARE),
                                array + p->begin, dt_server_piece_bytes(p), &requests[rank]));
        }
    }
    return from != comm->rank && lacks(self, comm->rank)
               ? dt_wire_receive(self->shares_wire, from, dt_server_tag(piece, DT_TAG_SHARE),
                                 array + p->begin, dt_server_piece_bytes(p), &requests[from])
               : DT_OK;
}

static enum dt_status share(struct dt_parameter_server *self, float *array, lacks_fn lacks,
                            const char *name)
{
    DT_ASSERT(self->shares_wire != NULL);
    struct dt_comm *comm = self->base.spec.comm;
    struct dt_request request;
    for (int piece = 0; piece < self->placement.n_pieces; piece++) {
        DT_TRY(share_piece(self, piece, array, lacks));
    }
    dt_comm_request_begin(comm, name, 0, &request);
    request.handle = self;
    request.progress = progress_shares;
    return dt_comm_wait(comm, &request);
}

static enum dt_status share_weights(struct dt_strategy *strategy)
{
    struct dt_parameter_server *self = dt_server_of(strategy);
    DT_TRY(self->wire == NULL
               ? DT_OK
               : share(self, strategy->memory.params, lacks_weights, "weights of the servers"));
    dt_async_all_have_pulled(self);
    return DT_OK;
}

static enum dt_status share_state(struct dt_strategy *strategy)
{
    struct dt_parameter_server *self = dt_server_of(strategy);
    for (int i = 0; i < strategy->optimizer.n_states && self->wire != NULL; i++) {
        DT_TRY(share(self, strategy->optimizer.states[i], lacks_state,
                     "the servers' optimizer state"));
    }
    return DT_OK;
}

static enum dt_status server_share(struct dt_strategy *strategy, enum dt_shared_arrays arrays)
{
    return arrays == DT_SHARED_WEIGHTS ? share_weights(strategy) : share_state(strategy);
}

/* ---- */

static enum dt_status server_each_sum(struct dt_strategy *strategy, dt_sums_fn fn, void *context)
{
    const struct dt_parameter_server *self = dt_server_of(strategy);
    for (int piece = 0; piece < self->placement.n_pieces; piece++) {
        const struct dt_piece *p = &self->placement.pieces[piece];
        if (dt_server_holds(self, piece)) {
            DT_ASSERT(self->sums != NULL && p->begin < p->end);
            DT_TRY(fn(context, p->begin, p->end, self->sums + self->width * p->begin));
        }
    }
    return DT_OK;
}

static void server_close(struct dt_strategy *strategy)
{
    struct dt_parameter_server *self = dt_server_of(strategy);
    dt_wire_close(self->wire);
    dt_wire_close(self->shares_wire);
    dt_optimizer_close(&strategy->optimizer);
    dt_network_memory_close(strategy->spec.backend, &strategy->memory);
    free(self->links);
    free(self->shares);
    dt_error_feedback_close(&self->feedback);
    dt_micro_batches_close(strategy->spec.backend, &self->leaves);
    free(self->digits);
    free(self->encoded);
    free(self->incoming);
    free(self->outgoing);
    free(self->sums);
    free(self);
}

/* Leaf by leaf. */
static enum dt_status server_passes(struct dt_strategy_step *step, struct dt_network *network,
                                    struct dt_bound_samples *samples, const struct dt_pass *pass)
{
    struct dt_parameter_server *self = dt_server_of(step->strategy);
    return self->roles.works
               ? dt_micro_batches_passes(&self->leaves, step, network, samples, pass, self->digits)
               : DT_OK;
}

#define SERVER_OPS                                                                              \
    .start = server_start, .ready = server_ready, .poll = server_poll, .finish = server_finish, \
    .share = server_share, .each_sum = server_each_sum, .close = server_close
static const struct dt_strategy_ops server_ops = {SERVER_OPS},
                                    leaf_ops = {SERVER_OPS, .passes = server_passes};

/* Without `deterministic`, servers take any configuration. */
static enum dt_status check_config(const struct dt_strategy_spec *spec, const char **key)
{
    *key = "distributed.deterministic";
    return spec->dist.mode == DT_SERVER_MODE_ASYNC
               ? dt_error(DT_CONFIG, "servers that do not wait take gradients as they come (set "
                                     "distributed.parameter_server.mode to sync)")
               : dt_micro_batches_check(spec, key);
}

static enum dt_status check_spec(const struct dt_strategy_spec *spec, const char **key)
{
    DT_TRY(spec->dist.deterministic ? check_config(spec, key) : DT_OK);
    if (spec->backend == NULL) {
        return DT_OK;
    }
    if (!spec->backend->host_memory) {
        return dt_error(
            DT_CONFIG,
            "distributed.strategy \"%s\" keeps weights in host memory (use \"device\": \"cpu\", or "
            "\"strategy\": \"allreduce\")",
            dt_strategy_names[spec->dist.strategy]);
    }
    return DT_OK;
}

static enum dt_status open_parts(struct dt_parameter_server *self)
{
    const struct dt_strategy_spec *spec = &self->base.spec;
    const size_t n_elems = spec->model->arena_elems, n_pieces = (size_t)self->placement.n_pieces;
    const bool serves = self->roles.server >= 0;
    const bool encodes = self->roles.works && spec->dist.compression.type != DT_COMPRESSION_NONE;
    const bool leaves = self->roles.works && spec->dist.deterministic;
    self->links = calloc(n_pieces * (size_t)self->roles.n_workers + 1, sizeof *self->links);
    self->shares = calloc(n_pieces * (size_t)spec->comm->size + 1, sizeof *self->shares);
    self->incoming = serves ? calloc((size_t)self->roles.n_workers * self->width * n_elems + 1,
                                     sizeof *self->incoming)
                            : NULL;
    self->outgoing = serves && is_async(self) ? calloc((size_t)self->roles.n_workers * n_elems + 1,
                                                       sizeof *self->outgoing)
                                              : NULL;
    self->encoded = encodes ? calloc(n_elems + 1, sizeof *self->encoded) : NULL;
    self->sums = serves ? calloc(self->width * n_elems + 1, sizeof *self->sums) : NULL;
    self->digits = leaves ? calloc(self->width * n_elems + 1, sizeof *self->digits) : NULL;
    if (self->links == NULL || self->shares == NULL ||
        (serves && (self->incoming == NULL || self->sums == NULL)) ||
        (serves && is_async(self) && self->outgoing == NULL) ||
        (encodes && self->encoded == NULL) || (leaves && self->digits == NULL)) {
        return dt_error(DT_NO_MEMORY, "no memory for the parameter server");
    }
    DT_TRY(dt_error_feedback_open(dt_codec_or_none(spec->codec), spec->comm->rank,
                                  self->roles.works ? n_elems : 0, &self->feedback));
    self->base.feedback = encodes ? &self->feedback : NULL;
    if (spec->comm->size > 1) {
        DT_TRY(dt_wire_open_mpi(spec->comm, &self->wire));
        DT_TRY(dt_wire_open_mpi(spec->comm, &self->shares_wire));
    }
    DT_TRY(leaves ? dt_micro_batches_open(spec, self->roles.n_workers, &self->leaves) : DT_OK);
    DT_TRY(dt_network_memory_open(spec->backend, spec->model, &self->base.memory));
    return dt_optimizer_open(&spec->optimizer, spec->backend, n_elems, NULL, &self->base.optimizer);
}

static enum dt_status server_open(const struct dt_strategy_spec *spec, struct dt_strategy **out)
{
    struct dt_parameter_server *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the parameter server");
    }
    self->base.ops = spec->dist.deterministic ? &leaf_ops : &server_ops;
    self->base.spec = *spec;
    self->base.free_running = is_async(self);
    enum dt_status s = dt_roles_find(&spec->dist, spec->comm->rank, spec->comm->size, &self->roles);
    self->width = dt_server_width(&spec->dist, self->roles.n_workers);
    dt_placement_make(spec->model, self->roles.n_servers, &self->placement);
    s = s == DT_OK ? open_parts(self) : s;
    if (s != DT_OK) {
        server_close(&self->base);
        return s;
    }
    *out = &self->base;
    return DT_OK;
}

static bool serves(const struct dt_dist_spec *dist)
{
    return dist->strategy == DT_STRATEGY_PARAMETER_SERVER || dist->strategy == DT_STRATEGY_CENTRAL;
}

static void server_roles(const struct dt_dist_spec *dist, int size, struct dt_roles *out)
{
    const bool central = dist->strategy == DT_STRATEGY_CENTRAL;
    const int n_servers = central ? 1 : (int)dist->servers;
    out->n_servers = n_servers;
    out->n_workers = central ? size : size - n_servers;
    out->first_server = central ? 0 : out->n_workers;
}

const struct dt_strategy_entry dt_server_strategy = {
    .serves = serves,
    .check = check_spec,
    .needs_elementwise = "the norm of the whole gradient, and servers hold pieces of it (set it to "
                         "0, or use \"strategy\": \"allreduce\")",
    .roles = server_roles,
    .open = server_open};
