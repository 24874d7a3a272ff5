#include "train/step.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "dist/launch/stop.h"
#include "dist/strategy/summary/summary.h"
#include "model/layers/layers.h"

/* Micro-batch m of k: a range of the batch's rows. All k exist on every rank, if need be empty, so
 * that all ranks sync alike. */
static struct dt_batch micro_batch(const struct dt_batch *batch, int m, int k)
{
    DT_ASSERT(m >= 0 && m < k);
    const int begin = (int)((int64_t)batch->n * m / k),
              end = (int)((int64_t)batch->n * (m + 1) / k);
    return (struct dt_batch){.n = end - begin,
                             .rows = batch->rows + begin,
                             .ids = batch->ids + begin,
                             .epoch = batch->epoch,
                             .class_weights = batch->class_weights};
}

void dt_trainer_trace(struct dt_trainer *t, struct dt_trace *trace)
{
    t->strategy->trace = trace;
    t->strategy->optimizer.trace = trace;
}

static void lap(struct dt_step_clock *clock, enum dt_phase phase)
{
    if (clock != NULL) {
        dt_step_clock_lap(clock, phase);
    }
}

static enum dt_status gather(struct dt_trainer *t, const struct dt_pass *pass)
{
    const struct dt_span span = {.kind = DT_SPAN_GATHER, .n_samples = pass->batch->n};
    DT_TRY(dt_span_begin(pass->trace, &span));
    DT_TRY(dt_network_gather(t->network, t->set.samples, pass->batch));
    return dt_span_end(pass->trace, &span);
}

/* The passes of a network that is split over the ranks. The strategy measures their times. */
static enum dt_status split_passes(struct dt_trainer *t, const struct dt_batch *batch,
                                   struct dt_strategy_step *step, struct dt_step_clock *clock)
{
    const struct dt_pass pass = {.batch = batch,
                                 .training = true,
                                 .seed = (uint64_t)t->config.seed,
                                 .trace = t->strategy->trace};
    const struct dt_pass_times before = t->strategy->pass_times, *after = &t->strategy->pass_times;
    DT_TRY(dt_strategy_passes(step, t->network, t->set.samples, &pass));
    dt_step_clock_move(clock, DT_PHASE_FORWARD, after->forward_s - before.forward_s);
    dt_step_clock_move(clock, DT_PHASE_BACKWARD, after->backward_s - before.backward_s);
    dt_step_clock_move(clock, DT_PHASE_COMMUNICATION, after->waiting_s - before.waiting_s);
    dt_step_clock_lap(clock, DT_PHASE_DATA);
    return DT_OK;
}

/* The time that it waits for weights counts as communication. */
static enum dt_status forward(struct dt_trainer *t, struct dt_strategy_step *step,
                              const struct dt_pass *pass, struct dt_step_clock *clock)
{
    const double before_s = t->strategy->pass_times.waiting_s;
    DT_TRY(dt_strategy_forward(step, t->network, pass));
    if (clock != NULL) {
        dt_step_clock_move(clock, DT_PHASE_COMMUNICATION,
                           t->strategy->pass_times.waiting_s - before_s);
    }
    return DT_OK;
}

enum dt_status dt_step_passes(struct dt_trainer *t, const struct dt_batch *batch,
                              struct dt_strategy_step *step, struct dt_step_clock *clock)
{
    if (dt_strategy_splits(t->strategy)) {
        return split_passes(t, batch, step, clock);
    }
    const int k = t->roles.works ? (int)t->config.accumulate : 0;
    for (int m = 0; m < k; m++) {
        const struct dt_batch micro = micro_batch(batch, m, k);
        const struct dt_pass pass = {.batch = &micro,
                                     .training = true,
                                     .accumulate = m > 0,
                                     .seed = (uint64_t)t->config.seed,
                                     .trace = t->strategy->trace};
        DT_TRY(gather(t, &pass));
        lap(clock, DT_PHASE_DATA);
        DT_TRY(forward(t, step, &pass, clock));
        DT_TRY(dt_network_loss(t->network, t->set.samples, &pass));
        if (t->hooks != NULL) {
            DT_TRY(dt_hooks_after_loss(t));
        }
        lap(clock, DT_PHASE_FORWARD);
        if (m < k - 1) {
            DT_TRY(dt_network_backward(t->network, &pass, NULL, NULL));
        } else {
            DT_TRY(dt_strategy_backward(step, t->network, &pass));
        }
        lap(clock, DT_PHASE_BACKWARD);
    }
    return DT_OK;
}

