/* Training steps of a small network by each loss. Taken call by call they are the reference's,
 * within each precision; steps that the GPU takes on its own give the same bits, whatever differs
 * between them: samples, epoch, learning rate, number of samples, none of them on some ranks. No
 * step waits or allocates. */
#include "tests/cuda/session.h"
#include "tests/lib/shard_batch.h"

#define N_EPOCHS 5

struct plan { /* a training, and its results */
    enum dt_precision precision;
    struct dt_optimizer_spec optimizer;
    struct dt_shard shard;
    int n_at_once;
    double lr; /* at first */
    enum dt_loss loss;
    double label_smoothing;
};

struct outcome {
    struct buffer params, losses; /* losses: of a sample in each step */
    struct dt_metrics metrics[64];
    int n_steps;
};

#define SHARD(n_ranks, ...)                                                   \
    {                                                                         \
        .mode = DT_SHARDING_SHARD, .seed = 3, .n_total = (n_ranks)*N_SAMPLES, \
        .global_batch = (n_ranks)*CAPACITY, .size = (n_ranks), ##__VA_ARGS__  \
    }

/* half: the rows of two ranks' halves, so that ids differ from rows. rare: none in each second
 * step, whose only sample is the other rank's. */
static const struct dt_shard whole = SHARD(1, .shuffle = true),
                             half = SHARD(2, .rank = 1, .shuffle = true), in_order = SHARD(1),
                             rare = {.mode = DT_SHARDING_GLOBAL,
                                     .seed = 3,
                                     .shuffle = true,
                                     .n_total = 2 * CAPACITY + 1,
                                     .global_batch = 2 * CAPACITY,
                                     .size = 2};

/* What passed since then: at most so many waits, and no allocation. */
static void check_calls(struct fake_counts since, int n_waits)
{
    CHECK(fake_counts().n_host_waits - since.n_host_waits <= n_waits);
    CHECK_INT(fake_counts().n_mallocs, since.n_mallocs);
}

static enum dt_status passes(struct session *session, const struct dt_batch *batch)
{
    return session_pass(session, &(struct dt_pass){.batch = batch, .training = true, .seed = 77});
}

/* The weights change after a pass, as by a restore: copies made from the old ones are invalid. */
static void begin(const struct plan *plan, const struct dt_backend_ops *ops, bool smooth,
                  struct session *session, struct outcome *out)
{
    static struct dt_model model;
    static struct dt_samples samples;
    static const uint32_t rows[CAPACITY];
    const struct dt_batch batch = {.n = CAPACITY, .rows = rows, .ids = rows};
    model = small_cnn(smooth);
    model.spec.loss = plan->loss;
    model.spec.label_smoothing = plan->label_smoothing;
    samples = small_images();
    samples.labels = plan->loss == DT_LOSS_MEAN_SQUARED_ERROR ? NULL : samples.labels;
    *out = (struct outcome){.params = buffer_open(model.arena_elems)};
    CHECK_OK(small_session_open(ops, plan->precision, &model, &samples, &plan->optimizer, session));
    for (uint64_t seed = 4; seed <= 5; seed++) {
        const struct fake_counts before = fake_counts();
        CHECK_OK(passes(session, &batch));
        CHECK_OK(ops->metrics_take(session->backend, &out->metrics[0]));
        check_calls(before, 1);
        dt_model_init(&model, seed, out->params.data);
        CHECK_OK(ops->copy_in(session->backend, session->network->params, out->params.data,
                              out->params.n * sizeof(float)));
    }
}

static void end(struct session *session, struct outcome *out)
{
    struct dt_backend *backend = session->backend;
    CHECK_OK(backend->ops->copy_out(backend, out->params.data, session->network->params,
                                    out->params.n * sizeof(float)));
    session_close(session);
    out->losses = buffer_open((size_t)out->n_steps);
    for (int i = 0; i < out->n_steps; i++) {
        const struct dt_metrics *m = &out->metrics[i];
        out->losses.data[i] = (float)(m->loss_sum / (m->n_samples > 0 ? m->n_samples : 1));
    }
}

static void outcome_close(struct outcome *out)
{
    BUFFERS_CLOSE(&out->params, &out->losses);
}

