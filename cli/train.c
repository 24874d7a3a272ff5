#include "cli/train.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "dist/stop.h"

/* A run under way: the trainer, and what watches it. */
struct run {
    struct dt_trainer trainer;
    struct dt_run_dir dir;
    struct dt_metrics_files files;
    struct dt_progress progress;
    struct dt_outcome outcome;
    double start_s;
    double epoch_train_s;      /* spent in this epoch's steps, by this process */
    double epoch_samples;      /* used by them, on all ranks */
    uint64_t epoch_first_step; /* of the epoch, in this process */
};

static bool is_rank0(const struct run *run)
{
    return run->trainer.world->rank == 0;
}

static bool classifies(const struct run *run)
{
    return run->trainer.config.model.loss == DT_LOSS_SOFTMAX_CROSS_ENTROPY;
}

/* Of the whole run. max_steps counts the steps really taken, which after a change of the number of ranks are not what the epochs
 * would have at this number. */
static uint64_t steps_left(const struct run *run)
{
    const struct dt_trainer *t = &run->trainer;
    const uint64_t all = (uint64_t)t->config.epochs * t->steps_per_epoch, limit = (uint64_t)t->config.max_steps;
    const uint64_t done = t->state.epoch * t->steps_per_epoch + t->state.step_in_epoch;
    const uint64_t left = all > done ? all - done : 0, allowed = limit > t->state.step ? limit - t->state.step : 0;
    return limit > 0 && allowed < left ? allowed : left;
}

static struct dt_metrics epoch_metrics(const struct dt_trainer *t)
{
    return (struct dt_metrics){.loss_sum = t->state.loss_sum, .n_correct = t->state.n_correct, .n_samples = t->state.n_samples};
}

/* In this epoch; NAN if it had no step left. */
static double images_per_s(const struct run *run)
{
    return run->epoch_train_s > 0 ? run->epoch_samples / run->epoch_train_s : (double)NAN;
}

static void show_progress(struct run *run)
{
    const struct dt_trainer *t = &run->trainer;
    const double n_done = (double)(t->state.step - run->epoch_first_step);
    const struct dt_progress_state state = {.epoch = t->state.epoch + 1,
                                            .step_in_epoch = t->state.step_in_epoch,
                                            .train = epoch_metrics(t),
                                            .images_per_s = images_per_s(run),
                                            .eta_s = (double)steps_left(run) * run->epoch_train_s / n_done};
    dt_progress_draw(&run->progress, &state);
}

static enum dt_status save(struct run *run)
{
    struct dt_trainer *t = &run->trainer;
    if (t->config.dist.check_every > 0) {
        DT_TRY(dt_replica_check_run(&t->check, t->network)); /* rank 0 speaks for all only if all are equal */
    }
    return dt_trainer_save(t, &run->dir, run->outcome.checkpoint);
}

/* A periodic checkpoint that cannot be written is no reason to stop: the one before is still there. Three in a row are. */
static enum dt_status save_periodic(struct run *run, int *n_failures)
{
    const enum dt_status s = save(run);
    if (s != DT_IO) {
        *n_failures = 0;
        return s;
    }
    if (++*n_failures >= 3) {
        return s;
    }
    if (is_rank0(run)) {
        dt_progress_clear(&run->progress);
        dt_text_print(stderr, "dtrain: warning: %s; training goes on, the next checkpoint is the next try", dt_error_text());
    }
    dt_error_clear();
    return DT_OK;
}

/* Someone asked to stop: save, say how to go on. */
static enum dt_status stop(struct run *run)
{
    struct dt_trainer *t = &run->trainer;
    int signal_number = dt_stop_signal();
    DT_TRY(dt_comm_allreduce(t->world->comm, &signal_number, 1, DT_TYPE_I32, DT_REDUCE_MAX, "agreement on the signal"));
    DT_TRY(save(run));
    run->outcome.signal = signal_number;
    if (is_rank0(run)) {
        dt_progress_clear(&run->progress);
        dt_text_print(stderr, "stopped by SIG%s at step %llu; saved %s", sigabbrev_np(signal_number),
                      (unsigned long long)t->state.step, run->outcome.checkpoint);
        dt_text_print(stderr, "go on with the same command and --run %s --resume", run->dir.path);
    }
    return dt_error_agreed(DT_STOPPED);
}

