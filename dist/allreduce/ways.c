#include "dist/allreduce/ways.h"

#include <stdio.h>

static bool wants_shared_memory(enum dt_allreduce_type type)
{
    return type == DT_ALLREDUCE_AUTO || type == DT_ALLREDUCE_SHARED_MEMORY ||
           type == DT_ALLREDUCE_HIERARCHICAL;
}

/* Why there is no shared memory. */
static const char *why_not_shared(const struct dt_comm *comm)
{
    return comm->size == 1               ? ""
           : comm->n_hosts == comm->size ? "every rank is alone on its host"
                                         : "the ranks of a host cannot share memory";
}

static enum dt_status open_messages(const struct dt_allreduce_spec *spec, struct dt_allreduce **out)
{
    return dt_allreduce_algorithm(spec->type) == NULL || spec->comm->size == 1
               ? dt_mpi_open(spec, out)
               : dt_schedule_open(spec, out);
}

static enum dt_status open_on_host(const struct dt_allreduce_spec *spec, struct dt_allreduce **out)
{
    if (!wants_shared_memory(spec->type)) {
        return open_messages(spec, out);
    }
    DT_TRY(dt_shared_memory_open(spec, out));
    if (*out == NULL) {
        struct dt_allreduce_spec messages = *spec;
        messages.type = spec->type == DT_ALLREDUCE_HIERARCHICAL
                            ? DT_ALLREDUCE_OF_ALGORITHM(spec->across)
                            : DT_ALLREDUCE_MPI;
        DT_TRY(open_messages(&messages, out));
        snprintf((*out)->why, sizeof(*out)->why, "%s", why_not_shared(spec->comm));
    }
    return DT_OK;
}

/* Gradients are in host memory. */
static bool is_on_host(const struct dt_allreduce_spec *spec)
{
    return spec->backend == NULL || spec->backend->host_memory;
}

static enum dt_status open_staged(const struct dt_allreduce_spec *spec, struct dt_allreduce **out)
{
    struct dt_allreduce *host = NULL;
    struct dt_allreduce_spec on_host = *spec;
    on_host.backend = NULL;
    on_host.type = dt_allreduce_is_for_gpus(spec->type) ? DT_ALLREDUCE_AUTO : spec->type;
    DT_TRY(open_on_host(&on_host, &host));
    return dt_staged_open(spec, host, out);
}

/* In messages of our own, also between devices. */
static enum dt_status open_compressed(const struct dt_allreduce_spec *spec,
                                      struct dt_allreduce **out)
{
    const enum dt_compression_type compression = spec->compression.type;
    struct dt_allreduce_spec messages = *spec;
    messages.type = dt_allreduce_for_compression(spec->type, compression);
    if (!dt_allreduce_compresses(spec->type, spec->across, compression)) {
        return dt_error(DT_INTERNAL, "the allreduce %s cannot compress by %s",
                        dt_allreduce_names[spec->type], dt_compression_names[compression]);
    }
    DT_TRY(is_on_host(spec) ? open_on_host(&messages, out) : open_staged(&messages, out));
    if (spec->type == DT_ALLREDUCE_AUTO) {
        snprintf((*out)->why, sizeof(*out)->why, "gradients are sent as %s",
                 dt_compression_names[compression]);
    }
    return DT_OK;
}

static enum dt_status open_any(const struct dt_allreduce_spec *spec, struct dt_allreduce **out)
{
    const bool any = spec->type == DT_ALLREDUCE_AUTO;
    if (spec->compression.type != DT_COMPRESSION_NONE && spec->comm->size > 1) {
        return open_compressed(spec, out);
    }
    if (spec->device_open != NULL && (any || spec->type == DT_ALLREDUCE_NCCL)) {
        return spec->device_open(spec, out);
    }
    if (spec->comm->size == 1) {
        return dt_mpi_open(spec, out);
    }
    return is_on_host(spec) ? open_on_host(spec, out) : open_staged(spec, out);
}

static enum dt_status open_by_priority(const struct dt_allreduce_spec *spec,
                                       struct dt_allreduce **out)
{
    struct dt_allreduce_spec by_priority = *spec;
    const bool any = spec->type == DT_ALLREDUCE_AUTO &&
                     spec->compression.type == DT_COMPRESSION_NONE && spec->comm->n_hosts > 1;
    by_priority.type = any ? DT_ALLREDUCE_HIERARCHICAL : spec->type;
    DT_TRY(open_any(&by_priority, out));
    if (*out == NULL || spec->comm->size == 1) {
        return DT_OK;
    }
    if (!(*out)->by_priority) {
        dt_allreduce_close(*out);
        *out = NULL;
        return dt_error(DT_CONFIG, "distributed.order \"priority\": MPI adds in one order here "
                                   "(set distributed.allreduce to "
                                   "hierarchical or ring, or order to backward)");
    }
    if (any && (*out)->why[0] == '\0') {
        snprintf((*out)->why, sizeof(*out)->why, "MPI adds in one order");
    }
    return DT_OK;
}

enum dt_status dt_allreduce_open(const struct dt_allreduce_spec *spec, struct dt_allreduce **out)
{
    *out = NULL;
    return spec->credit_bytes > 0 ? open_by_priority(spec, out) : open_any(spec, out);
}
