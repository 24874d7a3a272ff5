#include "train/train.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "dist/launch/stop.h"
#include "train/trainer.h"

/* A run under way. */
struct run {
    struct dt_trainer trainer;
    struct dt_saver *saver; /* or NULL */
    const struct dt_emitter *emitter;
    bool begun; /* nothing refuses the start any more, and it is emitted */
    struct dt_metrics evaluated, averaged; /* the last evaluation: of the weights, their average */
    struct dt_end_event end;               /* filled in at the end */
    double start_s;
    double epoch_train_s;      /* spent in this epoch's steps, by this process */
    double epoch_samples;      /* used by them, on all ranks */
    double step_samples;       /* of the last step, on all ranks; 0: this process has taken none */
    uint64_t epoch_first_step; /* of the epoch, in this process */
    struct dt_checkpoint_state before; /* the last epoch was looked at */
};

static enum dt_status emit(const struct run *run, struct dt_event event)
{
    return run->trainer.world->rank == 0 ? run->emitter->emit(run->emitter->context, &event)
                                         : DT_OK;
}

static struct dt_metrics epoch_metrics(const struct dt_trainer *t)
{
    return (struct dt_metrics){.loss_sum = t->state.loss_sum,
                               .n_correct = t->state.n_correct,
                               .n_samples = t->state.n_samples};
}

/* In this epoch; NAN if it had no step left. */
static double images_per_s(const struct run *run)
{
    return run->epoch_train_s > 0 ? run->epoch_samples / run->epoch_train_s : (double)NAN;
}

static const char *last_checkpoint(const struct run *run)
{
    return run->saver != NULL ? run->saver->checkpoint : "";
}

static const char *best_checkpoint(const struct run *run)
{
    return run->saver != NULL ? run->saver->best : "";
}

static enum dt_status save(struct run *run, bool best)
{
    if (run->saver == NULL) {
        return DT_OK;
    }
    DT_TRY(run->saver->ops->save(run->saver, &run->trainer, best));
    const struct dt_save_event saved = {.path = best ? best_checkpoint(run) : last_checkpoint(run)};
    return emit(run, (struct dt_event){.kind = DT_EVENT_SAVE, .save = &saved});
}

/* A checkpoint on the way that cannot be written is no reason to stop: the one before is still
 * there. Three in a row are. */
static enum dt_status save_on_the_way(struct run *run, bool best, int *n_failures)
{
    DT_ASSERT(*n_failures >= 0 && *n_failures < 3);
    const enum dt_status s = save(run, best);
    if (s != DT_IO) {
        *n_failures = 0;
        return s;
    }
    if (best) {
        run->trainer.state.best_value = run->before.best_value; /* still is the best */
        run->trainer.state.best_epoch = run->before.best_epoch;
    }
    if (++*n_failures >= 3) {
        return s;
    }
    const struct dt_save_event failed = {.path = best ? best_checkpoint(run) : last_checkpoint(run),
                                         .error = dt_error_text()};
    emit(run, (struct dt_event){.kind = DT_EVENT_SAVE, .save = &failed});
    dt_error_clear();
    return DT_OK;
}

/* Someone asked to stop: save, say how to resume. */
static enum dt_status stop(struct run *run)
{
    struct dt_trainer *t = &run->trainer;
    int signal_number = dt_stop_signal();
    DT_TRY(dt_comm_allreduce(t->world->comm, &signal_number, 1, DT_TYPE_I32, DT_REDUCE_MAX,
                             "agreement on the signal"));
    DT_TRY(save(run, false));
    run->end.signal = signal_number;
    const struct dt_stop_event stopped = {
        .signal = signal_number, .step = t->state.step, .checkpoint = last_checkpoint(run)};
    emit(run, (struct dt_event){.kind = DT_EVENT_STOP, .stop = &stopped});
    return dt_error_agreed(DT_STOPPED);
}

static void emit_step(const struct run *run, const struct dt_step_result *result)
{
    const struct dt_trainer *t = &run->trainer;
    const double n_done = (double)(t->state.step - run->epoch_first_step);
    DT_ASSERT(n_done >= 1 && result->step <= t->state.step);
    const struct dt_step_event step = {.step = result->step,
                                       .epoch = t->state.epoch + 1,
                                       .recorded = dt_trainer_records(t, result->step),
                                       .train = result->train,
                                       .lr = result->lr,
                                       .grad_norm = result->grad_norm,
                                       .step_in_epoch = t->state.step_in_epoch,
                                       .epoch_train = epoch_metrics(t),
                                       .images_per_s = images_per_s(run),
                                       .eta_s = (double)dt_steps_left(&run->trainer) *
                                                run->epoch_train_s / n_done};
    emit(run, (struct dt_event){.kind = DT_EVENT_STEP, .step = &step});
}

