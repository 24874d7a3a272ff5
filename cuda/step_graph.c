/* Steps that the GPU takes on its own: all calls of one training step, sums over ranks included,
 * are recorded once as a CUDA graph, which is launched again and again. The inputs that differ from
 * step to step lie in a table on the device, with a counter for the current step: so a step costs
 * the host one launch, and nothing waits between two steps. The rows of all steps of the table are
 * drawn before the first; each step ends by setting up the inputs of the next. A graph holds for
 * one number of samples on every rank; the short last batch of an epoch has its own. The first step
 * of a kind is taken call by call, so that libraries load and connect; the second is recorded: on
 * all ranks alike, as NCCL requires, even if the number changes on some of them only. */
#include "cuda/cuda_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cuda/cuda_check.h"
#include "cuda/range.h"

#define MAX_RECORDINGS 8 /* runs need two or three, seldom more */

/* Steps enqueued before the GPU has done the earlier ones: enough to keep the GPU busy, and few
 * enough that no launch blocks behind others: a blocked host could check neither the clock nor
 * NCCL. */
#define MAX_AHEAD 8

#define LAST_STEPS_LIMIT_S 1.0
#define ARRIVAL_LIMIT_S 2.0

struct recording {
    uint32_t like_step;    /* dt_draw's: equal where every rank has the same number of samples */
    bool taken;            /* once, call by call */
    cudaGraphExec_t graph; /* NULL: not recorded yet */
};

struct dt_step_graph {
    struct dt_cuda *cuda;
    struct dt_allreduce *allreduce;
    dt_step_fn step;
    void *context;
    struct dt_gpu_steps *steps;   /* device */
    struct dt_gpu_rows rows;      /* one allocation, which starts at `all` */
    struct dt_step_input *inputs; /* pinned; (DT_MAX_RECORDED_STEPS); the next is pinned too */
    struct dt_metrics *metrics;
    volatile int *n_done; /* pinned; finished steps of the last start, counted by the GPU */
    cudaEvent_t done;
    int n_steps, n_enqueued; /* of the last start: in all; enqueued so far */
    int most_ahead;          /* at most MAX_AHEAD */
    struct recording recordings[MAX_RECORDINGS];
};

/* Once NCCL is closed, work that waited for a dead rank ends; without NCCL the GPU itself hangs. */
static bool is_drained(struct dt_step_graph *g)
{
    const bool drained = !g->cuda->lost && dt_cuda_wait(g->cuda->stream, NULL,
                                                        LAST_STEPS_LIMIT_S) != cudaErrorNotReady;
    g->cuda->lost = g->cuda->lost || (!drained && g->allreduce == NULL);
    return drained;
}

static void graph_close(struct dt_step_graph *g)
{
    if (g == NULL) {
        return;
    }
    for (int i = 0; i < MAX_RECORDINGS; i++) {
        if (g->recordings[i].graph != NULL) {
            cudaGraphExecDestroy(g->recordings[i].graph);
        }
    }
    if (!is_drained(g)) {
        return; /* freeing memory would wait, too */
    }
    if (g->done != NULL) {
        cudaEventDestroy(g->done);
    }
    dt_cuda_free(g->cuda, g->steps);
    dt_cuda_free(g->cuda, g->rows.all);
    cudaFreeHost(g->inputs);
    cudaFreeHost(g->metrics);
    cudaFreeHost((void *)g->n_done);
    free(g);
}

static enum dt_status open_parts(struct dt_step_graph *g, int capacity)
{
    const size_t n = (size_t)capacity, n_all = DT_MAX_RECORDED_STEPS * n;
    DT_TRY(dt_cuda_alloc(g->cuda, "the table of steps", sizeof *g->steps, (void **)&g->steps));
    DT_TRY(dt_cuda_alloc(g->cuda, "the sample numbers of steps", (n_all + 2 * n) * sizeof(uint32_t),
                         (void **)&g->rows.all));
    g->rows.rows = g->rows.all + n_all;
    g->rows.ids = g->rows.rows + n;
    g->rows.capacity = capacity;
    DT_CUDA(cudaMallocHost((void **)&g->inputs, DT_MAX_RECORDED_STEPS * sizeof *g->inputs));
    DT_CUDA(cudaMallocHost((void **)&g->metrics, DT_MAX_RECORDED_STEPS * sizeof *g->metrics));
    DT_CUDA(cudaMallocHost((void **)&g->n_done, sizeof *g->n_done));
    DT_CUDA(cudaEventCreateWithFlags(&g->done, cudaEventDisableTiming));
    return DT_OK;
}

/* Where the GPU's writes to the host's memory do not arrive while it works (confidential
 * computing), the host would wait forever for the first steps. */
