/* Ranks of one process: a message waits in a list until both of its ends are there. */
#include <stdlib.h>
#include <string.h>

#include "dist/ranks/wire.h"

/* One end of a message; in its hub's list until it has met the other. */
struct local_end {
    struct local_end *next;
    bool is_send, done;
    int from, to, tag;
    void *bytes;
    size_t n_bytes;
};

/* State that the ranks share; the last wire to close closes it. */
struct local_hub {
    int n_open;
    struct local_end *waiting, **tail; /* in the order of the calls */
};

struct local_wire {
    struct dt_wire base;
    struct local_hub *hub;
};

static struct local_wire *local_of(struct dt_wire *wire)
{
    return (struct local_wire *)wire;
}

static bool fits(const struct local_end *a, const struct local_end *b)
{
    return a->is_send != b->is_send && a->from == b->from && a->to == b->to && a->tag == b->tag;
}

/* Takes the first waiting end that fits out of the list; NULL: there is none. */
static struct local_end *take_other(struct local_hub *hub, const struct local_end *end)
{
    for (struct local_end **at = &hub->waiting; *at != NULL; at = &(*at)->next) {
        struct local_end *other = *at;
        if (fits(other, end)) {
            *at = other->next;
            hub->tail = *at == NULL ? at : hub->tail;
            return other;
        }
    }
    return NULL;
}

static enum dt_status meet(struct local_hub *hub, struct local_end *end)
{
    struct local_end *other = take_other(hub, end);
    if (other == NULL) {
        *hub->tail = end;
        hub->tail = &end->next;
        return DT_OK;
    }
    if (other->n_bytes != end->n_bytes) {
        return dt_error(
            DT_INTERNAL,
            "rank %d sends rank %d another number of bytes than it receives: %zu and %zu",
            end->from, end->to, end->n_bytes, other->n_bytes);
    }
    if (end->n_bytes > 0) {
        memcpy(end->is_send ? other->bytes : end->bytes, end->is_send ? end->bytes : other->bytes,
               end->n_bytes);
    }
    DT_ASSERT(!other->done && !end->done);
    other->done = end->done = true;
    return DT_OK;
}

static enum dt_status begin(struct dt_wire *wire, const struct local_end *what,
                            struct dt_wire_request *request)
{
    struct local_end *end = malloc(sizeof *end);
    if (end == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for a message");
    }
    *end = *what;
    request->handle = end;
    return meet(local_of(wire)->hub, end);
}

static enum dt_status local_send(struct dt_wire *wire, int peer, int tag, const void *bytes,
                                 size_t n_bytes, struct dt_wire_request *request)
{
    const struct local_end end = {.is_send = true,
                                  .from = wire->rank,
                                  .to = peer,
                                  .tag = tag,
                                  .bytes = (void *)(uintptr_t)bytes,
                                  .n_bytes = n_bytes};
    return begin(wire, &end, request);
}

static enum dt_status local_receive(struct dt_wire *wire, int peer, int tag, void *bytes,
                                    size_t n_bytes, struct dt_wire_request *request)
{
    const struct local_end end = {
        .from = peer, .to = wire->rank, .tag = tag, .bytes = bytes, .n_bytes = n_bytes};
    return begin(wire, &end, request);
}

static enum dt_status local_test(struct dt_wire *wire, struct dt_wire_request *request, bool *done)
{
    (void)wire;
    struct local_end *end = request->handle;
    *done = end->done;
    if (end->done) {
        free(end);
        request->handle = NULL;
    }
    return DT_OK;
}

static void local_close(struct dt_wire *wire)
{
    DT_ASSERT(local_of(wire)->hub->n_open >= 1);
    struct local_hub *hub = local_of(wire)->hub;
    if (--hub->n_open == 0) {
        for (struct local_end *end = hub->waiting, *next; end != NULL;
             end = next) { /* of a schedule that was given up */
            next = end->next;
            free(end);
        }
        free(hub);
    }
    free(wire->sent);
    free(wire);
}

static const struct dt_wire_ops local_ops = {.name = "local",
                                             .send = local_send,
                                             .receive = local_receive,
                                             .test = local_test,
                                             .close = local_close};

static struct dt_wire *open_one(struct local_hub *hub, int rank, int size)
{
    struct local_wire *wire = malloc(sizeof *wire);
    struct dt_traffic *sent = calloc((size_t)size, sizeof *sent);
    if (wire == NULL || sent == NULL) {
        free(wire);
        free(sent);
        return NULL;
    }
    *wire = (struct local_wire){
        .base = {.ops = &local_ops, .rank = rank, .size = size, .sent = sent}, .hub = hub};
    hub->n_open++;
    return &wire->base;
}

enum dt_status dt_wire_open_local(int size, struct dt_wire *wires[])
{
    DT_ASSERT(size >= 1);
    struct local_hub *hub = calloc(1, sizeof *hub);
    int n = 0;
    if (hub != NULL) {
        hub->tail = &hub->waiting;
        while (n < size && (wires[n] = open_one(hub, n, size)) != NULL) {
            n++;
        }
    }
    if (n == size) {
        return DT_OK;
    }
    if (n == 0) {
        free(hub);
    }
    while (n > 0) {
        dt_wire_close(wires[--n]);
    }
    return dt_error(DT_NO_MEMORY, "no memory for the wires of %d ranks", size);
}
