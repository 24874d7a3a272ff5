#include "dist/allreduce/staged.h"

#include <stdlib.h>

#include "dist/allreduce/host_sum.h"

#define MAX_UNDER_WAY DT_HOST_SUM_SLOTS
#define ALIGNMENT ((size_t)64)

struct operation {
    bool busy;
    size_t begin, n_bytes;   /* of the staging memory */
    const void *result;      /* in host memory, when `inner` is done */
    void *device;            /* where it goes then */
    struct dt_request inner; /* the host's collective */
};

/* Staging memory is taken as from a ring, in the order of the calls, so that all ranks take the same places: in
 * dist/allreduce/host_sum.h the place says what belongs together. A message is not split, so the ring holds twice what may be under
 * way. */
struct staged_comm {
    struct dt_comm base;
    struct dt_comm *host;       /* borrowed */
    struct dt_backend *backend; /* borrowed */
    struct dt_host_sum sum;     /* part NULL: not to be had */
    char *memory;               /* the sum's part, or our own */
    size_t n_bytes, next;
    uint64_t n_taken; /* operations so far; operation n is in place n % MAX_UNDER_WAY */
    struct operation operations[MAX_UNDER_WAY];
};

static struct staged_comm *staged_of(struct dt_comm *comm)
{
    return (struct staged_comm *)comm;
}

static size_t round_up(size_t n_bytes)
{
    return (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static bool is_free(const struct staged_comm *self, size_t begin, size_t end)
{
    for (int i = 0; i < MAX_UNDER_WAY; i++) {
        const struct operation *other = &self->operations[i];
        if (other->busy && begin < other->begin + round_up(other->n_bytes) && other->begin < end) {
            return false;
        }
    }
    return end <= self->n_bytes;
}

static enum dt_status take(struct staged_comm *self, void *device, size_t n_bytes, struct dt_request *request,
                           struct operation **out)
{
    struct operation *operation = &self->operations[self->n_taken % MAX_UNDER_WAY];
    const size_t begin = self->next + round_up(n_bytes) <= self->n_bytes ? self->next : 0;
    const size_t end = begin + round_up(n_bytes);
    if (operation->busy || !is_free(self, begin, end)) {
        return dt_error(DT_INTERNAL, "%s: too much is under way for %zu bytes of staging memory and %d messages", request->name,
                        self->n_bytes, MAX_UNDER_WAY);
    }
    *operation =
        (struct operation){.busy = true, .begin = begin, .n_bytes = n_bytes, .result = self->memory + begin, .device = device};
    self->next = end;
    self->n_taken++;
    request->handle = operation;
    *out = operation;
    return DT_OK;
}

static enum dt_status staged_allreduce_start(struct dt_comm *comm, void *buffer, size_t n_elems, enum dt_type type,
                                             enum dt_reduce op, struct dt_request *request)
{
    struct staged_comm *self = staged_of(comm);
    struct operation *operation;
    DT_TRY(take(self, buffer, n_elems * dt_type_bytes(type), request, &operation));
    char *memory = self->memory + operation->begin;
    DT_TRY(self->backend->ops->copy_out(self->backend, memory, buffer, operation->n_bytes));
    if (self->sum.part == NULL || type != DT_TYPE_F32 || op != DT_REDUCE_SUM) {
        return dt_comm_allreduce_start(self->host, memory, n_elems, type, op, request->name, &operation->inner);
    }
    const size_t first = operation->begin / sizeof(float);
    operation->result = self->sum.total + first;
    dt_host_sum_start(&self->sum, (int)(operation - self->operations), first, first + n_elems, request->name, &operation->inner);
    return DT_OK;
}

static enum dt_status staged_broadcast_start(struct dt_comm *comm, void *buffer, size_t n_bytes, int root,
                                             struct dt_request *request)
{
    struct staged_comm *self = staged_of(comm);
    struct operation *operation;
    DT_TRY(take(self, buffer, n_bytes, request, &operation));
    char *memory = self->memory + operation->begin;
    if (comm->rank == root) {
        DT_TRY(self->backend->ops->copy_out(self->backend, memory, buffer, n_bytes));
    }
    dt_comm_request_begin(self->host, request->name, &operation->inner);
    return self->host->ops->broadcast_start(self->host, memory, n_bytes, root, &operation->inner);
}

static enum dt_status staged_allgather_start(struct dt_comm *comm, const void *mine, void *all, size_t n_bytes_each,
                                             struct dt_request *request)
{
    (void)comm, (void)mine, (void)all, (void)n_bytes_each;
    return dt_error(DT_INTERNAL, "%s: the communicator through host memory has no allgather", request->name);
}

static enum dt_status staged_test(struct dt_comm *comm, struct dt_request *request, bool *done)
{
    struct staged_comm *self = staged_of(comm);
    struct operation *operation = request->handle;
    DT_TRY(dt_comm_test(self->host, &operation->inner, done));
    if (*done) {
        operation->busy = false;
        return self->backend->ops->copy_in(self->backend, operation->device, operation->result, operation->n_bytes);
    }
    return DT_OK;
}

static void staged_phase(struct dt_comm *comm, const char *name)
{
    dt_comm_phase(staged_of(comm)->host, name);
}

static void staged_alive(struct dt_comm *comm)
{
    struct dt_comm *host = staged_of(comm)->host;
    host->ops->alive(host);
}

static bool staged_explain(struct dt_comm *comm, const struct dt_request *request, char *text, size_t n_text)
{
    struct dt_comm *host = staged_of(comm)->host;
    const struct operation *operation = request->handle;
    return host->ops->explain(host, &operation->inner, text, n_text);
}

static bool staged_claim(struct dt_comm *comm)
{
    struct dt_comm *host = staged_of(comm)->host;
    return host->ops->claim(host);
}

static void staged_close(struct dt_comm *comm)
{
    struct staged_comm *self = staged_of(comm);
    if (self->sum.part == NULL) {
        free(self->memory);
    }
    dt_host_sum_close(&self->sum);
    free(self);
}

static const struct dt_comm_ops staged_ops = {
    .name = "staged",
    .allreduce_start = staged_allreduce_start,
    .broadcast_start = staged_broadcast_start,
    .allgather_start = staged_allgather_start,
    .test = staged_test,
    .phase = staged_phase,
    .alive = staged_alive,
    .explain = staged_explain,
    .claim = staged_claim,
    .close = staged_close,
};

static enum dt_status open_memory(struct staged_comm *self)
{
    DT_TRY(dt_host_sum_open(self->host, self->n_bytes / sizeof(float), &self->sum));
    self->memory = self->sum.part != NULL ? (char *)self->sum.part : malloc(self->n_bytes);
    return self->memory != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "no memory for %zu bytes of messages", self->n_bytes);
}

enum dt_status dt_comm_open_staged(struct dt_comm *host, struct dt_backend *backend, size_t n_elems_max, struct dt_comm **out)
{
    struct staged_comm *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the communicator");
    }
    self->base = *host; /* ranks and time limit */
    self->base.ops = &staged_ops;
    self->base.n_started = self->base.n_done = 0;
    self->host = host;
    self->backend = backend;
    self->n_bytes = 2 * (n_elems_max * sizeof(float) + MAX_UNDER_WAY * ALIGNMENT);
    const enum dt_status status = open_memory(self);
    if (status != DT_OK) {
        staged_close(&self->base);
        return status;
    }
    *out = &self->base;
    return DT_OK;
}
