#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/events.h"
#include "train/trainer.h"

/* The evaluation of an epoch. */
struct evaluation {
    const struct dt_metrics *weights, *average;
};

/* 30 bits: of validation samples ranks add the losses in another order at another number of ranks,
 * and are not to decide by that. */
static double rounded(double value)
{
    int exponent;
    const double fraction = frexp(value, &exponent);
    return ldexp(rint(ldexp(fraction, 30)), exponent - 30);
}

static double value_of(enum dt_test_metric metric, const struct dt_metrics *m)
{
    DT_ASSERT(m->n_samples > 0 && metric != DT_TEST_NONE);
    const double value = (dt_metric_is_loss(metric) ? m->loss_sum : m->n_correct) / m->n_samples;
    return dt_metric_is_loss(metric) && metric != DT_TEST_LOSS ? rounded(value) : value;
}

/* Keeps the value if it is better than the best so far, or the first; says whether it was. */
static bool improve(const struct dt_monitor_spec *spec, struct evaluation e, uint64_t epoch,
                    double *best, uint64_t *best_epoch)
{
    DT_ASSERT(*best_epoch <= epoch);
    const double value =
        value_of(spec->metric, dt_metric_is_of_average(spec->metric) ? e.average : e.weights);
    const bool better = dt_metric_is_loss(spec->metric) ? value < *best - spec->min_delta
                                                        : value > *best + spec->min_delta;
    if (!better && *best_epoch > 0) {
        return false;
    }
    *best = value;
    *best_epoch = epoch;
    return true;
}

/* Says whether the rate goes down. */
static bool reduces(struct dt_trainer *t, struct evaluation e, uint64_t epoch)
{
    struct dt_checkpoint_state *s = &t->state;
    const struct dt_monitor_spec *spec = &t->config.plateau;
    if (t->config.schedule != DT_SCHEDULE_PLATEAU ||
        improve(spec, e, epoch, &s->plateau_value, &s->plateau_epoch)) {
        return false;
    }
    const uint64_t from =
        s->lr_reduced_epoch > s->plateau_epoch ? s->lr_reduced_epoch : s->plateau_epoch;
    DT_ASSERT(from <= epoch);
    if (epoch - from < (uint64_t)spec->patience || !dt_scheduled_reduce(&t->schedule)) {
        return false;
    }
    s->lr_reductions = t->schedule.n_reductions;
    s->lr_reduced_epoch = epoch;
    return true;
}

bool dt_monitor_stops(const struct dt_trainer *t)
{
    DT_ASSERT(t->state.stop_epoch <= t->state.epoch);
    const struct dt_monitor_spec *spec = &t->config.early_stopping;
    const uint64_t best_epoch = t->state.stop_epoch;
    return spec->metric != DT_TEST_NONE && best_epoch > 0 &&
           t->state.epoch - best_epoch >= (uint64_t)spec->patience;
}

/* The test set is there to measure a model that was chosen without it. */
static void warn(const struct dt_trainer *t, const struct dt_emitter *emitter)
{
    const struct dt_config *c = &t->config;
    const bool goes_by_test[] = {dt_metric_is_of_test(c->early_stopping.metric),
                                 c->schedule == DT_SCHEDULE_PLATEAU &&
                                     dt_metric_is_of_test(c->plateau.metric),
                                 dt_metric_is_of_test(c->checkpoint_best)};
    static const char *const keys[] = {"train.early_stopping", "train.schedule", "checkpoint.best"};
    char text[256] = "";
    for (int i = 0; i < 3; i++) {
        const size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s%s", goes_by_test[i] && n > 0 ? ", " : "",
                 goes_by_test[i] ? keys[i] : "");
    }
    const size_t n = strlen(text);
    snprintf(text + n, sizeof text - n,
             ": the test samples choose the result that they measure (hold samples out with "
             "data.validation, such as 0.1)");
    if (n > 0 && t->world->rank == 0) {
        emitter->emit(emitter->context,
                      &(struct dt_event){.kind = DT_EVENT_WARNING, .warning = text});
    }
}

void dt_monitor_begin(struct dt_trainer *t, const struct dt_emitter *emitter)
{
    t->schedule.n_reductions = t->state.lr_reductions;
    warn(t, emitter);
}

double dt_monitor_epoch(struct dt_trainer *t, const struct dt_metrics *evaluated,
                        const struct dt_metrics *averaged)
{
    struct dt_checkpoint_state *s = &t->state;
    const struct dt_monitor_spec best = {.metric = t->config.checkpoint_best},
                                 *stopping = &t->config.early_stopping;
    const struct evaluation e = {evaluated, averaged};
    const uint64_t epoch = s->epoch + 1;
    if (s->step_in_epoch < t->schedule.steps_per_epoch) {
        return 0;
    }
    if (stopping->metric != DT_TEST_NONE) {
        improve(stopping, e, epoch, &s->stop_value, &s->stop_epoch);
    }
    if (best.metric != DT_TEST_NONE) {
        improve(&best, e, epoch, &s->best_value, &s->best_epoch);
    }
    const bool reduced = reduces(t, e, epoch);
    return reduced ? dt_lr_schedule_at(&t->schedule, epoch * t->schedule.steps_per_epoch) : 0;
}

static struct dt_monitored monitored(enum dt_test_metric metric, double best, uint64_t best_epoch,
                                     uint64_t epoch)
{
    DT_ASSERT(metric == DT_TEST_NONE || best_epoch <= epoch);
    const struct dt_monitored m = {metric, best, best_epoch, epoch - best_epoch};
    return metric == DT_TEST_NONE ? (struct dt_monitored){.metric = metric} : m;
}

void dt_monitor_end(const struct dt_trainer *t, struct dt_end_event *end)
{
    const struct dt_checkpoint_state *s = &t->state;
    end->stopping =
        monitored(t->config.early_stopping.metric, s->stop_value, s->stop_epoch, s->epoch);
    end->best = monitored(t->config.checkpoint_best, s->best_value, s->best_epoch, s->epoch);
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
