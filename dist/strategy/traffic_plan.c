/* Traffic that is predicted before anything is opened, and that of servers. */
#include <math.h>

#include "dist/strategy/matrices.h"
#include "dist/strategy/strategies.h"

static void raise_to(struct dt_step_traffic *most, double messages, double bytes)
{
    most->messages = fmax(most->messages, messages);
    most->bytes = fmax(most->bytes, bytes);
}

/* Workers that are on another host than this rank. */
static int count_elsewhere(const struct dt_comm *comm, const struct dt_roles *roles, int rank)
{
    int n = 0;
    for (int w = 0; w < roles->n_workers; w++) {
        n += w != rank &&
             (comm->host_roots == NULL || comm->host_roots[w] != comm->host_roots[rank]);
    }
    return n;
}

struct dt_step_traffic dt_traffic_of_servers(const struct dt_comm *comm,
                                             const struct dt_roles *roles,
                                             const struct dt_placement *placement,
                                             const struct dt_codec *codec)
{
    const bool central = roles->first_server == 0; /* a worker that serves sends itself nothing */
    const double n_away = roles->n_workers - central;
    struct dt_step_traffic most = {.known = true, .by_each = n_away == 0, .n_hosts = comm->n_hosts};
    double messages[DT_MAX_PARAMS] = {0}, bytes[DT_MAX_PARAMS] = {0}, all = 0;
    for (int i = 0; i < placement->n_pieces; i++) {
        const struct dt_piece *p = &placement->pieces[i];
        const double n_bytes = (double)((p->end - p->begin) * sizeof(float));
        const double n_pushed = (double)dt_codec_bytes(codec, p->begin, p->end - p->begin);
        const double n_elsewhere = count_elsewhere(comm, roles, roles->first_server + p->server);
        messages[p->server] += n_away;
        bytes[p->server] += n_away * n_bytes;
        all += n_pushed;
        raise_to(&most, messages[p->server], bytes[p->server]);
        most.messages_between += 2 * n_elsewhere;
        most.bytes_between += n_elsewhere * (n_pushed + n_bytes);
    }
    if (n_away > 0) { /* a worker that does not serve */
        raise_to(&most, placement->n_pieces, all);
    }
    return most;
}

static enum dt_status plan_servers(const struct dt_dist_spec *dist, const struct dt_model *model,
                                   const struct dt_comm *comm, struct dt_planned_traffic *out)
{
    struct dt_roles roles;
    struct dt_placement placement;
    DT_TRY(dt_roles_find(dist, 0, comm->size, &roles));
    dt_placement_make(model, roles.n_servers, &placement);
    out->n_buckets = placement.n_pieces;
    out->step = dt_traffic_of_servers(comm, &roles, &placement, &out->codec);
    return DT_OK;
}

enum dt_status dt_traffic_plan(const struct dt_dist_spec *dist, const struct dt_model *model,
                               const struct dt_comm *comm, struct dt_planned_traffic *out)
{
    const struct dt_codec_layout layout = dt_matrices_of(model);
    const bool hierarchical = dist->allreduce == DT_ALLREDUCE_HIERARCHICAL;
    struct dt_grad_sync sync;
    *out = (struct dt_planned_traffic){.codec = dt_codec_none(), .allreduce = dist->allreduce};
    if (dist->strategy == DT_STRATEGY_PIPELINE) { /* no gradients of weights */
        return DT_OK;
    }
    DT_TRY(dt_codec_open(dist->rows->codecs, &dist->compression, &layout, &out->codec));
    if (dist->strategy != DT_STRATEGY_ALLREDUCE) {
        return plan_servers(dist, model, comm, out);
    }
    DT_TRY(dt_grad_sync_open(NULL, model, dist, &sync));
    out->allreduce = dt_allreduce_for_compression(dist->allreduce, &out->codec);
    out->n_buckets = sync.n_buckets;
    const struct dt_algorithm *algorithm = dt_allreduce_algorithm(
        &dist->rows->allreduce,
        hierarchical ? DT_ALLREDUCE_OF_ALGORITHM(dist->across) : out->allreduce);
    if (algorithm != NULL) {
        out->step = dt_traffic_of_messages(algorithm, &out->codec, comm,
                                           hierarchical && comm->n_hosts < comm->size, &sync);
    }
    return DT_OK;
}
