/* The calls of MPI that the trainer makes, among the ranks of the simulation. The linker gives them
 * to these functions.
 *
 * The k-th collective of a communicator is the same on each of its members, and the k-th message
 * between two ranks with one tag meets the k-th receive: kept in lists, which a run of a few
 * thousand messages searches from the end that is in use. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "tests/simulate/sim.h"

#define MOST_COMMS 64
#define FIRST_COMM 1000
#define BARRIER ((size_t)0)

enum kind { ALLREDUCE, BROADCAST, ALLGATHER, MEET, SPLIT, SPLIT_HOSTS };

struct comm {
    int size, members[SIM_MAX_RANKS]; /* ranks of the world */
    uint64_t n_called[SIM_MAX_RANKS]; /* collectives, by each member */
};

/* What the members bring to a collective, and when it comes to each. */
struct collective {
    struct collective *next;
    int comm;
    uint64_t sequence;
    enum kind kind;
    size_t n_bytes; /* that each brings */
    int root, n_entered, n_left;
    bool entered[SIM_MAX_RANKS];
    uint64_t arrives_ns[SIM_MAX_RANKS][SIM_MAX_RANKS]; /* from, to */
    int colors[SIM_MAX_RANKS], keys[SIM_MAX_RANKS];    /* of a split */
    char *brought[SIM_MAX_RANKS];
    void *shared; /* of a window: made by the first member */
};

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
    struct collective *collective; /* or NULL */
    struct message *message;
    bool is_send, used;
    void *buffer;
    MPI_Datatype type;
    MPI_Op op;
};

#define MOST_REQUESTS 4096
static struct comm comms[MOST_COMMS];
static int n_comms;
static struct collective *collectives;
static struct message *messages;
static struct request requests[MOST_REQUESTS];

void sim_mpi_begin(void)
{
    n_comms = 1;
    comms[0] = (struct comm){.size = sim.plan->n_ranks};
    for (int r = 0; r < sim.plan->n_ranks; r++) {
        comms[0].members[r] = r;
    }
    memset(requests, 0, sizeof requests);
}

static void free_collective(struct collective *c)
{
    for (int m = 0; m < SIM_MAX_RANKS; m++) {
        sim_free(c->brought[m]);
    }
    sim_free(c->shared);
    sim_free(c);
}

void sim_mpi_end(void)
{
    for (struct collective *c = collectives, *next; c != NULL; c = next) {
        next = c->next;
        free_collective(c);
    }
    for (struct message *m = messages, *next; m != NULL; m = next) {
        next = m->next;
        sim_free(m->bytes);
        sim_free(m);
    }
    collectives = NULL;
    messages = NULL;
}

/* ---- communicators */

static int comm_index(MPI_Comm comm)
{
    return comm == MPI_COMM_WORLD ? 0 : (int)(intptr_t)comm - FIRST_COMM;
}

static MPI_Comm comm_handle(int index)
{
    return (MPI_Comm)(intptr_t)(FIRST_COMM + index);
}

static int member_of(const struct comm *comm, int rank)
{
    int m = 0;
    while (comm->members[m] != rank) {
        m++;
    }
    return m;
}

static int member_now(int comm)
{
    return member_of(&comms[comm], sim.now->number);
}

/* ---- collectives */

static struct collective *find_collective(int comm, uint64_t sequence)
{
    struct collective *c = collectives;
    while (c != NULL && (c->comm != comm || c->sequence != sequence)) {
        c = c->next;
    }
    return c;
}

static struct collective *make_collective(int comm, uint64_t sequence, enum kind kind,
                                          size_t n_bytes, int root)
{
    struct collective *c = sim_alloc(sizeof *c);
    *c = (struct collective){.next = collectives,
                             .comm = comm,
                             .sequence = sequence,
                             .kind = kind,
                             .n_bytes = n_bytes,
                             .root = root};
    collectives = c;
    return c;
}

