#include "dist/allreduce/allreduce.h"

#include <stdio.h>

#define NAME(constant, name, ...) name,
const char *const dt_allreduce_names[DT_N_ALLREDUCE_TYPES] = {DT_ALLREDUCE_LIST(NAME)};

const struct dt_algorithm *dt_allreduce_algorithm(enum dt_allreduce_type type)
{
    return dt_algorithm_find(dt_allreduce_names[type == DT_ALLREDUCE_HIERARCHICAL ? DT_ALLREDUCE_RING : type]);
}

const char *dt_allreduce_meaning(enum dt_allreduce_type type)
{
    switch (type) {
    case DT_ALLREDUCE_AUTO:
        return "the best there is";
    case DT_ALLREDUCE_SHARED_MEMORY:
        return "in memory that the ranks of a host share, by MPI between hosts";
    case DT_ALLREDUCE_MPI:
        return "MPI_Iallreduce";
    case DT_ALLREDUCE_NCCL:
        return "between GPUs by NCCL";
    case DT_ALLREDUCE_STAGED:
        return "between GPUs by way of host memory";
    case DT_ALLREDUCE_HIERARCHICAL:
        return "shared memory inside each host, a ring between the hosts";
    default:
        return dt_allreduce_algorithm(type)->meaning;
    }
}

bool dt_allreduce_is_for_gpus(enum dt_allreduce_type type)
{
    return type == DT_ALLREDUCE_NCCL || type == DT_ALLREDUCE_STAGED;
}

static bool wants_shared_memory(enum dt_allreduce_type type)
{
    return type == DT_ALLREDUCE_AUTO || type == DT_ALLREDUCE_SHARED_MEMORY || type == DT_ALLREDUCE_HIERARCHICAL;
}

/* An algorithm of the list, over all ranks or, where they share memory, between the hosts. */
static enum dt_status open_algorithm(struct dt_allreduce *a, const struct dt_allreduce_spec *spec)
{
    const bool shares = a->shared.part != NULL;
    struct dt_comm *members = shares ? spec->comm->across : spec->comm;
    const struct dt_algorithm *algorithm = dt_allreduce_algorithm(a->type);
    if (algorithm == NULL || spec->comm->size == 1 || members == NULL) {
        return DT_OK;
    }
    DT_TRY(dt_wire_open_mpi(members, &a->wire));
    DT_TRY(dt_executor_open(algorithm, a->wire, shares ? a->shared.total : a->part, spec->n_elems, spec->n_slots, &a->executor));
    a->shared.across = shares ? &a->executor : NULL;
    return DT_OK;
}

static enum dt_status open_shared(struct dt_allreduce *a, const struct dt_allreduce_spec *spec)
{
    const struct dt_comm *comm = spec->comm;
    DT_TRY(dt_host_sum_open(spec->comm, spec->n_elems, &a->shared));
    if (a->shared.part != NULL) {
        a->part = a->shared.part;
        a->total = a->shared.total;
        a->type = spec->type == DT_ALLREDUCE_AUTO ? DT_ALLREDUCE_SHARED_MEMORY : spec->type;
        return DT_OK;
    }
    a->type = spec->type == DT_ALLREDUCE_HIERARCHICAL ? DT_ALLREDUCE_RING : DT_ALLREDUCE_MPI;
    snprintf(a->why, sizeof a->why, "%s",
             comm->size == 1               ? ""
             : comm->n_hosts == comm->size ? "every rank is alone on its host"
                                           : "the ranks of a host cannot share memory");
    return DT_OK;
}

static enum dt_status open_parts(struct dt_allreduce *a, const struct dt_allreduce_spec *spec)
{
    if (spec->device != NULL) {
        a->comm = spec->device;
        return DT_OK;
    }
    if (wants_shared_memory(spec->type)) {
        DT_TRY(open_shared(a, spec));
    }
    return open_algorithm(a, spec);
}

enum dt_status dt_allreduce_open(const struct dt_allreduce_spec *spec, struct dt_allreduce *out)
{
    *out = (struct dt_allreduce){.type = spec->type, .comm = spec->comm, .part = spec->memory, .total = spec->memory};
    const enum dt_status s = open_parts(out, spec);
    if (s != DT_OK) {
        dt_allreduce_close(out);
    }
    return s;
}

void dt_allreduce_close(struct dt_allreduce *a)
{
    dt_executor_close(&a->executor);
    dt_wire_close(a->wire);
    dt_host_sum_close(&a->shared);
    a->wire = NULL;
}

/* A dt_request.progress. */
static enum dt_status progress(struct dt_request *request, bool *done)
{
    return dt_executor_progress(request->handle, request->slot, done);
}

static enum dt_status start_algorithm(struct dt_allreduce *a, int slot, size_t begin, size_t end, const char *name,
                                      struct dt_request *request)
{
    dt_comm_request_begin(a->comm, name, request);
    request->handle = &a->executor;
    request->slot = slot;
    request->progress = progress;
    return dt_executor_start(&a->executor, slot, begin, end);
}

enum dt_status dt_allreduce_start(struct dt_allreduce *a, int slot, size_t begin, size_t end, const char *name,
                                  struct dt_request *request)
{
    if (a->shared.part != NULL) {
        dt_host_sum_start(&a->shared, slot, begin, end, name, request);
        return DT_OK;
    }
    if (a->wire != NULL) {
        return start_algorithm(a, slot, begin, end, name, request);
    }
    return dt_comm_allreduce_start(a->comm, a->part + begin, end - begin, DT_TYPE_F32, DT_REDUCE_SUM, name, request);
}

bool dt_allreduce_sent(const struct dt_allreduce *a, struct dt_wire_count *out)
{
    *out = a->wire != NULL ? dt_wire_total(a->wire) : (struct dt_wire_count){0};
    const bool inside = a->shared.part != NULL && (a->comm->n_hosts == 1 || a->type == DT_ALLREDUCE_HIERARCHICAL);
    return a->wire != NULL || inside || a->comm->size == 1;
}
