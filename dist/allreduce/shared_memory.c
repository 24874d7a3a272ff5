/* Adding in memory that the ranks of a host share (host_sum.h); between hosts by MPI, or
 * hierarchically by an algorithm. */
#include <stdio.h>
#include <stdlib.h>

#include "dist/allreduce/host_sum.h"

struct shared {
    struct dt_allreduce base;
    struct dt_host_sum sum;
    struct dt_wire *wire; /* between the hosts; NULL: MPI's own messages, or none at all */
    struct dt_executor executor;
};

static enum dt_status shared_start(struct dt_allreduce *a, int slot, size_t begin, size_t end,
                                   const char *name, struct dt_request *request)
{
    dt_host_sum_start(a->shared, slot, begin, end, name, request);
    return DT_OK;
}

static bool shared_sent(const struct dt_allreduce *a, struct dt_wire_sent *out)
{
    const struct shared *self = (const struct shared *)a;
    if (self->wire != NULL) {
        *out = dt_wire_sent(self->wire);
    }
    return a->algorithm != NULL || a->comm->n_hosts == 1;
}

static void shared_close(struct dt_allreduce *a)
{
    struct shared *self = (struct shared *)a;
    dt_executor_close(&self->executor);
    dt_wire_close(self->wire);
    dt_host_sum_close(&self->sum);
    free(self);
}

static const struct dt_allreduce_ops shared_ops = {
    .start = shared_start, .sent = shared_sent, .close = shared_close};

/* Opens the wire and the executor for the slices that this rank carries, if it carries any. */
static enum dt_status open_across(struct shared *self, const struct dt_allreduce_spec *spec)
{
    struct dt_host_sum *sum = &self->sum;
    if (self->base.algorithm == NULL || spec->comm->across == NULL) {
        return DT_OK;
    }
    DT_TRY(dt_wire_open_mpi(spec->comm->across, &self->wire));
    DT_TRY(dt_executor_open(self->base.algorithm, self->wire, sum->total, spec->n_elems,
                            spec->n_slots, spec->payload, &self->executor));
    DT_ASSERT(sum->total != NULL && sum->across == NULL);
    sum->across = &self->executor;
    self->base.feedback = self->executor.feedback;
    return DT_OK;
}

static enum dt_status open_parts(struct shared *self, const struct dt_allreduce_spec *spec)
{
    struct dt_allreduce *a = &self->base;
    DT_TRY(dt_host_sum_open(spec->comm, spec->n_elems, &self->sum));
    a->shared = &self->sum;
    a->part = self->sum.part;
    a->total = self->sum.total;
    return a->part != NULL ? open_across(self, spec) : DT_OK;
}

/* *out stays NULL: on no rank is it to be had. */
static enum dt_status open_shared(const struct dt_allreduce_spec *spec, struct dt_allreduce **out)
{
    const bool hierarchical = spec->type == DT_ALLREDUCE_HIERARCHICAL;
    struct shared *self = calloc(1, sizeof *self);
    bool all;
    const enum dt_status agreed =
        dt_comm_all(spec->comm, self != NULL, "agreement on memory", &all);
    if (self == NULL || agreed != DT_OK || !all) { /* everywhere, or the others would do without */
        free(self);
        return agreed != DT_OK
                   ? agreed
                   : dt_error(DT_NO_MEMORY, "no memory for the allreduce in shared memory");
    }
    self->base = (struct dt_allreduce){
        .ops = &shared_ops,
        .type = hierarchical ? DT_ALLREDUCE_HIERARCHICAL : DT_ALLREDUCE_SHARED_MEMORY,
        .algorithm = hierarchical ? dt_allreduce_algorithm(&spec->rows,
                                                           DT_ALLREDUCE_OF_ALGORITHM(spec->across))
                                  : NULL,
        .comm = spec->comm};
    const enum dt_status s = open_parts(self, spec);
    *out = &self->base;
    if (s != DT_OK || self->base.part == NULL) {
        shared_close(&self->base);
        *out = NULL;
    }
    return s;
}

static bool serves(const struct dt_allreduce_spec *spec)
{
    return spec->comm->size > 1 &&
           (spec->type == DT_ALLREDUCE_AUTO || spec->type == DT_ALLREDUCE_SHARED_MEMORY ||
            spec->type == DT_ALLREDUCE_HIERARCHICAL);
}

/* In messages, where no memory is to be had. */
static enum dt_status shared_open(const struct dt_allreduce_spec *spec, struct dt_allreduce **out)
{
    struct dt_allreduce_spec messages = *spec;
    messages.type = spec->type == DT_ALLREDUCE_HIERARCHICAL
                        ? DT_ALLREDUCE_OF_ALGORITHM(spec->across)
                        : DT_ALLREDUCE_MPI;
    DT_TRY(open_shared(spec, out));
    if (*out == NULL) {
        DT_TRY(dt_allreduce_open(&messages, out));
        snprintf((*out)->why, sizeof(*out)->why, "%s",
                 spec->comm->n_hosts == spec->comm->size
                     ? "every rank is alone on its host"
                     : "the ranks of a host cannot share memory");
    }
    return DT_OK;
}

const struct dt_allreduce_entry dt_shared_memory_allreduce = {.serves = serves,
                                                              .open = shared_open};