static struct collective *enter(int index, enum kind kind, const void *bytes, size_t n_bytes,
                                int root)
{
    struct comm *comm = &comms[index];
    sim_point("a collective");
    const int me = member_now(index);
    const uint64_t sequence = ++comm->n_called[me];
    struct collective *c = find_collective(index, sequence);
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

static bool has_come(const struct collective *c, int to)
{
    for (int from = 0; from < comms[c->comm].size; from++) {
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
static void deliver(const struct collective *c, const struct request *request)
{
    const int size = comms[c->comm].size;
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

static void leave(struct collective *c)
{
    struct collective **at = &collectives;
    if (++c->n_left == comms[c->comm].size) {
        while (*at != c) {
            at = &(*at)->next;
        }
        *at = c->next;
        free_collective(c);
    }
}

/* A call that blocks: no limit but what else ends the process. */
static void wait_for(struct collective *c)
{
    while (!has_come(c, member_now(c->comm))) {
        sim_yield();
        sim_point("a wait inside MPI");
    }
    sim_progress();
}

static void meet(MPI_Comm comm)
{
    struct collective *c = enter(comm_index(comm), MEET, NULL, BARRIER, 0);
    wait_for(c);
    leave(c);
}

/* ---- requests */

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
    requests[i] = what;
    *out = (MPI_Request)(intptr_t)(i + 1);
    return MPI_SUCCESS;
}

int __wrap_MPI_Iallreduce(const void *from, void *buffer, int n, MPI_Datatype type, MPI_Op op,
                          MPI_Comm comm, MPI_Request *out);
int __wrap_MPI_Iallreduce(const void *from, void *buffer, int n, MPI_Datatype type, MPI_Op op,
                          MPI_Comm comm, MPI_Request *out)
{
    (void)from;
    struct collective *c =
        enter(comm_index(comm), ALLREDUCE, buffer, (size_t)n * bytes_of(type), 0);
    return start((struct request){.collective = c, .buffer = buffer, .type = type, .op = op}, out);
}

int __wrap_MPI_Ibcast(void *buffer, int n, MPI_Datatype type, int root, MPI_Comm comm,
                      MPI_Request *out);
int __wrap_MPI_Ibcast(void *buffer, int n, MPI_Datatype type, int root, MPI_Comm comm,
                      MPI_Request *out)
{
    struct collective *c =
        enter(comm_index(comm), BROADCAST, buffer, (size_t)n * bytes_of(type), root);
    return start((struct request){.collective = c, .buffer = buffer}, out);
}

int __wrap_MPI_Iallgather(const void *mine, int n, MPI_Datatype type, void *all, int n_all,
                          MPI_Datatype type_all, MPI_Comm comm, MPI_Request *out);
int __wrap_MPI_Iallgather(const void *mine, int n, MPI_Datatype type, void *all, int n_all,
                          MPI_Datatype type_all, MPI_Comm comm, MPI_Request *out)
{
    (void)n_all, (void)type_all;
    struct collective *c = enter(comm_index(comm), ALLGATHER, mine, (size_t)n * bytes_of(type), 0);
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

int __wrap_MPI_Isend(const void *bytes, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                     MPI_Request *out);
int __wrap_MPI_Isend(const void *bytes, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                     MPI_Request *out)
{
    const int index = comm_index(comm), to = comms[index].members[peer];
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

int __wrap_MPI_Irecv(void *bytes, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                     MPI_Request *out);
int __wrap_MPI_Irecv(void *bytes, int n, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                     MPI_Request *out)
{
    const int index = comm_index(comm), from = comms[index].members[peer];
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
    struct collective *c = request->collective;
    if (!has_come(c, member_now(c->comm))) {
        return false;
    }
    deliver(c, request);
    leave(c);
    return true;
}

int __wrap_MPI_Test(MPI_Request *handle, int *done, MPI_Status *status);
int __wrap_MPI_Test(MPI_Request *handle, int *done, MPI_Status *status)
{
    (void)status;
    sim_point("a test");
    *done = 1;
    if (*handle == MPI_REQUEST_NULL) {
        return MPI_SUCCESS;
    }
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

int __wrap_MPI_Allreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op,
                         MPI_Comm comm);
int __wrap_MPI_Allreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op,
                         MPI_Comm comm)
{
    struct collective *c = enter(comm_index(comm), ALLREDUCE, from, (size_t)n * bytes_of(type), 0);
    wait_for(c);
    deliver(c, &(struct request){.buffer = to, .type = type, .op = op});
    leave(c);
    return MPI_SUCCESS;
}

int __wrap_MPI_Bcast(void *buffer, int n, MPI_Datatype type, int root, MPI_Comm comm);
int __wrap_MPI_Bcast(void *buffer, int n, MPI_Datatype type, int root, MPI_Comm comm)
{
    struct collective *c =
        enter(comm_index(comm), BROADCAST, buffer, (size_t)n * bytes_of(type), root);
    wait_for(c);
    deliver(c, &(struct request){.buffer = buffer});
    leave(c);
    return MPI_SUCCESS;
}

int __wrap_MPI_Allgather(const void *mine, int n, MPI_Datatype type, void *all, int n_all,
                         MPI_Datatype type_all, MPI_Comm comm);
int __wrap_MPI_Allgather(const void *mine, int n, MPI_Datatype type, void *all, int n_all,
                         MPI_Datatype type_all, MPI_Comm comm)
{
    (void)n_all, (void)type_all;
    struct collective *c = enter(comm_index(comm), ALLGATHER, mine, (size_t)n * bytes_of(type), 0);
    wait_for(c);
    deliver(c, &(struct request){.buffer = all});
    leave(c);
    return MPI_SUCCESS;
}

/* ---- communicators, and the job */

/* Those of one color, by key and rank. The first member that comes by makes the communicator; the
 * others find it by its members. */
static int find_split(const struct collective *c, int me)
{
    const struct comm *parent = &comms[c->comm];
    struct comm made = {.size = 0};
    for (int key = 0; key < SIM_MAX_RANKS; key++) {
        for (int m = 0; m < parent->size; m++) {
            if (c->colors[m] == c->colors[me] && c->keys[m] == key) {
                made.members[made.size++] = parent->members[m];
            }
        }
    }
    made.n_called[SIM_MAX_RANKS - 1] = 0;
    for (int i = c->root; i < n_comms; i++) { /* root: how many there were before */
        if (comms[i].size == made.size &&
            memcmp(comms[i].members, made.members, sizeof made.members) == 0) {
            return i;
        }
    }
    if (n_comms == MOST_COMMS) {
        sim_wrong("more than %d communicators", MOST_COMMS);
        return 0;
    }
    comms[n_comms] = made;
    return n_comms++;
}

static MPI_Comm split(MPI_Comm comm, int color, int key)
{
    const int index = comm_index(comm), me = member_now(index);
    struct collective *c = enter(index, SPLIT, NULL, 0, 0);
    c->colors[me] = color;
    c->keys[me] = key;
    wait_for(c);
    if (c->n_left == 0) {
        c->root = n_comms;
    }
    const int made = color == MPI_UNDEFINED ? -1 : find_split(c, me);
    leave(c);
    return made < 0 ? MPI_COMM_NULL : comm_handle(made);
}

int __wrap_MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out);
int __wrap_MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out)
{
    *out = split(comm, color, key);
    return MPI_SUCCESS;
}

int __wrap_MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out);
int __wrap_MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out)
{
    (void)type, (void)info;
    *out = split(comm, sim.now->host, key);
    return MPI_SUCCESS;
}