static struct dt_step_input input_of(const struct plan *plan, struct session *session,
                                     uint32_t epoch, uint64_t step)
{
    struct dt_step_input input = {.draw = dt_shard_device_draw(&plan->shard, epoch, step)};
    const double n = input.draw.n > 0 ? input.draw.n : 1,
                 lr = plan->lr / (1 + epoch + (double)step);
    input.update = dt_optimizer_next(&session->optimizer, lr, 1 / n);
    return input;
}

static enum dt_status one_step(void *context, const struct dt_batch *batch,
                               const struct dt_update *update)
{
    struct session *session = context;
    DT_TRY(passes(session, batch));
    return optimizer_apply(&session->optimizer, update, session->network->params,
                           session->network->grads);
}

static struct outcome call_by_call(const struct plan *plan, const struct dt_backend_ops *ops,
                                   bool smooth)
{
    struct session session;
    struct outcome out;
    uint32_t rows[CAPACITY], ids[CAPACITY];
    begin(plan, ops, smooth, &session, &out);
    for (uint32_t epoch = 0; epoch < N_EPOCHS; epoch++) {
        for (uint64_t step = 0; step < dt_shard_steps_per_epoch(&plan->shard); step++) {
            const struct fake_counts before = fake_counts();
            const struct dt_step_input input = input_of(plan, &session, epoch, step);
            const int n = shard_batch(&plan->shard, epoch, step, rows, ids);
            const struct dt_batch batch = {.n = n, .rows = rows, .ids = ids, .epoch = epoch};
            CHECK_OK(one_step(&session, &batch, &input.update));
            check_calls(before, 1); /* for a slot of the batches */
            CHECK_OK(ops->metrics_take(session.backend, &out.metrics[out.n_steps++]));
        }
    }
    end(&session, &out);
    return out;
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
    check_calls(before, 0);
    dt_step_graph.take(graph, out->metrics + out->n_steps);
    out->n_steps += n;
}

