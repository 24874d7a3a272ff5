#include "cuda/engine_trial.h"

#include <math.h>
#include <sched.h>

#include "base/clock.h"
#include "cuda/cuda_check.h"

#define N_RUNS 8     /* recorded together, so that the host's time for a call does not count */
#define N_LAUNCHES 4 /* of which the first warms up */

struct trial {
    struct dt_conv_plan *plan;
    cudaStream_t stream;
    double end_s; /* by dt_clock_s */
    cudaEvent_t begin, end;
    void *operands[DT_CONV_N_OPERANDS], *workspace;
};

/* ---- one engine, which the plan uses */

static enum dt_status run_once(const struct trial *t)
{
    return dt_conv_plan_run(t->plan, t->operands[0], t->operands[1], t->operands[3], t->operands[2], t->workspace);
}

static enum dt_status record(const struct trial *t, cudaGraphExec_t *out)
{
    cudaGraph_t graph = NULL;
    DT_CUDA(cudaStreamBeginCapture(t->stream, cudaStreamCaptureModeThreadLocal));
    enum dt_status s = DT_OK;
    for (int i = 0; i < N_RUNS && s == DT_OK; i++) {
        s = run_once(t);
    }
    cudaError_t code = cudaStreamEndCapture(t->stream, &graph);
    if (s == DT_OK && code == cudaSuccess) {
        code = cudaGraphInstantiate(out, graph, 0);
    }
    if (graph != NULL) {
        cudaGraphDestroy(graph);
    }
    return s != DT_OK || code == cudaSuccess ? s : dt_cuda_failed(code, "the recording of an engine", __FILE__, __LINE__);
}

/* For what is enqueued. */
static enum dt_status wait_for_end(const struct trial *t)
{
    DT_CUDA(cudaEventRecord(t->end, t->stream));
    cudaError_t code;
    while ((code = cudaEventQuery(t->end)) == cudaErrorNotReady && dt_clock_s() < t->end_s) {
        sched_yield();
    }
    if (code == cudaSuccess || code == cudaErrorNotReady) {
        cudaGetLastError(); /* or the check after the next launch finds that it was not ready */
    }
    if (code == cudaErrorNotReady) {
        return dt_error(DT_STALLED, "the GPU does not finish the %s by cuDNN's engine %lld (set cuda.deterministic=true)",
                        dt_conv_plan_name(t->plan), (long long)dt_conv_plan_engine(t->plan)->number);
    }
    DT_CUDA(code);
    return DT_OK;
}

/* The shortest of a few times: whatever else goes on can only add to it. */
static enum dt_status time_graph(const struct trial *t, cudaGraphExec_t graph, double *us)
{
    for (int i = 0; i < N_LAUNCHES; i++) {
        float ms;
        DT_CUDA(cudaEventRecord(t->begin, t->stream));
        DT_CUDA(cudaGraphLaunch(graph, t->stream));
        DT_TRY(wait_for_end(t));
        DT_CUDA(cudaEventElapsedTime(&ms, t->begin, t->end));
        *us = i > 0 ? fmin(*us, 1e3 * (double)ms / N_RUNS) : (double)INFINITY;
    }
    return DT_OK;
}

/* Once call by call: what cuDNN loads then must not be loaded in a capture. */
static enum dt_status time_engine(const struct trial *t, double *us)
{
    cudaGraphExec_t graph = NULL;
    enum dt_status s = run_once(t);
    s = s == DT_OK ? wait_for_end(t) : s;
    s = s == DT_OK ? record(t, &graph) : s;
    s = s == DT_OK ? time_graph(t, graph, us) : s;
    if (graph != NULL) {
        cudaGraphExecDestroy(graph);
    }
    return s;
}

/* ---- all of them */

/* The GPU itself is broken, not the engine. */
static bool is_gpu_lost(const struct trial *t)
{
    const cudaError_t code = cudaStreamQuery(t->stream);
    cudaGetLastError();
    return code != cudaSuccess && code != cudaErrorNotReady;
}

/* Where none can run, the last one's error stays. */
static enum dt_status time_all(const struct trial *t, int *fastest)
{
    const int n = dt_conv_plan_n_engines(t->plan);
    double best = INFINITY;
    enum dt_status s = DT_OK;
    *fastest = -1;
    for (int i = 0; i < n; i++) {
        dt_conv_plan_use(t->plan, i);
        double *us = &dt_conv_plan_engine(t->plan)->us;
        s = time_engine(t, us);
        if (s == DT_OK && *us < best) {
            best = *us;
            *fastest = i;
        }
        if (s == DT_STALLED || (s != DT_OK && is_gpu_lost(t))) {
            return s;
        }
        if (s != DT_OK && (*fastest >= 0 || i + 1 < n)) {
            dt_error_clear();
        }
    }
    return *fastest >= 0 ? DT_OK : s;
}

/* ---- what they run on */

static bool has_memory(void **memory, size_t n_bytes, cudaStream_t stream)
{
    const bool has =
        cudaMalloc(memory, n_bytes > 0 ? n_bytes : 1) == cudaSuccess && cudaMemsetAsync(*memory, 0, n_bytes, stream) == cudaSuccess;
    if (!has) {
        cudaGetLastError(); /* so that the next call does not report it again */
    }
    return has;
}

static size_t largest_workspace(struct dt_conv_plan *plan)
{
    size_t largest = 0;
    for (int i = dt_conv_plan_n_engines(plan) - 1; i >= 0; i--) { /* so that the first is used in the end */
        dt_conv_plan_use(plan, i);
        const size_t n_bytes = dt_conv_plan_workspace(plan);
        largest = n_bytes > largest ? n_bytes : largest;
    }
    return largest;
}

static bool open_memory(struct trial *t)
{
    bool has = has_memory(&t->workspace, largest_workspace(t->plan), t->stream);
    for (int i = 0; i < DT_CONV_N_OPERANDS && has; i++) {
        has = has_memory(&t->operands[i], dt_conv_plan_bytes(t->plan)[i], t->stream);
    }
    return has;
}

static enum dt_status open_events(struct trial *t)
{
    DT_CUDA(cudaEventCreate(&t->begin));
    DT_CUDA(cudaEventCreate(&t->end));
    return DT_OK;
}

static void close_trial(struct trial *t)
{
    cudaFree(t->workspace);
    for (int i = 0; i < DT_CONV_N_OPERANDS; i++) {
        cudaFree(t->operands[i]);
    }
    if (t->begin != NULL) {
        cudaEventDestroy(t->begin);
    }
    if (t->end != NULL) {
        cudaEventDestroy(t->end);
    }
}

enum dt_status dt_engine_trial(struct dt_conv_plan *plan, cudaStream_t stream, double limit_s)
{
    if (dt_conv_plan_n_engines(plan) == 1) {
        return DT_OK;
    }
    struct trial t = {.plan = plan, .stream = stream, .end_s = dt_clock_s() + limit_s};
    int fastest = 0;
    enum dt_status s = open_events(&t);
    if (s == DT_OK && open_memory(&t)) {
        s = time_all(&t, &fastest);
    }
    if (s == DT_STALLED) {
        return s; /* to free anything would wait */
    }
    if (s == DT_OK) {
        dt_conv_plan_use(plan, fastest);
        dt_conv_plan_keep(plan);
    }
    close_trial(&t);
    return s;
}
