/* The configuration's `distributed`. */
#ifndef DT_DIST_STRATEGY_DIST_SPEC_H
#define DT_DIST_STRATEGY_DIST_SPEC_H

#include "dist/allreduce/allreduce.h"

#define DT_STRATEGY_LIST(X)                             \
    X(DT_STRATEGY_ALLREDUCE, "allreduce")               \
    X(DT_STRATEGY_PARAMETER_SERVER, "parameter_server") \
    X(DT_STRATEGY_CENTRAL, "central")
enum dt_strategy_type { DT_STRATEGY_LIST(DT_NAMED_ENUM) };

struct dt_dist_spec {
    enum dt_strategy_type strategy;
    enum dt_allreduce_type allreduce;
    int across;                             /* of struct dt_allreduce_spec */
    int64_t servers;                        /* of a parameter server */
    struct dt_compression_spec compression; /* of the gradients that are sent */
    bool average, broadcast;
    bool overlap; /* false: everything is sent at the end of the backward pass, to compare */
    size_t bucket_bytes;
    uint64_t check_every; /* steps between replica checks; 0: never */
};

#endif
