#include "dist/strategy/roles.h"

#include <string.h>

#include "dist/strategy/strategy.h"

enum dt_status dt_roles_find(const struct dt_dist_spec *dist, int rank, int size,
                             struct dt_roles *out)
{
    DT_ASSERT(rank >= 0 && rank < size);
    const struct dt_strategy_entry *row = dt_strategy_entry_of(dist);
    *out = (struct dt_roles){.n_workers = size};
    if (row != NULL && row->roles != NULL) {
        row->roles(dist, size, out);
    }
    if (out->n_workers < 1) {
        return dt_error(DT_CONFIG,
                        "distributed.parameter_server.servers: %d server%s of %d rank%s leave no "
                        "worker (use fewer servers or more ranks)",
                        out->n_servers, out->n_servers == 1 ? "" : "s", size, size == 1 ? "" : "s");
    }
    out->works = out->whole || rank < out->n_workers;
    out->worker = !out->whole && out->works ? rank : 0;
    out->server = rank >= out->first_server && rank < out->first_server + out->n_servers
                      ? rank - out->first_server
                      : -1;
    DT_ASSERT(out->worker >= 0 && out->worker < out->n_workers);
    DT_ASSERT(out->server < out->n_servers && out->first_server + out->n_servers <= size);
    DT_ASSERT(out->works || out->server >= 0);
    return DT_OK;
}

enum dt_strategy_type dt_strategy_named(const char *name)
{
    int i = DT_N_STRATEGY_TYPES - 1;
    while (i > 0 && strcmp(dt_strategy_names[i], name) != 0) {
        i--;
    }
    return (enum dt_strategy_type)i;
}