/* The steps up to the next boundary, and what follows a step. */
static enum dt_status run_next(struct run *run, bool *asked_to_stop)
{
    struct dt_trainer *t = &run->trainer;
    struct dt_step_results results;
    const double begin_s = dt_clock_s();
    DT_TRY(dt_trainer_steps(t, dt_steps_until_boundary(t), &results));
    DT_ASSERT(results.n >= 1 && t->state.step_in_epoch <= t->schedule.steps_per_epoch);
    DT_TRY(dt_ema_update(t));
    DT_TRY(dt_statistics_after_step(t));
    DT_TRY(dt_replicas_after_step(t));
    run->epoch_train_s += dt_clock_s() - begin_s;
    for (int i = 0; i < results.n; i++) {
        run->step_samples = results.steps[i].train.n_samples;
        run->epoch_samples += run->step_samples;
    }
    for (int i = 0; i < results.n; i++) {
        emit_step(run, &results.steps[i]);
    }
    *asked_to_stop = results.stop;
    return DT_OK;
}

/* The steps that are left of this epoch. */
static enum dt_status run_steps(struct run *run, int *n_failures)
{
    struct dt_trainer *t = &run->trainer;
    const uint64_t every = (uint64_t)t->config.checkpoint_every_steps;
    run->epoch_train_s = run->epoch_samples = 0;
    run->epoch_first_step = t->state.step;
    while (t->state.step_in_epoch < t->schedule.steps_per_epoch &&
           dt_steps_left(&run->trainer) > 0) {
        bool asked_to_stop = false;
        dt_comm_phase(t->world->comm, "training");
        DT_TRY(run_next(run, &asked_to_stop));
        if (asked_to_stop) {
            return stop(run);
        }
        if (every > 0 && t->state.step % every == 0) {
            DT_TRY(save_on_the_way(run, false, n_failures));
        }
    }
    return DT_OK;
}

static bool validates(const struct run *run)
{
    return run->trainer.config.data.validation > 0;
}

/* The validation samples, or without any the test set. The last update of an epoch shows in no loss
 * but this. */
static enum dt_status evaluate(struct run *run)
{
    struct dt_trainer *t = &run->trainer;
    DT_TRY(dt_strategy_share_weights(t->strategy));
    DT_TRY(dt_evaluator_run(&t->evaluator, &run->evaluated));
    DT_TRY(dt_trainer_check_loss(t, validates(run) ? "validation loss" : "test loss",
                                 &run->evaluated, t->state.step));
    return dt_ema_evaluate(t, &t->evaluator, &run->averaged);
}

static bool evaluates(const struct run *run)
{
    const struct dt_trainer *t = &run->trainer;
    return validates(run) || t->config.evaluate == DT_EVALUATE_EPOCHS || dt_steps_left(t) == 0;
}

static enum dt_status finish_epoch(struct run *run)
{
    struct dt_trainer *t = &run->trainer;
    const uint64_t last_step =
        t->state.epoch * t->schedule.steps_per_epoch + t->state.step_in_epoch - 1;
    DT_ASSERT(t->state.step_in_epoch >= 1);
    const bool whole = t->state.step_in_epoch == t->schedule.steps_per_epoch;
    const double lr = dt_lr_schedule_at(&t->schedule, last_step);
    DT_TRY(evaluates(run) ? evaluate(run) : dt_strategy_share_weights(t->strategy));
    run->before = t->state;
    struct dt_epoch_event epoch = {.step = t->state.step,
                                   .epoch = t->state.epoch + 1,
                                   .train = epoch_metrics(t),
                                   .averaged = run->averaged,
                                   .lr = lr,
                                   .images_per_s = images_per_s(run),
                                   .seconds = run->epoch_train_s,
                                   .rank0 = t->clock.times,
                                   .n_timed_steps = t->clock.n_steps,
                                   .step_samples = run->step_samples};
    *(validates(run) ? &epoch.validation : &epoch.test) = run->evaluated;
    DT_TRY(dt_hooks_epoch_end(t, &epoch));
    epoch.reduced_lr = dt_monitor_epoch(t, &run->evaluated, &run->averaged);
    emit(run, (struct dt_event){.kind = DT_EVENT_EPOCH, .epoch = &epoch});
    if (whole) {
        t->state.epoch++;
        t->state.step_in_epoch = t->set.loader.shard.used = 0;
        t->state.loss_sum = t->state.n_correct = t->state.n_samples = 0;
    }
    return DT_OK;
}

