/* Steps that the GPU takes on its own give the same bits as steps taken call by call, whatever
 * differs between them: samples, epoch, learning rate, number of samples. None of them waits or
 * allocates. */
#include "tests/cuda/session.h"
#include "tests/lib/shard_batch.h"

#include <unistd.h>

#include "cuda/cuda_backend.h"
#include "dist/ranks/comm.h"

#define N_EPOCHS 5

struct plan { /* a training, and its results */
    enum dt_precision precision;
    struct dt_optimizer_spec optimizer;
    struct dt_shard shard;
    int n_at_once;
};

struct outcome {
    struct buffer params;
    struct dt_metrics metrics[64];
    int n_steps;
};

#define SHARD(n_ranks, ...)                                                   \
    {                                                                         \
        .mode = DT_SHARDING_SHARD, .seed = 3, .n_total = (n_ranks)*N_SAMPLES, \
        .global_batch = (n_ranks)*CAPACITY, .size = (n_ranks), ##__VA_ARGS__  \
    }

static const struct dt_optimizer_spec adam = {
    .type = DT_OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};

/* half: the rows of two ranks' halves, so that ids differ from rows. */
static const struct dt_shard whole = SHARD(1, .shuffle = true),
                             half = SHARD(2, .rank = 1, .shuffle = true), in_order = SHARD(1);

static void begin(const struct plan *plan, const struct dt_backend_ops *ops,
                  const struct dt_model *model, const struct dt_samples *samples,
                  struct session *session, struct outcome *out)
{
    *out = (struct outcome){.params = buffer_open(model->arena_elems)};
    CHECK_OK(small_session_open(ops, plan->precision, model, samples, &plan->optimizer, session));
    dt_model_init(model, 5, out->params.data);
    CHECK_OK(ops->copy_in(session->backend, session->network->params, out->params.data,
                          model->arena_elems * sizeof(float)));
}

static void end(struct session *session, struct outcome *out)
{
    struct dt_backend *backend = session->backend;
    CHECK_OK(backend->ops->copy_out(backend, out->params.data, session->network->params,
                                    out->params.n * sizeof(float)));
    session_close(session);
}

static struct dt_step_input input_of(const struct plan *plan, struct session *session,
                                     uint32_t epoch, uint64_t step)
{
    struct dt_step_input input = {.draw = dt_shard_device_draw(&plan->shard, epoch, step)};
    const double n = input.draw.n > 0 ? input.draw.n : 1;
    input.update = dt_optimizer_next(&session->optimizer, 0.1 / (1 + epoch + (double)step), 1 / n);
    return input;
}

static enum dt_status passes(struct session *session, const struct dt_batch *batch)
{
    return session_pass(session, &(struct dt_pass){.batch = batch, .training = true, .seed = 77});
}

static struct outcome call_by_call(const struct plan *plan, const struct dt_backend_ops *ops,
                                   bool smooth)
{
    const struct dt_model model = small_cnn(smooth);
    const struct dt_samples samples = small_images();
    struct session session;
    struct outcome out;
    uint32_t rows[CAPACITY], ids[CAPACITY];
    begin(plan, ops, &model, &samples, &session, &out);
    for (uint32_t epoch = 0; epoch < N_EPOCHS; epoch++) {
        for (uint64_t step = 0; step < dt_shard_steps_per_epoch(&plan->shard); step++) {
            const struct dt_step_input input = input_of(plan, &session, epoch, step);
            const int n = shard_batch(&plan->shard, epoch, step, rows, ids);
            const struct dt_batch batch = {.n = n, .rows = rows, .ids = ids, .epoch = epoch};
            CHECK_OK(passes(&session, &batch));
            CHECK_OK(optimizer_apply(&session.optimizer, &input.update, session.network->params,
                                     session.network->grads));
            CHECK_OK(ops->metrics_take(session.backend, &out.metrics[out.n_steps++]));
        }
    }
    end(&session, &out);
    return out;
}