/* The loss per sample of predicting 0; at least 1, about one cross-entropy. */
static double baseline_loss(const struct dt_trainer *t)
{
    const struct dt_data_spec *d = &t->config.data;
    const bool line = d->format == DT_DATA_LINEAR;
    return line ? fmax(1,
                       d->slope * d->slope / 3 + d->intercept * d->intercept + d->noise * d->noise)
                : 1;
}

enum dt_status dt_trainer_check_loss(const struct dt_trainer *t, const char *what,
                                     const struct dt_metrics *m, uint64_t step)
{
    DT_ASSERT(m->n_samples > 0);
    const double loss = m->loss_sum / m->n_samples;
    char text[32] = "not a number";
    if (loss <= DT_DIVERGED_FACTOR * baseline_loss(t)) {
        return DT_OK;
    }
    if (!isnan(loss)) {
        snprintf(text, sizeof text, "%.3g", loss);
    }
    return dt_error_agreed(dt_error(
        DT_NON_FINITE,
        "training diverged at step %llu: the %s is %s, no checkpoint "
        "saved (%s)",
        (unsigned long long)step, what, text,
        t->nan_injected ? "an injected fault made gradients NaN: leave it out" : DT_DIVERGED_HINT));
}

double dt_step_lr(const struct dt_trainer *t, uint64_t step_in_epoch)
{
    return dt_lr_schedule_at(&t->schedule,
                             t->state.epoch * t->schedule.steps_per_epoch + step_in_epoch);
}

/* Adds the next step to the state; `train`: of all ranks. As dt_trainer_check_loss. */
static enum dt_status count(struct dt_trainer *t, const struct dt_metrics *train,
                            struct dt_step_result *out)
{
    DT_ASSERT(train->n_samples ==
              (double)dt_shard_step_samples(&t->set.loader.shard, t->state.step_in_epoch));
    const double lr = dt_step_lr(t, t->state.step_in_epoch);
    DT_TRY(dt_trainer_check_loss(t, "loss", train, t->state.step + 1));
    t->state.loss_sum += train->loss_sum;
    t->state.n_correct += train->n_correct;
    t->state.n_samples += train->n_samples;
    t->state.step++;
    t->state.step_in_epoch++;
    t->clock.n_steps++;
    *out = (struct dt_step_result){
        .step = t->state.step, .train = *train, .lr = lr, .grad_norm = (double)NAN};
    return DT_OK;
}

/* Taking the metrics waits until a device has done the work that was only enqueued so far, which so
 * counts as backward. */
enum dt_status dt_step_compute(struct dt_trainer *t, uint64_t step_in_epoch,
                               struct dt_strategy_step *out, struct dt_metrics *local)
{
    DT_ASSERT(step_in_epoch < t->schedule.steps_per_epoch);
    struct dt_loader *loader = &t->set.loader;
    struct dt_batch batch = dt_loader_batch(loader, (uint32_t)t->state.epoch, step_in_epoch);
    batch.n = t->roles.works ? batch.n : 0;
    const size_t n_global = dt_shard_step_samples(&loader->shard, step_in_epoch);
    const struct dt_update update = dt_strategy_next_update(
        t->strategy, dt_step_lr(t, step_in_epoch), n_global, (size_t)batch.n);
    if (t->class_weights != NULL) {
        dt_step_clock_lap(&t->clock, DT_PHASE_DATA);
        DT_TRY(dt_class_weights_of(t, n_global, &batch));
        dt_step_clock_lap(&t->clock, DT_PHASE_COMMUNICATION);
    }
    if (t->hooks != NULL) {
        const uint64_t number = t->state.step + 1 + step_in_epoch - t->state.step_in_epoch;
        dt_step_clock_lap(&t->clock, DT_PHASE_DATA);
        DT_TRY(dt_hooks_step_begin(t, number, number));
        dt_step_clock_lap(&t->clock, DT_PHASE_FORWARD); /* a delay counts as if it computed */
    }
    *out = dt_strategy_start(t->strategy, &update);
    DT_TRY(dt_step_passes(t, &batch, out, &t->clock));
    DT_TRY(t->backend->ops->metrics_take(t->backend, local));
    dt_step_clock_lap(&t->clock, DT_PHASE_BACKWARD);
    return DT_OK;
}

/* ---- the host's driver: a step at a time */

/* Doubles that travel once a step, all ranks' added. */
struct sums {
    struct dt_metrics train;
    double n_stopping; /* ranks that were asked to stop */
};

/* Adds up the step's sums over all ranks while the gradients travel, and takes the step. */
static enum dt_status exchange(struct dt_trainer *t, struct dt_strategy_step *step,
                               struct sums *sums)
{
    struct dt_request request;
    sums->n_stopping = dt_stop_requested() ? 1 : 0;
    DT_TRY(dt_comm_allreduce_start(t->world->comm, sums, sizeof *sums / sizeof(double), DT_TYPE_F64,
                                   DT_REDUCE_SUM, "sum of the step's results", &request));
    DT_TRY(dt_strategy_finish(step));
    return dt_comm_wait(t->world->comm, &request);
}