int __wrap_MPI_Comm_dup(MPI_Comm comm, MPI_Comm *out);
int __wrap_MPI_Comm_dup(MPI_Comm comm, MPI_Comm *out)
{
    *out = split(comm, 0, member_now(comm_index(comm)));
    return MPI_SUCCESS;
}

int __wrap_MPI_Comm_rank(MPI_Comm comm, int *rank);
int __wrap_MPI_Comm_rank(MPI_Comm comm, int *rank)
{
    *rank = member_now(comm_index(comm));
    return MPI_SUCCESS;
}

int __wrap_MPI_Comm_size(MPI_Comm comm, int *size);
int __wrap_MPI_Comm_size(MPI_Comm comm, int *size)
{
    *size = comms[comm_index(comm)].size;
    return MPI_SUCCESS;
}

int __wrap_MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler);
int __wrap_MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler)
{
    (void)comm, (void)handler;
    return MPI_SUCCESS;
}

int __wrap_MPI_Comm_free(MPI_Comm *comm);
int __wrap_MPI_Comm_free(MPI_Comm *comm)
{
    *comm = MPI_COMM_NULL;
    return MPI_SUCCESS;
}

int __wrap_MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided);
int __wrap_MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided)
{
    (void)argc, (void)argv;
    *provided = wanted;
    meet(MPI_COMM_WORLD);
    return MPI_SUCCESS;
}

/* The process goes on after it, but for this rank nothing comes any more than its end. */
int __wrap_MPI_Finalize(void);
int __wrap_MPI_Finalize(void)
{
    sim.now->finalizes = true;
    meet(MPI_COMM_WORLD);
    sim_end(SIM_ENDED, sim.now->code);
}

int __wrap_MPI_Abort(MPI_Comm comm, int code);
int __wrap_MPI_Abort(MPI_Comm comm, int code)
{
    (void)comm;
    sim_take_others(code);
    return MPI_SUCCESS;
}

/* ---- memory that a host shares: for the signs of life */

int __wrap_MPI_Win_allocate_shared(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm,
                                   void *base, MPI_Win *window);
int __wrap_MPI_Win_allocate_shared(MPI_Aint size, int unit, MPI_Info info, MPI_Comm comm,
                                   void *base, MPI_Win *window)
{
    const int index = comm_index(comm);
    (void)unit, (void)info;
    struct collective *c = enter(index, MEET, NULL, BARRIER, 0);
    if (size > 0) {
        c->shared = sim_alloc((size_t)size);
    }
    wait_for(c); /* and nobody leaves it: its memory lives as long as the run */
    memcpy(base, &c->shared, sizeof c->shared);
    *window = (MPI_Win)(intptr_t)(FIRST_COMM + index);
    return MPI_SUCCESS;
}

int __wrap_MPI_Win_shared_query(MPI_Win window, int rank, MPI_Aint *size, int *unit, void *base);
int __wrap_MPI_Win_shared_query(MPI_Win window, int rank, MPI_Aint *size, int *unit, void *base)
{
    const int index = (int)(intptr_t)window - FIRST_COMM;
    (void)rank, (void)size, (void)unit;
    for (struct collective *c = collectives; c != NULL; c = c->next) {
        if (c->comm == index && c->shared != NULL) {
            memcpy(base, &c->shared, sizeof c->shared);
        }
    }
    return MPI_SUCCESS;
}

/* Waits for the others, as MPI's does. */
int __wrap_MPI_Win_free(MPI_Win *window);
int __wrap_MPI_Win_free(MPI_Win *window)
{
    meet(comm_handle((int)(intptr_t)*window - FIRST_COMM));
    *window = MPI_WIN_NULL;
    return MPI_SUCCESS;
}
