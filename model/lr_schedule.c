#include "model/lr_schedule.h"

#include <math.h>

double dt_lr_scale(enum dt_lr_scaling scaling, double ratio)
{
    DT_ASSERT(ratio > 0);
    switch (scaling) {
    case DT_LR_SCALING_LINEAR:
        return ratio;
    case DT_LR_SCALING_SQRT:
        return sqrt(ratio);
    case DT_LR_SCALING_NONE:
        break;
    }
    return 1.0;
}

static double warmup_factor(const struct dt_lr_schedule *s, double epoch)
{
    DT_ASSERT(s->warmup_from >= 0 && s->warmup_from <= 1);
    return epoch < s->warmup_epochs
               ? s->warmup_from + (1.0 - s->warmup_from) * epoch / s->warmup_epochs
               : 1.0;
}

static double step_lr(const struct dt_lr_schedule *s, double epoch)
{
    double n = 0;
    if (s->milestones.n == 0) {
        n = floor(epoch / s->step_epochs);
    }
    for (int i = 0; i < s->milestones.n; i++) {
        n += epoch >= s->milestones.epochs[i];
    }
    return s->lr * pow(s->step_gamma, n);
}

/* Half a wave of a cosine from `begin` (progress 0) to `end` (1). */
static double anneal(double begin, double end, double progress)
{
    progress = fmin(fmax(progress, 0.0), 1.0);
    return end + (begin - end) * 0.5 * (1.0 + cos(3.14159265358979323846 * progress));
}

/* From lr at the end of the warm-up to min_lr at the end of training: Loshchilov and Hutter 2017
 * (arXiv 1608.03983), without restarts. */
static double cosine_lr(const struct dt_lr_schedule *s, double epoch)
{
    const double begin = s->warmup_epochs < s->n_epochs ? s->warmup_epochs : 0.0;
    DT_ASSERT(begin < s->n_epochs);
    return anneal(s->lr, s->min_lr, (epoch - begin) / (s->n_epochs - begin));
}

/* The last step of each phase, which may lie between two steps, has the rate of its end. */
static double one_cycle_lr(const struct dt_lr_schedule *s, double step)
{
    const double n_steps = s->n_epochs * (double)s->steps_per_epoch;
    const double up = s->peak * n_steps - 1, last = n_steps - 1;
    return step < up || up >= last ? anneal(s->lr * s->from, s->lr, up > 0 ? step / up : 1)
                                   : anneal(s->lr, s->lr * s->to, (step - up) / (last - up));
}

static double plateau_lr(const struct dt_lr_schedule *s, uint64_t n_reductions)
{
    return fmax(s->lr * pow(s->factor, (double)n_reductions), fmin(s->min_lr, s->lr));
}

bool dt_scheduled_reduce(struct dt_lr_schedule *s)
{
    DT_ASSERT(s->type == DT_SCHEDULE_PLATEAU);
    const bool lower = plateau_lr(s, s->n_reductions + 1) < plateau_lr(s, s->n_reductions);
    s->n_reductions += lower;
    return lower;
}

double dt_lr_schedule_at(const struct dt_lr_schedule *schedule, uint64_t step)
{
    DT_ASSERT(schedule->steps_per_epoch > 0);
    DT_ASSERT(schedule->type != DT_SCHEDULE_STEP || schedule->step_epochs > 0);
    const double epoch = (double)step / (double)schedule->steps_per_epoch;
    double lr = schedule->lr;
    switch (schedule->type) {
    case DT_SCHEDULE_STEP:
        lr = step_lr(schedule, epoch);
        break;
    case DT_SCHEDULE_COSINE:
        lr = cosine_lr(schedule, epoch);
        break;
    case DT_SCHEDULE_PLATEAU:
        lr = plateau_lr(schedule, schedule->n_reductions);
        break;
    case DT_SCHEDULE_ONE_CYCLE:
        lr = one_cycle_lr(schedule, (double)step);
        break;
    case DT_SCHEDULE_CONSTANT:
        break;
    }
    return lr * warmup_factor(schedule, epoch);
}
