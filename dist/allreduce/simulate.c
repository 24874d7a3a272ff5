#include "dist/allreduce/simulate.h"

#include <stdlib.h>

/* Sent, but not asked for yet. */
struct message {
    struct message *next;
    int from;
    bool of_input; /* its sender goes on without it */
    size_t n_elems;
    double sent_s;
};

/* One direction of a link. */
struct lane {
    double free_s;
    uint64_t bytes;
};

struct link {
    struct lane out, in;
};

struct rank {
    int round;
    double begin_s, end_s; /* of the round: end_s as far as its messages are through */
    int n_open;            /* messages of the round that are not */
    size_t n_added;        /* elements, when it ends */
    bool receives;         /* waits for a message from `from` */
    int from;
    size_t n_elems;
    struct message *message;       /* it, when both sides have asked: then in the heap */
    double start_s;                /* not before then */
    uint64_t turn;                 /* among those that could start at once */
    struct message *first, **tail; /* sent to this rank, in the order in which they were */
    struct dt_load load;
};

struct simulator {
    const struct dt_algorithm *algorithm;
    const struct dt_costs *costs;
    int size, n_rounds;
    size_t n_elems;
    struct rank *ranks;
    struct link *hosts, *locals; /* of each host, and of each rank inside its host */
    struct dt_move *moves;       /* of one rank's round */
    int *heap, n_heap;           /* receivers whose message could start, the earliest first */
    uint64_t n_turns;
};

/* ---- the heap */

static bool earlier(const struct simulator *s, int a, int b)
{
    const struct rank *x = &s->ranks[a], *y = &s->ranks[b];
    return x->start_s < y->start_s || (x->start_s == y->start_s && x->turn < y->turn);
}

static void heap_add(struct simulator *s, int receiver)
{
    int at = s->n_heap++;
    for (; at > 0 && earlier(s, receiver, s->heap[(at - 1) / 2]); at = (at - 1) / 2) {
        s->heap[at] = s->heap[(at - 1) / 2];
    }
    s->heap[at] = receiver;
}

