/* The calls of MPI that the trainer makes, among the ranks of the simulation. The linker gives them
 * to these functions.
 *
 * The k-th collective of a communicator is the same on each of its members, and the k-th message
 * between two ranks with one tag meets the k-th receive: kept in lists, which a run of a few
 * thousand messages searches from the end that is in use. */
#include "tests/simulate/simulate_mpi.h"

#include <stdlib.h>
#include <string.h>

/* A message between two ranks: its end that sends, its end that receives, or both. */
struct message {
    struct message *next;
    int comm, from, to, tag;
    bool sent, posted, taken, send_done;
    uint64_t arrives_ns;
    size_t n_bytes;
    char *bytes;
    void *into;
};

struct request {
    struct sim_collective *collective; /* or NULL */
    struct message *message;
    bool is_send, used;
    int rank; /* whose it is */
    void *buffer;
    MPI_Datatype type;
    MPI_Op op;
};

#define MOST_REQUESTS 4096
struct sim_comm sim_comms[SIM_MOST_COMMS];
int sim_n_comms;
struct sim_collective *sim_collectives;
static struct message *messages;
static struct request requests[MOST_REQUESTS];

void sim_mpi_begin(void)
{
    sim_n_comms = 1;
    sim_comms[0] = (struct sim_comm){.size = sim.plan->n_ranks};
    for (int r = 0; r < sim.plan->n_ranks; r++) {
        sim_comms[0].members[r] = r;
    }
    memset(requests, 0, sizeof requests);
}

static void free_collective(struct sim_collective *c)
{
    for (int m = 0; m < SIM_MAX_RANKS; m++) {
        sim_free(c->brought[m]);
    }
    sim_free(c);
}

void sim_mpi_end(void)
{
    for (struct sim_collective *c = sim_collectives, *next; c != NULL; c = next) {
        next = c->next;
        free_collective(c);
    }
    for (struct message *m = messages, *next; m != NULL; m = next) {
        next = m->next;
        sim_free(m->bytes);
        sim_free(m);
    }
    sim_collectives = NULL;
    messages = NULL;
}

/* ---- communicators */

int sim_comm_index(MPI_Comm comm)
{
    return comm == MPI_COMM_WORLD ? 0 : (int)(intptr_t)comm - SIM_FIRST_COMM;
}

MPI_Comm sim_comm_handle(int index)
{
    return (MPI_Comm)(intptr_t)(SIM_FIRST_COMM + index);
}

static int member_of(const struct sim_comm *comm, int rank)
{
    int m = 0;
    while (comm->members[m] != rank) {
        m++;
    }
    return m;
}

int sim_member_now(int comm)
{
    return member_of(&sim_comms[comm], sim.now->number);
}

/* ---- collectives */

static struct sim_collective *find_collective(int comm, uint64_t sequence)
{
    struct sim_collective *c = sim_collectives;
    while (c != NULL && (c->comm != comm || c->sequence != sequence)) {
        c = c->next;
    }
    return c;
}

static struct sim_collective *make_collective(int comm, uint64_t sequence, enum sim_kind kind,
                                              size_t n_bytes, int root)
{
    struct sim_collective *c = sim_alloc(sizeof *c);
    *c = (struct sim_collective){.next = sim_collectives,
                                 .comm = comm,
                                 .sequence = sequence,
                                 .kind = kind,
                                 .n_bytes = n_bytes,
                                 .root = root};
    sim_collectives = c;
    return c;
}

struct sim_collective *sim_enter(int index, enum sim_kind kind, const void *bytes, size_t n_bytes,
                                 int root)
{
    struct sim_comm *comm = &sim_comms[index];
    sim_point("a collective");
    const int me = sim_member_now(index);
    const uint64_t sequence = ++comm->n_called[me];
    struct sim_collective *c = find_collective(index, sequence);
    c = c != NULL ? c : make_collective(index, sequence, kind, n_bytes, root);
    if (c->kind != kind || c->n_bytes != n_bytes || c->root != root) {
        sim_wrong("rank %d calls another collective than others: kind %d of %zu bytes, not %d of "
                  "%zu",
                  sim.now->number, (int)kind, n_bytes, (int)c->kind, c->n_bytes);
        sim_end(SIM_DEAD, 0);
    }
    c->entered[me] = true;
    c->n_entered++;
    c->brought[me] = sim_alloc(n_bytes + 1);
    if (n_bytes > 0) {
        memcpy(c->brought[me], bytes, n_bytes);
    }
    for (int to = 0; to < comm->size && (kind != BROADCAST || me == root); to++) {
        c->arrives_ns[me][to] = sim_wire_arrival(sim.now->number, comm->members[to]);
    }
    sim_progress();
    return c;
}

static bool has_come(const struct sim_collective *c, int to)
{
    for (int from = 0; from < sim_comms[c->comm].size; from++) {
        const bool counts = c->kind != BROADCAST || from == c->root;
        if (counts && (!c->entered[from] || c->arrives_ns[from][to] > sim.now->time_ns)) {
            return false;
        }
    }
    return true;
}

