/* `dtrain lab pipeline`: its results, text and page. */
#ifndef DT_LAB_PIPELINE_H
#define DT_LAB_PIPELINE_H

#include "dist/strategy/pipeline/pipeline_schedule.h"
#include "lab/golden.h"
#include "lab/images.h"

#define DT_PIPELINE_MICRO_BATCHES 8
#define DT_PIPELINE_FORWARD 1  /* time units of a pass */
#define DT_PIPELINE_BACKWARD 2 /* gradients of weights and of inputs: about twice the work */

enum { DT_PIPELINE_GRID_NAIVE, DT_PIPELINE_GRID_GPIPE, DT_PIPELINE_GRID_1F1B, DT_PIPELINE_GRIDS };

/* A micro-batch's pass through a stage, in units of time [begin, end). */
struct dt_pipeline_pass {
    struct dt_pipeline_op op;
    int begin, end;
};

/* A step by one schedule. */
struct dt_pipeline_grid {
    const char *name, *meaning;
    int n_micro_batches;
    int n_units; /* of the step; micro-batch units, or of the whole batch if it passes at once */
    int length;  /* the same in units of a micro-batch */
    int n_passes[DT_LAB_MAX_RANKS]; /* of each stage, in this order: */
    struct dt_pipeline_pass passes[DT_LAB_MAX_RANKS][2 * DT_PIPELINE_MICRO_BATCHES];
    int held[DT_LAB_MAX_RANKS]; /* the most micro-batches between their forward and their backward
                                   pass */
    double waits, formula; /* the share of the step that a stage waits on average: counted, and (p -
                              1) / (m + p - 1) */
};

struct dt_pipeline_lesson {
    int n_stages;
    struct dt_pipeline_grid grids[DT_PIPELINE_GRIDS];
    struct dt_golden golden;
};

enum dt_status dt_pipeline_page(const char *path, const struct dt_pipeline_lesson *lesson);

#endif
