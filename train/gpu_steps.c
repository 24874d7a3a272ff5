/* Steps that a GPU takes on its own (cuda/step_graph.h): the host says which ones, several at a time, and then waits for what came
 * of them. How many follows from how long they take, so that progress is shown, a signal heeded and divergence noticed soon
 * enough. */
#include "base/clock.h"
#include "dist/ranks/stop.h"
#include "train/trainer.h"

#define AT_ONCE_S 0.1 /* that the steps given together may take */

/* Sums that travel after them, all ranks' added: three for each step, then how many ranks were asked to stop, and the time. */
enum { SUM_STOP = 3 * DT_MAX_RECORDED_STEPS, SUM_SECONDS, N_SUMS };

enum dt_status dt_trainer_gpu_step(void *context, const struct dt_batch *batch, const struct dt_update *update)
{
    struct dt_trainer *t = context;
    struct dt_strategy_step step = dt_strategy_begin(t->strategy, update);
    DT_TRY(dt_trainer_passes(t, batch, &step, NULL));
    return dt_strategy_wait(&step);
}

/* The rank's own work is a request of its world's communicator, whose wait has a limit and knows who is behind: each step counts
 * as a collective, so that it also knows whose GPU is. */
struct wait {
    struct dt_request request; /* first: what `progress` gets is this */
    struct dt_trainer *trainer;
    int n_steps, n_counted;
};

static enum dt_status progress(struct dt_request *request, bool *done)
{
    struct wait *wait = (struct wait *)request;
    int n_done;
    const struct dt_trainer *t = wait->trainer;
    DT_TRY(t->device.module->graph->test(t->graph, &n_done));
    for (; wait->n_counted < n_done; wait->n_counted++) {
        dt_comm_request_end(t->world->comm);
    }
    *done = n_done == wait->n_steps;
    return DT_OK;
}

static enum dt_status wait_for_gpu(struct dt_trainer *t, int n_steps)
{
    struct wait wait = {.trainer = t, .n_steps = n_steps};
    t->world->comm->n_started += (uint64_t)n_steps;
    dt_comm_request_begin(t->world->comm, "steps on the GPU", &wait.request);
    wait.request.progress = progress;
    return dt_comm_wait(t->world->comm, &wait.request);
}

static void plan_steps(struct dt_trainer *t, int n, struct dt_step_input *inputs)
{
    for (int i = 0; i < n; i++) {
        const uint64_t step = t->state.step_in_epoch + (uint64_t)i;
        const double lr = dt_schedule_lr(&t->schedule, t->state.epoch * t->steps_per_epoch + step);
        const size_t n_global = dt_shard_step_samples(&t->loader.shard, step);
        inputs[i].draw = dt_shard_draw(&t->loader.shard, (uint32_t)t->state.epoch, step);
        inputs[i].update = dt_strategy_next(t->strategy, lr, n_global, inputs[i].draw.n);
    }
}

static enum dt_status run_steps(struct dt_trainer *t, int n, struct dt_metrics *local)
{
    const struct dt_step_graph_ops *graph = t->device.module->graph;
    struct dt_step_input inputs[DT_MAX_RECORDED_STEPS];
    plan_steps(t, n, inputs);
    DT_TRY(graph->start(t->graph, inputs, n));
    DT_TRY(wait_for_gpu(t, n));
    graph->take(t->graph, local);
    return DT_OK;
}

static enum dt_status exchange(struct dt_trainer *t, int n, const struct dt_metrics *local, double seconds, double sums[N_SUMS])
{
    for (int i = 0; i < n; i++) {
        sums[3 * i] = local[i].loss_sum;
        sums[3 * i + 1] = local[i].n_correct;
        sums[3 * i + 2] = local[i].n_samples;
    }
    sums[SUM_STOP] = dt_stop_requested() ? 1 : 0;
    sums[SUM_SECONDS] = seconds;
    return dt_comm_allreduce(t->world->comm, sums, N_SUMS, DT_TYPE_F64, DT_REDUCE_SUM, "sum of the steps' results");
}

/* From sums over all ranks, and so the same on each. */
static void adapt(struct dt_trainer *t, int n, double seconds)
{
    const double per_step = seconds / t->world->size / n;
    const uint64_t most = 2 * (uint64_t)n, fit = per_step * (double)most <= AT_ONCE_S ? most : (uint64_t)(AT_ONCE_S / per_step);
    t->n_at_once = fit > DT_MAX_RECORDED_STEPS ? DT_MAX_RECORDED_STEPS : fit > 1 ? fit : 1;
}

enum dt_status dt_trainer_gpu_steps(struct dt_trainer *t, uint64_t limit, struct dt_step_results *out)
{
    const int n = (int)(limit < t->n_at_once ? limit : t->n_at_once);
    const double begin = dt_clock_s();
    struct dt_metrics local[DT_MAX_RECORDED_STEPS];
    double sums[N_SUMS] = {0};
    DT_TRY(run_steps(t, n, local));
    const double seconds = dt_clock_s() - begin;
    DT_TRY(exchange(t, n, local, seconds, sums));
    t->seconds[DT_PHASE_ON_GPU] += seconds;
    t->seconds[DT_PHASE_COMMUNICATION] += dt_clock_s() - begin - seconds;
    for (int i = 0; i < n; i++) {
        const struct dt_metrics train = {.loss_sum = sums[3 * i], .n_correct = sums[3 * i + 1], .n_samples = sums[3 * i + 2]};
        DT_TRY(dt_trainer_advance(t, &train, &out->steps[i]));
    }
    out->n = n;
    out->stop = sums[SUM_STOP] > 0;
    if ((uint64_t)n == t->n_at_once) { /* shorter ones, at the end of an epoch, say less */
        adapt(t, n, sums[SUM_SECONDS]);
    }
    return DT_OK;
}