static enum dt_status take_one(struct dt_trainer *t, int n, struct dt_step_results *out)
{
    const double update_s = t->strategy->update_s;
    struct sums sums;
    struct dt_strategy_step step;
    DT_ASSERT(n == 1);
    dt_step_clock_start(&t->clock);
    DT_TRY(dt_step_compute(t, t->state.step_in_epoch, &step, &sums.train));
    DT_TRY(exchange(t, &step, &sums));
    dt_step_clock_move(&t->clock, DT_PHASE_UPDATE, t->strategy->update_s - update_s);
    dt_step_clock_lap(&t->clock, DT_PHASE_COMMUNICATION);
    const enum dt_status s = count(t, &sums.train, &out->steps[0]);
    if (s != DT_OK) { /* on all ranks: none leaves while weights are on their way */
        (void)dt_strategy_share_weights(t->strategy);
        return s;
    }
    out->n = n;
    out->stop = sums.n_stopping > 0;
    DT_TRY(t->backend->ops->sync(t->backend));
    dt_step_clock_lap(&t->clock, DT_PHASE_UPDATE);
    return DT_OK;
}

/* The sums of layers with statistics of all ranks' samples (batch_norm with `sync`). They are
 * collectives of the world, which begin between those of the gradients. All ranks begin the same
 * ones in the same order: each passes through all layers in every micro-batch, and has as many of
 * these as the others, if need be empty; buckets of gradients begin after the backward pass of the
 * same block on all. */
struct synced {
    struct dt_rank_sum sum; /* first */
    struct dt_trainer *trainer;
    double values[];
};

/* Counts as communication. */
static enum dt_status add(struct dt_rank_sum *sum, double *values, size_t n, const char *name)
{
    struct dt_trainer *t = ((struct synced *)sum)->trainer;
    const double begin_s = dt_clock_s();
    DT_TRY(dt_comm_allreduce(t->world->comm, values, n, DT_TYPE_F64, DT_REDUCE_SUM, name));
    dt_step_clock_move(&t->clock, DT_PHASE_COMMUNICATION, dt_clock_s() - begin_s);
    return DT_OK;
}

static enum dt_status open_host(struct dt_trainer *t, void **own)
{
    const size_t n = dt_rank_sum_values(&t->model);
    if (t->world->size == 1 || n == 0) {
        return DT_OK;
    }
    struct synced *s = calloc(1, sizeof *s + n * sizeof *s->values);
    if (s == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the driver of the steps");
    }
    *s = (struct synced){.sum = {.add = add, .values = s->values}, .trainer = t};
    dt_graph_join(t->network, &s->sum);
    *own = s;
    return DT_OK;
}

static void close_host(struct dt_trainer *t, void *own)
{
    dt_graph_join(t->network, NULL);
    free(own);
}

const struct dt_driver_ops dt_host_driver = {
    .open = open_host, .close = close_host, .take = take_one};

/* ---- drivers that take several steps before the ranks agree */

/* Doubles that travel after the steps, all ranks' added. */
struct sums_of_steps {
    struct dt_metrics train[DT_MAX_STEPS_TOGETHER];
    double n_stopping;
    double seconds;
};

/* `seconds`: of one step. From sums over all ranks, and so the same on each. */
static void adapt(struct dt_driver *driver, double most_s, double seconds)
{
    const double most = 2 * (double)driver->most;
    const double n = seconds * most <= most_s ? most : most_s / seconds;
    driver->most = n > DT_MAX_STEPS_TOGETHER ? DT_MAX_STEPS_TOGETHER : n > 1 ? (int)n : 1;
}

enum dt_status dt_steps_together(struct dt_trainer *t, int n,
                                 enum dt_status (*run)(struct dt_trainer *t, int n,
                                                       struct dt_metrics *local),
                                 double most_s, struct dt_step_results *out)
{
    struct sums_of_steps sums = {.n_stopping = 0};
    const double begin = dt_clock_s();
    dt_step_clock_start(&t->clock);
    DT_TRY(run(t, n, sums.train));
    sums.seconds = dt_clock_s() - begin;
    sums.n_stopping = dt_stop_requested() ? 1 : 0;
    DT_TRY(dt_comm_allreduce(t->world->comm, &sums, sizeof sums / sizeof(double), DT_TYPE_F64,
                             DT_REDUCE_SUM, "sum of the steps' results"));
    dt_step_clock_lap(&t->clock, DT_PHASE_COMMUNICATION);
    for (int i = 0; i < n; i++) {
        DT_TRY(count(t, &sums.train[i], &out->steps[i]));
    }
    out->n = n;
    out->stop = sums.n_stopping > 0;
    if (n == t->driver.most) { /* shorter ones, at the end of an epoch, say less */
        adapt(&t->driver, most_s, sums.seconds / t->world->size / n);
    }
    return DT_OK;
}