#define COMBINE(type)                                                        \
    do {                                                                     \
        const type a = ((const type *)from)[i], b = ((const type *)into)[i]; \
        ((type *)into)[i] = op == MPI_SUM   ? (type)(b + a)                  \
                            : op == MPI_MAX ? (a > b ? a : b)                \
                                            : (a < b ? a : b);               \
    } while (0)

static void combine(MPI_Datatype type, MPI_Op op, size_t n, const void *from, void *into)
{
    for (size_t i = 0; i < n; i++) {
        if (type == MPI_FLOAT) {
            COMBINE(float);
        } else if (type == MPI_DOUBLE) {
            COMBINE(double);
        } else if (type == MPI_UINT64_T) {
            COMBINE(uint64_t);
        } else {
            COMBINE(int32_t);
        }
    }
}

static size_t bytes_of(MPI_Datatype type)
{
    return type == MPI_BYTE ? 1 : type == MPI_DOUBLE || type == MPI_UINT64_T ? 8 : 4;
}

/* The result, in this member's buffer. */
static void deliver(const struct sim_collective *c, const struct request *request)
{
    const int size = sim_comms[c->comm].size;
    char *into = request->buffer;
    if (c->n_bytes == 0) {
        return;
    }
    if (c->kind == BROADCAST) {
        memcpy(into, c->brought[c->root], c->n_bytes);
    } else if (c->kind == ALLGATHER) {
        for (int m = 0; m < size; m++) {
            memcpy(into + (size_t)m * c->n_bytes, c->brought[m], c->n_bytes);
        }
    } else if (c->kind == ALLREDUCE) {
        memcpy(into, c->brought[0], c->n_bytes);
        for (int m = 1; m < size; m++) {
            combine(request->type, request->op, c->n_bytes / bytes_of(request->type), c->brought[m],
                    into);
        }
    }
}

void sim_leave(struct sim_collective *c)
{
    struct sim_collective **at = &sim_collectives;
    if (++c->n_left == sim_comms[c->comm].size) {
        while (*at != c) {
            at = &(*at)->next;
        }
        *at = c->next;
        free_collective(c);
    }
}

/* A call that blocks: no limit but what else ends the process. */
void sim_wait_for(struct sim_collective *c)
{
    while (!has_come(c, sim_member_now(c->comm))) {
        sim_yield();
        sim_point("a wait inside MPI");
    }
    sim_progress();
}

void sim_meet(MPI_Comm comm)
{
    struct sim_collective *c = sim_enter(sim_comm_index(comm), MEET, NULL, 0, 0);
    sim_wait_for(c);
    sim_leave(c);
}

/* ---- requests */

int sim_n_requests(int rank)
{
    int n = 0;
    for (int i = 0; i < MOST_REQUESTS; i++) {
        n += requests[i].used && requests[i].rank == rank;
    }
    return n;
}

static int start(struct request what, MPI_Request *out)
{
    int i = 0;
    while (i < MOST_REQUESTS && requests[i].used) {
        i++;
    }
    if (i == MOST_REQUESTS) {
        sim_wrong("more than %d requests are under way", MOST_REQUESTS);
        return MPI_ERR_OTHER;
    }
    what.used = true;
    what.rank = sim.now->number;
    requests[i] = what;
    *out = (MPI_Request)(intptr_t)(i + 1);
    return MPI_SUCCESS;
}

WRAP(int, MPI_Iallreduce, const void *from, void *buffer, int n, MPI_Datatype type, MPI_Op op,
     MPI_Comm comm, MPI_Request *out)
{
    FAILS();
    (void)from;
    struct sim_collective *c =
        sim_enter(sim_comm_index(comm), ALLREDUCE, buffer, (size_t)n * bytes_of(type), 0);
    return start((struct request){.collective = c, .buffer = buffer, .type = type, .op = op}, out);
}

WRAP(int, MPI_Ibcast, void *buffer, int n, MPI_Datatype type, int root, MPI_Comm comm,
     MPI_Request *out)
{
    FAILS();
    struct sim_collective *c =
        sim_enter(sim_comm_index(comm), BROADCAST, buffer, (size_t)n * bytes_of(type), root);
    return start((struct request){.collective = c, .buffer = buffer}, out);
}

WRAP(int, MPI_Iallgather, const void *mine, int n, MPI_Datatype type, void *all, int n_all,
     MPI_Datatype type_all, MPI_Comm comm, MPI_Request *out)
{
    FAILS();
    (void)n_all, (void)type_all;
    struct sim_collective *c =
        sim_enter(sim_comm_index(comm), ALLGATHER, mine, (size_t)n * bytes_of(type), 0);
    return start((struct request){.collective = c, .buffer = all}, out);
}

/* ---- messages */

/* The first of this channel that has no such end yet, or a new one. */
static struct message *end_of(int comm, int from, int to, int tag, bool is_send)
{
    struct message **at = &messages;
    for (; *at != NULL; at = &(*at)->next) {
        struct message *m = *at;
        const bool same = m->comm == comm && m->from == from && m->to == to && m->tag == tag;
        if (same && !(is_send ? m->sent : m->posted)) {
            return m;
        }
    }
    *at = sim_alloc(sizeof **at);
    **at = (struct message){.comm = comm, .from = from, .to = to, .tag = tag};
    return *at;
}

