#include "dist/allreduce/executor.h"

#include <stdlib.h>
#include <string.h>

static enum dt_status open_slots(struct dt_executor *e)
{
    const size_t n_slots = (size_t)e->n_slots, n = (size_t)dt_algorithm_max_moves(e->algorithm, e->wire->size, e->n_elems);
    bool found = (e->slots = calloc(n_slots, sizeof *e->slots)) != NULL;
    for (size_t i = 0; found && i < n_slots; i++) {
        struct dt_execution *slot = &e->slots[i];
        slot->moves = calloc(n, sizeof *slot->moves);
        slot->requests = calloc(n, sizeof *slot->requests);
        found = slot->moves != NULL && slot->requests != NULL;
    }
    return found ? DT_OK : dt_error(DT_NO_MEMORY, "no memory for the moves of %d ranks", e->wire->size);
}

enum dt_status dt_executor_open(const struct dt_algorithm *algorithm, struct dt_wire *wire, float *data, size_t n_elems,
                                int n_slots, struct dt_executor *out)
{
    *out = (struct dt_executor){.algorithm = algorithm, .wire = wire, .data = data, .n_elems = n_elems, .n_slots = n_slots};
    const size_t n_vectors = algorithm->gathers ? (size_t)wire->size : 1;
    out->incoming = calloc(n_vectors * n_elems + 1, sizeof(float));
    enum dt_status s =
        out->incoming != NULL ? open_slots(out) : dt_error(DT_NO_MEMORY, "no memory to receive %zu floats", n_vectors * n_elems);
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
    *e = (struct dt_executor){.n_slots = 0};
}

float *dt_executor_incoming(const struct dt_executor *e, int rank)
{
    return e->incoming + (e->algorithm->gathers ? (size_t)rank * e->n_elems : 0);
}

/* Adds, or begins to send or to receive. */
static enum dt_status begin_move(struct dt_executor *e, struct dt_execution *x, int slot, int index)
{
    const struct dt_move *move = &x->moves[index];
    const size_t at = x->begin + move->begin, n_bytes = (move->end - move->begin) * sizeof(float);
    struct dt_wire_request *request = &x->requests[index];
    request->active = false;
    switch (move->kind) {
    case DT_SEND:
        return dt_wire_send(e->wire, move->peer, slot, e->data + at, n_bytes, request);
    case DT_SEND_INPUT:
        return dt_wire_send(e->wire, move->peer, slot, dt_executor_incoming(e, e->wire->rank) + at, n_bytes, request);
    case DT_ADD:
        return dt_wire_receive(e->wire, move->peer, slot, dt_executor_incoming(e, move->peer) + at, n_bytes, request);
    case DT_REPLACE:
        return dt_wire_receive(e->wire, move->peer, slot, e->data + at, n_bytes, request);
    case DT_ADD_INPUT:
        return DT_OK;
    }
    return dt_error(DT_INTERNAL, "an algorithm has a move of unknown kind %d", (int)move->kind);
}

static enum dt_status begin_round(struct dt_executor *e, struct dt_execution *x, int slot)
{
    x->n_moves = dt_algorithm_round(e->algorithm, e->wire->rank, e->wire->size, x->end - x->begin, x->round, x->moves);
    x->begun = true;
    for (int i = 0; i < x->n_moves; i++) {
        DT_TRY(begin_move(e, x, slot, i));
    }
    return DT_OK;
}

static void add(size_t n, const float *from, float *to)
{
    for (size_t i = 0; i < n; i++) {
        to[i] += from[i];
    }
}

static void end_round(const struct dt_executor *e, const struct dt_execution *x)
{
    for (int i = 0; i < x->n_moves; i++) {
        const struct dt_move *move = &x->moves[i];
        const size_t at = x->begin + move->begin, n = move->end - move->begin;
        if (move->kind == DT_ADD || move->kind == DT_ADD_INPUT) {
            add(n, dt_executor_incoming(e, move->peer) + at, e->data + at);
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

enum dt_status dt_executor_start(struct dt_executor *e, int slot, size_t begin, size_t end)
{
    struct dt_execution *x = &e->slots[slot];
    x->active = true;
    x->begin = begin;
    x->end = end;
    x->round = 0;
    x->n_rounds = dt_algorithm_n_rounds(e->algorithm, e->wire->size, end - begin);
    if (e->algorithm->gathers) {
        memcpy(dt_executor_incoming(e, e->wire->rank) + begin, e->data + begin, (end - begin) * sizeof(float));
    }
    return x->n_rounds > 0 ? begin_round(e, x, slot) : DT_OK;
}

enum dt_status dt_executor_step(struct dt_executor *e, int slot, bool *ended)
{
    struct dt_execution *x = &e->slots[slot];
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
    for (int i = 0; i < e->n_slots; i++) {
        if (e->slots[i].active) {
            DT_TRY(advance(e, &e->slots[i], i));
        }
    }
    *done = !e->slots[slot].active;
    return DT_OK;
}
