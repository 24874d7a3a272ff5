/* Steps that a GPU takes on its own (cuda/step_graph.h): the host says which ones, several at a
 * time, and then waits for what came of them. */
#include <stdio.h>

#include "train/trainer.h"

enum dt_status dt_trainer_gpu_step(void *context, const struct dt_batch *batch,
                                   const struct dt_update *update)
{
    struct dt_trainer *t = context;
    struct dt_strategy_step step = dt_strategy_begin(t->strategy, update);
    DT_TRY(dt_trainer_passes(t, batch, &step, NULL));
    return dt_strategy_wait(&step);
}

/* The rank's own work is a request of its world's communicator, whose wait has a limit and knows
 * who is behind: each step counts as a collective, so that it also knows whose GPU is. */
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

/* There is nobody else whom its steps could wait for. */
static enum dt_status gpu_hangs(const struct dt_trainer *t)
{
    char gpu[128];
    snprintf(gpu, sizeof gpu, "%s, %s: ", t->device.info.name, t->device.info.uuid);
    return dt_error_around(DT_STALLED, gpu, "; dmesg may have an Xid of it");
}

static enum dt_status wait_for_gpu(struct dt_trainer *t, int n_steps)
{
    struct wait wait = {.trainer = t, .n_steps = n_steps};
    t->world->comm->n_started += (uint64_t)n_steps;
    dt_comm_request_begin(t->world->comm, "steps on the GPU", &wait.request);
    wait.request.progress = progress;
    const enum dt_status s = dt_comm_wait(t->world->comm, &wait.request);
    return s == DT_STALLED && t->world->size == 1 ? gpu_hangs(t) : s;
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

enum dt_status dt_trainer_gpu_run(struct dt_trainer *t, int n, struct dt_metrics *local)
{
    const struct dt_step_graph_ops *graph = t->device.module->graph;
    struct dt_step_input inputs[DT_MAX_RECORDED_STEPS];
    const struct dt_span span = {.kind = DT_SPAN_GPU, .n_samples = n};
    if (t->watchers.first != NULL) {
        DT_TRY(dt_watchers_step_begin(t, t->state.step + 1, t->state.step + (uint64_t)n));
    }
    struct dt_trace *trace = t->trace; /* of the steps as one: the host sees nothing within */
    dt_trainer_watch(t, NULL);
    DT_TRY(dt_span_begin(trace, &span));
    plan_steps(t, n, inputs);
    DT_TRY(graph->start(t->graph, inputs, n));
    DT_TRY(wait_for_gpu(t, n));
    graph->take(t->graph, local);
    return dt_span_end(trace, &span);
}