WRAP(int, MPI_Isend, const void *bytes, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
     MPI_Request *out)
{
    FAILS();
    const int index = sim_comm_index(comm), to = sim_comms[index].members[peer];
    (void)type;
    sim_point("a message sent");
    struct message *m = end_of(index, sim.now->number, to, tag, true);
    if (m->posted && m->n_bytes != (size_t)n) {
        sim_wrong("rank %d sends rank %d %d bytes, which waits for %zu", m->from, to, n,
                  m->n_bytes);
        sim_end(SIM_DEAD, 0);
    }
    m->sent = true;
    m->n_bytes = (size_t)n;
    m->bytes = sim_alloc((size_t)n + 1);
    if (n > 0) {
        memcpy(m->bytes, bytes, (size_t)n);
    }
    m->arrives_ns = sim_wire_arrival(m->from, to);
    sim_progress();
    return start((struct request){.message = m, .is_send = true}, out);
}

WRAP(int, MPI_Irecv, void *bytes, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
     MPI_Request *out)
{
    FAILS();
    const int index = sim_comm_index(comm), from = sim_comms[index].members[peer];
    (void)type;
    sim_point("a receive");
    struct message *m = end_of(index, from, sim.now->number, tag, false);
    if (m->sent && m->n_bytes != (size_t)n) {
        sim_wrong("rank %d sends rank %d %zu bytes, which waits for %d", from, m->to, m->n_bytes,
                  n);
        sim_end(SIM_DEAD, 0);
    }
    m->posted = true;
    m->n_bytes = (size_t)n;
    m->into = bytes;
    sim_progress();
    return start((struct request){.message = m}, out);
}

static void forget(struct message *message)
{
    struct message **at = &messages;
    while (*at != message) {
        at = &(*at)->next;
    }
    *at = message->next;
    sim_free(message->bytes);
    sim_free(message);
}

static bool test_message(struct request *request)
{
    struct message *m = request->message;
    const bool there = m->sent && m->arrives_ns <= sim.now->time_ns;
    if (request->is_send ? !(sim.plan->eager || (m->posted && there)) : !there) {
        return false;
    }
    if (!request->is_send && m->n_bytes > 0) {
        memcpy(m->into, m->bytes, m->n_bytes);
        sim_flip(SIM_FLIP_RECEIVED, m->into, m->n_bytes);
    }
    m->send_done = m->send_done || request->is_send;
    m->taken = m->taken || !request->is_send;
    if (m->send_done && m->taken) {
        forget(m);
    }
    return true;
}

static bool test_collective(struct request *request)
{
    struct sim_collective *c = request->collective;
    if (!has_come(c, sim_member_now(c->comm))) {
        return false;
    }
    deliver(c, request);
    sim_leave(c);
    return true;
}

WRAP(int, MPI_Test, MPI_Request *handle, int *done, MPI_Status *status)
{
    (void)status;
    sim_point("a test");
    *done = 1;
    if (*handle == MPI_REQUEST_NULL) {
        return MPI_SUCCESS;
    }
    FAILS();
    struct request *request = &requests[(int)(intptr_t)*handle - 1];
    *done = request->message != NULL ? test_message(request) : test_collective(request);
    if (*done) {
        request->used = false;
        *handle = MPI_REQUEST_NULL;
        sim_progress();
    }
    return MPI_SUCCESS;
}

/* ---- blocking calls, of the time in which ranks find each other */

WRAP(int, MPI_Allreduce, const void *from, void *to, int n, MPI_Datatype type, MPI_Op op,
     MPI_Comm comm)
{
    FAILS();
    struct sim_collective *c =
        sim_enter(sim_comm_index(comm), ALLREDUCE, from, (size_t)n * bytes_of(type), 0);
    sim_wait_for(c);
    deliver(c, &(struct request){.buffer = to, .type = type, .op = op});
    sim_leave(c);
    return MPI_SUCCESS;
}

WRAP(int, MPI_Bcast, void *buffer, int n, MPI_Datatype type, int root, MPI_Comm comm)
{
    FAILS();
    struct sim_collective *c =
        sim_enter(sim_comm_index(comm), BROADCAST, buffer, (size_t)n * bytes_of(type), root);
    sim_wait_for(c);
    deliver(c, &(struct request){.buffer = buffer});
    sim_leave(c);
    return MPI_SUCCESS;
}

WRAP(int, MPI_Allgather, const void *mine, int n, MPI_Datatype type, void *all, int n_all,
     MPI_Datatype type_all, MPI_Comm comm)
{
    FAILS();
    (void)n_all, (void)type_all;
    struct sim_collective *c =
        sim_enter(sim_comm_index(comm), ALLGATHER, mine, (size_t)n * bytes_of(type), 0);
    sim_wait_for(c);
    deliver(c, &(struct request){.buffer = all});
    sim_leave(c);
    return MPI_SUCCESS;
}
