/* Which blocks each rank of a pipeline has: the chain in as many contiguous parts, cut by hand, or
 * so that the one with most floating-point operations has as few as possible. Each stage has a
 * block with parameters. */
#ifndef DT_DIST_STRATEGY_PIPELINE_PIPELINE_STAGES_H
#define DT_DIST_STRATEGY_PIPELINE_PIPELINE_STAGES_H

#include "dist/strategy/dist_spec.h"

struct dt_stage {
    int begin, end;              /* blocks */
    size_t grad_begin, grad_end; /* its range of the arena */
    double flops;                /* of a sample, forward and backward: three times dt_block_flops */
};

struct dt_stages {
    int n;
    struct dt_stage stages[DT_MAX_LAYERS];
};

/* DT_CONFIG: more stages than blocks with parameters, or a cut that is none of this model in as
 * many stages. */
enum dt_status dt_stages_make(const struct dt_model *model, int n_stages,
                              const struct dt_texts *cut, struct dt_stages *out);

#endif
