#include "train/watch/monitor.h"

static double value_of(enum dt_test_metric metric, const struct dt_metrics *test)
{
    return (metric == DT_TEST_LOSS ? test->loss_sum : test->n_correct) / test->n_samples;
}

/* Keeps the value if it is better than the best so far, or the first; says whether it was. */
static bool improve(const struct dt_monitor_spec *spec, const struct dt_metrics *test,
                    uint64_t epoch, double *best, uint64_t *best_epoch)
{
    const double value = value_of(spec->metric, test);
    const bool better = spec->metric == DT_TEST_LOSS ? value < *best - spec->min_delta
                                                     : value > *best + spec->min_delta;
    if (!better && *best_epoch > 0) {
        return false;
    }
    *best = value;
    *best_epoch = epoch;
    return true;
}

/* Says whether the rate goes down. */
static bool watch_plateau(struct dt_trainer *t, const struct dt_metrics *test, uint64_t epoch)
{
    struct dt_checkpoint_state *s = &t->state;
    const struct dt_monitor_spec *spec = &t->config.plateau;
    if (t->config.schedule != DT_SCHEDULE_PLATEAU ||
        improve(spec, test, epoch, &s->plateau_value, &s->plateau_epoch)) {
        return false;
    }
    const uint64_t from =
        s->lr_reduced_epoch > s->plateau_epoch ? s->lr_reduced_epoch : s->plateau_epoch;
    if (epoch - from < (uint64_t)spec->patience || !dt_schedule_reduce(&t->schedule)) {
        return false;
    }
    s->lr_reductions = t->schedule.n_reductions;
    s->lr_reduced_epoch = epoch;
    return true;
}

struct dt_monitor_result dt_monitor_epoch(struct dt_trainer *t, const struct dt_metrics *test)
{
    struct dt_checkpoint_state *s = &t->state;
    const struct dt_monitor_spec best = {.metric = t->config.checkpoint_best},
                                 *stopping = &t->config.early_stopping;
    const uint64_t epoch = s->epoch + 1;
    struct dt_monitor_result out = {.best_value = s->best_value, .best_epoch = s->best_epoch};
    if (stopping->metric != DT_TEST_NONE) {
        improve(stopping, test, epoch, &s->stop_value, &s->stop_epoch);
    }
    out.is_best =
        best.metric != DT_TEST_NONE && improve(&best, test, epoch, &s->best_value, &s->best_epoch);
    out.is_reduced = watch_plateau(t, test, epoch);
    return out;
}

void dt_monitor_take_back(struct dt_trainer *t, const struct dt_monitor_result *result)
{
    t->state.best_value = result->best_value;
    t->state.best_epoch = result->best_epoch;
}

bool dt_monitor_stops(const struct dt_trainer *t)
{
    const struct dt_monitor_spec *spec = &t->config.early_stopping;
    const struct dt_checkpoint_state *s = &t->state;
    return spec->metric != DT_TEST_NONE && s->stop_epoch > 0 &&
           s->epoch - s->stop_epoch >= (uint64_t)spec->patience;
}

void dt_monitor_restore(struct dt_trainer *t)
{
    t->schedule.n_reductions = t->state.lr_reductions;
}

void dt_monitor_forget(const struct dt_config *before, const struct dt_config *now,
                       struct dt_checkpoint_state *state)
{
    if (before->early_stopping.metric != now->early_stopping.metric) {
        state->stop_value = 0;
        state->stop_epoch = 0;
    }
    if (before->plateau.metric != now->plateau.metric) {
        state->plateau_value = 0;
        state->plateau_epoch = 0;
    }
    if (before->checkpoint_best != now->checkpoint_best) {
        state->best_value = 0;
        state->best_epoch = 0;
    }
}

static struct dt_monitored monitored(enum dt_test_metric metric, double best, uint64_t best_epoch,
                                     uint64_t epoch)
{
    return metric == DT_TEST_NONE ? (struct dt_monitored){.metric = metric}
                                  : (struct dt_monitored){.metric = metric,
                                                          .best = best,
                                                          .epoch = best_epoch,
                                                          .n_since = epoch - best_epoch};
}

struct dt_monitored dt_monitor_stopping(const struct dt_trainer *t)
{
    return monitored(t->config.early_stopping.metric, t->state.stop_value, t->state.stop_epoch,
                     t->state.epoch);
}

struct dt_monitored dt_monitor_best(const struct dt_trainer *t)
{
    return monitored(t->config.checkpoint_best, t->state.best_value, t->state.best_epoch,
                     t->state.epoch);
}
