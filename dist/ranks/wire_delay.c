#include "dist/ranks/wire_delay.h"

#include <stdlib.h>

/* One end of a message. Of a send: held back in the wire's queue until `due_s`. */
struct delayed {
    struct delayed *next; /* in the queue, or among the free ones */
    bool is_send, held, arrived;
    int peer, tag;
    const void *bytes;
    size_t n_bytes;
    double due_s;
    struct dt_wire_request below;
};

struct delay_wire {
    struct dt_wire base;
    struct dt_wire *below;
    struct dt_wire_delay delay;
    double out_free_s, in_free_s;  /* the links */
    struct delayed *first, **tail; /* held back, in the order in which they were sent */
    struct delayed *free, **all;   /* all: to be freed at the end */
    size_t n_all, n_all_max;
};

static struct delay_wire *delay_of(struct dt_wire *wire)
{
    return (struct delay_wire *)wire;
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* NULL: no memory. */
static struct delayed *take_free(struct delay_wire *self)
{
    struct delayed *one = self->free;
    if (one != NULL) {
        self->free = one->next;
        return one;
    }
    if (self->n_all == self->n_all_max) {
        const size_t n = 2 * self->n_all_max + 16;
        struct delayed **all = realloc(self->all, n * sizeof(void *));
        if (all == NULL) {
            return NULL;
        }
        self->all = all;
        self->n_all_max = n;
    }
    one = malloc(sizeof *one);
    if (one != NULL) {
        self->all[self->n_all++] = one;
    }
    return one;
}

static enum dt_status take(struct delay_wire *self, const struct delayed *what,
                           struct dt_wire_request *request)
{
    struct delayed *one = take_free(self);
    if (one == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for a message");
    }
    *one = *what;
    request->handle = one;
    return DT_OK;
}

static enum dt_status delay_send(struct dt_wire *wire, int peer, int tag, const void *bytes,
                                 size_t n_bytes, struct dt_wire_request *request)
{
    struct delay_wire *self = delay_of(wire);
    const struct delayed what = {.is_send = true,
                                 .held = true,
                                 .peer = peer,
                                 .tag = tag,
                                 .bytes = bytes,
                                 .n_bytes = n_bytes};
    DT_TRY(take(self, &what, request));
    struct delayed *one = request->handle;
    self->out_free_s =
        later(self->out_free_s, self->delay.clock_s()) + (double)n_bytes / self->delay.bandwidth;
    one->due_s = self->out_free_s + self->delay.latency_s;
    DT_ASSERT((self->first == NULL) == (self->tail == &self->first));
    *self->tail = one;
    self->tail = &one->next;
    return DT_OK;
}

static enum dt_status delay_receive(struct dt_wire *wire, int peer, int tag, void *bytes,
                                    size_t n_bytes, struct dt_wire_request *request)
{
    struct delay_wire *self = delay_of(wire);
    DT_TRY(take(self, &(struct delayed){.n_bytes = n_bytes}, request));
    struct delayed *one = request->handle;
    return dt_wire_receive(self->below, peer, tag, bytes, n_bytes, &one->below);
}

/* Sends what is due, in the order in which it was sent here. */
static enum dt_status release(struct delay_wire *self, double now_s)
{
    while (self->first != NULL && self->first->due_s <= now_s) {
        struct delayed *one = self->first;
        self->first = one->next;
        self->tail = self->first == NULL ? &self->first : self->tail;
        one->next = NULL;
        one->held = false;
        DT_ASSERT(one->is_send);
        DT_TRY(
            dt_wire_send(self->below, one->peer, one->tag, one->bytes, one->n_bytes, &one->below));
    }
    return DT_OK;
}

/* A message that has come through the wire below still needs its turn on the link in: it ends no
 * sooner than so many bytes take after the one before. */
static enum dt_status test_receive(struct delay_wire *self, struct delayed *one, double now_s,
                                   bool *done)
{
    if (!one->arrived) {
        DT_TRY(dt_wire_test(self->below, &one->below, &one->arrived));
        if (one->arrived) {
            one->due_s =
                later(now_s, self->in_free_s + (double)one->n_bytes / self->delay.bandwidth);
            self->in_free_s = one->due_s;
        }
    }
    *done = one->arrived && one->due_s <= now_s;
    return DT_OK;
}

static enum dt_status delay_test(struct dt_wire *wire, struct dt_wire_request *request, bool *done)
{
    DT_ASSERT(request->handle != NULL);
    struct delay_wire *self = delay_of(wire);
    struct delayed *one = request->handle;
    const double now_s = self->delay.clock_s();
    *done = false;
    DT_TRY(release(self, now_s));
    if (!one->is_send) {
        DT_TRY(test_receive(self, one, now_s, done));
    } else if (!one->held) {
        DT_TRY(dt_wire_test(self->below, &one->below, done));
    }
    if (*done) {
        one->next = self->free;
        self->free = one;
        request->handle = NULL;
    }
    return DT_OK;
}

static void delay_close(struct dt_wire *wire)
{
    struct delay_wire *self = delay_of(wire);
    dt_wire_close(self->below);
    for (size_t i = 0; i < self->n_all; i++) {
        free(self->all[i]);
    }
    free(self->all);
    free(wire->sent);
    free(wire);
}

static const struct dt_wire_ops delay_ops = {.name = "delay",
                                             .send = delay_send,
                                             .receive = delay_receive,
                                             .test = delay_test,
                                             .close = delay_close};

enum dt_status dt_wire_open_delay(struct dt_wire *below, const struct dt_wire_delay *delay,
                                  struct dt_wire **out)
{
    DT_ASSERT(delay->latency_s >= 0 && delay->bandwidth > 0);
    struct delay_wire *self = malloc(sizeof *self);
    struct dt_traffic *sent = calloc((size_t)below->size, sizeof *sent);
    if (self == NULL || sent == NULL) {
        free(self);
        free(sent);
        dt_wire_close(below);
        *out = NULL;
        return dt_error(DT_NO_MEMORY, "no memory for the wire");
    }
    *self = (struct delay_wire){
        .base = {.ops = &delay_ops, .rank = below->rank, .size = below->size, .sent = sent},
        .below = below,
        .delay = *delay};
    self->base.host_roots = below->host_roots;
    self->tail = &self->first;
    *out = &self->base;
    return DT_OK;
}
