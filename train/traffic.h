/* What adding the gradients costs: messages and bytes that a rank sends in a step, foretold by the algorithm and counted on the
 * wire. */
#ifndef DT_TRAIN_TRAFFIC_H
#define DT_TRAIN_TRAFFIC_H

#include "train/trainer.h"

/* By the algorithm, bucket by bucket. Local. known: false also where shared memory and messages are mixed. */
struct dt_step_traffic dt_traffic_foretell(const struct dt_trainer *trainer);

struct dt_planned_traffic {
    int n_buckets;
    struct dt_step_traffic step; /* not known but for the algorithms of dist/allreduce/algorithm.h */
};

/* The same before anything runs, over `size` ranks. DT_INTERNAL. Local. */
enum dt_status dt_traffic_plan(const struct dt_dist_spec *dist, const struct dt_model *model, int size,
                               struct dt_planned_traffic *out);

/* Of the steps that this process has taken, all ranks'. Every rank calls it. */
enum dt_status dt_traffic_measure(struct dt_trainer *trainer, struct dt_step_traffic *out);

#endif
