#include "dist/ranks/comm_private.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* Pieces of the blocking calls: below MPI's int counts, and a multiple of every element size. */
#define PIECE_ELEMS ((size_t)1 << 30)
#define SPINS_BEFORE_YIELD 50
#define TESTS_PER_CLOCK 16
#define TIMEOUT_DEFAULT_S 60.0

size_t dt_type_bytes(enum dt_type type)
{
#define BYTES(constant, c_type, mpi_type) sizeof(c_type),
    static const size_t bytes[] = {DT_TYPE_LIST(BYTES)};
    return bytes[type];
}

struct dt_comm_private *dt_comm_new(int rank, int size)
{
    DT_ASSERT(rank >= 0 && rank < size);
    struct dt_comm_private *self = calloc(1, sizeof *self);
    if (self != NULL) {
        self->base = (struct dt_comm){.rank = rank,
                                      .size = size,
                                      .local_size = 1,
                                      .n_hosts = size,
                                      .host_root = rank,
                                      .private = self};
        self->silent = -1;
        self->timeout_s = TIMEOUT_DEFAULT_S;
    }
    return self;
}

void dt_comm_close(struct dt_comm *comm)
{
    if (comm == NULL) {
        return;
    }
    struct dt_comm_private *self = comm->private;
    if (self->liveness != NULL) {
        self->liveness->close(comm);
    }
    dt_comm_close(comm->across);
    if (self->ops != NULL) {
        self->ops->close(comm);
    }
    free(comm->host_roots);
    free(self);
}

static void show_alive(struct dt_comm *comm, const char *begins, size_t n_bytes)
{
    if (comm->private->liveness != NULL) {
        comm->private->liveness->alive(comm, begins, n_bytes);
    }
}

void dt_comm_alive(void *comm)
{
    const struct dt_comm_private *self = ((struct dt_comm *)comm)->private;
    show_alive(comm, NULL, 0);
    if (self->meanwhile != NULL) {
        self->meanwhile(self->meanwhile_context);
    }
}

void dt_comm_request_begin(struct dt_comm *comm, const char *name, size_t n_bytes,
                           struct dt_request *request)
{
    DT_ASSERT(name != NULL);
    *request =
        (struct dt_request){.name = name, .active = true, .sequence = ++comm->private->n_started};
    show_alive(comm, name, n_bytes);
}

void dt_comm_wait_ended(struct dt_comm *comm)
{
    comm->private->n_done++;
    show_alive(comm, NULL, 0);
}

/* Of one rank, a collective is done as it starts. */
static enum dt_status started(const struct dt_comm *comm, struct dt_request *request,
                              enum dt_status status)
{
    request->active = status == DT_OK && comm->private->ops != NULL;
    return status;
}

static enum dt_status check_count(size_t n, const char *name)
{
    if (n > INT_MAX) {
        return dt_error(
            DT_CONFIG,
            "%s: %zu elements are too many for one message of at most %d (use smaller buckets)",
            name, n, INT_MAX);
    }
    return DT_OK;
}

enum dt_status dt_comm_allreduce_start(struct dt_comm *comm, void *buffer, size_t n_elems,
                                       enum dt_type type, enum dt_reduce op, const char *name,
                                       struct dt_request *request)
{
    DT_ASSERT(type <= DT_TYPE_U64 && op <= DT_REDUCE_MIN);
    *request = (struct dt_request){.active = false};
    DT_TRY(check_count(n_elems, name));
    dt_comm_request_begin(comm, name, n_elems * dt_type_bytes(type), request);
    const struct dt_comm_ops *ops = comm->private->ops;
    return started(comm, request,
                   ops == NULL ? DT_OK
                               : ops->allreduce_start(comm, buffer, n_elems, type, op, request));
}

enum dt_status dt_comm_test(struct dt_comm *comm, struct dt_request *request, bool *done)
{
    *done = !request->active;
    if (request->active) {
        if (request->progress != NULL) {
            DT_TRY(request->progress(request, done));
        } else {
            DT_TRY(comm->private->ops->test(&request->handle, request->name, done));
        }
        DT_ASSERT(request->sequence > 0 && request->sequence <= comm->private->n_started);
        request->active = !*done;
    }
    return DT_OK;
}

