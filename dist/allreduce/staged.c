/* Adding what lies in the memory of devices: by the devices themselves, if they can; else each
 * range goes through host memory, where another implementation adds it.
 *
 * Starting waits until the work enqueued before it is done; work enqueued after the test or wait
 * that found it done sees the sums. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "dist/allreduce/formula.h"

struct range {
    size_t begin, end;
    struct dt_request request; /* of its sum in host memory */
};

struct staged {
    struct dt_allreduce base;
    struct dt_allreduce *host;
    struct range *ranges; /* one a slot */
};

/* A dt_request.progress. */
static enum dt_status progress(struct dt_request *request, bool *done)
{
    struct staged *self = request->handle;
    struct range *range = &self->ranges[request->slot];
    DT_TRY(dt_comm_test(self->base.comm, &range->request, done));
    return !*done ? DT_OK
                  : self->base.backend->ops->copy_in(
                        self->base.backend, self->base.part + range->begin,
                        self->host->total + range->begin,
                        (range->end - range->begin) * sizeof *self->base.part);
}

static enum dt_status staged_start(struct dt_allreduce *a, int slot, size_t begin, size_t end,
                                   const char *name, struct dt_request *request)
{
    struct staged *self = (struct staged *)a;
    struct range *range = &self->ranges[slot];
    DT_ASSERT(!range->request.active);
    const size_t n_bytes = (end - begin) * sizeof *a->part;
    DT_TRY(self->base.backend->ops->copy_out(self->base.backend, self->host->part + begin,
                                             a->part + begin, n_bytes));
    *range = (struct range){.begin = begin, .end = end};
    DT_TRY(dt_allreduce_start(self->host, slot, begin, end, name, &range->request));
    *request = range->request; /* one collective, counted once */
    request->handle = self;
    request->slot = slot;
    request->progress = progress;
    return DT_OK;
}

static bool staged_sent(const struct dt_allreduce *a, struct dt_wire_sent *out)
{
    return dt_allreduce_sent(((const struct staged *)a)->host, out);
}

static void staged_close(struct dt_allreduce *a)
{
    struct staged *self = (struct staged *)a;
    dt_allreduce_close(self->host);
    self->base.backend->ops->free(self->base.backend, a->part);
    free(self->ranges);
    free(self);
}

static const struct dt_allreduce_ops staged_ops = {
    .start = staged_start, .sent = staged_sent, .close = staged_close};

static enum dt_status open_parts(struct staged *self, const struct dt_allreduce_spec *spec)
{
    DT_TRY(dt_allreduce_take_memory(&self->base, spec));
    self->ranges = calloc((size_t)spec->n_slots, sizeof *self->ranges);
    return self->ranges != NULL
               ? DT_OK
               : dt_error(DT_NO_MEMORY, "no memory for the allreduce by way of host memory");
}

/* host: as large, in the program's memory; from now on, or from a failure on, staged's. */
static enum dt_status open_around(const struct dt_allreduce_spec *spec, struct dt_allreduce *host,
                                  struct dt_allreduce **out)
{
    DT_ASSERT(!spec->backend->host_memory && host->comm == spec->comm);
    struct staged *self = calloc(1, sizeof *self);
    if (self == NULL) {
        dt_allreduce_close(host);
        return dt_error(DT_NO_MEMORY, "no memory for the allreduce by way of host memory");
    }
    *self = (struct staged){.base = {.ops = &staged_ops,
                                     .type = DT_ALLREDUCE_STAGED,
                                     .algorithm = host->algorithm,
                                     .feedback = host->feedback,
                                     .shared = host->shared,
                                     .comm = spec->comm},
                            .host = host};
    snprintf(self->base.why, sizeof self->base.why, "%s", host->why);
    const enum dt_status s = open_parts(self, spec);
    if (s != DT_OK) {
        staged_close(&self->base);
        return s;
    }
    *out = &self->base;
    return DT_OK;
}

static bool serves(const struct dt_allreduce_spec *spec)
{
    return spec->comm->size > 1 && !spec->backend->host_memory;
}

static enum dt_status staged_open(const struct dt_allreduce_spec *spec, struct dt_allreduce **out)
{
    struct dt_allreduce *host = NULL;
    struct dt_allreduce_spec on_host = *spec;
    on_host.backend = &dt_program_memory;
    on_host.type = dt_allreduce_is_for_gpus(spec->type) ? DT_ALLREDUCE_AUTO : spec->type;
    DT_TRY(dt_allreduce_open(&on_host, &host));
    return open_around(spec, host, out);
}

const struct dt_allreduce_entry dt_staged_allreduce = {.serves = serves, .open = staged_open};

static bool device_serves(const struct dt_allreduce_spec *spec)
{
    return spec->device_open != NULL &&
           (spec->type == DT_ALLREDUCE_AUTO || spec->type == DT_ALLREDUCE_NCCL);
}

static enum dt_status device_open(const struct dt_allreduce_spec *spec, struct dt_allreduce **out)
{
    return spec->device_open(spec, out);
}

const struct dt_allreduce_entry dt_device_allreduce = {.serves = device_serves,
                                                       .open = device_open};

/* ---- the program's own memory as a backend */

#define BEHIND_BYTES ((size_t)256) /* readable behind an array, as a backend's have it */

static enum dt_status program_alloc(struct dt_backend *backend, size_t n_bytes, void **out)
{
    (void)backend;
    *out = dt_memory_alloc(n_bytes + BEHIND_BYTES);
    if (*out == NULL) {
        return dt_error(DT_NO_MEMORY, "no memory for sums of %zu bytes", n_bytes);
    }
    memset(*out, 0, n_bytes + BEHIND_BYTES);
    return DT_OK;
}

static void program_free(struct dt_backend *backend, void *memory)
{
    (void)backend;
    free(memory);
}

static const struct dt_backend_ops program_ops = {
    .name = "program", .alloc = program_alloc, .free = program_free};

struct dt_backend dt_program_memory = {.ops = &program_ops, .host_memory = true};
