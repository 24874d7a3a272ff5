#include "dist/allreduce/executor.h"

#include <stdlib.h>
#include <string.h>

static bool encodes(const struct dt_executor *e)
{
    return e->feedback != NULL;
}

static enum dt_status open_slots(struct dt_executor *e)
{
    const size_t n_slots = (size_t)e->n_slots, n = (size_t)DT_MAX_MOVES(e->wire->size);
    bool found = (e->slots = calloc(n_slots, sizeof *e->slots)) != NULL;
    for (size_t i = 0; found && i < n_slots; i++) {
        struct dt_execution *slot = &e->slots[i];
        slot->moves = calloc(n, sizeof *slot->moves);
        slot->requests = calloc(n, sizeof *slot->requests);
        found = slot->moves != NULL && slot->requests != NULL;
    }
    return found ? DT_OK
                 : dt_error(DT_NO_MEMORY, "no memory for the moves of %d ranks", e->wire->size);
}

static enum dt_status open_parts(struct dt_executor *e)
{
    if (e->encoding.codec != NULL) {
        DT_TRY(e->encoding.ops->open(e->encoding.codec, e->wire->rank, e->n_elems, &e->feedback));
    }
    const size_t n_vectors = e->algorithm->gathers ? (size_t)e->wire->size : encodes(e) ? 2 : 1;
    e->incoming = calloc(n_vectors * e->n_elems + 1, sizeof(float));
    return e->incoming != NULL
               ? open_slots(e)
               : dt_error(DT_NO_MEMORY, "no memory to receive %zu floats", n_vectors * e->n_elems);
}

enum dt_status dt_executor_open(const struct dt_algorithm *algorithm, struct dt_wire *wire,
                                float *data, size_t n_elems, int n_slots,
                                struct dt_encoding encoding, struct dt_executor *out)
{
    DT_ASSERT(n_slots >= 1);
    *out = (struct dt_executor){.algorithm = algorithm,
                                .wire = wire,
                                .data = data,
                                .n_elems = n_elems,
                                .n_slots = n_slots,
                                .encoding = encoding};
    const enum dt_status s = open_parts(out);
    if (s != DT_OK) {
        dt_executor_close(out);
    }
    return s;
}

void dt_executor_close(struct dt_executor *e)
{
    for (int i = 0; e->slots != NULL && i < e->n_slots; i++) {
        free(e->slots[i].moves);
        free(e->slots[i].requests);
    }
    free(e->slots);
    free(e->incoming);
    if (encodes(e)) {
        e->encoding.ops->close(e->feedback);
    }
    *e = (struct dt_executor){.n_slots = 0};
}

float *dt_executor_incoming(const struct dt_executor *e, int rank)
{
    DT_ASSERT(rank >= 0 && rank < e->wire->size);
    return e->incoming + (e->algorithm->gathers ? (size_t)rank * e->n_elems : 0);
}

/* This rank's own encodings. */
static float *outgoing(const struct dt_executor *e)
{
    return e->algorithm->gathers ? dt_executor_incoming(e, e->wire->rank)
                                 : e->incoming + e->n_elems;
}

/* Rounds sums as their encoding does, which then is in its place. */
static void encode_sums(struct dt_executor *e, size_t begin, size_t end)
{
    DT_ASSERT(begin <= end && end <= e->n_elems);
    const struct dt_encoding *by = &e->encoding;
    by->ops->encode(by->codec, 0, e->data + begin, begin, end - begin, outgoing(e) + begin);
    by->ops->decode(by->codec, outgoing(e) + begin, begin, end - begin, e->data + begin);
}

/* The numbers that a move sends, where they are not the input. */
static const float *sums_to_send(struct dt_executor *e, const struct dt_execution *x, int index)
{
    const struct dt_move *move = &x->moves[index];
    if (!encodes(e)) {
        return e->data + x->begin + move->begin;
    }
    if (index == 0 || move[-1].kind != DT_SEND || move[-1].begin != move->begin ||
        move[-1].end != move->end) {
        encode_sums(e, x->begin + move->begin, x->begin + move->end);
    }
    return outgoing(e) + x->begin + move->begin;
}

