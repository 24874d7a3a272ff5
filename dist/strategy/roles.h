/* Each rank's role: workers compute gradients of their share of the samples, servers hold weights
 * and step them.
 *
 *   allreduce         all ranks are workers, and there is no server
 *   parameter_server  the last `servers` ranks are servers, all others workers
 *   central           all ranks are workers, and rank 0 is the only server too
 *   pipeline          all ranks together are one worker: each has the whole batch, and some blocks
 *
 * Otherwise workers are the ranks 0 to n_workers - 1. */
#ifndef DT_DIST_STRATEGY_ROLES_H
#define DT_DIST_STRATEGY_ROLES_H

#include "dist/strategy/dist_spec.h"

struct dt_roles {
    int n_workers, n_servers;
    int first_server; /* rank of server 0; the others follow */
    bool whole;       /* all ranks are one worker */
    bool works;       /* this rank is a worker, or a part of one */
    int worker;       /* whose samples it reads, or as a server counts */
    int server;       /* this rank's number among the servers; -1: it is none */
};

/* The roles as rank `rank` of `size` has them. Local. DT_CONFIG: no worker would be left. */
enum dt_status dt_roles_find(const struct dt_dist_spec *dist, int rank, int size,
                             struct dt_roles *out);

/* The strategy of this name; the first, if there is none. */
enum dt_strategy_type dt_strategy_named(const char *name);

#endif
