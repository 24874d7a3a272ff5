/* Facts of parameter servers: their pieces, and the messages between them and the workers. */
#include <math.h>

#include "dist/strategy/roles.h"
#include "dist/strategy/servers/parameter_server.h"
#include "dist/strategy/summary/traffic_plan.h"

static uint64_t held_bytes(const struct dt_parameter_server *self)
{
    const struct dt_model *model = self->base.spec.model;
    uint64_t n_elems = 0;
    for (int i = 0; i < model->n_params; i++) {
        n_elems +=
            self->placement.server_of[i] == self->roles.server ? model->params[i].n_elems : 0;
    }
    return n_elems * sizeof(float);
}

static void facts(const struct dt_strategy *strategy, struct dt_strategy_summary *out)
{
    const struct dt_parameter_server *self = (const struct dt_parameter_server *)strategy;
    out->n_buckets = self->placement.n_pieces;
    out->n_servers = self->roles.n_servers;
    out->held_bytes = self->roles.server >= 0 ? held_bytes(self) : 0;
    out->counted = true;
    out->sent = self->wire != NULL ? dt_wire_sent(self->wire) : out->sent;
    out->staleness = &self->staleness;
}

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
    DT_ASSERT(n <= roles->n_workers);
    return n;
}

/* A worker sends its gradients once, a server the weights to every worker. */
static struct dt_step_traffic traffic_of(const struct dt_comm *comm, const struct dt_roles *roles,
                                         const struct dt_placement *placement,
                                         const struct dt_codec *codec, size_t width)
{
    const bool central = roles->first_server == 0; /* a worker that serves sends itself nothing */
    const double n_away = roles->n_workers - central;
    struct dt_step_traffic most = {.known = true, .by_each = n_away == 0, .n_hosts = comm->n_hosts};
    double messages[DT_MAX_PARAMS] = {0}, bytes[DT_MAX_PARAMS] = {0}, all = 0;
    for (int i = 0; i < placement->n_pieces; i++) {
        const struct dt_piece *p = &placement->pieces[i];
        DT_ASSERT(p->server >= 0 && p->server < roles->n_servers);
        const double n_bytes = (double)((p->end - p->begin) * sizeof(float));
        const double n_pushed = (double)dt_server_push_bytes(codec, width, p);
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

static void traffic(const struct dt_strategy *strategy, struct dt_step_traffic *out)
{
    const struct dt_parameter_server *self = (const struct dt_parameter_server *)strategy;
    *out = traffic_of(strategy->spec.comm, &self->roles, &self->placement, &self->feedback.codec,
                      self->width);
}

static enum dt_status plan(const struct dt_dist_spec *dist, const struct dt_model *model,
                           const struct dt_comm *comm, struct dt_planned_traffic *out)
{
    struct dt_roles roles;
    struct dt_placement placement;
    DT_TRY(dt_roles_find(dist, 0, comm->size, &roles));
    dt_placement_make(model, roles.n_servers, &placement);
    out->n_buckets = placement.n_pieces;
    out->step =
        traffic_of(comm, &roles, &placement, &out->codec, dt_server_width(dist, roles.n_workers));
    return DT_OK;
}

const struct dt_summary_entry dt_server_summary = {
    .strategy = &dt_server_strategy, .facts = facts, .traffic = traffic, .plan = plan};