/* Begins to send or to receive. */
static enum dt_status begin_move(struct dt_executor *e, struct dt_execution *x, int slot, int index)
{
    const struct dt_move *move = &x->moves[index];
    DT_ASSERT(move->begin <= move->end && x->begin + move->end <= x->end);
    DT_ASSERT((move->kind == DT_ADD_INPUT) == (move->peer == e->wire->rank));
    const size_t at = x->begin + move->begin, n = move->end - move->begin,
                 n_bytes = encodes(e) ? e->encoding.ops->bytes(e->encoding.codec, at, n)
                                      : n * sizeof(float);
    struct dt_wire_request *request = &x->requests[index];
    request->active = false;
    switch (move->kind) {
    case DT_SEND:
        return dt_wire_send(e->wire, move->peer, slot, sums_to_send(e, x, index), n_bytes, request);
    case DT_SEND_INPUT:
        return dt_wire_send(e->wire, move->peer, slot, dt_executor_incoming(e, e->wire->rank) + at,
                            n_bytes, request);
    case DT_ADD:
        return dt_wire_receive(e->wire, move->peer, slot, dt_executor_incoming(e, move->peer) + at,
                               n_bytes, request);
    case DT_REPLACE:
        return dt_wire_receive(e->wire, move->peer, slot,
                               (encodes(e) ? dt_executor_incoming(e, move->peer) : e->data) + at,
                               n_bytes, request);
    case DT_ADD_INPUT:
        return DT_OK;
    }
    return dt_error(DT_INTERNAL, "an algorithm has a move of unknown kind %d", (int)move->kind);
}

static enum dt_status begin_round(struct dt_executor *e, struct dt_execution *x, int slot)
{
    DT_ASSERT(!x->begun && x->round < x->n_rounds);
    x->n_moves =
        e->algorithm->round(e->wire->rank, e->wire->size, x->end - x->begin, x->round, x->moves);
    DT_ASSERT(x->n_moves >= 0 && x->n_moves <= DT_MAX_MOVES(e->wire->size));
    x->begun = true;
    for (int i = 0; i < x->n_moves; i++) {
        DT_TRY(begin_move(e, x, slot, i));
    }
    return DT_OK;
}

static void add(struct dt_executor *e, const float *from, size_t at, size_t n)
{
    float *to = e->data + at;
    if (encodes(e)) {
        e->encoding.ops->decode_add(e->encoding.codec, from, at, n, to);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

static void end_round(struct dt_executor *e, const struct dt_execution *x)
{
    DT_ASSERT(x->begun && x->round < x->n_rounds);
    for (int i = 0; i < x->n_moves; i++) {
        const struct dt_move *move = &x->moves[i];
        const size_t at = x->begin + move->begin, n = move->end - move->begin;
        const float *from = dt_executor_incoming(e, move->peer) + at;
        if (move->kind == DT_ADD || move->kind == DT_ADD_INPUT) {
            add(e, from, at, n);
        } else if (move->kind == DT_REPLACE && encodes(e)) {
            e->encoding.ops->decode(e->encoding.codec, from, at, n, e->data + at);
        }
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
    return encodes(e) ? e->encoding.ops->draw(e->feedback) : 0;
}

enum dt_status dt_executor_start(struct dt_executor *e, int slot, uint64_t draw, size_t begin,
                                 size_t end)
{
    struct dt_execution *x = &e->slots[slot];
    DT_ASSERT(slot >= 0 && slot < e->n_slots && x->round == x->n_rounds);
    DT_ASSERT(begin <= end && end <= e->n_elems);
    x->active = true;
    x->begin = begin;
    x->end = end;
    x->round = 0;
    x->n_rounds = e->algorithm->n_rounds(e->wire->size, end - begin);
    if (encodes(e)) {
        e->encoding.ops->encode_input(e->feedback, e->algorithm->gathers, draw, begin, end,
                                      e->data + begin, outgoing(e) + begin);
    } else if (e->algorithm->gathers) {
        memcpy(outgoing(e) + begin, e->data + begin, (end - begin) * sizeof *e->data);
    }
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
        x->round++;
        x->begun = false;
        if (x->round == x->n_rounds && encodes(e) && !e->algorithm->gathers) {
            encode_sums(e, x->begin, x->end);
        }
    }
    return DT_OK;
}

static enum dt_status advance(struct dt_executor *e, struct dt_execution *x, int slot)
{
    bool ended = true;
    while (ended) {
        DT_TRY(dt_executor_step(e, slot, &ended));
    }
    x->active = x->round < x->n_rounds;
    return DT_OK;
}

enum dt_status dt_executor_progress(struct dt_executor *e, int slot, bool *done)
{
    DT_ASSERT(slot >= 0 && slot < e->n_slots);
    for (int i = e->n_slots - 1; i >= 0; i--) {
        if (e->slots[i].active) {
            DT_TRY(advance(e, &e->slots[i], i));
        }
    }
    *done = !e->slots[slot].active;
    return DT_OK;
}
