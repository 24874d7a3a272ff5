/* Sums that begin later overtake those under way (by_priority of the spec). Chooses an
 * implementation that can, and leaves the sum to it: MPI adds in one order. */
#include <stdio.h>

#include "dist/allreduce/allreduce.h"

static bool serves(const struct dt_allreduce_spec *spec)
{
    return spec->by_priority;
}

static enum dt_status open_by_priority(const struct dt_allreduce_spec *spec,
                                       struct dt_allreduce **out)
{
    struct dt_allreduce_spec by_priority = *spec;
    const bool any =
        spec->type == DT_ALLREDUCE_AUTO && spec->encoding.codec == NULL && spec->comm->n_hosts > 1;
    by_priority.type = any ? DT_ALLREDUCE_HIERARCHICAL : spec->type;
    DT_TRY(dt_allreduce_open(&by_priority, out));
    if (spec->comm->size == 1) {
        return DT_OK;
    }
    if ((*out)->algorithm == NULL && ((*out)->shared == NULL || spec->comm->n_hosts > 1)) {
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

const struct dt_allreduce_entry dt_priority_allreduce = {.serves = serves,
                                                         .open = open_by_priority};