static enum dt_status check_arrival(struct dt_step_graph *g)
{
    struct dt_cuda *cuda = g->cuda;
    struct dt_patience patience = dt_patience_begin();
    *g->n_done = 0;
    DT_CUDA(dt_gpu_step_end(cuda->stream, g->steps, &g->rows, cuda->step, &cuda->sums->metrics,
                            g->n_done));
    while (*g->n_done == 0) {
        if (dt_patience_look(&patience) > ARRIVAL_LIMIT_S) {
            return dt_error(DT_UNAVAILABLE,
                            "what %s writes to the host's memory does not arrive "
                            "(switch confidential computing off)",
                            cuda->gpu.name);
        }
        cudaStreamQuery(cuda->stream);
        cudaGetLastError(); /* else a later check finds that it is not ready */
    }
    return DT_OK;
}

static enum dt_status graph_open(struct dt_backend *backend, struct dt_allreduce *allreduce,
                                 int capacity, dt_step_fn step, void *context,
                                 struct dt_step_graph **out)
{
    struct dt_step_graph *g = calloc(1, sizeof *g);
    if (g == NULL) {
        return dt_error(DT_NO_MEMORY, "out of memory for the table of steps");
    }
    *g = (struct dt_step_graph){.cuda = (struct dt_cuda *)backend,
                                .allreduce = allreduce,
                                .most_ahead = dt_cuda_without(DT_CUDA_STEPS) ? 1 : MAX_AHEAD,
                                .step = step,
                                .context = context};
    enum dt_status s = g->cuda->unrecorded[0] == '\0'
                           ? open_parts(g, capacity)
                           : dt_error(DT_UNAVAILABLE, "%s", g->cuda->unrecorded);
    s = s == DT_OK ? check_arrival(g) : s;
    if (s != DT_OK) {
        graph_close(g);
        return s;
    }
    *out = g;
    return DT_OK;
}

static enum dt_status enqueue_step(struct dt_step_graph *g, const struct dt_step_input *input,
                                   const char *range)
{
    struct dt_cuda *cuda = g->cuda;
    const struct dt_batch batch = {
        .n = (int)input->draw.n, .rows = g->rows.rows, .ids = g->rows.ids};
    dt_range_begin(range);
    const enum dt_status s = g->step(g->context, &batch, &input->update);
    dt_range_end();
    DT_TRY(s);
    DT_TRY(dt_cuda_join(cuda));
    DT_CUDA(dt_gpu_step_end(cuda->stream, g->steps, &g->rows, cuda->step, &cuda->sums->metrics,
                            g->n_done));
    return DT_OK;
}

/* A call that CUDA forbids during recording invalidates it, and perhaps only a later call reports
 * that. */
static enum dt_status invalidated(cudaError_t ended, enum dt_status s)
{
    char text[DT_ERROR_TEXT_SIZE];
    snprintf(text, sizeof text, "%s", s != DT_OK ? dt_error_text() : cudaGetErrorString(ended));
    dt_error_clear();
    return dt_error(DT_INTERNAL,
                    "the step cannot be recorded (\"cuda\": {\"graph\": false} does without): %s",
                    text);
}

/* Also writes the graph for Graphviz to the file that DTRAIN_CUDA_GRAPH names, if set; the last
 * recorded one stays. */
static enum dt_status instantiate(cudaGraph_t graph, cudaGraphExec_t *out)
{
    const char *path = secure_getenv("DTRAIN_CUDA_GRAPH");
    if (path != NULL) {
        DT_CUDA(cudaGraphDebugDotPrint(graph, path, 0));
    }
    DT_CUDA(cudaGraphInstantiate(out, graph, cudaGraphInstantiateFlagUseNodePriority));
    return DT_OK;
}

/* Ends the recording even if the step failed, unless NCCL still writes to it. A step that failed
 * for another reason than the recording, such as a lost peer, keeps its status. Other threads,
 * NCCL's and cuDNN's, may call CUDA meanwhile. */
static enum dt_status record(struct dt_step_graph *g, const struct dt_step_input *input,
                             struct recording *recording)
{
    cudaGraph_t graph = NULL;
    DT_CUDA(cudaStreamBeginCapture(g->cuda->stream, cudaStreamCaptureModeThreadLocal));
    enum dt_status s = enqueue_step(g, input, "step, recorded");
    if (g->cuda->lost) {
        return s;
    }
    const cudaError_t ended = cudaStreamEndCapture(g->cuda->stream, &graph);
    if (ended != cudaSuccess) {
        cudaGetLastError(); /* else a later check finds it */
        return s == DT_OK || s == DT_INTERNAL ? invalidated(ended, s) : s;
    }
    s = s == DT_OK ? instantiate(graph, &recording->graph) : s;
    cudaGraphDestroy(graph);
    return s;
}