/* ---- steps, one after another ---- */

uint64_t dt_record_interval(uint64_t step, uint64_t all)
{
    const uint64_t most = step / 32 < all / 256 ? step / 32 : all / 256;
    return most < 2 ? 1 : UINT64_C(1) << (63 - __builtin_clzll(most));
}

/* 0: none are recorded. */
static uint64_t record_interval(const struct dt_trainer *t, uint64_t step)
{
    const struct dt_config *c = &t->config;
    return c->log_every_steps != DT_AUTO
               ? (uint64_t)c->log_every_steps
               : dt_record_interval(step, (uint64_t)c->epochs * t->schedule.steps_per_epoch);
}

bool dt_trainer_records(const struct dt_trainer *t, uint64_t step)
{
    const uint64_t every = record_interval(t, step);
    return every > 0 && step % every == 0;
}

/* Steps between those whose gradient's norm is recorded. All ranks measure it together, which is
 * about a fiftieth of a small step's time: where the program chooses, it is not in every record. 0:
 * never. */
static uint64_t norm_interval(const struct dt_trainer *t, uint64_t step)
{
    const uint64_t every = record_interval(t, step),
                   least = t->driver.ops->on_device ? DT_MAX_STEPS_TOGETHER : 16;
    return !dt_strategy_has_gradient(t->strategy)                  ? 0
           : t->config.log_every_steps != DT_AUTO || every > least ? every
                                                                   : least;
}

/* Counts as update. */
static enum dt_status measure_norm(struct dt_trainer *t, struct dt_step_result *step)
{
    dt_step_clock_start(&t->clock);
    DT_TRY(dt_strategy_grad_norm(t->strategy, &step->grad_norm));
    dt_step_clock_lap(&t->clock, DT_PHASE_UPDATE);
    return DT_OK;
}

enum dt_status dt_trainer_steps(struct dt_trainer *t, int n, struct dt_step_results *out)
{
    const uint64_t first = t->state.step + 1;
    DT_TRY(t->driver.ops->take(t, n, out));
    const uint64_t norm_every = norm_interval(t, t->state.step);
    if (norm_every > 0 && t->state.step % norm_every == 0) {
        DT_TRY(measure_norm(t, &out->steps[out->n - 1]));
    }
    return dt_hooks_step_end(t, first, t->state.step);
}

/* ---- how many steps are taken together */

uint64_t dt_steps_left(const struct dt_trainer *t)
{
    const uint64_t all = (uint64_t)t->config.epochs * t->schedule.steps_per_epoch,
                   limit = (uint64_t)t->config.max_steps;
    const uint64_t done = t->state.epoch * t->schedule.steps_per_epoch + t->state.step_in_epoch;
    const uint64_t left = all > done ? all - done : 0,
                   allowed = limit > t->state.step ? limit - t->state.step : 0;
    return limit > 0 && allowed < left ? allowed : left;
}

/* Steps from `step` to the next multiple of `every`; with 0 there is none. */
static uint64_t until_multiple(uint64_t step, uint64_t every)
{
    return every > 0 ? every - step % every : UINT64_MAX;
}

/* Of steps that a device takes together only the last one's gradient remains, so they end where a
 * record has its norm, unless records are closer than a device takes steps. */
static uint64_t norm_boundaries(const struct dt_trainer *t)
{
    const uint64_t every = norm_interval(t, t->state.step + 1);
    return t->driver.ops->on_device && every >= DT_MAX_STEPS_TOGETHER ? every : 0;
}

int dt_steps_until_boundary(const struct dt_trainer *t)
{
    const uint64_t step = t->state.step;
    const uint64_t boundaries[] = {
        t->schedule.steps_per_epoch - t->state.step_in_epoch,
        dt_steps_left(t),
        until_multiple(step, (uint64_t)t->config.checkpoint_every_steps),
        until_multiple(step, (uint64_t)t->config.dist.check_every), /* of replicas */
        until_multiple(step, norm_boundaries(t)),
        (uint64_t)t->driver.most,
    };
    uint64_t n = boundaries[0];
    for (size_t i = 1; i < sizeof boundaries / sizeof *boundaries; i++) {
        n = boundaries[i] < n ? boundaries[i] : n;
    }
    return (int)n;
}