static enum dt_status one_step(void *context, const struct dt_batch *batch,
                               const struct dt_update *update)
{
    struct session *session = context;
    DT_TRY(passes(session, batch));
    return optimizer_apply(&session->optimizer, update, session->network->params,
                           session->network->grads);
}

/* Runs the steps `inputs`; waits only for the end, and allocates nothing. */
static void run_together(struct dt_step_graph *graph, const struct dt_step_input *inputs, int n,
                         struct outcome *out)
{
    const struct fake_counts before = fake_counts();
    int n_done = 0;
    CHECK_OK(dt_step_graph.start(graph, inputs, n));
    while (n_done < n) {
        const int n_before = n_done;
        CHECK_OK(dt_step_graph.test(graph, &n_done));
        CHECK(n_done >= n_before &&
              n_done <=
                  (fake_is_linked ? n_before + 1 : n)); /* each look runs one work item there */
    }
    CHECK_INT(fake_counts().n_host_waits, before.n_host_waits);
    CHECK_INT(fake_counts().n_mallocs, before.n_mallocs);
    dt_step_graph.take(graph, out->metrics + out->n_steps);
    out->n_steps += n;
}

static struct outcome on_its_own(const struct plan *plan, bool smooth)
{
    const struct dt_model model = small_cnn(smooth);
    const struct dt_samples samples = small_images();
    struct session session;
    struct outcome out;
    struct dt_step_graph *graph;
    begin(plan, &dt_cuda_backend, &model, &samples, &session, &out);
    CHECK_OK(dt_step_graph.open(session.backend, NULL, CAPACITY, one_step, &session, &graph));
    const uint64_t per_epoch = dt_shard_steps_per_epoch(&plan->shard),
                   n_steps = N_EPOCHS * per_epoch;
    for (uint64_t step = 0; step < n_steps;) {
        struct dt_step_input inputs[DT_MAX_RECORDED_STEPS];
        int n = 0;
        for (; n < plan->n_at_once && step < n_steps; n++, step++) {
            inputs[n] = input_of(plan, &session, (uint32_t)(step / per_epoch), step % per_epoch);
        }
        run_together(graph, inputs, n, &out);
    }
    dt_step_graph.close(graph);
    end(&session, &out);
    return out;
}

static void check_metrics(const struct outcome *a, const struct outcome *b)
{
    CHECK_INT(a->n_steps, b->n_steps);
    for (int i = 0; i < a->n_steps; i++) {
        CHECK(a->metrics[i].loss_sum == b->metrics[i].loss_sum);
        CHECK(a->metrics[i].n_correct == b->metrics[i].n_correct);
        CHECK(a->metrics[i].n_samples == b->metrics[i].n_samples);
    }
}

static void check_plan(const struct plan *plan)
{
    snprintf(case_text, sizeof case_text,
             "precision %d, optimizer %d, clip %g, %d at once, rank %d", plan->precision,
             plan->optimizer.type, plan->optimizer.clip_norm, plan->n_at_once, plan->shard.rank);
    struct outcome expected = call_by_call(plan, &dt_cuda_backend, false),
                   actual = on_its_own(plan, false);
    check_same_bits("params", &actual.params, &expected.params);
    check_metrics(&actual, &expected);
    BUFFERS_CLOSE(&expected.params, &actual.params);
}

static void check_against_reference(void)
{
    const struct plan plan = {.optimizer = adam, .shard = whole, .n_at_once = 4};
    struct outcome expected = call_by_call(&plan, &dt_ref_backend, true),
                   actual = on_its_own(&plan, true);
    snprintf(case_text, sizeof case_text, "against the reference");
    compare_within(&(struct mode){"f32 after many steps", DT_PRECISION_F32, 1e-4}, "params",
                   &actual.params, &expected.params);
    BUFFERS_CLOSE(&expected.params, &actual.params);
}