static void log_step(struct run *run, const struct dt_step_result *result)
{
    const uint64_t every = (uint64_t)run->trainer.config.log_every_steps;
    if (every > 0 && result->step % every == 0) {
        const struct dt_step_record record = {.step = result->step,
                                              .epoch = run->trainer.state.epoch + 1,
                                              .train = result->train,
                                              .lr = result->lr,
                                              .images_per_s = images_per_s(run)};
        dt_metrics_step(&run->files, &record);
    }
}

/* The next step, or the next few, but no more than are left of the epoch, of the run, and until the next checkpoint. */
static enum dt_status run_next(struct run *run, bool *asked_to_stop)
{
    struct dt_trainer *t = &run->trainer;
    struct dt_step_results results;
    const uint64_t every = (uint64_t)t->config.checkpoint_every_steps, left = steps_left(run);
    uint64_t limit = t->steps_per_epoch - t->state.step_in_epoch;
    limit = left < limit ? left : limit;
    limit = every > 0 && every - t->state.step % every < limit ? every - t->state.step % every : limit;
    const double begin = dt_clock_s();
    DT_TRY(dt_trainer_steps(t, limit, &results));
    run->epoch_train_s += dt_clock_s() - begin;
    for (int i = 0; i < results.n; i++) {
        run->epoch_samples += results.steps[i].train.n_samples;
    }
    for (int i = 0; i < results.n; i++) {
        log_step(run, &results.steps[i]);
    }
    *asked_to_stop = results.stop;
    if (dt_progress_due(&run->progress)) {
        show_progress(run);
    }
    return DT_OK;
}

/* The steps that are left of this epoch. */
static enum dt_status run_steps(struct run *run, int *n_failures)
{
    struct dt_trainer *t = &run->trainer;
    const uint64_t every = (uint64_t)t->config.checkpoint_every_steps;
    run->epoch_train_s = run->epoch_samples = 0;
    run->epoch_first_step = t->state.step;
    while (t->state.step_in_epoch < t->steps_per_epoch && steps_left(run) > 0) {
        bool asked_to_stop = false;
        dt_comm_phase(t->world->comm, "training");
        DT_TRY(run_next(run, &asked_to_stop));
        if (asked_to_stop) {
            return stop(run);
        }
        if (every > 0 && t->state.step % every == 0) {
            DT_TRY(save_periodic(run, n_failures));
        }
    }
    return DT_OK;
}

/* The last update of an epoch shows in no loss but this. */
static enum dt_status evaluate(struct run *run)
{
    DT_TRY(dt_evaluator_run(&run->trainer.evaluator, &run->outcome.test));
    return dt_trainer_check_loss(&run->trainer, "test loss", &run->outcome.test, run->trainer.state.step);
}

static enum dt_status finish_epoch(struct run *run)
{
    struct dt_trainer *t = &run->trainer;
    const uint64_t last_step = t->state.epoch * t->steps_per_epoch + t->state.step_in_epoch - 1;
    DT_TRY(evaluate(run));
    const struct dt_epoch_record record = {.step = t->state.step,
                                           .epoch = t->state.epoch + 1,
                                           .train = epoch_metrics(t),
                                           .test = run->outcome.test,
                                           .lr = dt_schedule_lr(&t->schedule, last_step),
                                           .images_per_s = images_per_s(run),
                                           .world_size = t->world->size,
                                           .classifies = classifies(run)};
    if (is_rank0(run)) {
        dt_progress_clear(&run->progress);
        dt_report_epoch(t, &record, run->epoch_train_s);
        dt_metrics_epoch(&run->files, &record);
    }
    if (t->state.step_in_epoch == t->steps_per_epoch) {
        t->state.epoch++;
        t->state.step_in_epoch = 0;
        t->state.loss_sum = t->state.n_correct = t->state.n_samples = 0;
    }
    return DT_OK;
}

