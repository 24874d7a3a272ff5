#include "dist/allreduce/executor.h"

#include <stdlib.h>
#include <string.h>

static enum dt_status open_slots(struct dt_executor *e)
{
    const size_t size = (size_t)e->wire->size, n_slots = (size_t)e->n_slots;
    e->slots = calloc(n_slots, sizeof *e->slots);
    for (size_t i = 0; e->slots != NULL && i < n_slots; i++) {
        struct dt_execution *slot = &e->slots[i];
        slot->moves = calloc(size, sizeof *slot->moves);
        slot->requests = calloc(size, sizeof *slot->requests);
        slot->of_inputs = calloc(size, sizeof *slot->of_inputs);
        if (slot->moves == NULL || slot->requests == NULL || slot->of_inputs == NULL) {
            return dt_error(DT_NO_MEMORY, "no memory for the moves of %zu ranks", size);
        }
    }
    return e->slots != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "no memory for the moves of %zu ranks", size);
}

enum dt_status dt_executor_open(const struct dt_algorithm *algorithm, struct dt_wire *wire, float *data, size_t n_elems,
                                int n_slots, struct dt_executor *out)
{
    *out = (struct dt_executor){.algorithm = algorithm, .wire = wire, .data = data, .n_slots = n_slots};
    out->incoming = calloc(n_elems + 1, sizeof(float));
    out->input = algorithm->keeps_input ? calloc(n_elems + 1, sizeof(float)) : NULL;
    enum dt_status s = DT_OK;
    if (out->incoming == NULL || (algorithm->keeps_input && out->input == NULL)) {
        s = dt_error(DT_NO_MEMORY, "no memory to receive %zu floats", n_elems);
    }
    s = s == DT_OK ? open_slots(out) : s;
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
        free(e->slots[i].of_inputs);
    }
    free(e->slots);
    free(e->incoming);
    free(e->input);
    *e = (struct dt_executor){.n_slots = 0};
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
        return dt_wire_send(e->wire, move->peer, slot, e->input + at, n_bytes, &x->of_inputs[x->n_of_inputs++]);
    case DT_ADD:
        return dt_wire_receive(e->wire, move->peer, slot, e->incoming + at, n_bytes, request);
    case DT_REPLACE:
        return dt_wire_receive(e->wire, move->peer, slot, e->data + at, n_bytes, request);
    case DT_ADD_INPUT:
        return DT_OK;
    }
    return dt_error(DT_INTERNAL, "an algorithm has a move of unknown kind %d", (int)move->kind);
}

static enum dt_status begin_round(struct dt_executor *e, struct dt_execution *x, int slot)
{
    x->n_moves = e->algorithm->round(e->wire->rank, e->wire->size, x->end - x->begin, x->round, x->moves);
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
            add(n, (move->kind == DT_ADD ? e->incoming : e->input) + at, e->data + at);
        }
    }
}

static enum dt_status test_all(struct dt_wire *wire, struct dt_wire_request *requests, int n, bool *done)
{
    *done = true;
    for (int i = 0; i < n; i++) {
        bool one;
        DT_TRY(dt_wire_test(wire, &requests[i], &one));
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
    x->round = x->n_of_inputs = 0;
    x->n_rounds = e->algorithm->n_rounds(e->wire->size);
    if (e->input != NULL) {
        memcpy(e->input + begin, e->data + begin, (end - begin) * sizeof(float));
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
    DT_TRY(test_all(e->wire, x->requests, x->n_moves, ended));
    if (*ended) {
        end_round(e, x);
        x->round++;
        x->begun = false;
    }
    return DT_OK;
}

static enum dt_status advance(struct dt_executor *e, struct dt_execution *x, int slot)
{
    bool done, ended = true;
    while (ended) {
        DT_TRY(dt_executor_step(e, slot, &ended));
    }
    if (x->round < x->n_rounds) {
        return DT_OK;
    }
    DT_TRY(test_all(e->wire, x->of_inputs, x->n_of_inputs, &done));
    x->active = !done;
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
