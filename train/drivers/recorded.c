/* Steps that a GPU takes on its own (cuda/step_graph.c): the host says which ones, several at a
 * time, and then waits for their results. */
#include <stdio.h>

#include "train/step.h"
#include "train/trainer.h"

static const struct dt_step_graph_ops *graph_ops(const struct dt_trainer *t)
{
    return t->device.module->graph;
}

static struct dt_step_graph *graph_of(const struct dt_trainer *t)
{
    return t->driver.own;
}

/* The rank's own work is a request of its world's communicator, whose wait has a limit and finds
 * the late rank. Each step counts as a wait, so the wait also finds the rank whose GPU is late. */
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
    DT_TRY(graph_ops(t)->test(graph_of(t), &n_done));
    DT_ASSERT(n_done >= wait->n_counted && n_done <= wait->n_steps);
    for (; wait->n_counted < n_done; wait->n_counted++) {
        dt_comm_part_ended(t->world->comm);
    }
    *done = n_done == wait->n_steps;
    return DT_OK;
}

/* This rank's steps wait for no other rank. */
static enum dt_status gpu_hangs(const struct dt_trainer *t)
{
    char gpu[128];
    snprintf(gpu, sizeof gpu, "%s, %s: ", t->device.info.name, t->device.info.uuid);
    return dt_error_around(DT_STALLED, gpu, "; dmesg may have an Xid of it");
}

static enum dt_status wait_for_gpu(struct dt_trainer *t, int n_steps)
{
    struct wait wait = {.trainer = t, .n_steps = n_steps};
    dt_comm_request_begin(t->world->comm, "steps on the GPU", 0, &wait.request);
    wait.request.progress = progress;
    const enum dt_status s = dt_comm_wait(t->world->comm, &wait.request);
    return s == DT_STALLED && t->world->size == 1 ? gpu_hangs(t) : s;
}

static void plan_steps(struct dt_trainer *t, int n, struct dt_step_input *inputs)
{
    DT_ASSERT(n >= 1 && n <= DT_MAX_RECORDED_STEPS);
    for (int i = 0; i < n; i++) {
        const uint64_t step = t->state.step_in_epoch + (uint64_t)i;
        const struct dt_shard *shard = &t->set.loader.shard;
        inputs[i].draw = dt_shard_device_draw(shard, (uint32_t)t->state.epoch, step);
        inputs[i].update = dt_strategy_next_update(
            t->strategy, dt_step_lr(t, step), dt_shard_step_samples(shard, step), inputs[i].draw.n);
    }
}

static enum dt_status run(struct dt_trainer *t, int n, struct dt_metrics *local)
{
    const struct dt_span span = {.kind = DT_SPAN_GPU, .n_samples = n};
    struct dt_step_input inputs[DT_MAX_RECORDED_STEPS];
    if (t->hooks != NULL) {
        DT_TRY(dt_hooks_step_begin(t, t->state.step + 1, t->state.step + (uint64_t)n));
    }
    struct dt_trace *trace = t->strategy->trace; /* of the steps as one */
    dt_trainer_trace(t, NULL);
    DT_TRY(dt_span_begin(trace, &span));
    plan_steps(t, n, inputs);
    DT_TRY(graph_ops(t)->start(graph_of(t), inputs, n));
    DT_TRY(wait_for_gpu(t, n));
    graph_ops(t)->take(graph_of(t), local);
    dt_step_clock_lap(&t->clock, DT_PHASE_ON_GPU);
    return dt_span_end(trace, &span);
}

/* ---- the driver */

/* Fits where no part of a step has to pass through the host, no hook looks at each step, and
 * the network is a chain. */
static bool fits(const struct dt_trainer *t)
{
    const struct dt_device_module *module = t->device.module;
    DT_ASSERT(t->strategy == NULL || module == NULL || t->device.info.total_bytes > 0);
    return t->config.cuda_graph && t->config.ema == 0 && !t->model.is_graph && module != NULL &&
           module->graph != NULL && (t->world->size == 1 || t->device.allreduce_open != NULL);
}

/* A dt_step_fn, its context the trainer. */
static enum dt_status record_step(void *context, const struct dt_batch *batch,
                                  const struct dt_update *update)
{
    struct dt_trainer *t = context;
    struct dt_strategy_step step = dt_strategy_start(t->strategy, update);
    DT_TRY(dt_step_passes(t, batch, &step, NULL));
    return dt_strategy_finish(&step);
}

static enum dt_status open_recorded(struct dt_trainer *t, void **own)
{
    struct dt_step_graph *graph = NULL;
    const enum dt_status s = graph_ops(t)->open(
        t->backend, t->device.allreduce_open != NULL ? t->strategy->allreduce : NULL,
        t->set.loader.capacity, record_step, t, &graph);
    *own = graph;
    return s;
}

static void close_recorded(struct dt_trainer *t, void *own)
{
    graph_ops(t)->close(own);
}

static enum dt_status take(struct dt_trainer *t, int n, struct dt_step_results *out)
{
    return dt_steps_together(t, n, run, 0.1, out);
}

const struct dt_driver_ops dt_recorded_driver = {
    .on_device = true, .fits = fits, .open = open_recorded, .close = close_recorded, .take = take};