/* What is known of any end, whether the run ended well or not. */
static void note_end(struct run *run)
{
    const struct dt_trainer *t = &run->trainer;
    *(validates(run) ? &run->end.validation : &run->end.test) = run->evaluated;
    dt_monitor_end(t, &run->end);
    run->end.rank0 = t->clock.times;
    run->end.n_timed_steps = t->clock.n_steps;
    run->end.steps = t->state.step;
    run->end.epochs = t->state.epoch;
    run->end.within_epoch = t->state.step_in_epoch != 0;
    run->end.seconds = dt_clock_s() - run->start_s;
    run->end.checkpoint = last_checkpoint(run);
    run->end.best_checkpoint = best_checkpoint(run);
}

/* The last checkpoint. A full disk takes the weights of a finished run, but not its result. */
static enum dt_status save_last(struct run *run)
{
    const enum dt_status s = save(run, false);
    if (s == DT_IO) {
        note_end(run);
        emit(run, (struct dt_event){.kind = DT_EVENT_RESULT, .result = &run->end});
    }
    return s;
}

static bool is_over(const struct run *run)
{
    const struct dt_trainer *t = &run->trainer;
    return dt_steps_left(t) == 0 || (t->state.step_in_epoch == 0 && dt_monitor_stops(t));
}

static enum dt_status run_epochs(struct run *run)
{
    struct dt_trainer *t = &run->trainer;
    int n_failures = 0;
    const bool past_end = t->state.epoch >= (uint64_t)t->config.epochs;
    /* Resumed at the end: only the result is left. */
    if (is_over(run) && (past_end || t->state.step_in_epoch == 0)) {
        return evaluate(run);
    }
    /* A checkpoint may lie between the last step of an epoch and its end. Then run_steps takes no
     * step, and finish_epoch still runs. */
    do {
        DT_TRY(run_steps(run, &n_failures));
        DT_TRY(finish_epoch(run));
        const uint64_t every = (uint64_t)t->config.checkpoint_every_epochs;
        if (t->state.best_epoch != run->before.best_epoch) {
            DT_TRY(save_on_the_way(run, true, &n_failures));
        }
        if (is_over(run)) {
            DT_TRY(save_last(run));
        } else if (every > 0 && t->state.epoch % every == 0) {
            DT_TRY(save_on_the_way(run, false, &n_failures));
        }
    } while (!is_over(run));
    return DT_OK;
}

static enum dt_status emit_start(struct run *run)
{
    struct dt_trainer *t = &run->trainer;
    const size_t n_evaluated = t->evaluator.set.loader.shard.n_total;
    struct dt_run_event start = {.n_parameters = t->model.n_parameters,
                                 .n_workers = t->roles.n_workers,
                                 .gradient_bytes = t->model.arena_elems * sizeof(float),
                                 .n_train = t->set.loader.shard.n_total,
                                 .n_test = validates(run) ? t->n_test : n_evaluated,
                                 .n_validation = validates(run) ? n_evaluated : 0,
                                 .global_batch = t->set.loader.shard.global_batch,
                                 .lr = t->schedule.lr,
                                 .lr_scale =
                                     dt_trainer_lr_scale(&t->config, (uint64_t)t->roles.n_workers),
                                 .steps_per_epoch = t->schedule.steps_per_epoch,
                                 .step = t->state.step,
                                 .n_epochs = t->state.epoch,
                                 .last_step = t->state.step + dt_steps_left(&run->trainer),
                                 .resumed_from = run->saver != NULL ? run->saver->resumed_from : "",
                                 .changes = run->saver != NULL ? run->saver->changes : "",
                                 .weights = run->saver != NULL ? run->saver->weights_from : NULL,
                                 .gpu = t->device.module != NULL,
                                 .graph = t->driver.ops->on_device,
                                 .device_why = t->driver.why};
    DT_TRY(dt_hooks_run_begin(t, &start));
    dt_monitor_begin(t, run->emitter);
    DT_TRY(dt_statistics_share(t)); /* a resumed run may have nothing left but to evaluate */
    DT_TRY(run->saver != NULL ? run->saver->ops->begin(run->saver, t, run->emitter) : DT_OK);
    DT_TRY(dt_world_agree(t->world,
                          emit(run, (struct dt_event){.kind = DT_EVENT_RUN, .run = &start})));
    run->begun = true;
    return dt_hooks_run_begun(t);
}

static enum dt_status open_run(struct run *run, const struct dt_train_options *options)
{
    struct dt_trainer *t = &run->trainer;
    if (options->hooks.open != NULL) {
        DT_TRY(options->hooks.open(options->hooks.context, t, run->emitter));
    }
    DT_TRY(dt_trainer_open_run(t));
    run->saver = options->saver; /* to be closed from here on */
    DT_TRY(run->saver != NULL ? run->saver->ops->open(run->saver, t, run->emitter) : DT_OK);
    DT_TRY(t->config.dist.broadcast ? dt_strategy_broadcast(t->strategy) : DT_OK);
    return emit_start(run);
}

