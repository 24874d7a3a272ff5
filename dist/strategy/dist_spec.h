/* The configuration's `distributed`. */
#ifndef DT_DIST_STRATEGY_DIST_SPEC_H
#define DT_DIST_STRATEGY_DIST_SPEC_H

#include "base/texts.h"
#include "dist/allreduce/allreduce.h"
#include "dist/compression/compression.h"
#include "model/block.h"

#define DT_STRATEGY_LIST(X)                             \
    X(DT_STRATEGY_ALLREDUCE, "allreduce")               \
    X(DT_STRATEGY_PARAMETER_SERVER, "parameter_server") \
    X(DT_STRATEGY_CENTRAL, "central")                   \
    X(DT_STRATEGY_PIPELINE, "pipeline")
enum dt_strategy_type { DT_STRATEGY_LIST(DT_NAMED_ENUM) DT_N_STRATEGY_TYPES };

/* Their rows (strategy.h). */
extern const struct dt_strategy_entry dt_pipeline_strategy, dt_alone_strategy,
    dt_deterministic_strategy, dt_priority_strategy, dt_mirrored_strategy, dt_server_strategy;

#define DT_SERVER_MODE_LIST(X)     \
    X(DT_SERVER_MODE_SYNC, "sync") \
    X(DT_SERVER_MODE_ASYNC, "async")
enum dt_server_mode { DT_SERVER_MODE_LIST(DT_NAMED_ENUM) };

#define DT_PIPELINE_SCHEDULE_LIST(X) \
    X(DT_PIPELINE_GPIPE, "gpipe")    \
    X(DT_PIPELINE_1F1B, "1f1b")
enum dt_pipeline_schedule { DT_PIPELINE_SCHEDULE_LIST(DT_NAMED_ENUM) };

/* In which order gradients travel: as the backward pass makes them, or those first that the next
 * forward pass wants first. */
#define DT_ORDER_LIST(X)             \
    X(DT_ORDER_BACKWARD, "backward") \
    X(DT_ORDER_PRIORITY, "priority")
enum dt_order { DT_ORDER_LIST(DT_NAMED_ENUM) };

struct dt_dist_entries; /* strategy.h */

struct dt_dist_spec {
    const struct dt_dist_entries *rows; /* that the program links */
    enum dt_strategy_type strategy;
    enum dt_allreduce_type allreduce;
    int across;      /* of struct dt_allreduce_spec */
    int64_t servers; /* of a parameter server */
    enum dt_server_mode mode;
    int64_t max_staleness;              /* async: steps that a worker may be ahead of the slowest */
    enum dt_pipeline_schedule schedule; /* of a pipeline */
    int64_t micro_batches;              /* of a pipeline: parts of a batch, at most */
    struct dt_texts cut;                /* of a pipeline: the first block of each stage but stage
                                           0, by name; none: cut evenly (pipeline_stages.h) */
    struct dt_compression_spec compression; /* of the gradients that are sent */
    enum dt_order order;                    /* of an allreduce */
    bool deterministic;                     /* the same bits at any number of ranks */
    int64_t leaf; /* deterministic: samples whose gradient one rank makes, as one batch */
    bool average, broadcast;
    bool overlap; /* false: everything is sent at the end of the backward pass, to compare */
    size_t bucket_bytes;
    uint64_t check_every; /* steps between replica checks; 0: never */
};

#endif
