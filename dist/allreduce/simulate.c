#include "dist/allreduce/simulate.h"

#include <stdlib.h>

/* In its receiver's list until both of its ends are there, then in the heap. */
struct message {
    struct message *next;
    bool is_sent; /* in the list: its sender is there, else its receiver */
    int from, to;
    size_t n_elems;
    double start_s; /* not before then */
    uint64_t turn;  /* of those of its sender */
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
    uint64_t n_begun;      /* messages that it sends, so far */
    int n_open;            /* messages of the round that are not */
    size_t n_added;        /* elements, when it ends */
    struct message *first,
        **tail; /* to this rank, one of whose ends waits: in the order of the moves */
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
    struct message **heap;       /* that could start, the earliest first */
    int n_heap, n_heap_max;
};

/* ---- the heap */

static bool earlier(const struct message *x, const struct message *y)
{
    return x->start_s != y->start_s ? x->start_s < y->start_s
           : x->turn != y->turn     ? x->turn < y->turn
                                    : x->from < y->from;
}

static enum dt_status heap_add(struct simulator *s, struct message *message)
{
    if (s->n_heap == s->n_heap_max) {
        const int n = 2 * s->n_heap_max + s->size;
        struct message **heap = realloc(s->heap, (size_t)n * sizeof(void *));
        if (heap == NULL) {
            free(message);
            return dt_error(DT_NO_MEMORY, "no memory for %d messages", n);
        }
        s->heap = heap;
        s->n_heap_max = n;
    }
    int at = s->n_heap++;
    for (; at > 0 && earlier(message, s->heap[(at - 1) / 2]); at = (at - 1) / 2) {
        s->heap[at] = s->heap[(at - 1) / 2];
    }
    s->heap[at] = message;
    return DT_OK;
}