static void print_result(const struct run *run)
{
    const struct dt_trainer *t = &run->trainer;
    char after[64];
    if (run->outcome.lines != NULL) {
        dt_line_print(stdout, t, run->outcome.lines);
    }
    if (t->state.step_in_epoch == 0) {
        snprintf(after, sizeof after, " after %llu epoch%s", (unsigned long long)t->state.epoch, t->state.epoch == 1 ? "" : "s");
    } else {
        snprintf(after, sizeof after, " after %llu steps", (unsigned long long)t->state.step);
    }
    dt_report_result(&run->outcome.test, classifies(run), after);
}

/* The last checkpoint. A full disk takes the weights of a finished run, but not its result. */
static enum dt_status save_last(struct run *run)
{
    const enum dt_status s = save(run);
    if (s == DT_IO && is_rank0(run)) {
        print_result(run);
    }
    return s;
}

static enum dt_status run_epochs(struct run *run)
{
    struct dt_trainer *t = &run->trainer;
    int n_failures = 0;
    if (steps_left(run) == 0 && t->state.step_in_epoch == 0) { /* resumed at the end: there is only the result to tell */
        return evaluate(run);
    }
    do { /* also with no step left of the epoch, which still has to be finished: the checkpoint was written before it was */
        DT_TRY(run_steps(run, &n_failures));
        DT_TRY(finish_epoch(run));
        const uint64_t every = (uint64_t)t->config.checkpoint_every_epochs;
        if (steps_left(run) == 0) {
            DT_TRY(save_last(run));
        } else if (every > 0 && t->state.epoch % every == 0) {
            DT_TRY(save_periodic(run, &n_failures));
        }
    } while (steps_left(run) > 0);
    return DT_OK;
}

/* With averaging or the broadcast off, replicas are expected to differ: said at the end, not an error. */
static enum dt_status compare_replicas(struct run *run)
{
    struct dt_trainer *t = &run->trainer;
    if (t->world->size == 1 || (t->config.dist.average && t->config.dist.broadcast)) {
        return DT_OK;
    }
    const enum dt_status s = dt_replica_check_run(&t->check, t->network);
    if (s == DT_INTERNAL) {
        if (is_rank0(run)) {
            dt_text_print(stderr, "as expected, %s", dt_error_text());
        }
        dt_error_clear();
        return DT_OK;
    }
    return s;
}

/* What a line's fit is for. */
static enum dt_status gather_lines(struct run *run)
{
    struct dt_trainer *t = &run->trainer;
    if (!dt_line_is_model(t)) {
        return DT_OK;
    }
    run->outcome.lines = calloc((size_t)t->world->size, sizeof *run->outcome.lines);
    const bool ok = run->outcome.lines != NULL;
    DT_TRY(dt_world_agree(t->world, ok ? DT_OK : dt_error(DT_NO_MEMORY, "out of memory for the ranks' lines")));
    return dt_line_gather(t, run->outcome.lines);
}

static enum dt_status open_run(struct run *run, const struct dt_train_options *options)
{
    struct dt_trainer *t = &run->trainer;
    struct dt_world *world = t->world;
    char resumed_from[DT_CHECKPOINT_PATH_SIZE] = "";
    DT_TRY(dt_run_dir_open(world, options->run_dir, t->config.name, options->resume, &run->dir));
    if (options->resume) {
        DT_TRY(dt_trainer_restore(t, &run->dir, options->checkpoint, resumed_from));
        t->dist.spec.broadcast = t->dist.spec.broadcast || resumed_from[0] != '\0'; /* a checkpoint is rank 0's replica */
    }
    const char *weights = resumed_from[0] == '\0' ? options->weights : NULL;
    if (weights != NULL) {
        DT_TRY(dt_trainer_take_weights(t, weights));
        t->dist.spec.broadcast = true; /* only rank 0 has them */
    }
    DT_TRY(dt_dist_optimizer_broadcast(&t->dist));
    enum dt_status s = DT_OK;
    if (world->rank == 0) {
        s = dt_run_dir_write(&run->dir, "config.json", t->config_json);
        s = s == DT_OK ? dt_metrics_open(&run->dir, t->state.step, t->state.epoch, &run->files) : s;
    }
    DT_TRY(dt_world_agree(world, s));
    DT_TRY(dt_report_start(t, &run->dir, resumed_from, weights));
    dt_metrics_run(&run->files, &t->config, &t->model, world->size, t->state.step, t->loader.shard.global_batch);
    dt_progress_open(&t->config, world->rank == 0, t->steps_per_epoch, &run->progress);
    return DT_OK;
}

