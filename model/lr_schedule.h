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
    X(DT_SCHEDULE_PLATEAU, "plateau")
#define DT_LR_SCALING_LIST(X)         \
    X(DT_LR_SCALING_NONE, "none")     \
    X(DT_LR_SCALING_LINEAR, "linear") \
    X(DT_LR_SCALING_SQRT, "sqrt")
enum dt_lr_schedule_type { DT_SCHEDULE_LIST(DT_NAMED_ENUM) };
enum dt_lr_scaling { DT_LR_SCALING_LIST(DT_NAMED_ENUM) };

struct dt_lr_schedule {
    enum dt_lr_schedule_type type;
    double lr;    /* after scaling */
    double scale; /* the factor from scaling; warm-up starts at lr / scale */
    double warmup_epochs;
    uint64_t steps_per_epoch;
    double n_epochs;       /* cosine: reaches min_lr here */
    double min_lr;         /* cosine; plateau: the lower limit */
    double step_epochs;    /* step: each time this many epochs have passed ... */
    double step_gamma;     /* ... the rate is multiplied by this */
    double factor;         /* plateau: each reduction multiplies the rate by this */
    uint64_t n_reductions; /* plateau: so far; the only field that changes in a run */
};

/* The factor for a global batch that is `ratio` times the base batch: 1, ratio or sqrt(ratio). */
double dt_lr_scale(enum dt_lr_scaling scaling, double ratio);

/* Plateau: reduces the rate once more. False: it is already at its lower limit. */
bool dt_scheduled_reduce(struct dt_lr_schedule *schedule);

/* Rate of step `step` (from 0). Warm-up as in Goyal et al. 2017 (arXiv 1706.02677) and Horovod:
 * during the first W epochs lr(e) = lr / n * (e * (n - 1) / W + 1) with e in fractional epochs and
 * n = scale; it multiplies the schedule's rate. */
double dt_lr_schedule_at(const struct dt_lr_schedule *schedule, uint64_t step);

#endif
