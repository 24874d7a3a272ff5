/* The order in which a pipeline stage runs its micro-batches forward and backward: a pure function.
 *
 *   gpipe  all forward, then all backward (Huang et al. 2019, "GPipe", NeurIPS)
 *   1f1b   once the last stage has the first micro-batch, each stage alternates: one forward, one
 *          backward. It is as fast, and has no more micro-batches in progress than later stages
 *          (Narayanan et al. 2019, "PipeDream", SOSP; flushed) */
#ifndef DT_DIST_STRATEGY_PIPELINE_PIPELINE_SCHEDULE_H
#define DT_DIST_STRATEGY_PIPELINE_PIPELINE_SCHEDULE_H

#include "dist/strategy/dist_spec.h"

const char *dt_pipeline_schedule_name(enum dt_pipeline_schedule schedule);

/* The micro-batches of so many samples: leaves, if the bits depend on them. */
static inline int dt_pipeline_n_parts(const struct dt_dist_spec *dist, int64_t n_samples)
{
    const int64_t most = dist->micro_batches;
    return (int)(dist->deterministic ? (n_samples + dist->leaf - 1) / dist->leaf
                 : n_samples < most  ? n_samples
                                     : most);
}

struct dt_pipeline_op {
    int micro_batch;
    bool backward;
};

/* The i-th of the 2 n_micro_batches passes of stage `stage` of n_stages. Micro-batches go forward
 * in their order, and backward. */
struct dt_pipeline_op dt_pipeline_op(enum dt_pipeline_schedule schedule, int stage, int n_stages,
                                     int n_micro_batches, int i);

/* The share of a step that a stage waits, if all stages take as long, each with every micro-batch:
 * (p - 1) / (m + p - 1). */
double dt_pipeline_bubble(int n_stages, int n_micro_batches);

#endif