/* A run that failed leaves a summary too, if it still can: a second witness beside the exit code. */
static void note_failure(struct run *run, enum dt_status status)
{
    if (is_rank0(run) && run->dir.lock >= 0) {
        (void)dt_report_summary(&run->trainer, &run->dir, &run->outcome, status); /* the first error's text stays the one told */
    }
}

static void note_end(struct run *run)
{
    run->outcome.steps = run->trainer.state.step;
    run->outcome.epochs = run->trainer.state.epoch;
    run->outcome.seconds = dt_clock_s() - run->start_s;
}

/* The warning about missing records is long past. */
static enum dt_status check_records(const struct run *run)
{
    return !run->files.failed
               ? DT_OK
               : dt_error(DT_IO, "%s: records are missing from the metrics, as was said (the result is whole)", run->dir.path);
}

static enum dt_status close_run(struct run *run, enum dt_status status)
{
    struct dt_trainer *t = &run->trainer;
    if (status == DT_OK) {
        DT_TRY(compare_replicas(run));
        DT_TRY(gather_lines(run));
    }
    if (status == DT_OK && is_rank0(run)) { /* early: the launcher forwards stderr apart from stdout, where the result comes last */
        dt_text_print(stderr, "saved %s",
                      run->outcome.checkpoint[0] != '\0' ? run->outcome.checkpoint : "nothing new: no step was left");
    }
    DT_TRY(dt_report_times(t));
    DT_TRY(dt_report_traffic(t, &run->outcome.traffic));
    DT_TRY(dt_report_memory(t, &run->outcome.memory));
    enum dt_status written = DT_OK;
    if (is_rank0(run)) {
        written = status == DT_OK ? check_records(run) : DT_OK;
        const enum dt_status s = dt_report_summary(t, &run->dir, &run->outcome, written != DT_OK ? written : status);
        written = written != DT_OK ? written : s;
    }
    if (status == DT_OK && is_rank0(run)) {
        print_result(run);
    }
    DT_TRY(dt_world_agree(t->world, written));
    return status;
}

/* With these switches off replicas differ by design, and comparing them every k steps would only end the run. */
static struct dt_config adjusted(const struct dt_config *config)
{
    struct dt_config c = *config;
    if (!c.dist.average || !c.dist.broadcast) {
        c.dist.check_every = 0;
    }
    return c;
}

enum dt_status dt_train(struct dt_world *world, const struct dt_config *config, const struct dt_train_options *options)
{
    struct run *run = calloc(1, sizeof *run);
    DT_TRY(dt_world_agree(world, run != NULL ? DT_OK : dt_error(DT_NO_MEMORY, "out of memory")));
    run->start_s = dt_clock_s();
    run->dir.lock = -1;
    const struct dt_config c = adjusted(config);
    enum dt_status s = dt_trainer_open(world, &c, &run->trainer);
    if (s == DT_OK) {
        s = open_run(run, options);
        if (s == DT_OK) {
            s = run_epochs(run);
        }
        note_end(run);
        if (s == DT_OK || s == DT_STOPPED) {
            s = close_run(run, s);
        } else {
            note_failure(run, s);
        }
        dt_progress_clear(&run->progress);
        dt_metrics_close(&run->files);
        dt_run_dir_close(&run->dir);
        dt_trainer_close(&run->trainer);
    }
    free(run->outcome.lines);
    free(run);
    return s;
}
