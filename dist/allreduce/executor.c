#include "dist/allreduce/executor.h"

#include <stdlib.h>
#include <string.h>

#include "dist/allreduce/allreduce.h"

/* ---- floats as they are */

static void floats_start(struct dt_executor *e, uint64_t draw, size_t begin, size_t end)
{
    (void)draw;
    if (e->algorithm->gathers) {
        memcpy(dt_executor_incoming(e, e->wire->rank) + begin, e->data + begin,
               (end - begin) * sizeof *e->data);
    }
}

static void *floats_message(struct dt_executor *e, const struct dt_execution *x, int index,
                            size_t *n_bytes)
{
    const struct dt_move *move = &x->moves[index];
    const int from = move->kind == DT_SEND_INPUT ? e->wire->rank : move->peer;
    const bool in_place = move->kind == DT_SEND || move->kind == DT_REPLACE;
    *n_bytes = (move->end - move->begin) * sizeof(float);
    return (in_place ? e->data : dt_executor_incoming(e, from)) + move->begin;
}

static void floats_take(struct dt_executor *e, const struct dt_move *move)
{
    const float *from = dt_executor_incoming(e, move->peer) + move->begin;
    float *to = e->data + move->begin;
    const size_t n = move->kind == DT_REPLACE ? 0 : move->end - move->begin;
    for (size_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

static const struct dt_payload_ops floats_ops = {
    .n_buffers = 1, .start = floats_start, .message = floats_message, .take = floats_take};
static const struct dt_payload floats = {.ops = &floats_ops};

/* ---- opening and closing */

/* The slots, their moves and their requests are one piece of memory. */
static enum dt_status open_slots(struct dt_executor *e)
{
    const size_t n_slots = (size_t)e->n_slots, n = (size_t)DT_MAX_MOVES(e->wire->size);
    e->slots = calloc(n_slots, sizeof *e->slots +
                                   n * (sizeof(struct dt_move) + sizeof(struct dt_wire_request)));
    if (e->slots == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the moves of %d ranks", e->wire->size);
    }
    struct dt_move *moves = (struct dt_move *)(e->slots + n_slots);
    struct dt_wire_request *requests = (struct dt_wire_request *)(moves + n_slots * n);
    for (size_t i = 0; i < n_slots; i++) {
        e->slots[i].moves = moves + i * n;
        e->slots[i].requests = requests + i * n;
    }
    return DT_OK;
}

static enum dt_status open_parts(struct dt_executor *e)
{
    const int n_buffers = e->payload.ops->n_buffers;
    const size_t n_vectors = (size_t)(e->algorithm->gathers ? e->wire->size : n_buffers);
    if (e->payload.ops->open != NULL) {
        DT_TRY(e->payload.ops->open(e));
    }
    e->incoming = calloc(n_vectors * e->n_elems + 1, sizeof(float));
    return e->incoming != NULL
               ? open_slots(e)
               : dt_error(DT_NO_MEMORY, "no memory to receive %zu floats", n_vectors * e->n_elems);
}

enum dt_status dt_executor_open(const struct dt_algorithm *algorithm, struct dt_wire *wire,
                                float *data, size_t n_elems, int n_slots,
                                const struct dt_payload *payload, struct dt_executor *out)
{
    DT_ASSERT(n_slots >= 1);
    *out = (struct dt_executor){.algorithm = algorithm,
                                .wire = wire,
                                .data = data,
                                .n_elems = n_elems,
                                .n_slots = n_slots,
                                .payload = payload != NULL ? *payload : floats};
    const enum dt_status s = open_parts(out);
    if (s != DT_OK) {
        dt_executor_close(out);
    }
    return s;
}

void dt_executor_close(struct dt_executor *e)
{
    free(e->slots);
    free(e->incoming);
    if (e->payload.ops != NULL && e->payload.ops->close != NULL) {
        e->payload.ops->close(e);
    }
    *e = (struct dt_executor){.n_slots = 0};
}

/* ---- rounds */

float *dt_executor_incoming(const struct dt_executor *e, int rank)
{
    DT_ASSERT(rank >= 0 && rank < e->wire->size);
    return e->incoming + (e->algorithm->gathers ? (size_t)rank * e->n_elems : 0);
}

static bool sends(const struct dt_move *move)
{
    DT_ASSERT(move->kind <= DT_ADD_INPUT);
    return move->kind == DT_SEND || move->kind == DT_SEND_INPUT;
}

/* Begins to send or to receive. */
static enum dt_status begin_move(struct dt_executor *e, struct dt_execution *x, int slot, int index)
{
    const struct dt_move *move = &x->moves[index];
    DT_ASSERT(x->begin <= move->begin && move->begin <= move->end && move->end <= x->end);
    DT_ASSERT((move->kind == DT_ADD_INPUT) == (move->peer == e->wire->rank));
    struct dt_wire_request *request = &x->requests[index];
    size_t n_bytes;
    request->active = false;
    if (move->kind == DT_ADD_INPUT) {
        return DT_OK;
    }
    void *message = e->payload.ops->message(e, x, index, &n_bytes);
    return sends(move) ? dt_wire_send(e->wire, move->peer, slot, message, n_bytes, request)
                       : dt_wire_receive(e->wire, move->peer, slot, message, n_bytes, request);
}

static enum dt_status begin_round(struct dt_executor *e, struct dt_execution *x, int slot)
{
    DT_ASSERT(!x->begun && x->round < x->n_rounds);
    x->n_moves =
        e->algorithm->round(e->wire->rank, e->wire->size, x->end - x->begin, x->round, x->moves);
    DT_ASSERT(x->n_moves >= 0 && x->n_moves <= DT_MAX_MOVES(e->wire->size));
    x->begun = true;
    for (int i = 0; i < x->n_moves; i++) {
        x->moves[i].begin += x->begin;
        x->moves[i].end += x->begin;
        DT_TRY(begin_move(e, x, slot, i));
    }
    return DT_OK;
}

static void end_round(struct dt_executor *e, struct dt_execution *x)
{
    DT_ASSERT(x->begun && x->round < x->n_rounds);
    for (int i = 0; i < x->n_moves; i++) {
        if (!sends(&x->moves[i])) {
            e->payload.ops->take(e, &x->moves[i]);
        }
    }
    x->round++;
    x->begun = false;
    if (x->round == x->n_rounds && e->payload.ops->end != NULL) {
        e->payload.ops->end(e, x->begin, x->end);
    }
}

static enum dt_status test_all(struct dt_wire *wire, const struct dt_execution *x, bool *done)
{
    *done = true;
    for (int i = 0; i < x->n_moves; i++) {
        bool one;
        DT_TRY(dt_wire_test(wire, &x->requests[i], &one));
        *done = *done && one;
    }
    return DT_OK;
}

uint64_t dt_executor_draw(struct dt_executor *e)
{
    return e->payload.ops->draw != NULL ? e->payload.ops->draw(e) : 0;
}

enum dt_status dt_executor_start(struct dt_executor *e, int slot, uint64_t draw, size_t begin,
                                 size_t end)
{
    struct dt_execution *x = &e->slots[slot];
    DT_ASSERT(slot >= 0 && slot < e->n_slots && x->round == x->n_rounds);
    DT_ASSERT(begin <= end && end <= e->n_elems);
    x->begin = begin;
    x->end = end;
    x->round = 0;
    x->n_rounds = e->algorithm->n_rounds(e->wire->size, end - begin);
    e->payload.ops->start(e, draw, begin, end);
    return x->n_rounds > 0 ? begin_round(e, x, slot) : DT_OK;
}

enum dt_status dt_executor_step(struct dt_executor *e, int slot, bool *ended)
{
    struct dt_execution *x = &e->slots[slot];
    DT_ASSERT(x->round <= x->n_rounds);
    *ended = false;
    if (x->round == x->n_rounds) {
        return DT_OK;
    }
    if (!x->begun) {
        DT_TRY(begin_round(e, x, slot));
    }
    DT_TRY(test_all(e->wire, x, ended));
    if (*ended) {
        end_round(e, x);
    }
    return DT_OK;
}

enum dt_status dt_executor_progress(struct dt_executor *e, int slot, bool *done)
{
    DT_ASSERT(slot >= 0 && slot < e->n_slots);
    for (int i = e->n_slots - 1; i >= 0; i--) {
        bool ended = true;
        while (ended) {
            DT_TRY(dt_executor_step(e, i, &ended));
        }
    }
    *done = e->slots[slot].round == e->slots[slot].n_rounds;
    return DT_OK;
}

/* ---- as an allreduce: by an algorithm of the list, over all ranks */

struct schedule {
    struct dt_allreduce base;
    struct dt_wire *wire;
    struct dt_executor executor;
};

/* A dt_request.progress. */
static enum dt_status progress(struct dt_request *request, bool *done)
{
    struct schedule *self = request->handle;
    return dt_executor_progress(&self->executor, request->slot, done);
}

static enum dt_status schedule_start(struct dt_allreduce *a, int slot, size_t begin, size_t end,
                                     const char *name, struct dt_request *request)
{
    struct schedule *self = (struct schedule *)a;
    dt_comm_request_begin(a->comm, name, (end - begin) * sizeof *a->part, request);
    request->handle = self;
    request->slot = slot;
    request->progress = progress;
    return dt_executor_start(&self->executor, slot, dt_executor_draw(&self->executor), begin, end);
}

static bool schedule_sent(const struct dt_allreduce *a, struct dt_wire_sent *out)
{
    *out = dt_wire_sent(((const struct schedule *)a)->wire);
    return true;
}

static void schedule_close(struct dt_allreduce *a)
{
    struct schedule *self = (struct schedule *)a;
    dt_executor_close(&self->executor);
    dt_wire_close(self->wire);
    a->backend->ops->free(a->backend, a->part);
    free(self);
}

static const struct dt_allreduce_ops schedule_ops = {
    .start = schedule_start, .sent = schedule_sent, .close = schedule_close};

static enum dt_status open_sum(struct schedule *self, const struct dt_allreduce_spec *spec)
{
    struct dt_allreduce *a = &self->base;
    DT_TRY(dt_allreduce_take_memory(a, spec));
    DT_TRY(dt_wire_open_mpi(spec->comm, &self->wire));
    DT_TRY(dt_executor_open(a->algorithm, self->wire, a->part, spec->n_elems, spec->n_slots,
                            spec->payload, &self->executor));
    a->feedback = self->executor.feedback;
    return DT_OK;
}

static bool serves(const struct dt_allreduce_spec *spec)
{
    return dt_allreduce_algorithm(&spec->rows, spec->type) != NULL;
}

static enum dt_status schedule_open(const struct dt_allreduce_spec *spec, struct dt_allreduce **out)
{
    struct schedule *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the allreduce by messages");
    }
    self->base = (struct dt_allreduce){.ops = &schedule_ops,
                                       .type = spec->type,
                                       .algorithm = dt_allreduce_algorithm(&spec->rows, spec->type),
                                       .comm = spec->comm};
    DT_ASSERT(self->base.algorithm != NULL);
    const enum dt_status s = open_sum(self, spec);
    if (s != DT_OK) {
        schedule_close(&self->base);
        return s;
    }
    *out = &self->base;
    return DT_OK;
}

const struct dt_allreduce_entry dt_scheduled_allreduce = {.serves = serves, .open = schedule_open};
