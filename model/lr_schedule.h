/* The learning rate as a pure function of the step, and of the number of plateau reductions. */
#ifndef DT_MODEL_LR_SCHEDULE_H
#define DT_MODEL_LR_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "model/spec.h"

#define DT_SCHEDULE_LIST(X)             \
    X(DT_SCHEDULE_CONSTANT, "constant") \
    X(DT_SCHEDULE_STEP, "step")         \
    X(DT_SCHEDULE_COSINE, "cosine")     \
    X(DT_SCHEDULE_PLATEAU, "plateau")   \
    X(DT_SCHEDULE_ONE_CYCLE, "one_cycle")
#define DT_LR_SCALING_LIST(X)         \
    X(DT_LR_SCALING_NONE, "none")     \
    X(DT_LR_SCALING_LINEAR, "linear") \
    X(DT_LR_SCALING_SQRT, "sqrt")
enum dt_lr_schedule_type { DT_SCHEDULE_LIST(DT_NAMED_ENUM) };
enum dt_lr_scaling { DT_LR_SCALING_LIST(DT_NAMED_ENUM) };

#define DT_MAX_MILESTONES 16
struct dt_milestones {
    int n;
    double epochs[DT_MAX_MILESTONES]; /* ascending */
};

struct dt_lr_schedule {
    enum dt_lr_schedule_type type;
    double lr;            /* after scaling */
    double warmup_epochs; /* the rate grows from warmup_from * lr */
    double warmup_from;
    uint64_t steps_per_epoch;
    double n_epochs;                 /* cosine and one_cycle: the end of the schedule */
    double min_lr;                   /* cosine: at the end; plateau: the lower limit */
    double step_epochs;              /* step: each time this many epochs have passed, or ... */
    struct dt_milestones milestones; /* ... at these epochs, if there are any, ... */
    double step_gamma;               /* ... the rate is multiplied by this */
    double peak, from, to; /* one_cycle: the fraction of the steps at which the rate is lr; factors
                              of lr at the begin and at the end */
    double factor;         /* plateau: each reduction multiplies the rate by this */
    uint64_t n_reductions; /* plateau: so far; the only field that changes in a run */
};

/* The factor for a global batch that is `ratio` times the base batch: 1, ratio or sqrt(ratio). */
double dt_lr_scale(enum dt_lr_scaling scaling, double ratio);

/* Plateau: reduces the rate once more. False: it is already at its lower limit. */
bool dt_scheduled_reduce(struct dt_lr_schedule *schedule);

/* Rate of step `step` (from 0). During the first W epochs the warm-up multiplies the schedule's
 * rate by f + (1 - f) * e / W, with e in fractional epochs and f = warmup_from. With f = 1 / scale
 * this is the warm-up of Goyal et al. 2017 (arXiv 1706.02677) and Horovod. one_cycle is Smith and
 * Topin 2018 (arXiv 1708.07120) with the phases of PyTorch's OneCycleLR; milestones are
 * MultiStepLR's. */
double dt_lr_schedule_at(const struct dt_lr_schedule *schedule, uint64_t step);

/* True if a warm-up begins below the full rate. */
static inline bool dt_lr_schedule_warms_up(const struct dt_lr_schedule *schedule)
{
    return schedule->warmup_epochs > 0 && schedule->warmup_from < 1;
}

#endif
