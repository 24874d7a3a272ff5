#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "dist/ranks/launch/stop.h"
#include "train/trainer.h"

/* Sums that travel once a step, all ranks' added: the loss and hits of the batch, its samples, and
 * how many ranks were asked to stop. */
enum { SUM_LOSS, SUM_CORRECT, SUM_SAMPLES, SUM_STOP, N_SUMS };

/* Time since the last lap goes to `phase`. */
static void lap(struct dt_trainer *t, double *last, enum dt_phase phase)
{
    if (last != NULL) {
        const double now = dt_clock_s();
        t->times.s[phase] += now - *last;
        *last = now;
    }
}

/* Micro-batch m of k: a range of the batch's rows. All k exist on every rank, if need be empty, so
 * that all ranks sync alike. */
static struct dt_batch micro_batch(const struct dt_batch *batch, int m, int k)
{
    const int begin = (int)((int64_t)batch->n * m / k),
              end = (int)((int64_t)batch->n * (m + 1) / k);
    return (struct dt_batch){.n = end - begin,
                             .rows = batch->rows + begin,
                             .ids = batch->ids + begin,
                             .epoch = batch->epoch};
}

void dt_trainer_watch(struct dt_trainer *t, struct dt_trace *trace)
{
    t->trace = trace;
    t->strategy->trace = trace;
    t->strategy->optimizer.trace = trace;
}

static enum dt_status gather(struct dt_trainer *t, const struct dt_pass *pass)
{
    const struct dt_span span = {.kind = DT_SPAN_GATHER, .n_samples = pass->batch->n};
    DT_TRY(dt_span_begin(pass->trace, &span));
    DT_TRY(dt_network_gather(t->network, t->samples, pass->batch));
    return dt_span_end(pass->trace, &span);
}

/* Of a network that is split over the ranks. The strategy tells where the time went. */
static enum dt_status split_passes(struct dt_trainer *t, const struct dt_batch *batch,
                                   struct dt_strategy_step *step, double *last)
{
    const struct dt_pass pass = {
        .batch = batch, .training = true, .seed = (uint64_t)t->config.seed, .trace = t->trace};
    const struct dt_pass_times before = t->strategy->pass_times, *after = &t->strategy->pass_times;
    DT_TRY(dt_strategy_passes(step, t->network, t->samples, &pass));
    t->times.s[DT_PHASE_FORWARD] += after->forward_s - before.forward_s;
    t->times.s[DT_PHASE_BACKWARD] += after->backward_s - before.backward_s;
    t->times.s[DT_PHASE_COMMUNICATION] += after->waiting_s - before.waiting_s;
    *last += after->forward_s - before.forward_s + after->backward_s - before.backward_s +
             after->waiting_s - before.waiting_s;
    lap(t, last, DT_PHASE_DATA);
    return DT_OK;
}

/* What it waits for weights counts as communication. */
static enum dt_status forward(struct dt_trainer *t, struct dt_strategy_step *step,
                              struct dt_pass *pass, double *last)
{
    const double before_s = t->strategy->pass_times.waiting_s;
    DT_TRY(dt_strategy_forward(step, t->network, pass));
    const double waiting_s = t->strategy->pass_times.waiting_s - before_s;
    if (last != NULL) {
        t->times.s[DT_PHASE_COMMUNICATION] += waiting_s;
        *last += waiting_s;
    }
    return DT_OK;
}

enum dt_status dt_trainer_passes(struct dt_trainer *t, const struct dt_batch *batch,
                                 struct dt_strategy_step *step, double *last)
{
    if (dt_strategy_splits(t->strategy)) {
        return split_passes(t, batch, step, last);
    }
    const int k = t->roles.works ? (int)t->config.accumulate : 0;
    for (int m = 0; m < k; m++) {
        const struct dt_batch micro = micro_batch(batch, m, k);
        struct dt_pass pass = {.batch = &micro,
                               .training = true,
                               .accumulate = m > 0,
                               .seed = (uint64_t)t->config.seed,
                               .trace = t->trace};
        DT_TRY(gather(t, &pass));
        lap(t, last, DT_PHASE_DATA);
        DT_TRY(forward(t, step, &pass, last));
        DT_TRY(dt_network_loss(t->network, t->samples, &pass));
        if (t->watchers.first != NULL) {
            DT_TRY(dt_watchers_after_loss(t));
        }
        lap(t, last, DT_PHASE_FORWARD);
        if (m < k - 1) {
            DT_TRY(dt_network_backward(t->network, &pass, NULL, NULL));
        } else {
            DT_TRY(dt_strategy_backward(step, t->network, &pass));
        }
        lap(t, last, DT_PHASE_BACKWARD);
    }
    return DT_OK;
}

/* Adds up the step's sums over all ranks while the gradients travel, and takes the step. */
static enum dt_status exchange(struct dt_trainer *t, const struct dt_metrics *local,
                               struct dt_strategy_step *step, double sums[N_SUMS])
{
    struct dt_request request;
    sums[SUM_LOSS] = local->loss_sum;
    sums[SUM_CORRECT] = local->n_correct;
    sums[SUM_SAMPLES] = local->n_samples;
    sums[SUM_STOP] = dt_stop_requested() ? 1 : 0;
    DT_TRY(dt_comm_allreduce_start(t->world->comm, sums, N_SUMS, DT_TYPE_F64, DT_REDUCE_SUM,
                                   "sum of the step's results", &request));
    DT_TRY(dt_strategy_wait(step));
    return dt_comm_wait(t->world->comm, &request);
}

