#include "dist/ranks/wire_credit.h"

#include <limits.h>
#include <stdlib.h>

/* One end of a message; a send may be held back. */
struct message {
    bool used, held;
    int peer, tag;
    const void *bytes;
    size_t n_bytes;
    struct dt_wire_request below;
};

/* The messages with a tag that are under way: a round of a sum. */
struct round {
    int n_messages;
    size_t sent_bytes;
};

struct credit_wire {
    struct dt_wire base;
    struct dt_wire *below;
    size_t credit_bytes, in_flight_bytes; /* sent by rounds that have not ended */
    int urgent;                           /* this tag and higher ones need no credit */
    int n_tags, max_messages;
    int n_messages, n_held; /* the first so many have been in use; of them, now */
    struct round *rounds;
    struct message *messages;
};

static struct credit_wire *credit_of(struct dt_wire *wire)
{
    return (struct credit_wire *)wire;
}

static enum dt_status take(struct credit_wire *self, const struct message *what,
                           struct dt_wire_request *request)
{
    int i = 0;
    while (i < self->n_messages && self->messages[i].used) {
        i++;
    }
    if (i == self->max_messages || what->tag >= self->n_tags) {
        return dt_error(DT_INTERNAL, "more messages are under way than %d", self->max_messages);
    }
    self->n_messages += i == self->n_messages;
    self->messages[i] = *what;
    self->messages[i].used = true;
    self->rounds[what->tag].n_messages++;
    request->handle = &self->messages[i];
    return DT_OK;
}

/* The held message with the highest tag. Two held messages of one tag go to different ranks. */
static struct message *next_of(struct credit_wire *self)
{
    struct message *next = NULL;
    for (int i = 0; i < self->n_messages; i++) {
        struct message *one = &self->messages[i];
        if (one->used && one->held && (next == NULL || one->tag > next->tag)) {
            next = one;
        }
    }
    return next;
}

static enum dt_status release(struct credit_wire *self)
{
    while (self->n_held > 0) {
        struct message *one = next_of(self);
        if (one->tag < self->urgent && self->in_flight_bytes >= self->credit_bytes) {
            return DT_OK;
        }
        one->held = false;
        self->n_held--;
        self->rounds[one->tag].sent_bytes += one->n_bytes;
        self->in_flight_bytes += one->n_bytes;
        DT_TRY(
            dt_wire_send(self->below, one->peer, one->tag, one->bytes, one->n_bytes, &one->below));
    }
    return DT_OK;
}

static enum dt_status credit_send(struct dt_wire *wire, int peer, int tag, const void *bytes,
                                  size_t n_bytes, struct dt_wire_request *request)
{
    struct credit_wire *self = credit_of(wire);
    const struct message what = {
        .held = true, .peer = peer, .tag = tag, .bytes = bytes, .n_bytes = n_bytes};
    DT_TRY(take(self, &what, request));
    self->n_held++;
    return release(self);
}

static enum dt_status credit_receive(struct dt_wire *wire, int peer, int tag, void *bytes,
                                     size_t n_bytes, struct dt_wire_request *request)
{
    struct credit_wire *self = credit_of(wire);
    DT_TRY(take(self, &(struct message){.tag = tag}, request));
    struct message *one = request->handle;
    return dt_wire_receive(self->below, peer, tag, bytes, n_bytes, &one->below);
}

/* Its credit is free for others when the round has ended, so that the sum's next round comes first.
 */
static void end_message(struct credit_wire *self, struct message *one)
{
    struct round *round = &self->rounds[one->tag];
    one->used = false;
    if (--round->n_messages == 0) {
        self->in_flight_bytes -= round->sent_bytes;
        round->sent_bytes = 0;
    }
}

static enum dt_status credit_test(struct dt_wire *wire, struct dt_wire_request *request, bool *done)
{
    struct credit_wire *self = credit_of(wire);
    struct message *one = request->handle;
    *done = false;
    if (one->held) {
        DT_TRY(release(self));
    }
    if (!one->held) {
        DT_TRY(dt_wire_test(self->below, &one->below, done));
    }
    if (*done) {
        end_message(self, one);
    }
    return DT_OK;
}

static void credit_close(struct dt_wire *wire)
{
    struct credit_wire *self = credit_of(wire);
    dt_wire_close(self->below);
    free(self->rounds);
    free(self->messages);
    free(wire->sent);
    free(wire);
}

static const struct dt_wire_ops credit_ops = {.name = "credit",
                                              .send = credit_send,
                                              .receive = credit_receive,
                                              .test = credit_test,
                                              .close = credit_close};

enum dt_status dt_wire_open_credit(struct dt_wire *below, size_t credit_bytes, int n_tags,
                                   struct dt_wire **out)
{
    const size_t n_peers = (size_t)below->size, n_messages = (size_t)n_tags * 4 * n_peers;
    struct credit_wire *self = calloc(1, sizeof *self);
    *out = self != NULL ? &self->base : NULL;
    if (self == NULL) {
        dt_wire_close(below);
        return dt_error(DT_NO_MEMORY, "no memory for the wire");
    }
    *self =
        (struct credit_wire){.base = {.ops = &credit_ops, .rank = below->rank, .size = below->size},
                             .below = below,
                             .credit_bytes = credit_bytes,
                             .urgent = INT_MAX,
                             .n_tags = n_tags,
                             .max_messages = (int)n_messages,
                             .rounds = calloc((size_t)n_tags, sizeof(struct round)),
                             .messages = calloc(n_messages, sizeof(struct message))};
    self->base.sent = calloc(n_peers, sizeof *self->base.sent);
    self->base.host_roots = below->host_roots;
    if (self->rounds == NULL || self->messages == NULL || self->base.sent == NULL) {
        credit_close(&self->base);
        *out = NULL;
        return dt_error(DT_NO_MEMORY, "no memory for the wire");
    }
    return DT_OK;
}

void dt_wire_hurry(struct dt_wire *wire, int tag)
{
    credit_of(wire)->urgent = tag;
}

size_t dt_wire_in_flight(const struct dt_wire *wire)
{
    return ((const struct credit_wire *)wire)->in_flight_bytes;
}