static int heap_take(struct simulator *s)
{
    const int first = s->heap[0], last = s->heap[--s->n_heap];
    int at = 0;
    for (int child = 1; child < s->n_heap; child = 2 * at + 1) {
        child += child + 1 < s->n_heap && earlier(s, s->heap[child + 1], s->heap[child]);
        if (!earlier(s, s->heap[child], last)) {
            break;
        }
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = last;
    return first;
}

/* ---- messages */

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* The oldest message from `from` that waits for this rank, taken out of its list; NULL: there is none. */
static struct message *take_message(struct rank *r, int from)
{
    for (struct message **at = &r->first; *at != NULL; at = &(*at)->next) {
        struct message *found = *at;
        if (found->from == from) {
            *at = found->next;
            r->tail = *at == NULL ? at : r->tail;
            return found;
        }
    }
    return NULL;
}

/* Both sides may be there now. */
static enum dt_status try_match(struct simulator *s, int receiver)
{
    struct rank *r = &s->ranks[receiver];
    if (!r->receives || r->message != NULL || (r->message = take_message(r, r->from)) == NULL) {
        return DT_OK;
    }
    if (r->message->n_elems != r->n_elems) {
        return dt_error(DT_INTERNAL, "%s: rank %d sends %zu elements to rank %d, which waits for %zu in round %d",
                        s->algorithm->name, r->from, r->message->n_elems, receiver, r->n_elems, r->round);
    }
    r->start_s = later(r->begin_s, r->message->sent_s);
    r->turn = s->n_turns++;
    heap_add(s, receiver);
    return DT_OK;
}

static enum dt_status send(struct simulator *s, int from, const struct dt_move *move)
{
    struct rank *sender = &s->ranks[from], *receiver = &s->ranks[move->peer];
    struct message *message = malloc(sizeof *message);
    if (message == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for a message");
    }
    *message = (struct message){
        .from = from, .of_input = move->kind == DT_SEND_INPUT, .n_elems = move->end - move->begin, .sent_s = sender->begin_s};
    *receiver->tail = message;
    receiver->tail = &message->next;
    sender->n_open += !message->of_input;
    return try_match(s, move->peer);
}

static enum dt_status begin_move(struct simulator *s, int rank, const struct dt_move *move)
{
    struct rank *r = &s->ranks[rank];
    const size_t n = move->end - move->begin;
    switch (move->kind) {
    case DT_SEND:
    case DT_SEND_INPUT:
        return send(s, rank, move);
    case DT_ADD_INPUT:
        r->n_added += n;
        return DT_OK;
    case DT_ADD:
    case DT_REPLACE:
        if (r->receives) {
            return dt_error(DT_INTERNAL, "%s: rank %d receives twice in round %d", s->algorithm->name, rank, r->round);
        }
        r->n_added += move->kind == DT_ADD ? n : 0;
        r->n_open++;
        r->receives = true;
        r->from = move->peer;
        r->n_elems = n;
        return try_match(s, rank);
    }
    return dt_error(DT_INTERNAL, "%s: a move of unknown kind %d", s->algorithm->name, (int)move->kind);
}

/* ---- rounds */

static void end_round(const struct simulator *s, struct rank *r)
{
    r->begin_s = r->end_s += s->costs->gamma_s * (double)r->n_added;
    r->n_added = 0;
    r->round++;
}

/* Begins the rank's rounds, as long as there is nothing to wait for in them. */
static enum dt_status go_on(struct simulator *s, int rank)
{
    struct rank *r = &s->ranks[rank];
    for (; r->round < s->n_rounds; end_round(s, r)) {
        const int n = s->algorithm->round(rank, s->size, s->n_elems, r->round, s->moves);
        for (int i = 0; i < n; i++) {
            DT_TRY(begin_move(s, rank, &s->moves[i]));
        }
        if (r->n_open > 0) {
            return DT_OK;
        }
    }
    return DT_OK;
}

/* One of the messages of the rank's round is through. */
static enum dt_status message_over(struct simulator *s, int rank, double at_s)
{
    struct rank *r = &s->ranks[rank];
    r->end_s = later(r->end_s, at_s);
    if (--r->n_open > 0) {
        return DT_OK;
    }
    end_round(s, r);
    return go_on(s, rank);
}

static void count(struct dt_wire_count *c, uint64_t n_bytes)
{
    c->messages++;
    c->bytes += n_bytes;
}

/* The message to this rank starts, unless its links are taken for longer than it was thought: then it waits again. */
static enum dt_status start(struct simulator *s, int receiver)
{
    struct rank *r = &s->ranks[receiver];
    const int from = r->from, per_host = s->costs->ranks_per_host;
    const bool inside = from / per_host == receiver / per_host;
    const struct dt_link_cost *cost = inside ? &s->costs->within : &s->costs->between;
    struct lane *out = inside ? &s->locals[from].out : &s->hosts[from / per_host].out;
    struct lane *in = inside ? &s->locals[receiver].in : &s->hosts[receiver / per_host].in;
    const double free_s = later(out->free_s, in->free_s);
    if (free_s > r->start_s) {
        r->start_s = free_s;
        heap_add(s, receiver);
        return DT_OK;
    }
    const uint64_t n_bytes = r->n_elems * sizeof(float);
    out->free_s = in->free_s = r->start_s + cost->alpha_s + cost->beta_s * (double)n_bytes;
    out->bytes += n_bytes;
    in->bytes += n_bytes;
    count(&s->ranks[from].load.sent, n_bytes);
    count(&r->load.received, n_bytes);
    const double end_s = out->free_s;
    const bool of_input = r->message->of_input;
    free(r->message);
    r->message = NULL;
    r->receives = false;
    DT_TRY(of_input ? DT_OK : message_over(s, from, end_s));
    return message_over(s, receiver, end_s);
}

static enum dt_status check_end(const struct simulator *s)
{
    for (int i = 0; i < s->size; i++) {
        const struct rank *r = &s->ranks[i];
        if (r->round < s->n_rounds) {
            return dt_error(DT_INTERNAL, "%s over %d ranks: rank %d waits for ever in round %d", s->algorithm->name, s->size, i,
                            r->round);
        }
        if (r->first != NULL) {
            return dt_error(DT_INTERNAL, "%s over %d ranks: rank %d never receives what rank %d sends it", s->algorithm->name,
                            s->size, i, r->first->from);
        }
    }
    return DT_OK;
}

static enum dt_status run(struct simulator *s)
{
    for (int i = 0; i < s->size; i++) {
        DT_TRY(go_on(s, i));
    }
    while (s->n_heap > 0) {
        DT_TRY(start(s, heap_take(s)));
    }
    return check_end(s);
}

static uint64_t more(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void sum_up(const struct simulator *s, struct dt_simulation *out, struct dt_load *loads)
{
    *out = (struct dt_simulation){.seconds = 0};
    for (int i = 0; i < s->size; i++) {
        const struct dt_load *load = &s->ranks[i].load;
        const struct link *host = &s->hosts[i / s->costs->ranks_per_host];
        out->seconds = later(out->seconds, s->ranks[i].end_s);
        out->all.messages += load->sent.messages;
        out->all.bytes += load->sent.bytes;
        out->busiest_rank_bytes = more(out->busiest_rank_bytes, load->sent.bytes + load->received.bytes);
        out->busiest_link_bytes = more(out->busiest_link_bytes, more(host->out.bytes, host->in.bytes));
        if (loads != NULL) {
            loads[i] = *load;
        }
    }
}

static bool open_ranks(struct simulator *s)
{
    const size_t n = (size_t)s->size;
    s->ranks = calloc(n, sizeof *s->ranks);
    s->hosts = calloc(n, sizeof *s->hosts);
    s->locals = calloc(n, sizeof *s->locals);
    s->moves = calloc(n, sizeof *s->moves);
    s->heap = calloc(n, sizeof *s->heap);
    for (int i = 0; s->ranks != NULL && i < s->size; i++) {
        s->ranks[i].tail = &s->ranks[i].first;
    }
    return s->ranks != NULL && s->hosts != NULL && s->locals != NULL && s->moves != NULL && s->heap != NULL;
}

static void free_messages(struct rank *r)
{
    free(r->message);
    for (struct message *m = r->first, *next; m != NULL; m = next) {
        next = m->next;
        free(m);
    }
}

static void close_ranks(struct simulator *s)
{
    for (int i = 0; s->ranks != NULL && i < s->size; i++) {
        free_messages(&s->ranks[i]);
    }
    free(s->ranks);
    free(s->hosts);
    free(s->locals);
    free(s->moves);
    free(s->heap);
}

enum dt_status dt_simulate(const struct dt_algorithm *algorithm, int size, size_t n_elems, const struct dt_costs *costs,
                           struct dt_simulation *out, struct dt_load *loads)
{
    struct simulator s = {
        .algorithm = algorithm, .costs = costs, .size = size, .n_elems = n_elems, .n_rounds = algorithm->n_rounds(size)};
    const enum dt_status status = open_ranks(&s) ? run(&s) : dt_error(DT_NO_MEMORY, "no memory to simulate %d ranks", size);
    if (status == DT_OK) {
        sum_up(&s, out, loads);
    }
    close_ranks(&s);
    return status;
}
