/* The traffic of a step, predicted from a configuration. */
#ifndef DT_DIST_STRATEGY_SUMMARY_TRAFFIC_PLAN_H
#define DT_DIST_STRATEGY_SUMMARY_TRAFFIC_PLAN_H

#include "dist/compression/codec.h"
#include "dist/strategy/summary/summary.h"

struct dt_planned_traffic {
    struct dt_codec codec;            /* of what is sent */
    enum dt_allreduce_type allreduce; /* auto only where it is not known before a run */
    int n_buckets;                    /* or pieces, with servers */
    struct dt_step_traffic
        step; /* not known but for servers, and the algorithms of dist/allreduce/algorithm.h */
};

/* The traffic before anything is opened, for these ranks on their hosts; as if those of a host
 * could share memory. DT_CONFIG: servers leave no worker. DT_INTERNAL. Local. */
enum dt_status dt_traffic_plan(const struct dt_dist_spec *dist, const struct dt_model *model,
                               const struct dt_comm *comm, struct dt_planned_traffic *out);

#endif