/* A run that failed emits its end, too, if it still can; the first error's text stays. */
static void emit_fault(struct run *run, enum dt_status status)
{
    DT_ASSERT(run->begun && status != DT_OK);
    run->end.ranks = NULL; /* an end that failed half through may have set it */
    (void)dt_hooks_run_end(&run->trainer, status, &run->end);
    emit(run, (struct dt_event){.kind = DT_EVENT_FAULT, .status = status, .fault = &run->end});
}

/* With averaging or the broadcast off, replicas are expected to differ: an event, and no error. */
static enum dt_status compare_replicas(struct run *run)
{
    const enum dt_status s = dt_replicas_finish(&run->trainer, &run->end.weights);
    if (s != DT_INTERNAL || run->end.weights != NULL) {
        return s;
    }
    emit(run, (struct dt_event){.kind = DT_EVENT_DIFFERENCE, .difference = dt_error_text()});
    dt_error_clear();
    return DT_OK;
}

/* The best weights, where a checkpoint has them, on the validation samples, so that both results
 * belong together. */
static enum dt_status take_best(struct run *run)
{
    struct dt_trainer *t = &run->trainer;
    bool taken = false;
    DT_TRY(run->saver != NULL ? run->saver->ops->take_best(run->saver, t, &taken) : DT_OK);
    DT_TRY(dt_strategy_share_weights(t->strategy));
    if (taken) {
        DT_ASSERT(run->end.tested_epoch == 0);
        run->end.tested_epoch = t->state.best_epoch;
        DT_TRY(dt_evaluator_run(&t->evaluator, &run->end.validation));
        DT_TRY(dt_ema_evaluate(t, &t->evaluator, &run->end.averaged_validation));
    }
    return DT_OK;
}

/* The results of a run that ended well. With validation samples the test set is evaluated once,
 * here. */
static enum dt_status finish(struct run *run, enum dt_status status)
{
    DT_ASSERT(run->begun);
    struct dt_trainer *t = &run->trainer;
    const struct dt_answers *answers = t->evaluator.answers;
    struct dt_end_event *end = &run->end;
    end->stopped_early = status == DT_OK && dt_steps_left(t) > 0;
    DT_TRY(dt_hooks_run_end(t, status, end));
    if (status == DT_STOPPED) {
        return DT_OK;
    }
    DT_TRY(compare_replicas(run));
    if (!validates(run)) {
        end->averaged = run->averaged;
        return DT_OK;
    }
    end->averaged_validation = run->averaged;
    DT_TRY(take_best(run));
    end->validation_top5 = answers != NULL ? answers->n_top5 : 0;
    return t->n_test > 0 ? dt_trainer_test(t, &end->test, &end->averaged) : DT_OK;
}

static enum dt_status close_run(struct run *run, enum dt_status status)
{
    const bool ran = status == DT_OK || status == DT_STOPPED;
    note_end(run);
    const enum dt_status finished = ran ? finish(run, status) : status;
    if (finished != DT_OK && run->begun) { /* else the files of an earlier start stay */
        emit_fault(run, finished);
    }
    DT_TRY(finished);
    const enum dt_status emitted =
        emit(run, (struct dt_event){.kind = DT_EVENT_END, .status = status, .end = &run->end});
    if (status == DT_OK) { /* last of all: the launcher forwards stderr apart from stdout */
        emit(run, (struct dt_event){.kind = DT_EVENT_RESULT, .result = &run->end});
    }
    DT_TRY(dt_world_agree(run->trainer.world, emitted));
    return status;
}

enum dt_status dt_train(struct dt_world *world, const struct dt_config *config,
                        const struct dt_train_options *options, const struct dt_emitter *emitter)
{
    DT_ASSERT(options->format != NULL && options->parts != NULL && emitter->emit != NULL);
    struct run *run;
    DT_TRY(dt_world_alloc(world, 1, sizeof *run, "a run", (void **)&run));
    run->start_s = dt_clock_s();
    run->emitter = emitter;
    enum dt_status s =
        dt_trainer_open(world, config, options->format, options->parts, &run->trainer);
    if (s == DT_OK) {
        s = open_run(run, options);
        s = s == DT_OK ? run_epochs(run) : s;
        s = close_run(run, s);
        if (run->saver != NULL) {
            run->saver->ops->close(run->saver);
        }
        dt_trainer_close(&run->trainer);
    }
    free(run);
    return s;
}