/* An error while a step is recorded belongs to that step, and the stream is usable again. */
static enum dt_status failing_step(void *context, const struct dt_batch *batch,
                                   const struct dt_update *update)
{
    (void)batch, (void)update;
    int *n_calls = context;
    return ++*n_calls == 2 ? dt_error(DT_INTERNAL, "the second call fails") : DT_OK;
}

static enum dt_status waiting_step(void *context, const struct dt_batch *batch,
                                   const struct dt_update *update)
{
    (void)batch, (void)update;
    const struct dt_cuda *gpu = context;
    /* Recording refuses it, whatever the caller does about the refusal. */
    cudaStreamSynchronize(gpu->stream);
    return DT_OK;
}

/* As a rank that loses a peer while it records: work on another stream is left open. */
static enum dt_status lost_step(void *context, const struct dt_batch *batch,
                                const struct dt_update *update)
{
    (void)batch, (void)update;
    static cudaStream_t other;
    static cudaEvent_t event;
    static int *work;
    enum cudaStreamCaptureStatus capture;
    const cudaStream_t stream = ((struct dt_cuda *)context)->stream;
    CHECK_INT(cudaStreamIsCapturing(stream, &capture), cudaSuccess);
    if (capture == cudaStreamCaptureStatusNone) {
        CHECK_INT(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
        CHECK_INT(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
        CHECK_INT(cudaMalloc((void **)&work, sizeof *work), cudaSuccess);
        return DT_OK;
    }
    CHECK_INT(cudaEventRecord(event, stream), cudaSuccess);
    CHECK_INT(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
    CHECK_INT(cudaMemsetAsync(work, 0, sizeof *work, other), cudaSuccess);
    return dt_error(DT_STALLED, "a peer is lost");
}

static void check_failed_recording(dt_step_fn step, void *context, struct dt_backend *gpu,
                                   enum dt_status status, const char *text)
{
    struct dt_step_graph *graph;
    const struct dt_step_input inputs[2] = {{.draw = dt_shard_device_draw(&whole, 0, 0)},
                                            {.draw = dt_shard_device_draw(&whole, 0, 1)}};
    CHECK_OK(dt_step_graph.open(gpu, NULL, CAPACITY, step, context, &graph));
    CHECK_FAILS(dt_step_graph.start(graph, inputs, 2), status, text);
    dt_step_graph.close(graph);
    CHECK_OK(gpu->ops->sync(gpu));
    CHECK_INT(cudaGetLastError(), cudaSuccess);
}

static void check_failed_recordings(void)
{
    struct dt_backend *gpu = open_gpu(&modes[0]);
    int n_calls = 0;
    check_failed_recording(failing_step, &n_calls, gpu, DT_INTERNAL, "the second call fails");
    check_failed_recording(waiting_step, gpu, gpu, DT_INTERNAL, "the step cannot be recorded");
    check_failed_recording(waiting_step, gpu, gpu, DT_INTERNAL, "\"graph\": false");
    check_failed_recording(lost_step, gpu, gpu, DT_STALLED, "a peer is lost");
    gpu->ops->close(gpu);
}

static enum dt_status idle_step(void *context, const struct dt_batch *batch,
                                const struct dt_update *update)
{
    (void)context, (void)batch, (void)update;
    return DT_OK;
}

static struct dt_step_graph *open_idle(struct dt_backend *gpu)
{
    struct dt_step_graph *graph;
    CHECK_OK(dt_step_graph.open(gpu, NULL, CAPACITY, idle_step, NULL, &graph));
    return graph;
}

/* As many steps as a table may have, all alike. */
static void start_all(struct dt_step_graph *graph)
{
    static struct dt_step_input inputs[DT_MAX_RECORDED_STEPS];
    for (int i = 0; i < DT_MAX_RECORDED_STEPS; i++) {
        inputs[i].draw = dt_shard_device_draw(&whole, 0, 0);
    }
    CHECK_OK(dt_step_graph.start(graph, inputs, DT_MAX_RECORDED_STEPS));
}

/* A graph that would not work is not opened: the run goes on call by call. */
static void check_no_graph(void)
{
    struct dt_step_graph *graph;
    struct dt_backend *gpu = open_gpu(&modes[0]);
    fake_options.lost_writes = 1;
    CHECK_FAILS(dt_step_graph.open(gpu, NULL, CAPACITY, idle_step, NULL, &graph), DT_UNAVAILABLE,
                "what Fake GPU writes to the host's memory does not arrive (switch confidential "
                "computing off)");
    fake_options.lost_writes = 0;
    dt_error_clear();
    dt_step_graph.close(open_idle(gpu));
    gpu->ops->close(gpu);
}

/* Steps are enqueued before the first has ended, unless that is left out. */
static void check_ahead(const char *without, int expected)
{
    struct dt_backend *gpu = open_gpu(&modes[0]);
    setenv("DTRAIN_CUDA_WITHOUT", without, 1);
    struct dt_step_graph *graph = open_idle(gpu);
    unsetenv("DTRAIN_CUDA_WITHOUT");
    const long before = fake_counts().n_enqueued;
    start_all(graph);
    /* the inputs' copy, a kernel and a memset; the first step call by call; the second's recording
     */
    CHECK_INT(fake_counts().n_enqueued - before, 3 + 1 + (expected > 1) + expected - 1);
    for (int n_done = 0; n_done < DT_MAX_RECORDED_STEPS;) {
        CHECK_OK(dt_step_graph.test(graph, &n_done));
    }
    dt_step_graph.close(graph);
    gpu->ops->close(gpu);
}

/* The GPU hangs, and so do the steps after it. Every wait has a limit, and the end is reached. */
static enum dt_status look_at_steps(struct dt_request *request, bool *done)
{
    int n_done;
    DT_TRY(dt_step_graph.test(request->handle, &n_done));
    *done = n_done == DT_MAX_RECORDED_STEPS;
    return DT_OK;
}

static void check_stalled(void)
{
    struct dt_backend *gpu = open_gpu(&modes[0]);
    struct dt_step_graph *graph = open_idle(gpu);
    struct dt_comm *comm;
    struct dt_request request;
    snprintf(case_text, sizeof case_text, "a GPU that hangs");
    CHECK_OK(dt_comm_open_self(&comm));
    fake_options.hang_launch_at = fake_counts().n_enqueued + 6;
    alarm(60); /* ends a launch or a close that blocks forever */
    start_all(graph);
    dt_comm_request_begin(comm, "steps on the GPU", 0, &request);
    request.handle = graph;
    request.progress = look_at_steps;
    dt_comm_set_timeout(comm, 0.2);
    CHECK_FAILS(dt_comm_wait(comm, &request), DT_STALLED, "steps on the GPU stalled for ");
    dt_step_graph.close(graph);
    gpu->ops->close(gpu);
    alarm(0);
    _exit(0); /* lost memory is never freed */
}

int main(void)
{
    const struct plan plans[] = {
        {.optimizer = {.momentum = 0.9}, .shard = whole, .n_at_once = 3},
        {.optimizer = adam, .shard = half, .n_at_once = DT_MAX_RECORDED_STEPS},
        {.optimizer = {.momentum = 0.9, .clip_norm = 0.5}, .shard = in_order, .n_at_once = 1}};
    for (size_t i = 0; i < N_MODES * 3; i++) {
        struct plan plan = plans[i % 3];
        plan.precision = modes[i / 3].precision;
        check_plan(&plan);
    }
    check_against_reference();
    if (fake_is_linked) {
        check_failed_recordings();
        check_no_graph();
        check_ahead("", 8);
        check_ahead("branch,steps", 1);
        check_stalled();
    }
    return 0;
}