static struct message *heap_take(struct simulator *s)
{
    DT_ASSERT(s->n_heap >= 1);
    struct message *first = s->heap[0], *last = s->heap[--s->n_heap];
    int at = 0;
    for (int child = 1; child < s->n_heap; child = 2 * at + 1) {
        child += child + 1 < s->n_heap && earlier(s->heap[child + 1], s->heap[child]);
        if (!earlier(s->heap[child], last)) {
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

/* The oldest message of this sender whose other end waits, taken out of its receiver's list; NULL:
 * there is none. */
static struct message *take_message(struct rank *receiver, int from, bool is_sent)
{
    for (struct message **at = &receiver->first; *at != NULL; at = &(*at)->next) {
        struct message *found = *at;
        if (found->from == from && found->is_sent == is_sent) {
            *at = found->next;
            receiver->tail = *at == NULL ? at : receiver->tail;
            return found;
        }
    }
    return NULL;
}

/* One end waits for the other. */
static enum dt_status leave_message(struct rank *receiver, const struct message *what)
{
    struct message *message = malloc(sizeof *message);
    if (message == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for a message");
    }
    *message = *what;
    *receiver->tail = message;
    receiver->tail = &message->next;
    return DT_OK;
}

/* A rank is at an end of a message, which can start if the other rank is there, too. */
static enum dt_status meet(struct simulator *s, const struct message *end)
{
    struct rank *receiver = &s->ranks[end->to];
    struct message *message = take_message(receiver, end->from, !end->is_sent);
    if (message == NULL) {
        return leave_message(receiver, end);
    }
    if (message->n_elems != end->n_elems) {
        const struct message *sent = end->is_sent ? end : message,
                             *awaited = end->is_sent ? message : end;
        const enum dt_status status =
            dt_error(DT_INTERNAL,
                     "%s: rank %d sends %zu elements to rank %d, which waits for %zu in round %d",
                     s->algorithm->name, end->from, sent->n_elems, end->to, awaited->n_elems,
                     receiver->round);
        free(message);
        return status;
    }
    message->start_s = later(message->start_s, end->start_s);
    message->turn = end->is_sent ? end->turn : message->turn;
    return heap_add(s, message);
}

static enum dt_status begin_move(struct simulator *s, int rank, const struct dt_move *move)
{
    DT_ASSERT(move->begin <= move->end && move->peer >= 0 && move->peer < s->size);
    struct rank *r = &s->ranks[rank];
    const bool is_sent = move->kind == DT_SEND || move->kind == DT_SEND_INPUT;
    struct message end = {
        .is_sent = is_sent, .n_elems = move->end - move->begin, .start_s = r->begin_s};
    end.turn = is_sent ? r->n_begun++ : 0;
    end.from = is_sent ? rank : move->peer;
    end.to = is_sent ? move->peer : rank;
    r->n_added += move->kind == DT_ADD || move->kind == DT_ADD_INPUT ? end.n_elems : 0;
    if (move->kind == DT_ADD_INPUT) {
        return DT_OK;
    }
    r->n_open++;
    return meet(s, &end);
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
    DT_ASSERT(s->ranks[rank].n_open > 0);
    struct rank *r = &s->ranks[rank];
    r->end_s = later(r->end_s, at_s);
    if (--r->n_open > 0) {
        return DT_OK;
    }
    end_round(s, r);
    return go_on(s, rank);
}

/* The message starts, unless its links are taken for longer than it was thought: then it waits
 * again. */
static enum dt_status start(struct simulator *s, struct message *message)
{
    const int from = message->from, to = message->to, per_host = s->costs->ranks_per_host;
    const bool inside = from / per_host == to / per_host;
    const struct dt_link_cost *cost = inside ? &s->costs->within : &s->costs->between;
    struct lane *out = inside ? &s->locals[from].out : &s->hosts[from / per_host].out;
    struct lane *in = inside ? &s->locals[to].in : &s->hosts[to / per_host].in;
    const double free_s = later(out->free_s, in->free_s);
    if (free_s > message->start_s) {
        message->start_s = free_s;
        return heap_add(s, message);
    }
    const uint64_t n_bytes = message->n_elems * sizeof(float);
    const double end_s = message->start_s + cost->alpha_s + cost->beta_s * (double)n_bytes;
    free(message);
    out->free_s = in->free_s = end_s;
    out->bytes += n_bytes;
    in->bytes += n_bytes;
    dt_traffic_add(&s->ranks[from].load.sent, (struct dt_traffic){1, n_bytes});
    dt_traffic_add(&s->ranks[to].load.received, (struct dt_traffic){1, n_bytes});
    DT_TRY(message_over(s, from, end_s));
    return message_over(s, to, end_s);
}

static enum dt_status check_end(const struct simulator *s)
{
    for (int i = 0; i < s->size; i++) {
        const struct rank *r = &s->ranks[i];
        if (r->round < s->n_rounds) {
            return dt_error(DT_INTERNAL, "%s over %d ranks: rank %d waits forever in round %d",
                            s->algorithm->name, s->size, i, r->round);
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
        dt_traffic_add(&out->all, load->sent);
        out->busiest_rank_bytes =
            more(out->busiest_rank_bytes, load->sent.bytes + load->received.bytes);
        out->busiest_link_bytes =
            more(out->busiest_link_bytes, more(host->out.bytes, host->in.bytes));
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
    s->moves = calloc((size_t)DT_MAX_MOVES(s->size), sizeof *s->moves);
    for (int i = 0; s->ranks != NULL && i < s->size; i++) {
        s->ranks[i].tail = &s->ranks[i].first;
    }
    return s->ranks != NULL && s->hosts != NULL && s->locals != NULL && s->moves != NULL;
}

static void free_messages(struct rank *r)
{
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
    while (s->n_heap > 0) {
        free(s->heap[--s->n_heap]);
    }
    free(s->ranks);
    free(s->hosts);
    free(s->locals);
    free(s->moves);
    free(s->heap);
}

enum dt_status dt_simulate(const struct dt_algorithm *algorithm, int size, size_t n_elems,
                           const struct dt_costs *costs, struct dt_simulation *out,
                           struct dt_load *loads)
{
    DT_ASSERT(size >= 1 && costs->ranks_per_host >= 1);
    struct simulator s = {.algorithm = algorithm,
                          .costs = costs,
                          .size = size,
                          .n_elems = n_elems,
                          .n_rounds = algorithm->n_rounds(size, n_elems)};
    const enum dt_status status =
        open_ranks(&s) ? run(&s) : dt_error(DT_NO_MEMORY, "no memory to simulate %d ranks", size);
    if (status == DT_OK) {
        sum_up(&s, out, loads);
    }
    close_ranks(&s);
    return status;
}