/* Of one sample, if the answer is always 0; 1 at least, which is about what classes cost. */
static double loss_of_nothing(const struct dt_trainer *t)
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
    const double loss = m->loss_sum / m->n_samples;
    char text[32] = "not a number";
    if (loss <= DT_DIVERGED_FACTOR * loss_of_nothing(t)) {
        return DT_OK;
    }
    if (!isnan(loss)) {
        snprintf(text, sizeof text, "%.3g", loss);
    }
    return dt_error_agreed(dt_error(DT_NON_FINITE,
                                    "training diverged at step %llu: the %s is %s, no checkpoint "
                                    "saved (lower train.optimizer.lr "
                                    "or set clip_norm)",
                                    (unsigned long long)step, what, text));
}

enum dt_status dt_trainer_advance(struct dt_trainer *t, const struct dt_metrics *train,
                                  struct dt_step_result *out)
{
    const double lr =
        dt_schedule_lr(&t->schedule, t->state.epoch * t->steps_per_epoch + t->state.step_in_epoch);
    DT_TRY(dt_trainer_check_loss(t, "loss", train, t->state.step + 1));
    t->state.loss_sum += train->loss_sum;
    t->state.n_correct += train->n_correct;
    t->state.n_samples += train->n_samples;
    t->state.step++;
    t->state.step_in_epoch++;
    t->n_timed_steps++;
    *out = (struct dt_step_result){
        .step = t->state.step, .train = *train, .lr = lr, .grad_norm = (double)NAN};
    return DT_OK;
}

/* What went into updates since `before_s` counts as that, and the rest as communication. */
static void lap_wait(struct dt_trainer *t, double before_s, double *last)
{
    const double update_s = t->strategy->update_s - before_s;
    t->times.s[DT_PHASE_UPDATE] += update_s;
    *last += update_s;
    lap(t, last, DT_PHASE_COMMUNICATION);
}

/* Forward and backward of this rank's samples; taking the metrics waits until a device has worked
 * off what was only enqueued so far, which so counts as backward. */
static enum dt_status compute(struct dt_trainer *t, uint64_t step_in_epoch,
                              struct dt_strategy_step *out, struct dt_metrics *local, double *last)
{
    struct dt_batch batch = dt_loader_batch(&t->loader, (uint32_t)t->state.epoch, step_in_epoch);
    batch.n = t->roles.works ? batch.n : 0;
    const uint64_t number = t->state.step + 1 + step_in_epoch - t->state.step_in_epoch;
    const double lr =
        dt_schedule_lr(&t->schedule, t->state.epoch * t->steps_per_epoch + step_in_epoch);
    const size_t n_global = dt_shard_step_samples(&t->loader.shard, step_in_epoch);
    const struct dt_update update = dt_strategy_next(t->strategy, lr, n_global, (size_t)batch.n);
    if (t->watchers.first != NULL) {
        DT_TRY(dt_watchers_step_begin(t, number, number));
        lap(t, last, DT_PHASE_FORWARD); /* a delay counts as if it computed */
    }
    *out = dt_strategy_begin(t->strategy, &update);
    DT_TRY(dt_trainer_passes(t, &batch, out, last));
    DT_TRY(t->backend->ops->metrics_take(t->backend, local));
    lap(t, last, DT_PHASE_BACKWARD);
    return DT_OK;
}

enum dt_status dt_trainer_step(struct dt_trainer *t, struct dt_step_results *out)
{
    double sums[N_SUMS], last = dt_clock_s();
    const double update_s = t->strategy->update_s;
    struct dt_metrics local;
    struct dt_strategy_step step;
    DT_TRY(compute(t, t->state.step_in_epoch, &step, &local, &last));
    DT_TRY(exchange(t, &local, &step, sums));
    lap_wait(t, update_s, &last);
    const struct dt_metrics train = {
        .loss_sum = sums[SUM_LOSS], .n_correct = sums[SUM_CORRECT], .n_samples = sums[SUM_SAMPLES]};
    const enum dt_status s = dt_trainer_advance(t, &train, &out->steps[0]);
    if (s != DT_OK) { /* on all ranks: none leaves while weights are on their way */
        (void)dt_strategy_share_weights(t->strategy);
        return s;
    }
    out->n = 1;
    out->stop = sums[SUM_STOP] > 0;
    DT_TRY(t->backend->ops->sync(t->backend));
    lap(t, &last, DT_PHASE_UPDATE);
    return DT_OK;
}

enum dt_status dt_trainer_local_step(struct dt_trainer *t, uint64_t step_in_epoch,
                                     struct dt_metrics *local)
{
    double last = dt_clock_s();
    const double update_s = t->strategy->update_s;
    struct dt_strategy_step step;
    DT_TRY(compute(t, step_in_epoch, &step, local, &last));
    DT_TRY(dt_strategy_wait(&step));
    lap_wait(t, update_s, &last);
    return DT_OK;
}
