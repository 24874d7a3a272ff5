/* The strategies there are:
 *
 *   allreduce.c         gradients are averaged over all ranks, and every rank takes the same step:
 * mirrored weights parameter_server.c  servers hold the weights: `parameter_server`, `central`
 *   pipeline.c          each rank has some of the blocks: `pipeline`
 *   alone.c             each rank steps with its own gradients: `distributed.average` is off */
#ifndef DT_DIST_STRATEGY_STRATEGIES_H
#define DT_DIST_STRATEGY_STRATEGIES_H

#include "dist/strategy/strategy.h"

/* Every rank calls it. The weights are zeros. A failed open owes nothing. DT_STALLED, or what this
 * rank alone may have: the caller has ranks agree (dt_world_agree); *out NULL with DT_OK: another
 * rank has failed. */
enum dt_status dt_strategy_open(const struct dt_strategy_spec *spec, struct dt_strategy **out);

/* ---- each of them */

enum dt_status dt_mirrored_open(const struct dt_strategy_spec *spec, struct dt_strategy **out);
enum dt_status dt_parameter_server_open(const struct dt_strategy_spec *spec,
                                        struct dt_strategy **out);
enum dt_status dt_pipeline_open(const struct dt_strategy_spec *spec, struct dt_strategy **out);
enum dt_status dt_alone_open(const struct dt_strategy_spec *spec, struct dt_strategy **out);

#endif