static struct outcome on_its_own(const struct plan *plan, bool smooth)
{
    struct session session;
    struct outcome out;
    struct dt_step_graph *graph;
    begin(plan, &dt_cuda_backend, smooth, &session, &out);
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

/* With relu and a max pool one rounding that selects another branch moves a result by more than any
 * tolerance: in a run or two of a hundred on a GPU, and never or always on fake CUDA. */
static void check_plan(struct plan plan, const struct mode *mode)
{
    const bool smooth = mode->precision != DT_PRECISION_F32 || !fake_is_linked;
    struct outcome expected = call_by_call(&plan, &dt_ref_backend, smooth);
    plan.precision = mode->precision;
    struct outcome called = call_by_call(&plan, &dt_cuda_backend, smooth),
                   alone = on_its_own(&plan, smooth);
    snprintf(case_text, sizeof case_text,
             "precision %d, optimizer %d, loss %d, clip %g, %d at once, rank %d", plan.precision,
             plan.optimizer.type, plan.loss, plan.optimizer.clip_norm, plan.n_at_once,
             plan.shard.rank);
    compare_within(mode, "losses", &called.losses, &expected.losses);
    compare_within(mode, "params", &called.params, &expected.params);
    /* The last step but one: the last may have no samples. */
    CHECK(called.losses.data[called.n_steps - 2] < 0.9f * called.losses.data[0]);
    check_same_bits("params", &alone.params, &called.params);
    CHECK_INT(alone.n_steps, called.n_steps);
    CHECK(memcmp(alone.metrics, called.metrics, sizeof alone.metrics) == 0);
    outcome_close(&expected);
    outcome_close(&called);
    outcome_close(&alone);
}

/* An error while a step is recorded belongs to that step, and the stream is usable again. */
struct fault {
    struct dt_cuda *cuda;
    enum { FAILS, WAITS, LEAVES_WORK } kind;
    enum dt_status status;
    const char *text;
};

static enum dt_status faulty_step(void *context, const struct dt_batch *batch,
                                  const struct dt_update *update)
{
    const struct fault *fault = context;
    const cudaStream_t stream = fault->cuda->stream,
                       other = fault->cuda->branches.lanes[DT_CUDA_UPDATES].stream;
    const cudaEvent_t event = fault->cuda->branches.events[DT_CUDA_UPDATES];
    enum cudaStreamCaptureStatus capture;
    (void)batch, (void)update;
    CHECK_INT(cudaStreamIsCapturing(stream, &capture), cudaSuccess);
    if (capture == cudaStreamCaptureStatusNone) {
        return DT_OK;
    }
    if (fault->kind == WAITS) { /* recording refuses it, whatever the caller does about that */
        cudaStreamSynchronize(stream);
        return DT_OK;
    }
    if (fault->kind == LEAVES_WORK) { /* as a rank that loses a peer */
        CHECK_INT(cudaEventRecord(event, stream), cudaSuccess);
        CHECK_INT(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
        CHECK_INT(cudaMemsetAsync(fault->cuda->step, 0, 1, other), cudaSuccess);
    }
    return dt_error(fault->status, "%s", fault->text);
}

static void check_failed_recordings(void)
{
    struct dt_backend *gpu = open_gpu(&modes[0]);
    const struct dt_step_input inputs[2] = {{.draw = dt_shard_device_draw(&whole, 0, 0)},
                                            {.draw = dt_shard_device_draw(&whole, 0, 1)}};
    struct dt_cuda *cuda = (struct dt_cuda *)gpu;
    struct fault faults[] = {
        {cuda, FAILS, DT_INTERNAL, "the second call fails"},
        {cuda, WAITS, DT_INTERNAL,
         "the step cannot be recorded (\"cuda\": {\"graph\": false} does without)"},
        {cuda, LEAVES_WORK, DT_STALLED, "a peer is lost"}};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct dt_step_graph *graph;
        CHECK_OK(dt_step_graph.open(gpu, NULL, CAPACITY, faulty_step, &faults[i], &graph));
        CHECK_FAILS(dt_step_graph.start(graph, inputs, 2), faults[i].status, faults[i].text);
        dt_step_graph.close(graph);
        CHECK_OK(gpu->ops->sync(gpu));
        CHECK_INT(cudaGetLastError(), cudaSuccess);
    }
    gpu->ops->close(gpu);
}

static enum dt_status idle_step(void *context, const struct dt_batch *batch,
                                const struct dt_update *update)
{
    (void)context, (void)batch, (void)update;
    return DT_OK;
}

/* Steps are enqueued before the first has ended, unless that is left out. */
static void check_ahead(const char *without, int expected)
{
    static struct dt_step_input inputs[DT_MAX_RECORDED_STEPS];
    struct dt_backend *gpu = open_gpu(&modes[0]);
    struct dt_step_graph *graph;
    for (int i = 0; i < DT_MAX_RECORDED_STEPS; i++) {
        inputs[i].draw = dt_shard_device_draw(&whole, 0, 0);
    }
    setenv("DTRAIN_CUDA_WITHOUT", without, 1);
    CHECK_OK(dt_step_graph.open(gpu, NULL, CAPACITY, idle_step, NULL, &graph));
    unsetenv("DTRAIN_CUDA_WITHOUT");
    const long before = fake_counts().n_enqueued;
    CHECK_OK(dt_step_graph.start(graph, inputs, DT_MAX_RECORDED_STEPS));
    /* the inputs' copy, a kernel and a memset; the first step call by call; the second's recording
     */
    CHECK_INT(fake_counts().n_enqueued - before, 3 + 1 + (expected > 1) + expected - 1);
    for (int n_done = 0; n_done < DT_MAX_RECORDED_STEPS;) {
        CHECK_OK(dt_step_graph.test(graph, &n_done));
    }
    dt_step_graph.close(graph);
    gpu->ops->close(gpu);
}

int main(void)
{
    const struct dt_optimizer_spec adam = {
        .type = DT_OPTIMIZER_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
    const struct plan plans[] = {
        {.optimizer = {.momentum = 0.9}, .shard = whole, .n_at_once = 3, .lr = 0.1},
        {.optimizer = adam, .shard = half, .n_at_once = DT_MAX_RECORDED_STEPS, .lr = 0.004},
        {.optimizer = {.momentum = 0.9, .clip_norm = 0.5},
         .shard = in_order,
         .n_at_once = 1,
         .lr = 0.1,
         .label_smoothing = 0.25},
        {.optimizer = {.momentum = 0.9},
         .shard = rare,
         .n_at_once = 4,
         .lr = 0.1,
         .loss = DT_LOSS_MEAN_SQUARED_ERROR}};
    for (size_t i = 0; i < N_MODES * 4; i++) {
        check_plan(plans[i % 4], &modes[i / 4]);
    }
    if (fake_is_linked) {
        check_failed_recordings();
        check_ahead("", 8);
        check_ahead("branch,steps", 1);
    }
    return 0;
}