enum dt_status dt_comm_judge(struct dt_comm *comm, const struct dt_request *request,
                             double waited_s)
{
    struct dt_comm_private *self = comm->private;
    DT_ASSERT(waited_s >= 0 && self->timeout_s > 0);
    char who[256] = "a rank, or the network, does not answer";
    double limit_s = self->timeout_s;
    if (waited_s > limit_s && self->liveness != NULL) {
        limit_s += self->liveness->explain(comm, request, who, sizeof who);
    }
    if (waited_s <= limit_s) {
        return DT_OK;
    }
    self->stalled = true;
    return dt_error(DT_STALLED,
                    "%s stalled for %.0f s: %s (raise DTRAIN_TIMEOUT if the work takes that long)",
                    request->name, limit_s, who);
}

enum dt_status dt_comm_wait(struct dt_comm *comm, struct dt_request *request)
{
    const struct dt_comm_private *self = comm->private;
    struct dt_patience patience = dt_patience_begin();
    for (unsigned n_tests = 0;; n_tests++) {
        bool done;
        DT_TRY(dt_comm_test(comm, request, &done));
        if (done) {
            dt_comm_wait_ended(comm);
            return DT_OK;
        }
        if (self->meanwhile != NULL) {
            self->meanwhile(self->meanwhile_context);
        }
        if (n_tests < SPINS_BEFORE_YIELD) {
            continue;
        }
        if (n_tests % TESTS_PER_CLOCK == 0) {
            show_alive(comm, NULL, 0);
            DT_TRY(dt_comm_judge(comm, request, dt_patience_look(&patience)));
        }
        sched_yield(); /* last: a request is judged by what a test just now has shown */
    }
}

enum dt_status dt_comm_allreduce(struct dt_comm *comm, void *buffer, size_t n_elems,
                                 enum dt_type type, enum dt_reduce op, const char *name)
{
    char *next = buffer;
    do {
        const size_t n = n_elems < PIECE_ELEMS ? n_elems : PIECE_ELEMS;
        struct dt_request request;
        DT_TRY(dt_comm_allreduce_start(comm, next, n, type, op, name, &request));
        DT_TRY(dt_comm_wait(comm, &request));
        next += n * dt_type_bytes(type);
        n_elems -= n;
    } while (n_elems > 0);
    return DT_OK;
}

enum dt_status dt_comm_broadcast(struct dt_comm *comm, void *buffer, size_t n_bytes, int root,
                                 const char *name)
{
    DT_ASSERT(root >= 0 && root < comm->size);
    const struct dt_comm_ops *ops = comm->private->ops;
    char *next = buffer;
    do {
        const size_t n = n_bytes < PIECE_ELEMS ? n_bytes : PIECE_ELEMS;
        struct dt_request request;
        dt_comm_request_begin(comm, name, n, &request);
        DT_TRY(started(comm, &request,
                       ops == NULL ? DT_OK : ops->broadcast_start(comm, next, n, root, &request)));
        DT_TRY(dt_comm_wait(comm, &request));
        next += n;
        n_bytes -= n;
    } while (n_bytes > 0);
    return DT_OK;
}

enum dt_status dt_comm_allgather(struct dt_comm *comm, const void *mine, void *all,
                                 size_t n_bytes_each, const char *name)
{
    const struct dt_comm_ops *ops = comm->private->ops;
    struct dt_request request;
    DT_TRY(check_count(n_bytes_each, name));
    dt_comm_request_begin(comm, name, n_bytes_each, &request);
    if (ops == NULL && n_bytes_each > 0) {
        memmove(all, mine, n_bytes_each);
    }
    DT_TRY(started(comm, &request,
                   ops == NULL ? DT_OK
                               : ops->allgather_start(comm, mine, all, n_bytes_each, &request)));
    return dt_comm_wait(comm, &request);
}

enum dt_status dt_comm_all(struct dt_comm *comm, bool mine, const char *name, bool *all)
{
    int32_t least = mine;
    DT_TRY(dt_comm_allreduce(comm, &least, 1, DT_TYPE_I32, DT_REDUCE_MIN, name));
    DT_ASSERT(least == 0 || (least == 1 && mine));
    *all = least != 0;
    return DT_OK;
}