/* Depends only on data that all ranks share, so that all record, replay or go call by call. NULL:
 * too many kinds of steps to keep a graph for each. */
static struct recording *recording_of(struct dt_step_graph *g, uint32_t like_step)
{
    for (int i = 0; i < MAX_RECORDINGS; i++) {
        struct recording *recording = &g->recordings[i];
        if (!recording->taken || recording->like_step == like_step) {
            recording->like_step = like_step;
            return recording;
        }
    }
    return NULL;
}

static enum dt_status take_step(struct dt_step_graph *g, const struct dt_step_input *input)
{
    struct recording *recording = recording_of(g, input->draw.like_step);
    if (recording == NULL || !recording->taken) {
        if (recording != NULL) {
            recording->taken = true;
        }
        return enqueue_step(g, input, "step");
    }
    if (recording->graph == NULL) {
        DT_TRY(record(g, input, recording));
    }
    dt_range_begin("step, launched");
    const cudaError_t code = cudaGraphLaunch(recording->graph, g->cuda->stream);
    dt_range_end();
    DT_CUDA(code);
    return DT_OK;
}

static enum dt_status enqueue_results(struct dt_step_graph *g)
{
    const size_t n_bytes = (size_t)g->n_steps * sizeof *g->metrics;
    DT_CUDA(cudaMemcpyAsync(g->metrics, g->steps->metrics, n_bytes, cudaMemcpyDeviceToHost,
                            g->cuda->stream));
    DT_CUDA(cudaEventRecord(g->done, g->cuda->stream));
    return DT_OK;
}

/* Enqueues up to step `end`, or the last if there are fewer. */
static enum dt_status enqueue_steps(struct dt_step_graph *g, int end)
{
    enum dt_status s = DT_OK;
    g->cuda->inputs_on_device = true;
    while (s == DT_OK && g->n_enqueued < g->n_steps && g->n_enqueued < end) {
        s = take_step(g, &g->inputs[g->n_enqueued++]);
        s = s == DT_OK && g->n_enqueued == g->n_steps ? enqueue_results(g) : s;
    }
    g->cuda->inputs_on_device = false;
    return s;
}

static enum dt_status enqueue_inputs(struct dt_step_graph *g)
{
    const cudaStream_t stream = g->cuda->stream;
    const size_t n = (size_t)g->n_steps;
    DT_CUDA(cudaMemcpyAsync(g->steps->inputs, g->inputs, n * sizeof *g->inputs,
                            cudaMemcpyHostToDevice, stream));
    DT_CUDA(dt_gpu_steps_begin(stream, g->steps, g->n_steps, &g->rows, g->cuda->step));
    /* It may hold earlier results. */
    DT_CUDA(cudaMemsetAsync(&g->cuda->sums->metrics, 0, sizeof *g->metrics, stream));
    return DT_OK;
}

/* Enqueues the first steps whatever the GPU has done by then: ranks number their
 * collectives, so all must reach a step that is taken call by call in the same order. */
static enum dt_status graph_start(struct dt_step_graph *g, const struct dt_step_input *inputs,
                                  int n_steps)
{
    g->n_steps = n_steps;
    g->n_enqueued = 0;
    *g->n_done = 0;
    /* The last copy of them is done: its results were taken. */
    memcpy(g->inputs, inputs, (size_t)n_steps * sizeof *inputs);
    DT_TRY(enqueue_inputs(g));
    return enqueue_steps(g, g->most_ahead);
}

static enum dt_status graph_test(struct dt_step_graph *g, int *n_done)
{
    *n_done = 0;
    if (g->allreduce != NULL) {
        DT_TRY(dt_nccl_check(g->allreduce, "steps on the GPU"));
    }
    const int counted = *g->n_done;
    DT_TRY(enqueue_steps(g, counted + g->most_ahead));
    const bool all = g->n_enqueued == g->n_steps;
    const cudaError_t code = all ? cudaEventQuery(g->done) : cudaStreamQuery(g->cuda->stream);
    if (code == cudaErrorNotReady) {
        cudaGetLastError(); /* else the check after the next launch finds it */
    } else {
        DT_CUDA(code);
    }
    *n_done = all && code == cudaSuccess ? g->n_steps
              : counted < g->n_steps
                  ? counted
                  : g->n_steps - 1; /* the last step is done when its results are here */
    return DT_OK;
}

static void graph_take(struct dt_step_graph *g, struct dt_metrics *out)
{
    memcpy(out, g->metrics, (size_t)g->n_steps * sizeof *out);
}

const struct dt_step_graph_ops dt_step_graph = {.open = graph_open,
                                                .close = graph_close,
                                                .start = graph_start,
                                                .test = graph_test,
                                                .take = graph_take};
