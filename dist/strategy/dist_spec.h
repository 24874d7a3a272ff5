/* The configuration's `distributed`. */
#ifndef DT_DIST_STRATEGY_DIST_SPEC_H
#define DT_DIST_STRATEGY_DIST_SPEC_H

#include "dist/allreduce/allreduce.h"

struct dt_dist_spec {
    enum dt_allreduce_type allreduce;
    int across; /* of struct dt_allreduce_spec */
    bool average, broadcast;
    bool overlap; /* false: everything is sent at the end of the backward pass, to compare */
    size_t bucket_bytes;
    uint64_t check_every; /* steps between replica checks; 0: never */
};

#endif
