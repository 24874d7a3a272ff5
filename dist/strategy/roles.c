#include "dist/strategy/roles.h"

static int count_servers(const struct dt_dist_spec *dist)
{
    switch (dist->strategy) {
    case DT_STRATEGY_ALLREDUCE:
        return 0;
    case DT_STRATEGY_PARAMETER_SERVER:
        return (int)dist->servers;
    case DT_STRATEGY_CENTRAL:
        return 1;
    case DT_STRATEGY_PIPELINE:
        return 0;
    }
    return 0;
}

enum dt_status dt_roles_find(const struct dt_dist_spec *dist, int rank, int size,
                             struct dt_roles *out)
{
    const int n_servers = count_servers(dist);
    const bool apart = dist->strategy == DT_STRATEGY_PARAMETER_SERVER;
    const bool one = dist->strategy == DT_STRATEGY_PIPELINE; /* all ranks together */
    const int n_workers = one ? 1 : apart ? size - n_servers : size;
    if (n_workers < 1) {
        return dt_error(DT_CONFIG,
                        "distributed.parameter_server.servers: %d server%s of %d rank%s leave no "
                        "worker (use fewer servers or more "
                        "ranks)",
                        n_servers, n_servers == 1 ? "" : "s", size, size == 1 ? "" : "s");
    }
    *out = (struct dt_roles){.n_workers = n_workers,
                             .n_servers = n_servers,
                             .first_server = apart ? n_workers : 0,
                             .works = one || rank < n_workers};
    out->worker = !one && out->works ? rank : 0;
    out->server = rank >= out->first_server && rank < out->first_server + n_servers
                      ? rank - out->first_server
                      : -1;
    return DT_OK;
}
