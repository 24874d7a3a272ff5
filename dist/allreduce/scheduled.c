/* Adding by an algorithm of the list, over all ranks. */
#include <stdlib.h>

#include "dist/allreduce/allreduce.h"
#include "dist/allreduce/executor.h"

struct schedule {
    struct dt_allreduce base;
    struct dt_backend *backend; /* borrowed */
    struct dt_wire *wire;
    struct dt_executor executor;
};

/* A dt_request.progress. */
static enum dt_status progress(struct dt_request *request, bool *done)
{
    struct schedule *self = request->handle;
    return dt_executor_progress(&self->executor, request->slot, done);
}

static enum dt_status schedule_start(struct dt_allreduce *a, int slot, size_t begin, size_t end,
                                     const char *name, struct dt_request *request)
{
    struct schedule *self = (struct schedule *)a;
    dt_comm_request_begin(a->comm, name, (end - begin) * sizeof *a->part, request);
    request->handle = self;
    request->slot = slot;
    request->progress = progress;
    return dt_executor_start(&self->executor, slot, dt_executor_draw(&self->executor), begin, end);
}

static bool schedule_sent(const struct dt_allreduce *a, struct dt_wire_sent *out)
{
    *out = dt_wire_sent(((const struct schedule *)a)->wire);
    return true;
}

static void schedule_close(struct dt_allreduce *a)
{
    struct schedule *self = (struct schedule *)a;
    dt_executor_close(&self->executor);
    dt_wire_close(self->wire);
    self->backend->ops->free(self->backend, a->part);
    free(self);
}

static const struct dt_allreduce_ops schedule_ops = {
    .start = schedule_start, .sent = schedule_sent, .close = schedule_close};

static enum dt_status open_parts(struct schedule *self, const struct dt_allreduce_spec *spec)
{
    DT_ASSERT(self->base.algorithm != NULL && spec->comm->size > 1);
    struct dt_allreduce *a = &self->base;
    DT_TRY(spec->comm->ops->wire_open(spec->comm, &self->wire));
    DT_TRY(dt_allreduce_take_memory(spec, &a->part));
    a->total = a->part;
    DT_TRY(dt_executor_open(a->algorithm, self->wire, a->part, spec->n_elems, spec->n_slots,
                            spec->encoding, &self->executor));
    a->feedback = self->executor.feedback;
    return DT_OK;
}

static bool serves(const struct dt_allreduce_spec *spec)
{
    return spec->comm->ops->wire_open != NULL &&
           dt_allreduce_algorithm(&spec->rows, spec->type) != NULL;
}

static enum dt_status schedule_open(const struct dt_allreduce_spec *spec, struct dt_allreduce **out)
{
    struct schedule *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for the allreduce by messages");
    }
    self->base = (struct dt_allreduce){.ops = &schedule_ops,
                                       .type = spec->type,
                                       .algorithm = dt_allreduce_algorithm(&spec->rows, spec->type),
                                       .codec = spec->encoding.codec,
                                       .comm = spec->comm};
    self->backend = spec->backend;
    const enum dt_status s = open_parts(self, spec);
    if (s != DT_OK) {
        schedule_close(&self->base);
        return s;
    }
    *out = &self->base;
    return DT_OK;
}

const struct dt_allreduce_entry dt_scheduled_allreduce = {.serves = serves, .open = schedule_open};
